"""The aggregate functions of a pipeline file: those whose value does not depend on the order of the rows. No Spark.

A group is computed again when one of its rows changes, from rows in any order: a function that depends on their order
would change values for no reason. `tests/kinds/aggregate/test_functions.py` compares the lists with the functions of
the session.
"""

from __future__ import annotations

import itertools
import re

import sqlglot
from sqlglot import exp

from fk_pipeline.spec.determinism import is_not_of_the_row
from fk_pipeline.spec.sql import DIALECT, Expression, SqlTextError, one_tree

EXACT = {
    "any", "approx_count_distinct", "avg", "bit_and", "bit_or", "bit_xor", "bitmap_and_agg", "bitmap_construct_agg",
    "bitmap_or_agg", "bool_and", "bool_or", "corr", "count", "count_if", "count_min_sketch", "covar_pop", "covar_samp",
    "every", "kurtosis", "max", "mean", "median", "min", "percentile", "percentile_cont", "percentile_disc",
    "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy",
    "regr_syy", "skewness", "some", "std", "stddev", "stddev_pop", "stddev_samp", "sum", "try_avg", "try_sum",
    "var_pop", "var_samp", "variance",
}  # fmt: skip
"""Functions whose value follows from the rows; a floating-point sum but for its last digits."""

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

_SORTED = re.compile(r"\b(?:array_sort|sort_array)\s*\(\s*(?:array_agg|collect_list|collect_set)\s*\(", re.IGNORECASE)
_LEAST_MODE = re.compile(r"\bmode\s*\([^()]*,\s*true\s*\)", re.IGNORECASE)


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
    called = _called(text)
    for name in _called(_LEAST_MODE.sub("max(", _SORTED.sub("max(", text))):
        if name in DEPENDING:
            raise SqlTextError(f"the value of {name} depends on the order of the rows; write {DEPENDING[name]}")
    if not any(name in EXACT or name in DEPENDING for name in called):
        raise SqlTextError("no aggregate function of Spark's; an expression over the groups goes into select")
    reads = [tuple(part.name for part in column.parts) for column in tree.find_all(exp.Column)]
    alias = tree.alias if isinstance(tree, exp.Alias) else None
    return Expression(text, alias, tuple(dict.fromkeys(reads)), plain=False)


def _called(text: str) -> list[str]:
    """Returns the names of the functions that a text calls, in lower case."""
    tokens = sqlglot.tokenize(text, dialect=DIALECT)
    return [
        token.text.lower()
        for token, after in itertools.pairwise(tokens)
        if after.text == "(" and token.text.isidentifier()
    ]
