"""How a pipeline shows itself: as a line, in a notebook, and by `show`. All of it is read without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.errors import StateError, UsageError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.store.ledger.commits import WRITTEN_SUFFIX
from tests.report.world import HOSTILE, JOINED, SECRET, changed, joined, land, opened, people


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no session start."""

    def fail(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("fk_pipeline.session.start_session", fail)


def test_a_line_has_name_kind_file_and_what_is_due(tmp_path: Path) -> None:
    made = joined(tmp_path, 12)
    assert repr(made) == f"pipeline joined (foreign_key) of {tmp_path}/joined.yaml. 1 check red; 1 batch due."


def test_a_line_of_a_pipeline_that_never_ran_says_so(tmp_path: Path) -> None:
    assert ". Nothing was ever run in " in repr(opened(tmp_path, JOINED))


def test_a_pipeline_whose_ledger_is_damaged_has_a_line_too(tmp_path: Path) -> None:
    made = joined(tmp_path, 3)
    log = Path(made.spec.home, "runs", "_delta_log", f"{0:020d}.json")
    log.write_text("no JSON")
    again = opened(tmp_path, JOINED)
    with pytest.raises(StateError):
        again.ledger()
    for text in (repr(again), again._repr_html_()):
        assert "joined.yaml. Its state cannot be read: " in text
    assert "<table>" not in again._repr_html_()


def test_a_notebook_shows_ten_rows_and_escapes_what_they_have(tmp_path: Path) -> None:
    page = joined(tmp_path, 12, rows=30)._repr_html_()
    assert page.startswith("<p>pipeline joined (foreign_key) of ")
    assert "<tr><th>id</th><th>v</th><th>name</th></tr>" in page
    assert page.count("<tr><td>") == 10
    assert page.endswith("<p>10 of 30 rows</p>")
    assert "<script>" not in page
    assert "<td>&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;</td><td>\\u202eA</td>" in page


def test_a_notebook_shows_null_otherwise_than_a_text(tmp_path: Path) -> None:
    assert "<td>1</td><td>v</td><td><i>NULL</i></td>" in changed(tmp_path, 1)._repr_html_()


def test_a_notebook_shows_tokens_of_sensitive_values(tmp_path: Path) -> None:
    shown = people(tmp_path / "shown")._repr_html_()
    hidden = people(tmp_path / "hidden", "[iban]")._repr_html_()
    assert SECRET in shown
    assert SECRET not in hidden
    assert hidden.count("<td>sensitive:") == 3
    assert "<td>Ada</td>" in hidden


def test_a_table_is_shown_without_our_columns_unless_they_are_wanted(
    tmp_path: Path, command: Callable[..., Any]
) -> None:
    made = joined(tmp_path, 3, rows=2)
    users, ours = ["id", "v", "name"], ["_fk_pk_id", "_fk_fk_k"]

    def header(*args: Any) -> list[str]:
        told = command("show", made.spec.file, *args)
        assert (told.status, told.err) == (0, "")
        return [name.strip() for name in told.out.splitlines()[0].split("|")]

    for args in ([], ["resolved_join"]):
        assert header(*args) == users == made.show(*args).columns
        assert header(*args, "--all")[:5] == [*users, *ours] == made.show(*args, everything=True).columns[:5]
    assert [row["id"] for row in made.show(order_by="id").as_json()] == [0, 1]
    assert header("quarantine", "--columns", "_fk_line,_fk_raw") == ["_fk_line", "_fk_raw"]
    assert header("quarantine")[:2] == ["_fk_side", "_fk_batch"], "it has no columns of the user"
    assert header("runs")[:3] == ["entry", "recorded_at", "event"]


def test_json_has_all_columns_of_a_table_and_the_users_of_the_result(
    tmp_path: Path, command: Callable[..., Any]
) -> None:
    made = changed(tmp_path, 1)

    def names(*args: Any) -> list[str]:
        [row] = json.loads(command("show", made.spec.file, *args, "--format", "json").out)
        return [*row]

    assert names() == names("resolved_join") == ["id", "v", "name"]
    feed = names("changes", "--batch", "1")
    assert {"_change_type", "_commit_version", "_fk_pk_id", "id"} < {*feed}
    text = command("show", made.spec.file, "changes", "--batch", "1").out.splitlines()[0]
    assert [name.strip() for name in text.split("|")] == [name for name in feed if not name.startswith("_fk_")]


@pytest.mark.parametrize(
    ("since", "until", "batches"),
    [
        ("2020-05-01", None, [1, 2, 3]),
        ("2020-05-02", None, [2, 3]),
        ("2020-05-02T12:00:00", None, [2, 3]),
        ("2020-05-02T12:00:00.001", None, [3]),
        ("2020-05-02T13:00:00+01:00", None, [2, 3]),
        ("2020-05-02T12:00+01:00", "2020-05-03T14:01+02:00", [2, 3]),
        ("2020-05-01", "2020-05-02T12:00", [1]),
        ("2020-05-02", "2020-05-03", [2]),
        ("2020-05-04", None, []),
    ],
)
def test_changes_of_a_period_are_those_of_its_commits_in_order(
    tmp_path: Path, command: Callable[..., Any], since: str, until: str | None, batches: list[int]
) -> None:
    made = changed(tmp_path, 1, 2, 3)
    args = ["--since", since] + ([] if until is None else ["--until", until])
    told = command("show", made.spec.file, "changes", *args, "--format", "json")
    assert (told.status, told.err) == (0, "")
    rows = json.loads(told.out)
    assert [(row["_change_type"], row["id"]) for row in rows] == [("insert", batch) for batch in batches]
    assert [row["_commit_version"] for row in rows] == sorted(row["_commit_version"] for row in rows)
    assert made.show("changes", since=since, until=until).as_json() == [
        {name: value for name, value in row.items() if not name.startswith("_fk_")} for row in rows
    ]
    assert len(made.changes_in_process(since=since, until=until).rows) == len(batches)


def test_a_period_may_be_given_as_times_of_python(tmp_path: Path) -> None:
    made = changed(tmp_path, 1, 2)
    noon = datetime(2020, 5, 2, 12, tzinfo=UTC)
    assert [row["id"] for row in made.show("changes", since=noon).as_json()] == [2]
    assert [row["id"] for row in made.show("changes", since=datetime(2020, 5, 1), until=noon).as_json()] == [1]  # noqa: DTZ001


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["changes"], "changes are those of one batch, or of a period"),
        (["changes", "--until", "2020-05-01"], "changes are those of one batch, or of a period"),
        (["changes", "--batch", "1", "--since", "2020-05-01"], "changes are those of one batch, or of a period"),
        (["changes", "--since", "yesterday"], "--since: 'yesterday' is no day and no time; write 2026-05-01"),
        (["changes", "--since", "2020-05-01", "--until", "31.5."], "--until: '31.5.' is no day and no time"),
        (["changes", "--since", "0001-01-01T00:00+05:00"], "--since: "),
        (["changes", "--since", "2020-05-02", "--until", "2020-05-01"], "--since 2020-05-02 is not before --until"),
        (["changes", "--since", "2020-05-02", "--until", "2020-05-02"], "--since 2020-05-02 is not before --until"),
        (["runs", "--since", "2020-05-02"], "--since and --until do not choose rows of runs"),
        (["--until", "2020-05-02"], "--since and --until do not choose rows of resolved_join"),
    ],
)
def test_a_period_that_is_none_is_refused(
    tmp_path: Path, command: Callable[..., Any], args: list[str], told: str
) -> None:
    said = command("show", changed(tmp_path, 1).spec.file, *args)
    assert (said.status, said.out) == (2, "")
    assert told in said.err
    assert "Fix: " in said.err


