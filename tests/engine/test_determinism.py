"""What Spark computes otherwise the next time is refused, and `${...}` is a text."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlglot
from pyspark.sql import SparkSession

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.determinism import moment_in
from fk_pipeline.spec.sql import SqlTextError, parse_expression

pytestmark = pytest.mark.spark

CHANGES = ("Nondeterministic", "ExpressionWithRandomSeed", "CurrentTimestampLike", "CurrentTime", "CurrentDate")
"""Expressions of Spark whose value is not a function of the row."""
ARGUMENTS = {"randstr": "3", "shuffle": "a", "uniform": "1, 2"}
"""Of those that our reader takes with arguments only."""
PASSING = (
    "DATE'today'",
    "TO_DATE('tomorrow')",
    "CAST(LOWER('NOW') AS TIMESTAMP)",
    "YEAR('today')",
    "DATE_ADD('now', 1)",
)


def test_every_function_that_spark_says_changes_is_refused(spark: SparkSession) -> None:
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    registry, loader = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin(), jvm.java.lang.Thread
    loader = loader.currentThread().getContextClassLoader()
    bases = []
    for base in CHANGES:
        name = f"org.apache.spark.sql.catalyst.expressions.{base}"
        bases.append(jvm.java.lang.Class.forName(name, False, loader))
    changing = []
    for name in (row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()):
        info = registry.lookupFunction(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name))
        if info.isDefined():
            made = jvm.java.lang.Class.forName(info.get().getClassName(), False, loader)
            changing += [name] if any(base.isAssignableFrom(made) for base in bases) else []
    assert {"rand", "uuid", "input_file_block_start", "now", "reflect"} <= {*changing}
    for name in changing:
        with pytest.raises(SqlTextError, match="is not deterministic"):
            parse_expression(f"{name}({ARGUMENTS.get(name, '')})")


@pytest.mark.connect
def test_spark_reads_as_a_passing_day_what_is_refused(spark: SparkSession) -> None:
    for sql in PASSING:
        assert spark.range(1).selectExpr(f"CAST({sql} AS STRING) > '20'").first()[0], sql  # type: ignore[index]
        tree = sqlglot.parse_one(f"SELECT {sql}", dialect="spark").expressions[0]
        assert moment_in(tree, lambda _: None) is not None, sql


@pytest.mark.connect
def test_variables_of_spark_in_the_name_of_a_field_are_part_of_the_name(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    made.file.write_text(
        made.file.read_text().replace("op_column: op\n  key: id", "op_column: '${env:HOME}'\n  key: id")
    )

    made.pipeline = Pipeline(load_spec(made.file), made.pipeline.session)
    lines = [
        json.dumps({"${env:HOME}": op, "id": id_, "fk": "a", "v": "v"}) for op, id_ in (("u", 1), ("u", 2), ("d", 1))
    ]
    made.land(0, lines, [("a", "A")])
    made.pipeline.run()
    assert made.result() == {2: ("v", "A")}
    assert made.pipeline.session.conf.get("spark.sql.variable.substitute") == "true"  # it is put back
