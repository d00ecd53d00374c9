"""The parts of a pipeline file that only `kind: window` has: what makes a pair, and since when a row is alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, model_validator

from fk_pipeline.blocks.refresh.refreshed import OverTables
from fk_pipeline.blocks.select.block import Block
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window.block import Clocks, block_of
from fk_pipeline.kinds.window.kind import TIME, WindowStage
from fk_pipeline.kinds.window.spans import GREATEST, UNITS_PER_SECOND, Spans
from fk_pipeline.spec.base import Frozen, StringList, problem
from fk_pipeline.spec.durations import SignedSpan, Span, signed, span
from fk_pipeline.spec.input_checks import check_row_expression
from fk_pipeline.spec.inputs import SideSpec
from fk_pipeline.spec.join import JoinSpec
from fk_pipeline.spec.settings import Settings
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.words import did_you_mean

SINGLE_STORE = "single.store.self.join"
REUSED_SOURCE = "reuse.ktable.source.topics"
MERGED_REPARTITION = "merge.repartition.topics"

OPTIMIZATIONS = (SINGLE_STORE, REUSED_SOURCE, MERGED_REPARTITION)
"""The rules of KIP-862 and of Kafka's optimiser before it, as Kafka spells them."""


class WindowSide(SideSpec):
    """One input of a windowed join: also the values that a pair shares, and the time of a row."""

    on: StringList
    """SQL: the values that a pair shares. Null matches nothing."""
    time: str = Field(min_length=1)
    """SQL: when a row happened, TIMESTAMP, or BIGINT in milliseconds. Null, or too far from 1970, is quarantined."""

    @model_validator(mode="after")
    def _expressions_are_sql(self) -> WindowSide:
        for i, text in enumerate(self.on):
            check_row_expression(self, text, "on", i)
        check_row_expression(self, self.time, "time")
        return self


class WithinSpec(Frozen):
    """How far the times of a pair may lie apart; both ends belong to it."""

    before: SignedSpan = "0 seconds"
    """How much earlier the right row may be; with `-5 minutes` it must be so much later."""
    after: SignedSpan = "0 seconds"
    """How much later it may be, alike."""

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> WithinSpec:
        if signed(self.before) < -signed(self.after):
            raise problem("the window ends before it begins: before + after is less than nothing")
        return self


class WindowSettings(Settings):
    """Tuning. Every default is meant to be left alone."""

    optimize: StringList = ("all",)
    """Which of Kafka's rules apply: `all`, `none`, or a list. The result is the same."""

    @model_validator(mode="after")
    def _rules_are_known(self) -> WindowSettings:
        for name in self.optimize:
            if name not in ("all", "none", *OPTIMIZATIONS):
                known = ", ".join(("all", "none", *OPTIMIZATIONS))
                raise problem(f"{name!r} is no rule; there are {known}{did_you_mean(name, OPTIMIZATIONS)}", "optimize")
            if name in ("all", "none") and len(self.optimize) > 1:
                raise problem(f"{name!r} combines with nothing", "optimize")
        return self

    def optimizes(self, rule: str) -> bool:
        """Returns whether a rule may apply."""
        return self.optimize == ("all",) or rule in self.optimize


class WindowSpec(OverTables, JoinSpec):
    """One windowed join, as its pipeline file describes it."""

    left: WindowSide
    """The left input."""
    right: WindowSide
    """The right input."""
    within: WithinSpec
    """Rows with equal `on` are a pair if `left.time - before <= right.time <= left.time + after`."""
    grace: Span = "0 seconds"
    """How much longer than its window a row waits for a match."""
    unmatched: Literal["when_closed", "at_once"] = "when_closed"
    """Whether a row without a match stands alone once the [clock](../kinds/window.md#picture) has passed its window and
    `grace`, or at once."""
    retention: Span | None = None
    """How far back events go, with `settings.fold_after_hours`; of events only; default: all stay."""
    settings: WindowSettings = Field(default_factory=WindowSettings)
    """Tuning."""

    def side(self, side: Side) -> WindowSide:
        """Returns the input of a side."""
        return self.left if side == Side.LEFT else self.right

    @property
    def before(self) -> timedelta:
        """How much earlier than the left row the right row of a pair may have happened."""
        return signed(self.within.before)

    @property
    def after(self) -> timedelta:
        """How much later than the left row the right row of a pair may have happened."""
        return signed(self.within.after)

    def block_of(self, _: str, table_of: Callable[[str], Any]) -> Block:
        """Returns the result as a block in which every row is closed; `table_of` returns the declaration of a table.

        Times of which it does not tell the type (`declared_layout`) are taken for TIMESTAMP.
        """
        dtype = dict(table_of(WindowStage.LEFT_TABLE).columns)[TIME].upper()
        spans = Spans.of(self, dtype if dtype in UNITS_PER_SECOND else "TIMESTAMP")
        return block_of(self, spans, Clocks(None, GREATEST) if self.waits else None)

    def result_key_outputs(self) -> Sequence[tuple[str, str | None, bool]]:
        """Returns both keys; one of them is null in a row that stands alone."""
        return [*self.plain_outputs(Side.LEFT, self.outer), *self.plain_outputs(Side.RIGHT, not self.inner)]

    @property
    def waits(self) -> bool:
        """Whether rows without a match stand alone, and only when the clock has passed their close."""
        return not self.inner and self.unmatched == "when_closed"

    @cached_property
    def to_itself(self) -> bool:
        """Whether both inputs are the same stream, with the same expressions."""
        return self.left.model_dump() == self.right.model_dump()

    @property
    def single_store(self) -> bool:
        """Whether one changelog and one store serve both sides (KIP-862)."""
        return self.to_itself and self.settings.optimizes(SINGLE_STORE)

    @model_validator(mode="after")
    def _sides_fit(self) -> WindowSpec:
        left, right = len(self.left.on), len(self.right.on)
        if left != right:
            raise problem(f"on has {left} expression(s) on the left, {right} on the right", "right", "on")
        for side, name in ((self.left, "left"), (self.right, "right")):
            if side.valid_from is not None:
                raise problem("valid_from goes with as_of, which kind: window does not have", name, "valid_from")
        return self

    @model_validator(mode="after")
    def _retention_fits(self) -> WindowSpec:
        if self.retention is None:
            return self
        for side, name in ((self.left, "left"), (self.right, "right")):
            if side.contents != "events":
                raise problem(
                    f"retention is for events; this side has contents: {side.contents}, whose rows change however old "
                    "they are",
                    name,
                    "contents",
                )
        if span(self.retention) < span(self.grace):
            raise problem(f"retention, {self.retention}, is shorter than grace, {self.grace}", "retention")
        if self.is_secret_time():
            raise problem("retention tells times of events in the ledger, and these are sensitive", "retention")
        return self

    @model_validator(mode="after")
    def _equal_values_are_alike_sensitive(self) -> WindowSpec:
        """Makes the columns of `on` sensitive together: the rows of a pair have the same values there."""
        self.make_alike_sensitive(zip(self.left.on, self.right.on, strict=True))
        return self

    def is_secret_time(self) -> bool:
        """Returns whether the time of a row is made of a sensitive column."""
        sides = (self.left, self.right)
        return any(side.is_sensitive(path[0]) for side in sides for path in parse_expression(side.time).reads)
