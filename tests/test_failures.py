"""What went wrong, in one sentence."""

from __future__ import annotations

import pytest

from fk_pipeline.failures import root_message


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
