"""`fk.query`: a query that nobody has written a pipeline file for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import fk_pipeline as fk
from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError, StateError, UsageError
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.places import landing_path

SQL = "SELECT n.country, COUNT(*) AS orders FROM orders o JOIN nations n ON n.id = o.nation GROUP BY n.country"
ORDERS = {"path": "orders", "format": "rows", "schema": "id INT, nation STRING", "key": "id", "op_column": "op"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders").mkdir()
    nations(gb="Great Britain", fr="France")
    return tmp_path


def nations(**names: str) -> None:
    rows = pa.table({"id": [*names], "country": [*names.values()]})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake("nations", rows, mode="overwrite" if Path("nations").exists() else "error", configuration=feed)


def land(batch: int, *rows: dict[str, Any]) -> None:
    Path("orders", f"{batch}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def given(sql: str = SQL, **more: Any) -> fk.Pipeline:
    """A query over both tables, as its pipeline."""
    inputs = {"orders": ORDERS, "nations": {"table": "nations", "key": ["id"]}}
    pipeline: fk.Pipeline = fk.query(sql, inputs, "lake", **more).pipeline
    return pipeline


def test_what_is_said_becomes_a_pipeline_file_in_the_warehouse(folder: Path) -> None:
    query = fk.query(SQL, {"orders": ORDERS, "nations": {"table": Path("nations"), "key": "id"}}, "lake", key="country")
    assert query.file == folder / "lake/query.yaml"
    spec = load_spec(query.file)
    assert (spec.home, spec.name, spec.kind) == (str(folder / "lake/query"), "query", "query")
    assert landing_path(spec, "nations") == str(folder / "nations")
    assert landing_path(load_spec(Path(f"{query.file}#orders")), "input") == str(folder / "orders")
    assert repr(query) == f"query query (country, orders) of {query.file}"
    assert [one.name for one in (folder / "lake").iterdir()] == ["query.yaml"]


def test_the_same_text_leaves_the_file_as_it_is(folder: Path) -> None:
    before = given().spec.file.stat()
    assert given().spec.file.stat().st_mtime_ns == before.st_mtime_ns
    assert given(SQL + " HAVING COUNT(*) > 1").spec.texts != given().spec.texts


def test_the_query_is_read_as_it_was_written(folder: Path) -> None:
    sql = "\n\n    SELECT 'a\n  #b: ''c' AS x, \"{\" AS y,\n\n  n.country -- c\n FROM nations n WHERE n.id <> '|'\n  "
    query = fk.query(sql, {"nations": {"table": "nations", "key": "id"}}, "lake")
    assert query.pipeline.spec.query.strip() == sql.strip()


def test_pipelines_and_their_files_are_inputs_too(folder: Path) -> None:
    table = {"name": "orders", "kind": "table", "input": {**ORDERS, "schema": "id INT, nation STRING"}}
    Path("orders.yaml").write_text(json.dumps(table))
    for orders in ("orders.yaml", Path("orders.yaml"), {"pipeline": "orders.yaml"}, fk.load("orders.yaml")):
        query = fk.query(SQL, {"orders": orders, "nations": {"table": "nations", "key": "id"}}, "lake")
        assert query.pipeline.spec.side("orders").pipeline == str(folder / "orders.yaml")
    inline = fk.load(str(given().spec.file) + "#orders")
    query = fk.query("SELECT o.id FROM o", {"o": inline}, "lake", name="second")
    assert query.pipeline.spec.side("o").pipeline == str(folder / "lake/query.yaml#orders")
    tables = {"orders": inline, "nations": {"table": "nations", "key": "id"}}
    first = fk.query(SQL, tables, "lake", key="country", name="first")
    query = fk.query("SELECT q.orders FROM q", {"q": first}, "lake", name="second")
    assert query.pipeline.spec.side("q").key == ("country",)


def test_further_keys_of_the_file_are_options(folder: Path) -> None:
    spec = given(options={"refresh": "full", "settings": {"sensor_seconds": 5}}).spec
    assert (spec.refresh, spec.settings.sensor_seconds) == ("full", 5)
    with pytest.raises(UsageError, match="options has 'key', which is a parameter"):
        given(options={"key": "country"})


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"nations": "nations"}, 'neither a pipeline nor a table with a key.*nations={"table": PATH'),
        ({"nations": 7}, "a value of type int is neither"),
        ({"nations": {"table": "none", "key": "id"}}, "fk.query 'query': there is no Delta table .*/none"),
        ({"nations": {"table": "nations"}}, "fk.query 'query': 'inputs.nations.key' is missing"),
        ({"nations": {"table": "nations", "key": "no"}}, "key column 'no' is not in the schema; it has id, country"),
        ({"Nations": {"table": "nations", "key": "id"}}, "'Nations' must start with a letter a-z"),
    ],
)
def test_an_input_that_is_none_is_told(folder: Path, inputs: dict[str, Any], said: str) -> None:
    with pytest.raises((UsageError, PipelineFileError)) as error:
        fk.query("SELECT country FROM nations", inputs, "lake")
    assert re.search(said, str(error.value).replace("\n", " "))
    assert not list((folder / "lake").glob("*"))


def test_a_query_that_cannot_be_kept_up_to_date_leaves_the_one_that_was_there(folder: Path) -> None:
    before = given().spec.file.read_text()
    with pytest.raises(PipelineFileError, match=r"fk\.query 'query': query: line 2: NATURAL JOIN"):
        given(SQL.replace("JOIN", "\nNATURAL JOIN"))
    assert Path("lake/query.yaml").read_text() == before
    assert sorted(one.name for one in Path("lake").iterdir()) == ["query.yaml"]


def test_a_name_that_is_none_and_a_warehouse_elsewhere_are_refused(folder: Path) -> None:
    with pytest.raises(PipelineFileError, match="must start with a letter a-z"):
        given(name="../other")
    with pytest.raises(UsageError, match="s3://lake is no local folder"):
        fk.query(SQL, {}, "s3://lake")


def test_a_file_of_the_users_own_is_not_overwritten(folder: Path) -> None:
    Path("lake").mkdir()
    Path("lake/query.yaml").write_text("mine")
    with pytest.raises(UsageError, match=r"was not written by fk\.query"):
        given()
    assert Path("lake/query.yaml").read_text() == "mine"
    assert given(name="other").spec.file.name == "other.yaml"


@pytest.mark.spark
def test_a_notebook_goes_on_where_it_ended(folder: Path, spark: SparkSession) -> None:
    inputs = {"orders": ORDERS, "nations": {"table": "nations", "key": ["id"]}}

    def cell(sql: str = SQL) -> Any:
        return fk.query(sql, inputs, "lake", session=spark)

    def rows(frame: Any) -> set[tuple[Any, ...]]:
        return {tuple(row) for row in frame.collect()}

    query = cell()
    with pytest.raises(StateError, match="nothing was ever run"):
        query.changes()
    land(1, {"op": "i", "id": 1, "nation": "gb"}, {"op": "i", "id": 2, "nation": "fr"})
    assert [one.stage for one in query.run()] == ["result"]
    assert query.table().columns == ["country", "orders"]
    assert rows(query.table()) == {("Great Britain", 1), ("France", 1)}
    assert rows(query.changes()) == {("insert", "Great Britain", 1), ("insert", "France", 1)}

    land(2, {"op": "d", "id": 2}, {"op": "i", "id": 3, "nation": "gb"})
    fk.Pipeline(load_spec(Path(f"{query.file}#orders")), spark).run()
    query.pipeline.discover()  # a look whose batch no run has taken yet
    nations(gb="Britain", fr="France")
    query = cell()
    query.run()
    changed = {("delete", "Great Britain", 1), ("delete", "France", 1), ("insert", "Britain", 2)}
    assert rows(query.changes()) == changed, "one run took both batches"
    assert query.run() == []
    assert rows(cell().changes()) == changed, "a run with nothing to do is no last run"
    assert query.verify().ok
    (row,) = query.explain("country=Britain").as_json()["rows"]
    assert row["row"] == {"country": "Britain", "orders": 2}

    told = CliRunner().invoke(app, ["status", str(query.file), "--format", "json"])
    assert told.exit_code == 0, told.output

    edited = cell(SQL.replace("COUNT(*) AS orders", "COUNT(*) AS orders, MAX(o.id) AS last"))
    with pytest.raises(StateError, match="rebuild"):
        edited.run()
    edited.pipeline.rebuild()
    assert rows(edited.table()) == {("Britain", 2, 3)}
    assert rows(edited.changes()) == set(), "the rows of a rebuild are no changes"
    land(3, {"op": "i", "id": 4, "nation": "fr"})
    edited.run()
    assert rows(edited.changes()) == {("insert", "France", 1, 4)}
