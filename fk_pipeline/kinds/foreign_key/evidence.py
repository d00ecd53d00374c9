"""The evidence of a story, read from the tables: versions of keys, records of the quarantine, due batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.export import json_rows
from fk_pipeline.identity import Origin, Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.resolved_join import pair_keys
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.story import JsonRow, Quarantined, Version
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import text
from fk_pipeline.store import schemas as s
from fk_pipeline.store.reader import TableReader

MOST_QUARANTINED = 20
"""The maximum number of records of the quarantine in a story; those of the newest batches are taken."""


def versions_of(log: DataFrame, spec: ForeignKeySpec, side: Side) -> tuple[Version, ...]:
    """Returns the versions of some keys of a side, in the source's order.

    Args:
        log: the rows of the changelog with these keys, and all truncates, with their content (`with_content`).
        spec: the pipeline.
        side: the side.
    """
    names = [c.name for c in spec.side(side).key_columns]
    # A truncate comes before the rows of its batch and sequence.
    rows = json_rows(log.orderBy(s.SEQUENCE, s.BATCH, F.col(quote(names[0])).isNotNull()))
    keys = [None if row[names[0]] is None else {name: row[name] for name in names} for row in rows]
    time = None if spec.as_of is None else k.AS_OF if side is Side.LEFT else s.VALID_FROM
    times = [None if time is None or key is None else row[time] for row, key in zip(rows, keys, strict=True)]
    versions = times if side is Side.RIGHT else [None] * len(times)
    places = [None if key is None else (*key.values(), at) for key, at in zip(keys, versions, strict=True)]
    last: dict[Any, int] = {}
    for i, place in enumerate(places):
        if place is not None:
            last[place] = i
        elif side is Side.RIGHT and spec.as_of_batch:  # it ends versions, and replaces none
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
        Version(
            batch=row[s.BATCH],
            key=key,
            sequence=row[s.SEQUENCE],
            op=row[s.OP],
            deleted=row[s.DELETED],
            row=None if row[s.DELETED] else {c.name: row[c.name] for c in spec.side(side).columns},
            refers_to=reference(row, spec) if side is Side.LEFT else None,
            hash=row[s.HASH],
            file=None if row[s.FILE] is None else spec.relative(row[s.FILE]),
            current=i in current,
            late=i in late,
            at=times[i],
        )
        for i, (row, key) in enumerate(zip(rows, keys, strict=True))
    )


def reference(row: JsonRow, spec: ForeignKeySpec, column: Callable[[str], str] = k.fk) -> JsonRow | None:
    """Returns the right key that a row refers to, from the columns that `column` names; None if there is none."""
    key = {c.name: row[column(c.name)] for c in spec.right.key_columns}
    return None if None in key.values() else key


def quarantined_of(
    read: TableReader, spec: ForeignKeySpec, conditions: Mapping[Origin, str]
) -> tuple[Quarantined, ...]:
    """Returns the records of the quarantine that meet a condition, oldest first.

    Args:
        read: reads the quarantine.
        spec: the pipeline.
        conditions: per origin, SQL (BOOLEAN) over a record. For a pair of rows it has the columns of the left key as
            `_fk_pk_*` and of the right key as `_fk_fk_*`, null without the row.
    """
    found = (
        read.read(s.QUARANTINE)
        .select("*", *pair_keys(spec))
        .where(" OR ".join(f"({s.SIDE} = '{origin}' AND {met})" for origin, met in conditions.items()))
        .orderBy(F.col(s.BATCH).desc(), F.col(s.FILE).desc(), F.col(s.LINE).desc())
        .limit(MOST_QUARANTINED)
        .select(s.BATCH, s.SIDE, s.FILE, s.LINE, s.REASON)
    )
    return tuple(
        Quarantined(
            batch=row[s.BATCH],
            side=row[s.SIDE],
            file=None if row[s.FILE] is None else spec.relative(row[s.FILE]),
            line=row[s.LINE],
            reason=row[s.REASON],
        )
        for row in reversed(json_rows(found))
    )


def names_key(key: JsonRow | None) -> str:
    """SQL (BOOLEAN): the raw text of a record has all values of a key; if it names a column, right after its name."""
    if key is None:
        return "FALSE"
    word, found = r"[\p{L}\p{N}_]", []
    for name, value in key.items():
        column, said = rf"(?<!{word})(?i:{_literally(name)})(?!{word})", rf"{_literally(str(value))}(?!{word})"
        behind, alone = rf"{column}[^\p{{L}}\p{{N}}_]{{1,8}}{said}", f"(?<!{word}){said}"
        found.append(f"IF({s.RAW} RLIKE {text(column)}, {s.RAW} RLIKE {text(behind)}, {s.RAW} RLIKE {text(alone)})")
    return " AND ".join(found)


def _literally(said: str) -> str:
    """Returns a pattern that matches only this text."""
    return r"\Q" + said.replace(r"\E", r"\E\\E\Q") + r"\E"
