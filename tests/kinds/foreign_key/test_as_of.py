"""As-of joins: a left row sees the version of its right row that held at its time, also one that arrives late."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.errors import FanOutError, PipelineFileError, StateError, UsageError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from fk_pipeline.store.sizes import MEASURED, Sizes
from tests.any_order.subjects import WAYS
from tests.deaths import Killed, dies_at
from tests.expectations.world import mutated
from tests.mutations import Update

FILE = """
name: dated
join: {join}
as_of: {as_of}
left: {{path: left, format: rows, schema: "{left}", key: id, op_column: op, foreign_key: fk{of_left}}}
right: {{path: right, format: rows, schema: "{right}", key: k, op_column: op{of_right}}}
select: {select}
settings: {settings}
"""
LEFT, RIGHT = "id INT, fk STRING, at BIGINT, seq INT", "k STRING, since BIGINT, price INT, seq INT"
SLOW = ("by keys on Spark", "whole tables", "with deletion vectors")


class Dated:
    """A pipeline with `as_of`; a left row is (id, fk, at), a right row (k, since, price), without a price a delete."""

    def __init__(self, folder: Path, session: SparkSession, sizes: Sizes = MEASURED, **parts: str) -> None:
        known = {
            "join": "left",
            "as_of": "at",
            "left": LEFT,
            "right": RIGHT,
            "of_left": ", sequence_by: seq",
            "of_right": ", sequence_by: seq, valid_from: since",
            "select": "[id, fk, price, right.since AS since]",
            "settings": "{}",
        }
        self.folder, self.seq = folder, 0
        self.file = folder / "pipeline.yaml"
        self.file.write_text(FILE.format(**known | parts))
        self.pipeline = Pipeline(load_spec(self.file), session, sizes=sizes)

    def land(self, batch: int, left: Sequence[Any] = (), right: Sequence[Any] = ()) -> None:
        for side, names, rows in (("left", ("id", "fk", "at"), left), ("right", ("k", "since", "price"), right)):
            lines = []
            for row in rows:
                self.seq += 1
                gone = len(row) < len(names) and row != ()
                op = "t" if row == () else "d" if gone else "u"
                lines.append(json.dumps({"op": op, "seq": self.seq, **dict(zip(names, row, strict=False))}) + "\n")
            path = self.folder / side / f"{batch}.jsonl"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(lines))

    def result(self) -> dict[Any, Any]:
        """The price and the beginning of the version by left key."""
        rows = self.pipeline.table("resolved_join").collect()
        return {row["id"]: (row["price"], row["since"]) for row in rows}

    def red(self) -> set[str]:
        """The failing checks of whole tables, which verify the result, and of the last batch."""
        last = BatchRange.of(int(self.pipeline.ledger().batches[-1]))
        return {*red(self.pipeline, None, last)}


@pytest.fixture
def dated(tmp_path: Path, spark: SparkSession) -> Callable[..., Dated]:
    return lambda sizes=MEASURED, **parts: Dated(tmp_path, spark, sizes, **parts)


@pytest.mark.spark
@pytest.mark.parametrize("way", [pytest.param(w, marks=pytest.mark.slow if w in SLOW else ()) for w in WAYS])
def test_a_version_that_comes_late_mends_what_falls_into_its_interval_and_nothing_else(
    dated: Callable[..., Dated], way: str
) -> None:
    made = dated(WAYS[way], settings="{strategy: full}" if way == "whole tables" else "{}")
    pipeline = made.pipeline
    made.land(0, [(i, "a", i) for i in range(0, 50, 5)] + [(90, "b", 9), (91, None, 9)], [("a", 10, 1), ("a", 30, 3)])
    pipeline.run()
    first = {i: (None, None) if i < 10 else (1, 10) if i < 30 else (3, 30) for i in range(0, 50, 5)}
    assert made.result() == first | {90: (None, None), 91: (None, None)}

    made.land(1, [], [("a", 20, 2)])  # it held a long time ago
    made.land(2, [(90, "a", 12)], [("a", 35)])  # a deletion ends validity; a left row refers to another key
    pipeline.run()
    moved = {20: (2, 20), 25: (2, 20)}
    changes = pipeline.changes(1).select("id", "_change_type").collect()
    assert sorted((row[0], row[1]) for row in changes) == [(20, "update"), (25, "update")]
    ended = {35: (None, None), 40: (None, None), 45: (None, None)}
    assert made.result() == first | moved | ended | {90: (1, 10), 91: (None, None)}

    made.land(1, [], [("a", 20, 7), ("a", 5, 0)])  # the late version is corrected, and an older one comes
    pipeline.run()
    assert made.result() == first | ended | {20: (7, 20), 25: (7, 20), 5: (0, 5), 90: (1, 10), 91: (None, None)}
    made.land(1)  # both are taken back
    made.land(2, [(90, "a", 12)])
    pipeline.run()
    assert made.result() == first | {90: (1, 10), 91: (None, None)}
    assert made.red() == set()


@pytest.mark.slow
@pytest.mark.spark
def test_the_end_of_validity_is_selected_and_follows_the_next_version(
    dated: Callable[..., Dated], told_alike: Any
) -> None:
    made = dated(join="inner", select="[id, fk, price, right.valid_from AS since, right.valid_to AS until]")
    made.land(0, [(1, "a", 12), (2, "a", 40), (3, "b", 1)], [("a", 10, 1)])
    made.pipeline.run()

    def until() -> dict[int, tuple[int, int | None]]:
        rows = made.pipeline.table("resolved_join").collect()
        return {row["id"]: (row["since"], row["until"]) for row in rows}

    assert until() == {1: (10, None), 2: (10, None)}
    made.land(1, [], [("a", 30, 3)])
    made.pipeline.run()
    assert until() == {1: (10, 30), 2: (30, None)}
    made.land(1, [], [("a", 20)])
    made.pipeline.run()
    assert until() == {1: (10, 20)}
    made.land(1)
    made.pipeline.run()
    assert until() == {1: (10, None), 2: (10, None)}
    assert made.pipeline.verify().ok
    assert made.red() == set()
    assert "the version since 10 of batch 0 held" in told_alike(made.pipeline, "1").conclusion


@pytest.mark.slow
@pytest.mark.spark
def test_a_response_about_a_version_that_was_taken_back_may_be_folded(dated: Callable[..., Dated]) -> None:
    made = dated(settings="{fold_after_hours: 0}")
    made.land(3, [], [("a", 30, 1)])
    made.land(5, [(1, "a", 50)], [("a", 10, 9)])
    made.pipeline.run()
    made.land(3)  # row 1 hears of it in batch 3, and sees the version of batch 5
    made.pipeline.run()
    made.land(4, [(2, "a", 0)])
    made.pipeline.compact()
    assert made.pipeline.ledger().folds.on_all_sides == {3}
    made.pipeline.run()
    assert made.result() == {1: (9, 10), 2: (None, None)}
    assert made.red() == set()


@pytest.mark.slow
@pytest.mark.spark
def test_the_story_names_the_version_and_its_neighbours(dated: Callable[..., Dated], told_alike: Any) -> None:
    made = dated()
    made.land(0, [(1, "a", 12), (2, "a", 5), (3, "a", 40), (4, "b", 1)], [("a", 10, 1), ("a", 20, 2), ("a", 30)])
    made.pipeline.run()
    ends = {
        "1": "refers to right row a at 12, when the version since 10 of batch 0 held; the next version holds since 20.",
        "2": "at 5, when no version of it held; the next version holds since 10: a left join keeps the left row.",
        "3": "at 40, when it was deleted since 30, by batch 0: a left join keeps the left row.",
        "4": "refers to right row b at 1, when no version of it held: a left join keeps the left row.",
    }
    for key, end in ends.items():
        story = told_alike(made.pipeline, key)
        assert (story.conclusion.endswith(end), story.as_expected) == (True, True), story.conclusion
    made.land(1, [], [("a", 11, 9)])
    made.pipeline.run()
    events = told_alike(made.pipeline, "1").events()
    assert [what for batch, what, *_ in events if batch == 1] == ["right row a since 11 *", "response", "verdict"]
    assert {version["at"] for version in told_alike(made.pipeline, "1").as_json()["right"]} == {10, 11, 20, 30}


@pytest.mark.slow
@pytest.mark.spark
def test_the_impact_of_a_version_is_told_and_limited_before_it_is_applied(
    dated: Callable[..., Dated], told_alike: Any
) -> None:
    made = dated(settings="{max_fan_out: 2}")
    made.land(0, [(i, "a", i) for i in range(10)], [("a", 0, 1), ("a", 8, 2)])
    pipeline = made.pipeline
    pipeline.run()
    impact = partial(told_alike, pipeline, what="impact")
    assert [impact("a", since=at).as_json()["fan_out"] for at in ("5", "8", "20")] == [3, 2, 0]
    assert impact("a").as_json()["fan_out"] == 10
    found = impact("a", since="8").as_json()
    assert found["keys"] == ({"key": "a since 8", "subscribers": 2, "effect": "changed or removed"},)
    with pytest.raises(UsageError, match=r"--from: 'soon' is no bigint"):
        impact("a", since="soon")
    changes = made.folder / "late.jsonl"
    late = [{"op": "u", "k": "a", "since": 5, "price": 7, "seq": 99}, {"op": "d", "k": "a", "since": 8, "seq": 99}]
    changes.write_text("".join(json.dumps(row) + "\n" for row in late))
    told = pipeline.impact(changes=changes).as_json()
    assert (told["fan_out"], told["right_rows"]) == (5, {"added": 1, "removed": 1})

    made.land(1, [], [("a", 7, 3)])  # one left row
    pipeline.run()
    made.land(2, [], [("a", 3, 4)])  # four left rows
    pipeline.discover()
    with pytest.raises(FanOutError, match=r"batch 2 would touch 4 rows of the result \(most by a: 4\)"):
        pipeline.runner.run("right_table", BatchRange.of(2))
    assert made.result()[5] == (1, 0)


EVENTS = {
    "left": "user STRING, v INT",
    "of_left": ", contents: events",
    "right": "k STRING, w INT",
    "of_right": "",
    "as_of": "batch",
    "select": "[event, user, v, w]",
}


def events_file(folder: Path, session: SparkSession, of_right: str = "") -> Pipeline:
    """A pipeline of clicks, events without a key, and the state of their user as of their batch."""
    file = folder / "pipeline.yaml"
    file.write_text(
        "name: clicks\njoin: left\nas_of: batch\n"
        'left: {path: left, format: rows, schema: "user STRING, v INT", contents: events, foreign_key: user}\n'
        f'right: {{path: right, format: rows, schema: "k STRING, w INT", key: k{of_right}}}\n'
        "select: [event, user, v, w]\n"
    )
    return Pipeline(load_spec(file), session)


def lands(folder: Path, side: str, name: str, *rows: Any) -> None:
    path = folder / side / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def stored(pipeline: Pipeline) -> dict[str, tuple[Any, ...]]:
    rows = pipeline.table("resolved_join").select("event", "user", "v", "w").collect()
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: tuple(row[1:]) for row in rows}


@pytest.mark.slow
@pytest.mark.spark
def test_an_event_sees_the_table_of_its_batch_whenever_it_is_computed(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = events_file(tmp_path, spark, ", op_column: op")
    lands(tmp_path, "left", "0.jsonl", {"user": "a", "v": 1}, {"user": "a", "v": 1}, {"user": None, "v": 2})
    lands(tmp_path, "right", "0.jsonl", {"op": "u", "k": "a", "w": 10})
    lands(tmp_path, "left", "1.jsonl", {"user": "a", "v": 3}, "{", {"user": "b", "v": 4})
    lands(tmp_path, "right", "1.jsonl", {"op": "u", "k": "a", "w": 11}, {"op": "d", "k": "b"})
    lands(tmp_path, "left", "2.jsonl", {"user": "a", "v": 5})
    pipeline.run("2")  # the last batch first
    pipeline.run()
    expected = {
        "0/left/0.jsonl/1": ("a", 1, 10),  # two equal events are two
        "0/left/0.jsonl/2": ("a", 1, 10),
        "0/left/0.jsonl/3": (None, 2, None),
        "1/left/1.jsonl/1": ("a", 3, 11),  # the table comes first
        "1/left/1.jsonl/3": ("b", 4, None),
        "2/left/2.jsonl/1": ("a", 5, 11),
    }
    assert stored(pipeline) == expected
    pipeline.run("0..2", stages=["right_table", "responses", "resolved_join"])  # a backfill changes nothing
    assert stored(pipeline) == expected

    lands(tmp_path, "left", "0.jsonl", {"user": "a", "v": 7})  # a batch takes its events back
    lands(tmp_path, "right", "1.jsonl", {"op": "t"}, {"op": "u", "k": "b", "w": 12})  # and one is truncated
    pipeline.run()
    assert stored(pipeline) == {
        "0/left/0.jsonl/1": ("a", 7, 10),
        "1/left/1.jsonl/1": ("a", 3, None),
        "1/left/1.jsonl/3": ("b", 4, 12),
        "2/left/2.jsonl/1": ("a", 5, None),
    }
    assert pipeline.verify().ok
    lands(tmp_path, "right", "1.jsonl", {"op": "u", "k": "b", "w": 12})  # the truncate is taken back
    pipeline.discover()
    for stage in ("right_table", "responses"):  # due work explains the rows that are still those of the truncate
        pipeline.runner.run(stage, BatchRange.of(1))
        assert pipeline.verify().ok
    assert red(pipeline, None) == []
    pipeline.run()
    assert {row[2] for event, row in stored(pipeline).items() if row[0] == "a"} == {10}
    lands(tmp_path, "right", "3.jsonl", {"op": "u", "k": "a", "w": 13})
    lands(tmp_path, "left", "4.jsonl", {"user": "a", "v": 8})
    pipeline.run()
    lands(tmp_path, "right", "3.jsonl", {"op": "t"})  # a batch with nothing but a truncate
    pipeline.run()
    assert stored(pipeline)["4/left/4.jsonl/1"] == ("a", 8, None)
    assert pipeline.verify().ok
    assert red(pipeline, BatchRange.of(1), BatchRange.of(4)) == []


def red(pipeline: Pipeline, *of: BatchRange | None) -> list[str]:
    """The failing checks of whole tables (None) or of batches."""
    return [
        name
        for stage in pipeline.spec.definition.stage_names
        for batches in of
        for name, found in violations(pipeline, stage, batches).findings.items()
        if found.value and not name.endswith("share_is_low")
    ]


@pytest.mark.spark
def test_a_batch_with_nothing_but_a_truncate_ends_what_held(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = events_file(tmp_path, spark, ", op_column: op")
    lands(tmp_path, "right", "1.jsonl", {"op": "u", "k": "a", "w": 1})
    lands(tmp_path, "left", "5.jsonl", {"user": "a", "v": 1})
    pipeline.run()
    lands(tmp_path, "right", "3.jsonl", {"op": "t"})
    pipeline.run()
    assert stored(pipeline) == {"5/left/5.jsonl/1": ("a", 1, None)}


@pytest.mark.spark
@pytest.mark.parametrize(
    "format_", ["debezium", *[pytest.param(f, marks=pytest.mark.slow) for f in ("maxwell", "csv")]]
)
def test_events_of_every_format_may_have_no_key(tmp_path: Path, spark: SparkSession, format_: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: clicks\njoin: left\nleft: {{path: left, format: {format_}, "
        'schema: "user STRING, v INT", contents: events, foreign_key: user}\n'
        'right: {path: right, format: rows, schema: "k STRING, w INT", key: k}\nselect: [event, user, v, w]\n'
    )
    row = {"user": "a", "v": 1}
    lines: dict[str, list[Any]] = {
        "debezium": [
            *[{"before": None, "after": row, "op": "c"}] * 2,
            {"before": row, "after": None, "op": "d"},
        ],
        "maxwell": [
            {"type": "insert", "data": row},
            {"type": "update", "data": row, "old": {"v": 2}},
            {"type": "delete", "data": row},
        ],
        "csv": ["user,v", "a,1", "a,1", "a,x"],
    }
    name = f"0.{'csv' if format_ == 'csv' else 'jsonl'}"
    lands(tmp_path, "left", name, *lines[format_])
    lands(tmp_path, "right", "0.jsonl", {"k": "a", "w": 3})
    pipeline = Pipeline(load_spec(file), spark)
    pipeline.run()
    assert [*stored(pipeline).values()] == [("a", 1, 3)] * 2
    (bad,) = pipeline.table("quarantine").collect()
    told = "column v: x" if format_ == "csv" else "a delete of an event without a key"
    assert bad["_fk_reason"].startswith(told)
    assert pipeline.verify().ok


def test_times_made_of_a_sensitive_column_are_sensitive(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    known = {"join": "left", "as_of": "at", "left": LEFT, "right": RIGHT, "settings": "{}"}
    known |= {"of_left": "", "select": "[id, right.valid_from AS since, price]"}
    file.write_text(FILE.format(**known, of_right=", valid_from: since, sensitive: since"))
    assert load_spec(file).sensitive_outputs == {"since"}
    file.write_text(FILE.format(**known | {"of_right": ", valid_from: since"}))
    assert load_spec(file).sensitive_outputs == frozenset()


@pytest.mark.slow  # beside the truncates of the events
@pytest.mark.spark
def test_a_snapshot_is_the_whole_table_as_of_its_batch(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = events_file(tmp_path, spark, ", contents: snapshot")
    for batch, rows in enumerate([{"a": 1, "b": 1}, {"b": 2}, {"a": 3}]):
        lands(tmp_path, "left", f"{batch}.jsonl", {"user": "a", "v": batch}, {"user": "b", "v": batch})
        lands(tmp_path, "right", f"{batch}.jsonl", *({"k": k, "w": w} for k, w in rows.items()))
    pipeline.run("1")
    pipeline.run()
    wanted = {("a", 0, 1), ("b", 0, 1), ("a", 1, None), ("b", 1, 2), ("a", 2, 3), ("b", 2, None)}
    assert {*stored(pipeline).values()} == wanted
    lands(tmp_path, "right", "1.jsonl", {"k": "a", "w": 9})
    pipeline.run()
    assert {*stored(pipeline).values()} == wanted - {("a", 1, None), ("b", 1, 2)} | {("a", 1, 9), ("b", 1, None)}
    assert pipeline.verify().ok


@pytest.mark.spark
def test_a_version_holds_since_its_source_committed_it(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: committed\njoin: left\nas_of: at\n"
        'left: {path: left, format: rows, schema: "id INT, fk INT, at TIMESTAMP", key: id, foreign_key: fk}\n'
        'right: {path: right, format: debezium, schema: "k INT, w INT", key: k, valid_from: committed_at}\n'
        "select: [id, w, right.valid_from AS since]\n"
    )

    def change(op: str, w: int | None, **ts: int) -> dict[str, Any]:
        row = None if w is None else {"k": 1, "w": w}
        return {"before": {"k": 1, "w": 0} if row is None else None, "after": row, "op": op, "source": ts}

    lands(
        tmp_path,
        "right",
        "0.jsonl",
        change("c", 1, ts_ms=10_000),
        change("u", 2, ts_us=20_000_000, ts_ms=1),  # the most exact time counts
        change("d", None, ts_ns=30_000_000_000),
        change("c", 9),  # nobody knows since when
    )
    times = {1: "1970-01-01 00:00:05", 2: "1970-01-01 00:00:10", 3: "1970-01-01 00:00:29.5", 4: "1970-01-01 00:00:30"}
    lands(tmp_path, "left", "0.jsonl", *({"id": i, "fk": 1, "at": at} for i, at in times.items()))
    pipeline = Pipeline(load_spec(file), spark)
    pipeline.run()
    rows = {row["id"]: (row["w"], row["since"]) for row in pipeline.table("resolved_join").collect()}
    assert [rows[i][0] for i in (1, 2, 3, 4)] == [None, 1, 2, None]
    assert rows[3][1].timestamp() == 20
    bad = pipeline.table("quarantine").collect()
    assert [(row["_fk_line"], row["_fk_reason"]) for row in bad] == [(4, "valid_from is null")]


@pytest.mark.spark
def test_times_of_different_types_are_refused_with_the_cast_that_helps(dated: Callable[..., Dated]) -> None:
    made = dated(as_of="CAST(at AS TIMESTAMP)")
    made.land(0, [(1, "a", 1)], [("a", 0, 1)])
    with pytest.raises(PipelineFileError, match=r"as_of is TIMESTAMP, right.valid_from is BIGINT"):
        made.pipeline.run()
    made = dated(as_of="id")
    with pytest.raises(PipelineFileError, match=r"as_of is INT, which is no time"):
        made.pipeline.run()
    made = dated(settings="{}\nhistory: 90 days")
    with pytest.raises(PipelineFileError, match=r"as_of is BIGINT, and history is '90 days'"):
        made.pipeline.run()


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"join": "outer"}, "as_of: as_of goes with inner and left: which version of a right row would stand alone?"),
        ({"of_right": ""}, "right: valid_from is missing: since when does a version hold?"),
        ({"of_right": ", valid_from: committed_at"}, "rows does not tell when a change was committed"),
        ({"of_right": ", valid_from: when_it_was"}, "reads column 'when_it_was', which is not in the schema"),
        ({"as_of": "batch"}, "right.valid_from: valid_from goes with as_of, a SQL expression over the left columns"),
        ({"as_of": "nothing"}, "as_of: 'nothing' reads column 'nothing', which is not in the schema"),
        (
            {"as_of": "batch", "left": "id INT, fk STRING, batch BIGINT", "of_right": ""},
            "as_of: as_of: batch means the batch, and the left schema has a column 'batch'",
        ),
        ({"of_left": ", valid_from: at"}, "left.valid_from: valid_from is of the right side"),
        ({"as_of": "batch", "of_right": "", "settings": "{}\nhistory: 1 day"}, "history: history goes with as_of"),
        ({"settings": "{}\nhistory: ninety days"}, "'ninety days' is no span of time; write a whole number and a unit"),
        ({"settings": "{}\nhistory: 99999999999 weeks"}, "is longer than there is time"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, parts: dict[str, str], told: str) -> None:
    known = {"join": "left", "as_of": "at", "left": LEFT, "right": RIGHT, "of_left": "", "select": "[id]"}
    known |= {"of_right": ", valid_from: since", "settings": "{}"}
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(**known | parts))
    with pytest.raises(PipelineFileError) as error:
        load_spec(file)
    assert told in str(error.value)


def with_history(made: Dated, join: str) -> dict[int, Any]:
    """Lets versions end before the history, and rows ask for them later; returns the result, which is as it must be."""
    pipeline = made.pipeline
    made.land(0, [(i, "a", i) for i in (5, 15, 25, 95)], [("a", 10, 1), ("a", 20, 2), ("a", 30, 3), ("b", 10, 9)])
    pipeline.run()
    made.land(1, [], [("a", 90, 4), ("a", 100, 5)])
    pipeline.run()
    before = kept_by(join, {5: (None, None), 15: (1, 10), 25: (2, 20), 95: (4, 90)})
    assert made.result() == before
    pipeline.compact()  # the newest version begins at 100, so the history goes back to 90
    kept = sorted((row["k"], row["since"]) for row in pipeline.table("right_table").collect())
    assert kept == [("a", 90), ("a", 100), ("b", 10)]
    log = pipeline.table("right_changelog").where("since < 90").select("k", "since").collect()
    assert [tuple(row) for row in log] == [("b", 10)]
    assert made.result() == before  # what was answered stays

    # A version comes that has ended, and one that still holds; rows ask for closed times, and for the time before all.
    made.land(2, LATE, [("a", 12, 77), ("a", 95, 6)])
    pipeline.run()
    unmatched = {16: (None, None), 15: (None, None), 3: (None, None), 4: (None, None)}
    now = kept_by(join, before | {95: (6, 95), 96: (6, 95), 50: (9, 10)} | unmatched)
    assert made.result() == now
    counts = pipeline.ledger().state("resolved_join", 2).counts
    assert counts["expired"] == (3 if join == "left" else 2)  # 16, 3 and 15; in an inner join the row of 15 goes
    assert counts.get("retracted", 0) == (0 if join == "left" else 1)
    return now


LATE = [(16, "a", 16), (96, "a", 96), (15, "a", 25), (50, "b", 50), (3, "b", 3), (4, "c", 4)]


def kept_by(join: str, rows: dict[int, Any]) -> dict[int, Any]:
    return {key: row for key, row in rows.items() if join == "left" or row[0] is not None}


def history_of(dated: Callable[..., Dated], way: str, join: str) -> Dated:
    strategy = ", strategy: full" if way == "whole tables" else ""
    return dated(WAYS[way], join=join, settings=f"{{fold_after_hours: 0{strategy}}}\nhistory: 10")


@pytest.mark.slow
@pytest.mark.spark
def test_history_closes_old_times_and_removes_versions_that_ended(dated: Callable[..., Dated], told_alike: Any) -> None:
    made = history_of(dated, "by the driver", "left")
    with_history(made, "left")
    report = made.pipeline.verify()
    assert report.ok
    assert report.unproved == 3  # 25, which kept what it saw, and 15 and 16, which ask for what is not told any more
    assert made.red() == set()
    assert "what held then is not told any more" in told_alike(made.pipeline, "25").conclusion
    assert made.pipeline.impact("a", since="12").fan_out == 0


@pytest.mark.slow
@pytest.mark.spark
def test_only_what_no_batch_can_need_again_is_removed(
    dated: Callable[..., Dated], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "{fold_after_hours: 0}\nhistory: 10"
    made = dated(settings=settings, select="[id, fk, price, right.since AS since, 10 / (id - 7) AS ratio]")
    pipeline = made.pipeline
    made.land(0, [(1, "a", 25), (7, "a", 25)], [("a", 10, 1), ("a", 20, 2), ("a", 30, 3), ("b", 10, 1), ("b", 20, 2)])
    pipeline.run()
    made.land(1, [], [("a", 10, 9)])  # corrected: what ended it is the older writer
    made.land(2, [], [("a", 100, 4), ("b", 100, 4)])
    pipeline.run()
    assert made.result() == {1: (2, 20)}  # the ratio of 7 cannot be computed

    with faults.listening(dies_at("before commit of right_table")), pytest.raises(Killed):
        pipeline.compact()
    assert {row["since"] for row in pipeline.table("right_changelog").where("k = 'a'").collect()} == {10, 30, 100}
    assert made.red() == set()  # the right table still has what the changelog has lost
    late = made.folder / "right" / "3.jsonl"
    late.write_text('{"op": "u", "seq": -1, "k": "b", "since": 10, "price": 0}\n')
    pipeline.run()
    pipeline.compact()
    kept = sorted((row["k"], row["since"]) for row in pipeline.table("right_table").collect())
    assert kept == [("a", 10), ("a", 30), ("a", 100), ("b", 20), ("b", 100)]
    assert made.red() == set()
    assert made.result() == {1: (2, 20)}

    for column, proved in (("fk", True), ("price", False)):  # what a row of a closed time has from the left is proved
        with mutated(monkeypatch, {"resolved_join": Update("id = 1", {column: "9"})}):
            assert pipeline.verify().ok is not proved
    pipeline.rebuild(forget=True)
    assert made.result() == {1: (None, None)}  # not the version since 10, which is still there
    assert made.red() == set()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("join", ["left", "inner"])
def test_with_history_a_backfill_changes_no_row_and_landing_files_restore_it(
    dated: Callable[..., Dated], way: str, join: str
) -> None:
    made = history_of(dated, way, join)
    pipeline, now = made.pipeline, with_history(made, join)
    assert made.red() == set()
    for stage in ("responses", "resolved_join"):
        pipeline.run("0..2", stages=[stage])
    assert made.result() == now
    made.land(2, LATE)  # the late versions are taken back
    pipeline.run()
    assert made.result() == now | {95: (4, 90), 96: (4, 90)}
    pipeline.compact()
    assert made.red() == set()
    assert pipeline.verify().ok
    with pytest.raises(StateError, match="are made of rows of the right side that are not kept any more"):
        pipeline.rebuild()
    pipeline.rebuild(forget=True)
    assert made.result()[25] == (None, None) if join == "left" else 25 not in made.result()
    assert pipeline.verify().ok
    pipeline.rebuild("landing")
    everything = {5: (None, None), 15: (2, 20), 16: (1, 10), 25: (2, 20), 50: (9, 10), 95: (4, 90), 96: (4, 90)}
    assert made.result() == kept_by(join, everything | {3: (None, None), 4: (None, None)})
    assert pipeline.verify().unproved == 0
