"""What the report says is what the ledger and the tables have; it is read without Spark, quickly, and is small."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.errors import StateError, UsageError
from fk_pipeline.identity import BatchId, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.readable import answer_in_process
from fk_pipeline.report.document import QUICK, Document, Effort, document_of, facts_of
from fk_pipeline.report.page import DOCUMENT_ID, number, page_of
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import WRITTEN_SUFFIX
from tests.report.world import HOSTILE, JOINED, SECRET, joined, land, opened, people, ran

MOST_BYTES = 3_000_000
MOST_SECONDS = 20

WHOLE = Effort()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no session start."""

    def fail(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("fk_pipeline.session.start_session", fail)


def document(*pipelines: Pipeline, effort: Effort = WHOLE) -> Document:
    return document_of([facts_of(one, effort) for one in pipelines], time.monotonic())


def embedded(page: str) -> Any:
    found = re.search(f'<script type="application/json" id="{DOCUMENT_ID}">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def test_numbers_are_those_of_the_ledger_and_the_tables(tmp_path: Path) -> None:
    (facts,) = document(joined(tmp_path, 12, rows=30))["pipelines"]
    assert facts["totals"] | {"last_run": None} == {
        "rows": 30, "matched": 24, "unmatched": 6, "quarantined": 24, "batches": 12, "withdrawn": 0,
        "last_run": None, "stands_for": {},
    }  # fmt: skip
    state = facts["state"]
    assert (state["due"], state["due_batches"], state["red_checks"], state["tone"]) == (1, 1, 1, "bad")
    assert state["sentence"] == "1 check red; 1 batch due."
    newest = facts["batches"][0]
    assert (newest["first"], newest["state"], newest["came_in"]) == (12, "due", {"left": 10, "right": 4})
    assert facts["batches"][1]["changed"] == {"joined": 8, "half-joined": 2, "stale dropped": 1, "expired": 1}
    assert facts["batches"][1]["touched"] == {"applied": 3, "late": 1, "subscriptions": 10, "responses": 11}
    assert facts["series"]["names"] == ["came in", "matched", "unmatched", "stale", "late", "expired", "quarantined"]
    sums = {name: sum(point[name] for point in facts["series"]["points"]) for name in facts["series"]["names"]}
    assert sums == {
        "came in": 168, "matched": 88, "unmatched": 22, "stale": 11, "late": 12, "expired": 11, "quarantined": 24,
    }  # fmt: skip
    slowest = facts["stages"][0]
    assert (slowest["stage"], slowest["runs"], slowest["seconds"]) == ("resolved_join", 2, 9.0)
    assert len(facts["runs"]) == 10
    red = facts["checks"][0]
    assert (red["check"], red["red"], red["value"], red["batches"]) == ("one_response", True, 3.0, [1])
    assert "fk-pipeline run" in str(red["remedy"])
    assert [(one["line"], one["text"]) for one in facts["quarantine"]] == [(4, HOSTILE), (3, HOSTILE)]


def test_the_picture_has_rows_on_every_arrow(tmp_path: Path) -> None:
    (facts,) = document(joined(tmp_path, 12, rows=30))["pipelines"]
    arrows = {(one["before"], one["after"]): (one["rows"], one["last"]) for one in facts["graph"]["arrows"]}
    assert arrows["input left", "left_changelog"] == (120, None)
    assert arrows["left_changelog", "subscription_store"] == (None, 20)  # no table; the last run had two batches
    assert arrows["responses", "resolved_join"] == (None, 22)
    boxes = {box["name"]: box for box in facts["graph"]["boxes"]}
    assert [boxes[name]["depth"] for name in ("input left", "left_changelog", "responses", "resolved_join")] == [
        0, 1, 3, 4,
    ]  # fmt: skip
    assert (boxes["resolved_join"]["rows"], boxes["resolved_join"]["due"]) == (30, 1)


def test_the_page_has_every_number_and_the_document(tmp_path: Path) -> None:
    made = document(joined(tmp_path, 12, rows=1230))
    page = page_of(made)
    (facts,) = made["pipelines"]
    assert embedded(page) == json.loads(json.dumps(made))
    shown = page.split("<script")[0]
    values = [facts["totals"][name] for name in ("rows", "matched", "unmatched", "quarantined", "batches")]  # type: ignore[literal-required]
    for value in [*values, *(arrow["rows"] for arrow in facts["graph"]["arrows"] if arrow["rows"])]:
        assert number(value) in shown
    assert "<b>1,230</b>" in shown
    for batch in facts["batches"]:
        for name, value in {**batch["came_in"], **batch["touched"], **batch["changed"]}.items():
            assert f"{value:,} {name}" in shown


def test_a_row_has_its_story(tmp_path: Path) -> None:
    (facts,) = document(people(tmp_path))["pipelines"]
    assert [row["key"] for row in facts["rows"]["rows"]] == ["p2", "p1", HOSTILE]
    row = facts["rows"]["rows"][0]
    assert (row["batch"], row["values"]) == (1, {"id": "p2", "name": "Ada", "iban": SECRET})
    story = row["story"]
    assert story is not None
    assert story["events"] == [[1, "row *", f"id=p2, name=Ada, iban={SECRET}", "landing/people/1.jsonl"]]
    assert story["sentences"][0] == "The result has it since batch 1, as it should."
    assert facts["left_out"] == []


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    made = people(tmp_path, rows=30)
    (facts,) = document(made, effort=Effort(rows=5))["pipelines"]
    assert len(facts["rows"]["rows"]) == facts["rows"]["stories"] == 5
    assert facts["left_out"] == ["Of the rows that changed, the newest 5 are told."]
    (facts,) = document(made, effort=Effort(seconds=-1))["pipelines"]
    assert facts["rows"]["rows"] == []
    assert len(facts["left_out"]) == 1


def test_reading_has_one_deadline(tmp_path: Path) -> None:
    (facts,) = document(joined(tmp_path, 12), effort=Effort(seconds=-1))["pipelines"]
    assert (facts["totals"]["rows"], facts["totals"]["unmatched"]) == (30, None)
    assert (facts["quarantine"], facts["rows"]["rows"]) == ([], [])
    assert [sentence.split(" are ")[0] for sentence in facts["left_out"]] == [
        "Records of the quarantine", "Changed rows beyond the newest 0", "Rows without a match",
    ]  # fmt: skip


def test_a_report_is_of_one_moment_of_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, looks, refresh = people(tmp_path, rows=30), list[Ledger](), Ledger.refresh

    def counted(ledger: Ledger) -> None:
        looks.append(ledger)
        refresh(ledger)

    monkeypatch.setattr(Ledger, "refresh", counted)
    assert facts_of(made, QUICK)["rows"]["stories"] == 30
    assert len(looks) == 1


@pytest.mark.parametrize(("effort", "reads"), [(WHOLE, True), (QUICK, False)])
def test_a_quick_report_asks_an_object_store_for_no_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: Effort, *, reads: bool
) -> None:
    query = "name: q\nkind: query\ninputs: {people: {pipeline: people.yaml}}\nquery: SELECT id FROM people\n"
    people(tmp_path)
    made = opened(tmp_path, query)
    ledger, stage = made.ledger(), made.spec.definition.result_stage
    land(made, made.spec.sides[0], [1])
    ledger.start(stage, [BatchId(1)], "r", {})
    ledger.runs.succeed({1: {}}, {f"{stage}{WRITTEN_SUFFIX}": 0}, 1.0)
    read: list[str] = []
    monkeypatch.setattr("fk_pipeline.report.runs.row_metadata", lambda path, _: read.append(path) or {})
    monkeypatch.setattr(type(made.spec), "home", f"file://{made.spec.home}")
    facts = facts_of(made, effort)
    assert len(facts["runs"]) == 1
    assert bool(read) is reads
    assert any(sentence.startswith("Predicted seconds") for sentence in facts["left_out"]) is not reads


@pytest.mark.parametrize("sensitive", ["[]", "[iban]"])
def test_an_error_in_a_story_ends_that_story_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sensitive: str
) -> None:
    made = people(tmp_path, sensitive)

    def fail(pipeline: Pipeline, reference: str, key: str, **tables: Any) -> Any:
        if key == "p1":
            raise ValueError(SECRET)
        return answer_in_process(pipeline, reference, key, **tables)

    monkeypatch.setattr("fk_pipeline.report.rows.answer_in_process", fail)
    facts = facts_of(made, QUICK)
    assert {row["key"]: row["story"] is not None for row in facts["rows"]["rows"]} == {
        "p2": True, "p1": False, HOSTILE: True,
    }  # fmt: skip
    (sentence,) = [sentence for sentence in facts["left_out"] if sentence.startswith("The stories of 1 rows ")]
    assert (SECRET in sentence) is (sensitive == "[]")


