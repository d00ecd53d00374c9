from __future__ import annotations

import doctest
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fk_pipeline import identity
from fk_pipeline.identity import BatchId, BatchRange, contiguous, parse_batches


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(identity).failed == 0


@pytest.mark.parametrize("text", ["", "a", "3..", "..3", "5..2", "3,,4", "-1", "100000000"])
def test_batches_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_batches(text)


@pytest.mark.parametrize("key", ["42", "b42", "b000000042", "c00000042"])
def test_only_whole_batch_keys_are_read(key: str) -> None:
    with pytest.raises(ValueError, match="not a batch key"):
        BatchId.from_key(key)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_contiguous_ranges_cover_the_wanted_batches_and_no_other_known_one(wanted: set[int], known: set[int]) -> None:
    ranges = list(contiguous(wanted, sorted(known)))
    for batch in wanted | known:
        assert any(batch in r for r in ranges) == (batch in wanted)
    assert [(r.first, r.last) for r in ranges] == sorted((r.first, r.last) for r in ranges)


@given(st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40)))
def test_a_range_with_gaps_has_the_wanted_batches_and_no_other_known_one(wanted: set[int], known: set[int]) -> None:
    made = BatchRange.covering(wanted, sorted(known))
    assert {batch for batch in wanted | known if batch in made} == wanted
    assert {batch for batch in wanted | known if any(batch in part for part in made.parts)} == wanted
    numbers = " UNION ALL ".join(f"SELECT {batch} AS n" for batch in wanted | known)
    with closing(sqlite3.connect(":memory:")) as database:
        met = database.execute(f"SELECT n FROM ({numbers}) WHERE {made.predicate('n')}").fetchall()
    assert {n for (n,) in met} == wanted
    assert BatchRange.parse(str(made)) == made


def test_a_range_of_one_batch_is_an_equality() -> None:
    assert BatchRange.of(7).predicate("b") == "b = 7"
