"""The error for batches that failed checks: what failed, and the remedy. No Spark."""

from __future__ import annotations

from collections.abc import Sequence

from fk_pipeline.errors import CheckFailedError
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.checks import AGREEMENT, LANDING, REBUILD, SOURCE, FailedCheck


def check_failed(failed: Sequence[FailedCheck], spec: PipelineSpec, ledger: Ledger) -> CheckFailedError:
    """Returns the error for batches that failed checks, with the remedy for the first."""
    first = failed[0]
    mend = f"fk-pipeline run {spec.file} --batches {first.batch} makes it anew"
    waiving = f"; or go on as it is: fk-pipeline run {spec.file} --waive REASON" if first.may_be_waived else ""
    if first.remedy == LANDING:
        mend = f"fk-pipeline rebuild {spec.file} --from landing; or bring back what was read"
    elif first.remedy == AGREEMENT:
        mend = f"correct what landed ('fk-pipeline impact {spec.file} --changes FILE' counts), or remove the batch"
    elif first.remedy == SOURCE and first.batch is None:
        mend = f"correct what landed, run that, and fk-pipeline verify {spec.file} checks it again"
    elif first.remedy == SOURCE:
        mend = "correct what landed and run the batch again"
    elif first.remedy == REBUILD or first.batch in (None, *ledger.files.removed):  # a run would restore a withdrawn one
        mend = f"fk-pipeline rebuild {spec.file} --stages {first.stage} makes it anew"
    others = f", and {len(failed) - 1} more ('fk-pipeline status' lists them)" if len(failed) > 1 else ""
    return CheckFailedError(
        f"{first}{others}",
        where=f"pipeline {spec.name}",
        why="no later version of it is applied"
        if first.remedy == LANDING
        else "what comes after it does not run for it",
        fix=f"{mend}{waiving}",
    )
