"""The sentence of a verification: it speaks of rows. No Spark."""

from __future__ import annotations

from typing import Any

import pytest

from fk_pipeline.verify.report import VerifyReport

MATCHES = "19,204 matched, 796 without a match"


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({}, f"all 20,000 rows of the result are right: {MATCHES}"),
        ({"rows": 19_999, "missing": 1, "stale": 2}, "3 of 20,000 rows are wrong: 1 missing, 2 stale"),
        ({"unexpected": 4}, "4 of 20,000 rows are wrong: 4 unexpected"),
        ({"pending": 5, "due": 2}, f"none of 20,000 rows is wrong; 5 differ until what is due has run: {MATCHES}"),
        ({"unproved": 3}, f"none of 20,000 rows is wrong; of 3 it is not known any more what is right: {MATCHES}"),
        (
            {"share": 0.1},
            f"no row is wrong among those of a share of 0.1 of the keys; the result has 20,000: {MATCHES}",
        ),
        ({"missing": 1, "rows": 1}, "1 of 2 rows is wrong: 1 missing"),
        ({"rows": 1}, f"the only row of the result is right: {MATCHES}"),
        ({"rows": 0}, "the result is right: it has no rows"),
        ({"share": 0.1, "stale": 1}, "1 row is wrong among those of a share of 0.1 of the keys: 1 stale"),
        ({"share": 0.1, "stale": 2}, "2 rows are wrong among those of a share of 0.1 of the keys: 2 stale"),
    ],
)
def test_the_sentence_says_how_many_rows_are_right_or_wrong(found: dict[str, Any], sentence: str) -> None:
    counts = {"rows": 20_000, "missing": 0, "stale": 0, "unexpected": 0, "pending": 0, "due": 0}
    assert VerifyReport(**counts | found).in_words(MATCHES) == sentence


def test_a_result_without_matches_has_a_sentence_too() -> None:
    assert VerifyReport(7, 0, 0, 0, 0, 0).in_words() == "all 7 rows of the result are right"
