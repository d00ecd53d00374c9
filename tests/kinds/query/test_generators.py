"""Queries that make several rows of one, over arrays that change: they have the rows that Spark's own run has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}
TABLES = ("orders", "customers")

QUERIES = {
    "rows": (
        "SELECT o.id, c.name, p, item FROM orders o LEFT JOIN customers c ON c.id = o.customer "
        "LATERAL VIEW OUTER posexplode(o.items) t AS p, item"
    ),
    "same": "SELECT customer, explode(items) AS item FROM orders WHERE id < 9",
    "sums": "SELECT item, COUNT(*) AS n, SUM(id) AS s FROM orders LATERAL VIEW explode(items) AS item GROUP BY item",
    "ranks": (
        "SELECT o.id, item, ROW_NUMBER() OVER (PARTITION BY item ORDER BY o.id, p) AS r FROM orders o "
        "LATERAL VIEW posexplode(items) t AS p, item"
    ),
    "joined": (
        "SELECT x.id, x.item, c.name FROM (SELECT id, explode(items) AS item FROM orders) x "
        "JOIN customers c ON c.id = x.item UNION ALL "
        "SELECT id, item, 'own' FROM orders LATERAL VIEW explode(items) t AS item "
        "WHERE NOT EXISTS (SELECT 1 FROM customers c WHERE c.id = item)"
    ),
    "two": (
        "SELECT o.id, n, item FROM orders o JOIN customers c ON c.id = o.customer "
        "LATERAL VIEW explode(concat(o.items, array(c.bonus))) t AS item LATERAL VIEW explode(array(item, 0)) u AS n"
    ),
    "windows": (
        "SELECT window.start, window.end, COUNT(*) AS n, SUM(customer) AS s FROM orders "
        "GROUP BY window(timestamp_seconds(id * 1700), '1 hour', '30 minutes')"
    ),
}
"""Per pipeline its query."""

STEPS = (
    (  # longer, shorter, null to one, an element twice, of another order
        "UPDATE {orders} SET items = array(5, 7, 7, 8) WHERE id = 1",
        "UPDATE {orders} SET items = array(9) WHERE id = 2",
        "UPDATE {orders} SET items = array(1) WHERE id = 3",
        "UPDATE {orders} SET items = array(2, 1) WHERE id = 5",
        "UPDATE {customers} SET bonus = 70, name = 'Eve' WHERE id = 1",
    ),
    (  # empty, null, gone, new; a null among the elements
        "UPDATE {orders} SET items = array() WHERE id = 1",
        "UPDATE {orders} SET items = NULL WHERE id = 5",
        "DELETE FROM {orders} WHERE id = 2",
        "INSERT INTO {orders} VALUES (6, 2, array(7, NULL, 1))",
        "DELETE FROM {customers} WHERE id = 1",
        "INSERT INTO {customers} VALUES (7, 'Gil', 3)",
    ),
)


class Shop:
    """Two Delta tables of somebody else, one with arrays, and the queries over them."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder, self.session = folder, session
        numbers = pa.list_(pa.int64())
        rows = [(1, 1, [5, 7]), (2, 1, [7, 7, 8]), (3, 2, None), (4, 2, []), (5, 3, [1, 2])]
        ids, customers, items = zip(*rows, strict=True)
        orders = pa.table({"id": pa.array(ids, pa.int64()), "customer": pa.array(customers, pa.int64())})
        write_deltalake(
            self.path("orders"), orders.append_column("items", pa.array(items, numbers)), configuration=FEED
        )
        named = pa.table(
            {"id": pa.array([1, 2], pa.int64()), "name": ["Ada", "Bob"], "bonus": pa.array([7, None], pa.int64())}
        )
        write_deltalake(self.path("customers"), named, configuration=FEED)
        for name, text in QUERIES.items():
            inputs = "".join(f"  {one}: {{table: {one}, key: id}}\n" for one in TABLES if one in text)
            self.file(name).write_text(f"name: {name}\nkind: query\ninputs:\n{inputs}query: |\n  {text}\n")

    def path(self, table: str) -> str:
        return str(self.folder / table)

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"

    def sql(self, text: str) -> None:
        """Changes the tables."""
        self.session.sql(text.format(**{one: f"delta.`{self.path(one)}`" for one in TABLES}))

    def run(self, name: str) -> str:
        """Runs a query, and asserts that its rows are those of Spark's own run; returns the notes of the run."""
        pipeline = Pipeline(load_spec(self.file(name)), self.session)
        notes = " ".join(note for one in pipeline.run() for note in one.notes)
        for table in TABLES:
            frame = self.session.read.format("delta").load(self.path(table))
            frame.createOrReplaceTempView(table)
        expected = self.session.sql(QUERIES[name])
        found = pipeline.table("result").select(*[f"`{one}`" for one in pipeline.spec.blocks.columns])
        rows = [Counter(map(repr, map(tuple, frame.collect()))) for frame in (found, expected)]
        assert rows[0] == rows[1], name
        for table in TABLES:
            self.session.catalog.dropTempView(table)
        return notes

    def said(self, name: str, *args: str) -> str:
        """Returns what a command says of a query."""
        ended = CliRunner().invoke(app, [args[0], str(self.file(name)), *args[1:]])
        assert ended.exit_code == 0, ended.output + repr(ended.exception)
        return ended.stdout


QUICK = ("rows", "sums")
"""A query of joined rows and one of groups; the forms of the others are computed in `test_as_spark`, too."""


def follow(shop: Shop, names: Sequence[str]) -> None:
    """Runs some queries after every step, and asserts that they compute what changed, and have the rows of Spark."""
    for name in names:
        assert "for the first time" in shop.run(name)
    for step in STEPS:
        for text in step:
            shop.sql(text)
        for name in names:
            notes = shop.run(name)
            assert ("what changed" in notes, "whole" in notes) == (True, False), notes
    for name in names:
        pipeline = Pipeline(load_spec(shop.file(name)), shop.session)
        report = pipeline.verify()
        assert (report.ok, report.rows) == (True, pipeline.table("result").count()), (name, report)


@pytest.mark.slow
def test_so_do_those_of_other_queries(tmp_path: Path, spark: SparkSession) -> None:
    follow(Shop(tmp_path, spark), [name for name in QUERIES if name not in QUICK])


def test_made_rows_follow_the_arrays_that_they_are_made_of(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, spark)
    follow(shop, QUICK)

    planned = shop.said("rows", "plan")
    assert "t: rows that posexplode_outer(o.items) makes of each joined row" in planned
    made = shop.said("rows", "explain", "--key", "id=6,p=2")
    assert "made of 1 joined row" in made
    assert "The result has it, as it should." in made
    gone = shop.said("rows", "explain", "--key", "id=6,item=99")
    assert "rows that posexplode_outer(`o`.`items`) makes as t, with `o`.`id` = " in gone
    assert "and `t`.`item` = TRY_CAST('99' AS bigint): 0 rows left." in gone
    assert "The result has no such row, as it should." in gone
    summed = shop.said("sums", "explain", "--key", "item=1")
    assert "made of 2 joined rows" in summed
