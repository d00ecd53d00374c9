"""The keys of the tables of an aggregate, and the meaning of their columns.

The values of `group_by` are `_fk_by_<name>` in every table, and may be null: null is a group.
"""

from __future__ import annotations

from fk_pipeline.blocks.current import secret_columns
from fk_pipeline.blocks.meaning import meaning_in
from fk_pipeline.blocks.select.block import ROW
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate.kind import AGGREGATE, AT, PANE, START, WINDOW_START, AggregateStage, by
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import Table, typed_columns


def by_columns(spec: AggregateSpec) -> list[str]:
    """Returns the columns with the values of `group_by`."""
    return [by(name) for name in spec.group_names]


def group_key(spec: AggregateSpec) -> list[str]:
    """Returns the columns that identify a row of the result: the start of its window first."""
    return [*([] if spec.window is None else [START]), *by_columns(spec)]


def keys_of(spec: AggregateSpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    is_result = table == AggregateStage.AGGREGATED
    keys = typed_columns(spec.input.key_columns) if table == AggregateStage.TABLE else ()
    if is_result:
        keys = tuple((name, "expression") for name in group_key(spec))
    secret = secret_columns(spec, *([] if is_result else [Side.INPUT]))
    return Table(
        table,
        keys,
        keys=tuple(name for name, _ in keys),
        sensitive=secret | ({START} if AT in secret else set()),
        nullable_keys=frozenset(by_columns(spec) if is_result else ()),
    )


def shown_keys(spec: AggregateSpec) -> list[str]:
    """Returns, per key column of the result, its name for people: that in `select`, if every column has one there."""
    names = {key: name for key, name, _ in spec.result_key_outputs()}
    keys = [*([] if spec.window is None else [WINDOW_START]), *spec.group_names]
    return keys if None in names.values() else [str(names[key]) for key in keys]


_MEANING = {
    s.HASH: "of the groups, the time and what the aggregates read; null: the row is gone",
    AT: "when the row happened",
    PANE: "the number of the last window that has begun when the row happened",
    START: "when the window begins; it belongs to the window",
    ROW: "a hash of the group, and of its window",
    by(""): "a value of `group_by`; null is a group",
}


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    return meaning_in(AGGREGATE, _MEANING, column, table)
