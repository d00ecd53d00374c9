"""Corrections: replacement texts for lines of landing files. They are input, as the files are (ledger.md).

A line is identified by the digest of its text, not by its number: so a correction still applies after lines were added
to the file, and never applies to another line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fk_pipeline.identity import Side
from fk_pipeline.store.ledger.entries import Entries
from fk_pipeline.store.ledger.names import Names


@dataclass(frozen=True)
class Correction:
    """Replaces the lines of a landing file whose text has a given digest; an empty text drops them.

    `line` is the number of one of these lines, for people.
    """

    side: Side
    batch: int
    path: str
    line: int | None
    digest: str
    text: str


def digest_of(text: str) -> str:
    """Returns the digest that identifies a line: SHA-256, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


class CorrectionLog:
    """Keeps the newest correction of each line from the rows of `corrections`, and appends those of users."""

    def __init__(self, entries: Entries, names: Names) -> None:
        """Reads the rows, whose paths are those of the ledger; a `Correction` has the path of now."""
        self._entries, self._names = entries, names
        self._texts: dict[tuple[Side, str], dict[str, str]] = {}
        self._newest: dict[tuple[int, Side], int] = {}
        for row in entries.rows("corrections"):
            self._fold(row)

    def record(self, corrections: Iterable[Correction], replay_id: str) -> int:
        """Records corrections in one commit; their batches become due.

        Returns:
            The number of corrections that were not in force already.
        """
        unknown = self.unknown(corrections)
        rows = [
            {
                "replay_id": replay_id,
                **asdict(correction),
                "path": self._names.in_ledger(correction.side, correction.path),
            }
            for correction in unknown
        ]
        for row in self._entries.append("corrections", rows):
            self._fold(row)
        return len(unknown)

    def _fold(self, row: Mapping[str, Any]) -> None:
        side = Side(row["side"])
        self._texts.setdefault((side, self._names.now(side, row["path"])), {})[row["digest"]] = row["text"]
        self._newest[row["batch"], side] = row["entry"]

    def newest(self, batch: int, side: Side) -> int | None:
        """Returns the entry of the last correction of a batch and side; None without any."""
        return self._newest.get((batch, side))

    def texts(self, side: Side, path: str) -> dict[str, str]:
        """Returns, per digest of a line, its replacement text: the last one where a replacement was corrected again."""
        stored = self._texts.get((side, path), {})
        return {line: _last_text(line, stored) for line in stored}

    def unknown(self, corrections: Iterable[Correction]) -> list[Correction]:
        """Returns the corrections that are not in force already."""
        return [
            correction
            for correction in corrections
            if self._texts.get((correction.side, correction.path), {}).get(correction.digest) != correction.text
        ]


def _last_text(line: str, stored: Mapping[str, str]) -> str:
    text, seen = stored[line], {line}
    while (line := digest_of(text)) in stored and line not in seen:
        seen.add(line)
        text = stored[line]
    return text
