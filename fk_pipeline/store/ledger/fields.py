"""Fields: the names under which the sources sent values that the pipeline file did not declare (ledger.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fk_pipeline.identity import Side
from fk_pipeline.store.ledger.entries import Entries

MOST_FIELDS_KEPT = 1000
"""The most field names that are kept per side; a source with more uses values as field names."""

NOT_COMPARED = "rows not compared with the schema"
"""The name of a changelog's count of rows whose fields are unknown."""


class FieldLog:
    """Keeps, per side and undeclared field, the entry from which on a batch may have it; appends to `fields`."""

    def __init__(self, entries: Entries) -> None:
        """Reads the rows."""
        self._entries = entries
        self._since: dict[Side, dict[str, int]] = {}
        self._looked: dict[Side, int] = {}
        for row in entries.rows("fields"):
            self._fold(row)

    def record(self, side: Side, names: Iterable[str], *, always: bool = False) -> None:
        """Records the new undeclared fields of a side, and that the records of the side are examined from now on.

        Args:
            side: the side.
            names: the fields.
            always: whether any batch may have them; otherwise only batches that are read from now on.
        """
        new = names if always else self.new(side, names)
        rows: list[dict[str, Any]] = [{"side": side, "name": name, "always": always} for name in new]
        if not rows and not always and self.looked_since(side) is None:
            rows = [{"side": side, "name": None, "always": False}]
        for row in self._entries.append("fields", rows):
            self._fold(row)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Takes over rows of another ledger, with their entries."""
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
        """Returns the undeclared fields that were ever seen on a side."""
        return frozenset(self._since.get(side, ()))

    def looked_since(self, side: Side) -> int | None:
        """Returns the entry from which on the records of a side are examined; None if they never were."""
        return self._looked.get(side)

    def since(self, side: Side, name: str) -> int | None:
        """Returns the entry from which on a batch that was read may have a field; None if no examined batch had it.

        Names are compared without regard to case, as the names of columns in files are.
        """
        entries = [entry for known, entry in self._since.get(side, {}).items() if known.lower() == name.lower()]
        return min(entries, default=None)

    def new(self, side: Side, names: Iterable[str]) -> list[str]:
        """Returns the names that are not known yet, sorted."""
        known = self.known(side)
        return sorted({*names} - known)
