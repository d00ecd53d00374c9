"""Names and schemas of the tables of a windowed join.

Source columns keep their names in the changelogs and in both tables. In the result the components of the left key are
`_fk_pk_<column>`, those of the right key `_fk_rk_<column>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fk_pipeline.blocks.current import secret_columns
from fk_pipeline.blocks.meaning import meaning_in
from fk_pipeline.blocks.select.block import PART, ROW
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.window.kind import BUCKET, TIME, WINDOW, WindowStage
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import Table, typed_columns

if TYPE_CHECKING:
    from fk_pipeline.kinds.window.spec import WindowSpec

STATE_OF = {Side.LEFT: WindowStage.LEFT_TABLE, Side.RIGHT: WindowStage.RIGHT_TABLE}
LOG_OF = {Side.LEFT: "left_changelog", Side.RIGHT: "right_changelog"}
"""Per side its table and its changelog."""

HASH_OF = {Side.LEFT: s.LEFT_HASH, Side.RIGHT: s.RIGHT_HASH}
"""Per side, the column of the result with the hash of its row."""


def other(side: Side) -> Side:
    """Returns the other side."""
    return Side.RIGHT if side == Side.LEFT else Side.LEFT


def source(spec: WindowSpec, side: Side) -> Side:
    """Returns the side whose changelog and state have the rows of a side."""
    return Side.LEFT if spec.single_store else side


def table_of(spec: WindowSpec, side: Side) -> str:
    """Returns the table that has the rows of a side."""
    return STATE_OF[source(spec, side)]


def sources(spec: WindowSpec) -> tuple[Side, ...]:
    """Returns the sides that have a changelog and a state of their own."""
    return tuple(dict.fromkeys(source(spec, side) for side in SIDES))


def part(side: Side, name: str) -> str:
    """Returns the name of a component of the key of a side in the result."""
    return f"_fk_pk_{name}" if side == Side.LEFT else f"_fk_rk_{name}"


def part_columns(spec: WindowSpec, side: Side) -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of each component of the key of a side in the result."""
    return tuple((part(side, c.name), c.type) for c in spec.side(side).key_columns)


def parts(spec: WindowSpec, *sides: Side) -> list[str]:
    """Returns the names of `part_columns` of some sides."""
    return [name for side in sides for name, _ in part_columns(spec, side)]


def log_stage(spec: WindowSpec, side: Side) -> str:
    """Returns the stage that writes the changelog from which the table of a side comes; the ledger has its horizon."""
    return spec.definition.input(source(spec, side)).stage


def key_of_row(spec: WindowSpec, row: Mapping[str, Any]) -> str:
    """Returns the key of a row of the result as `explain` takes it: of its left row, or `right.` and its right key."""
    left, right = ({c.name: row[part(side, c.name)] for c in spec.side(side).key_columns} for side in SIDES)
    return f"right.{shown(right)}" if None in left.values() else shown(left)


def own_key(spec: WindowSpec, side: Side) -> list[str]:
    """SQL: the key columns of a changelog or a table under the names that the result has."""
    return [f"{c.quoted} AS {quote(part(side, c.name))}" for c in spec.side(side).key_columns]


def no_row(spec: WindowSpec, side: Side) -> list[str]:
    """SQL: the key columns and the hash of a side, null, as the result has them without a row of it."""
    columns = (*part_columns(spec, side), (HASH_OF[side], "BINARY"))
    return [f"CAST(NULL AS {dtype}) AS {quote(name)}" for name, dtype in columns]


def is_pair(spec: WindowSpec) -> str:
    """SQL (BOOLEAN): a row of the result is about two rows."""
    return " AND ".join(f"{quote(parts(spec, side)[0])} IS NOT NULL" for side in SIDES)


def unmatched_on(spec: WindowSpec) -> tuple[Side, ...]:
    """Returns the sides whose rows may stand alone in the result."""
    return () if spec.inner else SIDES if spec.outer else (Side.LEFT,)


def keys_of(spec: WindowSpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    sides = [side for side in SIDES if table in (STATE_OF[side], LOG_OF[side])]
    keys: tuple[tuple[str, str], ...] = ()
    nullable: tuple[tuple[str, str], ...] = ()
    secret = {part(side, name) for side in SIDES for name in spec.side(side).key if spec.side(side).is_sensitive(name)}
    for side in SIDES:
        if table == STATE_OF[side]:
            keys = typed_columns(spec.side(side).key_columns)
    if table == WindowStage.RESOLVED_JOIN:
        left, right = (part_columns(spec, side) for side in SIDES)
        keys = (*left, *right)
        nullable = () if spec.inner else keys if spec.outer else right
    return Table(
        table,
        keys,
        keys=tuple(name for name, _ in keys),
        sensitive=secret_columns(spec, *sides) | secret,
        nullable_keys=frozenset(name for name, _ in nullable),
    )


def shown_keys(spec: WindowSpec) -> list[str]:
    """Returns, per key column of the result, the name of the column of the source that it is."""
    left = [column.name for column in spec.left.key_columns]
    return [*left, *(f"right.{c.name}" if c.name in left else c.name for c in spec.right.key_columns)]


_MEANING = {
    s.HASH: "of the selected columns, the values of `on` and the time; null: the row is gone",
    TIME: "when the row happened",
    BUCKET: "the number of the span of time, as long as a window, in which the row happened",
    s.LEFT_HASH: "of the left row; null without one",
    s.RIGHT_HASH: "of the right row; null without one",
    ROW: "a hash of the keys of both rows",
    PART: "a hash of the key of the row by which it is computed: the left one of a pair",
    part(Side.LEFT, ""): "component of the key of the left row; null without one",
    part(Side.RIGHT, ""): "component of the key of the right row; null without one",
    "_fk_on_": "a value of `on`; null matches nothing",
}


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    return meaning_in(WINDOW, _MEANING, column, table)
