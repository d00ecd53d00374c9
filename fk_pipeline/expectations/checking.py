"""Checks a stage: scans its tables, evaluates the findings and the user's suites, records the verdict in the ledger.

The asset checks, `fk-pipeline verify` and `fk-pipeline run --check` call this and nothing else.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import passing
from fk_pipeline.contract import Role
from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.environment.storage import refuse_remote
from fk_pipeline.errors import CheckFailedError, ExpectationNotRunError, PipelineFileError
from fk_pipeline.expectations.validation import Outcome, Validator
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.privacy import concealing
from fk_pipeline.readable import ReadablePipeline
from fk_pipeline.rules.scan import Finding
from fk_pipeline.rules.suites import Depth, Expectation, Remedy, Severity, suite_of, suites_of
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.settings import OwnExpectation
from fk_pipeline.store import schemas as s
from fk_pipeline.store.skipping import Within
from fk_pipeline.verify.last_writers import current_rows

if TYPE_CHECKING:
    from fk_pipeline.verify.report import VerifyReport


@dataclass(frozen=True)
class CheckResult:
    """The result of a check for one expectation.

    Attributes:
        expectation: the expectation; one of a user is converted to the same class.
        outcome: whether it holds.
        finding: the findings of the scan for it.
    """

    expectation: Expectation
    outcome: Outcome
    finding: Finding

    @property
    def name(self) -> str:
        """The name of the expectation."""
        return self.expectation.name

    @property
    def severity(self) -> Severity:
        """The severity of a failure."""
        return self.expectation.severity

    @property
    def failed(self) -> bool:
        """Whether it was evaluated and does not hold."""
        return not self.outcome.passed and self.outcome.problem is None

    def counts(self) -> dict[str, Any]:
        """Returns the result as the command prints it."""
        status = "passed" if self.outcome.passed else "failed" if self.failed else "not run"
        entry: dict[str, Any] = {
            "status": status,
            "severity": self.severity,
            "value": self.finding.value,
            "pending": self.finding.pending,
        }
        if self.failed:
            entry |= {"batches": list(self.finding.batches), "sample": list(self.finding.sample)}
        return entry | ({"problem": self.outcome.problem} if self.outcome.problem else {})


@dataclass(frozen=True)
class Checked:
    """The result of a check of a stage.

    Attributes:
        stage: the stage.
        depth: the depth of the check.
        batches: the batches that were checked; None for all.
        rows: the number of rows of the stage's first table that were checked.
        results: one per expectation, in the order of the suite.
        seconds: the duration.
    """

    stage: str
    depth: Depth
    batches: BatchRange | None
    rows: int
    results: tuple[CheckResult, ...]
    seconds: float

    @property
    def failed(self) -> list[CheckResult]:
        """The critical expectations that do not hold."""
        return [result for result in self.results if result.failed and result.severity == "critical"]

    @property
    def not_run(self) -> list[CheckResult]:
        """The expectations that could not be evaluated."""
        return [result for result in self.results if result.outcome.problem is not None]


NO_BATCH_FAILED = "no_batch_failed"
"""The check of every stage that asks the ledger, and no table: a batch may have failed in a run outside Dagster."""


def own_suite(spec: PipelineSpec, stage: str) -> tuple[OwnExpectation, ...]:
    """Returns the user's expectations that are checked with a stage.

    Raises:
        PipelineFileError: one has the name of a built-in expectation of the stage.
    """
    kind = spec.definition
    about = kind.result.name if stage == kind.result_stage else kind.side_of(stage)
    own = () if about is None else spec.expectations.of(about)
    built_in = {NO_BATCH_FAILED, *(expectation.name for expectation in suites_of(kind)[stage])}
    for expectation in own:
        if expectation.name in built_in:
            raise PipelineFileError(
                f"an expectation is called {expectation.name!r}, as one of {stage} is already",
                where=str(spec.file),
                fix="give it another name",
            )
    return own


def check(
    pipeline: ReadablePipeline,
    stage: str,
    batches: BatchRange | None = None,
    *,
    only: Collection[str] | None = None,
    validator: Validator | None = None,
    proof: VerifyReport | None = None,
    check_id: str | None = None,
) -> Checked:
    """Checks the tables of a stage, and records the verdict.

    Args:
        pipeline: the pipeline.
        stage: the stage.
        batches: check only the rows that these batches touched (batch depth); None for all rows (full depth).
        only: the names of the expectations to check; default: all.
        validator: a context of Great Expectations, for example one that writes Data Docs.
        proof: the report of a verification that has already run.
        check_id: the id of a run that checks several stages.

    Raises:
        StateError: the stored tables do not fit the pipeline file, or nothing was ever run.
        ConcealedError: the check failed with an error that may show values of sensitive columns.
    """
    pipeline.refuse_never_run()
    with concealing(pipeline.spec):
        checked = _checked(pipeline, stage, batches, only, validator or Validator(), proof)
        _record(pipeline, checked, check_id)
    return checked


@dataclass(frozen=True)
class CheckedStages:
    """The results of the checks of all stages.

    Attributes:
        stages: one per stage, in running order.
        docs: the first page of the Data Docs; None if none were to be written.
    """

    stages: tuple[Checked, ...]
    docs: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether every critical expectation holds, and every expectation could be evaluated."""
        return not any(stage.failed or stage.not_run for stage in self.stages)


