"""`fk-pipeline verify` and `run --check`: the checks of every stage, and the output of these with the proof."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fk_pipeline.console import Progress, key_of, print_lines, say, tell
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.expectations.checking import Checked, CheckedStages, CheckResult, check, fix_of, refuse_failed
from fk_pipeline.expectations.validation import import_early
from fk_pipeline.passes import Pass
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.verify.inputs.report import InputDifference, InputsReport
from fk_pipeline.verify.report import VerifyReport

SAMPLE_SHOWN = 3
"""The number of sample rows of a broken expectation that people are shown; the JSON has all."""


def as_json(
    pipeline: Pipeline,
    report: VerifyReport,
    checked: CheckedStages,
    landed: InputsReport | None = None,
) -> dict[str, Any]:
    """Returns the report as one object: the counts of the contract, and the findings per stage and expectation.

    Args:
        pipeline: the pipeline.
        report: the proof of its result.
        checked: the checks of its stages; of none if they were not to be checked.
        landed: the comparison of its landing files with the changelogs.
    """
    entry: dict[str, Any] = report.counts() | report.looked_at()
    if report.share < 1:
        entry["share"] = report.share
    if report.sample:
        entry["sample"] = list(report.sample)
    if landed is not None:
        entry["inputs"] = landed.as_json()
    if checked.stages:
        entry["checks"] = {
            suite.stage: {result.name: result.counts() | _fix(result, suite, pipeline) for result in suite.results}
            for suite in checked.stages
        }
    return entry | ({"docs": str(checked.docs)} if checked.docs is not None else {})


def _fix(result: CheckResult, checked: Checked, pipeline: Pipeline) -> dict[str, str]:
    return {} if result.outcome.passed else {"fix": fix_of(result, checked.stage, pipeline)}


def print_checks(pipeline: Pipeline, report: VerifyReport, checked: CheckedStages) -> None:
    """Prints the checks for people: one line per stage, and every expectation that does not hold, with its fix.

    A row of the result that the proof has shown is not shown again.
    """
    shown = {key_of(row["key"]) for row in report.sample}
    for suite in checked.stages:
        held = sum(result.outcome.passed for result in suite.results)
        tell(f"{suite.stage:<19} {suite.rows:>12,} rows: {held} of {len(suite.results)} expectations hold")
        for result in suite.results:
            if result.outcome.passed:
                continue
            if result.outcome.problem is not None:
                tell(f"- {result.name} could not be evaluated: {result.outcome.problem}")
            else:
                word = "FAILED" if result.severity == "critical" else "warning"
                tell(f"- {word} {result.name}: {result.finding.value:,}. {result.expectation.description}")
                new = [row for row in result.finding.sample if _key(row) not in shown]
                print_lines(
                    f"    {_key(row)}: found {row['found']}, expected {row['expected']}" for row in new[:SAMPLE_SHOWN]
                )
                shown |= {
                    _key(row) for row in new[:SAMPLE_SHOWN] if suite.stage == pipeline.spec.definition.result_stage
                }
            tell(f"    Fix: {fix_of(result, suite.stage, pipeline)}")
    if len([suite for suite in checked.stages if suite.failed]) > 1:
        tell("Mend the first one first: those of the stages after it may be its consequences.")
    if checked.docs is not None:
        tell(f"Data Docs: {checked.docs}")


def print_inputs(report: InputsReport, file: Path) -> None:
    """Prints a comparison of landing files for people: what was read, what differs, what was not compared."""
    verdict = "what was read is what landed" if report.ok else f"{report.differences:,} DIFFERENCES"
    tell(f"{report.lines:,} lines in {report.files:,} landing files, read anew: {verdict}")
    deleted = f"{report.deleted:,} deleted, {report.truncated:,} truncates, " if report.truncated else ""
    deleted = deleted or f"{report.deleted:,} deleted, "
    counts = (
        f"{report.written:,} written, {deleted}{report.quarantined:,} in the quarantine, {report.ignored:,} ignored"
    )
    lines = [f"{counts}; compared with {report.rows:,} rows of the changelogs"]
    if report.is_sample:
        share = " and some of their keys" if report.keys_share else ""
        lines.append(
            f"- a sample: batches{share} of {report.bytes_read / 1e6:,.0f} of {report.bytes_all / 1e6:,.0f} MB; "
            f"'fk-pipeline verify {file} --inputs --share 1' compares all"
        )
    lines += [
        f"- not compared: {left_out.batches:,} batch(es) of {left_out.side}, {left_out.files:,} file(s): {left_out.why}"
        for left_out in report.not_compared
    ]
    lines += map(_difference, report.sample)
    if len(report.sample) < report.differences:
        lines.append(f"- and {report.differences - len(report.sample):,} more")
    print_lines(lines)
    if not report.ok:
        tell(
            "Fix: if the files are right, the reader is wrong: please report it. With a version that reads them right, "
            f"'fk-pipeline rebuild {file} --from landing' reads them again"
        )


def _difference(difference: InputDifference) -> str:
    """Returns the line that shows a difference between a landing file and the tables."""
    place = (
        f"{difference.file}, line {difference.line}"
        if difference.line
        else difference.file or f"batch {difference.batch}"
    )
    about = ", ".join(part for part in (difference.key, difference.column and f"column {difference.column}") if part)
    text = f"{difference.side}, {place}{f' ({about})' if about else ''}"
    return f"- {difference.what}: {text}: landed: {difference.landed}; stored: {difference.stored}"


def _key(row: Mapping[str, Any]) -> str:
    """Returns the key of a sample row as text; a row of a user's expectation has no key."""
    return key_of(json.loads(row["key"], parse_float=str)) if row["key"] else "a row"


class Checking(Progress):
    """The progress of a run that checks each pass before the next one runs."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self.pipeline = pipeline
        import_early()

    def __call__(self, work: Pass, result: StageRun | None) -> None:
        """Shows the pass that runs, and checks it once it has ended.

        Raises:
            CheckFailedError: a critical expectation does not hold.
            ExpectationNotRunError: an expectation could not be evaluated.
        """
        super().__call__(work, result)
        if result is None:
            return
        checked = check(self.pipeline, work.stage, work.batches)
        warned = [
            check_result.name
            for check_result in checked.results
            if check_result.failed and check_result.severity == "warning"
        ]
        held = sum(check_result.outcome.passed for check_result in checked.results)
        say(f"  {held} of {len(checked.results)} expectations hold ({checked.seconds:.1f} s)")
        for name in warned:
            say(f"  warning: {name}")
        refuse_failed(checked, self.pipeline)
