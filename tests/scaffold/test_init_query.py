"""`fk-pipeline init --query`: a pipeline for each table that lands and one for the query, or an error and no file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.scaffold import write
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.places import landing_path
from fk_pipeline.spec.project import pipeline_files, project_of

QUERY = """
-- by country
SELECT n.country, COUNT(*) AS orders, SUM(o.amount) AS total
FROM Orders o
JOIN customers c ON c.customer_id = o.customer_id
LEFT JOIN nations n ON n.nation_id = c.nation_id
GROUP BY n.country;
"""


class Shop:
    """A folder with a query and what its tables are made of."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sql, self.made = folder, folder / "in.sql", folder / "revenue"
        self.sql.write_text(QUERY)
        self.given = {"orders": folder / "orders", "customers": folder / "c.csv", "nations": folder / "nations"}
        (folder / "orders").mkdir()
        self.orders(1, (1, 1, "12.50"), (2, 2, "3.00"), (3, 1, "7.25"))
        (folder / "c.csv").write_text("customer_id,nation_id\n1,gb\n2,fr\n")
        nations = pa.table({"nation_id": ["gb", "fr"], "country": ["Great Britain", "France"]})
        write_deltalake(folder / "nations", nations, configuration={"delta.enableChangeDataFeed": "true"})

    def orders(self, batch: int, *rows: tuple[int, int, str], folder: Path | None = None) -> None:
        lines = [f'{{"order_id": {a}, "customer_id": {b}, "amount": {c}}}\n' for a, b, c in rows]
        ((folder or self.folder / "orders") / f"{batch:08}.jsonl").write_text("".join(lines))

    def init(self, *more: str, **given: Any) -> Any:
        """The command, with what is given for tables in place of the usual."""
        inputs = {name: path for name, path in {**self.given, **given}.items() if path is not None}
        named = [part for name, path in inputs.items() for part in ("--from-sample", f"{name}={path}")]
        return CliRunner().invoke(app, ["init", str(self.made), "--query", str(self.sql), *named, *more])

    def refused(self, *more: str, **given: Any) -> str:
        """The message of a command that writes nothing."""
        before = sorted(self.folder.rglob("*"))
        ended = self.init(*more, **given)
        assert isinstance(ended.exception, (UsageError, PipelineFileError)), ended.output
        assert sorted(self.folder.rglob("*")) == before
        return str(ended.exception)

    def spec(self, name: str) -> PipelineSpec:
        return load_spec(self.made / f"{name}.yaml")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_pipeline_for_each_table_that_lands_and_one_for_the_query(shop: Shop) -> None:
    told = shop.init()
    assert told.exit_code == 0, told.output
    orders, query = shop.spec("orders"), shop.spec("revenue")
    assert (orders.kind, orders.side("input").key, orders.side("input").format) == ("table", ("order_id",), "rows")
    assert [column.type for column in orders.side("input").columns] == ["BIGINT", "BIGINT", "DECIMAL(18, 2)"]
    assert isinstance(query, QuerySpec)
    assert query.query.strip() == QUERY.strip()
    assert {name: side.pipeline for name, side in query.inputs.items()} == {
        "orders": "orders.yaml",
        "customers": "customers.yaml",
        "nations": None,
    }
    assert landing_path(query, "nations") == str(shop.given["nations"])
    assert query.inputs["nations"].key == ("nation_id",)
    assert project_of(pipeline_files([shop.made])).names.keys() == {
        shop.made / f"{name}.yaml" for name in ("orders", "customers", "revenue")
    }
    for line in (
        str(shop.made / "orders.yaml"),
        "nations: a Delta table, key nation_id (guessed)",
        "customers.key: customer_id; its name; no value comes twice in 2 rows",
        f"cp {shop.folder}/orders/* {shop.made}/landing/orders/",
        f"cp {shop.folder}/c.csv {shop.made}/landing/customers/00000001.csv",
        f"fk-pipeline run {shop.made}",
    ):
        assert line in told.stdout
    assert "nations/*" not in told.stdout, "a Delta table is read where it lies"


def test_only_delta_tables_need_no_pipeline_of_their_own(shop: Shop) -> None:
    shop.sql.write_text("SELECT country FROM nations")
    told = shop.init("--format", "json", orders=None, customers=None)
    assert [Path(one).name for one in json.loads(told.stdout)["files"]] == [
        "revenue.yaml", "revenue.tests.yaml", "dagster.yaml", "README.md",
    ]  # fmt: skip
    assert shop.spec("revenue").file.exists()


def test_a_cte_is_no_table_and_hides_none(shop: Shop) -> None:
    shop.sql.write_text("WITH nations AS (SELECT * FROM nations), x AS (SELECT country FROM nations) SELECT * FROM x")
    assert shop.init(orders=None, customers=None).exit_code == 0


