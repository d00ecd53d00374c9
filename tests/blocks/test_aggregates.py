"""The aggregate functions that a pipeline file may have: every one of Spark's is allowed, or refused with another."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.blocks.aggregates import DEPENDING, EXACT, NOT_OF_ROWS, computed_on_rows, parse_aggregate
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.sql import SqlTextError
from tests.kinds.aggregate.grouped import AGGREGATES, FILE, TABLE


@pytest.mark.spark
def test_every_aggregate_function_of_spark_is_listed(spark: SparkSession) -> None:
    registry = spark._jsparkSession.sessionState().functionRegistry()  # type: ignore[attr-defined]
    names, found = registry.listFunction().iterator(), set()
    while names.hasNext():
        name = names.next()
        info = registry.lookupFunction(name)
        if info.isDefined() and info.get().getGroup() == "agg_funcs":
            found.add(name.funcName())
    listed = EXACT | {*DEPENDING} | NOT_OF_ROWS
    assert found - listed == set()
    assert listed - found <= {"measure"}


@pytest.mark.parametrize(
    "text",
    [
        "count(*) AS n",
        "sum(v) / count(*) AS mean",
        "array_sort(collect_list(v)) AS all",
        "max(struct(v, id)).id AS best",
        "count_if(note = 'x') AS xs",
        "sum(v) FILTER (WHERE v > 1) AS some",
        "mode(v, true) AS often",
        "mode(lower(note), true) AS often",
        "sort_array(collect_set(v), false) AS all",
        "array_sort(collect_list(v) FILTER (WHERE v > (1))) AS all",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS middle",
    ],
)
def test_functions_whose_value_follows_from_the_rows_are_taken(text: str) -> None:
    assert parse_aggregate(text).name == text.rsplit(maxsplit=1)[-1]


@pytest.mark.parametrize(
    "text",
    [
        "array_sort(collect_list(v)[0]) AS x",
        "array_sort(collect_list(v), (a, b) -> 0) AS x",
        "array_sort(reverse(collect_list(v))) AS x",
        "mode(v, false) AS x",
        "concat(mode(v, true), first(note)) AS x",
    ],
)
def test_what_is_sorted_in_part_is_refused(text: str) -> None:
    with pytest.raises(SqlTextError, match="depends on the order of the rows; write"):
        parse_aggregate(text)


@pytest.mark.parametrize(
    ("text", "computed"),
    [
        ("count(*) AS n", []),
        ("sum(v) / count(id) AS mean", []),
        ("sum(10 / v) / count(DISTINCT v, lower(note)) AS mean", ["10 / v", "lower(note)"]),
        ("sum(10 / v) FILTER (WHERE v <> 0) AS parts", ["IF(v <> 0, 10 / v, NULL)"]),
        ("count(*) FILTER (WHERE 10 / v > 1) AS n", ["IF(10 / v > 1, 1, NULL)"]),
        ("max(struct(CAST(note AS INT) AS a, id)).id AS best", ["CAST(note AS INT)"]),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY 10 / v DESC) AS middle", ["10 / v"]),
        ("array_sort(collect_list(split(note, ',')[1])) AS all", ["split(note, ',')[1]"]),
        ("sum(v) + max(length(')(')) AS x", []),
    ],
)
def test_what_is_computed_on_a_row_is_found(text: str, computed: list[str]) -> None:
    assert computed_on_rows(text) == computed


@pytest.mark.parametrize("name", sorted(DEPENDING))
def test_one_that_depends_on_the_order_is_refused_with_another(name: str) -> None:
    with pytest.raises(SqlTextError, match="depends on the order of the rows; write") as refused:
        parse_aggregate(f"{name}(v) AS x")
    instead = str(refused.value).split("; write ")[1].split(" (")[0].split(" or ")[0]
    if "(" in instead:
        assert parse_aggregate(f"{instead} AS x").name == "x"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"aggregates": "[count(*)]"}, "needs a name"),
        ({"aggregates": "[v + 1 AS w]"}, "no aggregate function"),
        ({"aggregates": "[sum(w) AS s]"}, "reads column 'w', which is not in the schema"),
        ({"aggregates": "[count(*) AS user]"}, "two columns are called 'user'"),
        ({"aggregates": "[sum(v) OVER () AS s]"}, "looks at rows of other groups"),
        ({"aggregates": "[first(v) AS f]"}, "depends on the order"),
        ({"aggregates": "[sum(rand()) AS r]"}, "not deterministic"),
        ({"group_by": "[upper(user)]"}, "needs a name"),
        ({"group_by": "[]"}, "neither groups nor windows"),
        ({"group_by": "[city]"}, "not in the schema"),
        ({"options": "having: m > 1"}, "there is no 'm'; there are user, n, total, best"),
        ({"options": "select: [window_start]"}, "there is no 'window_start'"),
        ({"options": "select: [n + 1]"}, "needs a name"),
        ({"window": "window: {time: at, size: 4 seconds, every: 5 seconds}"}, "rows between would count nowhere"),
        ({"window": "window: {time: at, size: 0 seconds}"}, "a window of no length"),
        ({"window": "window: {time: at, size: 1 hour, zone: Europe/Berlin}"}, "whole days begin at midnight"),
        ({"window": "window: {time: at, size: 1 day, zone: Mars}"}, "no time zone"),
        ({"options": "expectations: {aggregated: [{type: expect_column_values_to_not_be_null, kwargs: {column: x}}]}"},
         "names column 'x', which aggregated has not"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(tmp_path: Path, parts: dict[str, str], message: str) -> None:
    known = {"time": "BIGINT", "contents": TABLE, "group_by": "[user]", "window": "", "options": "", "settings": "{}"}
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(**known | {"aggregates": AGGREGATES} | parts))
    with pytest.raises(PipelineFileError, match=message):
        load_spec(file)
