"""What becomes of the other cases when an error ends one, and what stays of their files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.console import say_error
from fk_pipeline.environment import scratch
from fk_pipeline.errors import FkPipelineError, SparkEndedError, StageError, StorageError
from fk_pipeline.pipeline import Pipeline, load
from fk_pipeline.spec import load_spec
from fk_pipeline.testing.case_file import selected_cases
from fk_pipeline.testing.run import CaseResult, run_cases

CASES = "- {name: a, given: {left: []}, expect: []}\n- {name: b, given: {left: []}, expect: []}\n"


@pytest.fixture
def run(orders: Callable[..., Path]) -> Callable[..., list[CaseResult]]:
    """Returns a function that runs two cases, each of which ends in an error."""

    def run(error: Exception, **options: bool) -> list[CaseResult]:
        def opened(_: Any) -> Any:
            raise error

        spec = load_spec(orders(CASES))
        return [*run_cases(spec, selected_cases(spec), opened, **options)]

    return run


@pytest.mark.parametrize(
    ("error", "text"),
    [(StageError("it failed"), "StageError: it failed"), (ValueError("odd\nmore"), "ValueError: odd")],
)
def test_an_error_ends_its_case(run: Any, error: Exception, text: str) -> None:
    assert [(result.name, result.error) for result in run(error)] == [("a", text), ("b", text)]


@pytest.mark.parametrize(
    ("error", "raised"),
    [(SparkEndedError("it is gone"), SparkEndedError), (OSError(28, "No space left on device"), StorageError)],
)
def test_an_error_of_the_environment_ends_all(run: Any, error: Exception, raised: type[FkPipelineError]) -> None:
    with pytest.raises(raised):
        run(error)


def test_nothing_stays_but_what_is_to_be_kept(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_folders", {})
    run(StageError("it failed"))
    [of_process] = (tmp_path / f"fk-pipeline-{os.getuid()}").iterdir()  # which is swept when the process is dead
    assert [path.name for path in of_process.iterdir()] == ["owner.json"]
    with pytest.raises(SparkEndedError) as raised:
        run(SparkEndedError("it is gone"), keep=True)
    [left] = tmp_path.glob("fk-pipeline-test-*")
    assert raised.value.__notes__ == [f"its files: {left}"]


def test_an_error_in_progress_removes_the_folders(
    orders: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_folders", {})
    monkeypatch.setattr(Pipeline, "run", lambda *_, **__: [])

    def progress(result: CaseResult) -> None:
        assert [*scratch.scratch_folder().glob("fk-pipeline-test-*/*")]
        raise KeyError(result.name)

    with pytest.raises(KeyError) as error:
        load(orders(CASES)).test(progress=progress)
    assert not [*scratch.scratch_folder().glob("fk-pipeline-test-*")], error  # whose traceback has the frames


def test_people_read_where_the_files_are(capsys: pytest.CaptureFixture[str]) -> None:
    error = SparkEndedError("it is gone")
    error.add_note("its files: a/folder")
    say_error(error)
    assert capsys.readouterr().err == "SparkEndedError: it is gone\n  its files: a/folder\n"
