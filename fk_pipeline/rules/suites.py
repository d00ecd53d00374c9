"""Expectations as data, each with its severity and its remedy: those of any log and any state, and those of a stage.

A kind names the expectations of its stages (`Kind.suites`). The rules behind the names are SQL in the views of the
tables; `docs/reference/expectations.md` lists the expectations for users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from fk_pipeline.blocks.drift import compares
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.contract import Kind, loaded
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.settings import Settings
from fk_pipeline.store.ledger import checks

Severity = Literal["critical", "warning"]

PROOF = "rows_are_those_of_the_join"
LATE, QUARANTINED, HOLES = "late_share_is_low", "quarantined_share_is_low", "holes_are_filled"
SENT = "columns_are_sent"


class Depth(StrEnum):
    """The depth of a check: the rows that some batches touched, or the whole tables."""

    BATCH = "batch"
    FULL = "full"


BOTH = (Depth.BATCH, Depth.FULL)


class Remedy(StrEnum):
    """The remedy for a broken row."""

    RUN = checks.RUN
    """Run the stage again for the batch: it writes its partition anew."""
    REBUILD = checks.REBUILD
    """Rebuild the state, because it is carried from batch to batch."""
    SOURCE = checks.SOURCE
    """Correct the source: the landed data cause the failure."""


@dataclass(frozen=True)
class Expectation:
    """One expectation of a stage.

    Attributes:
        name: unique within its stage.
        description: one or two sentences: the rule, and what a violation means if that is not plain.
        severity: a critical failure stops the stages downstream.
        remedy: the remedy for a failure.
        depths: the depths at which it can be evaluated.
        threshold: the name of the setting with the largest allowed value; without one, any violation is a failure.
        only: the pipelines that it applies to, in a few words; empty for all.
        when: function of a pipeline (`PipelineSpec`) that returns whether it applies to it.
        advice: the advice for a failure that stops nothing; `{file}` is replaced by the pipeline file.
    """

    name: str
    description: str
    severity: Severity = "critical"
    remedy: Remedy = Remedy.REBUILD
    depths: tuple[Depth, ...] = BOTH
    threshold: str = ""
    only: str = ""
    when: Callable[[Any], bool] = lambda _: True
    advice: str = "correct what landed and run the batch again"

    @property
    def share(self) -> bool:
        """Whether its value is a share, not a number of rows."""
        return self.threshold.endswith("_share")

    def at_most(self, settings: Settings) -> float:
        """Returns the largest value that is not a failure."""
        return float(getattr(settings, self.threshold)) if self.threshold else 0


def of_log(rows: str, prefix: str = "") -> tuple[Expectation, ...]:
    """Returns the expectations of a log; `rows` is a word for its rows, `prefix` begins every name (`log_prefix`)."""
    return (
        Expectation(
            f"{prefix}one_row_per_key_and_batch",
            "A batch has one row per key.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            f"{prefix}no_null_key",
            "Every row has a key without nulls; only a truncate has none.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            f"{prefix}sequence_is_present",
            "Every row has its place in the source's order.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            f"{prefix}hash_is_that_of_the_row",
            f"The hash of a {rows} row is that of its values.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            f"{prefix}no_payload_in_a_tombstone",
            "A deleted row has no values.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            f"{prefix}rows_are_those_counted",
            "A batch has as many rows as its last run counted.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            f"{prefix}{HOLES}",
            "No row lacks a value that the source left out.",
            severity="warning",
            remedy=Remedy.SOURCE,
            threshold="max_unresolved_holes",
            advice="let the source send these rows whole (a snapshot), or raise max_unresolved_holes",
        ),
        Expectation(
            f"{prefix}{SENT}",
            "No row lacks a column that older batches have, or that none ever had: it was renamed.",
            severity="warning",
            remedy=Remedy.SOURCE,
            advice="let the source send the column under the name of the schema, or take it out of the schema",
        ),
        Expectation(
            f"{prefix}quarantined_share_is_low",
            "Few records are in the quarantine. Many mean another feed or schema.",
            severity="warning",
            remedy=Remedy.SOURCE,
            threshold="max_quarantined_share",
            advice="fk-pipeline quarantine {file} lists them; correct and replay them, or raise max_quarantined_share",
        ),
    )


def of_state(one_row: str, what: str) -> tuple[Expectation, ...]:
    """Returns the expectations of a state; `one_row` names the first, `what` is a word for its keys."""
    return (
        Expectation(one_row, f"Every {what} key has one row."),
        Expectation(
            "owner_has_its_row",
            "The batch of a row has its key, or a truncate.",
        ),
        Expectation(
            "version_is_the_last",
            "A row is the last writer's version.",
        ),
        Expectation("no_missing_row", "Every key of the changelog has a row."),
        Expectation(
            "late_share_is_low",
            "Few changes came after something newer. Many mean a feed out of order.",
            severity="warning",
            remedy=Remedy.SOURCE,
            threshold="max_late_share",
            advice="nothing in the tables: late changes lost to newer ones. Look at the feed, or raise max_late_share",
        ),
    )


HASH_OF_LOG = Expectation(
    "hash_is_that_of_the_changelog_row",
    "Hash consistency: the hash of a row is that of the changelog row that it comes from, computed anew. Otherwise a "
    "change of it is lost.",
)


def of_current(one_row: str, rows: str, placed: Expectation) -> tuple[Expectation, ...]:
    """Returns the expectations of a table of current rows.

    Args:
        one_row: the name of the expectation that a key has one row.
        rows: a word for its rows.
        placed: the expectation that a row has the derived values of its changelog row.
    """
    return (*of_state(one_row, rows), HASH_OF_LOG, placed)


def suites_of(kind: Kind) -> dict[str, tuple[Expectation, ...]]:
    """Returns, per stage of a kind, the expectations of its tables. A key that due work explains violates none."""
    suites: dict[str, tuple[Expectation, ...]] = loaded(kind.suites)
    return suites


def log_prefix(kind: Kind, stage: str) -> str:
    """Returns the prefix for names of expectations about a stage's log; empty if the stage writes no other table."""
    return "" if len(kind.written_by(stage)) == 1 else "changelog_"


def suite_of(spec: PipelineSpec, stage: str, depth: Depth | None = None) -> tuple[Expectation, ...]:
    """Returns the expectations of a stage in this pipeline, at one depth or at any."""
    kind = spec.definition
    sides = {log_prefix(kind, entry.stage): spec.side(entry.name) for entry in kind.logged}
    return tuple(
        expectation
        for expectation in suites_of(kind)[stage]
        if expectation.when(spec)
        and (depth is None or depth in expectation.depths)
        and (
            not expectation.threshold.endswith("holes")
            or format_of(sides[expectation.name.removesuffix(HOLES)]).has_holes
        )
        and (not expectation.name.endswith(SENT) or compares(spec, sides[expectation.name.removesuffix(SENT)]))
    )
