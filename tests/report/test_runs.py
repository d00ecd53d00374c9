"""A report after real runs: its numbers are those of the tables, its stories those that `explain` tells."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.report.page import DOCUMENT_ID, number


@pytest.fixture(scope="module")
def made(rows_pipeline: Any) -> Any:
    """An outer join that was run twice: rows came, changed, went, were late, alone and in the quarantine."""
    made = rows_pipeline("outer")
    made.land(0, [(1, "a", "v"), (2, "a", "x"), (3, "none", "y"), "no json"], [("a", "A"), ("z", "alone")])
    made.land(1, [(4, "b", "<b>w</b>")], [("b", "B")])
    made.pipeline.run()
    made.land(2, [(1, "b", "v"), (2,), (5, "a", "new")], [("a", "A2")])
    made.pipeline.run()
    return made


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no session start."""

    def fail(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("fk_pipeline.session.start_session", fail)


@pytest.mark.usefixtures("alone")
def test_a_report_says_what_the_tables_have(made: Any, command: Callable[..., Any], tmp_path: Path) -> None:
    said = command("report", made.file, "--format", "json")
    assert (said.status, said.err) == (0, "")
    (facts,) = json.loads(said.out)["pipelines"]
    rows = made.pipeline.table("resolved_join").collect()
    matched = sum(row["_fk_left_hash"] is not None and row["_fk_right_hash"] is not None for row in rows)
    totals = facts["totals"]
    assert (totals["rows"], totals["matched"], totals["unmatched"]) == (len(rows), matched, len(rows) - matched)
    assert (totals["quarantined"], totals["batches"]) == (1, 3)
    assert facts["state"]["sentence"] == "Up to date."
    (record,) = facts["quarantine"]
    assert (record["text"], record["line"], record["batch"]) == ("no json", 4, 0)
    verdicts = Counter(row["_fk_verdict"] for row in made.pipeline.table("verdicts").where("_fk_batch = 2").collect())
    changed = facts["batches"][0]["changed"]
    assert {name: changed.get(name, 0) for name in ("joined", "retracted")} == {
        name: verdicts[name] for name in ("joined", "retracted")
    }
    boxes = {box["name"]: box["rows"] for box in facts["graph"]["boxes"]}
    for table in ("left_changelog", "right_table", "subscription_store", "responses", "resolved_join"):
        assert boxes[table] == made.pipeline.table(table).count()

    page = tmp_path / "report.html"
    assert command("report", made.file, "--output", page).status == 0
    text = page.read_text()
    embedded = re.search(f'id="{DOCUMENT_ID}">(.*?)</script>', text)
    assert embedded is not None
    assert json.loads(embedded[1])["pipelines"] == json.loads(said.out)["pipelines"]
    assert all(number(value) in text for value in boxes.values())
    assert "&lt;b&gt;w&lt;/b&gt;" in text


@pytest.mark.usefixtures("alone")
def test_the_rows_that_changed_last_have_the_stories_that_explain_tells(made: Any, command: Callable[..., Any]) -> None:
    (facts,) = json.loads(command("report", made.file, "--format", "json").out)["pipelines"]
    rows = {row["key"]: row for row in facts["rows"]["rows"]}
    changes = {change["_fk_pk_id"]: change["_change_type"] for change in made.pipeline.changes(2).collect()}
    assert {int(key): row["change"] for key, row in rows.items() if row["batch"] == 2 and key.isdigit()} == {
        key: kind for key, kind in changes.items() if key is not None
    }
    assert {"1", "2", "3", "4", "5", "right.z"} <= {*rows}
    assert (rows["2"]["change"], rows["5"]["change"]) == ("delete", "insert")
    for key, row in rows.items():
        story = made.pipeline.explain(key, notify=pytest.fail)
        assert row["story"]["heading"] == story.heading
        assert row["story"]["sentences"] == story.sentences()
        assert [tuple(event) for event in row["story"]["events"]] == story.events()
    assert facts["left_out"] == []
