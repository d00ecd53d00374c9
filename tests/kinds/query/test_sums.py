"""Groups that are kept by arithmetic: which blocks are, what their hidden columns are, and their averages."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fk_pipeline.blocks.refresh.sums import ROWS, Sums, is_exact, sums_of
from fk_pipeline.blocks.select.parsing import parse_query
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.tables import declared_layout, layout_of
from fk_pipeline.spec import Column, load_spec

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
        ({"_fk_sum_0": "decimal(33,14)", "_fk_mean_0": "decimal(27,18)"}, True),
        ({"_fk_sum_0": "decimal(34,2)", "_fk_mean_0": "decimal(28,6)"}, False),
        ({"_fk_sum_0": "decimal(30,15)", "_fk_mean_0": "decimal(24,19)"}, False),
        ({"_fk_sum_0": "decimal(38,4)", "_fk_mean_0": "decimal(32,8)"}, False),
        ({"_fk_sum_0": "decimal(38,4)", "_fk_sum_1": "bigint", "_fk_mean_1": "double"}, True),
        ({"_fk_sum_0": "interval day"}, False),
    ],
)
def test_sums_of_whole_numbers_are_exact_and_averages_of_those_that_are_not_too_long(
    types: dict[str, str], exact: bool
) -> None:
    assert is_exact(types) is exact


AGGREGATES = [
    "SUM(v)", "SUM(CAST(v AS DOUBLE))", "AVG(v)", "SUM(v / 2)", "SUM(n / 2)", "SUM(d * n)", "SUM(n * 1.5)",
    "SUM(v * 1.5D)", "SUM(CAST(d AS DECIMAL(9,2)))", "AVG(CAST(n AS DECIMAL(30,2)))", "AVG(n)", "SUM(ROUND(n * v, 1))",
    "SUM(ROUND(d, 1))", "SUM(IF(v > 1, d, 0))", "SUM(CASE WHEN s = 'a' THEN 1 ELSE 0 END)", "SUM(s)", "SUM(LENGTH(s))",
    "SUM(SQRT(v))", "SUM(TRY_DIVIDE(v, 2))", "SUM(f + v)", "SUM(-n)", "SUM(COALESCE(d, 0))",
]  # fmt: skip
"""Ten of them are kept by arithmetic."""


@pytest.mark.spark
def test_the_pipeline_file_tells_the_columns_that_spark_finds(tmp_path: Path, spark: SparkSession) -> None:
    schema = "id BIGINT, v BIGINT, n DECIMAL(10,2), d DOUBLE, f FLOAT, s STRING"
    groups = [f"g{i} AS (SELECT v % 2 AS k, {sql} AS a FROM line GROUP BY v % 2)" for i, sql in enumerate(AGGREGATES)]
    joined = [f"g{i} ON g{i}.k = g0.k" for i in range(1, len(AGGREGATES))]
    query = f"WITH {', '.join(groups)} SELECT {', '.join(f'g{i}.a AS a{i}' for i in range(len(AGGREGATES)))}"
    query += f" FROM g0 JOIN {' JOIN '.join(joined)}"
    file = tmp_path / "sums.yaml"
    line = f'{{path: line, format: rows, schema: "{schema}", key: id, op_column: op}}'
    file.write_text(f"name: sums\nkind: query\ninputs:\n  line: {line}\nquery: |\n  {query}\n")
    spec = load_spec(file)
    assert isinstance(spec, QuerySpec)
    declared = {table.name: table.names for table in declared_layout(spec).tables}
    found = {table.name: table.names for table in layout_of(spark, spec).tables}
    differ = [sql for i, sql in enumerate(AGGREGATES) if declared[f"g{i}"] != found[f"g{i}"]]
    assert differ == []
    assert sum(ROWS in names for names in found.values()) == 10


SIZES = [(3, 0), (15, 2), (23, 2), (23, 14), (14, 14)]
"""Digits, and those behind the point, of arguments of AVG: the longest that are kept by arithmetic are among them."""


def means() -> list[str]:
    """SQL: per size, the average, from sum and count of the argument with its number."""
    found = sums(
        f"SELECT shop, {', '.join(f'AVG(n + {i}) AS a{i}' for i in range(len(SIZES)))} FROM sales GROUP BY shop"
    )
    assert found is not None
    of_sums = {f"_fk_sum_{i}": f"decimal({digits + 10},{scale})" for i, (digits, scale) in enumerate(SIZES)}
    of_means = {f"_fk_mean_{i}": f"decimal({digits + 4},{scale + 4})" for i, (digits, scale) in enumerate(SIZES)}
    assert is_exact(of_sums | of_means)
    values = found.values(of_sums | of_means)
    return [values[f"a{i}"] for i in range(len(SIZES))]


EXACTLY = Context(prec=100)


def decimals(digits: int, scale: int, chance: random.Random) -> tuple[Decimal, int]:
    """Returns a sum and a count; of every second one the average is near the middle of two, or in it."""
    count = chance.choice([1, 2, 3, 7, 8, 1000, 10**6 + 1, 2 * 10**9, chance.randint(1, 10**10)])
    most = chance.choice([10**digits - 1, 10 ** (digits // 2)]) * count
    total = chance.randint(-most, most)
    if chance.random() < 0.5:
        total = (2 * (total * 10**4 // count) + 1) * count // (2 * 10**4) + chance.choice([-1, 0, 0, 1])
    return Decimal(total).scaleb(-scale, EXACTLY), count


@pytest.mark.spark
def test_the_average_of_decimals_is_rounded_once_and_is_that_of_spark(spark: SparkSession) -> None:
    chance = random.Random(7)
    given = [[decimals(*sized, chance) for sized in SIZES] for _ in range(2000)] + [[(Decimal(0), 0)] * len(SIZES)]
    columns = {}
    for i, (digits, scale) in enumerate(SIZES):
        columns[f"_fk_sum_{i}"] = pa.array([row[i][0] for row in given], pa.decimal128(digits + 10, scale))
        columns[f"_fk_count_{i}"] = pa.array([row[i][1] for row in given], pa.int64())
    found = spark.createDataFrame(pa.table(columns)).selectExpr(*means()).collect()
    for row, told in zip(given, found, strict=True):
        for (digits, scale), (total, count), mean in zip(SIZES, row, told, strict=True):
            expected = None
            if count:
                unit = Decimal(1).scaleb(-scale - 4)
                expected = EXACTLY.divide(total, Decimal(count)).quantize(unit, ROUND_HALF_UP, EXACTLY)
            assert mean == expected, (digits, scale, total, count)

    made = [
        f"CAST(CAST(RAND({i}) * POW(10, {digits - scale}) AS DECIMAL({digits},{scale})) * (id % 3 - 1) "
        f"+ id % 7 AS DECIMAL({digits},{scale})) AS v{i}"
        for i, (digits, scale) in enumerate(SIZES[1:4], 1)
    ]
    parts = [f"SUM(v{i}) AS _fk_sum_{i}, COUNT(v{i}) AS _fk_count_{i}, AVG(v{i}) AS of_spark_{i}" for i in range(1, 4)]
    groups = spark.range(10_000).selectExpr("id % 1500 AS g", *made)
    numbers = groups.groupBy("g").agg(*(F.expr(one) for part in parts for one in part.split(", ")))
    equal = [f"COUNT_IF(of_spark_{i} <=> ({means()[i]}) AND of_spark_{i} IS NOT NULL) AS n{i}" for i in range(1, 4)]
    assert tuple(numbers.selectExpr(*equal).first() or ()) == (1500, 1500, 1500)
