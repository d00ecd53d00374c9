"""Where the landing files of a pipeline lie, and how messages name a place."""

from __future__ import annotations

import glob

from fk_pipeline.identity import Side
from fk_pipeline.spec.model import PipelineSpec
from fk_pipeline.spec.paths import folder_of, place_of, split_glob


def landing_path(spec: PipelineSpec, side: Side) -> str:
    """Returns the absolute landing folder or glob of a side; only `path` is a pattern, not the file's folder."""
    fixed, pattern = split_glob(spec.side(side).path)
    if not pattern or "://" in fixed:
        return spec.location(spec.side(side).path)
    return f"{glob.escape(spec.location(fixed))}/{pattern}"


def landing_base(spec: PipelineSpec, side: Side) -> str:
    """Returns the absolute landing folder of a side; of a glob the folder from which it starts."""
    return spec.location(split_glob(spec.side(side).path)[0]).removeprefix("file://").rstrip("/")


def relative(spec: PipelineSpec, path: str) -> str:
    """Returns the name of a place for people: relative where it lies below the folder of the file, else as it is.

    A local path is absolute; one with `..` counts as the place that it leads to.
    """
    place = place_of(path) if "/../" in path and "://" not in path else path
    return place.removeprefix(f"{folder_of(spec.file)}/")
