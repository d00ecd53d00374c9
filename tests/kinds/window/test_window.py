"""Joins within a span of time: pairs that follow late, corrected and withdrawn batches, and rows that stand alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.blocks import changelog
from fk_pipeline.blocks.times import FARTHEST
from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.kinds.window.clock import stands_for
from fk_pipeline.kinds.window.topology import topology
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from fk_pipeline.store.ledger.commits import row_metadata
from tests.any_order.subjects import WAYS
from tests.deaths import Killed, dies_at
from tests.kinds.window.near import FILE, SELECT, Near


@pytest.mark.spark
@pytest.mark.parametrize("way", [pytest.param(w, marks=() if w == "by the driver" else pytest.mark.slow) for w in WAYS])
def test_a_late_match_takes_the_unmatched_row_back_and_a_withdrawn_batch_lets_it_stand_alone_again(
    near: Callable[..., Near], way: str
) -> None:
    made = near(WAYS[way], settings="{strategy: full}" if way == "whole tables" else "{}")
    pipeline = made.pipeline
    made.land(0, [("a", 10), ("b", 10), (None, 10), ("c", 12)], [("a", 8), ("a", 13), ("a", 14), ("b", 20)])
    pipeline.run()
    assert made.result() == [
        ("a", 10, 13),
        ("a", 10, 8),
        ("a", None, 14),
        ("b", 10, None),
        ("c", 12, None),
        (None, 10, None),
    ]

    made.land(1, [("d", 30)], [("b", 12)])  # b has its match, the clock closes what waited
    pipeline.run()
    first = [
        ("a", 10, 13),
        ("a", 10, 8),
        ("a", None, 14),
        ("b", 10, 12),
        ("b", None, 20),
        ("c", 12, None),
        (None, 10, None),
    ]
    assert made.result() == first
    changes = pipeline.changes(1).select("user", "l", "r", "_change_type").collect()
    assert sorted(map(tuple, changes), key=str) == [
        ("b", 10, 12, "insert"), ("b", 10, None, "delete"), (None, None, 20, "insert"),
    ]  # fmt: skip

    made.land(2, [("b", 19), ("b", 50)], [("a", 31)])  # a right row that stood alone is matched
    pipeline.run()
    second = sorted(
        [row for row in first if row != ("b", None, 20)] + [("b", 19, 20), ("d", 30, None), ("a", None, 31)], key=str
    )
    assert made.result() == second

    made.land(2)  # it is taken back, and the clock with it
    made.land(1, [("d", 30)])
    pipeline.run()
    third = [row for row in first if row[:2] != ("b", 10)] + [("b", 10, None)]
    assert made.result() == sorted(third, key=str)
    assert made.red() == set()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("join", ["inner", "left"])
def test_an_inner_join_has_pairs_only_and_a_left_join_no_right_row_alone(near: Callable[..., Near], join: str) -> None:
    made = near(join=join)
    made.land(0, [("a", 10), ("b", 10)], [("a", 8), ("c", 11), ("z", 99)])
    made.pipeline.run()
    alone = [("b", 10, None)] if join == "left" else []
    assert made.result() == [("a", 10, 8), *alone]
    assert made.pipeline.verify().ok
    assert made.red() == set()


@pytest.mark.slow
@pytest.mark.spark
def test_rows_stand_alone_at_once_if_the_file_says_so(near: Callable[..., Near]) -> None:
    made = near(options="unmatched: at_once")
    made.land(0, [("a", 10)], [("b", 10)])
    made.pipeline.run()
    assert made.result() == [("a", 10, None), ("b", None, 10)]
    made.land(1, [("b", 9)], [("a", 11)])
    made.pipeline.run()
    assert made.result() == [("a", 10, 11), ("b", 9, 10)]
    assert made.pipeline.verify().ok
    assert made.red() == set()


def joined_to_itself(near: Callable[..., Near], optimize: str) -> Near:
    """Returns a pipeline of one stream, once it ran, with the pairs and the stores that it must have."""
    made = near(right="left", settings=f"{{optimize: {optimize}}}")
    made.land(0, [("a", 1), ("a", 3), ("a", 9), ("b", 20)])
    made.pipeline.run()
    pairs = [("a", 1, 1), ("a", 1, 3), ("a", 3, 1), ("a", 3, 3), ("a", 9, 9), ("b", 20, 20)]
    assert made.result() == sorted(pairs, key=str)
    rights = made.pipeline.table("right_table").count() if optimize == "none" else 0
    assert made.pipeline.table("left_table").count() == 4
    assert rights == (4 if optimize == "none" else 0)
    return made


@pytest.mark.spark
def test_a_stream_joined_to_itself_has_one_store(near: Callable[..., Near]) -> None:
    joined_to_itself(near, "all")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("optimize", ["all", "none"])
def test_a_stream_joined_to_itself_follows_a_corrected_batch(near: Callable[..., Near], optimize: str) -> None:
    made = joined_to_itself(near, optimize)
    made.land(0, [("a", 1), ("b", 20)])
    made.pipeline.run()
    assert made.result() == [("a", 1, 1), ("b", 20, 20)]
    assert made.red() == set()


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_that_dies_before_and_after_its_commit_leaves_nothing_wrong(near: Callable[..., Near]) -> None:
    made = near()
    made.land(0, [("a", 10)], [("b", 10)])
    made.land(1, [("z", 30)])
    for point in ("before commit of resolved_join", "after commit of resolved_join"):
        with faults.listening(dies_at(point)), pytest.raises(Killed):
            made.pipeline.run()
    made.land(1, [("z", 12)])  # the clock goes back before the run that died is repeated
    made.pipeline.run()
    assert made.result() == []
    assert made.pipeline.verify().ok
    assert made.red() == set()


@pytest.mark.spark
@pytest.mark.slow
def test_a_pair_on_which_an_expression_fails_is_no_pair(near: Callable[..., Near]) -> None:
    made = near(
        select="[left.user AS user, left.at AS l, right.at AS r, right.user AS right_user, 1 / (right.at - 12) AS x]"
    )
    made.land(0, [("a", 10), ("b", 10)], [("a", 12), ("b", 11), ("c", 50)])
    made.pipeline.run()
    assert made.result() == [("a", 10, None), ("b", 10, 11)]
    counts = made.pipeline.ledger().state("resolved_join", 0).counts
    assert counts["quarantined"] == 2  # the pair, and the right row that would stand alone
    assert made.pipeline.verify().ok
    made.land(1, [], [("c", 90)])
    made.pipeline.run()
    made.pipeline.run("0", stages=["resolved_join"])  # its records stay
    assert made.pipeline.table("quarantine").count() == 2
    assert made.pipeline.verify().ok
    assert made.red() == set()


def with_a_refused_match(near: Callable[..., Near]) -> Near:
    """Returns a pipeline that refused the only match of two rows, once the clock has passed both."""
    fails = "1 / (left.at - right.at + 2) AS x"
    made = near(select=f"[left.user AS user, left.at AS l, right.at AS r, right.user AS right_user, {fails}]")
    made.land(0, [("a", 10)], [("a", 12)])
    made.pipeline.run()
    assert made.result() == []
    made.land(1, [], [("c", 50)])  # the clock passes both, of which none is an anchor of a pair
    made.pipeline.run()
    assert made.result() == [("a", 10, None), ("a", None, 12)]
    return made


@pytest.mark.connect
@pytest.mark.spark
def test_a_row_whose_only_match_is_refused_stands_alone_when_the_clock_passes_it(near: Callable[..., Near]) -> None:
    assert with_a_refused_match(near).pipeline.verify().ok


@pytest.mark.slow  # matches that come and go: the first test
@pytest.mark.connect
@pytest.mark.spark
def test_its_match_may_get_another_row_and_lose_it(near: Callable[..., Near]) -> None:
    made = with_a_refused_match(near)
    made.land(2, [("a", 11)], [])
    made.pipeline.run()
    assert made.result() == [("a", 10, None), ("a", 11, 12)]
    made.land(2, [], [])
    made.pipeline.run()
    assert made.result() == [("a", 10, None), ("a", None, 12)]
    assert made.pipeline.verify().ok
    assert made.red() == set()
    assert made.pipeline.table("quarantine").count() == 1  # however often a refresh looked at the pair


@pytest.mark.slow
@pytest.mark.spark
def test_times_may_be_timestamps_and_a_row_without_one_is_quarantined(near: Callable[..., Near]) -> None:
    made = near(time="TIMESTAMP")
    times = [f"2026-05-01T10:00:00.00{i}Z" for i in range(10)]
    made.land(0, [("a", times[1]), ("a", None), ("b", times[1])], [("a", times[4]), ("c", times[9])])
    made.pipeline.run()
    found = [(user, left is not None, right is not None) for user, left, right in made.result()]
    assert found == [("a", True, True), ("b", True, False)]
    bad = made.pipeline.table("quarantine").collect()
    assert [(row["_fk_side"], row["_fk_line"], row["_fk_reason"]) for row in bad] == [("left", 2, "time at is null")]
    assert made.pipeline.verify().ok
    assert made.red() == set()


@pytest.mark.spark
def test_the_ends_of_the_range_of_times_meet_and_times_behind_them_are_quarantined(near: Callable[..., Near]) -> None:
    made = near()
    ends, behind = [-FARTHEST, FARTHEST], [-(2**63), 2**63 - 1]
    made.land(0, [("a", at) for at in (*ends, *behind)], [("a", at) for at in (5, *ends, *behind)])
    made.pipeline.run()
    assert made.result() == sorted([("a", None, 5), *[("a", at, at) for at in ends]], key=str)
    reasons = [row.reason for row in made.pipeline.quarantined().select("reason").collect()]
    assert reasons == [f"time at is not between {-FARTHEST} and {FARTHEST}"] * 4
    assert made.pipeline.verify().ok


@pytest.mark.slow
@pytest.mark.spark
def test_the_ends_of_the_range_of_times_meet_and_times_behind_them_do_so_if_an_older_version_let_them_in(
    near: Callable[..., Near], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = near(select="[left.user AS user, left.at AS l, right.at AS r, right.user AS right_user]")
    ends, behind = [-FARTHEST, FARTHEST], [-(2**63), 2**63 - 1]
    made.land(0, [("a", at) for at in (*ends, *behind)], [("a", at) for at in (5, *ends, *behind)])
    with monkeypatch.context() as older:
        older.setattr(changelog, "unfit", lambda *_: "CAST(NULL AS STRING)")
        made.pipeline.run()
    assert len(made.result()) == 9  # 5 is alone; what is behind an end meets what is at it
    assert made.pipeline.verify().ok
    made.land(1, [("b", ends[0]), ("b", behind[0])], [("b", ends[1]), ("b", behind[1])])
    made.pipeline.rebuild("landing")
    assert made.result() == sorted([("a", None, 5), *[("a", at, at) for at in ends], ("b", ends[0], None)], key=str)
    reasons = made.pipeline.quarantined().select("reason").distinct().collect()
    assert [row.reason for row in reasons] == [f"time at is not between {-FARTHEST} and {FARTHEST}"]
    assert made.pipeline.quarantined().count() == 6
    assert made.red() == set()


@pytest.fixture(scope="module")
def late_match(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Pipeline:
    """Returns a pipeline whose batch 2 brings the match of a row of batch 0 late. It is only read."""
    made = Near(tmp_path_factory.mktemp("near"), spark)
    made.land(0, [("a", 10)])
    made.land(1, [("y", 25), ("b", 26)], [("y", 26), ("c", 27), ("d", 30)])
    made.land(2, [], [("a", 12)])
    made.pipeline.run()
    return made.pipeline


@pytest.mark.spark
def test_the_result_tells_its_clock_and_how_many_rows_are_open(late_match: Pipeline) -> None:
    path = f"{late_match.spec.home}/resolved_join"
    found = stands_for(row_metadata(path, DeltaTable(path).version()))
    assert found == {"clock": "30", "open rows": "3"}  # left from 26 on, right from 27 on


@pytest.mark.spark
def test_explain_tells_of_matches_that_came_late(late_match: Pipeline, told_alike: Callable[..., Any]) -> None:
    [place], [right] = (
        [row["event"] for row in late_match.table(name).where("user = 'a'").collect()]
        for name in ("left_table", "right_table")
    )
    story = told_alike(late_match, place)
    assert story.as_expected
    [partner] = story.as_json()["partners"]
    assert (partner["batch"], partner["written_in"], partner["late_by"]) == (2, 2, "0:00:00.016000")
    assert any("it stood alone until then" in event[2] for event in story.events())
    assert told_alike(late_match, f"right.{right}").as_expected
    assert told_alike(late_match, right, "impact").as_json() == {"pairs": 1, "matching": 1}
    with pytest.raises(UsageError, match="that of one right row"):
        late_match.impact()
    assert "No batch has brought this key" in told_alike(late_match, "7/nowhere/1").sentences()[1]


@pytest.mark.parametrize(
    ("optimize", "right", "applied"),
    [
        ("all", "left", ["single.store.self.join", "merge.repartition.topics"]),
        ("[single.store.self.join]", "left", ["single.store.self.join"]),
        ("none", "left", []),
        ("all", "right", []),
    ],
)
def test_a_plan_says_which_rules_apply_and_why(tmp_path: Path, optimize: str, right: str, applied: list[str]) -> None:
    file = tmp_path / "pipeline.yaml"
    settings = f"{{optimize: {optimize}}}"
    file.write_text(FILE.format(join="left", options="", time="BIGINT", right=right, select=SELECT, settings=settings))
    found = topology(load_spec(file))
    assert [one.rule for one in found.rules if one.applied] == applied
    assert len(found.rules) == 3
    assert all(one.why for one in found.rules)
    assert (found.after != found.before) is ("single.store.self.join" in applied)


def test_a_plan_begins_with_the_rules_only_if_it_is_verbose(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(join="left", options="", time="BIGINT", right="right", select=SELECT, settings="{}"))
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
    plan = CliRunner().invoke(app, ["plan", str(file)]).stdout
    assert plan.endswith("Nothing is due.\n")
    assert not {"Operators:", "applied"} & {*plan.split()}
    assert "Operators:" in CliRunner().invoke(app, ["plan", str(file), "--verbose"]).stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "on: user, time: at}\nright",
            "on: [user, v], time: at}\nright",
            "on has 2 expression(s) on the left, 1 on the right",
        ),
        ("settings: {}", "settings: {optimize: [all, single.store.self.join]}", "'all' combines with nothing"),
        (
            "settings: {}",
            "settings: {optimize: store}",
            "'store' is no rule; there are all, none, single.store",
        ),
        ("grace: 1 milliseconds", "grace: soon", "'soon' is no span of time"),
        ("grace: 1 milliseconds", "as_of: at", "unknown key 'as_of'"),
        (
            "on: user, time: at}\nright",
            "on: user, time: soon}\nright",
            "reads column 'soon', which is not in the schema",
        ),
        ("within: {before", "within: {befor", "unknown key 'within.befor'; did you mean 'before'?"),
        ("unmatched", "unmatched", "'within' is missing"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = FILE.format(join="left", options="", time="BIGINT", right="right", select=SELECT, settings="{}")
    if "missing" in message:
        text = "\n".join(line for line in text.splitlines() if not line.startswith("within"))
    file = tmp_path / "pipeline.yaml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(PipelineFileError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        load_spec(file)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("schema", "message"),
    [("user INT, at BIGINT, v INT", "left.on 'user' is int"), ("user STRING, at DATE, v INT", "left.time is DATE")],
)
def test_types_that_do_not_fit_are_refused(near: Callable[..., Near], schema: str, message: str) -> None:
    made = near()
    made.land(0, [("a", 1)], [("a", 1)])
    made.file.write_text(made.file.read_text().replace("user STRING, at BIGINT, v INT", schema, 1))
    with pytest.raises(PipelineFileError, match=message):
        Pipeline(load_spec(made.file), made.pipeline.session).run()
