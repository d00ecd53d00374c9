"""A pipeline whose landing files are Parquet, from discovery to the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fk_pipeline.engine import landing
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import StateError, UsageError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.sizes import Sizes

pytestmark = pytest.mark.spark


def write(file: Path, columns: dict[str, str], *rows: tuple[object, ...]) -> None:
    kinds = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema), file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline file and its landing files."""
    left = {"op": "string", "id": "int", "fk": "string", "v": "string"}
    long = left | {"id": "bigint"}
    first = [("u", 1, "a", "v1"), ("u", 2, "b", "v2"), ("u", 3, "b", "old"), ("u", 3, "a", "v3")]
    write(tmp_path / "left" / "0.parquet", left, *first)
    write(tmp_path / "right" / "0.parquet", {"k": "string", "name": "string"}, ("a", "A"), ("b", "B"))
    bad = [("?", 7, None, "x"), ("u", 8, "!", "y")]
    write(tmp_path / "left" / "1-a.parquet", long, ("d", 1, None, None), *bad)
    write(tmp_path / "left" / "part-b-1.parquet", long, ("u", 2, "a", "v2b"))
    (tmp_path / "left" / "2.jsonl").write_text("no parquet, and not read")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: columnar\njoin: inner\n"
        "left: {path: left, format: parquet, schema: 'id INT, fk STRING, v STRING', key: id, op_column: op,\n"
        "    batch_by: '(\\d+)(?:-a)?[.]', foreign_key: 'if(fk = ''!'', raise_error(''no''), fk)'}\n"
        "right: {path: right, format: parquet, schema: 'k STRING, name STRING', key: k}\n"
    )
    return file


@pytest.fixture
def compiled(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> set[str | None]:
    """Whether Spark compiled the plans of the changelogs that were written."""
    found: set[str | None] = set()

    def noting(made: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *a: (found.add(spark.conf.get("spark.sql.codegen.wholeStage")), made(*a))[1]

    for name in ("changelog", "with_records"):
        monkeypatch.setattr(landing, name, noting(getattr(landing, name)))
    return found


def left_changelog_is_right(pipeline: Pipeline, done: list[StageRun]) -> None:
    counts = {batch: found for run in done if run.stage == "left_changelog" for batch, found in run.counts.items()}
    assert counts[0] == {"read": 4, "events": 4, "rows": 3, "superseded": 1}
    assert counts[1] == {"read": 4, "events": 2, "rows": 2, "tombstones": 1, "quarantined": 2}
    rows = pipeline.table("left_changelog").select("_fk_batch", "id", "v").collect()
    assert sorted(map(tuple, rows)) == [(0, 1, "v1"), (0, 2, "v2"), (0, 3, "v3"), (1, 1, None), (1, 2, "v2b")]
    bad = pipeline.table("quarantine").collect()
    assert sorted((row["_fk_file"].rsplit("/", 1)[-1], row["_fk_line"], row["_fk_raw"]) for row in bad) == [
        ("1-a.parquet", 2, '{"op":"?","id":7,"v":"x"}'),
        ("1-a.parquet", 3, '{"op":"u","id":8,"fk":"!","v":"y"}'),
    ]


@pytest.mark.slow
def test_files_of_more_rows_than_the_driver_takes(spark: SparkSession, file: Path, compiled: set[str | None]) -> None:
    pipeline = Pipeline(load_spec(file), spark, sizes=Sizes(compressed_bytes=0))
    left_changelog_is_right(pipeline, pipeline.run(stages=[Stage.LEFT_CHANGELOG]))
    assert compiled == {"true"}


def test_batches_of_parquet_files(spark: SparkSession, file: Path, compiled: set[str | None], tmp_path: Path) -> None:
    pipeline = Pipeline(load_spec(file), spark)
    left_changelog_is_right(pipeline, pipeline.run())
    assert compiled == {"false"}
    rows = pipeline.table("resolved_join").select("id", "v", "name").collect()
    assert sorted(map(tuple, rows)) == [(2, "v2b", "A"), (3, "v3", "A")]
    assert pipeline.ledger().batches == [0, 1]
    pipeline.export_quarantine(tmp_path / "bad.jsonl")
    edited = (tmp_path / "bad.jsonl").read_text().replace(r"\"?\"", r"\"u\"")
    (tmp_path / "bad.jsonl").write_text(edited)
    with pytest.raises(UsageError, match="a row of a file in format parquet cannot be corrected by its text"):
        pipeline.correct(tmp_path / "bad.jsonl")
    report = pipeline.verify()
    assert (report.ok, report.due) == (True, 0)
    file.write_text(file.read_text().replace("path: left, format: parquet", "path: left, format: rows"))
    with pytest.raises(StateError, match=r"3 landing file.s. are not written as format rows is"):
        Pipeline(load_spec(file), spark).rebuild("landing")
