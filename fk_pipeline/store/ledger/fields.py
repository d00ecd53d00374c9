"""Fields: the names under which the sources sent values that the pipeline file did not declare (ledger.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fk_pipeline.identity import Side
from fk_pipeline.store.ledger.entries import Entries

MOST_FIELDS_KEPT = 1000
"""Names that are kept of a side; a source with more has names that are values."""

NOT_COMPARED = "rows not compared with the schema"
"""The count of a changelog's run over records of which nobody knows the fields."""


class FieldLog:
    """The rows of `fields`, folded: from which entry on a batch may have an undeclared field; and what a look adds."""

    def __init__(self, entries: Entries) -> None:
        """Reads the rows."""
        self._entries = entries
        self._since: dict[Side, dict[str, int]] = {}
        self._looked: dict[Side, int] = {}
        for row in entries.rows("fields"):
            self._fold(row)

    def record(self, side: Side, names: Iterable[str], *, always: bool = False) -> None:
        """Records undeclared fields of a side that were not known, and that the side is looked at.

        Args:
            side: the side.
            names: the fields.
            always: any batch may have them; otherwise those that are read from now on.
        """
        new = names if always else self.new(side, names)
        rows: list[dict[str, Any]] = [{"side": side.value, "name": name, "always": always} for name in new]
        if not rows and not always and self.looked_since(side) is None:
            rows = [{"side": side.value, "name": None, "always": False}]
        for row in self._entries.append("fields", rows):
            self._fold(row)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Takes over rows of another ledger, which have their entries."""
        self._entries.add("fields", [*rows])
        for row in rows:
            self._fold(row)

    def _fold(self, row: Mapping[str, Any]) -> None:
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
