"""What went wrong, in one sentence."""

from __future__ import annotations

import pytest

from fk_pipeline.failures import comes_again, root_message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("it is late", "it is late"),
        ("Job aborted\n\tat a.b.c\nCaused by: disk is gone\n\tat d.e.f", "disk is gone"),
        (
            "Generic error\n  \x1b[31m↳\x1b[0m Unable to copy data\n   \x1b[31m↳\x1b[0m No space left\n",
            "Generic error: Unable to copy data: No space left",
        ),
        ("Generic error\n ↳ No space left", "Generic error: No space left"),
        ("", "OSError"),
    ],
)
def test_the_root_of_an_error_is_one_line(text: str, said: str) -> None:
    assert root_message(OSError(text)) == said


class OfSpark(Exception):
    """An error as Spark raises it, with its SQL state."""

    def __init__(self, state: str | None) -> None:
        super().__init__("it failed")
        self.state = state

    def getSqlState(self) -> str | None:  # noqa: N802
        return self.state


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (OfSpark("0A000"), True),  # UNSUPPORTED_TIME_TYPE
        (OfSpark("21506"), True),  # DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE
        (OfSpark("42703"), True),  # UNRESOLVED_COLUMN
        (OfSpark("22018"), True),  # CAST_INVALID_INPUT
        (OfSpark("42K03"), False),  # PATH_NOT_FOUND
        (OfSpark("2D521"), False),  # DELTA_CONCURRENT_APPEND
        (OfSpark("KD001"), False),  # FAILED_READ_FILE
        (OfSpark("XXKST"), False),
        (OfSpark(None), False),
        (OSError("No space left"), False),
    ],
)
def test_an_error_about_the_plan_or_the_rows_comes_again(error: Exception, again: bool) -> None:
    assert comes_again(error) is again
