"""Folds (batches for which only the last version per key is kept), horizons, rebuilds, which undo both. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from fk_pipeline.contract import Kind
from fk_pipeline.identity import Side
from fk_pipeline.store.ledger.checks import FoldedBatch
from fk_pipeline.store.ledger.due import Due, without_reader
from fk_pipeline.store.ledger.entries import Entries
from fk_pipeline.store.ledger.runs import RunLog


class RebuildLog:
    """Reads the rows of `rebuilds`, and appends the events of a rebuild.

    Attributes:
        rows: every event, in order.
    """

    def __init__(self, entries: Entries, runs: RunLog) -> None:
        """Reads the rows; all runs must have been read before."""
        self._entries, self._commits = entries, runs.commits
        self.rows = entries.rows("rebuilds")
        for row in self.rows:
            self._commits.fold_rebuild(row)

    def record(self, event: str, **what: Any) -> None:
        """Records that a rebuild is ready to be swapped in, or is finished."""
        [row] = self._entries.append("rebuilds", [{"event": event, **what}])
        self.rows.append(row)
        self._commits.fold_rebuild(row)

    @property
    def unfinished(self) -> dict[str, Any] | None:
        """The row of the rebuild whose process died while it swapped tables in; None if there is none."""
        return self.rows[-1] if self.rows and self.rows[-1]["event"] == "ready" else None

    def last(self, stage: str, sources: Collection[str]) -> int:
        """Returns the entry of the last finished rebuild of a stage from one of the sources; 0 if there was none."""
        finished = (row for row in self.rows if row["event"] == "finished" and stage in (row["stages"] or ()))
        return max((int(row["entry"]) for row in finished if row["source"] in sources), default=0)


class FoldLog:
    """Reads the rows of `folds`, and appends those of a maintenance run."""

    def __init__(self, entries: Entries, kind: Kind, runs: RunLog, due: Due, rebuilds: RebuildLog) -> None:
        """Reads the rows."""
        self._entries, self._runs, self._due, self._rebuilds = entries, runs, due, rebuilds
        self._sides = {logged.stage: logged.name for logged in kind.logged}
        self._rows = entries.rows("folds")

    def of(self, stage: str) -> frozenset[int]:
        """Returns the folded batches of a stage: its changelog keeps only the winner per key of their rows.

        A rebuild from the landing files restores the other rows.
        """
        side, since = self._sides[stage], self._rebuilds.last(stage, ("landing",))
        folded = (row["batches"] for row in self._rows if row["side"] == side and row["entry"] > since)
        return frozenset().union(*folded)

    @property
    def on_all_sides(self) -> frozenset[int]:
        """The batches that are folded on all sides; what follows from them may be removed as well."""
        of_each = [*map(self.of, self._sides)]
        return frozenset.intersection(*of_each) if of_each else frozenset()

    def restated(self, stage: str) -> list[FoldedBatch]:
        """Returns the folded batches whose landing files or corrections differ from what the stage has read.

        They can no longer be restated. The list is empty where the stage reads stored data.
        """
        if stage not in self._sides or not self._due.reading.landing:
            return []
        return [FoldedBatch.of(stage, b) for b in sorted(self.of(stage)) if self._is_restated(stage, b)]

    def keeps_stored(self, stage: str, batch: int) -> bool:
        """Returns whether the batch was folded and only the reader has changed: its stored partition then stays."""
        read = self._runs.state(stage, batch).input
        new = bool(read) and read != self._due.reading(stage, batch)
        return new and batch in self.of(stage) and not self._is_restated(stage, batch)

    def stays_folded(self, stage: str, batch: int) -> bool:
        """Returns whether the batch was folded and read before: a new run then keeps only rows with its stored keys.

        False for the first file of the batch on this side.
        """
        return batch in self.of(stage) and self._runs.state(stage, batch).input not in (None, "")

    def record(self, batches: Iterable[int]) -> None:
        """Records that batches are folded on all sides; called before a row is removed."""
        rows = []
        for stage, side in self._sides.items():
            new = sorted({int(batch) for batch in batches} - self.of(stage))
            rows += [{"side": side, "batches": new}] if new else []
        self._rows += self._entries.append("folds", rows)

    def close(self, sides: Iterable[Side], horizon: str) -> None:
        """Records a horizon of some sides; called before a row is removed."""
        rows: list[dict[str, Any]] = [{"side": side, "batches": [], "horizon": horizon} for side in sides]
        self._rows += self._entries.append("folds", rows)

    def horizon(self, stage: str, until: int | None = None) -> str | None:
        """Returns the last horizon of a side, given by its stage, as it was before an entry; None if it has none.

        A rebuild from the landing files restores all rows.
        """
        side, since = self._sides[stage], self._rebuilds.last(stage, ("landing",))
        rows = (row for row in self._rows if row["side"] == side and row["entry"] > since)
        horizons = [row.get("horizon") for row in rows if until is None or row["entry"] < until]
        return next((horizon for horizon in reversed(horizons) if horizon is not None), None)

    def since(self, entry: int, until: int | None = None) -> bool:
        """Returns whether any batches were folded after an entry, and before another one."""
        return any(row["entry"] > entry and (until is None or row["entry"] < until) for row in self._rows)

    def _is_restated(self, stage: str, batch: int) -> bool:
        """Returns whether files or corrections differ from what the stage has read; false if it had read nothing."""
        read = self._runs.state(stage, batch).input
        return read not in (None, "") and without_reader(read) != without_reader(self._due.reading(stage, batch))
