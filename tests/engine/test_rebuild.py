"""`rebuild`: state and result anew, swapped in at once; and the refusals that name the rebuild that mends them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.engine.fingerprints import STATE_VERSION
from fk_pipeline.errors import BadRecordError, StateError, UsageError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from tests.deaths import Killed
from tests.engine.conftest import ALONE, BEGUN

pytestmark = pytest.mark.spark

LEFT = [(1, "a", "v1"), (2, "b", "v2"), (3, None, "v3"), (4, "gone", "v4")]


@pytest.fixture(scope="module")
def prepared(rows_pipeline: Callable[..., Any]) -> Any:
    """Three batches of a left join, one of them restated: some rows with a match, some without."""
    prepared = rows_pipeline("left")
    prepared.land(0, LEFT, [("a", "A"), ("b", "B"), ("gone", "G")])
    prepared.pipeline.run()
    prepared.land(0, LEFT[:3], [("a", "A"), ("b", "B0"), ("gone", "G")])
    prepared.land(1, [(1, "b", "v1")], [("gone",)])
    prepared.land(2, [(5, "a", "v5")], [("b", "B2")])
    prepared.pipeline.run()
    return prepared


@pytest.fixture
def made(prepared: Any, rows_pipeline: Callable[..., Any]) -> Any:
    """A copy of it."""
    made = rows_pipeline("left")
    shutil.copytree(prepared.folder, made.folder, dirs_exist_ok=True)
    return made


RESULT = {1: ("v1", "B2"), 2: ("v2", "B2"), 3: ("v3", None), 5: ("v5", "A")}


def edited(made: Any, *edits: tuple[str, str]) -> Pipeline:
    text = made.file.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    made.file.write_text(text)
    made.pipeline = Pipeline(load_spec(made.file), made.pipeline.session)
    return made.pipeline


def history(pipeline: Pipeline, table: str) -> list[str]:
    rows = pipeline.session.sql(f"DESCRIBE HISTORY delta.`{pipeline.spec.home}/{table}`").collect()
    return [row["userMetadata"] or "" for row in reversed(rows)]


def is_whole(pipeline: Pipeline) -> bool:
    report = pipeline.verify()
    return report.ok and report.due == 0 and not Path(pipeline.spec.home, "rebuilding").exists()


@pytest.mark.slow
def test_damaged_state_and_result_are_made_anew(made: Any) -> None:
    home = made.pipeline.spec.home
    made.pipeline.session.sql(f"DELETE FROM delta.`{home}/subscription_store` WHERE _fk_pk_id = 1")
    made.pipeline.session.sql(f"DELETE FROM delta.`{home}/resolved_join` WHERE id = 5")
    made.pipeline.rebuild("changelog")
    assert made.result() == RESULT
    assert is_whole(made.pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["changelog", "landing"])
def test_the_history_of_what_is_made_anew_stays_and_batches_go_on(made: Any, source: str) -> None:
    assert made.result() == RESULT
    home = made.pipeline.spec.home
    made.pipeline.session.sql(f"DELETE FROM delta.`{home}/subscription_store` WHERE _fk_pk_id = 1")
    made.pipeline.session.sql(f"UPDATE delta.`{home}/resolved_join` SET name = 'wrong' WHERE id = 2")
    made.pipeline.session.sql(f"DELETE FROM delta.`{home}/resolved_join` WHERE id = 5")
    assert not made.pipeline.verify().ok
    before = history(made.pipeline, "resolved_join")
    done = made.pipeline.rebuild(source)
    assert made.result() == RESULT
    assert is_whole(made.pipeline)
    after = history(made.pipeline, "resolved_join")
    assert after[: len(before)] == before
    assert ['"stage": "rebuild"' in text for text in after[len(before) :]] == [True]
    rows = {stage.stage: stage.rows for stage in done}
    assert rows[Stage.SUBSCRIPTION_STORE] == {"subscription_store": 4}
    assert rows[Stage.RESOLVED_JOIN]["resolved_join"] == 4
    assert (Stage.LEFT_CHANGELOG in rows) == (source == "landing")
    made.land(3, [(5, "b", "v5")], [("a", "A3")])
    made.land(1, [], [("gone",)])
    made.pipeline.run()
    assert made.result() == RESULT | {1: ("v1", "A3"), 5: ("v5", "B2")}
    assert is_whole(made.pipeline)


@pytest.mark.slow
def test_the_change_feed_of_the_result_has_only_the_rows_that_differ(made: Any) -> None:
    home = made.pipeline.spec.home
    made.pipeline.session.sql(f"UPDATE delta.`{home}/resolved_join` SET name = 'wrong' WHERE id = 2")
    version = made.pipeline.runner.warehouse.version("resolved_join")
    made.pipeline.rebuild("changelog", ["resolved_join"])
    feed = made.pipeline.session.read.option("readChangeFeed", "true").option("startingVersion", version + 1)
    rows = feed.format("delta").load(f"{home}/resolved_join").collect()
    assert sorted((row["_change_type"], row["id"], row["name"]) for row in rows) == [
        ("update_postimage", 2, "B2"),
        ("update_preimage", 2, "wrong"),
    ]


@pytest.mark.slow
def test_an_inner_join_after_a_left_join_leaves_no_row_behind(made: Any) -> None:
    pipeline = edited(made, ("join: left", "join: inner"))
    with pytest.raises(StateError) as refused:
        pipeline.run()
    command = f"fk-pipeline rebuild {made.file} --from changelog --stages subscription_store,responses,resolved_join"
    assert command in refused.value.fix
    done = pipeline.rebuild("changelog", ["subscription_store"])
    assert [stage.stage for stage in done] == [Stage.SUBSCRIPTION_STORE, Stage.RESPONSES, Stage.RESOLVED_JOIN]
    assert made.result() == {key: row for key, row in RESULT.items() if row[1] is not None}
    assert is_whole(pipeline)
    assert pipeline.run() == []


@pytest.mark.slow
def test_an_edited_selection_and_foreign_key_are_computed_from_the_changelogs(made: Any) -> None:
    warehouse = made.pipeline.runner.warehouse
    pipeline = edited(
        made,
        ("select: [id, v, name]", "select: [id, upper(v) AS v, name, fk]"),
        ("foreign_key: fk", "foreign_key: lower(fk)"),
    )
    with pytest.raises(StateError, match="select was"):
        pipeline.run()
    with pytest.raises(UsageError, match="not be enough"):
        pipeline.rebuild("changelog", ["responses"])
    version = warehouse.version("left_changelog")
    assert [stage.stage for stage in pipeline.rebuild()] == [stage for stage in Stage if stage != Stage.LEFT_CHANGELOG]
    assert warehouse.version("left_changelog") == version
    assert made.result() == {key: (v.upper(), name) for key, (v, name) in RESULT.items()}
    assert pipeline.table("resolved_join").where("fk = 'b'").count() == 2
    assert is_whole(pipeline)
    made.land(4, [(9, "A", "v9")], [("a", "A4")])
    pipeline.run()
    assert made.result()[9] == ("V9", "A4")
    assert is_whole(pipeline)


@pytest.mark.slow
def test_another_type_needs_the_landing_files(made: Any) -> None:
    pipeline = edited(made, ("v STRING, note STRING", "v STRING, note INT"))
    with pytest.raises(StateError) as refused:
        pipeline.run()
    assert f"fk-pipeline rebuild {made.file} --from landing" in refused.value.fix
    with pytest.raises(UsageError, match="not be enough"):
        pipeline.rebuild()
    file = made.folder / "landing" / "left" / f"{1:08d}.jsonl"
    kept = file.read_text()
    file.unlink()
    with pytest.raises(StateError, match="are gone"):
        pipeline.rebuild("landing")
    file.write_text(kept)
    pipeline.rebuild("landing")
    assert made.result() == RESULT
    assert dict(pipeline.table("left_changelog").dtypes)["note"] == "int"
    assert is_whole(pipeline)


@pytest.mark.slow
def test_a_foreign_key_that_fails_on_a_stored_row_changes_nothing(made: Any) -> None:
    pipeline = edited(made, ("foreign_key: fk", "foreign_key: CAST(CAST(fk AS INT) AS STRING)"))
    with pytest.raises(StateError, match="the rebuild failed"):
        pipeline.rebuild()
    edited(made, ("foreign_key: CAST(CAST(fk AS INT) AS STRING)", "foreign_key: fk"))
    assert is_whole(made.pipeline)
    assert made.result() == RESULT


@pytest.mark.slow
def test_an_unknown_state_version_is_refused_and_names_the_rebuild(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fk_pipeline.engine.fingerprints.STATE_VERSION", STATE_VERSION + 1)
    monkeypatch.setattr("fk_pipeline.engine.fingerprints.WHOLE_ROWS_SINCE", STATE_VERSION + 1)
    with pytest.raises(StateError) as refused:
        made.pipeline.run()
    assert f"fk-pipeline rebuild {made.file} --from landing" in refused.value.fix
    made.pipeline.rebuild("landing")
    assert is_whole(made.pipeline)
    assert made.pipeline.run() == []


@pytest.mark.slow
def test_a_lost_ledger_is_mended_from_the_landing_files(made: Any) -> None:
    for table in ("files", "batches", "runs", "fingerprints"):
        shutil.rmtree(Path(made.pipeline.spec.home, table))
    with pytest.raises(StateError, match="no ledger"):
        made.pipeline.run()
    file = made.folder / "landing" / "left" / f"{2:08d}.jsonl"
    other = made.folder / "landing" / "right" / f"{2:08d}.jsonl"
    kept = file.rename(made.folder / "kept"), other.rename(made.folder / "kept too")
    with pytest.raises(StateError, match="have no landing files, the first: 2"):
        made.pipeline.rebuild("landing")
    for here, there in zip(kept, (file, other), strict=True):
        here.rename(there)
    made.pipeline.rebuild("landing")
    assert made.result() == RESULT
    assert is_whole(made.pipeline)


FIRST = "after entry in rebuilds"
"""The point at which the swap begins."""


def rebuild_and_die(made: Any, wanted: Callable[[list[str]], bool]) -> list[str]:
    """A rebuild that dies at the first point at which `wanted` says so of all points so far; those points."""
    points: list[str] = []

    def die(point: str) -> None:
        points.append(point)
        if wanted(points):
            raise Killed

    with faults.listening(die), contextlib.suppress(Killed):
        made.pipeline.rebuild("changelog", ["subscription_store"])
    made.pipeline = Pipeline(made.pipeline.spec, made.pipeline.session)
    return points


INNER = {key: row for key, row in RESULT.items() if row[1] is not None}

DEATHS: dict[str, tuple[str, int]] = {
    "before the result is swapped": ("before commit of resolved_join", 2),
    "before it is finished": ("before entry in rebuilds", 2),
}


@pytest.mark.connect
def test_a_rebuild_that_dies_before_it_is_ready_changes_nothing(begun: Callable[..., Any]) -> None:
    made, point = begun("left"), "before entry in rebuilds"
    edited(made, ("join: left", "join: inner"))
    assert rebuild_and_die(made, lambda seen: seen[-1] == point)[-1] == point
    assert made.pipeline.ledger().rebuilds.unfinished is None
    with pytest.raises(StateError, match="join was 'left'"):
        made.pipeline.run()
    edited(made, ("join: inner", "join: left"))
    assert made.result() == BEGUN | ALONE
    assert made.pipeline.verify().ok


@pytest.mark.slow
@pytest.mark.connect
@pytest.mark.parametrize("death", DEATHS)
def test_a_rebuild_that_dies_is_swapped_in_whole(made: Any, death: str) -> None:
    edited(made, ("join: left", "join: inner"))
    point, number = DEATHS[death]
    points = rebuild_and_die(made, lambda seen: seen.count(point) == number and seen[-1] == point)
    assert points[-1] == point
    with pytest.raises(StateError, match="swapped in"):
        made.pipeline.verify()
    with pytest.raises(StateError, match="swapped in"):
        made.pipeline.export(made.folder / "out.jsonl")
    plan = made.pipeline.plan()
    assert (plan.stale, plan.due) == ({}, 0)
    assert "swaps in the rest" in plan.fix
    assert made.pipeline.run() == []
    assert made.result() == INNER
    assert is_whole(made.pipeline)


@pytest.mark.slow
def test_a_rebuild_after_one_that_died_finishes_that_one_first(made: Any) -> None:
    """A new batch that only the first had read is in the changelogs once."""
    made.land(7, [(8, "a", "v8")], [("z", "Z")])
    dies = ("before entry in runs", "before commit of right_table")
    seen: list[str] = []

    def die(point: str) -> None:
        seen.append(point)
        if "after entry in rebuilds" in seen and point in dies:
            raise Killed

    with faults.listening(die), contextlib.suppress(Killed):
        made.pipeline.rebuild("landing")
    made.pipeline = Pipeline(made.pipeline.spec, made.pipeline.session)
    assert made.pipeline.ledger().rebuilds.unfinished is not None
    made.pipeline.rebuild()
    made.pipeline.run()
    assert made.result() == RESULT | {8: ("v8", "A")}
    assert made.pipeline.table("left_changelog").where("_fk_batch = 7").count() == 1
    assert is_whole(made.pipeline)


@pytest.mark.slow
def test_rows_of_a_batch_that_fails_stay_and_the_batch_stays_due(made: Any) -> None:
    made.land(2, [(5, "a", "v5")], ["{bad"])
    edited(made, ("on_bad_record: quarantine", "on_bad_record: fail"), ("join: left", "join: inner"))
    made.pipeline.discover()
    with pytest.raises(StateError, match="join was 'left'"):
        made.pipeline.run()
    edited(made, ("join: inner", "join: left"))
    with pytest.raises(BadRecordError):
        made.pipeline.run()
    made.pipeline.rebuild()
    assert made.result() == RESULT
    assert 2 in made.pipeline.due()[Stage.RIGHT_TABLE]
    made.land(2, [(5, "a", "v5")], [("b", "B3")])
    made.pipeline.run()
    assert made.result() == RESULT | {1: ("v1", "B3"), 2: ("v2", "B3")}
    assert is_whole(made.pipeline)


@pytest.mark.slow
def test_a_second_row_of_a_key_is_damage_that_a_rebuild_mends(made: Any) -> None:
    table = f"delta.`{made.pipeline.spec.home}/resolved_join`"
    made.pipeline.session.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id IN (1, 2)")
    assert made.pipeline.verify().unexpected == 2
    made.pipeline.rebuild("changelog", ["resolved_join"])
    assert made.result() == RESULT
    assert is_whole(made.pipeline)


@pytest.mark.slow
def test_a_rebuild_may_die_at_every_point_of_its_swap(made: Any) -> None:
    edited(made, ("join: left", "join: inner"))
    swap = 1
    while True:
        seen = rebuild_and_die(made, lambda seen, at=swap: FIRST in seen and len(seen) - seen.index(FIRST) > at)
        assert FIRST in seen
        if made.pipeline.ledger().rebuilds.unfinished is None:
            break
        if swap % 2:
            made.pipeline.run("0", ["right_table"])
        else:
            made.pipeline.rebuild()
        made.pipeline.run()
        assert made.result() == INNER
        assert is_whole(made.pipeline)
        edited(made, ("join: inner", "join: left"))
        made.pipeline.rebuild()
        assert made.result() == RESULT
        edited(made, ("join: left", "join: inner"))
        swap += 1
    assert swap > 10
    assert made.result() == INNER
