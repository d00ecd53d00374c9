"""The range of values that a moving bound has passed, so that Delta skips the files that have none of them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T
from sqlglot import exp

from fk_pipeline.blocks.select.written import expression_over
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import DIALECT

_COMPARE = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NEQ)


def passed_range(condition: str, table: str, single: str, old: DataFrame, new: DataFrame) -> str:
    """Returns a SQL condition that rows meet for which a condition is another one with the new row than with the old.

    Empty if the condition does not compare a column with bounds that are made of the row alone, or their type is
    neither a whole number nor a day nor a time.

    Args:
        condition: a condition over a table, and another one of one row.
        table: the name of the former.
        single: that of the latter.
        old: its old row.
        new: its new row.
    """
    column, bounds = _compared(expression_over(condition, {table, single}), single)
    if column is None:
        return ""
    ranges = []
    for bound in bounds:
        ends = [_value(row, bound) for row in (old, new)]
        if None in ends:
            return ""
        low, high = (f"{how}({', '.join(map(str, ends))})" for how in ("LEAST", "GREATEST"))
        ranges.append(f"{quote(column.name)} BETWEEN {low} AND {high}")
    return " OR ".join(ranges)


def _compared(tree: exp.Expr, single: str) -> tuple[exp.Column | None, Sequence[exp.Expr]]:
    """Returns the column that a condition compares, and the bounds with which; None and no bounds of any other."""
    if isinstance(tree, exp.Between):
        sides = [(tree.this, [tree.args["low"], tree.args["high"]])]
    elif isinstance(tree, _COMPARE):
        sides = [(tree.left, [tree.right]), (tree.right, [tree.left])]
    else:
        sides = []
    for value, bounds in sides:
        read = {column.table for bound in bounds for column in bound.find_all(exp.Column)}
        if isinstance(value, exp.Column) and value.table != single and read == {single}:
            return value, bounds
    return None, ()


def _value(row: DataFrame, bound: exp.Expr) -> str | None:
    """Returns a bound as SQL without columns, given the row that it is made of; None if it is null, or of other types.

    Spark computes it in the driver, without a job, if the row is there.
    """
    bare = bound.copy()
    for column in bare.find_all(exp.Column):
        column.set("table", None)
    sql = bare.sql(DIALECT)
    dtype = row.selectExpr(f"{sql} AS bound").schema["bound"].dataType
    if isinstance(dtype, T.DateType):
        number, text = f"UNIX_DATE({sql})", "DATE_FROM_UNIX_DATE(CAST({} AS INT))"
    elif isinstance(dtype, T.TimestampType):
        number, text = f"UNIX_MICROS({sql})", "TIMESTAMP_MICROS({})"
    elif isinstance(dtype, T.IntegralType):
        number, text = sql, f"CAST({{}} AS {dtype.simpleString()})"
    else:
        return None
    [computed] = row.selectExpr(f"CAST({number} AS BIGINT) AS bound").collect()
    return None if computed["bound"] is None else text.format(f"{computed['bound']}L")
