"""Values of sensitive columns stand in the tables and nowhere else; and where else they would, without the option."""

from __future__ import annotations

import json
import logging
import re
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.blocks import changelog
from fk_pipeline.cli.main import app
from fk_pipeline.definitions import definitions
from fk_pipeline.engine.fingerprints import fingerprints
from fk_pipeline.errors import BadRecordError, StageError
from fk_pipeline.failures import kind_of
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.tables import sensitive_names
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import LEDGER_TABLES
from fk_pipeline.store.sizes import Sizes
from tests.dagster.ticks import stage_of
from tests.expectations.test_checks import execute
from tests.expectations.world import land, mutated
from tests.mutations import Update

CANARY = "canary"

PIPELINE_FILE = """
name: checked
join: left
left: {{path: left, format: rows, schema: "id STRING, ref STRING, mail STRING, age INT, note STRING", key: id,
       foreign_key: ref{left}}}
right: {{path: right, format: rows, schema: "k STRING, name STRING, level INT", key: k{right}}}
select: [id, UPPER(mail) AS contact, name, age, note]
warehouse: {warehouse}
on_bad_record: {bad}
expectations:
  left:
    - {{type: expect_column_values_to_be_in_set, kwargs: {{column: mail, value_set: [nobody]}}, severity: warning}}
    - {{type: expect_column_values_to_be_in_set, kwargs: {{column: note, value_set: [nothing]}}, severity: warning}}
  right:
    - {{type: expect_column_values_to_be_between, kwargs: {{column: name, min_value: 0}}, name: fails_in_spark}}
  resolved_join:
    - {{type: expect_column_max_to_be_between, kwargs: {{column: name, max_value: a}}, severity: warning}}
"""
SENSITIVE = {"left": ", sensitive: [id, mail, age]", "right": ", sensitive: [K, name, level]"}
OPEN = {"left": "", "right": ""}


def customer(number: int, mail: str = "mail", note: str = "a note", age: Any = 7) -> dict[str, Any]:
    return {
        "id": f"{CANARY}-id-{number}",
        "ref": f"{CANARY}-k-{number}",
        "mail": f"{CANARY}-{mail}-{number}",
        "age": age,
        "note": note,
    }


def plan_of(number: int, name: str = "name") -> dict[str, Any]:
    return {"k": f"{CANARY}-k-{number}", "name": f"{CANARY}-{name}-{number}", "level": 1}


LANDED: dict[str, Any] = {
    "left/0.jsonl": [customer(1), customer(2), customer(3, age=f"{CANARY}-age"), customer(4, note="odd")],
    "right/0.jsonl": [plan_of(1), plan_of(2), plan_of(3) | {"level": f"{CANARY}-level"}],
    "left/1.jsonl": [customer(2, "changed")],
    "right/1.jsonl": [plan_of(1, "changed")],
}


def written(folder: Path, **parts: str) -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE_FILE.format(**({"warehouse": "warehouse", "bad": "quarantine"} | parts)))
    return file


def told_of(error: BaseException) -> str:
    """What Dagster's log and `--debug` have of an error: all of its causes too."""
    return "".join(traceback.format_exception(error))


def ledger_of(home: Path) -> str:
    found = [DeltaTable(home / name).to_pyarrow_table().to_pylist() for name in LEDGER_TABLES if (home / name).exists()]
    return str(found)


def commits_of(home: Path) -> str:
    lines = [line for log in home.glob("*/_delta_log/*.json") for line in log.read_text().splitlines()]
    return "\n".join(line for line in lines if "commitInfo" in json.loads(line))


@contextmanager
def damaged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes every look find wrong rows."""
    damage = {"name": f"'{CANARY}-damage'", "_fk_right_hash": "NULL", "_fk_fk_k": f"'{CANARY}-fk'"}
    shown = Update("note = 'a note'", damage)
    with mutated(monkeypatch, {"resolved_join": shown, "right_table": Update("TRUE", {"level": "9"})}):
        yield


def verified_as_json(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a verification that fails says; the Data Docs of it are in the folder, too."""
    with damaged(monkeypatch):
        args = ["verify", str(folder / "pipeline.yaml"), "--docs", str(folder / "docs"), "--format", "json"]
        found = CliRunner().invoke(app, args)
    assert found.exit_code == 1, told_of(found.exception) if found.exception else found.output
    return found.output


