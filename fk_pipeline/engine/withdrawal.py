"""Batches that are withdrawn from the tables, and brought back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fk_pipeline.cdc.landing import Discovery
from fk_pipeline.engine.discovery import gone_in_batch
from fk_pipeline.errors import StateError, UsageError
from fk_pipeline.identity import BatchId, contiguous
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.lease import lease
from fk_pipeline.store.ledger import Ledger

BATCHES_TOLD = 12
"""The largest number of ranges that an error names when it lists the existing batches."""


def withdraw(
    spec: PipelineSpec, ledger: Ledger, landed: Discovery, batch: int, tell: Callable[[str], None], forget: bool
) -> None:
    """Withdraws a batch, under the lease of discoveries: see `Pipeline.remove_batch`.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        landed: what a discovery saw just now.
        batch: its number.
        tell: called with a notice if the batch has no landing files, or stays without some versions.
        forget: agrees that its rows are lost, because landing files of it are gone.

    Raises:
        UsageError: the batch does not exist (see `empty_batches`), or is withdrawn already; or a landing file of it is
            gone, or versions of a Delta table, so that it could not be brought back.
        StateError: it was folded.
    """
    empty = empty_batches(spec, ledger, [batch], "nothing was withdrawn")
    if empty:
        tell(empty[0])
        return
    refuse_folded(ledger, spec, batch)
    if batch in ledger.files.removed:
        raise UsageError(
            f"batch {batch} is withdrawn already",
            fix=f"fk-pipeline run {spec.file} --batches {batch} brings it back",
        )
    gone, unread = gone_in_batch(spec, ledger, landed, batch)
    if unread and not forget:
        ledger.files.give_up(unread)
        for file in unread:
            tell(
                f"versions {file.path} were never read and are gone: the next run has the whole table in their "
                f"place; what else is in batch {batch} stays"
            )
        return
    if gone and not forget:
        raise UsageError(
            f"batch {batch} could not be brought back: {gone[0]} is gone",
            where=str(spec.file),
            why="its rows would be lost; nothing was withdrawn",
            fix="restore it; or agree: --forget",
        )
    ledger.files.remove(batch)


def restore(spec: PipelineSpec, ledger: Ledger, landed: Discovery, batch: BatchId) -> None:
    """Brings a withdrawn batch back.

    Raises:
        UsageError: one of its landing files is gone, or versions of a Delta table; the batch stays withdrawn.
        StateError: the batch was folded.
    """
    refuse_folded(ledger, spec, batch)
    gone, unread = gone_in_batch(spec, ledger, landed, batch)
    if gone or unread:
        raise UsageError(
            f"batch {batch} cannot be brought back: {[*gone, *(f.path for f in unread)][0]} is gone",
            where=str(spec.file),
            why="the batch stays withdrawn",
            fix="restore it and run again",
        )
    with lease(spec.home, "discovery"):
        ledger.files.restore(batch)


def refuse_folded(ledger: Ledger, spec: PipelineSpec, batch: int) -> None:
    """Refuses to withdraw or restore a folded batch.

    Raises:
        StateError: the batch was folded.
    """
    if any(batch in ledger.folds.of(stage) for stage in ledger.inputs):
        raise StateError(
            f"batch {batch} was folded",
            where=f"pipeline {spec.name}",
            why="which versions it superseded is not known any more; nothing was changed",
            fix=f"fk-pipeline rebuild {spec.file} --from landing, then try again",
        )


def empty_batches(spec: PipelineSpec, ledger: Ledger, batches: Iterable[int], why: str) -> list[str]:
    """Returns notices about the batches without landing files that lie between known batches.

    Raises:
        UsageError: a number is less than that of the first known batch, or greater than that of the last; `why` is
            what did not happen because of it.
    """
    known, notices = ledger.batches, []
    for batch in (batch for batch in batches if batch not in known):
        if known and known[0] < batch < known[-1]:
            notices.append(
                f"batch {int(batch)} is empty: no landing file has this number; there is nothing to do for it"
            )
        else:
            runs = list(map(str, contiguous(known, [n + 1 for n in known if n + 1 not in known])))
            listed = ", ".join(runs if len(runs) <= BATCHES_TOLD else [*runs[: BATCHES_TOLD - 1], "...", runs[-1]])
            raise UsageError(
                f"there is no batch {int(batch)}: no landing file has this number",
                where=f"pipeline {spec.name}",
                why=why,
                fix=f"the batches are {listed}" if known else "land a file first: there is no batch yet",
            )
    return notices
