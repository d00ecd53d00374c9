"""A recorded change stream of a real PostgreSQL gives PostgreSQL's own join."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = pytest.mark.spark

DATA = Path(__file__).parent.parent / "data" / "postgres"
FLIGHTS = (
    *("id", "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
    *("arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute"),
    *("time_hour", "remarks"),
)
PLANES = (
    *("tailnum", "year", "type", "manufacturer", "model", "engines", "seats", "speed", "engine", "notes"),
    "registered_owner",
)
TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour", "remarks", "type", "manufacturer", "model", "engine"}
TEXTS |= {"notes", "registered_owner"}


def pipeline_file(folder: Path, join: str) -> Path:
    def schema(columns: tuple[str, ...]) -> str:
        return ", ".join(f"{c} {'STRING' if c in TEXTS else 'BIGINT'}" for c in columns)

    select = [f"left.{c} AS {c}" for c in FLIGHTS] + [f"right.{c} AS p_{c}" for c in PLANES]
    file = folder / f"{join}.yaml"
    file.write_text(
        f"name: flights_{join}\njoin: {join}\n"
        f'left: {{path: {DATA}/flights, schema: "{schema(FLIGHTS)}", key: id, foreign_key: tailnum}}\n'
        f'right: {{path: {DATA}/planes, schema: "{schema(PLANES)}", key: tailnum}}\n'
        "select:\n" + "".join(f"  - {column}\n" for column in select)
    )
    return file


def digest_of(export: Path) -> tuple[str, int]:
    rows: list[list[str]] = []
    for line in export.read_bytes().split(b"\n"):
        if line:
            values: dict[str, Any] = json.loads(line)
            rows.append(["@NULL@" if v is None else str(v) for v in values.values()])
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda r: int(r[0])):
        digest.update(("\x1f".join(row) + "\x1e").encode())
    return digest.hexdigest(), len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("join", ["left", "inner"])
def test_the_result_is_the_join_of_the_database(tmp_path: Path, spark: SparkSession, join: str) -> None:
    expected = json.loads((DATA / "expected.json").read_text())["batches"]
    pipeline = Pipeline(load_spec(pipeline_file(tmp_path, join)), spark)
    pipeline.run("0..4" if join == "left" else "4,0..3")
    pipeline.export(tmp_path / "out.jsonl")
    assert digest_of(tmp_path / "out.jsonl") == (expected[-1][f"{join}_digest"], expected[-1][join])
    if join == "inner":
        assert pipeline.verify().ok
