"""Fields: the names under which the sources sent values that the pipeline file did not declare (ledger.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fk_pipeline.identity import Side

MOST_FIELDS = 1000
"""Names that are kept of a side; a source with more has names that are values."""

NOT_COMPARED = "rows not compared with the schema"
"""The count of a changelog's run over records of which nobody knows the fields."""


class FieldLog:
    """What the ledger knows of undeclared fields, and from which entry on a batch may have one."""

    def __init__(self) -> None:
        self._since: dict[Side, dict[str, int]] = {}
        self._looked: dict[Side, int] = {}

    def fold(self, row: Mapping[str, Any]) -> None:
        """Takes a row of the ledger in; rows come in the order of their entries."""
        side, known = Side(row["side"]), self._since.setdefault(Side(row["side"]), {})
        if row["name"] is not None:
            since = 0 if row["always"] else row["entry"]
            known[row["name"]] = min(since, known.get(row["name"], since))
        if not row["always"]:
            self._looked.setdefault(side, row["entry"])

    def known(self, side: Side) -> frozenset[str]:
        """The undeclared fields that were ever seen on a side."""
        return frozenset(self._since.get(side, ()))

    def looked_since(self, side: Side) -> int | None:
        """The entry from which on the records of a side were looked at; None if they never were."""
        return self._looked.get(side)

    def since(self, side: Side, name: str) -> int | None:
        """The entry from which on a batch that was read may have had a field; None if none that was looked at had.

        Names of files with columns are matched without regard to case, so names are here.
        """
        entries = [entry for known, entry in self._since.get(side, {}).items() if known.lower() == name.lower()]
        return min(entries, default=None)

    def new(self, side: Side, names: Iterable[str]) -> list[str]:
        """Those of some names that are not known."""
        known = self.known(side)
        return sorted({*names} - known)
