"""Files and batches: which landing files the ledger knows, and which of them each batch reads. No Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fk_pipeline.identity import BatchId, LandedFile, Side
from fk_pipeline.store.ledger.entries import Entries


class FileLog:
    """Keeps the newest rows of `files` and `batches`, and appends those of a discovery or a withdrawal.

    Attributes:
        known: per side and path, every landing file that was ever found.
        lists: per batch and side, the row of `batches` with the newest list of its files.
    """

    def __init__(self, entries: Entries) -> None:
        """Reads both tables: `batches` before `files`, because a discovery writes `files` first."""
        self._entries = entries
        self.lists = {(row["batch"], Side(row["side"])): row for row in entries.rows("batches")}
        self.known = {(file.side, file.path): file for file in map(_file, entries.rows("files"))}

    @property
    def batches(self) -> list[BatchId]:
        """Every known batch, in order."""
        return [BatchId(b) for b in sorted({batch for batch, _ in self.lists})]

    @property
    def removed(self) -> set[int]:
        """The withdrawn batches. Their files stay known, but are not read."""
        return {batch for (batch, _), row in self.lists.items() if row.get("event") == "removed"}

    def of(self, batch: int, side: Side) -> list[LandedFile]:
        """Returns the files of a batch and side, in the order in which they are read."""
        row = self.lists.get((batch, side))
        return [self.known[side, path] for path in row["files"]] if row else []

    def of_side(self, side: Side) -> list[LandedFile]:
        """Returns every file of a side that was ever found."""
        return [file for (of, _), file in self.known.items() if of is side]

    def digest(self, batch: int, side: Side) -> str:
        """Returns a digest of the paths and contents of the files of a batch and side; empty if there are no files."""
        row = self.lists.get((batch, side))
        return row["input"] if row and row["files"] else ""

    def listed(self, batch: int, side: Side) -> int:
        """Returns the entry of the last change of the file list of a batch and side; 0 if it never had files."""
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
        """Withdraws a batch: the lists of all its sides become empty, and its changelog stages become due."""
        self._list({(batch, side) for number, side in self.lists if number == batch}, "removed")

    def restore(self, batch: int) -> None:
        """Lists all files of a withdrawn batch again."""
        self._list({(batch, f.side) for f in self.known.values() if f.batch == batch}, "listed")

    def unlisted(self) -> list[tuple[str, LandedFile]]:
        """Returns the files of batches whose list is out of date, because a discovery died before it recorded the list.

        The shape is that of the argument of `record`: pairs of `discovered` and file.
        """
        found, removed = [], self.removed
        for (batch, side), row in self._lists_of_all_files().items():
            stored = self.lists.get((batch, side))
            if batch not in removed and (stored is None or stored["input"] != row["input"]):
                found += [("discovered", self.known[side, path]) for path in row["files"]]
        return found

    def _list(self, places: Iterable[tuple[int, Side]], event: str) -> None:
        """Records a new version of each list: all known files of the batch and side for `listed`, otherwise none."""
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
        """Returns, per batch and side, the paths of its files in the order in which they are read, and their digest."""
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
