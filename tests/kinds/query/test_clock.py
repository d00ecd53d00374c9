"""A query over a clock: the rows that come and go as time moves, both ways, in every kind of unit."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.blocks.refresh.ranges import passed_range
from fk_pipeline.cli import main
from tests.kinds.query.model import put
from tests.kinds.query.world import World

pytestmark = pytest.mark.spark

ORDERS = """\
name: orders
kind: table
input: {path: landing, format: rows, schema: "id INT, customer STRING, day DATE, amount INT", key: id}
"""
RECENT = """\
name: recent
kind: query
inputs:
  orders: {pipeline: orders.yaml}
  now: {clock: 1 day, zone: Europe/Berlin}
query: |
  SELECT o.customer, COUNT(*) AS orders, SUM(o.amount) AS total
  FROM orders o, now
  WHERE o.day > now.day - INTERVAL 30 DAYS AND o.day <= now.day
  GROUP BY o.customer
key: customer
"""


class Shop:
    """The orders of the last 30 days, by the command."""

    def __init__(self, folder: Path, orders: str = ORDERS, recent: str = RECENT) -> None:
        self.folder, self.file = folder, folder / "recent.yaml"
        (folder / "orders.yaml").write_text(orders)
        self.file.write_text(recent)
        (folder / "landing").mkdir()

    def land(self, batch: int, *orders: tuple[int, str, str, int]) -> None:
        lines = (dict(zip(("id", "customer", "day", "amount"), one, strict=True)) for one in orders)
        (self.folder / f"landing/{batch}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def command(self, *args: Any) -> str:
        ended = CliRunner().invoke(main.app, [str(one) for one in args])
        assert ended.exit_code == 0, (ended.output, ended.exception)
        return ended.stdout

    def run(self, now: str) -> tuple[dict[str, int], str]:
        """Sets the clock; returns the total of each customer, and what the run told of how it came to them."""
        [ran] = json.loads(self.command("run", self.file, "--now", now, "--format", "json"))
        found = json.loads(self.command("show", self.file, "result", "--format", "json"))
        return {row["customer"]: row["total"] for row in found}, ran["notes"][0].split("; ")[0]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.command("status", self.file, "--format", "json"))
        return found


@pytest.mark.usefixtures("spark")
def test_a_clock_is_set_by_the_command_and_proved_rebuilt_explained(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.land(1, (1, "Ada", "2026-04-01", 5), (2, "Ada", "2026-04-20", 7), (3, "Bob", "2026-05-03", 1))
    shop.command("run", tmp_path / "orders.yaml")
    assert shop.run("2026-05-01") == ({"Ada": 7}, "result: whole, for the first time")
    assert shop.run("2026-05-03") == ({"Ada": 7, "Bob": 1}, "result: what changed")
    assert shop.run("2026-04-30T13:00") == ({"Ada": 12}, "result: what changed"), "backwards"
    assert shop.status()["stands_for"] == {"orders": "0", "now": "2026-04-30"}
    assert (shop.status()["due"], shop.status()["new_files"]) == (0, 1), "it is later than that"
    assert "1 new landing file, 0 bytes; the first: now 20" in shop.command("plan", shop.file)
    assert "1 result row: equal to the query" in shop.command("verify", shop.file)

    shop.land(2, (2, "Bob", "2026-04-21", 7), (4, "Ada", "2026-03-31", 9))
    shop.command("run", tmp_path / "orders.yaml")
    assert shop.run("2026-05-01") == ({"Bob": 7}, "result: what changed"), "rows and the clock"
    assert shop.run("2026-05-10") == ({"Bob": 8}, "result: what changed")
    said = shop.command("explain", shop.file, "--key", "Bob")
    assert "now as now" in said
    assert "day=2026-05-10" in said
    assert "clock=" not in said
    touched = json.loads(shop.command("impact", shop.file, "--input", "now", "--key", "2026-05-22", "--format", "json"))
    assert touched["input_rows"] == {"changed": 1}
    assert [(one["effect"], one["row"]["total"]) for one in touched["sample"]] == [("written", 1)]

    shop.file.write_text(RECENT.replace("SUM(o.amount)", "MAX(o.amount)"))
    shop.command("rebuild", shop.file)
    found = json.loads(shop.command("show", shop.file, "result", "--format", "json"))
    assert {row["customer"]: row["total"] for row in found} == {"Bob": 7}
    assert shop.status()["stands_for"]["now"] == "2026-05-10", "a rebuild has the same now"
    assert shop.run("2026-05-22") == ({"Bob": 1}, "result: what changed")
    assert "equal to the query" in shop.command("verify", shop.file)


@pytest.mark.usefixtures("spark")
def test_a_time_that_is_a_field_is_not_looked_for_in_a_column_of_its_name(tmp_path: Path) -> None:
    orders = ORDERS.replace("day DATE", "placed STRUCT<day: DATE>, day DATE")
    shop = Shop(tmp_path, orders, RECENT.replace("o.day", "o.placed.Day"))
    days = {1: "2026-04-01", 2: "2026-04-20", 3: "2026-05-03"}
    lines = [
        {"id": n, "customer": "Ada", "amount": n, "placed": {"day": day}, "day": "2000-01-01"}
        for n, day in days.items()
    ]
    (tmp_path / "landing/1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    shop.command("run", tmp_path / "orders.yaml")
    assert shop.run("2026-05-01") == ({"Ada": 2}, "result: whole, for the first time")
    assert shop.run("2026-05-03") == ({"Ada": 5}, "result: what changed")
    assert shop.run("2026-04-02") == ({"Ada": 1}, "result: what changed")


def day(number: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat()


QUERIES = {
    "rows": "SELECT f.id, d.w FROM fact f JOIN dim d ON d.id = f.dim JOIN now ON f.v >= unix_date(now.day) - 30 "
    "AND d.w < unix_date(now.day)",
    "groups": "SELECT f.kind, MAX(f.v) AS most, COUNT(DISTINCT f.dim) AS dims FROM now, fact f "
    "WHERE f.v BETWEEN unix_date(now.day) - 30 AND unix_date(now.day) GROUP BY f.kind",
    "without": "SELECT f.id, d.w FROM fact f LEFT JOIN dim d ON d.id = f.dim CROSS JOIN now "
    "WHERE COALESCE(d.w, 95) >= unix_date(now.day) - 30",
    "shown": "SELECT f.id, unix_date(now.day) - f.v AS age FROM fact f, now",
    "guarded": "SELECT f.id FROM fact f, now WHERE f.dim <> 0 AND 400 / f.dim > unix_date(now.day)",
    "equal": "SELECT f.id, f.v FROM fact f JOIN now ON unix_date(now.day) = f.v",
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("rows", "without"), id="two ways"),  # groups: the test before; bounds: RANGES
        pytest.param(tuple(QUERIES), id="all", marks=pytest.mark.slow),
    ],
)
def test_rows_come_and_go_as_the_clock_moves_both_ways(
    tmp_path: Path, spark: SparkSession, names: tuple[str, ...]
) -> None:
    world = World(tmp_path, spark)
    for name in names:
        world.query(name, QUERIES[name], inputs={"now": "{clock: 1 day}"})
    world.land("fact", 1, *((number, number % 4, number % 3, 60 + 5 * number) for number in range(1, 20)))
    world.land("dim", 1, (1, 0, 70), (2, 0, 100), (3, 0, 130))

    def check(now: int, *, prove: bool = False) -> dict[str, str]:
        db = world.database()
        put(db, "now", ("day",), [(now,)])
        db.create_function("unix_date", 1, lambda value: value)
        notes = {}
        for name in names:
            [ran] = world.at(name).run(now=day(now))
            notes[name] = ran.notes[0].split("; ")[0].removeprefix("result: ")
            world.check(name, db, prove=prove)
        return notes

    for table in ("fact", "dim"):
        world.at(table).run()
    check(100)
    changed = dict.fromkeys(names, "what changed")
    all_rows = "whole, the row of now changed, which every row of the block reads"
    shown = {"shown": all_rows} if "shown" in names else {}
    assert check(110) == {**changed, **shown}
    world.land("fact", 2, (1, 2, 0, 128), (7,), (30, 9, 1, 96), (31, 3, 1, 90))
    world.land("dim", 2, (1, 0, 125), (2,), (9, 0, 99))
    for table in ("fact", "dim"):
        world.at(table).run()
    without = "whole, the row of now changed, which rows without one of d are compared with"
    assert check(126) == {**changed, **shown, "without": without}
    assert check(90, prove=True) == {**changed, **shown, "without": without}
    assert world.at("rows").run(now=day(90)) == []


def test_a_step_that_shows_nothing_new_writes_no_row(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark)
    text = "SELECT f.id FROM fact f, now WHERE f.v >= unix_date(now.day)"
    world.query("hours", text, inputs={"now": "{clock: 1 hour, zone: Europe/Berlin}"}, more="refresh: incremental\n")
    world.land("fact", 1, (1, 1, 1, 19_000), (2, 1, 1, 30_000))
    world.at("fact").run()
    hours = world.at("hours")
    hours.run(now="2026-05-01T00:30")
    [ran] = hours.run(now="2026-05-01T13:30")
    assert {name: sum(one.get(name, 0) for one in ran.counts.values()) for name in ("added", "written")} == {
        "added": 0,
        "written": 0,
    }
    assert ran.notes[0].endswith("versions of now 2026-05-01T00:00+02:00 to 2026-05-01T13:00+02:00")
    assert [row["id"] for row in hours.table("result").collect()] == [2]
    assert hours.verify().ok


RANGES = {
    "`o`.`d` >= `now`.`day` - INTERVAL '30' DAYS": ["2026-04-01", "2026-04-03"],
    "`now`.`day` - INTERVAL '30' DAYS < `o`.`d`": ["2026-04-01", "2026-04-03"],
    "`o`.`d` BETWEEN `now`.`day` - INTERVAL '1' DAY AND `now`.`day`": ["2026-04-30", "2026-05-01", "2026-05-03"],
    "`o`.`t` > `now`.`at`": ["2026-05-01", "2026-05-02", "2026-05-03"],
    "`o`.`n` <> DAY(`now`.`day`)": ["2026-05-01", "2026-05-03"],
    "DATE_ADD(`o`.`d`, 1) >= `now`.`day`": None,
    "`o`.`d` >= `now`.`day` OR `o`.`n` = DAY(`now`.`day`)": None,
    "`o`.`d` >= CASE WHEN DAY(`now`.`day`) = 1 THEN `now`.`day` END": None,
    "`o`.`s` >= CAST(`now`.`day` AS STRING)": None,
    "`o`.`st`.`d` >= `now`.`day`": None,
}
"""Per condition, days of the rows near the bounds of May 1 and May 3; None if the bounds give no range."""


def test_what_a_bound_has_passed_lies_between_its_old_and_its_new_value(tmp_path: Path, spark: SparkSession) -> None:
    old, new = (
        spark.sql(f"SELECT TIMESTAMP'{one} 00:00:00' AS at, DATE'{one}' AS day") for one in ("2026-05-03", "2026-05-01")
    )
    days = spark.sql("SELECT EXPLODE(SEQUENCE(DATE'2026-03-01', DATE'2026-06-01')) AS d")
    days.selectExpr("d", "CAST(d AS TIMESTAMP) AS t", "DAY(d) AS n", "CAST(d AS STRING) AS s").write.parquet(
        str(tmp_path / "orders")
    )
    orders = spark.read.parquet(str(tmp_path / "orders"))
    for condition, expected in RANGES.items():
        near = passed_range(condition, "o", "now", old, new)
        assert bool(near) is (expected is not None), condition
        if expected is not None:
            found = {str(row["d"]) for row in orders.where(near).collect()}
            assert found.issuperset(expected), condition
            assert len(found) < 12, (condition, found)
            plan = spark.sql("EXPLAIN SELECT * FROM {rows}", rows=orders.where(near)).collect()[0][0]
            assert re.search(r"PushedFilters: \[.*(GreaterThanOrEqual|EqualTo)", plan), plan
