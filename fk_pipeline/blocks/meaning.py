"""What tables and their columns mean, in a few words for people. No Spark."""

from __future__ import annotations

from collections.abc import Mapping

from fk_pipeline.contract import Kind, Role, loaded
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.described import description_of_output
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import Table

_IN: dict[tuple[Role | None, str], str] = {
    (Role.LOG, s.HASH): "of the whole row; null for a tombstone",
    (Role.RESULT, s.HASH): "of the values of the row",
    (Role.RESULT, s.BATCH): "the batch of the last change; after a range run, one of its batches",
}
"""By the role of the table and the column."""

_OF_ONE_INPUT = {
    s.SIDE: "`input`: the line came in there",
    s.LINE: "the line, from 1",
    s.RAW: "the line as it is, or as it was corrected",
}
"""Of a kind that has one input, and so no pairs."""


def meaning_in(kind: Kind, own: Mapping[str, str], column: str, table: str) -> str | None:
    """Returns the meaning of a column that the engine adds to a table of a kind; None for any other column.

    Args:
        kind: the kind.
        own: the meaning of the columns that only this kind has, by name, or by a beginning that ends with `_`.
        column: the column.
        table: the table.
    """
    role = next((declared.role for declared in kind.tables if declared.name == table), None)
    begins = next((meaning for name, meaning in own.items() if name.endswith("_") and column.startswith(name)), None)
    of_input = _OF_ONE_INPUT if len(kind.inputs) == 1 else {}
    places = (_IN.get((role, column)), own.get(column), begins, of_input.get(column))
    return next((meaning for meaning in places if meaning), s.MEANING.get(column))


_OF_ROLE = {
    Role.LOG: "One row per batch and key of an input: the last event.",
    Role.STATE: "One row per key ever seen of an input: the version that counts.",
    Role.INDEX: "Finds rows of a state by another key; it may have entries that are out of date.",
    Role.MESSAGES: "One row per batch and message.",
    Role.REJECTED: "One row per record that could not be used: where it was, why, and its text.",
}
"""Of tables that are not the main table of a stage."""


def description_of(spec: PipelineSpec, table: str) -> str:
    """Returns what a table is, in Markdown: what the pipeline file says of the result, then what its stage does."""
    kind = spec.definition
    stage = next((stage.description for stage in kind.stages if stage.name == table), None)
    declared = (spec.description or "").strip() if table == kind.result.name else ""
    return "\n\n".join(filter(None, [declared, stage or _OF_ROLE.get(kind.table(table).role)]))


def meanings_of(spec: PipelineSpec, table: Table) -> dict[str, str]:
    """Returns, per column of a table, what it means; columns about which there is nothing to tell are left out.

    It is what the pipeline file says, what the pipeline means by a column of its own, or the expression that it is.
    """
    kind = spec.definition
    definition = kind.table(table.name)
    if definition.role is Role.RESULT:
        written = {output.name: description_of_output(spec, output) for output in spec.outputs}
    else:
        written = {} if definition.of is None else dict(spec.side(definition.of).descriptions)
    own, stage = loaded(kind.meaning), definition.stage or table.name
    texts = {name: written.get(name) or own(name, table.name) or spec.sql_of(stage, name) for name in table.names}
    return {name: text for name, text in texts.items() if text}
