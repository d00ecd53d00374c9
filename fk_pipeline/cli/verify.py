"""`fk-pipeline verify` and `run --check`: the checks of every stage beside the proof of the result."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from expectations.checking import Checked, check, refuse
from expectations.validation import Validator, preload
from fk_pipeline.console import Progress, say
from fk_pipeline.identity import Stage
from fk_pipeline.pipeline import Pass, Pipeline
from fk_pipeline.stages.runner import StageRun
from fk_pipeline.verify.report import VerifyReport

SHOWN = 3
"""Sample rows of a broken expectation that people are shown; the JSON has all."""


def checks_of_all(pipeline: Pipeline, report: VerifyReport, docs: Path | None) -> tuple[list[Checked], Path | None]:
    """Checks every stage at full depth; the first page of the Data Docs, if they are wanted."""
    validator, check_id = Validator(docs), uuid.uuid4().hex[:12]
    checked = [check(pipeline, stage, validator=validator, proof=report, check_id=check_id) for stage in Stage]
    return checked, validator.index


def as_json(report: VerifyReport, checked: list[Checked], index: Path | None) -> dict[str, Any]:
    """The report as one object: the counts of the contract, and per stage and expectation what was found."""
    found: dict[str, Any] = dict(report.counts())
    if report.share < 1:
        found["share"] = report.share
    if report.sample:
        found["sample"] = list(report.sample)
    if checked:
        found["checks"] = {one.stage.value: {result.name: result.counts() for result in one.results} for one in checked}
    return found | ({"docs": str(index)} if index is not None else {})


def print_checks(checked: list[Checked], index: Path | None) -> None:
    """What the checks found, for people: one line per stage, and every expectation that does not hold."""
    for one in checked:
        held = sum(result.outcome.passed for result in one.results)
        print(f"{one.stage:<19} {one.rows:>12,} rows: {held} of {len(one.results)} expectations hold")
        for result in one.results:
            if result.outcome.problem is not None:
                print(f"- {result.name} could not be evaluated: {result.outcome.problem}")
            elif result.failed:
                word = "FAILED" if result.severity == "critical" else "warning"
                print(f"- {word} {result.name}: {result.finding.value:,}. {result.expectation.description}")
                for row in result.finding.sample[:SHOWN]:
                    key = row["key"] if isinstance(row["key"], str) else json.dumps(row["key"], default=str)
                    print(f"    {key}: found {row['found']}, expected {row['expected']}")
    if index is not None:
        print(f"Data Docs: {index}")


class Checking(Progress):
    """Progress of a run that checks what a pass did before anything that comes after it runs."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self.pipeline = pipeline
        preload()

    def __call__(self, work: Pass, result: StageRun | None) -> None:
        """Shows what runs, and checks what is done.

        Raises:
            CheckFailedError: a critical expectation does not hold.
            ExpectationNotRunError: an expectation could not be evaluated.
        """
        super().__call__(work, result)
        if result is None:
            return
        checked = check(self.pipeline, work.stage, work.batches)
        warned = [one.name for one in checked.results if one.failed and one.severity == "warning"]
        held = sum(one.outcome.passed for one in checked.results)
        say(f"  {held} of {len(checked.results)} expectations hold ({checked.seconds:.1f} s)")
        for name in warned:
            say(f"  warning: {name}")
        refuse(checked, self.pipeline)
