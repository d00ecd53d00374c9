"""The settings of the pipeline file, and the expectations of its user."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from fk_pipeline.spec.base import Frozen, Strings, problem
from fk_pipeline.spec.durations import Span, span


def _as_word(value: Any) -> Any:
    """Returns what YAML made of `on` and `off` as these words again; anything else unchanged."""
    return ("on" if value else "off") if isinstance(value, bool) else value


def _as_error(value: Any) -> Any:
    """Returns a span of time alone as the one after which there is an error; anything else unchanged."""
    return {"error_after": value} if isinstance(value, str) else value


Switch = Annotated[Literal["on", "off"], BeforeValidator(_as_word)]

Strategy = Literal["auto", "incremental", "full"]

FAN_OUT_WITHIN_BUDGET = "fan_out_within_budget"
"""The check of `right_table` that a batch fails if its fan-out exceeds `max_fan_out`."""

StageName = Annotated[str, "stage"]
"""A stage of the kind of join."""


SHORTEST_FRESHNESS = timedelta(minutes=1)
"""The shortest span after which Dagster can call an asset stale: it looks every 30 seconds."""


class Freshness(Frozen):
    """How long ago the newest batch may have landed, in the words of dbt."""

    error_after: Span
    """How long ago it may be before that is an error."""
    warn_after: Span | None = None
    """How long ago it may be before there is a warning; less than `error_after`."""

    @property
    def windows(self) -> tuple[timedelta, timedelta | None]:
        """How long it is no error, and how long there is no warning."""
        return span(self.error_after), None if self.warn_after is None else span(self.warn_after)

    @model_validator(mode="after")
    def _possible(self) -> Freshness:
        error, warn = self.windows
        for name, length in (("error_after", error), ("warn_after", warn)):
            if length is not None and length < SHORTEST_FRESHNESS:
                raise problem("the shortest span that Dagster can watch is 1 minute", name)
        if warn is not None and warn >= error:
            raise problem(f"it must be shorter than error_after, which is {self.error_after}", "warn_after")
        return self


class Settings(Frozen):
    """Tuning. Every default is meant to be left alone."""

    spark: dict[str, str] = Field(default_factory=dict)
    """Spark's own, of sessions started here. With `spark.jars`, `spark.jars.packages` or `spark.driver.extraClassPath`
    you bring Delta yourself."""
    driver_memory: str | None = None
    """Heap of a local Spark driver, `4g`; default: Spark's own."""
    shuffle_partitions: int | None = Field(default=None, ge=1)
    """`spark.sql.shuffle.partitions` of a local session; default: the number of cores."""
    max_batches_per_pass: int = Field(default=200, ge=1)
    """Longer ranges are cut into passes of so many."""
    max_line_bytes: int = Field(default=8 * 2**20, ge=1000, le=2**30)
    """A longer line, or CSV record, goes to the quarantine."""
    max_fan_out: int | None = Field(default=None, ge=0)
    """A batch whose right rows touch more left rows waits for approval."""
    max_quarantined_share: float = Field(default=0.01, ge=0, le=1)
    """A check warns if more of the records are quarantined."""
    max_late_share: float = Field(default=0.1, ge=0, le=1)
    """A check warns if more of the changed keys came after something newer."""
    max_unresolved_holes: int = Field(default=0, ge=0)
    """A check warns if more rows lack a value that was not sent."""
    data_docs: str | None = None
    """For Data Docs of Dagster's full checks; default: nowhere."""
    report: bool = True
    """Whether runs in Dagster write it."""
    automation: Switch = "off"
    """Of Dagster's sensor and schedules, from the start."""
    sensor_seconds: int = Field(default=15, ge=1)
    """How often the sensor looks for files."""
    settle_seconds: float = Field(default=0, ge=0)
    """The sensor's wait for the other side of a new batch."""
    max_batches_per_run: int = Field(default=1000, ge=1)
    """Most batches of a run of the sensor."""
    retry_seconds: float = Field(default=30, ge=0)
    """The sensor's first wait after a failed run."""
    max_failures: int = Field(default=5, ge=1)
    """After so many in a row the sensor leaves a batch alone."""
    freshness: Annotated[Freshness, BeforeValidator(_as_error)] | None = None
    """How old the newest batch may be, `1 day`, until Dagster calls it stale."""
    full_checks_cron: str = "0 2 * * *"
    """Dagster's schedule of full checks, in UTC."""
    maintenance_cron: str = "0 4 * * 0"
    """Dagster's schedule of maintenance, in UTC."""
    retention_hours: float = Field(default=168, ge=0)
    """Maintenance removes what only older versions need; time travel goes so far back."""
    fold_after_hours: float | None = Field(default=None, ge=0)
    """Maintenance folds batches done so many hours ago, such as 720."""
    tombstone_retention: float | None = Field(default=None, ge=0)
    """Maintenance forgets keys deleted so many hours ago, such as 2160."""
    statistics_columns: Strings | None = None
    """By which readers skip files, beside the keys; `compact` takes an edit over; default: the first 16 with dates,
    timestamps, numbers and texts."""
    strategy: Strategy | dict[StageName, Strategy] = "auto"
    """How stages change their tables."""

    def strategy_of(self, stage: str) -> Strategy:
        """Returns the strategy by which a stage changes its tables."""
        return self.strategy.get(stage, "auto") if isinstance(self.strategy, dict) else self.strategy

    @model_validator(mode="after")
    def _folds_before_it_forgets(self) -> Settings:
        folds, forgets = self.fold_after_hours, self.tombstone_retention
        if forgets is not None and (folds is None or folds > forgets):
            raise ValueError("tombstone_retention needs a fold_after_hours that is not longer")
        return self

    @field_validator("spark", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}


