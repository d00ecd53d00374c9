"""Which values may differ from one computation to the next, as floating-point numbers are added in another order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame
from sqlglot import exp

from fk_pipeline.blocks.aggregates import ADDING, MEANS
from fk_pipeline.blocks.calls import Call, calls_in
from fk_pipeline.blocks.select.block import Block, Unit
from fk_pipeline.blocks.select.lineage import behind, reads_in
from fk_pipeline.blocks.select.query import Query
from fk_pipeline.frames import sql_over
from fk_pipeline.spec.sql import DIALECT

_CALL = "_fk_call_{}"

_FLOATING = {"float", "double"}

_AS_DOUBLE = {*_FLOATING, "bigint", "string"}
"""Types of values that an average adds as floating-point numbers, and that these may not hold exactly."""


def inexact_of(query: Query, rows: Mapping[str, DataFrame]) -> frozenset[str]:
    """Returns the columns of the result of a query whose values may depend on that order.

    Args:
        query: the query.
        rows: its inputs and its blocks, by name (`inexact`).
    """
    known, columns = set[tuple[str, str]](), frozenset[str]()
    for block in query.blocks:
        columns = inexact(block, rows, known)
        known |= {(block.name, column) for column in columns}
    return columns


def inexact(block: Block, rows: Mapping[str, DataFrame], known: Collection[tuple[str, str]] = ()) -> frozenset[str]:
    """Returns the columns of a block whose values may depend on the order in which floating-point numbers are added.

    They are of any type: `SUM(price)` of DOUBLE, and what is computed of it, as `CAST(SUM(price) AS STRING)`. Spark
    analyses the sums and averages; no job is started.

    Args:
        block: the block.
        rows: what it reads, by the name of the relation; only the types matter.
        known: such columns of earlier blocks: (block, column).
    """
    if block.branches:
        return frozenset().union(*(inexact(branch, rows, known) for branch in block.branches))
    made = {column: behind(block, column) for column in block.columns}
    calls = {column: _adding(parts) for column, parts in made.items()}
    dtypes = _types(block, rows, {_typed(call) for some in calls.values() for call in some})

    def is_inexact(column: str) -> bool:
        if any(not reads_in(block, _uncounted(part)).isdisjoint(known) for part in made[column]):
            return True
        return any(dtypes[_typed(call)] in (_AS_DOUBLE if call.name in MEANS else _FLOATING) for call in calls[column])

    return frozenset(filter(is_inexact, block.columns))


def _adding(parts: Sequence[exp.Expr]) -> list[Call]:
    return [call for part in parts for call in calls_in(part.sql(DIALECT)) if call.name in ADDING]


def _typed(call: Call) -> str:
    """Returns SQL of an aggregate whose type tells what is added: of an average, one with the type of its argument."""
    return f"MAX({call.arguments[0]})" if call.name in MEANS else call.whole


def _types(block: Block, rows: Mapping[str, DataFrame], calls: Collection[str]) -> dict[str, str]:
    """Returns the types of aggregates of a block, as Spark finds them, by their SQL."""
    if not calls:
        return {}
    over = " OVER ()" if block.unit is Unit.PARTITION else ""
    named = {_CALL.format(number): call for number, call in enumerate(calls)}
    more = {name: f"{call}{over}" for name, call in named.items()}
    frames = {alias.name: rows[alias.relation] for alias in block.aliases}
    dtypes = dict(sql_over(frames, lambda tables: block.of(tables, more)).dtypes)
    return {call: dtypes[name] for name, call in named.items()}


def _uncounted(part: exp.Expr) -> exp.Expr:
    """Returns an expression without what it only counts: that is exact."""
    root = exp.Paren(this=part.copy())
    for call in [*root.find_all(exp.Count)]:
        if not isinstance(call.this, exp.Distinct):
            call.replace(exp.null())
    return root
