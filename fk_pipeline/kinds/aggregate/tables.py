"""Names and schemas of the tables of an aggregate.

The values of `group_by` are `_fk_by_<name>` in every table, and may be null: null is a group.
"""

from __future__ import annotations

from collections.abc import Mapping

from fk_pipeline.blocks.select.block import ROW
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate.kind import AT, PANE, START, WINDOW_END, WINDOW_START, AggregateStage, by
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


def logged_columns(spec: AggregateSpec) -> list[str]:
    """Returns the columns of a row of the changelog that tell in which groups it counts."""
    return [*by_columns(spec), *([] if spec.window is None else [AT])]


def placing_columns(spec: AggregateSpec) -> list[str]:
    """Returns the columns of the table that tell in which groups a row counts."""
    return [*logged_columns(spec), *([] if spec.window is None else [PANE])]


def input_key(spec: AggregateSpec) -> list[str]:
    """Returns the key columns of the input."""
    return [column.name for column in spec.input.key_columns]


def payload_columns(spec: AggregateSpec) -> tuple[Column, ...]:
    """Returns the columns that the aggregates read and that are not part of the key: the table has their values."""
    keys = input_key(spec)
    return tuple(column for column in spec.selected[Side.INPUT] if column.name not in keys)


def sensitive_names(spec: AggregateSpec, *, of_source: bool) -> frozenset[str]:
    """Returns the names of the table columns that have sensitive values; `of_source`: also those of the source."""
    found = {*spec.input.sensitive} if of_source else set()

    def secret(sql: str) -> bool:
        return any(spec.input.is_sensitive(path[0]) for path in parse_expression(sql).reads)

    secrets = {by(name) for name, sql in spec.grouped_by.items() if secret(sql)}
    found |= secrets
    if spec.window is not None and secret(spec.window.time):
        found |= {AT, PANE, START}
    if spec.input.sequence_by is not None and secret(spec.input.sequence_by):
        found.add("value")  # the field of a sequence that `sequence_by` gives
    return frozenset(found)


def keys_of(spec: AggregateSpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    keys: tuple[tuple[str, str], ...] = ()
    nullable: frozenset[str] = frozenset()
    if table == AggregateStage.TABLE:
        keys = typed_columns(spec.input.key_columns)
    if table == AggregateStage.AGGREGATED:
        keys = tuple((name, "expression") for name in group_key(spec))
        nullable = frozenset(by_columns(spec))
    of_source = table in (AggregateStage.CHANGELOG, AggregateStage.TABLE)
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


def table(spec: AggregateSpec, sequence: str, types: Types) -> Table:
    """One row per key ever seen: its groups, time and version, and what the aggregates read; no hash: it is gone."""
    keys = typed_columns(spec.input.key_columns)
    pane = () if spec.window is None else ((PANE, "BIGINT"),)
    return Table(
        AggregateStage.TABLE,
        (
            *keys,
            *_by(spec, types),
            *_time(spec, types, AT),
            *pane,
            *version_columns(sequence),
            *typed_columns(payload_columns(spec)),
        ),
        skip_by=(s.APPLIED_IN, s.OWNER, *(name for name, _ in pane), *skippable(keys)),
        keys=tuple(name for name, _ in keys),
        properties={**MERGED, s.CHANGE_FEED: "true"},
    )


_MEANING = {
    **s.MEANING,
    s.HASH: "of the groups, the time and what the aggregates read; null: the row is gone",
    s.APPLIED_IN: "the batch whose processing last changed the content",
    AT: "when the row happened",
    PANE: "the number of the last window that has begun when the row happened",
    START: "when the window begins; it belongs to the window",
    ROW: "a hash of the group, and of its window",
    s.SIDE: "`input`: the line came in there",
    s.LINE: "the line, from 1",
    s.RAW: "the line as it is, or as it was corrected",
}


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    if (table, column) == (AggregateStage.AGGREGATED, s.BATCH):
        return "the batch of the last change; after a range run, one of its batches"
    if (table, column) == (AggregateStage.AGGREGATED, s.HASH):
        return "of the values of the row"
    if (table, column) == (AggregateStage.CHANGELOG, s.HASH):
        return "of the whole row; null for a tombstone"
    return _MEANING.get(column, "a value of `group_by`; null is a group" if column.startswith("_fk_by_") else None)


def lineage(spec: AggregateSpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a stage's main table, the (stage, column) pairs from which its values come.

    The stage that reads landing files has none.
    """
    log, stored = AggregateStage.CHANGELOG.value, AggregateStage.TABLE.value

    def read(sql: str) -> list[tuple[str, str]]:
        found = [spec.input.column(path[0]) for path in parse_expression(sql).reads]
        return [(log, column.name) for column in found if column is not None]

    if stage == stored:
        kept = [*spec.input.key_columns, *payload_columns(spec)]
        found = {column.name: [(log, column.name)] for column in kept}
        found |= {by(name): read(sql) for name, sql in spec.grouped_by.items()}
        return found | ({} if spec.window is None else dict.fromkeys((AT, PANE), read(spec.window.time)))
    groups = {name: [(stored, name)] for name in by_columns(spec)}
    window = {} if spec.window is None else {START: [(stored, AT)]}
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