def test_changes_that_are_not_kept_are_refused_in_a_period_too(tmp_path: Path) -> None:
    made = changed(tmp_path, 1)
    ledger = made.ledger()
    land(made, Side.LEFT, [2])
    ledger.start(Stage.RESOLVED_JOIN, [2], "second", {})
    ledger.runs.succeed({2: {"joined": 1}}, {f"resolved_join{WRITTEN_SUFFIX}": 7}, 1.0, "incremental", "few rows")
    with pytest.raises(StateError, match=r"the changes since 2020-05-01T00:00:00 UTC are not kept .*: version 7 of"):
        made.show("changes", since="2020-05-01")
    rows = made.show("changes", since="2020-05-01", until="2020-05-02").rows
    assert len(rows) == 1, "the version that is gone was made later"


def test_the_methods_return_what_the_command_prints(tmp_path: Path, command: Callable[..., Any]) -> None:
    made = joined(tmp_path, 3)

    def printed(name: str, *args: Any) -> Any:
        return json.loads(command(name, made.spec.file, *args, "--format", "json").out)

    status = made.status()
    assert printed("status") | {"seconds_since_last_run": 0} == status | {"seconds_since_last_run": 0}
    assert (status["due"], status["quarantined"]) == (1, 6)
    listing = made.quarantine(limit=1)
    assert printed("quarantine", "--limit", 1) == {
        "records": listing.records, "reasons": listing.reasons, "rows": listing.rows
    }  # fmt: skip
    assert (listing.records, listing.rows[0]["raw"]) == (2, HOSTILE)
    document = made.report(tmp_path / "page.html")
    assert printed("report")["pipelines"] == document["pipelines"]
    assert "<html" in (tmp_path / "page.html").read_text()
    with pytest.raises(UsageError, match="there is no table 'nope'"):
        made.show("nope")
