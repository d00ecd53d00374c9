"""Columns that place a row and are gone, and the names that come close. The rules, without rows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fk_pipeline.blocks.alike import close_names
from fk_pipeline.blocks.lost import Lacking, Placing, lost
from fk_pipeline.identity import Side

KEY, REFERS = Placing("left.key", in_key=True, needed=True), Placing("left.foreign_key", in_key=False, needed=False)
PLACING = {"id": KEY, "customer_id": REFERS}


@pytest.mark.parametrize(
    ("name", "others", "close"),
    [
        ("customer_id", ["customerId", "amount", "customer_name"], ["customerId", "customer_name"]),
        ("customer_id", ["CUSTOMER_ID", "Customer-Id", "x"], ["CUSTOMER_ID", "Customer-Id"]),
        ("id", ["order_id", "width", "amount"], ["order_id"]),
        ("tailnum", ["tail_number", "year"], ["tail_number"]),
        ("user", ["user_id", "at"], ["user_id"]),
        ("id", ["a", "name", "", "__"], []),
        ("a", ["a1", "a2", "a3", "a4"], ["a1", "a2", "a3"]),
    ],
)
def test_names_that_come_close_to_a_column(name: str, others: list[str], close: list[str]) -> None:
    assert close_names(name, others) == close


def told(counted: Lacking, lacking: set[str], having: set[str], known: set[str], *, sends_all: bool) -> str:
    """The batches of the warning, and the names that it proposes."""
    names = {False: lacking, True: having}
    found = lost(PLACING, counted, lambda _, __, has: names[has], Side.LEFT, known, sends_all=sends_all)
    assert len(found) <= 1
    return "; ".join(re.findall(r"^[^:]+|(?<=They have )[^:]+", "".join(found.values())))


@pytest.mark.parametrize(
    ("counted", "names", "more", "said"),
    [
        # Rows that may leave out nulls: only if all of a batch do, and a name is there that was never there before.
        ({1: {"customer_id": 3}}, [{"customerId"}], {}, "batch 1; customerId"),
        ({1: {"customer_id": 3}}, [{"customerId"}], {"known": {"customerId"}}, ""),
        ({1: {"customer_id": 3}}, [{"amount"}], {}, ""),
        ({1: {"customer_id": 3, "": 1}}, [{"customerId"}], {}, ""),
        # Rows that have all columns.
        ({1: {"customer_id": 3}}, [{"amount"}], {"sends_all": True}, "batch 1"),
        ({1: {"customer_id": 3}}, [{"customer"}], {"sends_all": True, "known": {"customer"}}, "batch 1; customer"),
        ({1: {"customer_id": 3, "": 1}}, [{"customerId"}, {"customer_id"}], {"sends_all": True}, "batch 1; customerId"),
        ({1: {"customer_id": 3, "": 1}}, [{"customerId"}, {"customerId"}], {"sends_all": True}, ""),
        # A key is never left out: but one line without it is a bad line.
        ({1: {"id": 2}}, [{"x"}], {}, "batch 1"),
        ({1: {"id": 1, "": 5}}, [{"x"}, {"x", "id"}], {}, ""),
        ({1: {"id": 1, "": 5}}, [{"ident", "paid"}, {"paid", "id"}], {}, ""),
        ({1: {"id": 1, "": 5}}, [{"order_id"}, {"paid", "id"}], {}, "batch 1; order_id"),
        ({1: {"": 5}, 2: {"id": 1}, 7: {"id": 2}}, [{"x"}], {}, "2 batches, the first of them 2"),
        ({}, [set()], {}, ""),
    ],
)  # fmt: skip
def test_what_is_gone_and_what_is_only_left_out(
    counted: Lacking, names: list[set[str]], more: dict[str, Any], said: str
) -> None:
    lacking, having = (*names, set[str]())[:2]
    assert told(counted, lacking, having, **({"known": set(), "sends_all": False} | more)) == said
