"""What becomes of the other cases when an error ends one, and what stays of their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.errors import FkPipelineError, SparkEndedError, StageError, StorageError
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
