"""What a result has, in rows: how many there are, how many have a match, which batches they are of. Needs no Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from deltalake.exceptions import DeltaError

from fk_pipeline.errors import FkPipelineError, LeftToSpark
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.logs import UNKNOWN_SIZE
from fk_pipeline.store.null_counts import null_counts

_NOT_COUNTED = (LeftToSpark, FkPipelineError, DeltaError, OSError)
"""Errors with which rows are not counted: only Spark reads a file, or the time is over."""

COUNTING_SECONDS = 1.0
"""How long files are read for these numbers, unless a caller says otherwise."""


@dataclass(frozen=True)
class ResultCounts:
    """The rows of a result.

    Attributes:
        rows: their number; None if there is no result, or its log does not tell.
        matched, unmatched: of these, rows with a match and without; None: the kind has no matches, or not counted.
        left_out: rows of the left side that the result does not have, because they have no match in an inner join, or
            an expression fails on them; None: the kind does not tell, not counted, or work is due that may change it.
        not_counted: why matches are not counted; empty if they are, or the kind has none.
    """

    rows: int | None = None
    matched: int | None = None
    unmatched: int | None = None
    left_out: int | None = None
    not_counted: str = ""

    @property
    def in_words(self) -> str:
        """The numbers that are known, besides that of all rows: `19,204 matched, 796 without a match`."""
        parts = []
        if self.matched is not None and self.unmatched is not None:
            parts += [f"{self.matched:,} matched", f"{self.unmatched:,} without a match"]
        if self.left_out:
            parts.append(f"{self.left_out:,} left out")
        return ", ".join(parts)


@dataclass(frozen=True)
class UpTo:
    """Which batches a result has.

    Attributes:
        batch: the last batch before which, and for which, nothing is due; None if there is none.
        due: batches for which work is due, in order.
        written_at: when the stage of the result last ended without an error; None: never.
    """

    batch: int | None
    due: Sequence[int]
    written_at: datetime | None


def result_rows(spec: PipelineSpec, ledger: Ledger, until: float | None = None) -> ResultCounts:
    """Returns the numbers of the current version of a result.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        until: when to read no more files (`time.monotonic`); default: after `COUNTING_SECONDS`.
    """
    path = f"{spec.home}/{spec.definition.result.name}"
    rows = rows_of(ledger, path)
    if rows is None or not _has_matches(ledger, path):
        return ResultCounts(rows)
    end = time.monotonic() + COUNTING_SECONDS if until is None else until
    try:
        nulls = null_counts(ledger.logs, path, [s.LEFT_HASH, s.RIGHT_HASH], end)
    except _NOT_COUNTED as error:
        return ResultCounts(rows, not_counted=str(error))
    left_out = None
    with suppress(*_NOT_COUNTED):
        left_out = _left_out(spec, ledger, rows - nulls[s.LEFT_HASH], end)
    unmatched = sum(nulls.values())  # no row lacks both
    return ResultCounts(rows, rows - unmatched, unmatched, left_out)


def _left_out(spec: PipelineSpec, ledger: Ledger, lefts: int, until: float) -> int | None:
    """Returns how many rows a result lacks that has so many rows with a left row; as of `ResultCounts`."""
    kind = spec.definition
    side = kind.proof.rows_of
    if not side or any(ledger.due.of(stage) for stage in kind.stage_names):
        return None
    state = f"{spec.home}/{kind.state_of(Side(side)).name}"
    stored = rows_of(ledger, state)
    if stored is None:
        return None
    number = stored - null_counts(ledger.logs, state, [s.HASH], until)[s.HASH] - lefts
    return number if number >= 0 else None


def up_to(spec: PipelineSpec, ledger: Ledger) -> UpTo:
    """Returns which batches the result of a pipeline has, by its ledger."""
    kind = spec.definition
    due = sorted({int(batch) for stage in kind.stage_names for batch in ledger.due.of(stage)})
    present = [int(batch) for batch in ledger.batches if batch not in ledger.files.removed]
    done = [batch for batch in present if not due or batch < due[0]]
    ended = [
        state.finished_at
        for (stage, _), state in ledger.runs.stages.items()
        if stage == kind.result_stage and state.finished_at is not None and state.succeeded is not None
    ]
    return UpTo(max(done, default=None), due, max(ended, default=None))


def rows_of(ledger: Ledger, path: str) -> int | None:
    """Returns the number of rows of a table by its Delta log; None if there is no table, or the log does not tell."""
    if ledger.logs.version(path) is None:
        return None
    rows = ledger.logs.rows(path)
    return rows if rows < UNKNOWN_SIZE else None


def _has_matches(ledger: Ledger, path: str) -> bool:
    """Returns whether a result, which exists, has rows of two sides."""
    table = ledger.logs.table(path)
    names = set() if table is None else {field.name for field in table.schema().fields}
    return {s.LEFT_HASH, s.RIGHT_HASH} <= names
