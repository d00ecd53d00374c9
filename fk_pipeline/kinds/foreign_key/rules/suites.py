"""The expectations of the five stages, as data."""

from __future__ import annotations

from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.rules.suites import PROOF, Depth, Expectation, Remedy, of_log, of_state

SUITES: dict[str, tuple[Expectation, ...]] = {
    Stage.LEFT_CHANGELOG: of_log("left"),
    Stage.RIGHT_TABLE: (
        *of_state("one_row_per_right_key", "right"),
        Expectation(
            "hash_is_that_of_the_row",
            "The hash of a right row is that of its values.",
        ),
        Expectation(
            "row_is_that_of_the_changelog",
            "A right row equals its changelog row, deleted or not.",
        ),
        Expectation("no_payload_in_a_tombstone", "A deleted right row has no values."),
        *of_log("right", "changelog_"),
    ),
    Stage.SUBSCRIPTION_STORE: (
        *of_state("one_row_per_left_key", "left"),
        Expectation(
            "hash_is_that_of_the_changelog_row",
            "A subscription has the hash of its left row.",
        ),
        Expectation(
            "foreign_key_is_that_of_the_changelog_row",
            "A subscription has the right key of its left row.",
        ),
        Expectation(
            "instruction_is_that_of_the_change",
            "A subscription asks for the response that its change needs.",
        ),
        Expectation(
            "subscribers_are_indexed",
            "The index of a large store has every subscription.",
            depths=(Depth.FULL,),
        ),
    ),
    Stage.RESPONSES: (
        Expectation(
            "one_answer_per_key_and_cause",
            "A batch responds to a left key once per change of either row.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            "rows_are_those_counted",
            "A batch has as many responses as its last run counted.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            "no_missing_answer",
            "Every response that was due is there.",
            remedy=Remedy.RUN,
            depths=(Depth.BATCH,),
        ),
        Expectation(
            "no_unexpected_answer",
            "No response is there that was not due.",
            remedy=Remedy.RUN,
            depths=(Depth.BATCH,),
        ),
        Expectation(
            "answer_is_about_the_rows_read",
            "A response has the hashes of the rows read, and its instruction.",
            remedy=Remedy.RUN,
            depths=(Depth.BATCH,),
        ),
        Expectation(
            "every_current_pair_has_a_response",
            "Every current pair of rows has a response.",
            remedy=Remedy.RUN,
            depths=(Depth.FULL,),
        ),
    ),
    Stage.RESOLVED_JOIN: (
        Expectation(
            "one_row_per_left_key",
            "The join has at most one row per left key.",
        ),
        Expectation(
            "no_stale_row",
            "Both hashes of a row are the current ones of the left row and of the right row; only "
            "`rows_are_those_of_the_join` compares values.",
        ),
        Expectation("no_missing_row", "Every left row that belongs in the join has a row."),
        Expectation("no_row_for_a_deleted_key", "A left row that is deleted or unknown has no row."),
        Expectation(
            "no_inner_row_without_match",
            "Every row has its right row.",
            only="inner joins",
            when=lambda spec: spec.inner,
        ),
        Expectation(
            "one_row_per_right_key_alone",
            "A right row without a left row has one row.",
            only="outer joins",
            when=lambda spec: spec.outer,
        ),
        Expectation(
            "no_stale_row_alone",
            "A row without a left row has a current right row, to which no left row refers.",
            only="outer joins",
            when=lambda spec: spec.outer,
        ),
        Expectation(
            "no_missing_row_alone",
            "Every right row without a left row has a row.",
            only="outer joins",
            when=lambda spec: spec.outer,
        ),
        Expectation(
            "result_key_is_unique",
            "No two rows have the same `result_key`.",
            remedy=Remedy.SOURCE,
            only="with expressions in `result_key`",
            when=lambda spec: bool(spec.key_outputs),
            advice="give `result_key` expressions that differ wherever left key or right key do, and rebuild",
        ),
        Expectation(
            "result_key_is_that_of_the_row",
            "A row has the result key of its left and right key.",
            only="with expressions in `result_key`",
            when=lambda spec: bool(spec.key_outputs),
        ),
        Expectation(
            "foreign_key_is_the_current_one",
            "A row has the foreign key that its left row has now.",
        ),
        Expectation(
            "every_response_has_its_verdict",
            "Each response has one verdict; a batch has as many as its run counted.",
            remedy=Remedy.RUN,
        ),
        Expectation(
            PROOF,
            "The proof: both changelogs, joined by another way than the stages', give the same rows and values.",
            depths=(Depth.FULL,),
        ),
    ),
}
"""Per stage, the expectations of its tables."""
