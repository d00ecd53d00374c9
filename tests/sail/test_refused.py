"""What Sail is not trusted with is refused before anything is read. Needs no session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fk_pipeline.cdc.csv import csv_rows
from fk_pipeline.environment import sail
from fk_pipeline.errors import LandingError, PipelineFileError, StateError
from fk_pipeline.spec import load_spec
from fk_pipeline.stages.runner import Runner
from fk_pipeline.tables.logs import DeltaLogs

SESSION: Any = SimpleNamespace(session_id="of Sail")
DECIMAL = "id INT, fk STRING, v DECIMAL(9, 2)"
NESTED = "id INT, fk STRING, v ARRAY<DECIMAL(9, 2)>"
PARTS = {
    "warehouse": "warehouse",
    "left": "landing/left",
    "format": "rows",
    "columns": "id INT, fk STRING, v DOUBLE",
    "select": "[id, v, name]",
}


def pipeline(folder: Path, **changes: str) -> Any:
    parts = PARTS | changes
    file = folder / "pipeline.yaml"
    file.write_text(
        f"name: tested\njoin: left\nwarehouse: {parts['warehouse']}\n"
        f"left: {{path: '{parts['left']}', format: {parts['format']}, schema: '{parts['columns']}', key: id,\n"
        "  foreign_key: fk}\n"
        "right: {path: landing/right, format: rows, schema: 'k STRING, name STRING', key: k}\n"
        f"select: {parts['select']}\n"
    )
    return load_spec(file)


@pytest.fixture(autouse=True)
def on_sail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sail, "_sessions", {SESSION.session_id})


def test_a_warehouse_that_spark_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def table(_: DeltaLogs, path: str) -> Any:
        asked.append(path.rsplit("/", 1)[1])
        features = ["deletionVectors", "changeDataFeed"] if path.endswith("resolved_join") else []
        return SimpleNamespace(protocol=lambda: SimpleNamespace(writer_features=features))

    monkeypatch.setattr(DeltaLogs, "table", table)
    with pytest.raises(StateError, match="resolved_join was made by Spark, and Sail cannot write it"):
        Runner(SESSION, pipeline(tmp_path, columns="id INT, fk STRING, v STRING"), None)  # type: ignore[arg-type]
    assert asked == ["right_table", "subscription_store", "resolved_join"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"warehouse": "s3a://bucket/warehouse"}, "Sail was never tried with an object store"),
        ({"left": "s3a://bucket/left"}, "Sail was never tried with an object store"),
        ({"select": "[id, 'v + 1 AS w', name]"}, r"Sail may compute v \+ 1 otherwise than Spark"),
        ({"columns": DECIMAL}, r"Sail cannot make DECIMAL\(9, ?2\) of what lines of format rows may say"),
        ({"format": "debezium", "columns": DECIMAL}, r"DECIMAL\(9, ?2\) of what lines of format debezium may say"),
        ({"format": "debezium", "columns": "id DOUBLE, fk STRING, v INT"}, "Sail does not keep DOUBLE in JSON"),
        ({"format": "debezium", "columns": NESTED}, "Sail does not keep ARRAY<DECIMAL.* in JSON"),
    ],
)
def test_a_pipeline_that_may_give_another_result_is_refused(tmp_path: Path, changes: dict[str, str], what: str) -> None:
    with pytest.raises(PipelineFileError, match=what) as refused:
        Runner(SESSION, pipeline(tmp_path, **changes), None)  # type: ignore[arg-type]
    assert "unset FK_SPARK_REMOTE" in refused.value.fix
    assert refused.value.exit_code == 2


def test_csv_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LandingError, match="CSV is read by Spark alone"):
        csv_rows(SESSION, ["a.csv"], pipeline(tmp_path).left, None, header=True)


def test_on_spark_nothing_of_this_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sail, "_sessions", set())
    monkeypatch.setattr("fk_pipeline.stages.runner.layout_of", lambda *_: None)
    for changes in ({"left": "s3a://bucket/left"}, {"select": "[id, 'v + 1 AS w', name]"}, {"columns": DECIMAL}):
        runner = Runner(SESSION, pipeline(tmp_path, **changes), None)  # type: ignore[arg-type]
        assert type(runner.warehouse).__name__ == "Warehouse"
