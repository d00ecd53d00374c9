"""Finds batches read by an older reader, which altered numbers with a fraction in JSON lines. No Spark."""

from __future__ import annotations

from dataclasses import dataclass

from fk_pipeline.cdc.values import base
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger

_JSON = ("debezium", "maxwell", "rows")
_EXACT = ("DECIMAL", "STRING", "ARRAY", "MAP", "STRUCT")
"""Types that keep digits that a double does not."""


@dataclass(frozen=True)
class Inexact:
    """Batches of a side that may hold altered numbers.

    Attributes:
        side: the side.
        batches: the batches that an older reader read.
        columns: the columns that may have altered numbers.
        text: a text for people, with the command that is the remedy.
    """

    side: Side
    batches: tuple[int, ...]
    columns: tuple[str, ...]
    text: str


def inexact(spec: PipelineSpec, ledger: Ledger) -> list[Inexact]:
    """Returns batches that may have altered numbers: an older reader read JSON lines into types that keep digits."""
    found = []
    for stage, side in ledger.inputs.items():
        columns = tuple(c.name for c in spec.side(side).columns if base(c.type) in _EXACT)
        batches = tuple(map(int, ledger.due.read_by_kept(stage)))
        if batches and columns and spec.side(side).format in _JSON:
            those = f"{len(batches)} batch(es) of {side}, {batches[0]} to {batches[-1]},"
            told = (
                f"{those} were read by an older version, which altered numbers with a fraction that had no quotes "
                f"(columns {', '.join(columns)}). If the source writes such numbers: "
                f"fk-pipeline rebuild {spec.file} --from landing"
            )
            found.append(Inexact(side, batches, columns, told))
    return found
