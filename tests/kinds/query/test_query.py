"""Queries that are kept up to date: over results of pipelines and Delta tables, whatever happens to these."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import StageError, StateError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.query.tables import declared_layout, layout_of
from fk_pipeline.rules.suites import PROOF
from fk_pipeline.store import faults
from tests.deaths import Killed, dies_at
from tests.kinds.query.world import TABLES, World

pytestmark = pytest.mark.spark

ROWS = (
    "SELECT f.id, f.v, d.w, r.zone FROM fact f LEFT JOIN dim d ON d.id = f.dim "
    "LEFT JOIN region r ON r.id = d.region AND r.zone <= f.v WHERE f.v > 0"
)
SUMS = "SELECT d.region, COUNT(*) AS n, SUM(f.v) AS s FROM fact f LEFT JOIN dim d ON d.id = f.dim GROUP BY d.region"
TWO = (
    "WITH a AS (SELECT dim, MAX(v) AS m FROM fact GROUP BY dim) SELECT dim, m, w FROM (SELECT a.dim, a.m, d.w, "
    "ROW_NUMBER() OVER (PARTITION BY d.region ORDER BY a.m, a.dim) AS r FROM a JOIN dim d ON d.id = a.dim) AS x "
    "WHERE r <= 2"
)
FORMS = {
    "rows": ROWS,
    "inner": "SELECT r.zone, f.id AS fact, d.id AS dim FROM fact f, dim d, region r WHERE d.id = f.dim AND d.w = r.id",
    "twice": "SELECT d.id, f.id AS fact FROM dim d JOIN fact f ON f.dim = d.id AND f.kind = d.id",
    "itself": "SELECT a.id AS one, b.id AS other FROM fact a JOIN fact b ON a.v = b.dim",
    "groups": "SELECT kind, MIN(v) AS low, COUNT(DISTINCT dim) AS n FROM fact GROUP BY kind HAVING COUNT(*) > 1",
    "sums": SUMS,
    "many": "SELECT kind, COUNT(v) AS c, SUM(v) AS s FROM fact GROUP BY kind HAVING SUM(v) > 3",
    "all": "SELECT COUNT(*) AS n, SUM(v) AS s FROM fact WHERE v > 1",
    "greatest": "SELECT MAX(v) AS m FROM fact",
    "ranked": "SELECT id, dim, r FROM (SELECT id, dim, RANK() OVER (PARTITION BY dim ORDER BY v) AS r FROM fact) AS x",
    "first": "SELECT id, v FROM fact ORDER BY v DESC, id LIMIT 3",
    "largest": "SELECT dim, SUM(v) AS s FROM fact GROUP BY dim ORDER BY SUM(v) DESC, dim LIMIT 2",
    "differing": "SELECT DISTINCT dim, kind FROM fact",
    "two": TWO,
    "three": (
        "WITH a AS (SELECT dim, COUNT(*) AS n FROM fact GROUP BY dim) SELECT x.n, COUNT(*) AS pairs, SUM(d.w) AS w "
        "FROM a x JOIN a y ON x.n = y.n LEFT JOIN dim d ON d.id = y.dim GROUP BY x.n"
    ),
    "absent": (
        "SELECT f.id, r.zone FROM fact f LEFT JOIN dim d ON d.id = f.dim "
        "LEFT JOIN region r ON r.id = COALESCE(d.region, 2)"
    ),
    "emptied": "SELECT kind, CAST(12 / COUNT(*) AS BIGINT) AS m FROM fact GROUP BY kind",
    "unmet": "SELECT MAX(v) AS m FROM fact WHERE v > 6",
}
"""Queries that SQLite reads as Spark does."""


def histories(world: World) -> list[Callable[[], None]]:
    """Returns what happens to the tables, one step after the other; all but the first are followed by runs."""

    def first() -> None:
        world.land("fact", 0, (1, 1, 1, 5), (2, 2, 1, 6), (3, 2, 2, None), (4, 9, 1, 2), (5, None, 2, 2), (6, 3, 3, 0))
        world.land("dim", 0, (1, 1, 1), (2, None, 2), (3, 1, 2))
        world.land("region", 0, (1, 1), (2, 3))

    def later() -> None:  # rows move between groups, appear, and go; a group goes, another comes
        world.land("fact", 2, (1, 2, 1, 7), (2,), (6, 4, None, 3), (7, 1, 1, 4))
        world.land("dim", 2, (4, 2, 1), (1, 2, 1))

    def late() -> None:  # an older batch, one that is written anew, and a change far from the anchor
        world.land("fact", 1, (2, 3, 3, 1), (8, 1, 2, None))
        world.land("region", 1, (1, 9), (2,))
        world.land("fact", 0, (1, 1, 1, 5), (3, 1, 2, 8), (4, None, None, None), (9, 2, 2, 2))

    def withdrawn() -> None:
        world.withdraw("dim", 2)
        world.withdraw("fact", 2)

    return [first, later, late, withdrawn]


def kept_up_to_date(world: World, forms: dict[str, str], skipping: str = "") -> None:
    """Runs queries through a history and asserts after every step that each is right; one skips a step."""
    for name, text in forms.items():
        world.query(name, text)
    steps, rows = histories(world), list[Any]()
    for number, step in enumerate(steps):
        step()
        for table in TABLES:
            world.at(table).run()
        for name in forms:
            if name == skipping and number == 1:
                continue  # its next run brings two steps at once
            notes = told(world.at(name).run())
            assert ("for the first time" in notes) is (number == 0)
            rows += world.check(name, prove=skipping == "" or number == len(steps) - 1)
            assert not world.at(name).run()
    assert len(rows) > 3 * len(forms)


def test_a_query_is_right_after_every_batch(tmp_path: Path, spark: SparkSession) -> None:
    kept_up_to_date(World(tmp_path, spark), {"rows": ROWS, "two": TWO}, skipping="two")


@pytest.mark.slow  # the rule: test_model.py; the statements of blocks: test_written_queries.py
def test_rows_are_found_that_have_no_row_of_a_table_on_the_way_to_a_change(tmp_path: Path, spark: SparkSession) -> None:
    world, forms = World(tmp_path, spark), ("absent", "emptied", "unmet")
    for name in forms:
        world.query(name, FORMS[name])
    world.land("fact", 0, (1, 1, 1, 5), (2, 9, 2, 6))
    world.land("dim", 0, (1, 1, 1))
    world.land("region", 0, (1, 1), (2, 3))
    for name in (*TABLES, *forms):
        world.at(name).run()
    world.land("region", 1, (2, 4))  # which fact 2 has, of which there is no dim
    world.land("fact", 1, (2,), (3, 9, 1, 3))  # its kind has no row any more; no row passes the condition
    for name, changed in (("region", ("absent",)), ("fact", forms)):
        world.at(name).run()
        notes = {one: told(world.at(one).run()) for one in changed}
        assert ("whole, changed rows of region are joined to rows that have none of d" in notes["absent"]) is (
            name == "region"
        )
    assert [world.check(name) for name in forms] == [[(1, 1), (3, 4)], [(1, 6)], [(None,)]]


@pytest.mark.slow  # the rule: test_model.py; a clock that moves: test_clock.py
def test_so_are_those_that_a_moved_value_passes(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark)
    world.query(
        "passed",
        "SELECT f.id, r.zone FROM fact f LEFT JOIN dim d ON d.id = f.dim JOIN region r ON r.id = COALESCE(d.region, 1) "
        "CROSS JOIN (SELECT MAX(w) AS m FROM dim) o WHERE r.zone < o.m",
    )
    world.land("fact", 0, (1, 9, 1, 5))  # of which there is no dim
    world.land("dim", 0, (1, 1, 1))
    world.land("region", 0, (1, 1), (2, 3))
    for name in (*TABLES, "passed"):
        world.at(name).run()
    assert world.check("passed") == []
    world.land("dim", 1, (1, 1, 2))
    world.at("dim").run()
    world.at("passed").run()
    assert world.check("passed") == [(1, 1)]


def test_the_keys_of_all_tables_are_known_without_spark(tmp_path: Path, spark: SparkSession) -> None:
    # The type of m is known to Spark alone. With it, the hash of joined rows could be left out of b.
    text = (
        "WITH a AS (SELECT dim, MAX(v) AS m FROM fact GROUP BY dim), b AS (SELECT f.id, a.m FROM a JOIN fact f "
        "ON f.id = a.m) SELECT x.m, y.id FROM b x JOIN b y ON y.id = x.m"
    )
    world = World(tmp_path, spark)
    for name, query in {**FORMS, "typed": text}.items():
        world.query(name, query)
        spec = world.at(name).spec
        found, declared = (
            [table.keys for table in some.tables] for some in (layout_of(spark, spec), declared_layout(spec))
        )
        assert found == declared, name


@pytest.mark.slow
def test_so_is_one_of_every_form(tmp_path: Path, spark: SparkSession) -> None:
    kept_up_to_date(World(tmp_path, spark), FORMS)


def said(*args: object) -> str:
    """Returns what the command says."""
    ended = CliRunner().invoke(app, [*map(str, args)])
    assert ended.exit_code == 0, ended.output + repr(ended.exception)
    return ended.stdout


def told(runs: list[StageRun]) -> str:
    """Returns the notes of runs."""
    return "; ".join(note for run in runs for note in run.notes)


def version(world: World, name: str, table: str = "result") -> int:
    return DeltaTable(str(world.folder / "warehouse" / name / table)).version()


def test_a_run_over_nothing_new_writes_the_versions_only_and_the_command_tells_them(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = World(tmp_path, spark)
    world.query("sums", SUMS.replace("COUNT(*) AS n, ", "COUNT(*) AS n, COUNT(f.v) AS c, "))
    file = world.folder / "sums.yaml"
    world.land("fact", 0, (1, 1, 1, 5), (2, 1, 1, 6), (3, None, 2, 1))
    world.land("dim", 0, (1, 7, 1))
    world.at("fact").run()
    world.at("dim").run()
    world.at("sums").run()
    assert world.check("sums") == [(7, 2, 2, 11), (None, 1, 1, 1)]
    world.land("fact", 1, (1, 1, 1, 8), (4, 5, 1, None))
    world.land("dim", 1, (5, 9, 1))
    world.at("fact").run()
    world.at("dim").run()
    assert "what changed" in told(world.at("sums").run())
    assert world.check("sums") == [(7, 2, 2, 14), (9, 1, 0, None), (None, 1, 1, 1)]
    changes = json.loads(said("show", file, "changes", "--batch", 1, "--format", "json"))
    assert sorted((row["_change_type"], row["region"], row["s"]) for row in changes) == [
        ("insert", 9, None),
        ("update", 7, 14),
    ]
    world.land("dim", 2, (1, 7, 99))  # nothing of it is read
    world.at("dim").run()
    before = world.at("sums").table("result").collect()
    (run,) = world.at("sums").run()
    assert not any(run.counts.get(2, {}).values())
    assert (world.at("sums").table("result").collect(), version(world, "sums")) == (before, 2)
    assert not world.at("sums").run()
    assert world.at("sums").changes(2).count() == 0
    status = json.loads(said("status", file, "--format", "json"))
    assert status["stands_for"] == {"fact": "1", "dim": "2"}
    assert "fact: 1" in said("status", file)
    rows = json.loads(said("show", file, "result", "--format", "json"))
    assert {(row["region"], row["s"]) for row in rows} == {(7, 14), (9, None), (None, 1)}
    said("export", file, "--to", tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert (lines[0], sorted(lines[1:])) == ("region,n,c,s", [",1,1,1", "7,2,2,14", "9,1,0,"])
    assert "equal" in said("verify", file)


@pytest.mark.slow  # deaths around commits: engine/test_faults.py, any_order
def test_a_run_that_dies_leaves_nothing_or_all(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark)
    world.query("sums", SUMS)
    world.land("fact", 0, (1, 1, 1, 5), (2, 1, 1, 6), (3, None, 2, 1))
    world.land("dim", 0, (1, 7, 1), (5, 9, 1))
    for name in ("fact", "dim", "sums"):
        world.at(name).run()
    before = version(world, "sums")
    world.land("fact", 2, (1,))
    world.at("fact").run()
    with faults.listening(dies_at("before commit of result")), pytest.raises(Killed):
        world.at("sums").run()
    assert version(world, "sums") == before  # a death before the commit leaves nothing
    with faults.listening(dies_at("after commit of result")), pytest.raises(Killed):
        world.at("sums").run()
    world.land("fact", 3, (2, 5, 1, 1))  # one after it leaves all, and the next run goes on from there
    world.at("fact").run()
    world.at("sums").run()
    world.check("sums")


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(["nothing"], id="nothing"),
        pytest.param(["nothing", "rebuilt", "packed"], id="rebuilt and packed", marks=pytest.mark.slow),
    ],
)
def test_an_edit_of_the_query_needs_the_rebuild_that_the_refusal_names(
    tmp_path: Path, spark: SparkSession, between: list[str]
) -> None:
    world = World(tmp_path, spark)
    world.query("edited", "SELECT kind, SUM(v) AS s FROM fact GROUP BY kind")
    world.land("fact", 0, (1, 1, 1, 5), (2, 1, 2, 6))
    world.at("fact").run()
    world.at("edited").run()
    world.query("edited", "SELECT kind,  SUM(v) AS s\n  FROM fact GROUP BY kind")
    assert not world.at("edited").run()  # white space is no edit
    groups = "WITH g AS (SELECT kind, SUM(v) + 1 AS s, MIN(id) AS i FROM fact GROUP BY kind)"
    world.query("edited", f"{groups} SELECT g.kind, g.s, h.i FROM g JOIN g AS h ON h.i = g.i", "refresh: incremental\n")
    with pytest.raises(StateError) as refused:
        world.at("edited").run()
    assert "query" in str(refused.value)
    assert refused.value.fix is not None
    assert "rebuild" in refused.value.fix
    assert refused.value.fix.endswith(f"fk-pipeline rebuild {world.folder / 'edited.yaml'}")  # there is no changelog
    assert "wrong result" in str(refused.value)
    world.at("edited").rebuild()
    assert world.check("edited") == [(1, 6, 1), (2, 7, 2)]
    for batch, again in enumerate(between, 1):  # no rebuild and no upkeep takes the versions away
        before = version(world, "edited")
        if again == "rebuilt":  # no row differs
            world.at("edited").rebuild()
        elif again == "packed":
            said("compact", world.folder / "edited.yaml")
        assert (version(world, "edited") > before) is (again != "nothing")
        assert not world.at("edited").run()
        status = json.loads(said("status", world.folder / "edited.yaml", "--format", "json"))
        assert status["stands_for"] == {"fact": str(batch - 1)}
        world.land("fact", batch, (1, 1, 2, 5 + batch))
        world.at("fact").run()
        notes = told(world.at("edited").run())
        assert ("g: what changed" in notes, "result: what changed" in notes) == (True, True), notes
        assert world.check("edited") == [(2, 12 + batch, 1)]


@pytest.mark.slow  # stages before their upstream: engine/test_join.py
def test_a_result_that_ran_before_a_block_of_it_is_pending(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark)
    world.query("early", "WITH a AS (SELECT dim, MAX(v) AS m FROM fact GROUP BY dim) SELECT a.m, d.w FROM a JOIN dim d "
                "ON d.id = a.dim")  # fmt: skip
    world.land("fact", 0, (1, 1, 1, 5))
    world.land("dim", 0, (1, 1, 1))
    world.at("fact").run()
    world.at("dim").run()
    query = world.at("early")
    query.discover()
    for stage in ("result", "a"):
        query.runner.run(stage, BatchRange.of(0))
        report = query.verify()
        assert (report.ok, report.rows) == (True, 0)
    assert report.pending
    assert PROOF not in {name for name, found in violations(query, "result").findings.items() if found.value}
    query.run()
    assert world.check("early") == [(5, 1)]


# ------------------------------------------------------------------------------------------------ Delta tables
FEED = {"delta.enableChangeDataFeed": "true"}


class Lake:
    """A Delta table that Spark writes, and what it holds, for a query of `fact` and it."""

    def __init__(self, world: World, *, feed: bool) -> None:
        self.world, self.path = world, world.folder / "lake" / "region"
        self.rows = {1: 1, 2: 3}
        self.feed = FEED if feed else {}
        self.make()

    def make(self) -> None:
        """Writes the table anew, as another table."""
        rows = pa.table({"id": pa.array([*self.rows], pa.int64()), "zone": pa.array([*self.rows.values()], pa.int64())})
        write_deltalake(str(self.path), rows, configuration=self.feed)

    def sql(self, text: str, rows: dict[int, int]) -> None:
        """Changes the table; `rows` is what it holds then."""
        self.world.session.sql(text.format(f"delta.`{self.path}`"))
        self.rows = rows

    def check(self, name: str) -> list[Any]:
        """Asserts that a query is right over what the table holds."""
        db = self.world.database()
        db.execute("DELETE FROM region")
        db.executemany("INSERT INTO region VALUES (?, ?)", self.rows.items())
        return self.world.check(name, db)


@pytest.mark.slow  # one with a feed, and one without: test_what_must_be_computed_whole_is_refused_if_the_file_says_so
@pytest.mark.parametrize("feed", [True, False])
def test_a_delta_table_is_read_where_it_lies(tmp_path: Path, spark: SparkSession, *, feed: bool) -> None:
    world = World(tmp_path, spark)
    lake = Lake(world, feed=feed)
    text = "SELECT f.id, r.zone FROM fact f JOIN dim d ON d.id = f.dim LEFT JOIN lake r ON r.id = d.region"
    world.query("lying", text, inputs={"lake": "{table: lake/region, key: id}"})
    world.texts["lying"] = text.replace("lake r", "region r")
    world.land("fact", 0, (1, 1, 1, 5), (2, 2, 1, 6))
    world.land("dim", 0, (1, 1, 1), (2, 2, 2))
    for name in ("fact", "dim", "lying"):
        world.at(name).run()
    assert lake.check("lying") == [(1, 1), (2, 3)]
    lake.sql("UPDATE {} SET zone = 8 WHERE id = 2", {1: 1, 2: 8})
    lake.sql("DELETE FROM {} WHERE id = 1", {2: 8})
    lake.sql("INSERT INTO {} VALUES (4, 4)", {2: 8, 4: 4})
    notes = told(world.at("lying").run())
    assert ("what changed" in notes) is feed
    assert ("are gone, or were never kept" in notes) is not feed
    assert lake.check("lying") == [(1, None), (2, 8)]
    assert not world.at("lying").run()
    lake.sql("RESTORE TABLE {} TO VERSION AS OF 0", {1: 1, 2: 3})  # it goes on: no version is taken back
    world.at("lying").run()
    assert lake.check("lying") == [(1, 1), (2, 3)]


def test_a_table_that_another_one_replaced_is_read_whole(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark)
    lake = Lake(world, feed=True)
    world.query("lying", "SELECT id, zone FROM lake", inputs={"lake": "{table: lake/region, key: id}"})
    world.texts["lying"] = "SELECT id, zone FROM region"
    world.at("lying").run()
    lake.path.rename(tmp_path / "old")
    lake.rows = {1: 77}
    lake.make()
    assert "another table" in told(world.at("lying").run())
    assert lake.check("lying") == [(1, 77)]


def test_what_must_be_computed_whole_is_refused_if_the_file_says_so(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, spark)
    lake = Lake(world, feed=True)
    inputs = {"lake": "{table: lake/region, key: id}"}
    world.query("lying", "SELECT id, zone + 1 AS z FROM lake", "refresh: incremental\n", inputs)
    world.texts["lying"] = "SELECT id, zone + 1 AS z FROM region"
    world.at("lying").run()  # the first time is no refusal
    lake.sql("INSERT INTO {} VALUES (4, 4)", {**lake.rows, 4: 4})
    world.at("lying").run()
    assert lake.check("lying") == [(1, 2), (2, 4), (4, 5)]
    lake.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)", lake.rows)
    lake.sql("UPDATE {} SET zone = 0", {1: 0, 2: 0, 4: 0})
    with pytest.raises(StageError, match="result can only be computed whole: the changes of lake since") as refused:
        world.at("lying").run()
    assert refused.value.fix is not None
    assert "refresh: auto" in refused.value.fix
    assert world.at("lying").table("result").count() == 3
    file = world.folder / "lying.yaml"
    file.write_text(file.read_text().replace("refresh: incremental", "refresh: auto"))
    world.pipelines.clear()
    assert "whole" in told(world.at("lying").run())
    assert lake.check("lying") == [(1, 1), (2, 1), (4, 1)]
    file.write_text(file.read_text().replace("refresh: auto", "refresh: full"))
    world.pipelines.clear()
    lake.sql("UPDATE {} SET zone = 2 WHERE id = 2", {1: 0, 2: 2, 4: 0})
    assert "refresh is full" in told(world.at("lying").run())
    assert lake.check("lying") == [(1, 1), (2, 3), (4, 1)]
