"""The expectations of the stages of a windowed join, as data."""

from __future__ import annotations

from fk_pipeline.kinds.window.kind import WindowStage
from fk_pipeline.rules.suites import PROOF, Depth, Expectation, of_current, of_log

AT_ITS_TIME = Expectation(
    "time_is_that_of_the_changelog_row",
    "A row has the values of `on` and the time of the changelog row that it comes from, and the number of its span of "
    "time. Otherwise it meets other rows.",
)
WINDOW_SUITES: dict[str, tuple[Expectation, ...]] = {
    WindowStage.LEFT_CHANGELOG: of_log("left"),
    WindowStage.RIGHT_CHANGELOG: of_log("right"),
    WindowStage.LEFT_TABLE: of_current("one_row_per_left_key", "left", AT_ITS_TIME),
    WindowStage.RIGHT_TABLE: of_current("one_row_per_right_key", "right", AT_ITS_TIME),
    WindowStage.RESOLVED_JOIN: (
        Expectation("one_row_per_pair", "A pair, and a row alone, is in the result at most once."),
        Expectation(
            "hash_is_that_of_the_row",
            "Hash consistency: the hash of a row is that of its values, computed again. Otherwise a change of it is "
            "lost.",
        ),
        Expectation("pairs_are_within_the_window", "The rows of a pair are near enough in time, with equal values."),
        Expectation(
            "hashes_are_current",
            "A row of the result has the hashes of both rows as they are now, not those of older versions.",
        ),
        Expectation(
            "no_row_is_paired_and_alone",
            "A row with a match does not stand alone.",
            only="left and outer joins",
            when=lambda spec: not spec.inner,
        ),
        Expectation(
            "nothing_is_alone_before_its_close",
            "A row stands alone only when the clock has passed its close.",
            only="left and outer joins with unmatched: when_closed",
            when=lambda spec: spec.waits,
        ),
        Expectation(
            "no_missing_row_alone",
            "Every closed row without a match stands alone.",
            only="left and outer joins",
            when=lambda spec: not spec.inner,
        ),
        Expectation(
            PROOF,
            "The proof: both changelogs joined anew, by another way than the stages', give the same rows, value by "
            "value.",
            depths=(Depth.FULL,),
        ),
    ),
}
"""Per stage, the expectations of its tables."""
