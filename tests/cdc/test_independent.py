"""Real captures and mutated lines, value for value beside a reader of its own."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.spec import SideSpec
from tests.cdc.fuzz import NAMES, lines_of
from tests.cdc.independent import row_of, text_of, value_of
from tests.engine.test_postgres import FLIGHTS, PLANES

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parent.parent.parent
CAPTURES = (ROOT / "tests/data/postgres", ROOT / "fk_pipeline/demo/data/landing")
TABLES = {"flights": ("id", FLIGHTS), "planes": ("tailnum", PLANES)}
"""Folders of captures, which have a folder of Debezium's events per table; the key and the columns of each table."""

NOT_SENT = "__debezium_unavailable_value"


def read(
    spark: SparkSession, files: list[str], format_: str, key: str, names: tuple[str, ...], **options: str
) -> list[dict[str, Any]]:
    """What the product makes of files, every column a STRING."""
    schema = ", ".join(f"{name} STRING" for name in names)
    spec = SideSpec.model_validate({"path": "x", "format": format_, "schema": schema, "key": key, **options})
    place = {"batch": F.lit(0), "file": F.col("path"), "file_number": F.lit(0)}
    lines = format_of(spec).read(spark, files, spec).withColumns(place)
    return format_of(spec).parse(lines, spec).selectExpr("kind", "deleted", "value", "row.*").toArrow().to_pylist()


def as_text(value: Any, format_: str) -> str | None:
    """What a STRING keeps of a value."""
    if value is None or (value == NOT_SENT and format_ == "debezium"):
        return None
    return str(value) if isinstance(value, str) else text_of(value)


def alike(found: str | None, wanted: str | None) -> bool:
    """Equal texts, or the same object or array: white space and escapes in it are the parser's."""
    if found == wanted:
        return True
    if found is None or wanted is None or wanted[:1] not in ("[", "{"):
        return False
    return bool(value_of(found) == value_of(wanted))


def differences(events: list[dict[str, Any]], format_: str, key: str, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Column, value of the product, value of the other reader, and the line, wherever the two disagree."""
    found = []
    for event in events:
        row = row_of(format_, event["value"], key, event["deleted"])
        for name in names:
            wanted = as_text(row.get(name), format_)
            if not alike(event[name], wanted):
                found.append((name, event[name], wanted, event["value"]))
    return found


@pytest.mark.parametrize("table", ["planes", pytest.param("flights", marks=pytest.mark.slow)])
def test_captures_are_read_value_by_value(spark: SparkSession, table: str) -> None:
    key, columns = TABLES[table]
    files = {capture: sorted((capture / table).iterdir()) for capture in CAPTURES}
    found = read(spark, [str(file) for some in files.values() for file in some], "debezium", key, columns)
    lines = {
        capture: [line for file in some for line in gzip.decompress(file.read_bytes()).decode().split("\n") if line]
        for capture, some in files.items()
    }
    assert Counter(row["value"] for row in found) == Counter(line for some in lines.values() for line in some)
    events = [row for row in found if row["kind"] == "event"]
    told = {row["value"] for row in events}
    for some in lines.values():
        assert sum(line in told for line in some) > len(some) / 2
    assert not (wrong := differences(events, "debezium", key, columns)), wrong[:3]


@pytest.mark.parametrize(
    "format_", ["debezium", *(pytest.param(one, marks=pytest.mark.slow) for one in ("rows", "maxwell"))]
)
def test_mutated_lines_are_read_value_by_value(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    lines = lines_of(format_, Random(5), 0, 4000)
    (tmp_path / "1.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    options = {"op_column": "op"} if format_ == "rows" else {}
    found = read(spark, [str(tmp_path / "1.jsonl")], format_, "id", tuple(NAMES), **options)
    events = [row for row in found if row["kind"] == "event"]
    assert len(events) > 1000
    assert not (wrong := differences(events, format_, "id", tuple(NAMES))), wrong[:3]