def story(folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, **sensitive: str) -> dict[str, str]:
    """A run that quarantines, one in Dagster with a red check, a failing verification, errors: what is told where."""
    land(folder, LANDED)
    file = written(folder, **sensitive)
    by_spark = Sizes(rewritten_rows=-1, scanned_bytes=-1)  # its commits name keys
    pipeline = Pipeline(load_spec(file), spark, sizes=by_spark)
    home, places = Path(pipeline.spec.home), {}
    pipeline.run("0")
    places["reasons"] = str(pipeline.table("quarantine").select("_fk_reason").collect())

    wrong = {"left_changelog": Update("note = 'a note'", {"_fk_hash": "NULL", "ref": f"'{CANARY}-fk'"})}
    with DagsterInstance.ephemeral() as instance:
        with mutated(monkeypatch, wrong):
            result = execute(pipeline, instance, batches=(1, 1))
        assert not result.success
        places["Dagster"] = str([instance.all_logs(result.run_id), result.all_events])
    pipeline.run("1")
    places["commits"] = commits_of(home)

    places["report"] = CliRunner().invoke(app, ["report", str(file), "--format", "json"]).output
    CliRunner().invoke(app, ["report", str(file), "--output", str(folder / "report.html")])
    places["report's page"] = (folder / "report.html").read_text()

    places["verify as JSON"] = verified_as_json(folder, monkeypatch)
    with damaged(monkeypatch):
        places["verify as text"] = CliRunner().invoke(app, ["verify", str(file), "--no-checks"]).output
    places["Data Docs"] = "".join(page.read_text() for page in (folder / "docs").rglob("*.html"))

    with monkeypatch.context() as patched:
        patched.setattr(
            "fk_pipeline.engine.landing.mark_last",
            lambda *of: changelog.mark_last(*of).where("CAST(row.mail AS INT) = 1"),
        )
        with pytest.raises(StageError, match="CAST_INVALID_INPUT") as failed:
            pipeline.run("1", ["left_changelog"])
    places["Spark's error"] = told_of(failed.value)
    condition = ["show", str(file), "left_changelog", "--where", "CAST(mail AS INT) = 1"]
    places["a condition's error"] = told_of(CliRunner().invoke(app, condition).exception or AssertionError())

    strict = Pipeline(load_spec(written(folder, bad="fail", warehouse="strict", **sensitive)), spark)
    with pytest.raises(BadRecordError) as refused:
        strict.run(stages=["left_changelog"])
    places["a bad record"] = told_of(refused.value)
    places["ledger"] = ledger_of(home) + ledger_of(Path(strict.spec.home))
    written(folder, **sensitive)
    return places


def told(folder: Path, spark: SparkSession, **sensitive: str) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return story(folder, spark, monkeypatch, **sensitive)


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Path, dict[str, Any]]:
    """The folder of a pipeline with sensitive columns, and what a verification of it says that fails."""
    folder = tmp_path_factory.mktemp("proved")
    land(folder, LANDED)
    Pipeline(load_spec(written(folder, **SENSITIVE)), spark).run()
    with pytest.MonkeyPatch.context() as monkeypatch:
        return folder, json.loads(verified_as_json(folder, monkeypatch))


