"""Which expressions a pipeline file may hold: those whose value is a function of the row, whenever it is computed."""

from __future__ import annotations

import pytest

from fk_pipeline.spec.sql import SqlTextError, parse_expression, refuse_moments

TYPES = {"s": "STRING", "d": "DATE", "t": "TIMESTAMP", "id": "BIGINT"}

MOMENTS = r"""
    timestamp'now' | date'today' | DATE"tomorrow" | timestamp_ntz'now' | timestamp_ltz 'now' | 'now'::timestamp
    CAST('now' AS TIMESTAMP) | TRY_CAST(' TODAY ' AS DATE) | CAST(r'today' AS DATE) | CAST('to' 'day' AS DATE)
    CAST('today UTC' AS DATE) | CAST('today+01:00' AS DATE) | d > 't\oday' | d > '\u0074oday' | d > 'to\144ay'
    DATE('today') | TO_DATE('today') | TO_TIMESTAMP('now') | YEAR('today') | DATE_ADD('yesterday', 1)
    d < 'today' | d IN ('today') | d BETWEEN 'yesterday' AND 'tomorrow' | d <=> ('today') | t >= 'now'
    d < CONCAT('to', 'day') | d < 'to' || 'day' | d < LOWER('TODAY') | IF(id > 5, d, 'today') | COALESCE(d, 'today')
    CASE WHEN id > 5 THEN d ELSE 'today' END | CASE d WHEN 'today' THEN 1 END | COALESCE(s, 'today') = d
    IF(id > 5, s, 'now') < d | ARRAY(d, 'today') | DATEADD(DAY, 1, 'today') | CAST(ARRAY('today') AS ARRAY<DATE>)
    s.part = 'today'
"""
WORDS = r"""
    s = 'today' | s IN ('now', 'later') | s <> 'yesterday' | NOT (s <=> ('now')) | LOWER(s) = 'now' | 'now'
    CASE s WHEN 'today' THEN 1 END | CASE WHEN id > 5 THEN 'now' ELSE s END | IF(id > 5, 'now', 'later') = s
    COALESCE(s, 'today') | NULLIF(s, 'now') | CONCAT('now', s) | 'now' || s | s LIKE 'today%' | s RLIKE 'now'
    SPLIT(s, 'now')[0] | REGEXP_EXTRACT(s, 'now', 0) | REPLACE(s, 'now', 'then') | CAST('today' AS STRING) = s
    m['today'] | CONCAT('to', 'day') = s | d > DATE'2024-01-31' | d > '2024-01-31' | DATE'epoch' | d > 'nowhere'
    TO_DATE(s, 'yyyy-MM-dd') | CAST(s AS DATE) | TRIM('now' FROM s)
"""


def each(texts: str) -> list[str]:
    return [one.strip() for line in texts.strip().splitlines() for one in line.split(" | ")]


def type_of(path: tuple[str, ...]) -> str | None:
    return TYPES.get(path[0]) if len(path) == 1 else None


@pytest.mark.parametrize("sql", each(MOMENTS))
def test_a_text_that_spark_reads_as_a_day_that_passes_is_refused(sql: str) -> None:
    parse_expression(sql)
    with pytest.raises(SqlTextError, match=r"may become the day on which it is computed.*write the day, DATE'20"):
        refuse_moments(sql, type_of)


@pytest.mark.parametrize("sql", each(WORDS))
def test_the_same_word_as_a_text_is_taken_as_it_is(sql: str) -> None:
    parse_expression(sql)
    refuse_moments(sql, type_of)


@pytest.mark.parametrize(
    "sql",
    [
        "`now`()", "builtin.now()", "system.builtin.now()", "{fn now()}", "current_timezone()", "session_user",
        "user()", "version()", "uuid(3)", "input_file_name()", "input_file_block_length()", "spark_partition_id()",
        "monotonically_increasing_id()", "aes_encrypt(s, 'k')", "aes_encrypt(s, 'k', 'GCM')", "identifier('now')",
        "try_reflect('java.util.UUID', 'randomUUID')", "to_unix_timestamp(current_date)",
    ],
)  # fmt: skip
def test_what_is_no_function_of_the_row_is_refused_with_what_would_be_right(sql: str) -> None:
    with pytest.raises(SqlTextError, match=r"is not deterministic: .*; read a column of the source in its place"):
        parse_expression(sql)


@pytest.mark.parametrize("sql", ["aes_encrypt(s, 'k', 'ECB')", "aes_encrypt(s, 'k', 'GCM', 'DEFAULT', s)"])
def test_encryption_without_a_random_start_is_a_function_of_the_row(sql: str) -> None:
    parse_expression(sql)


@pytest.mark.parametrize("sql", ["'${env:HOME}'", "r'${env:HOME}'", "${spark.app.name}", "id + ${x}"])
def test_variables_of_spark_are_refused(sql: str) -> None:
    with pytest.raises(SqlTextError, match=r"would be replaced by a variable of Spark's; for the text itself"):
        parse_expression(sql)