def test_the_newest_failures_are_listed(tmp_path: Path) -> None:
    made = opened(tmp_path, JOINED)
    ledger = made.ledger()
    for stage, batches in ((Stage.RIGHT_TABLE, [99]), (Stage.LEFT_CHANGELOG, range(1, 31))):
        for batch in batches:
            land(made, Side.LEFT if stage == Stage.LEFT_CHANGELOG else Side.RIGHT, [batch])
            ledger.start(stage, [BatchId(batch)], f"{stage}{batch}", {})
            ledger.runs.fail(0.1, "boom")
    failed = facts_of(made, QUICK)["state"]["failed"]
    assert [failure["batch"] for failure in failed] == [*range(11, 31)]


def test_hostile_values_stay_text(tmp_path: Path) -> None:
    page = page_of(document(people(tmp_path / "a"), joined(tmp_path / "b", 12)))
    assert page.count("<script") == 1, "only the document"
    assert "<b>customers" not in page
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page
    assert "\u202e" not in page
    assert HOSTILE in json.dumps(embedded(page))


@pytest.mark.parametrize("column", ["id", "iban", "name"])
def test_sensitive_values_never_appear(tmp_path: Path, column: str) -> None:
    made = document(people(tmp_path, f"[{column}]"))
    page, secret = page_of(made), {"id": "p1", "iban": SECRET, "name": "Ada"}[column]
    text = json.dumps(made).replace(str(tmp_path), "") + page.replace(str(tmp_path), "")
    assert not re.search(rf"\b{secret}\b", text)
    assert "sensitive:" in text
    (facts,) = made["pipelines"]
    assert facts["rows"]["stories"] == 3, "a story with tokens is told"


