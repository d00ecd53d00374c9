"""Names and schemas of the tables of the foreign-key join.

Source columns keep their names in the changelogs and the right table. In state tables the components of the primary
key of the left row are `_fk_pk_<column>`, those of the foreign key `_fk_fk_<column of the right key>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import shown
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import (
    MERGED,
    QUARANTINE,
    Table,
    changelog_table,
    skippable,
    typed_columns,
    version_columns,
)

AS_OF = "_fk_as_of"
VERDICT = "_fk_verdict"
INSTRUCTION = "_fk_instruction"
LEFT_CHANGELOG = "left_changelog"
RIGHT_CHANGELOG = "right_changelog"
RIGHT_TABLE = "right_table"
SUBSCRIPTION_STORE = "subscription_store"
SUBSCRIBERS = "subscribers"
RESPONSES = "responses"
RESOLVED_JOIN = "resolved_join"
VERDICTS = "verdicts"


def pk(name: str) -> str:
    """Returns the name of a component of the left primary key in a state table."""
    return f"_fk_pk_{name}"


def fk(name: str) -> str:
    """Returns the name of a component of the foreign key, made of the right key column to which it refers."""
    return f"_fk_fk_{name}"


def previous_fk(name: str) -> str:
    """Returns the name of a component of the foreign key before the last propagated change."""
    return f"_fk_previous_fk_{name}"


def chosen(name: str) -> str:
    """Returns the name of a column of a result key of one's choice in the result."""
    return f"_fk_key_{name}"


def unmatched_key(name: str) -> str:
    """Returns the name of a component of the key of a right row that stands alone in the result of an outer join."""
    return f"_fk_alone_{name}"


_MEANING = {
    s.BATCH: "the batch",
    s.GENERATION: "how often the batch was read from other files than before; 0 at first",
    s.SEQUENCE: "where the version stands in the source's order",
    s.OP: "`c`, `u`, `r`, `d`, of plain rows also `i`; of a truncate `t`",
    s.DELETED: "the event is a tombstone",
    s.HASH: "of the selected columns; null for a tombstone",
    s.EVENTS: "events of the key in the batch",
    s.FILE: "the landing file",
    s.HOLES: "as JSON, each `column` that was not sent, with `sequence` and `batch` of its value, if one is known; "
    "`where_fails`: `where` fails on the filled row",
    s.OLD_KEY: "as JSON, if its key changed in the batch: the key before, and the change's sequence",
    s.VALID_FROM: "since when the version holds: with `as_of: batch` its batch",
    AS_OF: "the time whose version of the right row the left row sees: with `as_of: batch` its batch; null: none",
    s.OWNER: "the batch that brought the current version; null if no version is left",
    s.APPLIED_IN: "the batch that last changed the content, and gets the responses",
    s.SEEN_BEFORE: "the key was there before the last propagated change",
    INSTRUCTION: "what the subscription asked for (KIP-213)",
    s.CAUSE: "`left`: the subscription asked; `right`: the right row changed",
    s.LEFT_HASH: "of the left row; null: deleted",
    s.RIGHT_HASH: "of the right row; null: there is none",
    s.CHANGED_AT: "when the row was last written",
    s.SIDE: "the input; `join`: a pair of rows",
    s.LINE: "the line, from 1; null for a pair",
    s.REASON: "why it could not be used; without the values of sensitive columns",
    s.RAW: "the line as it is, sensitive values too, or as it was corrected; as JSON a row of a Parquet file, and a "
    'pair: `{"left", "right"}`',
}
_MEANING_IN = {
    (LEFT_CHANGELOG, s.HASH): "of the whole row; null for a tombstone",
    (RIGHT_TABLE, s.GENERATION): "of the owner's changelog partition when it was read",
    (SUBSCRIPTION_STORE, s.GENERATION): "of the owner's changelog partition when it was read",
    (SUBSCRIPTION_STORE, s.HASH): "of the foreign key and the selected left columns; null for a tombstone",
    (SUBSCRIPTION_STORE, INSTRUCTION): "of the last propagated change; null: no message",
    (RESPONSES, s.BATCH): "the batch that the response is due to",
    (RESPONSES, INSTRUCTION): "of the subscription; null for cause `right`",
    (RESPONSES, s.LEFT_HASH): "of the left row; null: deleted",
    (RESPONSES, s.RIGHT_HASH): "of the right row; null: there is none",
    (RESPONSES, s.OWNER): "the batch that brought the left row, at that time",
    (RESOLVED_JOIN, s.BATCH): "the batch of the last change; after a range run, one of its batches",
    (RESOLVED_JOIN, s.LEFT_HASH): "of its left row; null without one",
    (RESOLVED_JOIN, s.RIGHT_HASH): "of its right row; null without a match",
    (QUARANTINE, s.FILE): "the file; null for a pair",
}
"""Per table and column, a meaning more exact than that in `_MEANING`."""

