"""Plain rows as this reader understands them (`docs/reference/rows.md`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fk_pipeline.verify.inputs.landed import Fate, Fields, FilePlace, InputColumns, LandedRecord
from fk_pipeline.verify.inputs.sent import text_of

_OPERATIONS = {
    "c": ("c", "create"),
    "i": ("i", "insert", "+i"),
    "r": ("r", "read"),
    "u": ("u", "update", "upsert", "+u", "update_postimage"),
    "d": ("d", "delete", "-d"),
    "t": ("t", "truncate"),
    "retract": ("-u",),
    "before": ("update_preimage",),
}

ROW_WORDS = {word: op for op, words in _OPERATIONS.items() for word in words}
"""Per word in lower case the operation that it names; `retract` and `before` are rows that an update replaced."""

DMS_WORDS = {word: word for word in "iud"}


class RowEntries:
    """The records of plain rows.

    Args:
        columns: the declared columns.
        op_column: the column with the operation; None if every row is written.
        words: the words that it may have.
    """

    def __init__(self, columns: InputColumns, op_column: str | None, words: Iterable[str] = ROW_WORDS) -> None:
        self.columns, self.op_column = columns, op_column
        self._words = {word: ROW_WORDS[word] for word in words}

    def of(
        self,
        place: FilePlace,
        line: int,
        row: Fields,
        order: tuple[Any, ...],
        *,
        has_op: bool = True,
        doubt: bool = False,
    ) -> LandedRecord:
        """Returns the record of a row; `has_op` says whether its file has the column with the operation."""
        op = "u"
        if self.op_column is not None and has_op:
            word = row(self.op_column)
            if word is None:
                return LandedRecord(line, Fate.QUARANTINED, f"no operation in {self.op_column}", doubt=doubt)
            known = self._words.get(text_of(word).lower())
            if known is None:
                return LandedRecord(line, Fate.QUARANTINED, "an unknown operation", doubt=doubt)
            op = known
        side = self.columns.side
        stays = side.keyed_by_place or side.valid_from is not None
        if (op == "before" and not side.feed_of_delta) or (op == "retract" and stays):
            return LandedRecord(line, Fate.IGNORED, "old image", doubt=doubt)
        op = "d" if op in ("before", "retract") else op
        if op == "t":
            return self.columns.truncate(line, row, order, doubt=doubt)
        return self.columns.entry(place, line, op, row, order, doubt=doubt)

    def of_line(self, place: FilePlace, line: int, value: dict[str, Any], doubt: bool) -> Iterator[LandedRecord]:
        """Yields the record of a JSON object."""
        yield self.of(place, line, Fields(value), (place.batch,), doubt=doubt)
