"""One dynamic partition per CDC batch. Partitions are derived from the ledger, never the ledger from partitions.

Dagster keeps dynamic partitions in the order in which they were added, and a range of partitions follows that order. So
the partitions are kept in the order of the batches: one that belongs between others is added there, and those behind it
move. A run over a range materialises whatever lies in it when a step ends: a partition that would come to lie within
the range of an active run is therefore added when that run has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import sqlalchemy
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, DynamicPartitionsDefinition, RunsFilter

# The filter of the public `DagsterInstance.get_backfills`, which Dagster does not export.
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

# `_replace_last` writes Dagster's table of partitions: its public methods write one partition at a time.
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import DynamicPartitionsTable
from sqlalchemy.exc import IntegrityError

from fk_pipeline.identity import BatchId
from fk_pipeline.resources.names import RANGE_FIRST, RANGE_LAST, batches_job_name, chain_tag, partitions_name
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger

ACTIVE = [
    DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]  # fmt: skip
BACKFILLING = [BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING, BulkActionStatus.FAILING]


def batch_partitions(spec: PipelineSpec) -> DynamicPartitionsDefinition:
    """Returns the partitions that all assets of a pipeline share: `b00000000`, `b00000001` ..."""
    return DynamicPartitionsDefinition(name=partitions_name(spec))


def active_runs(instance: DagsterInstance, spec: PipelineSpec) -> list[DagsterRun]:
    """Returns the runs of a pipeline that are queued or running: of its job, a backfill, by hand, or a chain."""

    def touches(run: DagsterRun) -> bool:
        assets = run.asset_selection or ()
        return chain_tag(spec.name) in run.tags or any(key.path[0] == spec.name for key in assets)

    runs = instance.get_runs(RunsFilter(statuses=ACTIVE))
    return [run for run in runs if run.job_name == batches_job_name(spec) or touches(run)]


def update_partitions(instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger) -> list[str]:
    """Gives every batch its partition, in order, and takes away those of batches that are gone.

    A batch is gone when it was withdrawn and every stage has taken its rows away. Partitions of no batch stay.

    Returns:
        The keys of the new partitions.
    """
    name = partitions_name(spec)
    known = [*instance.get_dynamic_partitions(name)]
    gone = {BatchId(batch).key for batch in ledger.files.removed if is_gone(ledger, batch)}
    missing = {batch.key for batch in ledger.batches} - gone - {*known}
    active = active_runs(instance, spec) if missing or gone & {*known} else []  # mostly there is nothing to do
    if gone & {*known} and not active and not backfill_goes_on(instance, spec):
        for key in gone & {*known}:
            instance.delete_dynamic_partition(name, key)
        known = [key for key in known if key not in gone]
    spans = [ends for run in active if (ends := _ends(run)) is not None]
    new = sorted(key for key in missing if not any(first < key < last for first, last in spans))
    _put(instance, spec, known, sorted([*known, *new]))
    return new


def is_gone(ledger: Ledger, withdrawn: int) -> bool:
    """Returns whether every stage has taken away the rows of a batch that was withdrawn."""
    return not any(ledger.due.has(stage, withdrawn) for stage in ledger.kind.stage_names)


def _ends(run: DagsterRun) -> tuple[str, str] | None:
    first, last = run.tags.get(RANGE_FIRST), run.tags.get(RANGE_LAST)
    return None if first is None or last is None else (min(first, last), max(first, last))


def _put(instance: DagsterInstance, spec: PipelineSpec, known: Sequence[str], expected: Sequence[str]) -> None:
    """Adds partitions in their places; those behind them move."""
    in_place = 0
    while in_place < len(known) and known[in_place] == expected[in_place]:
        in_place += 1
    name, last, storage = partitions_name(spec), [*expected[in_place:]], instance.event_log_storage
    if not last:
        return
    if in_place == len(known):
        instance.add_dynamic_partitions(name, last)
    elif isinstance(storage, SqlEventLogStorage):
        _replace_last(storage, name, known[in_place], last)
    else:
        _move_one_by_one(instance, spec, last)


def _replace_last(storage: SqlEventLogStorage, name: str, since: str, expected: Sequence[str]) -> None:
    """Writes the partitions since a given one again, in one transaction: none is ever missing for a run or a backfill.

    Dagster itself deletes and adds partitions one at a time only, so this uses the table that it keeps them in.
    """
    table = DynamicPartitionsTable.c
    of_pipeline = table.partitions_def_name == name
    with suppress(IntegrityError), storage.index_transaction() as connection:  # else another process did the same now
        first = connection.scalar(sqlalchemy.select(table.id).where(of_pipeline, table.partition == since))
        if first is None:
            return  # another process is at it: the next look sees what it left
        last = sqlalchemy.and_(of_pipeline, table.id >= first)
        stored = connection.scalars(sqlalchemy.select(table.partition).where(last)).all()  # maybe added meanwhile
        connection.execute(DynamicPartitionsTable.delete().where(last))
        rows = [{"partitions_def_name": name, "partition": key} for key in sorted({*stored, *expected})]
        connection.execute(DynamicPartitionsTable.insert(), rows)


def _move_one_by_one(instance: DagsterInstance, spec: PipelineSpec, keys: Sequence[str]) -> None:
    """Brings partitions into order in a storage that is no SQL database, if nothing in Dagster is at work with them.

    If the process dies, at most one is missing, and the next tick adds it.
    """
    name = partitions_name(spec)
    busy = bool(active_runs(instance, spec)) or backfill_goes_on(instance, spec)
    for key in keys:
        if not busy:
            instance.delete_dynamic_partition(name, key)
        instance.add_dynamic_partitions(name, [key])


def backfill_goes_on(instance: DagsterInstance, spec: PipelineSpec) -> bool:
    """Returns whether Dagster is at work on a backfill of a pipeline: it fails if one of its partitions is missing."""
    backfills = instance.get_backfills(BulkActionsFilter(statuses=BACKFILLING))
    return any(key.path[0] == spec.name for backfill in backfills for key in backfill.asset_selection or ())
