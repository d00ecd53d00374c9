"""Spans of time in the pipeline file."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fk_pipeline.spec.durations import signed, span


def test_a_span_is_a_whole_number_and_a_unit() -> None:
    assert span("90 days") == timedelta(days=90)
    assert span("1 hour") == span("60minutes") == span(" 3600 Seconds ")
    assert span("2 weeks") == timedelta(days=14)
    assert span("0 seconds") == timedelta()


@pytest.mark.parametrize("text", ["", "90", "days", "1.5 hours", "-1 day", "3 months", "1 day 2 hours"])
def test_anything_else_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="write a whole number and a unit: 90 days"):
        span(text)


@pytest.mark.parametrize("text", ["2500001 days", "99999999999 weeks"])
def test_a_span_that_leaves_no_room_for_times_is_refused(text: str) -> None:
    assert span("2500000 days") == -signed("-2500000 days")
    with pytest.raises(ValueError, match="longer than there is time; at most 2500000 days are possible"):
        span(text)
