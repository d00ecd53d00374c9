"""The command: what goes to stdout, what to stderr, and the exit status."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from deltalake import DeltaTable
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import CheckFailedError, UsageError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.store.settings import settings, suiting


def process(*args: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fk_pipeline.cli.main", *map(str, args)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("args", [["nonsense"], ["run"], ["run", "none.yaml", "--what"], ["run", "none.yaml"]])
def test_wrong_usage_and_configuration_exit_with_2_and_no_trace(args: list[str], command: Any) -> None:
    status, out, err = command(*args)
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    assert err.strip()


def test_a_process_exits_with_2_and_no_trace() -> None:
    result = process("run", "none.yaml")
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("PipelineFileError: none.yaml: ")


def test_status_of_a_new_pipeline_needs_no_spark(rows_folder: Path) -> None:
    result = process("status", rows_folder / "pipeline.yaml", "--format", "json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["new_files"] == 2
    assert found["batches"] == []


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "foreign_key: \"to_date('today')\"",
            "left.foreign_key: \"to_date('today')\": 'today' may become the day on which",
        ),
        ("foreign_key: \"IF(fk = 'now', '${env:HOME}', fk)\"", "${...} would be replaced by a variable of Spark's"),
        ("foreign_key: input_file_name()", "INPUT_FILE_NAME() is not deterministic: a row computed again would change"),
    ],
)
def test_what_is_not_deterministic_is_refused_with_its_line_and_what_would_be_right(
    written: str, told: str, rows_folder: Path, command: Any
) -> None:
    file = rows_folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("foreign_key: fk", f"\n  {written}"))
    refused = command("run", file)
    assert refused.status == 2
    assert refused.err.startswith(f"PipelineFileError: {file}:4: left.foreign_key: ")
    assert told in refused.err
    assert "Traceback" not in refused.err


@pytest.fixture
def rows_folder(tmp_path: Path) -> Path:
    for side, line in (("left", '{"id": 1, "fk": "a"}'), ("right", '{"k": "a"}')):
        (tmp_path / "landing" / side).mkdir(parents=True)
        (tmp_path / "landing" / side / "0.jsonl").write_text(line + "\n")
    (tmp_path / "pipeline.yaml").write_text(
        'name: p\njoin: left\nleft: {path: landing/left, format: rows, schema: "id INT, fk STRING", key: id, '
        'foreign_key: fk}\nright: {path: landing/right, format: rows, schema: "k STRING", key: k}\n'
    )
    return tmp_path


@pytest.fixture(scope="module")
def made(rows_pipeline: Any) -> Any:
    """A pipeline that was run, and what the command told of it."""
    made = rows_pipeline(
        "left", select="[id, v, name, 'cast(id AS DECIMAL(10,2)) AS d', \"timestamp'2026-01-01' AS t\", "
        "'double(\"NaN\") AS n', 'binary(v) AS b']",
    )  # fmt: skip
    made.land(0, [(2, "a", 'q"u,o\nte'), (10, "x", ""), (1, "a", "v")], [("a", "A")])
    made.told = json.loads(invoke("run", made.file, "--format", "json").stdout)
    return made


def invoke(*args: Any) -> Any:
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.slow
@pytest.mark.spark
def test_verify_checks_every_table_and_writes_data_docs(rows_pipeline: Any, tmp_path: Path) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "a", "v")], [("a", "A")])
    made.pipeline.run()
    found = json.loads(invoke("verify", made.file, "--docs", tmp_path / "docs", "--format", "json").stdout)
    assert found["docs"] == str(tmp_path / "docs" / "index.html")
    assert list(found["checks"]) == [stage.value for stage in Stage]
    assert {one["status"] for stage in found["checks"].values() for one in stage.values()} == {"passed"}
    assert found["checks"]["resolved_join"]["no_stale_row"] == {
        "status": "passed", "severity": "critical", "value": 0, "pending": 0,
    }  # fmt: skip
    table = made.pipeline.runner.warehouse.path("resolved_join")
    with settings(made.pipeline.session, suiting(0)):
        made.pipeline.session.sql(f"UPDATE delta.`{table}` SET name = 'old', _fk_right_hash = NULL WHERE id = 2")
    wrong = invoke("verify", made.file, "--docs", tmp_path / "docs")
    assert wrong.exit_code == 1
    assert "FAILED no_stale_row: 1. Both hashes" in wrong.stdout
    found = json.loads(invoke("verify", made.file, "--format", "json").stdout)["checks"]
    assert "no_missing_answer" not in found["responses"]
    fix = f"fk-pipeline rebuild {made.file} --stages resolved_join makes it anew"
    assert found["resolved_join"]["no_stale_row"]["fix"].startswith(fix)
    assert {name for name, one in found["resolved_join"].items() if "fix" in one} == {
        "no_stale_row", "rows_are_those_of_the_join",
    }  # fmt: skip
    pages = [page.read_text() for page in (tmp_path / "docs" / "validations").rglob("*resolved_join.html")]
    assert [re.search(r"Broken by key .{0,12}id.{0,12}2", page) is not None for page in sorted(pages)].count(True) == 1
    assert "mended by a rebuild" in invoke("status", made.file).stdout
    sampled = invoke("verify", made.file, "--share", "0", "--no-checks", "--format", "json")
    assert json.loads(sampled.stdout)["rows"] == 0
    invoke("rebuild", made.file, "--stages", "resolved_join")
    assert invoke("verify", made.file).exit_code == 0


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_that_checks_stops_at_the_first_red_check_until_it_is_waived(rows_pipeline: Any) -> None:
    made = rows_pipeline(
        "left", settings="{}\nexpectations: {left: [{type: expect_table_row_count_to_equal, kwargs: {value: 7}}]}"
    )
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.land(1, [], [("b", "B")])
    stopped = CliRunner().invoke(app, ["run", str(made.file), "--check", "--batches", "0"])
    assert isinstance(stopped.exception, CheckFailedError)
    assert "batch 0 failed check own_table_row_count_to_equal of left_changelog" in str(stopped.exception)
    assert "correct what landed and run the batch again; or go on as it is" in str(stopped.exception)
    assert made.result() == {}
    # What is not concerned goes on, and in the end the run says what it left out.
    with pytest.raises(CheckFailedError):
        made.pipeline.run()
    due = {stage: list(map(int, batches)) for stage, batches in made.pipeline.due().items() if batches}
    assert due == {stage: [0] for stage in ("subscription_store", "responses", "resolved_join")}
    status = json.loads(invoke("status", made.file, "--format", "json").stdout)
    assert [(one["batch"], one["stage"]) for one in status["failed_checks"]] == [(0, "left_changelog")]
    assert CliRunner().invoke(app, ["run", str(made.file), "--waive", " "]).exception.exit_code == 2
    invoke("run", made.file, "--waive", "seven is a guess")
    assert made.result() == {1: ("v", "A")}
    [waived] = made.pipeline.table("checks").where("event = 'waived'").collect()
    assert (waived["reason"], waived["batches"]) == ("seven is a guess", [0])


@pytest.mark.spark
def test_run_verify_show_and_export_speak_json(made: Any, tmp_path: Path) -> None:
    done = made.told
    assert [r["stage"] for r in done] == [
        "left_changelog", "right_table", "subscription_store", "responses", "resolved_join",
    ]  # fmt: skip
    assert done[0]["counts"]["0"]["rows"] == 3
    verified = json.loads(invoke("verify", made.file, "--no-checks", "--format", "json").stdout)
    assert verified == {
        "rows": 3, "missing": 0, "stale": 0, "unexpected": 0, "pending": 0, "due": 0, "left_rows": 3, "right_rows": 1,
        "left_out": 0, "unmatched": 0, "unproved": 0, "quarantined_lines": 0,
    }  # fmt: skip
    shown = json.loads(
        invoke("show", made.file, "verdicts", "--batch", 0, "--where", "_fk_pk_id = 1", "--format", "json").stdout
    )
    assert {row["_fk_verdict"] for row in shown} == {"joined"}
    assert {len(row["_fk_left_hash"]) for row in shown} == {32}
    empty = json.loads(invoke("run", made.file, "--batches", "7..8", "--format", "json").stdout)
    assert empty[0]["notes"] == ["batch 7..8 has no files: an empty batch"]
    assert empty[0]["counts"] == {"7": {"rows": 0}}

    written = json.loads(invoke("export", made.file, "--to", tmp_path / "o.jsonl", "--format", "json").stdout)
    assert written["rows"] == 3
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().split("\n") if line]
    assert [line["id"] for line in lines] == [1, 2, 10]
    assert list(lines[0]) == ["id", "v", "name", "d", "t", "n", "b"]
    assert lines[0] == {
        "id": 1, "v": "v", "name": "A", "d": "1.00", "t": "2026-01-01T00:00:00.000000Z", "n": "NaN", "b": "dg==",
    }  # fmt: skip
    assert lines[2]["name"] is None
    invoke("export", made.file, "--to", tmp_path / "o.csv")
    text = (tmp_path / "o.csv").read_text()
    assert text.splitlines()[0] == "id,v,name,d,t,n,b"
    assert '10,"",,10.00,' in text
    assert list(csv.reader(text.splitlines(keepends=True)))[2][1] == 'q"u,o\nte'
    invoke("export", made.file, "--to", tmp_path / "o.parquet")
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "o.parquet")["id"].to_pylist() == [1, 2, 10]


JSON = {
    "plan": ["{file}"], "run": ["{file}"], "verify": ["{file}", "--no-checks"], "export": ["{file}", "--to", "{out}"],
    "show": ["{file}", "verdicts"], "status": ["{file}"], "explain": ["{file}", "--key", "1"],
    "impact": ["{file}", "--right-key", "a"], "quarantine": ["{file}"], "compact": ["{file}"],
    "rebuild": ["{file}"], "remove-batch": ["{file}", "0"], "doctor": ["{file}"], "trace": ["{case}"], "recover": [],
    "down": [], "spark": ["status"], "dagster": ["sync", "{file}"], "report": ["{file}"],
}  # fmt: skip
"""The commands, in an order in which they can be called, with arguments."""

JSON_ELSEWHERE = {"demo", "init", "test", "up"}
"""Commands whose JSON other tests read: test_packaging.py, scaffold/test_init.py, testing, dagster/servers.py."""


@pytest.mark.spark
@pytest.mark.parametrize("but", [("compact", "rebuild"), pytest.param((), marks=pytest.mark.slow)], ids=["most", "all"])
def test_all_commands_speak_json_and_write_nothing_else_to_stdout(
    made: Any, copy_of: Any, tmp_path: Path, but: tuple[str, ...]
) -> None:
    assert set(typer.main.get_command(app).commands) <= set(JSON) | JSON_ELSEWHERE  # type: ignore[attr-defined]
    made = copy_of(made)
    made.land(1, [(1, "a", "w")])
    case = {"name": "c", "family": "fk-join", "join": "left", "events": []}
    (tmp_path / "case.json").write_text(json.dumps(case))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").touch()
    places = {"file": made.file, "out": tmp_path / "out.csv", "case": tmp_path / "case.json"}
    found = {}
    for name, arguments in ((n, a) for n, a in JSON.items() if n not in but):
        home = ["--home", tmp_path / "home"] if name in ("down", "recover", "dagster") else []
        result = invoke(name, *(one.format(**places) for one in arguments), *home, "--format", "json")
        assert result.exit_code in ((0, 3) if name == "doctor" else (0,)), (name, result.stderr)
        found[name] = json.loads(result.stdout)
    assert [one["stage"] for one in found["run"]] == list(Stage)
    assert found["plan"]["due"] == 5
    assert found["explain"]["as_expected"]
    assert (found["recover"], found["down"]) == ([], [])
    assert all(found[name] for name in set(JSON) - {"recover", "down", "spark", *but})


@pytest.mark.slow  # the status of a run, in JSON and in text: kinds/query/test_one_file.py, test_cost_of_runs.py
@pytest.mark.spark
def test_status_tells_what_is_due_and_text_is_for_people(made: Any, copy_of: Any) -> None:
    made = copy_of(made)
    made.land(1, [(5, "a", "v")], [])
    found = json.loads(invoke("status", made.file, "--format", "json").stdout)
    assert found["new_files"] == 1
    assert found["due"] == 0
    invoke("run", made.file, "--stages", "left_changelog")
    found = json.loads(invoke("status", made.file, "--format", "json").stdout)
    assert found["batches"][1]["stages"] == {
        "left_changelog": "done", "right_table": "due", "subscription_store": "due", "responses": "due",
        "resolved_join": "due",
    }  # fmt: skip
    text = invoke("status", made.file).stdout
    assert "2 batches, 1 of them with work due" in text
    assert "Nothing is due." not in invoke("run", made.file).stdout
    assert "Nothing is due." in invoke("run", made.file).stdout
    assert "equal to the join of the two tables" in invoke("verify", made.file).stdout


@pytest.mark.spark
def test_quarantine_lists_exports_and_replays(rows_pipeline: Any, tmp_path: Path) -> None:
    made = rows_pipeline("left")
    assert invoke("quarantine", made.file).stdout == "Nothing is in the quarantine.\n"
    assert "Nothing is in the quarantine." in invoke("quarantine", made.file, "--replay").stdout
    long = '{"id": "[/x]", "op": ":smile:", "note": "' + "n" * 80
    made.land(0, [long, "{"], ["["])
    made.land(1, ["{"])
    invoke("run", made.file)
    found = json.loads(invoke("quarantine", made.file, "--limit", 1, "--format", "json").stdout)
    assert found["records"] == 4
    assert found["reasons"] == [{"side": "left", "reason": "not a JSON object", "records": 3}]
    [row] = found["rows"]
    assert row.pop("digest")
    assert row == {
        "batch": 0, "side": "left", "file": "landing/left/00000000.jsonl", "line": 1, "reason": "not a JSON object",
        "raw": long,
    }  # fmt: skip
    text = invoke("quarantine", made.file, "--batch", "0", "--side", "left", "--limit", 1).stdout
    assert f"{long[:80]}..." in text
    assert "2 records, 1 of them shown" in text
    assert f"quarantined: 4; 'fk-pipeline quarantine {made.file}' lists them" in invoke("status", made.file).stdout

    file = tmp_path / "bad.jsonl"
    assert "1 record written" in invoke("quarantine", made.file, "--side", "right", "--export", file).stdout
    done = invoke("quarantine", made.file, "--batch", "0..1", "--side", "left", "--export", file, "--format", "json")
    assert json.loads(done.stdout) == {"rows": 3, "file": str(file)}
    assert "not edited" in invoke("quarantine", made.file, file, "--replay").stdout
    records = [json.loads(line) for line in file.read_text().splitlines()]
    good = {"op": "u", "id": 7, "fk": "a", "v": "v"}
    file.write_text("\n".join(json.dumps(r | {"raw": json.dumps(good)} if r["line"] == 2 else r) for r in records))
    assert json.loads(invoke("quarantine", made.file, "--replay", file, "--format", "json").stdout) == {
        "corrections": 1, "known": 0, "unchanged": 2,
        "due": {stage.value: [0] if stage is Stage.LEFT_CHANGELOG else [] for stage in Stage},
    }  # fmt: skip
    told = invoke("quarantine", made.file, "--replay", file).stdout
    assert told.startswith("0 corrections stored, 1 known already; 2 not edited.\nDue now ('fk-pipeline run ")
    assert re.search(r"left_changelog +\| 0\n", told)
    told = invoke("quarantine", made.file, "--replay", "--side", "right").stdout
    assert told.startswith("Batches to read again: 0.\nDue now ('fk-pipeline run ")
    again = invoke("quarantine", made.file, "--replay", "--batch", "1", "--format", "json").stdout
    assert json.loads(again)["due"]["left_changelog"] == [0, 1]
    invoke("run", made.file, "--stages", "left_changelog")
    assert [(row["id"], row["v"]) for row in made.pipeline.table("left_changelog").collect()] == [(7, "v")]


@pytest.mark.spark
def test_a_wrong_result_exits_with_1_and_shows_the_row(made: Any, copy_of: Any) -> None:
    made = copy_of(made)
    DeltaTable(made.pipeline.runner.warehouse.path("resolved_join")).update({"name": "'wrong'"}, predicate="id = 2")
    result = invoke("verify", made.file, "--no-checks")
    assert result.exit_code == 1
    assert "- stale id=2: name: expected A, found wrong\n" in result.stdout
    assert f"Fix: fk-pipeline rebuild {made.file} makes state and result anew" in result.stdout


@pytest.mark.spark
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "--batches", "5..2"], "--batches"),
        (["run", "--stages", "nope"], "there is no stage 'nope'"),
        (["show", "nope"], "there is no table 'nope'"),
        (["show", "verdicts", "--where", "no such"], "--where"),
        (["show", "files", "--batch", "x"], ""),
        (["export", "--to", "out.xlsx"], "cannot write .xlsx"),
        (["export", "--to", "s3a://bucket/out.parquet"], "writes to the local disk only"),
        (["report", "--output", "s3://bucket/report.html"], "writes to the local disk only"),
        (["quarantine", "--batch", "5..2"], "--batch"),
        (["quarantine", "--side", "up"], ""),
        (["quarantine", "--export", "out.parquet"], "cannot write .parquet"),
        (["quarantine", "--export", "out.csv", "--replay"], "two steps"),
        (["quarantine", "out.csv"], "--replay out.csv"),
        (["quarantine", "out.csv", "--replay", "--side", "left"], "say themselves where they are from"),
    ],
)
def test_wrong_arguments_are_usage_errors(made: Any, args: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [args[0], str(made.file), *args[1:]])
    if isinstance(result.exception, UsageError):
        assert message in str(result.exception)
        assert result.exception.exit_code == 2
    else:
        assert result.exit_code == 2


def test_trace_prints_one_json_object_per_case_and_line(tmp_path: Path, command: Any) -> None:
    case = {
        "family": "fk-join",
        "join": "left",
        "events": [{"side": "left", "key": "k", "value": {"fk": None}, "ts": 5}],
    }
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(case | {"name": name}))
    result = command("trace", tmp_path, "--format", "json")
    assert (result.status, result.err) == (0, "")
    found = [json.loads(line) for line in result.out.splitlines()]
    assert [traced["name"] for traced in found] == ["one", "two"]
    (step,) = found[0]["computed"]["steps"]
    assert step["emits"] == [{"key": "k", "value": {"left": {"fk": None}, "right": None}, "ts": 5}]


def test_the_example_cases_can_be_traced_and_the_stale_ones_say_so(command: Any) -> None:
    examples = Path(__file__).parents[2] / "examples" / "cases"
    by_kafka, by_engine = (command("trace", examples, "--rules", rules) for rules in ("kafka", "engine"))
    assert (by_kafka.status, by_engine.status) == (0, 0)
    assert by_kafka.out.count("The result is not the join of the two tables.") == 2
    assert "not the join" not in by_engine.out


def test_the_stages_cannot_hold_messages_back(command: Any) -> None:
    example = Path(__file__).parents[2] / "examples" / "cases" / "stale-a-inner.json"
    result = command("trace", example, "--engine", "spark")
    assert result.status == 2
    assert "which only the reference can" in result.err
