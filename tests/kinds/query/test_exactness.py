"""Values that depend on the order in which floating-point numbers are added are no difference for the proof."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from fk_pipeline.blocks.refresh.exactness import inexact_of
from fk_pipeline.blocks.select.parsing import parse_query
from fk_pipeline.frames import empty, sql_over
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.sql import parse_columns

pytestmark = pytest.mark.spark

SALE = parse_columns("id BIGINT, k STRING, d DOUBLE, v INT, n DECIMAL(10,2), big BIGINT, text STRING")

INEXACT = {
    "CAST(SUM(d) AS DECIMAL(10,2))",
    "FLOOR(SUM(d))",
    "CAST(AVG(d) AS STRING)",
    "ROUND(SUM(DISTINCT d) FILTER (WHERE v > 1), 2)",
    "FLOOR(SUM(CAST(v AS FLOAT)))",
    "CAST(TRY_AVG(big) AS INT)",  # a sum of large numbers is no DOUBLE
    "STRUCT(SUM(text) AS s)",
    "CAST(STDDEV(v) AS INT)",
    "SUM(d) > 3",
}
EXACT = {
    "MAX(d)",
    "COUNT(d)",
    "CAST(MIN(d) * 3 AS STRING)",
    "MAX(d) > 3",
    "PERCENTILE(d, 0.5)",
    "SUM(v) / COUNT(*)",
    "CAST(AVG(v) AS INT)",
    "AVG(n)",
    "SUM(n)",
    "SUM(big)",
    "ARRAY_SORT(COLLECT_LIST(d))",
}

OF_BLOCKS = {
    "SELECT k, CAST(s AS STRING) AS t, n, m FROM (SELECT k, SUM(d) AS s, COUNT(*) AS n, MAX(d) AS m FROM sale "
    "GROUP BY k) x WHERE n > 1": {"t"},
    "SELECT o.id, CAST(x.s AS INT) AS s, x.n FROM sale o JOIN (SELECT k, SUM(d) AS s, SUM(v) AS n FROM sale GROUP BY k)"
    " x ON x.k = o.k": {"s"},
    "SELECT x.n, COUNT(x.s) AS c, COUNT(DISTINCT x.s) AS e, MAX(FLOOR(x.s)) AS m FROM (SELECT k, SUM(d) AS s, "
    "SUM(v) AS n FROM sale GROUP BY k) x GROUP BY x.n": {"e", "m"},
    "SELECT id, FLOOR(SUM(d) OVER (PARTITION BY k)) AS s, RANK() OVER (PARTITION BY k ORDER BY d) AS r FROM sale": {
        "s"
    },
    "SELECT v AS a, k AS b FROM sale UNION ALL SELECT CAST(s AS INT), k FROM (SELECT k, SUM(d) AS s FROM sale "
    "GROUP BY k) x": {"a"},
    "SELECT k, y FROM (SELECT k, ARRAY(SUM(d)) AS a FROM sale GROUP BY k) x LATERAL VIEW EXPLODE(x.a) t AS y": {"y"},
}
"""Queries, each with the columns whose values may depend on the order."""


def test_columns_are_told_that_depend_on_the_order(spark: SparkSession) -> None:
    columns = [*enumerate([*sorted(INEXACT), *sorted(EXACT)])]
    query = f"SELECT k, {', '.join(f'{sql} AS c{number}' for number, sql in columns)} FROM sale GROUP BY k"
    wanted = {query: {f"c{number}" for number, sql in columns if sql in INEXACT}, **OF_BLOCKS}
    found = {}
    for text in wanted:
        parsed, rows = parse_query(text, {"sale": SALE}), {"sale": empty(spark, [(c.name, c.type) for c in SALE])}
        for block in parsed.blocks:
            rows[block.name] = sql_over({one.name: rows[one.relation] for one in block.aliases}, block.of)
        found[text] = {*inexact_of(parsed, rows)}
    assert found == wanted


FILE = """name: sums
kind: query
inputs:
  sale: {table: lake/sale, key: id}
query: |
  SELECT k, CEIL(SUM(d) * 10) AS tenths, CAST(SUM(d) AS STRING) AS text, CAST(SUM(d) AS DECIMAL(20,17)) AS n,
         SUM(d) AS s, MAX(CAST(d AS STRING)) AS most
  FROM sale GROUP BY k
warehouse: warehouse
"""


def test_a_table_that_is_sorted_anew_makes_no_difference(tmp_path: Path, spark: SparkSession) -> None:
    lake, numbers = tmp_path / "lake/sale", [0.3, 0.2, 0.1]  # added in this order they are 0.6
    rows = pa.table({"id": pa.array(range(3), pa.int64()), "k": ["a"] * 3, "d": pa.array(numbers, pa.float64())})
    write_deltalake(str(lake), rows, configuration={"delta.enableChangeDataFeed": "true"})
    (tmp_path / "sums.yaml").write_text(FILE)
    pipeline = Pipeline(load_spec(tmp_path / "sums.yaml"), spark)
    pipeline.run()
    assert pipeline.verify().ok
    DeltaTable(str(lake)).optimize.z_order(["d"])
    assert spark.sql(f"SELECT SUM(d) FROM delta.`{lake}`").collect() == [(sum(numbers[::-1]),)] != [(sum(numbers),)]
    pipeline.run()
    [row] = pipeline.table("result").select("tenths", "text", "most").collect()
    assert tuple(row) == (6, "0.6", "0.3")  # no row changed
    report = pipeline.verify()
    assert (report.ok, report.rows) == (True, 1), report
    result = f"delta.`{pipeline.runner.warehouse.path('result')}`"
    for column, wrong in {"tenths": "9", "n": "0.601", "s": "0.601", "most": "'0.2'"}.items():
        spark.sql(f"UPDATE {result} SET {column} = {wrong}")
        assert not Pipeline(pipeline.spec, spark).verify().ok, column
        spark.sql(f"RESTORE TABLE {result} TO VERSION AS OF {pipeline.runner.warehouse.version('result') - 1}")
