"""One Spark session for the whole test run, and small pipelines to run in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings, load_spec

LEFT_SCHEMA = "id INT, fk STRING, v STRING, note STRING"
RIGHT_SCHEMA = "k STRING, name STRING, note STRING"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out what is about Spark alone where the tests run on Sail."""
    if os.environ.get("FK_TEST_SPARK") != "sail":
        return
    for item in items:
        found = item.get_closest_marker("no_sail")
        if found is not None:
            item.add_marker(pytest.mark.skip(reason=f"not on Sail: {found.args[0]}"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the test run: two cores, few partitions."""
    engine = os.environ.get("FK_TEST_SPARK", "classic")
    environment = {"FK_SPARK_REMOTE": "sail"} if engine == "sail" else {}
    session = start_session(Settings(shuffle_partitions=2, spark={"spark.master": "local[2]"}), environment)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def rows_pipeline(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Callable[..., RowsPipeline]:
    """Makes a pipeline over plain rows in a folder of its own."""

    def make(join: str = "left", **changes: str) -> RowsPipeline:
        return RowsPipeline(tmp_path_factory.mktemp("pipeline"), spark, join, **changes)

    return make


class RowsPipeline:
    """A pipeline of `format: rows` whose batches a test writes as Python rows.

    A left row is `(id, fk, v)`, a right row `(k, name)`; a row with one component is a delete.
    """

    def __init__(self, folder: Path, spark: SparkSession, join: str, **changes: str) -> None:
        self.folder = folder
        parts = {
            "select": "[id, v, name]",
            "left_key": "id",
            "foreign_key": "fk",
            "left_extra": "",
            "right_extra": "",
            "on_bad_record": "quarantine",
            "settings": "{}",
        } | changes
        file = folder / "pipeline.yaml"
        file.write_text(
            f"name: tested\njoin: {join}\n"
            f'left:\n  path: landing/left\n  format: rows\n  schema: "{LEFT_SCHEMA}"\n  op_column: op\n'
            f"  key: {parts['left_key']}\n  foreign_key: {parts['foreign_key']}\n{parts['left_extra']}"
            f'right:\n  path: landing/right\n  format: rows\n  schema: "{RIGHT_SCHEMA}"\n  key: k\n  op_column: op\n'
            f"{parts['right_extra']}select: {parts['select']}\non_bad_record: {parts['on_bad_record']}\n"
            f"settings: {parts['settings']}\n"
        )
        for side in ("left", "right"):
            (folder / "landing" / side).mkdir(parents=True, exist_ok=True)
        self.file = file
        self.pipeline = Pipeline(load_spec(file), spark)

    def land(self, batch: int, left: Sequence[Any] = (), right: Sequence[Any] = ()) -> None:
        """Writes a batch, or writes it anew."""
        for side, names, rows in (("left", ("id", "fk", "v"), left), ("right", ("k", "name"), right)):
            lines = []
            for row in rows:
                if isinstance(row, str):
                    lines.append(row)
                    continue
                op = "d" if len(row) == 1 else "u"
                lines.append(json.dumps({"op": op} | dict(zip(names, row, strict=False))))
            file = self.folder / "landing" / side / f"{batch:08d}.jsonl"
            if lines or file.exists():
                file.write_text("".join(line + "\n" for line in lines))

    def result(self) -> dict[int, tuple[str | None, str | None]]:
        """id -> (v, name)"""
        rows = self.pipeline.table("resolved_join").collect()
        assert len(rows) == len({row["id"] for row in rows}), "two result rows for one key"
        return {row["id"]: (row["v"], row["name"]) for row in rows}

    def verdicts(self, batch: int) -> dict[tuple[int, str], str]:
        """(id, cause) -> verdict"""
        rows = self.pipeline.table("verdicts").where(f"_fk_batch = {batch}").collect()
        return {(row["_fk_pk_id"], row["_fk_cause"]): row["_fk_verdict"] for row in rows}
