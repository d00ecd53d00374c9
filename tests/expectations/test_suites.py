"""The suites alone: what Great Expectations says of counts, without Spark."""

from __future__ import annotations

import pandas as pd
import pytest

from expectations.suites import SUITES, ExpectationNotRunError, TableExpectation, validate
from fk_pipeline.identity import Stage

SUITE = SUITES[Stage.RESOLVED_JOIN]


def test_an_expectation_holds_when_nothing_violates_it() -> None:
    counts = {one.name: 0 for one in SUITE} | {"no_missing_row": 3, "not expected of anything": 7}
    assert validate(pd.DataFrame([counts]), SUITE) == {one.name: one.name != "no_missing_row" for one in SUITE}


def test_great_expectations_prints_no_progress_bars(capfd: pytest.CaptureFixture[str]) -> None:
    validate(pd.DataFrame([{one.name: 0 for one in SUITE}]), SUITE)
    assert capfd.readouterr() == ("", "")


def test_an_expectation_that_could_not_be_evaluated_is_an_error_and_not_a_failure() -> None:
    unheard = TableExpectation("no_such_rule", "Nobody counts it.")
    with pytest.raises(ExpectationNotRunError, match="'no_such_rule' could not be evaluated"):
        validate(pd.DataFrame([{"no_stale_row": 0}]), [unheard], where="pipeline checked, table resolved_join")
