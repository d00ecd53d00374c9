"""Files and batches: which landing files the ledger knows, and which of them each batch reads. No Spark."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fk_pipeline.identity import BatchId, LandedFile, Side
from fk_pipeline.store.ledger.entries import Entries
from fk_pipeline.store.ledger.names import LandingPlace, Names

GIVEN_UP = "given up"
"""The event of a file that left its batch for good."""


class FileLog:
    """Keeps the newest rows of `files` and `batches`, and appends those of a discovery or a withdrawal.

    Attributes:
        known: per side and path, every landing file that was ever found. Two paths of the ledger that lead to one place
            are one file: the newest. A file that was given up is not among them.
        given_up: per side and path, the files that were given up: they could not be read and were never read.
        lists: per batch and side, the row of `batches` with the newest list of its files, as the ledger names them.
        names: translates between the paths of the ledger and those of now.
    """

    def __init__(self, entries: Entries, places: Mapping[Side, LandingPlace], claim: Mapping[str, str]) -> None:
        """Reads both tables: `batches` before `files`, because a discovery writes `files` first.

        Args:
            entries: the tables.
            places: where the files of each side land now; without them paths are as the ledger has them.
            claim: the parts of the claim in the ledger.
        """
        self._entries = entries
        self.lists = {(row["batch"], Side(row["side"])): row for row in entries.rows("batches")}
        rows = entries.rows("files")
        self.names = Names(
            places, claim, {side: [r["path"] for r in rows[::-1] if r["side"] == side] for side in places}
        )
        self.known: dict[tuple[Side, str], LandedFile] = {}
        self.given_up: dict[tuple[Side, str], LandedFile] = {}
        for row in rows:
            self._learn(row["event"], _file(row, self.names))

    @property
    def batches(self) -> list[BatchId]:
        """Every known batch, in order."""
        return [BatchId(b) for b in sorted({batch for batch, _ in self.lists})]

    @property
    def removed(self) -> set[int]:
        """The withdrawn batches. Their files stay known, but are not read."""
        return {batch for (batch, side) in self.lists if self.is_removed(batch, side)}

    def is_removed(self, batch: int, side: Side) -> bool:
        """Returns whether a batch with files of a side was withdrawn."""
        row = self.lists.get((batch, side))
        return row is not None and row.get("event") == "removed"

    def of(self, batch: int, side: Side) -> list[LandedFile]:
        """Returns the files of a batch and side, in the order in which they are read."""
        row = self.lists.get((batch, side))
        return self._files(side, row["files"]) if row else []

    def _files(self, side: Side, known_as: Iterable[str]) -> list[LandedFile]:
        """Returns the files of a side that the ledger names, without those that were given up."""
        paths = dict.fromkeys(self.names.now(side, name) for name in known_as)
        return [self.known[side, path] for path in paths if (side, path) not in self.given_up]

    def _learn(self, event: str, file: LandedFile) -> None:
        """Takes in what an event made of a file."""
        of, besides = (self.given_up, self.known) if event == GIVEN_UP else (self.known, self.given_up)
        besides.pop((file.side, file.path), None)
        of[file.side, file.path] = file

    def of_side(self, side: Side) -> list[LandedFile]:
        """Returns every file of a side that was ever found."""
        return [file for (of, _), file in self.known.items() if of == side]

    def called(self, path: str, batch: int, side: Side) -> LandedFile | None:
        """Returns the file of a side that has a path, or that had it before something was moved.

        The latter is of the batch; of several with the name it is the one whose folders are named most alike. None if
        it is not clear which file is meant.
        """
        if (side, path) in self.known:
            return self.known[side, path]
        shared = [(_shared_end(file.path, path), file) for file in self.of(batch, side)]
        most = max((number for number, _ in shared), default=0)
        meant = [file for number, file in shared if number == most > 0]
        return meant[0] if len(meant) == 1 else None

    def digest(self, batch: int, side: Side) -> str:
        """Returns a digest of the paths and contents of the files of a batch and side; empty if there are no files."""
        row = self.lists.get((batch, side))
        return row["input"] if row and row["files"] else ""

    def listed(self, batch: int, side: Side) -> int:
        """Returns the entry of the last change of the file list of a batch and side; 0 if it never had files."""
        row = self.lists.get((batch, side))
        return row["entry"] if row else 0

    def newest(self, side: Side) -> dict[str, Any] | None:
        """Returns the row of the batch of which files of a side were listed last; None if no batch has any."""
        rows = (row for (_, of), row in self.lists.items() if of == side and row["files"])
        return max(rows, key=lambda row: row["entry"], default=None)

    def record(self, files: Sequence[tuple[str, LandedFile]]) -> list[BatchId]:
        """Records discovered and changed files, and the new file lists of their batches, which become due.

        Args:
            files: pairs of event (`discovered`, `changed` or `GIVEN_UP`) and file.

        Returns:
            The batches whose list has a new version.
        """
        if not files:
            return []
        files = [(event, self._in_ledger(file)) for event, file in files]
        self._entries.append(
            "files",
            (
                {
                    "event": event,
                    "side": f.side,
                    "batch": int(f.batch),
                    "path": f.known_as,
                    "size": f.size,
                    "modified": f.modified,
                    "digest": f.digest,
                }
                for event, f in files
            ),
        )
        for event, f in files:
            self._learn(event, f)
        removed = self.removed
        touched = {(int(f.batch), f.side) for _, f in files if f.batch not in removed}
        self._list(touched, "listed")
        return [BatchId(batch) for batch in sorted({b for b, _ in touched})]

    def remove(self, batch: int) -> None:
        """Withdraws a batch: the lists of all its sides become empty, and its changelog stages become due."""
        self._list({(batch, side) for number, side in self.lists if number == batch}, "removed")

    def restore(self, batch: int) -> None:
        """Lists all files of a withdrawn batch again."""
        sides = {(batch, f.side) for f in self.known.values() if f.batch == batch}
        self._list(sides | {(number, side) for number, side in self.lists if number == batch}, "listed")

    def give_up(self, files: Sequence[LandedFile]) -> None:
        """Takes files that cannot be read out of their batches for good; what else is in these stays."""
        self.record([(GIVEN_UP, file) for file in files])

    def unlisted(self) -> list[tuple[str, LandedFile]]:
        """Returns the files of batches whose list is out of date, because a discovery died before it recorded the list.

        The shape is that of the argument of `record`: pairs of `discovered` and file.
        """
        pairs, removed = [], self.removed
        for (batch, side), row in self._lists_of_all_files().items():
            stored = self.lists.get((batch, side))
            if batch not in removed and (stored is None or stored["input"] != row["input"]):
                pairs += [("discovered", file) for file in self._files(side, row["files"])]
        return pairs

    def _in_ledger(self, file: LandedFile) -> LandedFile:
        """Returns a file with the path that the ledger has it under."""
        known = self.known.get((file.side, file.path))
        return replace(file, known_as=known.known_as if known else self.names.in_ledger(file.side, file.path))

    def _list(self, places: Iterable[tuple[int, Side]], event: str) -> None:
        """Records a new version of each list: all known files of the batch and side for `listed`, otherwise none."""
        listed = self._lists_of_all_files() if event == "listed" else {}
        rows = []
        for batch, side in sorted(places):
            old = self.lists.get((batch, side))
            content = listed.get((batch, side)) or {"files": [], "input": ""}
            version = old["version"] + 1 if old else 1
            rows.append({"event": event, "batch": batch, "side": side, "version": version, **content})
        for row in self._entries.append("batches", rows):
            self.lists[row["batch"], Side(row["side"])] = row

    def _lists_of_all_files(self) -> dict[tuple[int, Side], dict[str, Any]]:
        """Returns, per batch and side, its files as the ledger names them, as they are read, and their digest."""
        groups: dict[tuple[int, Side], list[LandedFile]] = {}
        for file in sorted(self.known.values(), key=_name_order):
            groups.setdefault((int(file.batch), file.side), []).append(file)
        return {
            place: {
                "files": [f.known_as for f in files],
                "input": hashlib.sha256("".join(f"{f.known_as}\0{f.digest}\n" for f in files).encode()).hexdigest(),
            }
            for place, files in groups.items()
        }


def _file(row: Mapping[str, Any], names: Names) -> LandedFile:
    side, known_as = Side(row["side"]), row["path"]
    seen = row["size"], row["modified"], row["digest"]
    return LandedFile(names.now(side, known_as), side, BatchId(row["batch"]), *seen, known_as)


def _shared_end(path: str, other: str) -> int:
    """Returns how many of the last parts of two paths are the same."""
    pairs = zip(reversed(path.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _name_order(file: LandedFile) -> tuple[Sequence[str | int], str]:
    """Returns the place of a file among those of its batch: by name, numbers in it as numbers."""
    parts = re.split(r"([0-9]+)", file.known_as.rsplit("/", 1)[-1])
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], file.known_as