class OwnExpectation(Frozen):
    """An expectation of the user's, as Great Expectations writes it down: `type`, `kwargs`, `severity`, `meta`."""

    type: str = Field(pattern=r"^expect_[a-z0-9_]+$")
    """As Great Expectations calls it."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Its arguments."""
    severity: Literal["critical", "warning", "info"] = "critical"
    """Only a `critical` one stops what comes after it."""
    name: str = Field(default="", pattern=r"^[A-Za-z0-9_]*$")
    """Of its check; default: `own_`, its type without `expect_`, and its columns."""
    description: str | None = None
    """Of its check; default: its type."""
    meta: dict[str, Any] = Field(default_factory=dict)
    """Handed on to Great Expectations."""

    @property
    def columns(self) -> list[str]:
        """The columns that it names."""
        single = [self.kwargs[key] for key in ("column", "column_A", "column_B") if key in self.kwargs]
        several = [self.kwargs[key] for key in ("column_list", "column_set") if key in self.kwargs]
        return [str(name) for name in single] + [str(name) for names in several for name in names]


class OwnSuites(Frozen):
    """The user's expectations: a kind has a field per input, and one for its result."""

    def of(self, table: str) -> tuple[OwnExpectation, ...]:
        """Returns the expectations of an input or of the result; none if the kind has no place for them."""
        suite: tuple[OwnExpectation, ...] = getattr(self, table, ())
        return suite

    @model_validator(mode="after")
    def _named(self) -> OwnSuites:
        for table in type(self).model_fields:
            taken: set[str] = set()
            named = []
            for i, expectation in enumerate(getattr(self, table)):
                words = [expectation.type.removeprefix("expect_"), *expectation.columns]
                short = re.sub(r"\W+", "_", "_".join(words)).strip("_")
                name = expectation.name or f"own_{short}"
                if expectation.name and expectation.name in taken:
                    raise problem(f"two expectations of {table} are called {expectation.name!r}", table, i, "name")
                while name in taken:
                    name += "_again"
                taken.add(name)
                named.append(expectation.model_copy(update={"name": name}))
            object.__setattr__(self, table, tuple(named))
        return self
