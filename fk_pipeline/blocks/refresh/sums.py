"""Groups by arithmetic: what anchors gave before is taken off counts and sums, what they give now is added. No Spark.

    numbers(now) = numbers(then) - numbers(joined rows of the anchors, then) + numbers(joined rows of the anchors, now)

Hidden columns keep, per group, the number of rows, and per sum the number of its values that are not null: without the
first a group would never go, without the second a sum of no values would be 0 and not null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from fk_pipeline.blocks.select.block import GROUP_VALUE, Block, Unit
from fk_pipeline.blocks.select.likeness import EXACT_NUMBERS
from fk_pipeline.spec.sql import DIALECT

ROWS, COUNT, SUM, MEAN = "_fk_rows", "_fk_count_{}", "_fk_sum_{}", "_fk_mean_{}"
"""Columns of a block whose groups are kept by arithmetic: the number of rows of the group; of the values of an argument
that are not null; their sum, 0 without any. The last is only analysed, for its type."""


_MOST_DIGITS, _MOST_SCALE = 33, 14
"""The most digits of a sum of which an average is made, and the most behind its point: of longer ones Spark's types
leave digits of the remainder out (`_mean`)."""

_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")

_HIDDEN = re.compile(r"_fk_(sum|mean)_(\d+)")


@dataclass(frozen=True)
class Sums:
    """A block that is kept by arithmetic.

    Attributes:
        arguments: SQL of what is counted or summed, over the joined rows.
        summed: which of them are summed, by number.
        averaged: which of them are averaged.
        outputs: per column of the SELECT its SQL over the values of the group, and hidden columns in place of calls.
    """

    arguments: tuple[str, ...]
    summed: frozenset[int]
    averaged: frozenset[int]
    outputs: Mapping[str, str]

    def analysed(self) -> dict[str, str]:
        """Returns the columns whose types tell whether arithmetic is exact: name and SQL of an aggregate."""
        means = {MEAN.format(number): f"AVG({self.arguments[number]})" for number in sorted(self.averaged)}
        return {SUM.format(n): f"SUM({self.arguments[n]})" for n in sorted(self.summed)} | means

    def numbers(self, types: Mapping[str, str]) -> dict[str, str]:
        """Returns the hidden columns: name and SQL of an aggregate over the joined rows of a group."""
        columns = {ROWS: "COUNT(*)"}
        for number, argument in enumerate(self.arguments):
            columns[COUNT.format(number)] = f"COUNT({argument})"
            if number in self.summed:
                name = SUM.format(number)
                columns[name] = f"CAST(COALESCE(SUM({argument}), 0) AS {types[name]})"
        return columns

    def values(self, types: Mapping[str, str]) -> dict[str, str]:
        """Returns SQL of each column of the SELECT over the hidden columns and those of the group."""

        def shown(match: re.Match[str]) -> str:
            number = int(match[2])
            return _mean(number, types) if match[1] == "mean" else _sum(number)

        return {name: _HIDDEN.sub(shown, sql) for name, sql in self.outputs.items()}


def _sum(number: int) -> str:
    return f"IF({COUNT.format(number)} = 0, NULL, {SUM.format(number)})"


def _mean(number: int, types: Mapping[str, str]) -> str:
    """SQL: AVG as Spark computes it, from the sum and the number of its values.

    Of decimals it is rounded once, half up, by the remainder: with `unit` for the last digit of the average,

        rest = total % (count * unit)
        mean = (total - rest) / count + (unit, with the sign of rest, if |rest| is half of count * unit, or more)

    The division has no rest. A plain one is rounded, and rounded again by the cast to the type of the average.
    """
    count, total, dtype = COUNT.format(number), SUM.format(number), types[MEAN.format(number)]
    sized = _DECIMAL.fullmatch(dtype.upper())
    if sized is None:
        return f"IF({count} = 0, NULL, CAST({total} AS DOUBLE) / {count})"
    scale = int(sized[2])
    unit, rows = f"{Decimal(1).scaleb(-scale):f}BD", f"CAST({count} AS DECIMAL(19, 0))"
    step = f"CAST({rows} * {unit} AS DECIMAL({19 + scale}, {scale}))"
    rest = f"({total} % {step})"
    up = f"CASE WHEN ABS({rest}) < {step} - ABS({rest}) THEN 0BD WHEN {rest} < 0 THEN -{unit} ELSE {unit} END"
    return f"IF({count} = 0, NULL, CAST(CAST(({total} - {rest}) / {rows} AS {dtype}) + {up} AS {dtype}))"


def is_exact(types: Mapping[str, str]) -> bool:
    """Returns whether sums do not depend on the order of their values, and averages are those that Spark computes.

    Args:
        types: per hidden column with a sum or an average, its type.
    """
    for name, dtype in types.items():
        number = name.removeprefix(SUM.format(""))
        if name == number:  # an average
            continue
        digits = _DECIMAL.fullmatch(dtype.upper())
        if digits is None and dtype.upper() != "BIGINT":
            return False
        if digits is None or MEAN.format(number) not in types:
            continue
        if int(digits[1]) > _MOST_DIGITS or int(digits[2]) > _MOST_SCALE:
            return False
    return True


def type_of_sum(dtype: exp.DataType) -> str:
    """Returns the type of a sum of values of a type, as Spark has it, without a size that is not known; else empty."""
    if dtype.this == exp.DType.UNKNOWN:
        return ""
    if dtype.this == exp.DType.DECIMAL:
        sizes = [int(size.name) for size in dtype.expressions]
        return f"DECIMAL({min(sizes[0] + 10, 38)},{sizes[1]})" if len(sizes) > 1 else "DECIMAL"
    return "BIGINT" if dtype.this in EXACT_NUMBERS else "DOUBLE"


def sums_of(block: Block) -> Sums | None:
    """Returns how a block is kept by arithmetic; None if it has another unit, HAVING, or other aggregates."""
    if block.unit is not Unit.GROUP or block.tree.args.get("having") is not None:
        return None
    if block.keep is not None and block.keep.where:
        return None
    arguments, summed, averaged = list[str](), set[int](), set[int]()

    def hidden(call: exp.Expr) -> exp.Column | None:
        """Returns the hidden column that stands for an aggregate; None if there is none."""
        argument = call.this
        if isinstance(call, exp.Count) and isinstance(argument, exp.Star):
            return exp.column(ROWS)
        if (
            not isinstance(call, (exp.Count, exp.Sum, exp.Avg))
            or isinstance(argument, exp.Distinct)
            or call.expressions
        ):
            return None
        if isinstance(call.parent, (exp.Filter, exp.Window, exp.WithinGroup)):
            return None
        text = argument.sql(DIALECT)
        if text not in arguments:
            arguments.append(text)
        number = arguments.index(text)
        if isinstance(call, exp.Count):
            return exp.column(COUNT.format(number))
        summed.add(number)
        if isinstance(call, exp.Avg):
            averaged.add(number)
            return exp.column(MEAN.format(number))
        return exp.column(SUM.format(number))

    outputs = {}
    for selected in block.tree.selects:
        output = _replaced(selected.unalias().copy(), block, hidden)
        if output is None:
            return None
        outputs[selected.alias_or_name] = output.sql(DIALECT)
    return Sums(tuple(arguments), frozenset(summed), frozenset(averaged), outputs)


def _replaced(output: exp.Expr, block: Block, hidden: Callable[[exp.Expr], exp.Column | None]) -> exp.Expr | None:
    """Returns an output over hidden columns and values of the group; None if something else is left in it."""
    root = exp.Paren(this=output)
    for node in [*root.walk()]:
        if node is root or node.find_ancestor(exp.AggFunc) is not None:
            continue
        if isinstance(node, exp.AggFunc):
            column = hidden(node)
            if column is None:
                return None
            node.replace(column)
        else:
            place = next((number for number, value in enumerate(block.by) if value == node), None)
            if place is not None:
                node.replace(exp.column(GROUP_VALUE.format(place)))
    return root.this if all(column.name.startswith("_fk_") for column in root.find_all(exp.Column)) else None
