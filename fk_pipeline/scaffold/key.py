"""Guesses the key columns of a sample if the source does not declare them.

A wrong key loses rows: of two rows with one key only the later is kept. So a key is guessed where the names of the
columns, or their values, show it; else it stays open. An amount, a measure, a time or prose is no key.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fk_pipeline.scaffold.column import SUFFIXES, Meaning, SampleColumn, text_of
from fk_pipeline.scaffold.names import is_singular_of, words_of
from fk_pipeline.scaffold.updates import look_like_updates

_KEY_NAMES = frozenset({("id",), ("key",), ("uuid",), ("guid",), ("row", "id"), ("rowid",)})
"""Names that identify a row of any table."""
_NUMBERS = frozenset({("number",), ("no",), ("nr",)})
_KEY_NAMES_IF_NO_PART = _NUMBERS | {("code",)}
"""Names that identify a row too, unless they number the parts of something that another column names."""
_FIRST = (0, 1, 10)
"""The numbers of the first part of a thing."""
_SMALLEST_GRID = 6
"""The smallest number of rows whose two columns are taken for a grid: chance fills one of this size once in 65."""


@dataclass(frozen=True)
class Guess:
    """The guess of a key.

    Attributes:
        columns: the key columns; empty if it is not known.
        why: the evidence; without columns, what is unclear.
        are_events: whether the rows seem to have no key at all: each has happened, and is never changed.
        apart: the columns of identifiers whose values are all there and all different.
    """

    columns: tuple[str, ...]
    why: str
    are_events: bool
    apart: frozenset[str]


_KeyEvidence = tuple[Sequence[SampleColumn], str]


def guessed_key(table: str, columns: Sequence[SampleColumn], rows: Sequence[dict[str, Any]]) -> Guess:
    """Returns the guessed key columns of a table.

    Args:
        table: the name of the table.
        columns: its columns.
        rows: rows of the sample, in the order of the source; of a source that marks inserted rows, these rows.
    """
    search = _Search(table, columns, rows)
    steps = (search.by_name, search.by_parts, search.by_references, search.by_number, search.by_grid)
    guess = next((guess for step in steps if (guess := step()) is not None), None)
    if guess is None:
        return Guess((), search.unclear or search.possible(), search.are_events(), search.apart)
    return Guess(tuple(column.name for column in guess[0]), guess[1], False, search.apart)


class _Search:
    """The search for the key of one table; each step returns columns and their evidence, or None."""

    def __init__(self, table: str, columns: Sequence[SampleColumn], rows: Sequence[dict[str, Any]]) -> None:
        self.table = words_of(table.rsplit(".", 1)[-1])
        self.columns, self.rows = columns, rows
        self.whole = [column for column in columns if all(row.get(column.name) is not None for row in rows)]
        self.fit = [column for column in self.whole if column.may_be_key]
        self.identifiers = [column for column in self.fit if column.meaning is Meaning.IDENTIFIER]
        self.references = [column for column in self.fit if column.subject and not column.counts_parts]
        self.counts = [column for column in self.fit if column.counts_parts or column.words in _NUMBERS]
        self.texts = {column.name: [text_of(row.get(column.name)) for row in rows] for column in columns}
        missing = [column.name for column in columns if column not in self.whole and self._has_name_of_key(column)]
        self.unclear = f"{missing[0]} has no value in some rows" if missing else ""

    @cached_property
    def apart(self) -> frozenset[str]:
        """The columns of identifiers whose values are all there and all different."""
        return frozenset(column.name for column in self.identifiers if self.rows and not self._repeats([column]))

    def possible(self) -> str:
        """What may be the key if nothing shows it: columns, or all references, that are different in every row."""
        apart = [[column] for column in self.identifiers if column.name in self.apart] or [self.references]
        names = [_listed(columns) for columns in apart if self.rows and columns and not self._repeats(columns)]
        return "nothing in the sample tells" + (f"; perhaps {', or '.join(names[:3])}" if names else "")

    def are_events(self) -> bool:
        """Whether no column has the name of a key, and rows are equal, or differ only in times, measures and prose."""
        if any(map(self._has_name_of_key, self.columns)):
            return False
        happens = any(column.meaning is Meaning.TIME for column in self.columns)
        changes = any(column.names_change for column in self.columns)
        same = self._repeats(self.columns) > 0
        return len(self.rows) > 1 and (same or (happens and not changes and self._repeats(self.identifiers) > 0))

    def by_name(self) -> _KeyEvidence | None:
        """`id`, or the name of the table with such an ending; with the number of a part, if the table has parts."""
        generic = [column for column in self.fit if column.words in _KEY_NAMES]
        of_table = sorted(filter(self._names_row, self.fit), key=lambda column: -len(self._span(column)))
        for column in generic + of_table:
            others = [] if column in generic else self._beside_it_in_the_name(column)
            repeats = self._repeats([column]) > 0
            if others and not repeats and column is not self.columns[0]:
                self.unclear = f"{column.name}, or {column.name} with {_listed(others)}"
                return None
            beside = [count for count in self.counts if self._starts_over(column, count)] or (others if repeats else [])
            key = [other for other in self.fit if other is column or other in beside]
            if evidence := self._evidence(key):
                return key, f"{'its name' if len(key) == 1 else 'their names'}; {evidence}"
            self.unclear = f"{_listed(key)} comes again in rows that do not look like updates"
        return None

    def by_parts(self) -> _KeyEvidence | None:
        """A reference, and a number that counts the parts of what it refers to: `order_id` and `line_no`."""
        parents = [column for column in self.references if self._span(column)] or self.references
        pairs = [pair for pair in itertools.product(parents, self.counts) if self._starts_over(*pair)]
        keys = [(pair, evidence) for pair in pairs if (evidence := self._evidence(pair))]
        return (keys[0][0], f"their names; {keys[0][1]}") if len(keys) == 1 else None

    def by_references(self) -> _KeyEvidence | None:
        """All columns of a table that has only references, none of which has its name: what belongs to what."""
        only = 2 <= len(self.references) == len(self.columns) and not any(map(self._names_row, self.columns))
        evidence = self._evidence(self.references) if only else ""
        return (self.references, f"the table has nothing else; {evidence}") if evidence else None

    def by_number(self) -> _KeyEvidence | None:
        """`code` or `number`: of the table, as it is not that of a part."""
        for column in self.fit:
            if column.words in _KEY_NAMES_IF_NO_PART and (evidence := self._evidence([column])):
                return [column], f"its name; {evidence}"
        return None

    def by_grid(self) -> _KeyEvidence | None:
        """An identifier and a time with one row for each pair of their values: currencies and days."""
        times = [column for column in self.whole if column.meaning is Meaning.TIME]
        grids = [pair for pair in itertools.product(self.identifiers, times) if self._is_grid(*pair)]
        return (grids[0], f"one row for each {_listed(grids[0])}") if len(grids) == 1 else None

    def _is_grid(self, identifier: SampleColumn, time: SampleColumn) -> bool:
        """Returns whether nine tenths or more of the pairs of their values have a row, and none has two."""
        rows, sides = len(self.rows), (self._distinct([identifier]), self._distinct([time]))
        full = 10 * rows >= 9 * sides[0] * sides[1]
        return rows >= _SMALLEST_GRID and min(sides) > 1 and full and self._repeats([identifier, time]) == 0

    def _has_name_of_key(self, column: SampleColumn) -> bool:
        return column.words in _KEY_NAMES | _KEY_NAMES_IF_NO_PART or self._names_row(column)

    def _names_row(self, column: SampleColumn) -> bool:
        """Returns whether a column has the name of the table, or its last words, with an ending such as `_id`."""
        return self._span(column)[-1:] == (len(self.table) - 1,)

    def _span(self, column: SampleColumn) -> tuple[int, ...]:
        """Returns the places of the words of the table's name that a column names; none if it names none of them."""
        joined = "".join(column.words)
        ending = max((suffix for suffix in SUFFIXES if joined.endswith(suffix)), key=len, default=joined)
        subject = "".join(column.subject) or joined.removesuffix(ending)
        places = range(len(self.table))
        parts = [places[first : last + 1] for first in places for last in places]
        named = (part for part in parts if part and is_singular_of(subject, "".join(self.table[i] for i in part)))
        return tuple(next(named, ()))

    def _starts_over(self, parent: SampleColumn, count: SampleColumn) -> bool:
        """Returns whether a number begins at one value for each parent, except for one that the sample may cut."""
        if {*count.words} & {*parent.words} - SUFFIXES:  # the number of what the parent names itself
            return False
        least: dict[str, int] = {}
        for key, number in zip(self.texts[parent.name], self.texts[count.name], strict=True):
            if not number.lstrip("-").isdecimal():
                return False
            least[key] = min(int(number), least.get(key, int(number)))
        begin = [number for number in least.values() if number in _FIRST]
        cut = 1 if len(least) > 2 else 0
        return len(begin) >= len(least) - cut and len(set(begin)) <= 1

    def _beside_it_in_the_name(self, column: SampleColumn) -> list[SampleColumn]:
        """Returns the references to other words of the table's name: of order items, `order_id` beside `item_id`."""
        spans = {reference.name: {*self._span(reference)} for reference in self.references}
        own = {*self._span(column)}
        return [reference for reference in self.references if spans[reference.name] and not own & spans[reference.name]]

    def _evidence(self, columns: Sequence[SampleColumn]) -> str:
        """Returns why columns may be the key; empty if they repeat in rows that do not look like updates."""
        rows, repeats = len(self.rows), self._repeats(columns)
        if rows <= 1:
            return "the sample has one row" if rows else "the sample has no row"
        if not repeats:
            return f"no {'value comes' if len(columns) == 1 else 'combination comes'} twice in {rows:,} rows"
        updates = look_like_updates([column.name for column in columns], self.columns, self.rows)
        return f"its values come again in {repeats:,} of {rows:,} rows, as updates do" if updates else ""

    def _distinct(self, columns: Sequence[SampleColumn]) -> int:
        return len(set(zip(*(self.texts[column.name] for column in columns), strict=True)))

    def _repeats(self, columns: Sequence[SampleColumn]) -> int:
        return len(self.rows) - self._distinct(columns)


def _listed(columns: Sequence[SampleColumn]) -> str:
    return " and ".join(column.name for column in columns)
