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

from fk_pipeline.spec.base import Frozen, problem
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
    """Spark settings, by their Spark names, of a session that the command or Dagster starts. Any of `spark.jars`,
    `spark.jars.packages` and `spark.driver.extraClassPath` means that you bring Delta yourself."""
    driver_memory: str | None = None
    """Heap of a local Spark driver, `4g` for example; default: Spark's own."""
    shuffle_partitions: int | None = Field(default=None, ge=1)
    """`spark.sql.shuffle.partitions` of a local session; default: the number of cores."""
    max_batches_per_pass: int = Field(default=200, ge=1)
    """A range run is cut into passes of at most this many batches."""
    max_line_bytes: int = Field(default=8 * 2**20, ge=1000, le=2**30)
    """A line of a landing file, or a CSV record, that has more bytes goes to the quarantine: Spark would hold it in
    memory, several times over."""
    max_fan_out: int | None = Field(default=None, ge=0)
    """Left rows that refer to right rows that a batch changes, above which it waits for somebody to agree; null: any
    number."""
    max_quarantined_share: float = Field(default=0.01, ge=0, le=1)
    """Share of the records that were read, above which a check warns of what is in the quarantine."""
    max_late_share: float = Field(default=0.1, ge=0, le=1)
    """Share of the changed keys that came after something newer, above which a check warns."""
    max_unresolved_holes: int = Field(default=0, ge=0)
    """Rows with a value that the source did not send and that is not known, above which a check warns."""
    data_docs: str | None = None
    """Folder, relative to the pipeline file, in which full checks in Dagster write the Data Docs; default: nowhere."""
    report: bool = True
    """Whether runs in Dagster write the page of the report beside the tables."""
    automation: Switch = "off"
    """Whether the sensor and the schedules are on in Dagster from the start. What somebody has switched in the pages
    stays so."""
    sensor_seconds: int = Field(default=15, ge=1)
    """How often the Dagster sensor looks for new landing files."""
    settle_seconds: float = Field(default=0, ge=0)
    """How long the sensor waits with a new batch that has files of one side only; 0: not at all."""
    max_batches_per_run: int = Field(default=1000, ge=1)
    """A run that the sensor asks for covers at most this many batches."""
    retry_seconds: float = Field(default=30, ge=0)
    """How long the sensor waits after a failed run of a batch; after each further one twice as long, up to an hour."""
    max_failures: int = Field(default=5, ge=1)
    """A batch that failed this often in a row is left alone by the sensor until somebody runs it."""
    freshness: Annotated[Freshness, BeforeValidator(_as_error)] | None = None
    """How long ago the newest batch may have landed, and have been run, before Dagster calls inputs and result stale:
    `1 day`, or `warn_after` and `error_after`."""
    full_checks_cron: str = "0 2 * * *"
    """When the schedule of the full checks fires, in UTC."""
    maintenance_cron: str = "0 4 * * 0"
    """When the schedule of the maintenance fires, in UTC."""
    retention_hours: float = Field(default=168, ge=0)
    """Maintenance removes files that no version of so many hours ago needs: changes and time travel go as far back, and
    so does what a run that goes on may still read. Leave it at hours."""
    fold_after_hours: float | None = Field(default=None, ge=0)
    """Maintenance folds batches that were done so many hours ago, 720 for example: of their versions the changelogs
    keep the last per key, and what they answered is removed. A folded batch can no longer be restated or withdrawn."""
    tombstone_retention: float | None = Field(default=None, ge=0)
    """Hours after which maintenance forgets a deleted key, 2160 for example, once its batches are folded; null: never.
    What lands later and is older than the delete brings the key back."""
    strategy: Strategy | dict[StageName, Strategy] = "auto"
    """How stages change their tables: `incremental` looks rows up and puts them in place, `full` writes tables anew,
    `auto` chooses by cost. One word for all stages, or one per stage."""

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
    """The expectation, as Great Expectations calls it."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Its arguments."""
    severity: Literal["critical", "warning", "info"] = "critical"
    """Whether it stops what comes after it (`critical`) or is told only."""
    name: str = Field(default="", pattern=r"^[A-Za-z0-9_]*$")
    """Of its check; default: `own_`, its type without `expect_`, and its columns."""
    description: str | None = None
    """What the check says it asks for; default: its type."""
    meta: dict[str, Any] = Field(default_factory=dict)
    """Notes of yours, handed on to Great Expectations."""

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