def test_a_thousand_batches_are_a_small_page_made_quickly(tmp_path: Path) -> None:
    made = joined(tmp_path, 1000, rows=5000, size=100)
    begun = time.monotonic()
    found = document(made)
    page = page_of(found)
    seconds, size = time.monotonic() - begun, len(page.encode())
    print(f"{seconds:.1f} s, {size:,} bytes")  # noqa: T201 - pytest shows it with -s
    assert size < MOST_BYTES
    assert seconds < MOST_SECONDS
    (facts,) = found["pipelines"]
    assert len(facts["batches"]) == 50
    assert sum(one["number"] for one in facts["older"]) == 950
    assert len(facts["series"]["points"]) <= 120
    assert sum(int(point["came in"] or 0) for point in facts["series"]["points"]) == 14_000
    assert sum(one["came_in"]["left"] for one in (*facts["batches"], *facts["older"])) == 10_000


def test_a_pipeline_that_never_ran_and_files_that_nobody_read(tmp_path: Path) -> None:
    made = people(tmp_path)
    (tmp_path / "landing" / "people" / "2.jsonl").write_text("{}\n")
    assert facts_of(made, Effort())["state"]["sentence"] == "1 landed file not read yet."
    assert facts_of(made, QUICK)["state"]["sentence"] == "Up to date."
    (tmp_path / "people.yaml").write_text((tmp_path / "people.yaml").read_text().replace("people", "nobody", 1))
    (facts,) = document(Pipeline(made.spec.model_copy(update={"name": "nobody"})))["pipelines"]
    assert facts["state"]["tone"] == "bad"
    assert facts["state"]["sentence"].startswith("Nothing was ever run in ")
    assert page_of(document_of([facts], time.monotonic()))


