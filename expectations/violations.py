"""What is wrong with the tables of a stage: counts, and a few sample rows.

A row that work still due explains is pending, not violated: stages may run in any order, so a table that lags behind
its inputs is a legal state (`docs/architecture.md`, rule 8). Two rows for one key are never legal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from expectations.changelogs import changelog_view, ledger_counts
from expectations.check_reader import CheckReader
from expectations.resolved_join import resolved_join_views
from expectations.responses import responses_views
from expectations.right_table import right_table_view
from expectations.scan import SAMPLE, Finding, Scan, View, scan
from expectations.subscription_store import subscription_store_view
from expectations.suites import LATE, PROOF, QUARANTINED, SENT, Depth, log_prefix, suite_of
from fk_pipeline.contract import Role
from fk_pipeline.failures import is_from_spark
from fk_pipeline.identity import BatchId, BatchRange, Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.privacy import mask_of
from fk_pipeline.spec.failing import ISOLATING, STOPPING, Evaluator
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.stages.drift import missed
from fk_pipeline.store import schemas as s
from fk_pipeline.store.settings import GUARDED, settings
from fk_pipeline.verify.report import VerifyReport


def violations(
    pipeline: Pipeline, stage: str, batches: BatchRange | None = None, proof: VerifyReport | None = None
) -> Scan:
    """Scans the tables of a stage.

    Args:
        pipeline: the pipeline.
        stage: the stage.
        batches: only what these touched (batch depth); None for everything (full depth).
        proof: a verification that was made already; at full depth one is made for `resolved_join` if there is none.

    Returns:
        What was found per expectation of the stage at this depth; nothing of one that there was nothing to look at for.

    Raises:
        StateError: the stored tables do not fit the pipeline file.
    """
    reader = CheckReader(pipeline, stage, batches)
    try:
        with settings(pipeline.session, reader.settings(), optional=True):
            found = _scanned(reader)
    finally:
        reader.release()
    depth = Depth.FULL if batches is None else Depth.BATCH
    findings = {**_ledger_says(reader), **found.findings}
    if stage == pipeline.spec.definition.result_stage and depth is Depth.FULL and (proof is None or proof.share == 1):
        findings[PROOF] = _proof(pipeline.verify() if proof is None else proof)
    wanted = [one.name for one in suite_of(pipeline.spec, stage, depth)]
    return Scan(found.rows, {name: findings[name] for name in wanted if name in findings})


def _scanned(reader: CheckReader) -> Scan:
    """The scan; with the pipeline's own expressions guarded where one of them fails on a row."""
    session, side = reader.warehouse.session, reader.spec.definition.side_of(reader.stage)
    sides = [] if side is None else [side]
    mask = mask_of(reader.spec, reader.ledger, k.sensitive_names(reader.spec, *sides))

    def scanned(evaluator: Evaluator) -> Scan:
        views = _views(reader, evaluator)
        return scan(views, settings(session, reader.settings_of_counts(), optional=True), mask)

    try:
        return scanned(STOPPING)
    except Exception as error:
        if not is_from_spark(error) or all(parse_expression(sql).plain for sql in reader.spec.left.foreign_key):
            raise
    with settings(session, GUARDED):
        return scanned(ISOLATING)


def _views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """What is looked at of a stage's tables: of its log, if it has one, and of its main table."""
    of_main = VIEWS.get(reader.stage)
    side = reader.spec.definition.side_of(reader.stage)
    logs = [] if side is None else [_changelog_view(reader, side, evaluator)]
    return [*(of_main(reader, evaluator) if of_main else []), *logs]


VIEWS: dict[str, Callable[[CheckReader, Evaluator], list[View]]] = {
    Stage.RIGHT_TABLE: lambda reader, _: [right_table_view(reader)],
    Stage.SUBSCRIPTION_STORE: lambda reader, evaluator: [subscription_store_view(reader, evaluator)],
    Stage.RESPONSES: lambda reader, _: responses_views(reader),
    Stage.RESOLVED_JOIN: lambda reader, _: resolved_join_views(reader),
}
"""By stage what is looked at of its main table; of one that keeps a log only, the log is all there is."""


def _changelog_view(reader: CheckReader, side: Side, evaluator: Evaluator) -> View:
    log = reader.of_batches(reader.spec.definition.input(side).log, s.BATCH)
    prefix = log_prefix(reader.spec.definition, reader.stage)
    counted = ledger_counts(f"{prefix}rows_are_those_counted", reader, "rows")
    return changelog_view(log, reader.spec, side, counted, prefix, evaluator)


def _ledger_says(reader: CheckReader) -> dict[str, Finding]:
    """What the ledger counted of what landed: the share in the quarantine, and that which came too late.

    A batch that runs again counts as late what it brought before, so only those that ran once tell what came too late.
    """
    here, ledger = reader.stage, reader.ledger

    def share(part: str, whole: str, of: str, batches: Sequence[BatchId]) -> Finding:
        """A count of the stage by a count of another, or of its own."""
        number = sum(ledger.state(here, batch).counts.get(part, 0) for batch in batches)
        total = sum(ledger.state(of, batch).counts.get(whole, 0) for batch in batches)
        return Finding(round(number / total, 6) if total else 0.0)

    found: dict[str, Finding] = {}
    kind = reader.spec.definition
    if here in ledger.inputs:
        prefix = log_prefix(kind, here)
        found[f"{prefix}{QUARANTINED}"] = share("quarantined", "read", here, reader.known)
        found[f"{prefix}{SENT}"] = Finding(sum(rows for *_, rows in missed(ledger, here, reader.known)))
    main = kind.table(here)
    if main.role is Role.STATE and main.of is not None:
        log = kind.input(main.of).stage
        once = [batch for batch in reader.known if ledger.state(here, batch).attempts == 1]
        found[LATE] = share("late", "rows", log, once)
    return found


def _proof(report: VerifyReport) -> Finding:
    """The differences that a verification found, as those of an expectation."""
    said = {"ensure_ascii": False, "separators": (",", ":")}
    sample = tuple(
        {
            "key": json.dumps(row["key"], **said),
            "found": "no row" if row["found"] is None else json.dumps(row["found"], **said),
            "expected": "no row" if row["expected"] is None else json.dumps(row["expected"], **said),
            "batch": None,
        }
        for row in report.sample[:SAMPLE]
    )
    return Finding(report.missing + report.stale + report.unexpected, report.pending, (), sample)
