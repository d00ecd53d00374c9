"""Guesses the key columns of a sample if the source does not declare them.

A wrong key loses rows: of two rows with one key only the later is kept. So a key is guessed where the names of the
columns, or their values, tell it; else it stays open. An amount, a measure, a time or prose is no key.
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

_ALONE = frozenset({("id",), ("key",), ("uuid",), ("guid",), ("row", "id"), ("rowid",)})
"""Names that identify a row of any table."""
_NUMBERS = frozenset({("number",), ("no",), ("nr",)})
_ALONE_IF_NO_PART = _NUMBERS | {("code",)}
"""Names that identify a row too, unless they number the parts of something that another column names."""
_FIRST = (0, 1, 10)
"""The numbers of the first part of a thing."""
_SMALLEST_GRID = 6
"""The smallest number of rows whose two columns are taken for a grid: chance fills one of this size once in 65."""


@dataclass(frozen=True)
class Guess:
    """The guess of a key.

    Attributes:
        columns: the key columns; none if nothing tells.
        why: the evidence; without columns, what is unclear.
        are_events: whether the rows seem to have no key at all: each has happened, and is never changed.
        apart: the columns of identifiers whose values are all there and all different.
    """

    columns: tuple[str, ...]
    why: str
    are_events: bool
    apart: frozenset[str]


_Found = tuple[Sequence[SampleColumn], str]


def guessed_key(table: str, columns: Sequence[SampleColumn], rows: Sequence[dict[str, Any]]) -> Guess:
    """Returns the guessed key columns of a table.

    Args:
        table: the name of the table.
        columns: its columns.
        rows: rows of the sample, in the order of the source; of a source that tells what is inserted, these rows.
    """
    search = _Search(table, columns, rows)
    steps = (search.by_name, search.by_parts, search.by_references, search.by_number, search.by_grid)
    found = next((found for step in steps if (found := step()) is not None), None)
    if found is None:
        return Guess((), search.unclear or search.possible(), search.are_events(), search.apart)
    return Guess(tuple(one.name for one in found[0]), found[1], False, search.apart)


class _Search:
    """The search for the key of one table; each step returns columns and their evidence, or None."""

    def __init__(self, table: str, columns: Sequence[SampleColumn], rows: Sequence[dict[str, Any]]) -> None:
        self.table = words_of(table.rsplit(".", 1)[-1])
        self.columns, self.rows = columns, rows
        self.whole = [one for one in columns if all(row.get(one.name) is not None for row in rows)]
        self.fit = [one for one in self.whole if one.may_be_key]
        self.identifiers = [one for one in self.fit if one.meaning is Meaning.IDENTIFIER]
        self.references = [one for one in self.fit if one.subject and not one.counts_parts]
        self.counts = [one for one in self.fit if one.counts_parts or one.words in _NUMBERS]
        self.texts = {one.name: [text_of(row.get(one.name)) for row in rows] for one in columns}
        missing = [one.name for one in columns if one not in self.whole and self._has_name_of_key(one)]
        self.unclear = f"{missing[0]} has no value in some rows" if missing else ""

    @cached_property
    def apart(self) -> frozenset[str]:
        """The columns of identifiers whose values are all there and all different."""
        return frozenset(one.name for one in self.identifiers if self.rows and not self._repeats([one]))

    def possible(self) -> str:
        """What may be the key if nothing tells it: columns, or all references, that are different in every row."""
        apart = [[one] for one in self.identifiers if one.name in self.apart] or [self.references]
        names = [_listed(columns) for columns in apart if self.rows and columns and not self._repeats(columns)]
        return "nothing in the sample tells" + (f"; perhaps {', or '.join(names[:3])}" if names else "")

    def are_events(self) -> bool:
        """Whether no column has the name of a key, and rows are equal, or differ only in times, measures and prose."""
        if any(map(self._has_name_of_key, self.columns)):
            return False
        happens = any(one.meaning is Meaning.TIME for one in self.columns)
        changes = any(one.names_change for one in self.columns)
        same = self._repeats(self.columns) > 0
        return len(self.rows) > 1 and (same or (happens and not changes and self._repeats(self.identifiers) > 0))

    def by_name(self) -> _Found | None:
        """`id`, or the name of the table with such an ending; with the number of a part, if the table has parts."""
        alone = [one for one in self.fit if one.words in _ALONE]
        of_table = sorted(filter(self._names_row, self.fit), key=lambda one: -len(self._span(one)))
        for one in alone + of_table:
            others = [] if one in alone else self._beside_it_in_the_name(one)
            repeats = self._repeats([one]) > 0
            if others and not repeats and one is not self.columns[0]:
                self.unclear = f"{one.name}, or {one.name} with {_listed(others)}"
                return None
            beside = [count for count in self.counts if self._begins_anew(one, count)] or (others if repeats else [])
            key = [other for other in self.fit if other is one or other in beside]
            if evidence := self._evidence(key):
                return key, f"{'its name' if len(key) == 1 else 'their names'}; {evidence}"
            self.unclear = f"{_listed(key)} comes again in rows that do not look like updates"
        return None

    def by_parts(self) -> _Found | None:
        """A reference, and a number that counts the parts of what it refers to: `order_id` and `line_no`."""
        parents = [one for one in self.references if self._span(one)] or self.references
        pairs = [pair for pair in itertools.product(parents, self.counts) if self._begins_anew(*pair)]
        found = [(pair, evidence) for pair in pairs if (evidence := self._evidence(pair))]
        return (found[0][0], f"their names; {found[0][1]}") if len(found) == 1 else None

    def by_references(self) -> _Found | None:
        """All columns of a table that has only references, none of which has its name: what belongs to what."""
        only = 2 <= len(self.references) == len(self.columns) and not any(map(self._names_row, self.columns))
        evidence = self._evidence(self.references) if only else ""
        return (self.references, f"the table has nothing else; {evidence}") if evidence else None

    def by_number(self) -> _Found | None:
        """`code` or `number`: of the table, as it is not that of a part."""
        for one in self.fit:
            if one.words in _ALONE_IF_NO_PART and (evidence := self._evidence([one])):
                return [one], f"its name; {evidence}"
        return None

    def by_grid(self) -> _Found | None:
        """An identifier and a time with one row for each pair of their values: currencies and days."""
        times = [one for one in self.whole if one.meaning is Meaning.TIME]
        found = [pair for pair in itertools.product(self.identifiers, times) if self._is_grid(*pair)]
        return (found[0], f"one row for each {_listed(found[0])}") if len(found) == 1 else None

    def _is_grid(self, one: SampleColumn, time: SampleColumn) -> bool:
        """Returns whether nine tenths or more of the pairs of their values have a row, and none has two."""
        rows, sides = len(self.rows), (self._distinct([one]), self._distinct([time]))
        full = 10 * rows >= 9 * sides[0] * sides[1]
        return rows >= _SMALLEST_GRID and min(sides) > 1 and full and self._repeats([one, time]) == 0

    def _has_name_of_key(self, column: SampleColumn) -> bool:
        return column.words in _ALONE | _ALONE_IF_NO_PART or self._names_row(column)

    def _names_row(self, column: SampleColumn) -> bool:
        """Returns whether a column has the name of the table, or its last words, with an ending such as `_id`."""
        return self._span(column)[-1:] == (len(self.table) - 1,)

    def _span(self, column: SampleColumn) -> tuple[int, ...]:
        """Returns the places of the words of the table's name that a column names; none if it names none of them."""
        joined = "".join(column.words)
        ending = max((one for one in SUFFIXES if joined.endswith(one)), key=len, default=joined)
        subject = "".join(column.subject) or joined.removesuffix(ending)
        places = range(len(self.table))
        parts = [places[first : last + 1] for first in places for last in places]
        named = (part for part in parts if part and is_singular_of(subject, "".join(self.table[i] for i in part)))
        return tuple(next(named, ()))

    def _begins_anew(self, parent: SampleColumn, count: SampleColumn) -> bool:
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
        spans = {one.name: {*self._span(one)} for one in self.references}
        own = {*self._span(column)}
        return [one for one in self.references if spans[one.name] and not own & spans[one.name]]

    def _evidence(self, columns: Sequence[SampleColumn]) -> str:
        """Returns why columns may be the key; empty if they repeat in rows that do not look like updates."""
        rows, repeats = len(self.rows), self._repeats(columns)
        if rows <= 1:
            return "the sample has one row" if rows else "the sample has no row"
        if not repeats:
            return f"no {'value comes' if len(columns) == 1 else 'combination comes'} twice in {rows:,} rows"
        updates = look_like_updates([one.name for one in columns], self.columns, self.rows)
        return f"its values come again in {repeats:,} of {rows:,} rows, as updates do" if updates else ""

    def _distinct(self, columns: Sequence[SampleColumn]) -> int:
        return len(set(zip(*(self.texts[one.name] for one in columns), strict=True)))

    def _repeats(self, columns: Sequence[SampleColumn]) -> int:
        return len(self.rows) - self._distinct(columns)


def _listed(columns: Sequence[SampleColumn]) -> str:
    return " and ".join(one.name for one in columns)
