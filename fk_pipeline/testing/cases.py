"""Cases as values, and how a row of one becomes a line of a landing file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any, TypeAlias

from fk_pipeline.identity import Side

RowValues: TypeAlias = Mapping[str, Any]
"""Values by the names of columns as they are declared: null, booleans, texts, numbers as texts, lists, mappings."""

_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class WrittenNumber(str):
    """A number of a YAML file, as it is written there: no digit of it is lost."""

    __slots__ = ()

    @property
    def is_plain(self) -> bool:
        """Whether it lands as it is, with zeros in front as a text; `1_000`, `0x10` and `.5` are written otherwise."""
        return self.isdigit() or _JSON_NUMBER.fullmatch(self) is not None


@dataclass(frozen=True)
class GivenRow:
    """A row that lands: its new version, or with `deletes` its delete, with the values of the key at least."""

    values: RowValues
    deletes: bool = False


GivenBatch: TypeAlias = Mapping[Side, tuple[GivenRow, ...]]
"""The rows of a batch by input; an input that is not in it has no file in the batch."""


@dataclass(frozen=True)
class ExpectedState:
    """What must be true after a run.

    Attributes:
        rows: rows of the result, each with the columns that are compared; None: they are not compared.
        only_some: whether the result may have other rows, too.
        quarantined: the number of records in the quarantine.
    """

    rows: tuple[RowValues, ...] | None = None
    only_some: bool = False
    quarantined: int = 0


@dataclass(frozen=True)
class CaseStep:
    """Batches that land together, a run, and what must then be true.

    Attributes:
        batches: the batches.
        expected: None if nothing is compared after the run.
        now: what the clocks of a query show.
    """

    batches: tuple[GivenBatch, ...]
    expected: ExpectedState | None
    now: str | None = None


@dataclass(frozen=True)
class PipelineCase:
    """One case: a name, and steps one after another."""

    name: str
    steps: tuple[CaseStep, ...]

    @property
    def batches(self) -> tuple[GivenBatch, ...]:
        """The batches of all steps."""
        return tuple(batch for step in self.steps for batch in step.batches)

    @property
    def times(self) -> tuple[str | None, ...]:
        """What the clocks show at each step: a step without `now` does not move them."""
        return tuple(accumulate((step.now for step in self.steps), lambda before, now: now or before))


def line_of_row(values: RowValues) -> str:
    """Returns a row as one line of JSON; a number has the digits of the YAML file.

    >>> print(line_of_row({"id": WrittenNumber("007"), "price": WrittenNumber("12.50"), "name": None}))
    {"id": "007", "price": 12.50, "name": null}
    """
    return _json(values)


def _json(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(str(name))}: {_json(item)}' for name, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_json, value))}]"
    if isinstance(value, (WrittenNumber, Decimal)) and _JSON_NUMBER.fullmatch(str(value)):
        return str(value)
    return json.dumps(value)