def test_a_key_that_is_given_counts(shop: Shop) -> None:
    assert shop.init("--key", "nations=Country,NATION_ID", "--key", "customers=nation_id").exit_code == 0
    query, text = shop.spec("revenue"), (shop.made / "customers.yaml").read_text()
    assert query.side("nations").key == ("country", "nation_id")
    assert shop.spec("customers").side("input").key == ("nation_id",)
    assert "# given to init" in text
    assert "guessed: its name" not in text


def test_a_table_may_be_a_clock(shop: Shop) -> None:
    shop.sql.write_text("SELECT o.order_id FROM orders o, now WHERE o.customer_id > DAY(now.day)")
    told = shop.init("--clock", "now=12 hours", customers=None, nations=None)
    assert told.exit_code == 0, told.output
    assert "now: a clock with steps of 12 hours" in told.output
    query = shop.spec("revenue")
    assert query.clocks["now"].of_wall.place == "clock://43200/UTC"
    assert not (shop.made / "now.yaml").exists()


def test_in_place_the_folders_of_the_samples_are_read(shop: Shop) -> None:
    assert shop.init("--in-place").exit_code == 0
    assert not (shop.made / "landing").exists()
    assert landing_path(shop.spec("orders"), "input") == str(shop.folder / "orders")


def test_a_file_with_lines_of_several_tables_is_taken_for_each(shop: Shop) -> None:
    rows = [
        ("orders", {"order_id": 1, "customer_id": 1, "amount": 2}),
        ("customers", {"customer_id": 1, "nation_id": "fr"}),
    ]
    lines = [{"before": None, "after": row, "source": {"table": table}, "op": "r"} for table, row in rows]
    both = shop.folder / "both.jsonl"
    both.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert shop.init(orders=both, customers=both).exit_code == 0
    specs = [shop.spec(name) for name in ("orders", "customers")]
    assert [one.side("input").table for one in specs] == ["orders", "customers"]
    assert {landing_path(one, "input") for one in specs} == {str(shop.made / "landing/both")}
    assert "lines of several tables: orders, customers" in Shop.refused(_again(shop), nations=both)


def _again(shop: Shop) -> Shop:
    shop.made = shop.folder / "again"
    return shop


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("JOIN customers", "NATURAL JOIN customers", "in.sql:5: NATURAL JOIN"),
        ("COUNT(*)", "\nrand()", "in.sql:4: rand() is not deterministic"),
        ("n.country,", "n.county,", "in.sql:3: county is no column; n has nation_id, country"),
        ("FROM Orders o", "FROM shop.orders o", "in.sql:4: the name of an input has no dot; write orders"),
        ("FROM Orders o", "FROM `my orders` o", "in.sql:4: the name of an input starts with a letter"),
        ("SELECT", "SELECT SELECT", "in.sql:1: not SQL"),
    ],
)
def test_a_query_that_cannot_be_kept_up_to_date_is_told_with_its_line(
    shop: Shop, old: str, new: str, said: str
) -> None:
    shop.sql.write_text(QUERY.replace(old, new))
    assert said in shop.refused()


def test_every_table_without_anything_given_is_told(shop: Shop) -> None:
    told = shop.refused(customers=None, nations=None)
    assert "in.sql:5: nothing was given for customers (line 5), nations (line 6)" in told
    assert "Fix: --from-sample customers=PATH --from-sample nations=PATH" in told


