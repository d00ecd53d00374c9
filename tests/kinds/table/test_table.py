"""`kind: table`, and `where` of an input of any kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.cdc.debezium import UNAVAILABLE
from fk_pipeline.errors import PipelineFileError, StateError, UsageError
from fk_pipeline.expectations.checking import check
from fk_pipeline.identity import BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from tests.deaths import Killed, dies_at
from tests.landing import write_lines

pytestmark = pytest.mark.spark

FILE = """
name: orders
kind: table
input:
  path: landing/orders
  format: rows
  schema: "id BIGINT, customer STRING, amount INT"
  key: id
  op_column: op
  {options}
"""


class Orders:
    """A pipeline of kind table, and what its result must be, in plain Python."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder, self.session = folder, session
        self.landed: dict[int, list[dict[str, Any]]] = {}
        self.passes: Callable[[dict[str, Any]], bool] = lambda _: True
        self.edit("")

    def edit(self, options: str, passes: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
        file = self.folder / "orders.yaml"
        file.write_text(FILE.format(options=options))
        self.pipeline, self.passes = Pipeline(load_spec(file), self.session), passes

    def land(self, batch: int, *rows: tuple[Any, ...]) -> None:
        """Writes a batch of (id, customer, amount), or (id,) for a delete."""
        names = ("id", "customer", "amount")
        self.landed[batch] = [
            {"op": "d" if len(row) == 1 else "u", **dict(zip(names, row, strict=False))} for row in rows
        ]
        write_lines(self.folder / "landing/orders" / f"{batch}.jsonl", self.landed[batch])

    def check(self) -> None:
        """Asserts that the result has the last writers, and that the proof agrees."""
        last = {row["id"]: row for _, rows in sorted(self.landed.items()) for row in rows}
        living = [row for row in last.values() if row["op"] == "u" and self.passes(row)]
        expected = sorted((row["id"], row["customer"], row["amount"]) for row in living)
        found = self.pipeline.table("table").select("id", "customer", "amount").collect()
        assert sorted(map(tuple, found)) == expected
        assert self.pipeline.verify().ok
        assert not self.pipeline.run()


@pytest.fixture
def orders(tmp_path: Path, spark: SparkSession) -> Orders:
    return Orders(tmp_path, spark)


def test_what_a_run_left_behind_in_the_versions_reaches_the_table(orders: Orders) -> None:
    orders.land(0, *[(n, "ada", n) for n in range(8)])
    orders.pipeline.run()
    orders.land(1, (0, "bob", 0), (1,), (9, "eve", 9), (10, "eve", 10))
    with faults.listening(dies_at("before commit of table")), pytest.raises(Killed):
        orders.pipeline.run()
    assert orders.pipeline.table("versions").where("id = 9").count() == 1
    assert orders.pipeline.table("table").where("id = 9").count() == 0
    orders.land(2, (10, "joe", 1))  # a later batch is no remedy for the rows of the other, and takes none back
    orders.pipeline.run(batches=[BatchRange.of(2)])
    orders.pipeline.run()
    orders.check()
    orders.land(3, (2,), (3, "bob", 3), (11, "eve", 1))
    with faults.listening(dies_at("after commit of versions")), pytest.raises(Killed):
        orders.pipeline.run()
    orders.land(3, (3, "joe", 3))  # rewritten before anybody runs again
    orders.pipeline.run()
    orders.check()


def test_the_feed_names_the_batch_that_removed_a_row_also_after_a_run_over_a_range(orders: Orders) -> None:
    orders.land(0, (1, "ada", 1), (2, "bob", 2), (3, "eve", 3))
    orders.pipeline.run()
    orders.land(1, (1,), (2, "bob", 20))
    orders.land(2, (3,))
    orders.pipeline.run()
    orders.land(4, (2, "bob", 20))  # equal content: the table is not touched
    orders.pipeline.run()
    orders.check()
    told = [
        sorted((row["id"], row["_change_type"]) for row in orders.pipeline.changes(batch).collect())
        for batch in (1, 2, 4)
    ]
    assert told == [[(1, "delete"), (2, "update")], [(3, "delete")], []]
    counts = orders.pipeline.ledger().state("table", 1).counts
    assert (counts["removed"], counts["written"]) == (1, 1)


@pytest.mark.slow  # the feed without a death: the test before; deaths: the first test
def test_the_feed_names_the_batch_of_a_row_that_a_run_removed_after_the_death_of_another(orders: Orders) -> None:
    orders.land(0, (1, "ada", 1), (2, "bob", 2), (3, "eve", 3))
    orders.pipeline.run()
    orders.land(1, (1,), (2, "bob", 20))
    orders.land(2, (3,), (4, "joe", 4))
    with faults.listening(dies_at("before commit of table")), pytest.raises(Killed):
        orders.pipeline.run()
    orders.pipeline.run()
    orders.land(3, (1, "ada", 5))  # what the versions say now is not what they said then
    orders.pipeline.run()
    orders.check()
    told = [
        sorted((row["id"], row["_change_type"]) for row in orders.pipeline.changes(batch).collect())
        for batch in (1, 2, 3)
    ]
    assert told == [[(1, "delete"), (2, "update")], [(3, "delete"), (4, "insert")], [(1, "insert")]]


def test_rows_come_and_go_as_they_pass_and_an_edit_needs_the_changelog_only(orders: Orders) -> None:
    orders.edit("where: amount > 5", lambda row: row["amount"] > 5)
    orders.land(0, (1, "ada", 9), (2, "bob", 2), (3, "eve", 7), (4, "joe", None), (5, "max", 1))
    orders.landed[0][3]["amount"] = 0  # null passes as little
    orders.pipeline.run()
    orders.land(1, (1, "ada", 1), (2, "bob", 8), (5,))
    orders.pipeline.run()
    orders.check()
    story: Any = orders.pipeline.explain("1")
    assert (story.result, story.as_expected, story.versions[-1].left_out) == (None, True, True)
    assert "does not pass `where`." in " ".join(story.sentences())
    orders.edit("where: amount < 5", lambda row: row["amount"] < 5 and row["customer"] != "joe")
    with pytest.raises(StateError, match=r"input\.where was 'amount > 5', is 'amount < 5'") as refused:
        orders.pipeline.run()
    assert refused.value.fix is not None
    assert refused.value.fix.endswith("orders.yaml --from changelog")
    orders.pipeline.rebuild("changelog")
    orders.check()


def with_a_failing_where(orders: Orders) -> Orders:
    """Returns a pipeline whose `where` fails on a row, once it ran."""
    orders.edit("where: 10 / amount > 1", lambda row: row["amount"] != 0)
    orders.land(0, (1, "ada", 9), (2, "bob", 0))
    orders.pipeline.run()
    return orders


def test_a_row_on_which_where_fails_is_quarantined(orders: Orders) -> None:
    with_a_failing_where(orders)
    (record,) = orders.pipeline.quarantined().collect()
    assert record["reason"] == "where 10 / amount > 1 fails on this row"
    orders.check()
    orders.edit("where: amount >= 0", lambda row: row["amount"] >= 0)
    with pytest.raises(UsageError, match="this rebuild would not be enough") as refused:
        orders.pipeline.rebuild("changelog")
    assert "there are lines in the quarantine on which the old where failed" in str(refused.value)


@pytest.mark.slow
def test_it_comes_out_of_the_quarantine_with_another_where_and_a_rebuild_from_the_landing_files(orders: Orders) -> None:
    with_a_failing_where(orders).edit("where: amount >= 0", lambda row: row["amount"] >= 0)
    orders.pipeline.rebuild("landing")
    orders.check()
    orders.edit("where: 10 / amount > 1")
    with pytest.raises(Exception, match="Division by zero"):
        orders.pipeline.rebuild("changelog")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("cost > 5", "reads column 'cost', which is not in the schema"),
        ("1 = 1", "reads no column: it would keep every row, or none"),
        ("amount", "'amount' is INT, not BOOLEAN; write 'amount = 1' for example"),
        ("current_date() > '2026-01-01'", "current_date"),
    ],
)
def test_a_where_that_is_no_condition_on_a_row_is_refused(tmp_path: Path, where: str, said: str) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(FILE.format(options=f"where: {where}"))
    with pytest.raises(PipelineFileError) as refused:
        load_spec(file)
    assert said in str(refused.value)
    assert "orders.yaml:10" in str(refused.value)


