"""A query calls the functions that were written, although sqlglot knows others for them. No Spark."""

from __future__ import annotations

import pytest
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from fk_pipeline.blocks.aggregates import DEPENDING, EXACT
from fk_pipeline.blocks.select.parsing import inputs_named
from fk_pipeline.blocks.select.written import is_written_back, parse_as_written
from fk_pipeline.spec.sql import SqlTextError

OTHERS = {"APPLY", "EXTRACT", "OVERLAY", "STRUCT", "TRANSFORM", "TRIM"}
"""Names that are more than a function, or whose arguments get names or words."""

WITH_WORDS = {"POSITION": "LOCATE", "SUBSTR": "SUBSTRING"}
"""Functions with words among their arguments, and the same function of Spark that is written for them."""


def written(sql: str) -> str:
    (tree,) = parse_as_written(f"SELECT {sql} FROM f")
    return str(tree.selects[0].sql(dialect="spark"))


def test_every_function_that_sqlglot_knows_is_written_back_as_it_is() -> None:
    tried, other = 0, {}
    for name in sorted({*SparkParser.FUNCTIONS} - OTHERS):
        for number in range(5):
            sql = f"{name}({', '.join('abcd'[:number])})"
            try:
                found = written(sql)
            except SqlglotError:  # it takes another number of arguments
                continue
            tried += 1
            if found != sql.replace(name, WITH_WORDS.get(name, name)):
                other[sql] = found
    assert other == {}
    assert tried > 2000


@pytest.mark.parametrize(
    "sql",
    [
        "LOG10(x)",
        "TO_CHAR(n, '999.99')",
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY v)",
        "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY v DESC)",
        "DATE_SUB(d, 3)",
        "LEVENSHTEIN(s, 'abc', 2)",
        "NAMED_STRUCT('Q', 1)",
        "COUNT(DISTINCT a, b)",
        "SUM(v) FILTER(WHERE v > 2)",
        "FIRST_VALUE(v) IGNORE NULLS OVER (ORDER BY x)",
        "TRANSFORM(a, x -> x + 1)",
        "AGGREGATE(a, 0, (acc, x) -> acc + x)",
        "TRIM(BOTH 'a' FROM s)",
        "EXTRACT(YEAR FROM d)",
        "DATEDIFF(DAY, a, b)",
        "TIMESTAMPADD(HOUR, 1, a)",
        "EXISTS(a, x -> x > 1)",
        "s LIKE ANY ('a', 'b')",
        "ANY(x > 1)",
    ],
)
def test_so_are_calls_with_words(sql: str) -> None:
    assert written(sql) == sql


@pytest.mark.parametrize("name", sorted({*EXACT, *DEPENDING}))
def test_every_aggregate_is_known_as_one(name: str) -> None:
    (tree,) = parse_as_written(f"SELECT {name}(a) AS x FROM f")
    assert isinstance(tree.selects[0].unalias(), exp.AggFunc)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("a = 'O''Brien'", r"a = 'O\'Brien'"),
        ("a = 'x' 'y'", "a = CONCAT('x', 'y')"),
        ("a - INTERVAL 1 DAY 2 HOURS", "a - (INTERVAL '1' DAY + INTERVAL '2' HOURS)"),
        ("a - b - c", "a - b - c"),
        ("a & b << 1", "a & SHIFTLEFT(b, 1)"),
        ("a | b >> 1 << 2", "a | SHIFTLEFT(SHIFTRIGHT(b, 1), 2)"),
        ("(a & b) << 1", "SHIFTLEFT((a & b), 1)"),
    ],
)
def test_quotes_and_precedence_are_those_of_spark(sql: str, wanted: str) -> None:
    assert written(sql) == wanted


def test_words_that_would_be_others_are_told() -> None:
    assert all(map(is_written_back, ("sum(v)", "avg(CAST(`v` AS DECIMAL(10,2)))", "count(*) FILTER (WHERE v <> 'A')")))
    assert not any(map(is_written_back, ("count_if(a = 'O''Brien')", "max(TIME'10:00:00')", "sum(1L)")))


def test_a_variable_of_spark_is_refused_also_where_it_is_written_as_a_code() -> None:
    with pytest.raises(SqlTextError, match="would be replaced by a variable"):
        inputs_named(r"SELECT id FROM f WHERE a = '\u0024{env:HOME}'")
