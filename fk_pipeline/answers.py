"""What the functions of a kind return to commands and to maintenance: data and protocols only.

`contract.Kind` names these functions: the operators and tables of a pipeline, forecasts, impacts, and what a pipeline
does not keep for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from fk_pipeline.contract import Role
from fk_pipeline.identity import Side


@dataclass(frozen=True)
class AppliedRule:
    """An optimisation rule: its name, whether it applies to a pipeline, and why."""

    rule: str
    applied: bool
    why: str


@dataclass(frozen=True)
class Topology:
    """The operators of a pipeline, one chain per line, without and with the rules that apply.

    Attributes:
        rules: the rules.
        before: the operators without them.
        after: the operators with those that apply.
    """

    rules: tuple[AppliedRule, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Blocks:
    """The tables of a pipeline that a refresh keeps up to date.

    Attributes:
        lines: each with the way in which it is kept up to date and the tables that it reads, as a tree.
        sql: per block its SQL over all rows of what it reads; empty if it is not shown.
        notes: what a user must know besides, in sentences.
    """

    lines: tuple[str, ...]
    sql: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """What a run of a stage should do and take, as far as that is known before anything is read.

    Attributes:
        way: how it computes the main table, in a word.
        full: whether it computes the table whole.
        why: the reason.
        changed_rows: about how many rows of what it reads changed; None: not known.
        seconds: what it should take; None: not known.
    """

    way: str
    full: bool
    why: str
    changed_rows: int | None
    seconds: float | None

    def as_json(self) -> dict[str, Any]:
        """Returns it as `plan` prints it."""
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {"way": self.way, "why": self.why, "changed_rows": self.changed_rows, "seconds": seconds}


class Closing(Protocol):
    """What a pipeline does not keep for ever: how far back it goes, and what maintenance may remove.

    Attributes:
        sides: the inputs with rows that are removed.
        order: log and state, in the order in which they lose the rows. A process may die between them.
        waits: whether rows are removed only when nothing is due, and the horizon moves only if batches are folded.
    """

    @property
    def sides(self) -> tuple[Side, ...]: ...

    @property
    def order(self) -> tuple[Role, ...]: ...

    @property
    def waits(self) -> bool: ...

    def horizon(self, states: Mapping[Side, Any], now: datetime) -> str | None:
        """Returns the horizon as the ledger has it, from the rows of states that stay; None if there are none."""
        ...

    def removable(self, side: Side, state: Any, keys: Sequence[str], horizon: str, settled: str) -> Any:
        """Returns the keys of the rows of a state that may be removed.

        Args:
            side: its input.
            state: its rows.
            keys: its key columns.
            horizon: SQL, the horizon.
            settled: SQL (BOOLEAN) over a row: the batches that it comes from can be withdrawn no more.
        """
        ...


class AnyImpact(Protocol):
    """The impact of a change before it is made, as `impact` returns it."""

    def table(self) -> list[list[str]]:
        """Returns the keys with the largest impact as a table for people, its header first."""
        ...

    def sentences(self) -> Sequence[str]:
        """Returns the numbers in sentences."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Returns the impact as a JSON object."""
        ...
