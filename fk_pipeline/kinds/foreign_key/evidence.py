"""The evidence of a story: stored rows as JSON, and what is made of them. No Spark.

A story is made of rows that Spark reads (`evidence_by_spark`), or of the same rows, read in this process
(`evidence_in_process`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from fk_pipeline.blocks.story import JsonRow
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.story import Quarantined, Version
from fk_pipeline.spec.places import relative
from fk_pipeline.store import schemas as s

MOST_QUARANTINED = 20
"""The maximum number of records of the quarantine in a story; those of the newest batches are taken."""

RECORD = (s.BATCH, s.SIDE, s.FILE, s.LINE, s.REASON)
"""The columns of a record of the quarantine in a story."""


class LeftEvidence(Protocol):
    """The stored rows about a left key, as JSON.

    Attributes:
        key: the key.
        logs: per side, rows of the changelog with their content (`changelog.with_content`), in the source's order:
            those of the key, or of the right keys that the left versions refer to, and all truncates.
    """

    key: JsonRow
    logs: dict[Side, list[JsonRow]]

    def of_key(self, table: str) -> list[JsonRow]:
        """Returns the rows of a table that have the key in its `_fk_pk_*` columns."""
        ...

    def quarantined(self, refers_to: JsonRow | None) -> Sequence[JsonRow]:
        """Returns the newest records of the quarantine about the key, or the right key that it refers to, newest last.

        A line that could not be read has no columns: it is included if its text contains the values of the key. A pair
        of rows has columns, which are compared.
        """
        ...

    def expected(self) -> JsonRow | None:
        """Returns the row of the join computed now; None if there is none."""
        ...


class RightEvidence(Protocol):
    """The stored rows about a right key of an outer join, as JSON.

    Attributes:
        key: the key.
        log: rows of the right changelog, those of the key and all truncates, as in `LeftEvidence`.
        referring: the number of left rows that refer to it, by the subscription store.
        joined: the number of rows of the result that have its row and a left row.
        example: the least left key of these (`_fk_pk_*`); None if there are none.
        unmatched: the row of the result without a left row; None if there is none.
    """

    key: JsonRow
    log: list[JsonRow]
    referring: int
    joined: int
    example: JsonRow | None
    unmatched: JsonRow | None

    def quarantined(self) -> Sequence[JsonRow]:
        """Returns the newest records of the quarantine about the key, as in `LeftEvidence`."""
        ...

    def expected(self) -> JsonRow | None:
        """Returns the row without a left row that the join computed now has; None if it has none."""
        ...


def versions_of(rows: Sequence[JsonRow], spec: ForeignKeySpec, side: Side) -> tuple[Version, ...]:
    """Returns the versions of some keys of a side, in the source's order.

    Args:
        rows: the rows of the changelog with these keys, and all truncates, with their content (`with_content`), in this
            order; a truncate comes before the rows of its batch and sequence.
        spec: the pipeline.
        side: the side.
    """
    names = [c.name for c in spec.side(side).key_columns]
    keys = [None if row[names[0]] is None else {name: row[name] for name in names} for row in rows]
    time = None if spec.as_of is None else k.AS_OF if side == Side.LEFT else s.VALID_FROM
    times = [None if time is None or key is None else row[time] for row, key in zip(rows, keys, strict=True)]
    versions = times if side == Side.RIGHT else [None] * len(times)
    places = [None if key is None else (*key.values(), at) for key, at in zip(keys, versions, strict=True)]
    last: dict[Any, int] = {}
    for i, place in enumerate(places):
        if place is not None:
            last[place] = i
        elif side == Side.RIGHT and spec.as_of_batch:  # it ends versions, and replaces none
            last["truncate", i] = i
        else:
            last = dict.fromkeys(last, i)
    current = {*last.values()}
    late, oldest = set(), dict[Any, int]()
    for i, place in reversed([*enumerate(places)]):
        batch = rows[i][s.BATCH]
        if min(oldest.get(place, batch), oldest.get(None, batch)) < batch:
            late.add(i)
        oldest[place] = min(oldest.get(place, batch), batch)
    return tuple(
        Version.of(
            row,
            spec,
            side,
            current=i in current,
            key=key,
            deleted=row[s.DELETED],
            refers_to=reference(row, spec) if side == Side.LEFT else None,
            hash=row[s.HASH],
            late=i in late,
            at=times[i],
        )
        for i, (row, key) in enumerate(zip(rows, keys, strict=True))
    )


def held(versions: Iterable[Version], refers_to: JsonRow | None, at: Any, spec: ForeignKeySpec) -> Version | None:
    """Returns the current version of a right key that holds at a time, maybe a deletion; None if there is none.

    Args:
        versions: the versions of right keys, and the truncates.
        refers_to: the key.
        at: the time; None: there is none.
        spec: the pipeline, with `as_of`.
    """
    if refers_to is None or at is None:
        return None
    versions = [*versions]
    current = [v for v in versions if v.current and v.key == refers_to and v.at <= at]
    latest = max(current, key=lambda version: version.at, default=None)
    ends = [v.batch for v in versions if v.key is None and spec.as_of_batch]
    return None if latest is None or any(latest.at < end <= at for end in ends) else latest


def reference(row: JsonRow, spec: ForeignKeySpec, column: Callable[[str], str] = k.fk) -> JsonRow | None:
    """Returns the right key that a row refers to, from the columns that `column` names; None if there is none."""
    key = {c.name: row[column(c.name)] for c in spec.right.key_columns}
    return None if None in key.values() else key


def records_of(rows: Iterable[JsonRow], spec: ForeignKeySpec) -> tuple[Quarantined, ...]:
    """Returns records of the quarantine, given with the columns `RECORD`."""
    return tuple(
        Quarantined(
            batch=row[s.BATCH],
            side=row[s.SIDE],
            file=None if row[s.FILE] is None else relative(spec, row[s.FILE]),
            line=row[s.LINE],
            reason=row[s.REASON],
        )
        for row in rows
    )


def naming_patterns(
    key: JsonRow, word: str, other: str, literally: Callable[[str], str], alike: str
) -> Iterator[tuple[str, str, str]]:
    """Yields per component of a key three patterns over a line: its name, its value right after that, its value.

    A line names the component if it has the value right after the name, or has the value, and the name nowhere.

    Args:
        key: the key.
        word: the pattern of a character of a word: of a letter, a digit, `_`.
        other: the pattern of any other character.
        literally: function from a text to a pattern that matches only this text.
        alike: the beginning of a group in which upper and lower case of ASCII letters are alike.
    """
    for name, value in key.items():
        column = rf"(?<!{word}){alike}{literally(name)})(?!{word})"
        value_pattern = rf"{literally(str(value))}(?!{word})"
        yield column, rf"{column}{other}{{1,8}}{value_pattern}", f"(?<!{word}){value_pattern}"
