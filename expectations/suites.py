"""The suites as data, and their validation with Great Expectations.

An expectation asks that the count of violations of its name is 0. The counts are one pandas row that Spark has computed
(`expectations.violations`): Great Expectations on Spark would run ten jobs for what is one scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fk_pipeline.errors import FkPipelineError
from fk_pipeline.identity import Stage
from fk_pipeline.spec import PipelineSpec

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.core import ExpectationSuite


class ExpectationNotRunError(FkPipelineError):
    """Great Expectations could not evaluate an expectation: whether it holds is not known."""


@dataclass(frozen=True)
class TableExpectation:
    """One expectation of a table: its name is that of the rule in `expectations.violations`."""

    name: str
    description: str
    severity: Literal["critical", "warning"] = "warning"
    inner_only: bool = False


SUITES: dict[Stage, tuple[TableExpectation, ...]] = {
    Stage.SUBSCRIPTION_STORE: (
        TableExpectation(
            "one_row_per_left_key",
            "Every left key has one subscription. Two would be answered twice.",
        ),
        TableExpectation(
            "hash_is_that_of_the_changelog_row",
            "The hash of a subscription, computed anew, is that of the left row that it points to. Otherwise its "
            "answers are about a row that nobody can read.",
        ),
        TableExpectation(
            "foreign_key_is_that_of_the_changelog_row",
            "A subscription is to the right key that its left row refers to. Otherwise it hears of the changes of "
            "another row.",
        ),
    ),
    Stage.RESOLVED_JOIN: (
        TableExpectation(
            "one_row_per_left_key",
            "A left row refers to one right row, so the join has at most one row per left key.",
        ),
        TableExpectation(
            "no_stale_row",
            "Both hashes of a row are the current ones of the left row and of the right row. KIP-213 checks the left "
            "one only.",
            severity="critical",
        ),
        TableExpectation(
            "no_missing_row",
            "Every left row that belongs in the join has a row.",
        ),
        TableExpectation(
            "no_row_for_a_deleted_key",
            "A left row that was deleted, or never seen, has no row.",
        ),
        TableExpectation(
            "no_inner_row_without_match",
            "An inner join has no row whose right row is not there.",
            inner_only=True,
        ),
    ),
}
"""What is expected of each checked table. A key that due work explains violates nothing."""


def suite_of(spec: PipelineSpec, stage: Stage) -> tuple[TableExpectation, ...]:
    """The expectations of a stage's table in this pipeline."""
    return tuple(wanted for wanted in SUITES[stage] if spec.inner or not wanted.inner_only)


def validate(counts: pd.DataFrame, wanted: Sequence[TableExpectation], where: str = "") -> dict[str, bool]:
    """Which expectations hold, by name.

    Args:
        counts: one row, a column per expectation: how many rows violate it.
        wanted: the expectations.
        where: pipeline and table, for the error.

    Raises:
        ExpectationNotRunError: one could not be evaluated; that is not a failed check.
    """
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(enable=False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    batch = context.data_sources.pandas_default.read_dataframe(counts)
    holds: dict[str, bool] = {}
    # The order of the results is not that of the suite: they are told apart by the name in their meta data.
    for result in batch.validate(_gx_suite(wanted, where)).results:
        assert result.expectation_config is not None
        name = result.expectation_config.meta["name"]
        problem = _exception(result.exception_info)
        if problem is not None:
            raise ExpectationNotRunError(
                f"expectation {name!r} could not be evaluated: {problem}",
                where=where,
                why="whether it holds is not known",
            )
        holds[name] = bool(result.success)
    return holds


def _gx_suite(wanted: Sequence[TableExpectation], where: str) -> ExpectationSuite:
    from great_expectations.core import ExpectationSuite
    from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
    from great_expectations.expectations.metadata_types import FailureSeverity

    return ExpectationSuite(
        name=where or "fk_pipeline",
        expectations=[
            ExpectColumnValuesToBeInSet(
                column=one.name,
                value_set=[0],
                description=one.description,
                severity=FailureSeverity(one.severity),
                meta={"name": one.name},
            )
            for one in wanted
        ],
    )


def _exception(info: Mapping[str, Any]) -> str | None:
    """The message of the exception behind a result; one of an expectation, or of the metrics that it asked for."""
    if "raised_exception" in info:
        return str(info["exception_message"]) if info["raised_exception"] else None
    found = (_exception(part) for part in info.values() if isinstance(part, Mapping))
    return next((message for message in found if message is not None), None)