_COMPONENTS = {
    pk(""): "component of the left row's key",
    fk(""): "component of the foreign key; all are null if one is",
    previous_fk(""): "component of the foreign key before the last propagated change",
    chosen(""): "column of the result key that the pipeline file gives",
    unmatched_key(""): "component of the key of a right row to which no left row refers; null in all other rows",
}


def pk_columns(spec: ForeignKeySpec) -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of each component of the left primary key in a state table."""
    return tuple((pk(c.name), c.type) for c in spec.left.key_columns)


def fk_columns(spec: ForeignKeySpec) -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of each component of the foreign key; the types are those of the right key."""
    return tuple((fk(c.name), c.type) for c in spec.right.key_columns)


def pk_names(spec: ForeignKeySpec) -> list[str]:
    """Returns the names of the components of the left primary key in a state table."""
    return [pk(c.name) for c in spec.left.key_columns]


def fk_names(spec: ForeignKeySpec) -> list[str]:
    """Returns the names of the components of the foreign key."""
    return [fk(c.name) for c in spec.right.key_columns]


def left_keys(spec: ForeignKeySpec) -> dict[str, str]:
    """Returns, per key column of the left side, its name in the state tables."""
    return {c.name: pk(c.name) for c in spec.left.key_columns}


def right_keys(spec: ForeignKeySpec) -> dict[str, str]:
    """Returns, per key column of the right side, its name in the state tables."""
    return {c.name: fk(c.name) for c in spec.right.key_columns}


def time_columns(spec: ForeignKeySpec, name: str, dtype: str = "") -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of a column with times that `as_of` compares, `kind` if given; none without `as_of`."""
    return () if spec.as_of is None else ((name, dtype or spec.time_type),)


def subscribed_columns(spec: ForeignKeySpec, time: str = "") -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of what a left row subscribes to: the foreign key, and with `as_of` the time."""
    return (*fk_columns(spec), *time_columns(spec, AS_OF, time))


def subscribed(spec: ForeignKeySpec) -> list[str]:
    """Returns the names of `subscribed_columns`."""
    return [name for name, _ in subscribed_columns(spec)]


def sensitive_names(spec: ForeignKeySpec, *sides: Side) -> frozenset[str]:
    """Returns the names of the table columns, and of the fields of their structs, that have sensitive values.

    Args:
        spec: the pipeline.
        sides: the sides whose columns the tables have under the names of the source.
    """
    keys = [pk(c.name) for c in spec.left.key_columns if c.name in spec.left.sensitive]
    fks = [c.name for c in spec.right.key_columns if c.name in spec.right.sensitive]
    keys += [name(column) for column in fks for name in (fk, previous_fk, unmatched_key)]
    orders = [
        "value"  # the field of a sequence that `sequence_by` gives
        for side in map(spec.side, SIDES)
        if side.sequence_by is not None
        and any(side.is_sensitive(path[0]) for path in parse_expression(side.sequence_by).reads)
    ]
    times = {AS_OF: (spec.left, spec.as_of), s.VALID_FROM: (spec.right, spec.right.valid_from)}
    secret = [
        name
        for name, (side, sql) in times.items()
        if sql is not None and any(side.is_sensitive(path[0]) for path in parse_expression(sql).reads)
    ]
    return frozenset([*keys, *orders, *secret, *(name for side in sides for name in spec.side(side).sensitive)])


