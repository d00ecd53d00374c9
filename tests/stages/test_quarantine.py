"""Bad records: nothing of them is lost, and the batch goes on, unless the pipeline says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from fk_pipeline.errors import BadRecordError, StageError, UnsupportedEventError

pytestmark = pytest.mark.spark


def quarantined(made: Any) -> list[tuple[str, int, int, str, str]]:
    rows = made.pipeline.table("quarantine").collect()
    return sorted((r["_fk_side"], r["_fk_batch"], r["_fk_line"], r["_fk_reason"], r["_fk_raw"]) for r in rows)


def test_bad_lines_are_kept_with_place_reason_and_text_and_leave_with_a_corrected_file(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), "{broken", "", (2, "a", "v"), '{"op": "u", "id": "x"}'], [("a", "A"), "[]"])
    counts = made.pipeline.run()[0].counts[0]
    assert counts["read"] == 5 == counts["rows"] + counts["quarantined"] + counts["ignored: empty line"]
    assert made.result() == {1: ("v", "A"), 2: ("v", "A")}
    assert quarantined(made) == [
        ("left", 0, 2, "not a JSON object", "{broken"),
        ("left", 0, 5, "column id: x is not INT", '{"op": "u", "id": "x"}'),
        ("right", 0, 2, "not a JSON object", "[]"),
    ]
    made.land(0, [(1, "a", "v"), (2, "a", "w")], [("a", "A"), "[]"])
    made.pipeline.run()
    assert [row[0] for row in quarantined(made)] == ["right"]
    assert made.result() == {1: ("v", "A"), 2: ("w", "A")}


def test_on_bad_record_fail_applies_nothing_and_names_the_line(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", on_bad_record="fail")
    made.land(0, [(1, "a", "v"), "{broken"], [("a", "A")])
    with pytest.raises(BadRecordError, match="1 record") as caught:
        made.pipeline.run()
    assert caught.value.where.endswith("landing/left/00000000.jsonl:2")
    assert made.pipeline.table("left_changelog").isEmpty()
    ledger = made.pipeline.ledger()
    assert ledger.state("left_changelog", 0).last_event == "failed"
    assert ledger.due("left_changelog") == [0]
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.pipeline.run()
    assert made.result() == {1: ("v", "A")}


def test_a_truncate_is_refused_loudly(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    text = made.file.read_text().replace("format: rows", "format: debezium").replace("  op_column: op\n", "")
    made.file.write_text(text)
    from fk_pipeline.pipeline import Pipeline
    from fk_pipeline.spec import load_spec

    pipeline = Pipeline(load_spec(made.file), made.pipeline.session)
    made.land(0, ['{"op": "t", "before": null, "after": null, "source": {}}'])
    with pytest.raises(UnsupportedEventError, match="the left source was truncated"):
        pipeline.run()


def test_a_failing_expression_is_one_sentence_and_leaves_the_batch_due(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", foreign_key="cast(cast(fk AS INT) AS STRING)")
    made.land(0, [(1, "1", "v"), (2, "no number", "v")])
    with pytest.raises(StageError, match="CAST_INVALID_INPUT") as caught:
        made.pipeline.run()
    assert len(caught.value.what.splitlines()) == 1
    assert made.pipeline.ledger().due("left_changelog") == [0]
