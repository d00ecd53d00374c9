"""The aggregate functions of a pipeline file: those whose value does not depend on the order of the rows. No Spark.

A group is computed again when one of its rows changes, from rows in any order: a function that depends on their order
would change values for no reason. `tests/blocks/test_aggregates.py` compares the lists with the functions of
the session.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from fk_pipeline.blocks.calls import Call, calls_in
from fk_pipeline.spec.determinism import is_not_of_the_row
from fk_pipeline.spec.sql import DIALECT, Expression, SqlTextError, body_of, one_tree, parse_expression

EXACT = {
    "any", "approx_count_distinct", "avg", "bit_and", "bit_or", "bit_xor", "bitmap_and_agg", "bitmap_construct_agg",
    "bitmap_or_agg", "bool_and", "bool_or", "corr", "count", "count_if", "count_min_sketch", "covar_pop", "covar_samp",
    "every", "kurtosis", "max", "mean", "median", "min", "percentile", "percentile_cont", "percentile_disc",
    "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy",
    "regr_syy", "skewness", "some", "std", "stddev", "stddev_pop", "stddev_samp", "sum", "try_avg", "try_sum",
    "var_pop", "var_samp", "variance",
}  # fmt: skip
"""Functions whose value follows from the rows; a floating-point sum but for its last digits."""

MEANS = {"avg", "mean", "try_avg"}
"""Averages, which add values as floating-point numbers, but for decimals."""

ADDING = MEANS | {
    "corr", "covar_pop", "covar_samp", "kurtosis", "regr_avgx", "regr_avgy", "regr_intercept", "regr_r2", "regr_slope",
    "regr_sxx", "regr_sxy", "regr_syy", "skewness", "std", "stddev", "stddev_pop", "stddev_samp", "sum", "try_sum",
    "var_pop", "var_samp", "variance",
}  # fmt: skip
"""Functions that add values: the last digits of a floating-point sum depend on the order of the rows."""

_EARLIEST, _LATEST = "min(struct(at, x)).x (at: a column that orders the rows)", "max(struct(at, x)).x"
_SKETCH = "an exact function; or group by the value in a pipeline of its own, and count"

DEPENDING = {
    "any_value": "min(x) or max(x)",
    "array_agg": "array_sort(array_agg(x))",
    "collect_list": "array_sort(collect_list(x))",
    "collect_set": "array_sort(collect_set(x))",
    "first": _EARLIEST,
    "first_value": _EARLIEST,
    "last": _LATEST,
    "last_value": _LATEST,
    "listagg": "array_join(array_sort(collect_list(x)), ',')",
    "max_by": "max(struct(y, x)).x (which also orders the rows with the greatest y)",
    "min_by": "min(struct(y, x)).x (which also orders the rows with the least y)",
    "mode": "mode(x, true) (the least of several)",
    "string_agg": "array_join(array_sort(collect_list(x)), ',')",
    "approx_percentile": "percentile(x, 0.5)",
    "percentile_approx": "percentile(x, 0.5)",
    **dict.fromkeys(
        (
            "approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "histogram_numeric", "hll_sketch_agg",
            "hll_union_agg", "kll_merge_agg_bigint", "kll_merge_agg_double", "kll_merge_agg_float",
            "kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float", "theta_intersection_agg",
            "theta_sketch_agg", "theta_union_agg", "tuple_intersection_agg_double", "tuple_intersection_agg_integer",
            "tuple_sketch_agg_double", "tuple_sketch_agg_integer", "tuple_union_agg_double", "tuple_union_agg_integer",
        ),
        _SKETCH,
    ),
}  # fmt: skip
"""Per function whose value may depend on the order of the rows, what to write instead."""

NOT_OF_ROWS = {"grouping", "grouping_id", "measure"}
"""Functions that Spark calls aggregates, and that look at no rows."""

_LISTS = {"array_agg", "collect_list", "collect_set"}


def parse_aggregate(text: str) -> Expression:
    """Parses one expression over aggregate functions, with `AS name`, as `sum(price) / count(*) AS mean_price`.

    Raises:
        SqlTextError: not one expression, no aggregate function in it, or one whose value depends on the order of rows.
    """
    tree = one_tree(text)
    for node in tree.walk():
        if isinstance(node, (exp.Query, exp.Subquery)):
            raise SqlTextError("a subquery is not possible here")
        if isinstance(node, exp.Window):
            raise SqlTextError(f"{node.sql(dialect=DIALECT)} looks at rows of other groups")
        if is_not_of_the_row(node):
            raise SqlTextError(f"{node.sql(dialect=DIALECT)} is not deterministic: a group computed again would change")
    called = calls_in(text)
    refuse_order(called)
    if not any(map(_is_aggregate, called)):
        raise SqlTextError("no aggregate function of Spark's; an expression over the groups goes into select")
    reads = [tuple(part.name for part in column.parts) for column in tree.find_all(exp.Column)]
    alias = tree.alias if isinstance(tree, exp.Alias) else None
    return Expression(text, alias, tuple(dict.fromkeys(reads)), plain=False)


def refuse_order(called: Iterable[Call]) -> None:
    """Refuses calls whose value depends on the order of the rows.

    Raises:
        SqlTextError: there is one; the message says what to write.
    """
    for call in called:
        if call.name in DEPENDING and not _is_ordered(call):
            raise SqlTextError(
                f"the value of {call.name} depends on the order of the rows; write {DEPENDING[call.name]}"
            )


def computed_on_rows(text: str) -> list[str]:
    """Returns the SQL that the aggregate functions of an expression compute on each row, without plain columns."""
    computed = []
    for call in filter(_is_aggregate, calls_in(text)):
        given = [*call.arguments, *([] if call.ordered_by is None else [call.ordered_by])]
        read = [
            sql for argument in given if argument != "*" for sql in _fields(argument) if parse_expression(sql).reads
        ]
        if call.where is not None:
            computed += [f"IF({call.where}, {sql}, NULL)" for sql in read or ["1"]]
        else:
            computed += [sql for sql in read if not parse_expression(sql).plain]
    return computed


def _fields(sql: str) -> list[str]:
    """Returns the fields of a struct, which itself is never null, and so can be left uncomputed; or the SQL itself."""
    first = next(iter(calls_in(sql)), None)
    if first is None or first.name != "struct" or first.whole != sql:
        return [sql]
    return [field for argument in first.arguments for field in _fields(body_of(argument))]


def _is_aggregate(call: Call) -> bool:
    return call.name in EXACT or call.name in DEPENDING


def _is_ordered(call: Call) -> bool:
    """Returns whether a call whose value may depend on the order of the rows is written so that it does not."""
    if call.name == "mode":
        return len(call.arguments) == 2 and call.arguments[1].lower() == "true"
    around = call.within
    if call.name not in _LISTS or around is None or around.arguments[0] != call.whole:
        return False
    ascending = [argument.lower() in ("true", "false") for argument in around.arguments[1:]]
    return (around.name == "array_sort" and not ascending) or (around.name == "sort_array" and all(ascending))