def check_all(pipeline: ReadablePipeline, proof: VerifyReport | None, docs: Path | None) -> CheckedStages:
    """Checks every stage at full depth, and records the verdicts.

    Args:
        pipeline: the pipeline.
        proof: the report of a verification that has already run.
        docs: the folder for Data Docs; None: none are written.

    Raises:
        StateError, ConcealedError: as with `check`.
    """
    if docs is not None:
        refuse_remote(docs)
    validator, check_id = Validator(docs), uuid.uuid4().hex[:12]
    stages = pipeline.spec.definition.stage_names
    checked = [check(pipeline, stage, validator=validator, proof=proof, check_id=check_id) for stage in stages]
    return CheckedStages(tuple(checked), validator.index)


def _checked(
    pipeline: ReadablePipeline,
    stage: str,
    batches: BatchRange | None,
    only: Collection[str] | None,
    validator: Validator,
    proof: VerifyReport | None,
) -> Checked:
    started = time.monotonic()
    spec, depth = pipeline.spec, Depth.FULL if batches is None else Depth.BATCH
    suite = [expectation for expectation in suite_of(spec, stage, depth) if only is None or expectation.name in only]
    own = [expectation for expectation in own_suite(spec, stage) if only is None or expectation.name in only]
    scanned = violations(pipeline, stage, batches, proof)
    suite = [expectation for expectation in suite if expectation.name in scanned.findings]
    outcomes = validator.assert_findings(spec.name, stage, scanned.findings, suite, spec.settings)
    results = [
        CheckResult(expectation, outcomes[expectation.name], scanned.findings[expectation.name])
        for expectation in suite
    ]
    if own:
        rows, hidden = _rows_for_users(pipeline, stage, batches), _about_sensitive(spec, stage, own)
        ran = validator.run_own(
            spec.name, stage, rows, [expectation for expectation in own if expectation not in hidden]
        )
        ran |= Validator().run_own(spec.name, stage, rows, hidden, counts_only=True)
        for expectation in own:
            severity: Severity = "critical" if expectation.severity == "critical" else "warning"
            text = expectation.description or f"{expectation.type} {dict(expectation.kwargs)}"
            results.append(
                CheckResult(Expectation(expectation.name, text, severity, Remedy.SOURCE), *ran[expectation.name])
            )
    return Checked(stage, depth, batches, scanned.rows, tuple(results), time.monotonic() - started)


def _rows_for_users(pipeline: ReadablePipeline, stage: str, batches: BatchRange | None) -> DataFrame:
    """Returns the rows for a user's suite: of an input table or of the result; only those that some batches wrote."""
    spec, runner = pipeline.spec, pipeline.runner
    side = spec.definition.side_of(stage)
    if side is None:
        where = [] if batches is None else [Within(s.BATCH, batches)]
        [result] = runner.layout.of(spec.definition.result.name)
        rows = runner.warehouse.read(result, where=where)
        return rows.select(*[quote(output.name) for output in spec.outputs])
    columns = [c.quoted for c in spec.side(side).columns]
    table = runner.layout[spec.definition.input(side).log]
    if batches is not None:
        rows = passing(runner.warehouse.read(table, where=[Within(s.BATCH, batches)]), spec.side(side))
        return rows.where(~F.col(s.DELETED)).select(*columns)
    if spec.definition.table(stage).role is Role.STATE:
        return pipeline.table(stage).where(F.col(s.HASH).isNotNull()).select(*columns)
    return current_rows(runner.warehouse.read(table), spec.side(side)).select(*columns)


