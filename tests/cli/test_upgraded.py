"""What the commands without Spark say of a ledger that somebody has upgraded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fk_pipeline.cli.main import app_main
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from tests.upgrades import upgrade


def test_a_plan_refuses_what_a_run_would_and_a_status_goes_on(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*args: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["fk-pipeline", *args])
        with pytest.raises(SystemExit) as ended:
            app_main()
        return int(ended.value.code or 0), "".join(capsys.readouterr())

    def forbidden(*_: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr("fk_pipeline.session.start_session", forbidden)
    Pipeline(load_spec(file)).discover()
    path = file.parent / "warehouse/p/files"
    upgrade(path, "inCommitTimestamp")
    status, said = call("plan", str(file))
    assert status == 1
    told = f"StateError: {path}: table files has the feature inCommitTimestamp: it cannot be written without Spark"
    assert told in said
    assert f"Fix: in Spark: ALTER TABLE delta.`{path}` DROP FEATURE 'inCommitTimestamp'" in said
    assert call("run", str(file))[1].endswith(said[said.index("StateError") :]), "the same, before Spark starts"
    status, said = call("status", str(file))
    assert (status, "StateError" in said) == (0, False), said
