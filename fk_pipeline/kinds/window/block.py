"""The result of a windowed join as a block: the union of up to three SELECTs over both tables. No Spark.

    pairs        SELECT keys, hashes, outputs FROM left_table AS left JOIN right_table AS right ON matches
    left alone   SELECT keys, hashes, outputs FROM left_table AS left ANTI JOIN right_table ON matches,
                        one row of nulls AS right
                 WHERE the clock has passed the close of left
    right alone  the same with the sides swapped

    matches      equal values of `on`, and right.time BETWEEN left.time - before AND left.time + after; in anti joins
                 not where an expression of `select` fails on both rows: such a pair goes to the quarantine

A row is joined to rows in its bucket or near ones (`spans.Spans.near`), so rows of one value of `on` are not all
compared with each other. The clock is a number in the SQL: rows that it has passed are anchors (`Moving`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from fk_pipeline.blocks.current import CurrentRows
from fk_pipeline.blocks.outputs import FAILED, PAIR_AS_JSON
from fk_pipeline.blocks.select.block import Alias, Block, Moving, NearMatch, Unit
from fk_pipeline.blocks.select.trees import aliased, column_of, text_beside
from fk_pipeline.blocks.select.written import parse_as_written
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.spans import GREATEST, LEAST, Spans
from fk_pipeline.spec.failing import ISOLATING, fails
from fk_pipeline.spec.sql import body_of, parse_expression, quote
from fk_pipeline.store import schemas as s

if TYPE_CHECKING:
    from fk_pipeline.kinds.window.spec import WindowSpec


@dataclass(frozen=True)
class Clocks:
    """The clock that the result stands for, and the new one, in units of the times.

    Attributes:
        was: the clock of the last commit; None if it is not known.
        now: the greatest time of all living rows.
    """

    was: int | None
    now: int


def block_of(spec: WindowSpec, spans: Spans, clocks: Clocks | None = None, *, isolating: bool = False) -> Block:
    """Returns the block.

    Args:
        spec: the pipeline.
        spans: its window.
        clocks: the clocks; None: rows do not wait.
        isolating: whether rows on which an expression of `select` fails are marked: they have a reason in `FAILED` and
            both rows in `PAIR_AS_JSON`.
    """
    branches = [_pairs(spec, spans, isolating=isolating)]
    for side in k.unmatched_on(spec):
        unmatched = _unmatched(spec, spans, side, isolating=isolating)
        branches.append(unmatched if clocks is None else replace(unmatched, moving=_moving(spans, side, clocks)))
    first, aliases = branches[0], tuple(alias for branch in branches for alias in branch.aliases)
    return Block(first.name, Unit.UNION, aliases, first.tree, (), first.columns, None, tuple(branches))


def _pairs(spec: WindowSpec, spans: Spans, *, isolating: bool) -> Block:
    left, right = map(str, SIDES)
    near, on = spans.near(Side.LEFT), _matches(spec, spans, {Side.LEFT: left, Side.RIGHT: right}, right)
    rows = near.spread(quote(k.table_of(spec, Side.RIGHT)), right)
    joined = f"JOIN {rows} AS {quote(right)} ON {' AND '.join([*on, near.equal(right, left)])}"
    return _branch(spec, Side.LEFT, right, "", near, on, joined, isolating=isolating)


def _unmatched(spec: WindowSpec, spans: Spans, side: Side, *, isolating: bool) -> Block:
    other, near = k.other(side), spans.near(side)
    matches = f"_{other}_matches"
    on = _matches(spec, spans, {side: str(side), other: matches}, matches)
    rows, more = near.spread(quote(k.table_of(spec, other)), matches), []
    if spec.computes:  # rows on which an expression fails do not match; `right.x` in it is a field of this struct
        rows = f"(SELECT *, STRUCT({matches}.*) AS {quote(str(other))} FROM {rows} AS {matches})"
        more = [f"NOT {fails(*_outputs(spec))}"]
    joined = (
        f"LEFT ANTI JOIN {rows} AS {quote(matches)} ON {' AND '.join([*on, near.equal(matches, str(side)), *more])}"
    )
    nulls = ", ".join(f"CAST(NULL AS {dtype}) AS {quote(name)}" for name, dtype in _stored_columns(spec, other))
    joined += f" CROSS JOIN (SELECT {nulls}) AS {quote(str(other))}"
    return _branch(spec, side, matches, "ANTI", near, on, joined, isolating=isolating)


def _branch(
    spec: WindowSpec, side: Side, other: str, how: str, near: NearMatch, on: list[str], joined: str, *, isolating: bool
) -> Block:
    """Returns a SELECT over rows of a side, as a block.

    Args:
        spec: the pipeline.
        side: the side of the anchor.
        other: what the table is called that it is joined to.
        how: how (`Alias.how`).
        near: where matching rows lie.
        on: what they have in common.
        joined: the SQL of the join.
        isolating: whether rows on which an expression fails are marked.
    """
    anchor = quote(str(side))
    from_ = f"{quote(k.table_of(spec, side))} AS {anchor} {joined}"
    [tree] = parse_as_written(f"SELECT 1 FROM {from_} WHERE {anchor}.{quote(s.HASH)} IS NOT NULL")
    assert isinstance(tree, exp.Select)
    columns = _columns(spec, [*SIDES] if not how else [side], isolating=isolating)
    tree.set("expressions", [aliased(expression, name) for name, expression in columns.items()])
    equal = tuple((name, name) for name in on_columns(spec))
    partner = Alias(other, k.table_of(spec, k.other(side)), how, str(side), tuple(on), equal, near=near)
    aliases = (Alias(str(side), k.table_of(spec, side)), partner)
    return Block(WindowStage.RESOLVED_JOIN, Unit.ROW, aliases, tree, (), tuple(columns))


def _matches(spec: WindowSpec, spans: Spans, names: dict[Side, str], partner: str) -> list[str]:
    """SQL (BOOLEAN): the conditions on two rows that match, of which that of one table must live.

    `names`: what the tables are called; `partner`: that table.
    """
    left, right = (quote(names[side]) for side in SIDES)
    equal = [f"{left}.{quote(name)} = {right}.{quote(name)}" for name in on_columns(spec)]
    times = (spans.ticks(f"{name}.{quote(TIME)}") for name in (left, right))
    return [*equal, spans.matches(*times), f"{quote(partner)}.{quote(s.HASH)} IS NOT NULL"]


def _columns(spec: WindowSpec, present: Iterable[Side], *, isolating: bool) -> dict[str, exp.Expr]:
    """Returns the columns of a SELECT over the rows of some sides; those of the other are null."""
    sides, selected = {*present}, dict[str, exp.Expr]()
    for side in SIDES:
        for column in spec.side(side).key_columns:
            null = text_beside(f"CAST(NULL AS {column.type})")
            selected[k.part(side, column.name)] = column_of(str(side), column.name) if side in sides else null
    for side in SIDES:
        selected[k.HASH_OF[side]] = (
            column_of(str(side), s.HASH) if side in sides else text_beside("CAST(NULL AS BINARY)")
        )
    outputs = _outputs(spec)
    for output, sql in zip(spec.outputs, outputs, strict=True):
        reads = [spec.resolve(read) for read in parse_expression(output.sql).reads]
        columns = [column_of(str(side), column.name) for side, column in reads if side in sides]
        value = sql if not isolating or output.plain else f"IF({fails(sql)}, NULL, {sql})"
        selected[output.name] = text_beside(value, columns)
    if isolating:
        reason = ISOLATING.reason(("TRUE", output.sql, "select") for output in spec.outputs if not output.plain)
        selected |= {FAILED: text_beside(reason), PAIR_AS_JSON: text_beside(_as_json(spec))}
    return selected


def _outputs(spec: WindowSpec) -> list[str]:
    """Returns the SQL of the selected columns."""
    return [f"({body_of(output.sql)})" for output in spec.outputs]


def _stored_columns(spec: WindowSpec, side: Side) -> list[tuple[str, str]]:
    """Returns the columns (name, type) of the source that the table of a side has."""
    return [
        (column.name, column.type) for column in (*spec.side(side).key_columns, *CurrentRows.of(spec, side).payload)
    ]


def _as_json(spec: WindowSpec) -> str:
    """SQL (STRING): both rows as JSON, with the columns that the tables have."""
    rows = []
    for side in SIDES:
        own, names = quote(str(side)), [name for name, _ in _stored_columns(spec, side)]
        fields = ", ".join(f"{own}.{quote(name)}" for name in names)
        is_present = f"{own}.{quote(spec.side(side).key_columns[0].name)} IS NOT NULL"
        rows.append(f"IF({is_present}, STRUCT({fields}), NULL) AS {own}")
    return f"TO_JSON(STRUCT({', '.join(rows)}))"


def _moving(spans: Spans, side: Side, clocks: Clocks) -> Moving:
    """Returns the condition that the clock has passed the close of a row of a side, and where it was another one."""
    before = spans.closed_at(side, clocks.now)
    holds = "FALSE" if before <= LEAST else f"{quote(str(side))}.{quote(TIME)} < {spans.literal(before)}"
    was = clocks.now if clocks.was is None else clocks.was
    low, high = (spans.closed_at(side, clock) for clock in sorted((was, clocks.now)))
    return Moving(holds, TIME, None if low <= LEAST else low, None if high >= GREATEST else high)
