"""The rows of a changelog, and the quarantine, in the form in which they can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row

from fk_pipeline.identity import Side, ranges_sql
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.sql import WHOLE_TIMES
from fk_pipeline.store import schemas as s
from fk_pipeline.store.reader import TableReader
from fk_pipeline.verify.inputs.doubts import Doubtful, MisfitError
from fk_pipeline.verify.inputs.typed import Convert, base_of, converter

_NESTED = ("ARRAY", "MAP", "STRUCT")


@dataclass(slots=True)
class StoredRow:
    """A row of a changelog.

    Attributes:
        batch: its batch.
        key: its key, with the time since which it holds; None for a truncate.
        op: its operation.
        deleted: whether it is a tombstone.
        events: events of the key in the batch.
        order: its place in the source's order.
        values: its other columns.
        holes: the columns that the source did not send.
    """

    batch: int
    key: tuple[Any, ...] | None
    op: str
    deleted: bool
    events: int
    order: tuple[Any, ...]
    values: tuple[Any, ...]
    holes: tuple[str, ...]


class StoredRows:
    """The rows of the changelog of an input."""

    def __init__(self, read: TableReader, log: str, side: SideSpec) -> None:
        """Takes the reader of the tables, and the name of the changelog of the input."""
        frame = read.read(log)
        self._since = side.valid_from is not None and s.VALID_FROM in frame.columns
        self._has_holes = s.HOLES in frame.columns
        self._keys = [*side.key_columns]
        self._columns = [(c.name, c.type) for c in (*side.key_columns, *side.value_columns)]
        sequence: Any = frame.schema[s.SEQUENCE].dataType
        orders = [(f"{s.SEQUENCE}.{quote(field.name)}", field.dataType.simpleString()) for field in sequence.fields]
        since = [(s.VALID_FROM, frame.schema[s.VALID_FROM].dataType.simpleString())] if self._since else []
        parts = [*((quote(name), dtype) for name, dtype in self._columns), *since, *orders]
        self._converts = [read_back(dtype) for _, dtype in parts]
        holes = s.HOLES if self._has_holes else "NULL"
        self._frame = frame.selectExpr(
            s.BATCH,
            s.OP,
            s.DELETED,
            s.EVENTS,
            f"{holes} AS _holes",
            *[f"{plain_sql(*part)} AS _{i}" for i, part in enumerate(parts)],
        )

    def of(self, batches: Sequence[int], *, many: bool) -> Iterator[StoredRow]:
        """Yields the rows of some batches; `many` says that they do not all fit into memory."""
        frame = self._frame.where(ranges_sql(s.BATCH, batches))
        for row in frame.toLocalIterator() if many else frame.collect():
            yield self._row(row)

    def besides(self, batches: Sequence[int]) -> dict[int, int]:
        """Returns, per batch that is none of these, the number of its rows."""
        others = self._frame.where(f"NOT {ranges_sql(s.BATCH, batches)}")
        return {row[s.BATCH]: row["count"] for row in others.groupBy(s.BATCH).count().collect()}

    def _row(self, row: Row) -> StoredRow:
        batch, op, deleted, events, holes, *plain = tuple(row)
        values = [
            value if value is None or convert is None else convert(value)
            for value, convert in zip(plain, self._converts, strict=True)
        ]
        keys, columns = len(self._keys), len(self._columns)
        since = columns + int(self._since)
        key = (*values[:keys], *values[columns:since])
        return StoredRow(
            batch,
            None if all(value is None for value in values[:keys]) else key,
            op,
            deleted,
            events,
            tuple(values[since:]),
            tuple(values[keys:columns]),
            tuple(hole["column"] for hole in json.loads(holes)) if holes else (),
        )


def plain_sql(sql: str, dtype: str) -> str:
    """Returns the SQL of a value as a type whose values Python has in full."""
    base = base_of(dtype)
    if base == "DATE":
        return f"UNIX_DATE({sql})"
    if base in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return f"UNIX_MICROS({sql})"
    if base == "TIMESTAMP_NTZ":
        return f"UNIX_MICROS(CAST({sql} AS TIMESTAMP))"
    if base in _NESTED:
        return f"TO_JSON({sql}, MAP('ignoreNullFields', 'false', {WHOLE_TIMES}))"
    return f"CAST({sql} AS DOUBLE)" if base == "FLOAT" else sql


def read_back(dtype: str) -> Convert | None:
    """Returns the function from a value of `plain_sql` to one that can be compared; None if it is one already."""
    base = base_of(dtype)
    if base == "BINARY":
        return bytes
    if base in _NESTED:
        convert = converter(dtype)

        def read(text: Any) -> Any:
            try:
                converted = convert(text)
            except MisfitError:
                return text
            return converted.value if isinstance(converted, Doubtful) else converted

        return read
    return None


def quarantined(rows: DataFrame, side: Side, batches: Sequence[int]) -> dict[int, list[tuple[str, int, str]]]:
    """Returns, per batch, file, line (0: none) and reason of the records of an input in the quarantine."""
    records: dict[int, list[tuple[str, int, str]]] = {}
    chosen = rows.where(f"{s.SIDE} = '{side}' AND {ranges_sql(s.BATCH, batches)}")
    for batch, file, line, reason in chosen.select(s.BATCH, s.FILE, s.LINE, s.REASON).collect():
        records.setdefault(batch, []).append((file, line or 0, reason))
    return records
