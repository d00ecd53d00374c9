"""The endings of the files that each format reads."""

from __future__ import annotations

from collections.abc import Sequence

from fk_pipeline.cdc.own import own_format
from fk_pipeline.cdc.table_versions import names_versions
from fk_pipeline.spec import SideSpec

JSON_LINES = (".jsonl", ".json", ".ndjson")
"""Endings of files with one JSON value per line; each may be followed by `.gz`."""

ENDINGS = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    "dms": (".csv", ".csv.gz", ".parquet"),
    "parquet": (".parquet", ".parq"),
}
"""Per format that is not JSON lines, the endings of its files; a user's own format may have an attribute `endings`."""


def is_of_format(path: str, side: SideSpec) -> bool:
    """Returns whether the format of the side reads files with this ending."""
    return names_versions(path) if side.has_versions else stem_of(path, side) is not None


def stem_of(path: str, side: SideSpec) -> str | None:
    """Returns the name of a file without its ending; None if the format of the side does not read such files."""
    name, endings = path.rsplit("/", 1)[-1], endings_of(side)
    bare = name if endings else name.removesuffix(".gz")
    return next((bare.removesuffix(e) for e in endings or JSON_LINES if bare.endswith(e)), None)


def endings_of(side: SideSpec) -> Sequence[str] | None:
    """Returns the endings of the files of a side's format; None for a format of JSON lines."""
    if ":" in side.format:
        endings: Sequence[str] | None = getattr(own_format(side.format), "endings", None)
        return endings
    return ENDINGS.get(side.format)
