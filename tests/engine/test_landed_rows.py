"""A small batch: its rows are computed with its records, and rows that stages hand on are read in the driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.blocks.changelog import changelog, evaluate, mark_last, with_records
from fk_pipeline.blocks.holes import packed
from fk_pipeline.cdc.reader import format_of, read_records
from fk_pipeline.engine.landed_rows import LandedRows
from fk_pipeline.identity import BatchId, BatchRange, LandedFile, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.failing import ISOLATING
from fk_pipeline.store import schemas as s
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.sizes import Sizes

pytestmark = pytest.mark.spark

SCHEMA = (
    "id INT, fk STRING, at TIMESTAMP, price DECIMAL(20,3), tags ARRAY<STRING>, "
    "more STRUCT<a: INT, b: MAP<STRING, DOUBLE>>"
)
ROWS = [
    {"op": "u", "id": 1, "fk": "a", "at": "2026-01-01T00:00:00Z", "price": "1.250", "tags": ["x", None]},
    {"op": "u", "id": 2, "fk": None, "more": {"a": 1, "b": {"k": 0.5}}},
    {"op": "u", "id": 1, "fk": "b", "price": "99999999999999999.999", "more": {"a": None, "b": {}}},
    {"op": "u", "id": "not a number", "fk": "a"},
    {"op": "d", "id": 2},
    {"op": "u", "id": 3, "fk": "c", "tags": []},
]
DEBEZIUM = [
    {"op": "c", "before": None, "after": {"id": 1, "fk": "a", "tags": ["x"]}, "ts_ms": 1},
    {"op": "u", "before": None, "after": {"id": 1, "fk": "b"}, "ts_ms": 2},
    {"op": "t", "before": None, "after": None, "ts_ms": 3},
    {"op": "c", "before": None, "after": {"id": 4, "fk": "z", "price": "1.5"}, "ts_ms": 4},
    {"op": "q"},
]


def records_of(spark: SparkSession, folder: Path, of_format: str, lines: list[Any]) -> tuple[PipelineSpec, Any]:
    """Returns the records of a file, which is the only one of its batch, marked."""
    file = folder / "0.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    op = {"op_column": "op"} if of_format == "rows" else {}
    side = {"path": "x", "schema": SCHEMA, "key": "id", "format": of_format, **op}
    given = {"name": "p", "join": "left", "left": {**side, "foreign_key": "fk"}, "right": {**side, "key": "fk"}}
    spec = PipelineSpec.model_validate(given)
    landed = {0: [LandedFile(str(file), Side.LEFT, BatchId(0), 1, "", "")]}
    found = read_records(spark, landed, spec, Side.LEFT, {}, {}, {})
    return spec, mark_last(evaluate(found.parsed, spec, Side.LEFT, ISOLATING), spec, Side.LEFT)


@pytest.mark.connect
@pytest.mark.parametrize(("of_format", "lines", "number"), [("rows", ROWS, 3), ("debezium", DEBEZIUM, 2)])
@pytest.mark.parametrize("driver_rows", [100, -1])
def test_rows_that_are_computed_with_the_records_are_those_of_the_changelog(
    spark: SparkSession, tmp_path: Path, of_format: str, lines: list[Any], number: int, driver_rows: int
) -> None:
    spec, marked = records_of(spark, tmp_path, of_format, lines)
    both, expected = with_records(marked, spec, Side.LEFT, {0: 2}), changelog(marked, spec, Side.LEFT, {0: 2})
    if format_of(spec.left).has_holes:
        both, expected = packed(both), packed(expected)
    computed = Materialised.of(both, None, driver_rows)
    landed = LandedRows(marked, computed, with_rows=True)
    assert landed.log is not None
    assert (landed.log.local is not None) == (driver_rows > 0)
    rows = landed.log.frame.select(*expected.columns)
    assert rows.schema.toNullable() == expected.schema.toNullable()
    for found in (rows.toArrow(), landed.log.local):
        if found is not None:
            wanted = sorted(map(str, expected.toArrow().to_pylist()))
            assert sorted(map(str, found.select(expected.columns).to_pylist())) == wanted
    assert len(rows.collect()) == number
    by_spark = Materialised(marked).counts("batch", "kind", "last", "op")
    assert landed.counts("batch", "kind", "last", "op") == by_spark
    assert landed.records.count() == len(lines)
    computed.release()


def test_rows_of_small_batches_are_read_in_the_driver_as_spark_reads_them(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, None, None), (3, "b", "w")], [("a", "A"), ("b", "B")])
    made.pipeline.run()
    made.land(1, [(1, "b", "x"), (2,)], [("b", "C")])
    made.land(2, [(4, "c", "y")])
    made.pipeline.run()
    runner = made.pipeline.runner
    places = {"left_changelog": s.BATCH, "right_changelog": s.BATCH, "responses": s.BATCH, "resolved_join": s.BATCH}
    places |= {"subscription_store": s.APPLIED_IN, "right_table": s.APPLIED_IN}
    for name, column in places.items():
        for batches in (BatchRange.of(1), BatchRange.of(1, 2), BatchRange.of(7)):
            with TableReader(runner.warehouse, runner.layout.tables, batches) as read:
                rows, expected = read.of_batches(name, column), read.read(name).where(batches.predicate(column))
                assert read.frames.known(rows) is not None, f"{name} was read by Spark"
                assert rows.schema.toNullable() == expected.schema.toNullable()
                assert sorted(map(str, rows.collect())) == sorted(map(str, expected.collect())), name


def test_more_rows_than_the_driver_takes_are_read_by_spark(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", Sizes(driver_rows=2))
    made.land(0, [(number, "a", "v") for number in range(3)], [("a", "A")])
    made.pipeline.run()
    runner = made.pipeline.runner
    with TableReader(runner.warehouse, runner.layout.tables, BatchRange.of(0)) as read:
        rows = read.of_batches("left_changelog", s.BATCH)
        assert read.frames.known(rows) is None
        assert rows.count() == 3
        assert read.of_batches("verdicts", s.BATCH).count() == 0, "there is no such table yet"
