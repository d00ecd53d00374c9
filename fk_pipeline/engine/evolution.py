"""The effect of an edit of the schema in the pipeline file on the stored tables.

If columns are only added, the tables get them, no file is rewritten, and the changelog stage is due again for the
batches whose rows may have values for them. Rows without such values keep their hashes, so they are not propagated
(`fk_pipeline.blocks.hashing`). Other types and removed columns need a rebuild. `docs/reference/schema-changes.md` is
the contract.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fk_pipeline.identity import Side
from fk_pipeline.spec import Output, PipelineSpec, SideSpec
from fk_pipeline.spec.sql import parse_columns
from fk_pipeline.store.ledger import Ledger, StageState
from fk_pipeline.store.ledger.fields import NOT_COMPARED

Stale = Mapping[str, tuple[str, str]]
"""Per part of the pipeline file, the value that the stored tables were made with, and the value now."""

_WIDER = {
    "TINYINT": ("SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"),
    "SMALLINT": ("INT", "BIGINT", "FLOAT", "DOUBLE"),
    "INT": ("BIGINT", "DOUBLE"),
}
"""Per type, the types that hold all its values."""

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}


@dataclass(frozen=True)
class SchemaEdit:
    """The edit of the schema of a side, by column.

    Attributes:
        added: new columns.
        removed: columns that are gone.
        widened: columns with a type that holds all values of the old one.
        retyped: columns with another type that does not.
        beyond_delta: new columns of a type that needs a Delta feature which the table does not have.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    widened: tuple[str, ...]
    retyped: tuple[str, ...]
    beyond_delta: tuple[str, ...]


def schema_edit(was: str, now: str) -> SchemaEdit:
    """Returns the edit that leads from one schema to another, both given as DDL."""
    old, new = ({c.name: c.type.upper() for c in parse_columns(ddl)} for ddl in (was, now))
    other = [name for name in new if name in old and new[name] != old[name]]
    return SchemaEdit(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        widened=tuple(name for name in other if _holds(new[name], old[name])),
        retyped=tuple(name for name in other if not _holds(new[name], old[name])),
        beyond_delta=tuple(name for name in new if name not in old and "TIMESTAMP_NTZ" in new[name]),
    )


def _holds(wide: str, narrow: str) -> bool:
    """Returns whether every value that was read as `narrow` equals the value that would have been read as `wide`.

    False for FLOAT to DOUBLE, for example: the source's 0.1 is another number there. False for a decimal of another
    scale: the source's digits were rounded.
    """
    if wide in _WIDER.get(narrow, ()):
        return True
    into, of = _DECIMAL.fullmatch(wide), _DECIMAL.fullmatch(narrow)
    if into is None:
        return False
    if of is not None:
        return into[2] == of[2] and int(into[1]) >= int(of[1])
    return int(into[1]) - int(into[2]) >= _DIGITS.get(narrow, 99)


def edits(stale: Stale) -> dict[Side, SchemaEdit]:
    """Returns, per side, the edit of its schema."""
    return {Side(part.removesuffix(".schema")): schema_edit(*stale[part]) for part in stale if part.endswith(".schema")}


def only_adds(spec: PipelineSpec, stale: Stale) -> bool:
    """Returns whether an edit of the pipeline file only adds columns, which need no rebuild of the tables.

    This requires the policy `evolve`, and that the result gets no columns except new ones, each as it is in its input:
    in the rows that the result already has they are null.
    """
    edit_of = edits(stale)
    if spec.schema_changes != "evolve" or not edit_of or any(_more_than_added(edit) for edit in edit_of.values()):
        return False
    added = {(side, name) for side, edit in edit_of.items() for name in edit.added}
    explained = {f"{side}.schema" for side in edit_of} | {"select"}
    for side in edit_of:
        part = f"{side}.logical_types"
        was, now = (set(filter(None, text.split(", "))) for text in stale.get(part, ("", "")))
        if was <= now and {entry.split(": ")[0] for entry in now - was} <= {name for of, name in added if of == side}:
            explained.add(part)
    if not set(stale) <= explained:
        return False
    return "select" not in stale or stale["select"][0] == "; ".join(
        o.sql for o in spec.outputs if not (o.plain and _reads_only(spec, o, added))
    )


def _more_than_added(edit: SchemaEdit) -> bool:
    return bool(edit.removed or edit.widened or edit.retyped or edit.beyond_delta)


def _reads_only(spec: PipelineSpec, output: Output, added: Collection[tuple[Side, str]]) -> bool:
    """Returns whether a column of the result is made of new columns only; a count of rows is made of none."""
    columns = {(side, column.name) for side, column in spec.reads(output)}
    return bool(columns) and columns.issubset(added)


def to_read_again(spec: PipelineSpec, ledger: Ledger, stale: Stale) -> dict[str, dict[int, str]]:
    """Returns, per changelog stage, the batches whose files have values that were not kept, and why they are due.

    Includes batches of which a run that died may have kept something, though it never finished.
    """
    due: dict[str, dict[int, str]] = {}
    for side, edit in edits(stale).items():
        stage = spec.definition.input(side).stage
        for batch in ledger.batches:
            state = ledger.state(stage, batch)
            if not state.attempts or not ledger.files.of(batch, side):
                continue
            bad = edit.widened + edit.removed if state.counts.get("quarantined") or state.succeeded is None else ()
            had = [name for name in edit.added if _may_have(spec, ledger, side, name, state)]
            if had:
                why = f"column {' and '.join(had)} was added to the schema"
            elif bad:
                why = f"lines may be good since column {' and '.join(bad)} was edited"
            else:
                continue
            due.setdefault(stage, {})[int(batch)] = why
    return due


def _may_have(spec: PipelineSpec, ledger: Ledger, side: Side, field: str, state: StageState) -> bool:
    """Returns whether rows of a batch may have a field that was not declared when they were read."""
    looked, since, read = ledger.fields.looked_since(side), ledger.fields.since(side, field), state.succeeded
    if looked is None or read is None or read < looked or NOT_COMPARED in state.counts:
        return True
    return (since is not None and read > since) or _is_never_reported(spec.side(side), field)


def _is_never_reported(side: SideSpec, field: str) -> bool:
    """Returns whether formats never report a field: it describes the operation of a row, or was added on the way."""
    names = {str(side.op_column).lower(), "op", "_change_type", "_commit_version", "_commit_timestamp"}
    return field.startswith("__") or field.lower() in names


def reopen_batches(spec: PipelineSpec, ledger: Ledger, stale: Stale, run_id: str) -> None:
    """Makes the batches due that must be read again, even if they are due anyway: their rows may be others by then."""
    for stage, reasons in to_read_again(spec, ledger, stale).items():
        by_reason: dict[str, list[int]] = {}
        for batch, why in reasons.items():
            state = ledger.state(stage, batch)
            if state.reopened <= state.started:
                by_reason.setdefault(why, []).append(batch)
        for why, batches in by_reason.items():
            ledger.runs.reopen(stage, batches, run_id, why)


def forget_columns(ledger: Ledger, stale: Stale) -> None:
    """Records that any batch may have values of columns that are no longer declared."""
    for side, edit in edits(stale).items():
        if edit.removed:
            ledger.fields.record(side, edit.removed, always=True)
