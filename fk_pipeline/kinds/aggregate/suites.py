"""The expectations of the four stages of an aggregate, as data."""

from __future__ import annotations

from fk_pipeline.kinds.aggregate.kind import AggregateStage
from fk_pipeline.rules.suites import PROOF, Depth, Expectation, Remedy, of_log, of_state

AGGREGATE_SUITES: dict[str, tuple[Expectation, ...]] = {
    AggregateStage.CHANGELOG: of_log("input"),
    AggregateStage.GROUPING_STORE: (
        *of_state("one_row_per_key", "input"),
        Expectation(
            "hash_is_that_of_the_changelog_row",
            "Hash consistency: the hash of a row is that of the changelog row that it comes from, computed anew. "
            "Otherwise a change of it is not told.",
        ),
        Expectation(
            "group_is_that_of_the_changelog_row",
            "A row has the groups and the time of the changelog row that it comes from. Otherwise it counts elsewhere.",
        ),
        Expectation(
            "groups_are_indexed",
            "The index of a large store has every living row. One that it lacks counts in no group.",
            depths=(Depth.FULL,),
        ),
    ),
    AggregateStage.TOUCHED_GROUPS: (
        Expectation("one_message_per_group", "A batch names a group that it touched once.", remedy=Remedy.RUN),
        Expectation(
            "every_changed_row_is_told",
            "A batch names every group with a row that it changed; once it ran again, its notes of before may do that. "
            "Otherwise the group stays as it was.",
        ),
    ),
    AggregateStage.AGGREGATED: (
        Expectation("one_row_per_group", "A group, or window of a group, is in the result at most once."),
        Expectation(
            "members_are_those_of_the_store",
            "Number and hash of the members of a group are those of its rows as they are now; each is in its window.",
        ),
        Expectation(
            "no_missing_group",
            "Every group that has rows is in the result.",
            only="pipelines without having",
            when=lambda spec: spec.having is None,
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
