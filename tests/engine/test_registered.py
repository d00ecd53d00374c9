"""`register`: the result has a name in Spark's catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli import main
from fk_pipeline.errors import PipelineFileError, StateError
from fk_pipeline.spec import load_spec

TABLE = """\
name: flat
kind: table
register: fk_named.Flat
input: {path: landing, format: rows, schema: "id INT, a STRING", key: id}
"""


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(main.app, [str(a) for a in args])


@pytest.mark.parametrize("name", ["flat", "a.b.c.d", "a b.c", "a.`b`", "a.ä", "1.b", '""'])
def test_what_is_no_name_of_a_catalog_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "flat.yaml").write_text(TABLE.replace("fk_named.Flat", name))
    with pytest.raises(PipelineFileError, match=r"flat.yaml:3: register: .* is no name of Spark's catalog"):
        load_spec(tmp_path / "flat.yaml")


@pytest.mark.spark
def test_a_run_registers_the_result_and_refuses_a_name_of_something_else(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "it's here"
    (folder / "landing").mkdir(parents=True)
    (folder / "landing" / "1.jsonl").write_text('{"id": 1, "a": "x"}\n')
    file = folder / "flat.yaml"
    file.write_text(TABLE)
    assert "registers the result in Spark's catalog as fk_named.Flat" in invoke("plan", file).stdout
    assert "fk_named.Flat" in invoke("doctor", file).stdout
    refused = invoke("run", file)
    assert isinstance(refused.exception, StateError), refused.output
    assert refused.exception.fix == "in Spark: CREATE SCHEMA fk_named"
    assert not (folder / "warehouse/flat/table").exists(), "nothing was written before"

    def rows() -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql("SELECT id, a FROM fk_named.flat ORDER BY id").collect()]

    spark.sql(f"CREATE SCHEMA fk_named LOCATION '{tmp_path}/schema'")
    try:
        assert invoke("run", file).exit_code == 0
        assert rows() == [(1, "x")]
        spark.sql("DROP TABLE fk_named.flat")
        assert invoke("run", file).exit_code == 0
        assert rows() == [(1, "x")], "also if nothing was due"

        spark.sql("DROP TABLE fk_named.flat")
        spark.sql("CREATE TABLE fk_named.flat (b INT) USING DELTA")
        (folder / "landing" / "2.jsonl").write_text('{"id": 2, "a": "y"}\n')
        refused = invoke("run", file)
        assert isinstance(refused.exception, StateError), refused.output
        assert f"has a table of this name at {tmp_path}/schema/flat" in refused.exception.what
        assert refused.exception.where == str(file)
        spark.sql("DROP TABLE fk_named.flat")
        spark.sql("CREATE VIEW fk_named.flat AS SELECT 1 AS b")
        refused = invoke("run", file)
        assert isinstance(refused.exception, StateError), refused.output
        spark.sql("DROP VIEW fk_named.flat")
        assert invoke("run", file).exit_code == 0
        assert rows() == [(1, "x"), (2, "y")]
    finally:
        spark.sql("DROP SCHEMA fk_named CASCADE")
