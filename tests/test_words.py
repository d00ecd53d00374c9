"""The words of texts for people: numbers with their nouns, and names that are meant."""

from __future__ import annotations

import doctest

from fk_pipeline import words


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(words).failed == 0
