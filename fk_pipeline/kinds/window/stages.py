"""The stages of a windowed join: both tables, and the result, which is a block over them (`block`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import functions as F

from fk_pipeline.blocks.horizon import sql_of, ticks_of
from fk_pipeline.blocks.refresh.differing import UNMATCHED
from fk_pipeline.blocks.refresh.refresh import Own, Refresh
from fk_pipeline.blocks.refresh.since import CLOCK_UNKNOWN
from fk_pipeline.blocks.refresh.stages import refreshed
from fk_pipeline.blocks.state import current_effects
from fk_pipeline.blocks.versions import Expiry
from fk_pipeline.effects import Effect, Report, Upsert
from fk_pipeline.errors import StateError
from fk_pipeline.identity import ADDED, REMOVED, SIDES, WRITTEN, Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.block import Clocks, block_of
from fk_pipeline.kinds.window.clock import CLOCK, CLOCK_KIND, OPEN, time_text
from fk_pipeline.kinds.window.forgotten import but_forgotten
from fk_pipeline.kinds.window.kind import LEFT_UNMATCHED, MATCHED, PAIRED, PARTED, TIME, WindowStage
from fk_pipeline.kinds.window.refused import Refused, refused_before
from fk_pipeline.kinds.window.spans import LEAST, Spans
from fk_pipeline.stage_input import Reader
from fk_pipeline.store import schemas as s

_COUNTS = {
    ADDED: PAIRED,
    WRITTEN: PAIRED,
    REMOVED: PARTED,
    f"{UNMATCHED}{ADDED}": LEFT_UNMATCHED,
    f"{UNMATCHED}{WRITTEN}": LEFT_UNMATCHED,
    f"{UNMATCHED}{REMOVED}": MATCHED,
}
"""Per decision about a row, the name of its count: a row that lacks a key stands alone."""


def left_table(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches to the left table."""
    return _table(read, Side.LEFT)


def right_table(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches to the right table, which is empty if the left one serves both."""
    return [] if read.spec.single_store else _table(read, Side.RIGHT)


def _table(read: Reader, side: Side) -> list[Effect]:
    known, spans = read.history.horizon(k.log_stage(read.spec, side)), _spans(read)
    if known is not None:
        _refuse_other_times(read, side, known)
    horizon = sql_of(known)
    expiry = None if horizon is None else Expiry(TIME, horizon)
    return current_effects(read, side, spans.bucket(spans.ticks(TIME)), expiry)


def _refuse_other_times(read: Reader, side: Side, horizon: str) -> None:
    """Refuses times of another type than those by which a horizon was moved.

    Raises:
        StateError: the types differ.
    """
    dtype = dict(read.about(k.STATE_OF[side]).declared.columns)[TIME].upper()
    if (dtype == "TIMESTAMP") != ("T" in horizon):
        raise StateError(
            f"{side}.time is {dtype}, and the pipeline goes back to {horizon}, a time of another type",
            where=str(read.spec.file),
            why="retention has removed older events by it; nothing was changed",
            fix=f"undo the edit; or, if the files are still there: fk-pipeline rebuild {read.spec.file} --from landing",
        )


def _spans(read: Reader) -> Spans:
    return Spans.of_state(read.spec, read.about(WindowStage.LEFT_TABLE).declared)


def resolved_join(read: Reader) -> list[Effect]:
    """Returns the effects that bring the result to the newest versions of both tables, and to their clock."""
    spec, spans = read.spec, _spans(read)
    clocks = _clocks(read, spans) if spec.waits else None
    isolating = spec.computes and read.evaluator.isolating
    refused = Refused(read)
    own = Own(
        block=block_of(spec, spans, clocks, isolating=isolating),
        whole=CLOCK_UNKNOWN if clocks is not None and clocks.was is None else "",
        facts=dict if clocks is None or spec.is_secret_time() else partial(_stands_for, read, spans, clocks.now),
        again=partial(refused_before, read),
        of_removed=tuple(k.parts(spec, *SIDES)),
        counts=_COUNTS,
        expected=refused.left_out,
        settled=partial(but_forgotten, read) if _goes_back(read) else lambda rows: rows,
    )
    effects = refreshed(Refresh(read, own))
    if spec.computes and any(isinstance(effect, Upsert) for effect in effects):
        effects = [*refused.effects(), *effects]
    if clocks is None or spec.is_secret_time():  # a sensitive clock is in no log, so every run compares all rows
        return effects
    return [Report(notes=[f"the clock is {time_text(clocks.now, spans.dtype)}"]), *effects]


def _goes_back(read: Reader) -> bool:
    """Returns whether older events than some time were removed."""
    stages = (k.log_stage(read.spec, side) for side in k.sources(read.spec))
    return any(read.history.horizon(stage) is not None for stage in stages)


def _clocks(read: Reader, spans: Spans) -> Clocks:
    """Returns the clock of the result, and the one of both tables as they are read."""
    times = [at for side in k.sources(read.spec) if (at := _greatest(read, side, spans)) is not None]
    was = read.about(WindowStage.RESOLVED_JOIN).metadata.get(CLOCK)
    return Clocks(was, max(times, default=LEAST))


def _greatest(read: Reader, side: Side, spans: Spans) -> int | None:
    """Returns the greatest time of the living rows of a table; None if there are none."""
    at, horizon = read.greatest(k.STATE_OF[side], TIME), read.history.horizon(k.log_stage(read.spec, side))
    if at is None or horizon is None or at >= ticks_of(horizon):
        return at
    # Rows that expired have a time, but do not live.
    rows = read.read(k.STATE_OF[side]).where(f"{s.HASH} IS NOT NULL").select(F.expr(spans.ticks(TIME)).alias("at"))
    [[living]] = rows.agg(F.max("at")).collect()
    return None if living is None else int(living)


def _stands_for(read: Reader, spans: Spans, clock: int) -> dict[str, Any]:
    """Returns what the result will stand for: its clock, and the number of rows whose close has not come.

    These are rows of sides that may stand alone; a row that serves both sides counts once.
    """
    since: dict[Side, int] = {}
    for side in k.unmatched_on(read.spec):
        source, closed = k.source(read.spec, side), spans.closed_at(side, clock)
        since[source] = min(closed, since.get(source, closed))
    is_open = 0
    for source, first in since.items():
        rows = read.in_range(k.STATE_OF[source], TIME, None if first <= LEAST else first, None)
        is_open += rows.where(f"{s.HASH} IS NOT NULL").count()
    return {CLOCK: clock, CLOCK_KIND: spans.dtype, OPEN: is_open}
