"""Files and batches: which landing files the ledger knows, and which of them each batch reads. No Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fk_pipeline.identity import BatchId, LandedFile, Side
from fk_pipeline.store.ledger.entries import Entries


class FileLog:
    """The rows of `files` and `batches`, folded; and what a discovery or a withdrawal adds to them.

    Attributes:
        known: by side and path, every landing file that was ever found.
        lists: by batch and side, the newest list of its files: the row of `batches`.
    """

    def __init__(self, entries: Entries) -> None:
        """Reads the rows of both tables: the lists before the files, as whoever discovers writes the files first."""
        self._entries = entries
        self.lists = {(row["batch"], Side(row["side"])): row for row in entries.rows("batches")}
        self.known = {(file.side, file.path): file for file in map(_file, entries.rows("files"))}

    @property
    def batches(self) -> list[BatchId]:
        """Every known batch, in order."""
        return [BatchId(b) for b in sorted({batch for batch, _ in self.lists})]

    @property
    def removed(self) -> set[int]:
        """The batches that were withdrawn on purpose. Their files stay known, and are not read."""
        return {batch for (batch, _), row in self.lists.items() if row.get("event") == "removed"}

    def of(self, batch: int, side: Side) -> list[LandedFile]:
        """The files of a batch, in the order in which they are read."""
        row = self.lists.get((batch, side))
        return [self.known[side, path] for path in row["files"]] if row else []

    def of_side(self, side: Side) -> list[LandedFile]:
        """Every file of a side that was ever found."""
        return [file for (of, _), file in self.known.items() if of is side]

    def digest(self, batch: int, side: Side) -> str:
        """What the files of a batch are, as a digest; empty when there is nothing to read."""
        row = self.lists.get((batch, side))
        return row["input"] if row and row["files"] else ""

    def listed(self, batch: int, side: Side) -> int:
        """The entry of the last change of the files of a batch; 0 when it never had any."""
        row = self.lists.get((batch, side))
        return row["entry"] if row else 0

    def record(self, files: Sequence[tuple[str, LandedFile]]) -> list[BatchId]:
        """Records discovered and changed files, and the new file lists of their batches, which become due.

        Args:
            files: pairs of event (`discovered` or `changed`) and file.

        Returns:
            The batches whose list has a new version.
        """
        if not files:
            return []
        self._entries.append(
            "files",
            (
                {
                    "event": event,
                    "side": f.side.value,
                    "batch": int(f.batch),
                    "path": f.path,
                    "size": f.size,
                    "modified": f.modified,
                    "digest": f.digest,
                }
                for event, f in files
            ),
        )
        for _, f in files:
            self.known[f.side, f.path] = f
        removed = self.removed
        touched = {(int(f.batch), f.side) for _, f in files if f.batch not in removed}
        self._list(touched, "listed")
        return [BatchId(batch) for batch in sorted({b for b, _ in touched})]

    def remove(self, batch: int) -> None:
        """Withdraws a batch: both its lists are empty from now on, and its changelog stages are due."""
        self._list({(batch, side) for number, side in self.lists if number == batch}, "removed")

    def restore(self, batch: int) -> None:
        """Lists all files of a withdrawn batch again."""
        self._list({(batch, f.side) for f in self.known.values() if f.batch == batch}, "listed")

    def unlisted(self) -> list[tuple[str, LandedFile]]:
        """Files that were recorded by a discovery that crashed before it recorded the lists of their batches."""
        found, removed = [], self.removed
        for (batch, side), row in self._lists_of_all_files().items():
            stored = self.lists.get((batch, side))
            if batch not in removed and (stored is None or stored["input"] != row["input"]):
                found += [("discovered", self.known[side, path]) for path in row["files"]]
        return found

    def _list(self, places: Iterable[tuple[int, Side]], event: str) -> None:
        """Records new versions of lists: all files that are known of a batch and side, or none."""
        listed = self._lists_of_all_files() if event == "listed" else {}
        rows = []
        for batch, side in sorted(places):
            old = self.lists.get((batch, side))
            content = listed.get((batch, side)) or {"files": [], "input": ""}
            version = old["version"] + 1 if old else 1
            rows.append({"event": event, "batch": batch, "side": side.value, "version": version, **content})
        for row in self._entries.append("batches", rows):
            self.lists[row["batch"], Side(row["side"])] = row

    def _lists_of_all_files(self) -> dict[tuple[int, Side], dict[str, Any]]:
        """Per batch and side the paths of its files in the order in which they are read, and a digest of all."""
        groups: dict[tuple[int, Side], list[LandedFile]] = {}
        for file in sorted(self.known.values(), key=_name_order):
            groups.setdefault((int(file.batch), file.side), []).append(file)
        return {
            place: {
                "files": [f.path for f in mine],
                "input": hashlib.sha256("".join(f"{f.path}\0{f.digest}\n" for f in mine).encode()).hexdigest(),
            }
            for place, mine in groups.items()
        }


def _file(row: Mapping[str, Any]) -> LandedFile:
    return LandedFile(
        row["path"], Side(row["side"]), BatchId(row["batch"]), row["size"], row["modified"], row["digest"]
    )


def _name_order(file: LandedFile) -> tuple[str, str]:
    return file.path.rsplit("/", 1)[-1], file.path