def joined_with_customers(orders: Orders) -> Pipeline:
    """Returns a join that reads the table, and of both inputs what passes `where`; its first batch has landed."""
    orders.land(0, *[(n, f"c{n % 3}", n) for n in range(9)])
    orders.pipeline.run()
    file = orders.folder / "joined.yaml"
    file.write_text(
        "name: joined\njoin: left\nleft:\n  pipeline: orders.yaml\n  foreign_key: customer\n  where: amount > 2\n"
        "right:\n  path: landing/customers\n  format: rows\n  schema: 'customer STRING, city STRING'\n"
        "  key: customer\n  where: city <> 'Rome'\nselect: [id, amount, city]\n"
    )
    customers = [{"customer": "c0", "city": "Oslo"}, {"customer": "c1", "city": "Rome"}]
    write_lines(orders.folder / "landing/customers/0.jsonl", customers)
    return Pipeline(load_spec(file), orders.session)


def joined(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """Runs the join; returns its rows."""
    pipeline.run()
    assert pipeline.verify().ok
    return sorted(map(tuple, pipeline.table("resolved_join").select("id", "amount", "city").collect()))


def test_a_join_reads_a_table_and_both_inputs_may_leave_rows_out(orders: Orders) -> None:
    cities = {"c0": "Oslo"}
    assert joined(joined_with_customers(orders)) == [(n, n, cities.get(f"c{n % 3}")) for n in range(3, 9)]


@pytest.mark.slow
def test_rows_come_into_such_a_join_and_leave_it_as_they_pass(orders: Orders) -> None:
    pipeline = joined_with_customers(orders)
    pipeline.run()
    orders.land(1, (0, "c1", 30), (4, "c1", 1), (5,))
    orders.pipeline.run()
    write_lines(orders.folder / "landing/customers/1.jsonl", [{"customer": "c1", "city": "Bern"}])
    write_lines(orders.folder / "landing/customers/2.jsonl", [{"customer": "c0", "city": "Rome"}])
    cities = {"c1": "Bern"}
    assert joined(pipeline) == [(0, 30, "Bern"), *((n, n, cities.get(f"c{n % 3}")) for n in (3, 6, 7, 8))]
    story = pipeline.explain("3")
    assert ("right row c0 *", "city=Rome; does not pass `where`") in [one[1:3] for one in story.events()]
    assert "c0, whose version of batch 2 does not pass `where`: a left join keeps the left row." in story.sentences()[0]
    story = pipeline.explain("4")
    assert ("left row *", "amount=1; does not pass `where`") in [one[1:3] for one in story.events()]
    assert "does not pass `where`, and nothing newer has come." in story.sentences()[0]


def _event(at: int, key: int, note: str, amount: int) -> dict[str, Any]:
    source = {"lsn": at, "sequence": f'["{at}","{at}"]'}
    return {"op": "u", "before": None, "after": {"id": key, "note": note, "amount": amount}, "source": source}


@pytest.mark.slow
def test_a_row_on_which_where_fails_once_it_is_filled_is_quarantined_and_no_batch_waits(orders: Orders) -> None:
    file, folder = orders.folder / "orders.yaml", orders.folder / "landing/orders"
    file.write_text(
        "name: orders\nkind: table\ninput:\n  path: landing/orders\n  schema: 'id BIGINT, note STRING, amount INT'\n"
        "  key: id\n  where: amount = 1 OR CAST(note AS INT) > 5\n"
    )
    pipeline = Pipeline(load_spec(file), orders.session)

    def now() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Runs what is due; returns the rows of the result, and line and reason of the quarantine."""
        pipeline.run()
        assert pipeline.verify().ok
        assert pipeline.verify_inputs().ok
        checked = [one for stage in ("changelog", "table") for one in check(pipeline, stage).results]
        assert {one.name for one in checked if one.failed} == {"quarantined_share_is_low"}
        rows = pipeline.table("table").select("id", "note", "amount").collect()
        bad = pipeline.quarantined().select("batch", "line", "reason", "raw").collect()
        return sorted(map(tuple, rows)), sorted(map(tuple, bad))

    write_lines(folder / "0.jsonl", [_event(1, 1, "x", 1), _event(2, 2, "8", 1), _event(3, 3, "y", 1)])
    unsent = [_event(at, key, UNAVAILABLE, 7) for at, key in ((11, 1), (12, 2))]
    write_lines(folder / "1.jsonl", unsent)
    reason = "where amount = 1 OR CAST(note AS INT) > 5 fails on this row"
    reason += ", once the values that were not sent are filled in"
    refused = (1, 1, reason, json.dumps(unsent[0]))
    assert now() == ([(2, "8", 7), (3, "y", 1)], [refused])
    counts = pipeline.ledger().state("changelog", 1).counts
    assert (counts["read"], counts["events"], counts["quarantined"], counts["rows"]) == (2, 1, 1, 2)
    story: Any = pipeline.explain("1")
    assert (story.result, story.as_expected, story.versions[-1].left_out) == (None, True, True)
    write_lines(folder / "2.jsonl", [_event(20, 1, UNAVAILABLE, 1)])  # what the row has is not lost
    assert now() == ([(1, "x", 1), (2, "8", 7), (3, "y", 1)], [refused])
    write_lines(folder / "2.jsonl", [_event(20, 9, "0", 9)])
    write_lines(folder / "0.jsonl", [_event(1, 1, "6", 1), _event(2, 2, "z", 1), _event(3, 3, "y", 1)])  # corrected
    assert now() == ([(1, "6", 7), (3, "y", 1)], [(1, 2, reason, json.dumps(unsent[1]))])
    joined = file.with_name("joined.yaml")
    side = file.read_text().split("input:\n")[1]
    joined.write_text(
        f"name: joined\njoin: left\nleft:\n{side}  foreign_key: amount\nselect: [id, note, city]\n"
        "right: {path: landing/cities, format: rows, schema: 'amount INT, city STRING', key: amount}\n"
    )
    write_lines(orders.folder / "landing/cities/0.jsonl", [{"amount": 7, "city": "Rome"}])
    pipeline = Pipeline(load_spec(joined), orders.session)
    pipeline.run()
    write_lines(orders.folder / "landing/cities/1.jsonl", [{"amount": 7, "city": "Oslo"}])
    pipeline.run()
    assert pipeline.verify().ok
    rows = pipeline.table("resolved_join").select("id", "note", "city").collect()
    assert sorted(map(tuple, rows)) == [(1, "6", "Oslo"), (3, "y", None)]


@pytest.mark.slow
def test_where_is_told_of_whole_rows_with_the_values_that_the_source_did_not_send(orders: Orders) -> None:
    file = orders.folder / "orders.yaml"
    file.write_text(
        "name: orders\nkind: table\ninput:\n  path: landing/orders\n  schema: 'id BIGINT, note STRING, amount INT'\n"
        "  key: id\n  where: note = 'keep'\nexpectations:\n"
        "  table: [{type: expect_column_values_to_be_in_set, kwargs: {column: note, value_set: [keep]}}]\n"
    )
    pipeline = Pipeline(load_spec(file), orders.session)
    folder = orders.folder / "landing/orders"
    write_lines(folder / "0.jsonl", [_event(1, 1, "keep", 1), _event(2, 2, "drop", 2)])
    write_lines(folder / "1.jsonl", [_event(3, 1, UNAVAILABLE, 10), _event(4, 2, UNAVAILABLE, 20)])
    pipeline.run()
    assert [tuple(row) for row in pipeline.table("table").select("id", "note", "amount").collect()] == [(1, "keep", 10)]
    write_lines(folder / "0.jsonl", [_event(1, 1, "drop", 1), _event(2, 2, "keep", 2)])  # restated
    pipeline.run()
    assert [tuple(row) for row in pipeline.table("table").select("id", "note", "amount").collect()] == [(2, "keep", 20)]
    assert pipeline.verify().ok
    assert all(not one.failed for stage in ("changelog", "table") for one in check(pipeline, stage).results)


@pytest.mark.slow
def test_a_key_that_does_not_pass_is_not_forgotten_with_the_deleted_ones(orders: Orders) -> None:
    forgets = "settings: {fold_after_hours: 0, retention_hours: 0, tombstone_retention: 0}"
    orders.edit(f"where: amount > 5\n{forgets}", lambda row: row["amount"] > 5)
    orders.land(0, (1, "ada", 9), (2, "bob", 2), (3, "eve", 7))
    orders.land(1, (3,), (1, "ada", 1))
    orders.pipeline.run()
    orders.pipeline.compact()
    assert {row["id"] for row in orders.pipeline.table("versions").collect()} == {1, 2}
    assert {row["id"] for row in orders.pipeline.table("changelog").collect()} == {1, 2}
    orders.check()
    orders.edit(f"where: amount < 5\n{forgets}", lambda row: row["amount"] < 5)
    orders.pipeline.rebuild("changelog")
    orders.check()


@pytest.mark.slow
def test_groups_and_pairs_are_made_of_the_rows_that_pass(tmp_path: Path, spark: SparkSession) -> None:
    side = "path: landing/{0}, format: rows, schema: 'id BIGINT, k STRING, at BIGINT, v INT', key: id, op_column: op"
    (tmp_path / "counted.yaml").write_text(
        f"name: counted\nkind: aggregate\ninput: {{{side.format('left')}, where: v > 0}}\n"
        "group_by: [k]\naggregates: [count(*) AS n, sum(v) AS total]\n"
    )
    (tmp_path / "pairs.yaml").write_text(
        f"name: pairs\nkind: window\njoin: left\nleft: {{{side.format('left')}, where: v > 0, on: k, time: at}}\n"
        f"right: {{{side.format('right')}, where: v < 9, on: k, time: at}}\n"
        "within: {before: 5 milliseconds, after: 5 milliseconds}\nunmatched: at_once\n"
        "select: [left.id AS l, right.id AS r]\n"
    )
    counted, pairs = (Pipeline(load_spec(tmp_path / f"{name}.yaml"), spark) for name in ("counted", "pairs"))

    def land(side: str, batch: int, *rows: tuple[int, str, int, int]) -> None:
        lines = [{"op": "u", **dict(zip(("id", "k", "at", "v"), row, strict=True))} for row in rows]
        write_lines(tmp_path / "landing" / side / f"{batch}.jsonl", lines)

    def results() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        for pipeline in (counted, pairs):
            pipeline.run()
            assert pipeline.verify().ok
            for stage in pipeline.spec.definition.stage_names:
                assert not [one for one in check(pipeline, stage).results if one.failed]
        groups = counted.table("aggregated").select("k", "n", "total").collect()
        return sorted(map(tuple, groups)), sorted(map(tuple, pairs.table("resolved_join").select("l", "r").collect()))

    land("left", 0, (1, "a", 1, 1), (2, "a", 2, -1), (3, "b", 3, 5))
    land("right", 0, (1, "a", 1, 1), (2, "b", 3, 9))
    assert results() == ([("a", 1, 1), ("b", 1, 5)], [(1, 1), (3, None)])
    land("left", 1, (1, "a", 1, 0), (2, "a", 2, 7))
    land("right", 1, (2, "b", 3, 8), (1, "a", 1, 10))
    assert results() == ([("a", 1, 7), ("b", 1, 5)], [(2, None), (3, 2)])
    group = counted.explain("k=a")
    assert group.sentences()[2:4] == ["1 row counts in it.", "1 row of it does not pass `where`."]
    row = pairs.explain("1")
    assert (1, "row (u) *", "id=1, k=a, at=1, v=0; does not pass `where`") in [one[:3] for one in row.events()]
    assert row.sentences()[1] == "Its last version, of batch 1, does not pass `where`."
