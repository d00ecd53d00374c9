"""Names and schemas of the tables of an aggregate.

The values of `group_by` are `_fk_by_<name>` in every table, and may be null: null is a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate.kind import (
    AT,
    ENTRY,
    GROUP,
    GROUP_ROWS,
    MEMBERS,
    NOTES,
    SLICE,
    START,
    WINDOW_END,
    WINDOW_START,
    AggregateStage,
    by,
)
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.spec import Column
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import MERGED, Table, skippable, typed_columns, version_columns

Types = Mapping[str, str]
"""Per column of `group_by` (`by`), and for the time, its type."""


def by_columns(spec: AggregateSpec) -> list[str]:
    """Returns the columns with the values of `group_by`."""
    return [by(name) for name in spec.group_names]


def group_key(spec: AggregateSpec) -> list[str]:
    """Returns the columns that identify a row of the result: the start of its window first."""
    return [*([] if spec.window is None else [START]), *by_columns(spec)]


def placing_columns(spec: AggregateSpec) -> list[str]:
    """Returns the columns of the store that tell in which groups a row counts."""
    return [GROUP, *by_columns(spec), *([] if spec.window is None else [AT])]


def input_key(spec: AggregateSpec) -> list[str]:
    """Returns the key columns of the input."""
    return [column.name for column in spec.input.key_columns]


def payload_columns(spec: AggregateSpec) -> tuple[Column, ...]:
    """Returns the columns that the aggregates read and that are not part of the key: the store has their values."""
    keys = input_key(spec)
    return tuple(column for column in spec.selected[Side.INPUT] if column.name not in keys)


def sensitive_names(spec: AggregateSpec, *, of_source: bool) -> frozenset[str]:
    """Returns the names of the table columns that have sensitive values; `of_source`: also those of the source."""
    found = {*spec.input.sensitive} if of_source else set()

    def secret(sql: str) -> bool:
        return any(spec.input.is_sensitive(path[0]) for path in parse_expression(sql).reads)

    secrets = {by(name) for name, sql in spec.grouped_by.items() if secret(sql)}
    found |= secrets | ({GROUP} if secrets else set())
    if spec.window is not None and secret(spec.window.time):
        found |= {AT, SLICE, START}
    if spec.input.sequence_by is not None and secret(spec.input.sequence_by):
        found.add("value")  # the field of a sequence that `sequence_by` gives
    return frozenset(found)


def keys_of(spec: AggregateSpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    keys: tuple[tuple[str, str], ...] = ()
    nullable: frozenset[str] = frozenset()
    if table == AggregateStage.GROUPING_STORE:
        keys = typed_columns(spec.input.key_columns)
    if table == AggregateStage.AGGREGATED:
        keys = tuple((name, "expression") for name in group_key(spec))
        nullable = frozenset(by_columns(spec))
    of_source = table in (AggregateStage.CHANGELOG, AggregateStage.GROUPING_STORE)
    names = tuple(name for name, _ in keys)
    secret = sensitive_names(spec, of_source=of_source)
    return Table(table, keys, keys=names, sensitive=secret, nullable_keys=nullable)


def shown_keys(spec: AggregateSpec) -> list[str]:
    """Returns, per key column of the result, its name for people: that in `select`, if every column has one there."""
    names = {key: name for key, name, _ in spec.result_key_outputs()}
    keys = [*([] if spec.window is None else [WINDOW_START]), *spec.group_names]
    return keys if None in names.values() else [str(names[key]) for key in keys]


def _by(spec: AggregateSpec, types: Types) -> tuple[tuple[str, str], ...]:
    return tuple((name, types[name]) for name in by_columns(spec))


def _time(spec: AggregateSpec, types: Types, name: str) -> tuple[tuple[str, str], ...]:
    return () if spec.window is None else ((name, types[AT]),)


def store(spec: AggregateSpec, sequence: str, types: Types) -> Table:
    """One row per key ever seen: its groups, time and version, and what the aggregates read; no hash: it is gone."""
    keys = typed_columns(spec.input.key_columns)
    return Table(
        AggregateStage.GROUPING_STORE,
        (
            *keys,
            (GROUP, "BIGINT"),
            *_by(spec, types),
            *_time(spec, types, AT),
            *version_columns(sequence),
            *typed_columns(payload_columns(spec)),
        ),
        skip_by=(s.APPLIED_IN, s.OWNER, *(name for name, _ in _time(spec, types, AT)), *skippable(keys)),
        keys=tuple(name for name, _ in keys),
        properties=MERGED,
    )


def group_rows(spec: AggregateSpec) -> Table:
    """Index of a large store: the group and the span of time of every row that it ever had, with its key."""
    found = (*(() if spec.window is None else ((SLICE, "BIGINT"),)), (GROUP, "BIGINT"))
    return Table(GROUP_ROWS, (*found, *typed_columns(spec.input.key_columns)), skip_by=skippable(found))


def notes(spec: AggregateSpec, types: Types) -> Table:
    """One row or more per batch and group, and time, of a row that the batch changed, as it was or as it is."""
    columns = (
        (s.BATCH, "INT"),
        (s.CAUSE, "STRING"),
        (GROUP, "BIGINT"),
        *_by(spec, types),
        *_time(spec, types, AT),
        (ENTRY, "BIGINT"),
    )
    return Table(NOTES, columns, skip_by=(s.BATCH,))


def touched_groups(spec: AggregateSpec, types: Types) -> Table:
    """One row per batch and group, or window of a group, that it touched; or one for all groups."""
    columns = ((s.BATCH, "INT"), (s.CAUSE, "STRING"), (GROUP, "BIGINT"), *_by(spec, types), *_time(spec, types, START))
    return Table(AggregateStage.TOUCHED_GROUPS, columns, skip_by=(s.BATCH,))


def aggregated(spec: AggregateSpec, types: Types, outputs: Sequence[tuple[str, str]]) -> Table:
    """One row per group, or window of a group: its values, the number and hash of its members, its last change."""
    key = (*_time(spec, types, START), *_by(spec, types))
    return Table(
        AggregateStage.AGGREGATED,
        (
            *key,
            (GROUP, "BIGINT"),
            (MEMBERS, "BIGINT"),
            (s.HASH, "BINARY"),
            (s.BATCH, "INT"),
            (s.CHANGED_AT, "TIMESTAMP"),
            *outputs,
        ),
        skip_by=(s.BATCH, *(name for name, _ in _time(spec, types, START)), GROUP),
        keys=tuple(name for name, _ in key),
        nullable_keys=frozenset(by_columns(spec)),
        properties={**MERGED, s.CHANGE_FEED: "true"},
    )


_MEANING = {
    **s.MEANING,
    s.HASH: "of the groups, the time and what the aggregates read; null: the row is gone",
    s.APPLIED_IN: "the batch whose processing last changed the content; its groups are touched there",
    GROUP: "a hash of the values of `group_by`, by which rows of a group are found",
    AT: "when the row happened",
    ENTRY: "the entry of the ledger at which the run that wrote the note was started",
    SLICE: "the number of the span of time, as long as a window, in which the row happened",
    START: "when the window begins; it belongs to the window",
    MEMBERS: "the number of rows of the group",
    s.CAUSE: "`group`: this group was touched; `every`: any group may have been, as in a first load",
    s.SIDE: "`input`: the line came in there",
    s.LINE: "the line, from 1",
    s.RAW: "the line as it is, or as it was corrected",
}


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    if (table, column) == (AggregateStage.AGGREGATED, s.BATCH):
        return "the batch of the last change; after a range run, one of its batches"
    if (table, column) == (AggregateStage.AGGREGATED, s.HASH):
        return "of the members of the group: their keys and contents, in any order"
    if (table, column) == (AggregateStage.CHANGELOG, s.HASH):
        return "of the whole row; null for a tombstone"
    return _MEANING.get(column, "a value of `group_by`; null is a group" if column.startswith("_fk_by_") else None)


def lineage(spec: AggregateSpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a stage's main table, the (stage, column) pairs from which its values come.

    The stage that reads landing files has none.
    """
    log, stored = AggregateStage.CHANGELOG.value, AggregateStage.GROUPING_STORE.value

    def read(sql: str) -> list[tuple[str, str]]:
        found = [spec.input.column(path[0]) for path in parse_expression(sql).reads]
        return [(log, column.name) for column in found if column is not None]

    if stage == stored:
        kept = [*spec.input.key_columns, *payload_columns(spec)]
        found = {column.name: [(log, column.name)] for column in kept}
        found |= {by(name): read(sql) for name, sql in spec.grouped_by.items()}
        return found | ({} if spec.window is None else {AT: read(spec.window.time)})
    groups = {name: [(stored, name)] for name in by_columns(spec)}
    window = {} if spec.window is None else {START: [(stored, AT)]}
    if stage == AggregateStage.TOUCHED_GROUPS:
        return groups | window
    if stage != AggregateStage.AGGREGATED:
        return {}
    named = {name: [(stored, by(name))] for name in spec.group_names}
    if spec.window is not None:
        named |= {name: [(stored, AT)] for name in (WINDOW_START, WINDOW_END)}
    for one in spec.measures:
        columns = [spec.input.column(path[0]) for path in one.reads]
        named[str(one.name)] = [(stored, column.name) for column in columns if column is not None]
    made_of = {name.lower(): found for name, found in named.items()}
    for output in spec.outputs:
        reads = [made_of[path[0].lower()] for path in parse_expression(output.sql).reads]
        groups[output.name] = [*dict.fromkeys(place for places in reads for place in places)]
    return groups | window
