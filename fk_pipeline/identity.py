"""Identities: batches, ranges of batches, sides. Small frozen values instead of bare strings and ints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

MAX_BATCH = 99_999_999
"""A batch number has at most 8 digits, so that the order of the keys is the order of the batches."""


class BatchId(int):
    """The number of a CDC batch. Its key, `b%08d`, is the Dagster partition key."""

    __slots__ = ()

    def __new__(cls, value: int | str) -> BatchId:
        number = int(value)
        if not 0 <= number <= MAX_BATCH:
            raise ValueError(f"batch {number} is not between 0 and {MAX_BATCH}")
        return super().__new__(cls, number)

    @property
    def key(self) -> str:
        """The partition key.

        >>> BatchId(42).key
        'b00000042'
        """
        return f"b{int(self):08d}"

    @classmethod
    def from_key(cls, key: str) -> BatchId:
        """Returns the batch of a partition key.

        >>> BatchId.from_key('b00000042') == 42
        True
        """
        if not re.fullmatch(r"b\d{8}", key):
            raise ValueError(f"{key!r} is not a batch key like b00000042")
        return cls(key[1:])


@dataclass(frozen=True, order=True)
class BatchRange:
    """The batches of one pass of a stage: all from `first` to `last`, both included, but for those in `gaps`.

    Attributes:
        first: the first batch.
        last: the last batch.
        gaps: ranges between these two that are left out, in order, none beside another.
    """

    first: BatchId
    last: BatchId
    gaps: tuple[BatchRange, ...] = ()

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise ValueError(f"{self.first}..{self.last} is empty: the first batch comes after the last")

    @classmethod
    def of(cls, first: int, last: int | None = None) -> BatchRange:
        """Returns the range between two numbers; without `last`, the range of one batch."""
        return cls(BatchId(first), BatchId(first if last is None else last))

    @classmethod
    def covering(cls, batches: Iterable[int], known: Sequence[int]) -> BatchRange:
        """Returns the range that has these batches and no other *known* batch.

        >>> str(BatchRange.covering([2, 4, 7], known=[1, 2, 3, 4, 7, 8]))
        '2,4..7'
        """
        return cls._joined([*contiguous(batches, known)])

    @classmethod
    def parse(cls, text: str) -> BatchRange:
        """Returns the range that has this text.

        >>> BatchRange.parse('2,4..7').gaps == (BatchRange.of(3),)
        True
        """
        return cls._joined(parse_batches(text))

    @classmethod
    def _joined(cls, parts: Sequence[BatchRange]) -> BatchRange:
        gaps = [cls.of(a.last + 1, b.first - 1) for a, b in pairwise(parts)]
        return cls(parts[0].first, parts[-1].last, tuple(gaps))

    @cached_property
    def parts(self) -> tuple[BatchRange, ...]:
        """The ranges without gaps that it consists of, in order."""
        firsts = [self.first, *(gap.last + 1 for gap in self.gaps)]
        lasts = [*(gap.first - 1 for gap in self.gaps), self.last]
        return tuple(map(BatchRange.of, firsts, lasts))

    @property
    def is_single(self) -> bool:
        """Whether it has one batch."""
        return self.first == self.last

    def predicate(self, column: str) -> str:
        """Returns the range as a SQL condition on an integer column: comparisons joined by AND.

        >>> BatchRange.of(3, 5).predicate('n')
        'n BETWEEN 3 AND 5'
        >>> BatchRange.parse('2,4..5,9,11').predicate('n')
        'n BETWEEN 2 AND 11 AND NOT n BETWEEN 6 AND 8 AND n NOT IN (3, 10)'
        """
        if self.is_single:
            return f"{column} = {int(self.first)}"
        between = f"{column} BETWEEN {int(self.first)} AND {int(self.last)}"
        single = ", ".join(str(int(gap.first)) for gap in self.gaps if gap.is_single)
        longer = [gap.predicate(column) for gap in self.gaps if not gap.is_single]
        return " AND NOT ".join([between, *longer]) + (f" AND {column} NOT IN ({single})" if single else "")

    def __contains__(self, batch: object) -> bool:
        inside = isinstance(batch, int) and self.first <= batch <= self.last
        return inside and not any(batch in gap for gap in self.gaps)

    def __str__(self) -> str:
        if self.gaps:
            return ",".join(map(str, self.parts))
        return str(int(self.first)) if self.is_single else f"{int(self.first)}..{int(self.last)}"


def parse_batches(text: str) -> list[BatchRange]:
    """Returns the ranges in the text of `--batches`, in the order given.

    >>> [str(r) for r in parse_batches('3,7,9..12')]
    ['3', '7', '9..12']
    """
    ranges = []
    for part in (p.strip() for p in text.split(",")):
        match = re.fullmatch(r"b?(\d+)(?:\.\.b?(\d+))?", part)
        if match is None:
            raise ValueError(f"{part!r} is neither a batch number nor a range like 9..12")
        ranges.append(BatchRange.of(int(match[1]), int(match[2]) if match[2] else None))
    return ranges


def cut(whole: BatchRange, known: Sequence[int], size: int) -> list[BatchRange]:
    """Cuts a range into ranges of at most `size` known batches.

    >>> [str(r) for r in cut(BatchRange.of(0, 9), [1, 2, 3, 7, 9], 2)]
    ['1..2', '3..7', '9']
    """
    inside = sorted(batch for batch in known if batch in whole)
    if len(inside) <= size:
        return [whole]
    return [BatchRange.covering(inside[i : i + size], known) for i in range(0, len(inside), size)]


def contiguous(batches: Iterable[int], known: Sequence[int]) -> Iterator[BatchRange]:
    """Yields the fewest ranges that cover `batches` and no other *known* batch.

    >>> [str(r) for r in contiguous([1, 2, 9, 20], known=[1, 2, 5, 9, 20])]
    ['1..2', '9..20']
    """
    chosen = set(batches)
    run: list[int] = []
    for batch in sorted(chosen | set(known)):
        if batch in chosen:
            run.append(batch)
        elif run:
            yield BatchRange.of(run[0], run[-1])
            run = []
    if run:
        yield BatchRange.of(run[0], run[-1])


def ranges_sql(column: str, batches: Iterable[int], known: Sequence[int] | None = None) -> str:
    """SQL (BOOLEAN, never null): the value of the column is one of the batches.

    Args:
        column: the column with batch numbers.
        batches: the batches.
        known: all numbers that the column may contain; if they are given, fewer ranges are needed.

    >>> ranges_sql("n", [1, 2, 7])
    'COALESCE(n BETWEEN 1 AND 2 OR n = 7, FALSE)'
    """
    numbers = {int(batch) for batch in batches}
    apart = [n for n in (number + 1 for number in numbers) if n not in numbers]
    ranges = contiguous(numbers, apart if known is None else known)
    return f"COALESCE({' OR '.join(span.predicate(column) for span in ranges)}, FALSE)" if numbers else "FALSE"


def passes(batches: Iterable[int], known: Sequence[int], size: int) -> list[BatchRange]:
    """Returns ranges that together have these batches and no other known batch, with at most `size` batches each.

    >>> [str(r) for r in passes([1, 2, 3, 9], known=[1, 2, 3, 5, 9], size=2)]
    ['1..2', '3,9']
    """
    chosen = sorted({*batches})
    return [BatchRange.covering(chosen[i : i + size], known) for i in range(0, len(chosen), size)]


class Side(str):
    """The name of an input in the pipeline file: any name that the kind of the pipeline gives it (`Kind.inputs`).

    >>> Side("left") == Side.LEFT
    True
    """

    __slots__ = ()

    LEFT: ClassVar[Side]
    RIGHT: ClassVar[Side]
    INPUT: ClassVar[Side]
    """The inputs of a join; the only input of a kind that joins nothing."""


Side.LEFT, Side.RIGHT, Side.INPUT = Side("left"), Side("right"), Side("input")

SIDES = (Side.LEFT, Side.RIGHT)
"""The inputs of a join."""

OF_PAIRS = "join"
"""The origin of a record of the quarantine that is a row of the result; else it is the `Side` of its line."""


INSERTED, APPLIED, SILENT, LATE, EXPIRED = "inserted", "applied", "silent", "late", "expired"
"""Counts of a stage with a state: rows of a new key, rows whose content changed, rows that were rewritten with equal
content, changes that a newer version had overtaken, and rows that were older than the pipeline goes back."""

ADDED, WRITTEN, REMOVED = "added", "written", "removed"
"""Counts of rows of a block: with keys that it did not have, with other values, and those that are gone."""

UNWRITTEN = "unwritten"
"""Count of messages, at most so many, that what reads them computes itself (ADR 0062)."""

QUARANTINED, HALF_QUARANTINED, UNMATCHED_QUARANTINED = "quarantined", "half-quarantined", "alone quarantined"
QUARANTINING = (QUARANTINED, HALF_QUARANTINED, UNMATCHED_QUARANTINED)
"""Counts of a stage: the records that it wrote to the quarantine."""


WITHOUT_OLD_KEY = "updates without the old key"
"""The name of the count of updates that may have changed a key without telling."""

OLD_IMAGE = "old image"
"""The reason why the row that an update replaced is ignored: it is no new version."""


@dataclass(frozen=True)
class LandedFile:
    """A landing file of the ledger; `modified` is the time or etag as the storage writes it.

    `path` is where it is now: relative to the pipeline file if the landing file is below its folder. `known_as` is its
    path in the ledger, which never changes; empty for a file that is not in the ledger.
    """

    path: str
    side: Side
    batch: BatchId
    size: int
    modified: str
    digest: str
    known_as: str = ""
