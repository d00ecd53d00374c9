"""Names and schemas of the tables of a windowed join.

Source columns keep their names in the changelogs and in both tables. In the result the components of the left key are
`_fk_pk_<column>`, those of the right key `_fk_rk_<column>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fk_pipeline.blocks.select.block import PART, ROW
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.window.kind import BUCKET, TIME, WindowStage, on_columns
from fk_pipeline.spec import Column, quote
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import MERGED, Table, skippable, typed_columns, version_columns

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


def own_key(spec: WindowSpec, side: Side) -> list[str]:
    """SQL: the key columns of a changelog or a table under the names that the result has."""
    return [f"{c.quoted} AS {quote(part(side, c.name))}" for c in spec.side(side).key_columns]


def no_row(spec: WindowSpec, side: Side) -> list[str]:
    """SQL: the key columns and the hash of a side, null, as the result has them without a row of it."""
    columns = (*part_columns(spec, side), (HASH_OF[side], "BINARY"))
    return [f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns]


def is_pair(spec: WindowSpec) -> str:
    """SQL (BOOLEAN): a row of the result is about two rows."""
    return " AND ".join(f"{quote(parts(spec, side)[0])} IS NOT NULL" for side in SIDES)


def alone_on(spec: WindowSpec) -> tuple[Side, ...]:
    """Returns the sides whose rows may stand alone in the result."""
    return () if spec.inner else SIDES if spec.outer else (Side.LEFT,)


def payload_columns(spec: WindowSpec, side: Side) -> tuple[Column, ...]:
    """Returns the selected columns of a side that are not part of its key: its table has their values."""
    keys = {c.name for c in spec.side(side).key_columns}
    return tuple(c for c in spec.selected[side] if c.name not in keys)


def sensitive_names(spec: WindowSpec, *sides: Side) -> frozenset[str]:
    """Returns the names of the table columns, and of the fields of their structs, that have sensitive values.

    Args:
        spec: the pipeline.
        sides: the sides whose columns the tables have under the names of the source.
    """
    found = [
        part(side, c.name) for side in SIDES for c in spec.side(side).key_columns if c.name in spec.side(side).sensitive
    ]
    for side in map(spec.side, SIDES):
        reads = [{path[0] for path in parse_expression(text).reads} for text in side.on]
        names = zip(on_columns(spec), reads, strict=True)
        found += [name for name, read in names if any(map(side.is_sensitive, read))]
        order = side.sequence_by
        if order is not None and any(side.is_sensitive(path[0]) for path in parse_expression(order).reads):
            found.append("value")  # the field of a sequence that `sequence_by` gives
    times = [TIME, BUCKET] if spec.is_secret_time() else []
    return frozenset([*found, *times, *(name for side in sides for name in spec.side(side).sensitive)])


def keys_of(spec: WindowSpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    sides = [side for side in SIDES if table in (STATE_OF[side], LOG_OF[side])]
    keys: tuple[tuple[str, str], ...] = ()
    nullable: tuple[tuple[str, str], ...] = ()
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
        sensitive=sensitive_names(spec, *sides),
        nullable_keys=frozenset(name for name, _ in nullable),
    )


def shown_keys(spec: WindowSpec) -> list[str]:
    """Returns, per key column of the result, the name of the column of the source that it is."""
    left = [column.name for column in spec.left.key_columns]
    return [*left, *(f"right.{c.name}" if c.name in left else c.name for c in spec.right.key_columns)]


def state(spec: WindowSpec, side: Side, sequence: str, on_types: Sequence[str], time: str) -> Table:
    """One row per key ever seen: what it matches by, its version and its selected columns; no hash: it is gone."""
    keys = keys_of(spec, STATE_OF[side])
    matched_by = tuple(zip(on_columns(spec), on_types, strict=True))
    return Table(
        STATE_OF[side],
        (
            *keys.columns,
            *matched_by,
            (TIME, time),
            (BUCKET, "BIGINT"),
            *version_columns(sequence),
            *typed_columns(payload_columns(spec, side)),
        ),
        skip_by=(s.APPLIED_IN, s.OWNER, TIME, BUCKET, *skippable(keys.columns)),
        keys=keys.keys,
        properties={**MERGED, s.CHANGE_FEED: "true"},
    )


_MEANING = {
    **s.MEANING,
    s.HASH: "of the selected columns, the values of `on` and the time; null: the row is gone",
    s.APPLIED_IN: "the batch whose processing last changed the content",
    TIME: "when the row happened",
    BUCKET: "the number of the span of time, as long as a window, in which the row happened",
    s.LEFT_HASH: "of the left row; null without one",
    s.RIGHT_HASH: "of the right row; null without one",
    ROW: "a hash of the keys of both rows",
    PART: "a hash of the key of the row by which it is computed: the left one of a pair",
    s.SIDE: "`left` or `right`: the side that the line came in on; `join`: a pair of rows",
    s.LINE: "the line, from 1; null for a pair",
    s.RAW: 'the line as it is, or as it was corrected; for a pair `{"left", "right"}` as JSON',
}

_COMPONENTS = {
    "_fk_pk_": "component of the key of the left row; null without one",
    "_fk_rk_": "component of the key of the right row; null without one",
    "_fk_on_": "a value of `on`; null matches nothing",
}


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    if (table, column) == (WindowStage.RESOLVED_JOIN, s.BATCH):
        return "the batch of the last change; after a range run, one of its batches"
    if (table, column) == (WindowStage.RESOLVED_JOIN, s.HASH):
        return "of the values of the row"
    if table in LOG_OF.values() and column == s.HASH:
        return "of the whole row; null for a tombstone"
    component = next((told for prefix, told in _COMPONENTS.items() if column.startswith(prefix)), None)
    return _MEANING.get(column, component)


def lineage(spec: WindowSpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a stage's main table, the (stage, column) pairs from which its values come.

    The stages that read landing files have none.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for side in SIDES:
        own, log, stored = spec.side(side), LOG_OF[side], STATE_OF[side]
        if stage == stored:
            kept = [*own.key_columns, *payload_columns(spec, side)]
            found = {column.name: [(log, column.name)] for column in kept}
            for name, sql in (*zip(on_columns(spec), own.on, strict=True), (TIME, own.time), (BUCKET, own.time)):
                read = [own.column(path[0]) for path in parse_expression(sql).reads]
                found[name] = [(log, column.name) for column in read if column is not None]
    if stage == WindowStage.RESOLVED_JOIN:
        stages = {side: table_of(spec, side) for side in SIDES}
        for side, where in stages.items():
            found |= {part(side, c.name): [(where, c.name)] for c in spec.side(side).key_columns}
            found[HASH_OF[side]] = [(where, s.HASH)]
        for output in spec.outputs:
            reads = dict.fromkeys(spec.resolve(read) for read in parse_expression(output.sql).reads)
            found[output.name] = [(stages[side], column.name) for side, column in reads]
    return found