@pytest.mark.slow
@pytest.mark.spark
def test_no_value_of_a_sensitive_column_is_told_anywhere(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        places = told(tmp_path, spark, **SENSITIVE)
    places |= {"logs": caplog.text, "output": "".join(capfd.readouterr())}
    assert {place: text for place, text in places.items() if CANARY in text.lower()} == {}
    assert "column age: a sensitive value is not INT" in places["reasons"]
    assert "column level: a sensitive value is not INT" in places["reasons"]
    assert "[CAST_INVALID_INPUT] (its message is left out" in places["Spark's error"]
    assert "column age: a sensitive value is not INT" in places["a bad record"]
    assert "a note" in places["verify as JSON"], "what is not sensitive is shown"
    failed = json.loads(places["verify as JSON"])["checks"]["right_table"]["fails_in_spark"]
    assert failed["problem"] == "its message is left out: it may quote sensitive values"


@pytest.mark.slow
@pytest.mark.spark
def test_without_the_option_it_is_told_in_each_of_these_places(tmp_path: Path, spark: SparkSession) -> None:
    places = told(tmp_path, spark, **OPEN)
    assert {place for place, text in places.items() if CANARY not in text.lower()} == set()


@pytest.mark.spark
def test_a_token_tells_rows_apart_and_is_the_same_in_every_sample(proved: tuple[Path, dict[str, Any]]) -> None:
    _, report = proved
    tokens = {row["key"]["id"] for row in report["sample"]}
    assert (report["missing"], report["stale"], report["unexpected"]) == (0, 2, 0)
    stale = report["checks"]["resolved_join"]["no_stale_row"]["sample"]
    assert len(tokens) == 2
    assert all(re.fullmatch("sensitive:[0-9a-f]{8}", token) for token in tokens)
    assert {json.loads(row["key"])["id"] for row in stale} == tokens
    own = report["checks"]["left_changelog"]
    assert own["own_column_values_to_be_in_set_mail"]["value"] == own["own_column_values_to_be_in_set_note"]["value"]
    assert own["own_column_values_to_be_in_set_mail"]["sample"] == []


@pytest.mark.spark
def test_the_option_may_come_and_go_without_any_work(proved: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder = shutil.copytree(proved[0], tmp_path / "copy")
    land(folder, {"left/2.jsonl": [customer(2, "due")]})
    with_it = Pipeline(load_spec(written(folder, **SENSITIVE)))
    plan, parts = with_it.plan(), fingerprints(with_it.spec)
    without = Pipeline(load_spec(written(folder, **OPEN)))
    assert fingerprints(without.spec) == parts
    assert (plan.stale, plan.due) == (without.plan().stale, without.plan().due)
    assert (plan.stale, plan.due) == ({}, 5)


def test_what_has_the_values_of_a_sensitive_column_is_sensitive(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, left="", right=", sensitive: k"))
    assert (spec.left.sensitive, spec.right.sensitive) == (("ref",), ("k",))
    spec = load_spec(written(tmp_path, left=", sensitive: [REF, mail]", right=""))
    assert (spec.left.sensitive, spec.right.sensitive) == (("ref", "mail"), ("k",))
    assert spec.sensitive_outputs == {"contact"}
    spec = load_spec(written(tmp_path, left="", right=", sequence_by: level + 1, sensitive: level"))
    assert sensitive_names(spec) == {"value"}
    assert sensitive_names(spec, Side.RIGHT) == {"value", "level"}


def test_dagster_marks_sensitive_columns(tmp_path: Path) -> None:
    land(tmp_path, {"left/0.jsonl": [], "right/0.jsonl": []})
    graph = definitions([Pipeline(load_spec(written(tmp_path, **SENSITIVE)))]).get_repository_def().asset_graph
    marked = {}
    for key in graph.get_all_asset_keys():
        schema = graph.get(key).metadata.get("dagster/column_schema")
        if schema is not None:
            marked[stage_of(key)] = {column.name for column in schema.columns if "sensitive" in column.tags}
    keys = {"_fk_pk_id", "_fk_fk_k"}
    assert marked == {
        Stage.LEFT_CHANGELOG: {"id", "ref", "mail", "age"},
        Stage.RIGHT_TABLE: {"k", "name", "level"},
        Stage.SUBSCRIPTION_STORE: keys | {"_fk_previous_fk_k"},
        Stage.RESPONSES: keys,
        Stage.RESOLVED_JOIN: keys | {"id", "contact", "name", "age"},
    }


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("java.io.IOException: secret", "java.io.IOException"),
        ("An error\nCaused by: org.x.SomeError: secret\n\tat a.b", "org.x.SomeError"),
        ("Secret.value of a row", "RuntimeError"),
        ("[SECRET] is no date", "RuntimeError"),
    ],
)
def test_the_kind_of_an_error_is_no_word_of_its_message(text: str, kind: str) -> None:
    assert kind_of(RuntimeError(text)) == kind
