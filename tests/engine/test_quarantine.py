"""Bad records: nothing of them is lost, and the batch goes on, unless the pipeline says otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fk_pipeline.errors import BadRecordError, StageError, UnsupportedEventError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.kinds.foreign_key.kind import Stage

pytestmark = pytest.mark.spark


def quarantined(made: Any) -> list[tuple[str, int, int, str, str]]:
    rows = made.pipeline.table("quarantine").collect()
    return sorted((r["_fk_side"], r["_fk_batch"], r["_fk_line"], r["_fk_reason"], r["_fk_raw"]) for r in rows)


@pytest.fixture(scope="module")
def bad(rows_pipeline: Any) -> tuple[Any, dict[int, dict[str, int]]]:
    """Two batches with bad lines, and the counts of their left changelog."""
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), "{broken", "", (2, "a", "v"), '{"op": "u", "id": "x"}'], [("a", "A"), "[]"])
    made.land(1, ["{bad", "{worse"])
    return made, made.pipeline.run()[0].counts


@pytest.mark.connect
def test_bad_lines_are_kept_with_place_reason_and_text(bad: tuple[Any, Any]) -> None:
    made, counts = bad
    for batch in (0, 1):
        found = counts[batch]
        assert found["read"] == found["rows"] + found["quarantined"] + found.get("ignored: empty line", 0)
    assert (counts[0]["read"], counts[0]["ignored: empty line"], counts[1]["read"]) == (5, 1, 2)
    assert made.result() == {1: ("v", "A"), 2: ("v", "A")}
    assert quarantined(made) == [
        ("left", 0, 2, "not a JSON object", "{broken"),
        ("left", 0, 5, "column id: x is not INT", '{"op": "u", "id": "x"}'),
        ("left", 1, 1, "not a JSON object", "{bad"),
        ("left", 1, 2, "not a JSON object", "{worse"),
        ("right", 0, 2, "not a JSON object", "[]"),
    ]


@pytest.mark.connect
def test_bad_lines_leave_with_a_corrected_file_and_with_a_withdrawn_batch(bad: tuple[Any, Any], copy_of: Any) -> None:
    made = copy_of(bad[0])
    made.land(0, [(1, "a", "v"), (2, "a", "w")], [("a", "A"), "[]"])
    made.pipeline.remove_batch(1)
    made.pipeline.run(stages=[Stage.LEFT_CHANGELOG])
    assert [row[:2] for row in quarantined(made)] == [("right", 0)]
    log = made.pipeline.table("left_changelog").collect()
    assert sorted((row["id"], row["v"]) for row in log) == [(1, "v"), (2, "w")]


def test_on_bad_record_fail_applies_nothing_and_names_the_line(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", on_bad_record="fail")
    made.land(0, [(1, "a", "v"), "{broken"], [("a", "A")])
    with pytest.raises(BadRecordError, match="1 record") as caught:
        made.pipeline.run()
    assert caught.value.where.endswith("landing/left/00000000.jsonl:2")
    assert made.pipeline.table("left_changelog").isEmpty()
    ledger = made.pipeline.ledger()
    assert ledger.state("left_changelog", 0).last_event == "failed"
    assert ledger.due.of("left_changelog") == [0]
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.pipeline.run(stages=[Stage.LEFT_CHANGELOG])
    assert [(row["id"], row["v"]) for row in made.pipeline.table("left_changelog").collect()] == [(1, "v")]
    assert made.pipeline.ledger().due.of("left_changelog") == []


def test_a_truncate_without_a_sequence_is_refused_loudly(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", left_extra="  sequence_by: note\n")
    made.land(0, ['{"op": "u", "id": 1, "note": "5"}', '{"op": "truncate"}'])
    with pytest.raises(UnsupportedEventError, match="the left source was truncated, and sequence_by is null"):
        made.pipeline.run()
    assert made.pipeline.table("left_changelog").isEmpty()


@pytest.mark.slow
def test_a_row_on_which_the_foreign_key_fails_is_quarantined_and_the_others_go_on(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", foreign_key="cast(cast(fk AS INT) + 1 AS STRING)")
    made.land(0, [(1, "1", "v"), (2, "no number", "v"), (3, "2147483647", "v"), (4, None, "v")], [("2", "two")])
    counts = made.pipeline.run()[0].counts[0]
    assert (counts["rows"], counts["quarantined"]) == (2, 2)
    assert made.result() == {1: ("v", "two"), 4: ("v", None)}
    reason = "foreign_key cast(cast(fk AS INT) + 1 AS STRING) fails on this row"
    assert [row[:4] for row in quarantined(made)] == [("left", 0, 2, reason), ("left", 0, 3, reason)]
    assert made.pipeline.verify().ok
    made.land(1, [(1, "x", "w"), (4, "1", "w")])
    made.pipeline.run()
    assert made.result() == {1: ("v", "two"), 4: ("w", "two")}


@pytest.mark.slow
def test_a_row_on_which_the_sequence_fails_is_quarantined(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", right_extra="  sequence_by: cast(note AS INT)\n")
    good, bad = '{"op": "u", "k": "a", "name": "A", "note": "7"}', '{"op": "u", "k": "b", "note": "x"}'
    made.land(0, [(1, "a", "v")], [good, bad])
    made.pipeline.run()
    assert made.result() == {1: ("v", "A")}
    assert quarantined(made) == [("right", 0, 2, "sequence_by cast(note AS INT) fails on this row", bad)]


@pytest.mark.slow
@pytest.mark.parametrize("join", ["inner", "left"])
def test_a_pair_that_cannot_be_computed_is_out_or_without_its_right_row_until_one_side_changes(
    rows_pipeline: Any, join: str
) -> None:
    made = rows_pipeline(join, select="[id, v, 'cast(10 / cast(right.name AS INT) AS STRING) AS name']")
    made.land(0, [(1, "a", "v"), (2, "b", "v"), (3, "c", "v")], [("a", "5"), ("b", "2")])
    made.pipeline.run()
    whole = {1: ("v", "2.0"), 2: ("v", "5.0")} | ({3: ("v", None)} if join == "left" else {})
    assert made.result() == whole
    made.land(1, (), [("a", "0"), ("b", "4")])
    counts = {run.stage: run.counts[1] for run in made.pipeline.run()}["resolved_join"]
    assert counts == {"joined": 1, "quarantined" if join == "inner" else "half-quarantined": 1}
    without = {key: row for key, row in whole.items() if key != 1} | {2: ("v", "2.5")}
    without |= {1: ("v", None)} if join == "left" else {}
    assert made.result() == without
    (row,) = made.pipeline.table("quarantine").collect()
    assert (row["_fk_side"], row["_fk_batch"], row["_fk_file"], row["_fk_line"]) == ("join", 1, None, None)
    assert row["_fk_reason"].startswith("select cast(10 / cast(right.name AS INT) AS STRING) AS name fails")
    assert json.loads(row["_fk_raw"])["right"] == {"k": "a", "name": "0"}
    assert made.pipeline.verify().ok
    found = violations(made.pipeline, Stage.RESOLVED_JOIN).findings
    assert not any(finding.value for finding in found.values())
    made.land(2, (), [("a", "10")])
    made.pipeline.run()
    assert made.result() == without | {1: ("v", "1.0")}
    made.pipeline.run("1")
    assert made.pipeline.table("quarantine").isEmpty()
    assert made.result() == without | {1: ("v", "1.0")}


@pytest.mark.connect
def test_on_bad_record_fail_counts_rows_that_cannot_be_computed(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner", select="[id, v, 'string(1 / id) AS name']", on_bad_record="fail")
    made.land(0, [(0, "a", "v")], [("a", "A")])
    with pytest.raises(BadRecordError, match="select string"):
        made.pipeline.run()
    assert made.result() == {}
    assert made.pipeline.table("verdicts").isEmpty(), "nothing was applied"
    assert made.pipeline.ledger().due.of("resolved_join") == [0]


@pytest.mark.connect
def test_an_error_that_is_not_about_rows_is_one_sentence_and_leaves_the_batch_due(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rows_pipeline("left", foreign_key="upper(fk)")
    made.land(0, [(1, "1", "v")])
    monkeypatch.setattr("fk_pipeline.engine.landing.mark_last", lambda *_: made.pipeline.session.sql("SELECT no_such"))
    with pytest.raises(StageError, match="no_such") as caught:
        made.pipeline.run()
    assert len(caught.value.what.splitlines()) == 1
    assert made.pipeline.ledger().due.of("left_changelog") == [0]
