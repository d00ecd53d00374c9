"""Where Sail computes, nothing is checked, and that is said before anything runs. Needs no session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, Definitions
from typer.testing import CliRunner

from expectations.checking import check
from expectations.checks import checks_of
from fk_pipeline.cli.main import app, app_main
from fk_pipeline.definitions import definitions
from fk_pipeline.environment import sail
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from resources import FkSparkResource, LandingZoneResource

REFUSED = "checks are made on Spark, and here Sail computes"
FILE = """
name: tested
join: left
left: {path: landing/left, format: rows, schema: "id INT, fk STRING", key: id, foreign_key: fk}
right: {path: landing/right, format: rows, schema: "k STRING, name STRING", key: k}
select: [id, name]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline file with one batch that has landed."""
    for side, line in (("left", '{"id": 1, "fk": "a"}'), ("right", '{"k": "a", "name": "A"}')):
        folder = tmp_path / "landing" / side
        folder.mkdir(parents=True)
        (folder / "0.jsonl").write_text(line + "\n")
    made = tmp_path / "pipeline.yaml"
    made.write_text(FILE)
    return made


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session would be one on Sail, and none is started."""

    def started() -> None:
        raise AssertionError("a session was started")

    monkeypatch.setattr("fk_pipeline.session.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr(sail, "start", started)
    monkeypatch.setenv("FK_SPARK_REMOTE", sail.NAME)


@pytest.mark.parametrize("arguments", [["verify", "{file}"], ["run", "{file}", "--check"]])
def test_a_command_that_checks_is_refused_before_a_session_starts(
    file: Path, no_session: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: Any
) -> None:
    command = [one.format(file=file) for one in arguments]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.what == REFUSED
    assert "unset FK_SPARK_REMOTE" in refused.exception.fix
    monkeypatch.setattr("sys.argv", ["fk-pipeline", *command])
    with pytest.raises(SystemExit) as ended:
        app_main()
    assert ended.value.code == 2
    assert f"UsageError: pipeline tested: {REFUSED}" in capsys.readouterr().err
    assert not Pipeline(load_spec(file)).ledger().batches  # not even looked for


def test_without_checks_a_command_goes_on_to_the_session(file: Path, no_session: None) -> None:
    for command in (["verify", str(file), "--no-checks"], ["run", str(file)]):
        with pytest.raises(AssertionError, match="a session was started"):
            CliRunner().invoke(app, command, catch_exceptions=False)


def test_a_session_that_was_given_decides(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: Any = object()
    pipeline = Pipeline(load_spec(file), given)
    monkeypatch.setenv("FK_SPARK_REMOTE", sail.NAME)
    assert not pipeline.on_sail
    monkeypatch.setattr(sail, "is_sail", lambda session: session is given)
    assert pipeline.on_sail
    with pytest.raises(UsageError, match=REFUSED):
        check(pipeline, Stage.RESPONSES)
    assert not pipeline.ledger().failed_checks()


def test_the_step_of_an_asset_check_fails_and_says_why(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = object()
    monkeypatch.setattr(FkSparkResource, "spark_session", given)
    monkeypatch.setattr(sail, "is_sail", lambda session: session is given)
    spec = load_spec(file)
    of_assets = Definitions(
        assets=definitions([spec]).assets,
        asset_checks=checks_of(spec),
        jobs=definitions([spec]).jobs,
        resources={"spark": FkSparkResource(), "landing_zone": LandingZoneResource()},
    )
    with DagsterInstance.ephemeral() as instance:
        done = of_assets.resolve_job_def("tested_full_checks").execute_in_process(
            instance=instance, raise_on_error=False
        )
    assert not done.success
    failures = [event for event in done.all_events if event.is_step_failure]
    assert len(failures) == len(Stage)
    assert all(REFUSED in str(event.step_failure_data.error) for event in failures)
    assert not done.get_asset_check_evaluations()
