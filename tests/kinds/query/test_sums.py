"""Groups that are kept by arithmetic: which blocks are, and what their hidden columns are. No Spark."""

from __future__ import annotations

import pytest

from fk_pipeline.kinds.query.parsing import parse_query
from fk_pipeline.kinds.query.sums import Sums, is_exact, sums_of
from fk_pipeline.spec import Column

SALES = [Column("id", "BIGINT"), Column("shop", "STRING"), Column("price", "DECIMAL(15,2)"), Column("n", "INT")]


def sums(select: str) -> Sums | None:
    """How the only block of a query over sales is kept by arithmetic."""
    [block] = parse_query(select, {"sales": SALES}).blocks
    return sums_of(block)


@pytest.mark.parametrize(
    "select",
    [
        "SELECT shop, MAX(price) AS x FROM sales GROUP BY shop",
        "SELECT shop, COUNT(DISTINCT n) AS x FROM sales GROUP BY shop",
        "SELECT shop, SUM(price) FILTER (WHERE n > 1) AS x FROM sales GROUP BY shop",
        "SELECT shop, COUNT(*) AS x FROM sales GROUP BY shop HAVING COUNT(*) > 1",
        "SELECT shop, x FROM (SELECT shop, COUNT(*) AS x FROM sales GROUP BY shop) AS s WHERE x > 1",
        "SELECT id, n FROM sales",
    ],
)
def test_other_aggregates_conditions_and_units_are_not_kept_by_arithmetic(select: str) -> None:
    assert sums(select) is None


def test_each_argument_is_counted_and_summed_once_whatever_reads_it() -> None:
    found = sums(
        "SELECT UPPER(shop) AS s, SUM(n) + 1 AS a, AVG(n) AS b, COUNT(n) AS c, COUNT(*) AS d FROM sales GROUP BY shop"
    )
    assert found is not None
    assert found.arguments == ("`sales`.`n`",)
    types = {"_fk_sum_0": "BIGINT", "_fk_mean_0": "DOUBLE"}
    assert found.numbers(types) == {
        "_fk_rows": "COUNT(*)",
        "_fk_count_0": "COUNT(`sales`.`n`)",
        "_fk_sum_0": "CAST(COALESCE(SUM(`sales`.`n`), 0) AS BIGINT)",
    }
    assert found.values(types) == {
        "s": "UPPER(_fk_group_0)",
        "a": "IF(_fk_count_0 = 0, NULL, _fk_sum_0) + 1",
        "b": "IF(_fk_count_0 = 0, NULL, CAST(_fk_sum_0 AS DOUBLE) / _fk_count_0)",
        "c": "_fk_count_0",
        "d": "_fk_rows",
    }


@pytest.mark.parametrize(
    ("types", "exact"),
    [
        ({"_fk_sum_0": "bigint"}, True),
        ({"_fk_sum_0": "double"}, False),
        ({"_fk_sum_0": "decimal(38,4)"}, True),
        ({"_fk_sum_0": "decimal(25,2)", "_fk_mean_0": "decimal(19,6)"}, True),
        ({"_fk_sum_0": "decimal(38,4)", "_fk_mean_0": "decimal(32,8)"}, False),
        ({"_fk_sum_0": "decimal(38,4)", "_fk_sum_1": "bigint", "_fk_mean_1": "double"}, True),
        ({"_fk_sum_0": "interval day"}, False),
    ],
)
def test_sums_of_whole_numbers_are_exact_and_averages_of_those_that_are_not_too_long(
    types: dict[str, str], exact: bool
) -> None:
    assert is_exact(types) is exact
