"""Versions in time, without a pipeline: which hold, which are told, where the horizon moves, what may be removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.blocks.as_of import held, reach, removable
from fk_pipeline.store import schemas as s

pytestmark = pytest.mark.spark

COLUMNS = f"k, {s.VALID_FROM}, {s.HASH}, {s.SEQUENCE}, {s.OWNER}, _fk_to_tell"


@pytest.fixture
def versions(spark: SparkSession) -> Callable[..., DataFrame]:
    """Makes versions of (key, since), maybe with sequence, batch, and whether it changed; a key in capitals is gone."""

    def make(*rows: Sequence[Any]) -> DataFrame:
        full = []
        for row in rows or [("none", 0)]:
            key, since, sequence, batch, changed = (*row, *(0, 0, False)[len(row) - 2 :])
            at = f"{since}L" if isinstance(since, int) else f"TIMESTAMP'{since}'"
            full.append(
                f"('{key.lower()}', {at}, {'NULL' if key.isupper() else 'hash'}, {sequence}, {batch}, {changed})"
            )
        values = ", ".join(full).replace("hash", "X'01'")
        return spark.sql(f"SELECT * FROM VALUES {values} AS versions({COLUMNS}) WHERE k <> 'none'")

    return make


def times(rows: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(rows.selectExpr("k", s.VALID_FROM, "_fk_valid_to").collect(), key=str)


def test_times_before_the_first_version_that_answers_are_closed(versions: Callable[..., DataFrame]) -> None:
    rows = versions(("a", 1), ("a", 5), ("a", 9), ("b", 7), ("c", 1), ("C", 4))
    assert times(held(rows, ["k"])) == [("a", 1, 5), ("a", 5, 9), ("a", 9, None), ("b", 7, None), ("c", 1, None)]
    now = held(rows, ["k"], horizon="5L")
    closed = now.where(f"{s.HASH} = X''")
    assert times(closed) == [("a", None, 5), ("c", None, 1)]
    assert times(now.where(f"{s.HASH} <> X''")) == [("a", 5, 9), ("a", 9, None), ("b", 7, None), ("c", 1, None)]


def test_a_change_reaches_no_closed_times_and_a_withdrawal_opens_them(versions: Callable[..., DataFrame]) -> None:
    gone = ("K", 6, 0, 0, True)
    later = versions(("k", 1), gone, ("k", 9))
    assert times(reach(later, ["k"], "_fk_to_tell", horizon="9L", before=False)) == []  # 9 has closed what it had
    assert times(reach(later, ["k"], "_fk_to_tell", horizon="8L", before=False)) == [("k", 1, 9)]  # 1 holds again
    assert times(reach(later, ["k"], "_fk_to_tell", horizon="5L", before=False)) == [("k", 6, 9)]
    first = versions(gone, ("k", 9))
    assert times(reach(first, ["k"], "_fk_to_tell", horizon="8L", before=False)) == [("k", None, 9)]
    ended = versions(("k", 1), ("k", 6, 0, 0, True), ("k", 9))
    assert times(reach(ended, ["k"], "_fk_to_tell", horizon="6L", before=True)) == [("k", 6, 9)]
    assert times(reach(ended, ["k"], "_fk_to_tell", horizon="5L", before=True)) == [("k", 1, 9)]


def test_a_version_may_be_removed_if_neither_it_nor_what_ended_it_can_go(versions: Callable[..., DataFrame]) -> None:
    rows = versions(
        ("a", 1, 10), ("a", 3, 20), ("a", 9, 30),  # 3 ended 1, and 9 is not there yet at the horizon
        ("b", 1, 10), ("b", 3, 20, 7),  # what ended it is of a batch that may be withdrawn
        ("c", 1, 10, 7), ("c", 3, 20),  # it may be withdrawn itself, and is then read again
        ("d", 1, 20), ("d", 3, 10),  # a truncate between the two sequences leaves the older version
        ("E", 1, 10), ("e", 3, 20),  # it does not exist
    )  # fmt: skip
    found = removable(rows, ["k"], "5L", f"{s.OWNER} = 0")
    assert [tuple(row) for row in found.collect()] == [("a", 1)]
