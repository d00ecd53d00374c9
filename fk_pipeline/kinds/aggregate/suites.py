"""The expectations of the three stages of an aggregate, as data."""

from __future__ import annotations

from fk_pipeline.kinds.aggregate.kind import AggregateStage
from fk_pipeline.rules.suites import PROOF, Depth, Expectation, of_current, of_log

IN_ITS_GROUP = Expectation(
    "group_is_that_of_the_changelog_row",
    "A row has the groups and the time of the changelog row that it comes from. Otherwise it counts elsewhere.",
)

AGGREGATE_SUITES: dict[str, tuple[Expectation, ...]] = {
    AggregateStage.CHANGELOG: of_log("input"),
    AggregateStage.TABLE: of_current("one_row_per_key", "input", IN_ITS_GROUP),
    AggregateStage.AGGREGATED: (
        Expectation("one_row_per_group", "A group, or window of a group, is in the result at most once."),
        Expectation(
            "hash_is_that_of_the_row",
            "Hash consistency: the hash of a row is that of its values, computed again. Otherwise a change of it is "
            "lost.",
        ),
        Expectation(
            "row_is_that_of_the_table",
            "A row has the values that the rows of its group, or window, in the table make, but for those that depend "
            "on the order of floating-point sums. Otherwise it is stale.",
        ),
        Expectation(
            "no_missing_group",
            "Every group that has rows, and that `having` lets through, is in the result.",
        ),
        Expectation(
            PROOF,
            "The proof: the changelog grouped anew, by another way than the stages', gives the same rows, value by "
            "value; floating-point values up to the order of their sums.",
            depths=(Depth.FULL,),
        ),
    ),
}
"""Per stage, the expectations of its tables."""