@pytest.mark.parametrize(
    ("more", "given", "said"),
    [
        (["--from-sample", "parts=parts"], {}, "the query does not read 'parts'; it reads orders, customers, nations"),
        (["--key", "parts=id"], {}, "--key parts=id: the query does not read 'parts'"),
        (["--key", "nations=id"], {}, "nations has no column 'id'; it has nation_id, country"),
        (["--clock", "now=1 day"], {}, "--clock now=1 day: the query does not read 'now'"),
        (["--clock", "nations=1 day"], {}, "nations is a clock, and has a sample or a key"),
        (["--clock", "nations=7 hours"], {"nations": None}, "--clock nations=7 hours: '7 hours' is no step of a clock"),
        (["--from-sample", "orders=x"], {}, "--from-sample names 'orders' twice"),
        (["--from-sample", "orders"], {}, "--from-sample 'orders' names no table"),
        ([], {"nations": "nowhere"}, "--from-sample nations=nowhere: there is no sample nowhere"),
        ([], {"nations": "{folder}/empty"}, "a Delta table is a folder with _delta_log in it"),
        ([], {"nations": "{folder}/damaged"}, "damaged cannot be read"),
        ([], {"nations": "{folder}/result"}, "is a table of a pipeline, whose rows have columns of its own"),
        ([], {"nations": "{folder}/keyless"}, "the key of nations is not known: nothing in the sample tells"),
        ([], {"customers": "{folder}/keyless.csv"}, "Fix: say which columns identify a row: --key customers=COLUMN"),
        (["--in-place"], {"customers": "{folder}/orders/2.csv"}, "orders and customers would both read ../orders"),
    ],
)
def test_what_was_given_wrong_is_told(shop: Shop, more: list[str], given: dict[str, str | None], said: str) -> None:
    (shop.folder / "empty").mkdir()
    (shop.folder / "damaged" / "_delta_log").mkdir(parents=True)
    (shop.folder / "damaged" / "_delta_log" / f"{0:020}.json").write_text("no log\n")
    (shop.folder / "keyless.csv").write_text("amount,word\n1.5,a\n1.5,a\n")
    (shop.folder / "orders" / "2.csv").write_text("customer_id,nation_id\n1,gb\n")
    write_deltalake(shop.folder / "keyless", pa.table({"amount": [1.5, 1.5]}))
    write_deltalake(shop.folder / "result", pa.table({"nation_id": ["gb"], "_fk_batch": [1]}))
    paths = {name: path and path.format(folder=shop.folder) for name, path in given.items()}
    assert said in shop.refused(*more, **paths)


def test_a_query_that_is_no_file_is_told(shop: Shop) -> None:
    shop.sql.unlink()
    assert "in.sql: the query cannot be read" in shop.refused()


def test_a_folder_called_as_a_table_is_refused(shop: Shop) -> None:
    shop.made = shop.folder / "orders"
    assert "the folder is called as a table of the query, 'orders'" in shop.refused()


@pytest.mark.parametrize("name", ["orders.yaml", "revenue.yaml", "README.md"])
def test_no_file_is_overwritten(shop: Shop, name: str) -> None:
    shop.made.mkdir()
    (shop.made / name).write_text("mine")
    assert f"{name} is there already" in shop.refused()
    assert (shop.made / name).read_text() == "mine"


def test_of_files_that_cannot_all_be_written_none_stays(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").mkdir()
    with pytest.raises(UsageError, match="no file was written"):
        write.write_folder(tmp_path, [], {"a.yaml": "a", "b.yaml": "b"})
    assert [one.name for one in tmp_path.iterdir()] == ["b.yaml"]


def test_a_clock_is_of_a_query(shop: Shop) -> None:
    ended = CliRunner().invoke(app, ["init", str(shop.made), "--clock", "now=1 day"])
    assert "--clock goes with --query" in str(ended.exception)
    assert not shop.made.exists()


def test_a_query_may_be_given_as_its_text(shop: Shop) -> None:
    query = "SELECT nation_id, COUNT(*) AS n FROM customers GROUP BY nation_id"
    options = ["--query", query, "--from-sample", f"customers={shop.given['customers']}"]
    ended = CliRunner().invoke(app, ["init", str(shop.made), *options])
    assert ended.exit_code == 0, ended.output
    spec = shop.spec("revenue")
    assert isinstance(spec, QuerySpec)
    assert spec.query.strip() == query
    other = str(shop.folder / "other")
    wrong = CliRunner().invoke(app, ["init", other, "--query", "SELECT x FROM nowhere"])
    assert "--query, line 1: nothing was given for nowhere" in str(wrong.exception)
    missing = CliRunner().invoke(app, ["init", other, "--query", str(shop.folder / "on.sql")])
    assert f"did you mean '{shop.sql}'?" in str(missing.exception)


@pytest.mark.slow  # they are loaded in the tests before; tables and a query that run: kinds/query
@pytest.mark.spark
def test_the_pipelines_run_and_are_right(shop: Shop, spark: SparkSession) -> None:
    assert shop.init().exit_code == 0
    for name, file in (("orders", "orders/00000001.jsonl"), ("customers", "c.csv")):
        landed = shop.made / "landing" / name / f"00000001{Path(file).suffix}"
        landed.write_bytes((shop.folder / file).read_bytes())
    pipelines = [Pipeline(load_spec(file), spark) for file in project_of([*shop.made.glob("[!d]*.yaml")]).files]

    def rows() -> set[tuple[Any, ...]]:
        for one in pipelines:
            one.run()
        assert all(one.verify().ok for one in pipelines)
        result = pipelines[-1].table("result").select("country", "orders", "total")
        return {(country, count, str(total)) for country, count, total in result.collect()}

    assert rows() == {("Great Britain", 2, "19.75"), ("France", 1, "3.00")}
    shop.orders(2, (3, 2, "7.25"), folder=shop.made / "landing" / "orders")
    assert rows() == {("Great Britain", 1, "12.50"), ("France", 2, "10.25")}