def test_the_command_writes_the_page_or_the_document(tmp_path: Path, command: Callable[..., Any]) -> None:
    made = people(tmp_path)
    said = command("report", made.spec.file)
    assert said.status == 0, said.err
    page = Path(f"{made.spec.home}/report.html").read_text()
    assert embedded(page)["pipelines"][0]["pipeline"] == "people"
    said = command("report", made.spec.file, "--format", "json")
    assert said.status == 0
    assert json.loads(said.out)["pipelines"] == embedded(page)["pipelines"]
    assert command("report", made.spec.file, "--output", tmp_path / "x" / "r.html").status == 0
    assert (tmp_path / "x" / "r.html").exists()


def test_the_page_of_several_pipelines_lies_in_the_current_folder(
    tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = people(tmp_path / "a"), joined(tmp_path / "b", 12)
    monkeypatch.chdir(tmp_path)
    said = command("report", first.spec.file, second.spec.file)
    assert said.status == 0, said.err
    assert said.out.startswith("report.html: 2 of 2 pipelines")
    assert len(embedded((tmp_path / "report.html").read_text())["pipelines"]) == 2
    assert not any(Path(f"{made.spec.home}/report.html").exists() for made in (first, second))


def test_options_that_name_no_page_are_refused(tmp_path: Path, command: Callable[..., Any]) -> None:
    file = people(tmp_path).spec.file
    said = command("report", file, "--output", tmp_path)
    assert (said.status, said.out) == (UsageError.exit_code, "")
    assert f"name a file in it: --output {tmp_path / 'report.html'}" in said.err
    said = command("report", file, "--format", "json", "--open")
    assert (said.status, said.out) == (UsageError.exit_code, "")
    assert "--format json --output report.html --open" in said.err


def test_where_nothing_was_ever_run_no_folder_is_made(tmp_path: Path, command: Callable[..., Any]) -> None:
    file = people(tmp_path).spec.file
    file.write_text(f"warehouse: mistyped\n{file.read_text()}")
    for more in ([], ["--output", tmp_path / "r.html"], ["--format", "json"]):
        said = command("report", file, *more)
        assert (said.status, said.out) == (StateError.exit_code, "")
        assert f"nothing was ever run in {tmp_path / 'mistyped'} as pipeline people" in said.err
    assert not (tmp_path / "mistyped").exists()
    assert not (tmp_path / "r.html").exists()


def test_an_error_of_several_pipelines_has_no_sensitive_value(
    tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, output = people(tmp_path / "a", "[iban]"), joined(tmp_path / "b", 12), tmp_path / "r.html"

    def fail(*_: object) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr("fk_pipeline.report.document.check_facts", fail)
    said = command("report", first.spec.file, second.spec.file, "--format", "json", "--output", output)
    assert said.status == 1
    errors = json.loads(said.out)["errors"]
    assert ("ValueError" in errors["people"], errors["joined"]) == (True, SECRET)
    assert SECRET not in errors["people"]


def test_a_run_is_shared_by_the_batches_that_it_did(tmp_path: Path) -> None:
    made = opened(tmp_path, JOINED)
    ledger, days = made.ledger(), [20260130, 20260131, 20260201, 20260202]
    land(made, Side.LEFT, days)
    ran(ledger, Stage.LEFT_CHANGELOG, {days[1]: {"rows": 7}}, 5.0)
    ran(ledger, Stage.LEFT_CHANGELOG, {day: {"rows": 10} for day in (days[0], *days[2:])}, 6.0)
    facts = facts_of(made, QUICK)
    assert {batch["first"]: batch["seconds"] for batch in facts["batches"]} == dict(
        zip(days, (2.0, 5.0, 2.0, 2.0), strict=True)
    )
    (arrow,) = [arrow for arrow in facts["graph"]["arrows"] if arrow["before"] == Stage.LEFT_CHANGELOG][:1]
    assert arrow["last"] == 30, "batch 20260131 lies between them, and another run did it"


def test_a_check_is_red_until_the_batch_that_failed_it_passes(tmp_path: Path) -> None:
    made = joined(tmp_path, 12)
    check = {"stage": "responses", "name": "one_response", "severity": "critical", "depth": "batch", "pending": 0}
    passed = check | {"passed": True, "value": 0.0, "batches": [], "seconds": 0.1}
    made.ledger().checks.record([passed | {"first": 2, "last": 2}])
    facts = facts_of(made, QUICK)["checks"][0]
    assert (facts["check"], facts["red"], facts["passed"]) == ("one_response", True, False)
    assert (facts["value"], facts["batches"], facts["first"], facts["last"]) == (3.0, [1], 1, 1)
    assert "--batches 1 makes it anew" in str(facts["remedy"])
    made.ledger().checks.record([passed | {"first": 1, "last": 1}])
    every = {facts["check"]: facts for facts in facts_of(made, QUICK)["checks"]}
    assert (every["one_response"]["red"], every["one_response"]["passed"]) == (False, True)


def test_rows_of_both_sides_in_one_log_are_of_both(tmp_path: Path) -> None:
    side = '{path: landing/left, format: rows, schema: "k STRING, at BIGINT", contents: events, on: k, time: at}'
    within = "within: {before: 2 milliseconds, after: 3 milliseconds}\nselect: [left.k AS k, right.at AS at]\n"
    made = opened(tmp_path, f"name: near\nkind: window\njoin: inner\nleft: {side}\nright: {side}\n{within}")
    assert made.spec.definition.input(Side.RIGHT).shared(made.spec) == Side.LEFT
    land(made, Side.LEFT, [1])
    ran(made.ledger(), "left_changelog", {1: {"rows": 7}}, 1.0)
    ran(made.ledger(), "right_changelog", {1: {}}, 1.0)
    facts = facts_of(made, QUICK)
    assert facts["batches"][0]["came_in"] == {"left and right": 7}
    assert {box["name"]: box["rows"] for box in facts["graph"]["boxes"] if box["role"] == "input"} == {
        "input left": 7, "input right": 7,
    }  # fmt: skip


def test_a_landed_batch_is_no_batch_of_another_input(tmp_path: Path) -> None:
    made = joined(tmp_path, 12)
    land(made, made.spec.sides[0], [13])
    newest = facts_of(made, QUICK)["batches"][0]
    assert (newest["first"], newest["state"], newest["files"], newest["at"]) == (13, "due", {"left": 1}, None)


def test_pipelines_that_read_each_other_are_one_picture(tmp_path: Path) -> None:
    first = people(tmp_path)
    query = "name: named\nkind: query\ninputs: {people: {pipeline: people.yaml}}\nquery: SELECT id, name FROM people\n"
    made = document(first, opened(tmp_path, query))
    assert [(box["name"], box["depth"], box["rows"]) for box in made["lineage"]["boxes"]] == [
        ("people", 0, 3),
        ("named", 1, None),
    ]
    (arrow,) = made["lineage"]["arrows"]
    assert (arrow["before"], arrow["after"], arrow["input"], arrow["rows"]) == ("people", "named", "input people", 3)
    assert '<a href="#people">people</a>' in page_of(made)
    assert "people →" in page_of(made)
