"""Errors of a stage that Spark or the file system ended: where, whether another run helps, and what else does."""

from __future__ import annotations

from collections.abc import Sequence

from fk_pipeline.errors import SparkEndedError, StageError
from fk_pipeline.failures import comes_again, is_from_spark, is_of_values
from fk_pipeline.identity import BatchId, BatchRange, LandedFile
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger

SUSPECTS = 3
"""The number of largest landing files that are named."""


def spark_ended(spec: PipelineSpec, ledger: Ledger, stage: str, batches: BatchRange) -> SparkEndedError:
    """Returns the error for a stage whose Spark has ended."""
    known = _known(ledger, batches)
    files = [file for batch in known for side in spec.sides for file in ledger.files.of(batch, side)]
    heap = spec.settings.driver_memory or "Spark's own"
    return SparkEndedError(
        "Spark ended while the stage ran",
        where=place(spec, stage, batches),
        why=f"most often its memory ran out (heap: {heap}), here over {_largest(files) or 'its tables'}. The batches "
        "stay due; whatever the stage had committed is repaired by running it again",
        fix=f"fk-pipeline run {spec.file}, which starts Spark anew; if it ends again, raise "
        "settings.driver_memory (of a Connect server: its own), or land the rows in smaller files",
    )


def stage_failed(
    spec: PipelineSpec, ledger: Ledger, stage: str, batches: BatchRange, error: Exception, what: str, before: str | None
) -> StageError:
    """Returns the error for a stage that an error of Spark, delta-rs or the file system ended.

    Args:
        spec: the pipeline.
        ledger: its ledger, or that of a rebuild.
        stage: the stage.
        batches: the batches for which it ran.
        error: the error.
        what: its message in one sentence.
        before: the message with which the run before this one failed; None if it did not.
    """
    why = "whatever the stage had committed is repaired by running it again"
    fix = f"mend what the message names, and {_again(spec, ledger)}; if the error comes again, it says what else helps"
    if is_of_values(error) and spec.definition.side_of(stage) is None:  # one that fails on a single row is isolated
        why = "an aggregate, or an expression over aggregates, fails on the rows of a group together"
        source = " --from changelog" if spec.definition.logged else ""
        fix = f"try_sum, try_divide or a wider type; then fk-pipeline rebuild {spec.file}{source}"
    elif comes_again(error):
        why, fix = "another run fails in the same way", _otherwise(spec, ledger, stage, batches)
    elif is_from_spark(error) and what == before:
        why, otherwise = "the last run failed in the same way", _otherwise(spec, ledger, stage, batches)
        fix = f"mend what the message names; if that is no machine and no storage: {otherwise}"
    return StageError(what, where=place(spec, stage, batches), why=f"the batches stay due; {why}", fix=fix)


def place(spec: PipelineSpec, stage: str, batches: BatchRange) -> str:
    """Returns where an error of a stage is."""
    return f"pipeline {spec.name}, stage {stage}, batch {batches}"


def last_error(ledger: Ledger, stage: str, batches: BatchRange) -> str | None:
    """Returns the message with which the last run of a stage failed for some batches; None unless there is just one."""
    errors = {ledger.state(stage, batch).error for batch in _known(ledger, batches)} - {None}
    return errors.pop() if len(errors) == 1 else None


def _rebuilds(spec: PipelineSpec, ledger: Ledger) -> bool:
    """Returns whether the ledger is that of a rebuild, whose tables nobody has yet."""
    return ledger.home != spec.home.rstrip("/")


def _again(spec: PipelineSpec, ledger: Ledger) -> str:
    return "rebuild again" if _rebuilds(spec, ledger) else f"fk-pipeline run {spec.file}"


def _otherwise(spec: PipelineSpec, ledger: Ledger, stage: str, batches: BatchRange) -> str:
    """Returns what helps where another run does not: without the batch at fault, or from state that is made again."""
    side, known = spec.definition.side_of(stage), _known(ledger, batches)
    read = {batch: ledger.files.of(batch, side) for batch in known} if side is not None else {}
    read = {batch: files for batch, files in read.items() if files}  # a run that names a withdrawn batch restores it
    largest = _largest([file for files in read.values() for file in files])
    if _rebuilds(spec, ledger):
        detail = f"; what it read: {largest}" if read else ""
        return f"report it, with what this rebuild prints with --debug; the tables are as they were{detail}"
    report = f"report what this prints: fk-pipeline run {spec.file} --debug"
    if not read:
        return (
            f"fk-pipeline rebuild {spec.file}, which makes state and result anew from the changelogs; if that fails in "
            f"the same way, {report}"
        )
    if len(read) > 1:
        listed = ",".join(map(str, read))
        return f"fk-pipeline run {spec.file} --batches {listed}, which runs each alone and stops at the one at fault"
    return (
        f"correct {largest}, and run again; or take the batch out with all its files, so that others go on: "
        f"fk-pipeline remove-batch {spec.file} {next(iter(read))}; if nothing is wrong there, {report}"
    )


def _known(ledger: Ledger, batches: BatchRange) -> list[BatchId]:
    return [batch for batch in ledger.batches if batch in batches]


def _largest(files: Sequence[LandedFile]) -> str:
    """Returns the names and sizes of the largest files."""
    largest = sorted(files, key=lambda file: -file.size)[:SUSPECTS]
    more = f" and {len(files) - len(largest)} more" if len(files) > len(largest) else ""
    return ", ".join(f"{file.path} ({file.size:,} bytes)" for file in largest) + more
