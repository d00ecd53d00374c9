"""Finds the rows of a stage's tables that violate its expectations: counts, and a few sample rows.

A row that due work explains is pending, not a violation: stages may run in any order, so a table that lags behind its
inputs is a legal state (`docs/architecture.md`, rule 8). Two rows for one key are never legal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from fk_pipeline.blocks.changelog import row_expressions
from fk_pipeline.blocks.unsent import missed
from fk_pipeline.contract import Role, loaded
from fk_pipeline.failures import is_from_spark
from fk_pipeline.identity import BatchId, BatchRange, Side
from fk_pipeline.privacy import mask_of
from fk_pipeline.readable import ReadablePipeline
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.logs import changelog_view, ledger_counts
from fk_pipeline.rules.scan import SAMPLE, Finding, Scan, View, scan
from fk_pipeline.rules.suites import LATE, PROOF, QUARANTINED, SENT, Depth, log_prefix, suite_of
from fk_pipeline.spec.failing import ISOLATING, STOPPING, Evaluator
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.settings import GUARDED, settings
from fk_pipeline.verify.report import VerifyReport


def violations(
    pipeline: ReadablePipeline, stage: str, batches: BatchRange | None = None, proof: VerifyReport | None = None
) -> Scan:
    """Scans the tables of a stage.

    Args:
        pipeline: the pipeline.
        stage: the stage.
        batches: scan only the rows that these batches touched (batch depth); None for all rows (full depth).
        proof: the report of a verification that has already run; at full depth `resolved_join` is verified without one.

    Returns:
        A finding per expectation of the stage at this depth; none for an expectation that had no data to check.

    Raises:
        StateError: the stored tables do not fit the pipeline file.
    """
    spec, runner, ledger = pipeline.spec, pipeline.runner, pipeline.ledger()
    tables, refuse = runner.layout.tables, pipeline.refuse_unfinished
    with (
        CheckReader(runner.warehouse, tables, spec, ledger, stage, batches, refuse) as reader,
        settings(pipeline.session, reader.settings(), optional=True),
    ):
        scanned = _scanned(reader)
    depth = Depth.FULL if batches is None else Depth.BATCH
    findings = {**_ledger_says(reader), **scanned.findings}
    if stage == pipeline.spec.definition.result_stage and depth is Depth.FULL and (proof is None or proof.share == 1):
        findings[PROOF] = _proof(pipeline.verify() if proof is None else proof)
    names = [expectation.name for expectation in suite_of(pipeline.spec, stage, depth)]
    return Scan(scanned.rows, {name: findings[name] for name in names if name in findings})


def _scanned(reader: CheckReader) -> Scan:
    """Scans the tables; if an expression of the pipeline file fails on a row, scans again with row-error isolation."""
    session, kind = reader.warehouse.session, reader.kind
    side = kind.side_of(reader.stage)
    sensitive = loaded(kind.keys)(reader.spec, reader.stage if side is None else kind.input(side).log).sensitive
    mask = mask_of(reader.spec, reader.ledger, sensitive)

    def scanned(evaluator: Evaluator) -> Scan:
        views = _views(reader, evaluator)
        return scan(views, settings(session, reader.settings_of_counts(), optional=True), mask)

    try:
        return scanned(STOPPING)
    except Exception as error:
        derived = [sql for source in kind.logged for sql in row_expressions(reader.spec, source.name)]
        if not is_from_spark(error) or all(parse_expression(sql).plain for sql in derived):
            raise
    with settings(session, GUARDED):
        return scanned(ISOLATING)


def _views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the views of a stage's tables: of its main table, and of its log if it has one."""
    side, views = reader.kind.side_of(reader.stage), reader.kind.stage(reader.stage).views
    logs = [] if side is None else [_changelog_view(reader, side)]
    return [*(loaded(views)(reader, evaluator) if views else []), *logs]


def _changelog_view(reader: CheckReader, side: Side) -> View:
    log = reader.of_batches(reader.kind.input(side).log, s.BATCH)
    prefix = log_prefix(reader.kind, reader.stage)
    counted = ledger_counts(f"{prefix}rows_are_those_counted", reader, "rows")
    return changelog_view(log, reader.spec, side, counted, prefix)


def _ledger_says(reader: CheckReader) -> dict[str, Finding]:
    """Returns the findings from the counts of the ledger: quarantined share, rows without a sent column, late share.

    A batch that runs again counts its own earlier rows as late, so the late share is taken from batches that ran once.
    """
    stage, ledger = reader.stage, reader.ledger

    def share(part: str, whole: str, of: str, batches: Sequence[BatchId]) -> Finding:
        """Returns a count of the stage divided by a count of stage `of`, summed over the batches."""
        number = sum(ledger.state(stage, batch).counts.get(part, 0) for batch in batches)
        total = sum(ledger.state(of, batch).counts.get(whole, 0) for batch in batches)
        return Finding(round(number / total, 6) if total else 0.0)

    findings: dict[str, Finding] = {}
    kind = reader.spec.definition
    if stage in ledger.inputs:
        prefix = log_prefix(kind, stage)
        findings[f"{prefix}{QUARANTINED}"] = share("quarantined", "read", stage, reader.known)
        findings[f"{prefix}{SENT}"] = Finding(sum(rows for *_, rows in missed(ledger, stage, reader.known)))
    main = kind.table(stage)
    if main.role is Role.STATE and main.of is not None:
        log = kind.input(main.of).stage
        once = [batch for batch in reader.known if ledger.state(stage, batch).attempts == 1]
        findings[LATE] = share("late", "rows", log, once)
    return findings


def _proof(report: VerifyReport) -> Finding:
    """Returns the differences that a verification found as a finding of an expectation."""
    to_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
    sample = tuple(
        {
            "key": to_json(row["key"]),
            "found": "no row" if row["found"] is None else to_json(row["found"]),
            "expected": "no row" if row["expected"] is None else to_json(row["expected"]),
            "batch": None,
        }
        for row in report.sample[:SAMPLE]
    )
    return Finding(report.missing + report.stale + report.unexpected, report.pending, (), sample)