def keys_of(spec: ForeignKeySpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns.

    There are no identifying columns except in the right table, the subscription store and the result.
    """
    side = {LEFT_CHANGELOG: Side.LEFT, RIGHT_CHANGELOG: Side.RIGHT, RIGHT_TABLE: Side.RIGHT}.get(table)
    keys: tuple[tuple[str, str], ...] = ()
    nullable: tuple[tuple[str, str], ...] = ()
    either: tuple[tuple[str, ...], ...] = ()
    if table == RIGHT_TABLE:
        keys = (*typed_columns(spec.right.key_columns), *time_columns(spec, s.VALID_FROM))
    elif table == SUBSCRIPTION_STORE:
        keys = pk_columns(spec)
    elif table == RESOLVED_JOIN:
        keys = (*pk_columns(spec), *paired_columns(spec), *unmatched_columns(spec))
        nullable = keys if spec.outer else paired_columns(spec)
        if unmatched_columns(spec):
            either = tuple(tuple(name for name, _ in part) for part in (pk_columns(spec), unmatched_columns(spec)))
    secret = sensitive_names(spec, *([] if side is None else [side]))
    return Table(
        table,
        keys,
        keys=tuple(name for name, _ in keys),
        sensitive=secret | (sensitive_chosen(spec) if table == RESOLVED_JOIN else frozenset()),
        nullable_keys=frozenset(name for name, _ in nullable),
        either=either,
    )


def sensitive_chosen(spec: ForeignKeySpec) -> frozenset[str]:
    """Returns the columns of a result key of one's choice whose expression reads a sensitive column."""
    reads = {o.name: map(spec.resolve, parse_expression(o.sql).reads) for o in spec.key_outputs}
    secret = (
        name for name, columns in reads.items() if any(c.name in spec.side(side).sensitive for side, c in columns)
    )
    return frozenset(map(chosen, secret))


def stands_by(spec: ForeignKeySpec) -> list[str]:
    """Returns the columns of the foreign key under which a row of the result stood, if a run must know it."""
    return [name for name, _ in fk_columns(spec)] if spec.outer or paired_columns(spec) else []


def paired_columns(spec: ForeignKeySpec) -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of each component of the foreign key if it is part of the result key (`result_key: both`).

    They are null in a row without a foreign key.
    """
    return fk_columns(spec) if spec.result_key == "both" else ()


def has_left(spec: ForeignKeySpec) -> str:
    """SQL (BOOLEAN): a row of the result has a left row, and not the key of a right row alone."""
    return f"({quote(pk_columns(spec)[0][0])} IS NOT NULL)"


def unmatched_columns(spec: ForeignKeySpec) -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of each component of the right key in the key of a row of an outer join without a left row.

    They are null in all other rows. There are none with `result_key: both`: there the foreign key, which such a row
    has as well, is part of the result key.
    """
    if not spec.outer or paired_columns(spec):
        return ()
    return tuple((unmatched_key(c.name), c.type) for c in spec.right.key_columns)


def shown_keys(spec: ForeignKeySpec) -> list[str]:
    """Returns, per key column of the result, the name of the column of the source that it is."""
    left = [column.name for column in spec.left.key_columns]
    has_right = paired_columns(spec) or unmatched_columns(spec)
    right = [column.name for column in spec.right.key_columns] if has_right else []
    return [*left, *(f"right.{name}" if name in left else name for name in right)]


def key_of_row(spec: ForeignKeySpec, row: Mapping[str, Any]) -> str:
    """Returns the key of a row of the result as `explain` takes it: of its left row, or `right.` and its right key."""
    left = {c.name: row[pk(c.name)] for c in spec.left.key_columns}
    if None not in left.values():
        return shown(left)
    return f"right.{shown({c.name: row[fk(c.name)] for c in spec.right.key_columns})}"


def left_changelog(spec: ForeignKeySpec, sequence: str, has_holes: bool = False) -> Table:
    """One row per left key and batch: the last event, with the whole row (nulls for a tombstone) and its hash.

    The newest truncate of a batch is one more row, without a key: a tombstone of every key. With `has_holes` a row also
    records which values its source did not send, and from which version they were taken.
    """
    return changelog_table(LEFT_CHANGELOG, spec.left, sequence, has_holes)


def right_changelog(spec: ForeignKeySpec, sequence: str, has_holes: bool = False, time: str = "") -> Table:
    """One row per right key and batch: the last event, with the whole row (nulls for a tombstone) and its hash.

    With `valid_from` one row per right key, time and batch; `time` is the type of these times.
    """
    return changelog_table(RIGHT_CHANGELOG, spec.right, sequence, has_holes, time)


def right_table(spec: ForeignKeySpec, sequence: str, time: str = "") -> Table:
    """One row per right key ever seen, with payload; a tombstone keeps its key and sequence and has no hash.

    With `as_of` one row per right key and time since which a version holds: a deletion is a version, with a hash and
    `_fk_deleted`; a version that was withdrawn has no hash.
    """
    keys = (*typed_columns(spec.right.key_columns), *time_columns(spec, s.VALID_FROM, time))
    deleted = () if spec.as_of is None else ((s.DELETED, "BOOLEAN"),)
    return Table(
        RIGHT_TABLE,
        (*keys, *version_columns(sequence), *deleted, *typed_columns(spec.right.value_columns)),
        skip_by=(s.APPLIED_IN, s.OWNER, *skippable(keys)),
        keys=keys_of(spec, RIGHT_TABLE).keys,
        properties=MERGED,
    )


def subscription_store(spec: ForeignKeySpec, sequence: str, time: str = "") -> Table:
    """One row per left key ever seen: the batch of its current version, its foreign key and its last instruction."""
    return Table(
        SUBSCRIPTION_STORE,
        (
            *pk_columns(spec),
            *subscribed_columns(spec, time),
            *version_columns(sequence),
            *((previous_fk(c.name), c.type) for c in spec.right.key_columns),
            (INSTRUCTION, "STRING"),
        ),
        skip_by=(s.APPLIED_IN, s.OWNER, *skippable(pk_columns(spec))),
        keys=keys_of(spec, SUBSCRIPTION_STORE).keys,
        properties=MERGED,
    )


def subscribers(spec: ForeignKeySpec, time: str = "") -> Table:
    """Index of a large subscription store: every pair of foreign key and left key that a row of the store ever had.

    With `as_of` every triple with the time between them. It may have outdated and repeated entries, but lacks none;
    its users look up every key in the store.
    """
    columns = subscribed_columns(spec, time)
    return Table(SUBSCRIBERS, (*columns, *pk_columns(spec)), skip_by=skippable(columns))


def responses(spec: ForeignKeySpec, time: str = "") -> Table:
    """One row per batch, left key and cause (left or right): the two versions that a response is about. No payload."""
    return Table(
        RESPONSES,
        (
            (s.BATCH, "INT"),
            *pk_columns(spec),
            *subscribed_columns(spec, time),
            (s.CAUSE, "STRING"),
            (INSTRUCTION, "STRING"),
            (s.LEFT_HASH, "BINARY"),
            (s.RIGHT_HASH, "BINARY"),
            (s.OWNER, "INT"),
        ),
        skip_by=(s.BATCH,),
    )


def verdicts(spec: ForeignKeySpec, time: str = "") -> Table:
    """One row per response whose verdict is not implied: the response and its verdict (ADR 0021)."""
    return Table(VERDICTS, (*responses(spec, time).columns, (VERDICT, "STRING")), skip_by=(s.BATCH,))


def resolved_join(
    spec: ForeignKeySpec, output_types: Sequence[tuple[str, str]], key_types: Sequence[tuple[str, str]] = ()
) -> Table:
    """One row per joined left key: the selected columns, the keys, both hashes, batch and time of the last change.

    In an outer join also one row per right key to which no left row refers: without a left key and a left hash.
    """
    key = keys_of(spec, RESOLVED_JOIN)
    chosen_columns = tuple((chosen(name), dtype) for name, dtype in key_types)
    skippable_keys = (*pk_columns(spec), *fk_columns(spec), *unmatched_columns(spec), *chosen_columns)
    return Table(
        RESOLVED_JOIN,
        (
            *pk_columns(spec),
            *fk_columns(spec),
            *unmatched_columns(spec),
            *chosen_columns,
            (s.LEFT_HASH, "BINARY"),
            (s.RIGHT_HASH, "BINARY"),
            (s.BATCH, "INT"),
            (s.CHANGED_AT, "TIMESTAMP"),
            *output_types,
        ),
        skip_by=(s.BATCH, *skippable(skippable_keys)),
        keys=key.keys,
        nullable_keys=key.nullable_keys,
        either=key.either,
        identity=tuple(name for name, _ in chosen_columns),
        properties={**MERGED, s.CHANGE_FEED: "true"},
    )


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    exact = _MEANING_IN.get((table, column))
    component = next((text for prefix, text in _COMPONENTS.items() if column.startswith(prefix)), None)
    return exact or _MEANING.get(column, component)
