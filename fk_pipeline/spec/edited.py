"""A pipeline file that is edited while a process runs that has loaded it: what was edited, and what is used at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fk_pipeline.errors import PipelineFileError, StateError
from fk_pipeline.spec.load import hash_of, load_spec, with_settings
from fk_pipeline.spec.model import PipelineSpec

USED_AT_ONCE = frozenset({
    "settings", "on_bad_record", "schema_changes", "description", "descriptions", "owners", "tags", "group", "meta",
    "register",
})  # fmt: skip
"""The keys of a file that a run or a tick may use although Dagster's definitions were made with others."""


def text_of(spec: PipelineSpec) -> str:
    """Returns a short name of the text that a pipeline was loaded from, all files together; empty if from no file."""
    return hash_of(" ".join(text for _, text in spec.texts))[:12] if spec.texts else ""


def edited_files(spec: PipelineSpec) -> list[Path]:
    """Returns those of the files that a pipeline was loaded from which have another text now, or are gone."""
    return [file for file, text in spec.texts if _hash_now(file) != text]


def as_it_is_now(spec: PipelineSpec) -> PipelineSpec:
    """Returns a pipeline as its files are now, for a process whose Dagster has definitions from an earlier text.

    Raises:
        PipelineFileError: a file was edited, and it cannot be loaded, or differs in what the definitions are made from.
        StateError: the result of another pipeline that it reads cannot be opened.
    """
    edited = edited_files(spec)
    if not edited:
        return with_known_types(spec)
    files = ", ".join(map(str, edited))
    try:
        now = _loaded_again(spec)
    except PipelineFileError as error:
        raise PipelineFileError(
            error.what,
            where=error.where,
            why=f"{files}: edited after Dagster had loaded it; no run is requested until it can be read",
            fix=error.fix or "mend it; the next tick reads it again",
        ) from error
    changed = list(_changed(spec, now))
    if changed:
        raise PipelineFileError(
            f"edited after Dagster had loaded it: {', '.join(changed)}",
            where=files,
            why="Dagster's assets and checks are of the text before, and a run would read the text of now; no run is "
            "requested until both are the same",
            fix="reload the code location (in the pages: Deployment, Reload), or undo the edit",
        )
    return now


def with_known_types(spec: PipelineSpec) -> PipelineSpec:
    """Returns a pipeline with the types of results that it reads and that were not there when it was loaded.

    Raises:
        StateError: its file was edited meanwhile: a run would go on with another text than it began with.
    """
    if not any(spec.side(side).not_run for side in spec.sides):
        return spec
    now = _loaded_again(spec)
    if spec.texts and now.texts != spec.texts:
        raise StateError(
            "the pipeline file was edited after this run had read it",
            where=str(spec.file),
            why="a run uses one text from its first stage to its last; what is not done stays due",
            fix="start the run again",
        )
    return now


def _loaded_again(spec: PipelineSpec) -> PipelineSpec:
    return with_settings(load_spec(spec.file), **spec.own_settings)


def _hash_now(file: Path) -> str:
    try:
        return hash_of(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""


def _changed(spec: PipelineSpec, now: PipelineSpec) -> Iterator[str]:
    """Yields the keys in which two texts of a pipeline differ, other than those of `USED_AT_ONCE`."""
    was, new = _parts(spec), _parts(now)
    for side in spec.sides:  # its types became known meanwhile, which is no edit
        if spec.side(side).not_run:
            was.pop(f"{side}.schema", None)
            new.pop(f"{side}.schema", None)
    for key in dict.fromkeys([*was, *new]):
        if was.get(key) != new.get(key):
            yield key


def _parts(spec: PipelineSpec) -> dict[str, Any]:
    """Returns the values of a pipeline by key, of inputs as `left.schema`, without those of `USED_AT_ONCE`."""
    inputs = set(spec.sides)
    values: dict[str, Any] = {}
    for key, value in spec.model_dump(by_alias=True).items():
        if key in inputs:
            values |= {f"{key}.{part}": item for part, item in value.items() if part not in USED_AT_ONCE}
        elif key not in USED_AT_ONCE:
            values[key] = value
    return values
