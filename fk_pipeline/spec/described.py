"""What the pipeline file says of the data for people: nothing that is computed or stored depends on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from fk_pipeline.spec.base import as_tuple, problem
from fk_pipeline.words import listed_for

if TYPE_CHECKING:
    from fk_pipeline.spec.model import Output, PipelineSpec

# Dagster's own rules: here, an error has the line of the file, and Dagster is not imported to load one.
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
_TAG = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}")
_GROUP = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")

_OF_DAGSTER = "dagster/"
"""The beginning of names that Dagster uses itself."""

TAKEN = ("path", "pipeline file")
"""The names of metadata that the assets have anyway."""


def _owners(given: tuple[str, ...]) -> tuple[str, ...]:
    for i, owner in enumerate(given):
        if not _EMAIL.fullmatch(owner) and not (owner.startswith("team:") and len(owner) > len("team:")):
            raise problem(f"{owner!r} is no owner; it must be an e-mail address, or team:NAME", i)
    return given


def _tags(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if not _TAG.fullmatch(name) or name.startswith(_OF_DAGSTER):
            raise problem(
                "no name of a tag; it must have 1 to 63 letters, digits and _.-, after a prefix of the same form and / "
                f"if there is one, which is not {_OF_DAGSTER}",
                name,
            )
        if not _TAG_VALUE.fullmatch(value):
            raise problem(f"{value!r} is no value of a tag; it must have at most 63 letters, digits and _.-", name)
    return {str(name): str(value) for name, value in given.items()}


def _group(given: str) -> str:
    if not _GROUP.fullmatch(given):
        raise problem(f"{given!r} is no group; it must have letters, digits and _ only, parts are separated by /")
    return given


def _meta(given: dict[str, Any]) -> dict[str, Any]:
    for name in given:
        if name in TAKEN or name.startswith(_OF_DAGSTER):
            raise problem(f"the assets have {name!r} anyway; it must have another name", name)
    return {str(name): _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    """Returns a value of a YAML file as one of JSON; what JSON has not, such as a date, as text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    for scalar in (bool, int, float):
        if isinstance(value, scalar):
            return scalar(value)
    return None if value is None else str(value)


Owners = Annotated[tuple[str, ...], BeforeValidator(as_tuple), AfterValidator(_owners)]
"""E-mail addresses and teams."""

Tags = Annotated[dict[str, str], AfterValidator(_tags)]
"""Values by the names of tags."""

GroupName = Annotated[str, AfterValidator(_group)]
"""A group of assets."""

Meta = Annotated[dict[str, Any], AfterValidator(_meta)]
"""Values of any kind by their names."""


def of_columns(given: Mapping[str, str], names: Iterable[str], what: str) -> dict[str, str]:
    """Returns the texts about columns by the names of the columns as they are; refuses an unknown name.

    Args:
        given: texts by the names of columns, in any case.
        names: the names of the columns.
        what: the thing that has the columns, for the error.
    """
    known = {name.lower(): name for name in names}
    for name in given:
        if name.lower() not in known:
            have = f"it has {listed_for(name, known.values())}"
            raise problem(f"column {name!r} is not in the {what}; {have}", "descriptions", name)
    return {known[name.lower()]: str(text) for name, text in given.items()}


def comments_of_result(spec: PipelineSpec) -> dict[str, str]:
    """Returns, per column of the result, its description, or else the SQL that computes it; some have neither."""
    stage = spec.definition.result_stage
    texts = {o.name: description_of_output(spec, o) or spec.sql_of(stage, o.name) for o in spec.outputs}
    return {name: text for name, text in texts.items() if text}


def description_of_output(spec: PipelineSpec, output: Output) -> str | None:
    """Returns what a pipeline file says that a column of the result means; None if it does not."""
    read = spec.reads(output) if output.plain else ()
    of_inputs = [spec.side(side).descriptions.get(column.name) for side, column in read]
    return spec.descriptions.get(output.name) or next(filter(None, of_inputs), None)
