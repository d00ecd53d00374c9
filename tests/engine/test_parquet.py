"""A pipeline whose landing files are Parquet, from discovery to the result."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.engine import landing
from fk_pipeline.errors import StateError, UsageError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.sizes import MEASURED, Sizes

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("few_bytes", [None, 0])
def test_batches_of_parquet_files(
    spark: SparkSession, tmp_path: Path, few_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 0: as files of more rows than the driver takes are read
    sizes = MEASURED if few_bytes is None else Sizes(compressed_bytes=few_bytes)
    compiled = set()
    made = landing.changelog
    monkeypatch.setattr(
        landing, "changelog", lambda *a: (compiled.add(spark.conf.get("spark.sql.codegen.wholeStage")), made(*a))[1]
    )

    def land(side: str, name: str, rows: str) -> None:
        spark.sql(f"SELECT * FROM VALUES {rows}").coalesce(1).write.parquet(str(tmp_path / "made" / side / name))
        part = next((tmp_path / "made" / side / name).glob("*.parquet"))
        (tmp_path / side).mkdir(exist_ok=True)
        part.rename(tmp_path / side / f"{name}.parquet")

    land(
        "left",
        "0",
        "('u', 1, 'a', 'v1'), ('u', 2, 'b', 'v2'), ('u', 3, 'b', 'old'), ('u', 3, 'a', 'v3') AS t(op, id, fk, v)",
    )
    land("right", "0", "('a', 'A'), ('b', 'B') AS t(k, name)")
    land("left", "1-a", "('d', 1L, null, null), ('?', 7L, null, 'x'), ('u', 8L, '!', 'y') AS t(op, id, fk, v)")
    land("left", "part-b-1", "('u', 2L, 'a', 'v2b') AS t(op, id, fk, v)")
    (tmp_path / "left" / "2.jsonl").write_text("no parquet, and not read")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: columnar\njoin: inner\n"
        "left: {path: left, format: parquet, schema: 'id INT, fk STRING, v STRING', key: id, op_column: op,\n"
        "    batch_by: '(\\d+)(?:-a)?[.]', foreign_key: 'if(fk = ''!'', raise_error(''no''), fk)'}\n"
        "right: {path: right, format: parquet, schema: 'k STRING, name STRING', key: k}\n"
    )
    pipeline = Pipeline(load_spec(file), spark, sizes=sizes)
    done = pipeline.run()
    rows = pipeline.table("resolved_join").select("id", "v", "name").collect()
    assert sorted(map(tuple, rows)) == [(2, "v2b", "A"), (3, "v3", "A")]
    assert pipeline.ledger().batches == [0, 1]
    assert compiled == {"false" if few_bytes is None else "true"}
    counts = {batch: found for run in done if run.stage == "left_changelog" for batch, found in run.counts.items()}
    assert counts[0] == {"read": 4, "events": 4, "rows": 3, "superseded": 1}
    assert counts[1] == {"read": 4, "events": 2, "rows": 2, "tombstones": 1, "quarantined": 2}
    bad = pipeline.table("quarantine").collect()
    assert sorted((row["_fk_file"].rsplit("/", 1)[-1], row["_fk_line"], row["_fk_raw"]) for row in bad) == [
        ("1-a.parquet", 2, '{"op":"?","id":7,"v":"x"}'),
        ("1-a.parquet", 3, '{"op":"u","id":8,"fk":"!","v":"y"}'),
    ]
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