def _about_sensitive(spec: PipelineSpec, stage: str, own: Sequence[OwnExpectation]) -> list[OwnExpectation]:
    """Returns the expectations that read a sensitive column of `_rows_for_users`, or that name no column."""
    side = spec.definition.side_of(stage)
    sensitive = {*(spec.sensitive_outputs if side is None else spec.side(side).sensitive)}
    return [
        expectation
        for expectation in own
        if sensitive and (not expectation.columns or sensitive & {*expectation.columns})
    ]


def _record(pipeline: ReadablePipeline, checked: Checked, check_id: str | None) -> None:
    """Records the verdict for the stages downstream.

    One row per expectation that failed, one per expectation that holds again after a failure, and one for the whole.
    """
    ledger, span = pipeline.ledger(), checked.batches
    failed_before = {failure.name for failure in ledger.checks.failed() if failure.stage == checked.stage}
    same = {
        "check_id": check_id,
        "stage": checked.stage,
        "depth": checked.depth.value,
        "first": None if span is None else int(span.first),
        "last": None if span is None else int(span.last),
        "looked_at": None if span is None or not span.gaps else [int(b) for b in ledger.batches if b in span],
        "seconds": checked.seconds,
    }
    rows = [
        same
        | {
            "name": result.name,
            "severity": result.severity,
            "passed": result.outcome.passed,
            "value": float(result.finding.value),
            "pending": result.finding.pending,
            "batches": _lies_at(result.finding, checked, ledger.batches),
            "cure": result.expectation.remedy.value,
        }
        for result in checked.results
        if result.failed or (result.outcome.passed and result.name in failed_before)
    ]
    whole = {
        "name": "",
        "severity": "summary",
        "passed": not checked.failed and not checked.not_run,
        "value": float(sum(result.outcome.passed for result in checked.results)),
        "pending": sum(result.finding.pending for result in checked.results),
    }
    ledger.checks.record([*rows, same | whole])


def _lies_at(finding: Finding, checked: Checked, known: Sequence[int]) -> list[int]:
    """Returns the batches that a failure is attributed to; none if they are not known.

    A failed check of some batches stops at least one of these batches, even if the broken rows belong to others.
    """
    batches = [int(b) for b in known if checked.batches is not None and b in checked.batches]
    if not set(finding.batches) <= set(map(int, known)):
        return batches
    return sorted({*finding.batches, *([] if set(batches) & set(finding.batches) else batches)})


def fix_of(result: CheckResult, stage: str, pipeline: ReadablePipeline) -> str:
    """Returns the remedy for an expectation that does not hold: a command from the ledger, or an advice.

    Args:
        result: of an expectation that does not hold; its check is recorded.
        stage: its stage.
        pipeline: the pipeline.
    """
    spec = pipeline.spec
    if result.outcome.problem is not None:
        return f"mend the expectation in {spec.file}, and check again"
    ledger = pipeline.ledger()
    failed = [failure for failure in ledger.checks.failed() if (failure.stage, failure.name) == (stage, result.name)]
    if failed:
        return check_failed(failed, spec, ledger).fix
    return result.expectation.advice.format(file=spec.file)


def refuse_failed(checked: Checked, pipeline: ReadablePipeline) -> None:
    """Raises an error if a critical expectation does not hold or an expectation could not be evaluated.

    Raises:
        CheckFailedError: a critical expectation does not hold.
        ExpectationNotRunError: an expectation could not be evaluated.
    """
    where = f"pipeline {pipeline.spec.name}, stage {checked.stage}"
    names = {result.name for result in checked.failed}
    if names:
        failed = [
            failure
            for failure in pipeline.ledger().checks.failed()
            if failure.stage == checked.stage and failure.name in names
        ]
        if failed:
            raise check_failed(failed, pipeline.spec, pipeline.ledger())
        raise CheckFailedError(f"check {checked.failed[0].name} failed", where=where)
    if checked.not_run:
        raise not_run(checked.not_run, where)


def not_run(results: Sequence[CheckResult], where: str) -> ExpectationNotRunError:
    """Returns the error for expectations that could not be evaluated."""
    first = results[0]
    return ExpectationNotRunError(
        f"expectation {first.name!r} could not be evaluated: {first.outcome.problem}",
        where=where,
        why="whether it holds is not known; it is no statement about the data",
    )
