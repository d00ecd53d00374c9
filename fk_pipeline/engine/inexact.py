"""Finds batches read by an older reader that may have altered values. No Spark."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fk_pipeline.cdc.values import COUNTING_DAYS, base
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.store.ledger import Ledger

_JSON = ("debezium", "maxwell", "rows")
_EXACT = ("DECIMAL", "STRING", "ARRAY", "MAP", "STRUCT")
"""Types that keep digits that a double does not."""


@dataclass(frozen=True)
class Inexact:
    """Batches of a side that may hold altered values.

    Attributes:
        side: the side.
        batches: the batches that an older reader read.
        columns: the columns that may have altered values.
        text: a text for people, with the command that is the remedy.
    """

    side: Side
    batches: tuple[int, ...]
    columns: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class _Fault:
    """A fault of older versions of the reader.

    Attributes:
        readers: the versions.
        did: what they did, and to which values.
        such: the values, as part of a condition.
    """

    readers: Collection[str]
    did: str
    such: str


_FRACTIONS = _Fault(("2",), "altered numbers with a fraction that had no quotes", "such numbers")
_DAYS = _Fault(("2", "3"), "took a bare number for a count of days", "dates as numbers, such as 20240501")


def inexact(spec: PipelineSpec, ledger: Ledger) -> list[Inexact]:
    """Returns batches that may have altered values because an older reader read them."""
    found = []
    for stage, side in ledger.inputs.items():
        declared = spec.side(side)
        for fault, columns in ((_FRACTIONS, _fractions(declared)), (_DAYS, _days(declared))):
            batches = tuple(map(int, ledger.due.read_by(stage, fault.readers))) if columns else ()
            if batches:
                those = f"{len(batches)} batch(es) of {side}, {batches[0]} to {batches[-1]},"
                told = (
                    f"{those} were read by an older version, which {fault.did} (columns {', '.join(columns)}). "
                    f"If the source writes {fault.such}: fk-pipeline rebuild {spec.file} --from landing"
                )
                found.append(Inexact(side, batches, columns, told))
    return found


def _fractions(side: SideSpec) -> tuple[str, ...]:
    """Returns the columns whose numbers with a fraction were read as doubles."""
    return tuple(c.name for c in side.columns if base(c.type) in _EXACT) if side.format in _JSON else ()


def _days(side: SideSpec) -> tuple[str, ...]:
    """Returns the columns in which a number is no date now."""
    if side.format in COUNTING_DAYS:
        return ()
    return tuple(c.name for c in side.columns if base(c.type) == "DATE" and side.logical_type(c) is None)
