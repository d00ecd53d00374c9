"""Parquet files as this reader understands them, through Arrow (`docs/reference/rows.md`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from fk_pipeline.cdc.unreadable import LINES, look_into
from fk_pipeline.environment import storage
from fk_pipeline.verify.inputs.doubts import ANY
from fk_pipeline.verify.inputs.landed import Fate, Fields, FilePlace, LandedRecord
from fk_pipeline.verify.inputs.rows import RowEntries
from fk_pipeline.verify.inputs.sent import Days, Instant, Single

ROWS_AT_ONCE = 4096


class ParquetEntries:
    """The records of Parquet files.

    Args:
        rows: the meaning of a row.
        order: function from a file to the order of its rows.
        may_lack: whether a file may lack the column with the operation: its rows are written.
    """

    def __init__(
        self, rows: RowEntries, *, order: Callable[[FilePlace], tuple[Any, ...]], may_lack: bool = False
    ) -> None:
        self._rows, self._order, self._may_lack = rows, order, may_lack

    def entries(self, place: FilePlace) -> Iterator[LandedRecord]:
        """Yields the records of a file, in their order."""
        broken = look_into(place.path, "", shape=LINES).unreadable
        if broken is not None:
            yield LandedRecord(1, Fate.QUARANTINED, broken.reason)
            return
        with storage.opened(place.path) as stream:
            file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            names = {name.lower() for name in file.schema_arrow.names}
            op = self._rows.op_column
            has_op = op is None or not self._may_lack or op.lower() in names
            rows = (row for batch in file.iter_batches(ROWS_AT_ONCE) for row in rows_of(batch))
            for line, row in enumerate(rows, 1):
                yield self._rows.of(place, line, Fields(row), self._order(place), has_op=has_op)


def rows_of(batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """Yields the rows of a batch, with what landed in place of each value."""
    columns = [_landed(column) for column in batch.columns]
    names = batch.schema.names
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _landed(column: pa.Array) -> Iterable[Any]:
    """Returns the values of a column as they landed; a kind that this reader does not know may be anything."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    dtype = column.type
    if pt.is_date32(dtype):
        return [None if value is None else Days(value) for value in column.cast(pa.int32()).to_pylist()]
    if pt.is_timestamp(dtype):
        micros = column.cast(pa.timestamp("us", dtype.tz), safe=False).cast(pa.int64())
        return [None if value is None else Instant(value) for value in micros.to_pylist()]
    if pt.is_float32(dtype):
        return [None if value is None else Single(value) for value in column.to_pylist()]
    if pt.is_nested(dtype):
        return [_nested(scalar) for scalar in column]
    if pt.is_time(dtype) or pt.is_duration(dtype) or pt.is_float16(dtype):
        return [None if valid is None else ANY for valid in column.is_valid().to_pylist()]
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # a text that is none may be stored as anything
        values = [_text(raw) for raw in column.cast(pa.binary()).to_pylist()]
    return values


def _text(raw: bytes | None) -> Any:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return ANY


def _nested(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.MapScalar):
        return {str(key): value for key, value in ((k, _nested(v)) for k, v in _pairs(scalar))}
    if isinstance(scalar, pa.StructScalar):
        fields = {name: _nested(scalar[name]) for name in scalar}
        return {name: value for name, value in fields.items() if value is not None}  # as in the text of a struct
    if isinstance(scalar, pa.ListScalar):
        return [_nested(item) for item in scalar.values]
    return next(iter(_landed(pa.array([scalar.as_py()], scalar.type))))


def _pairs(scalar: pa.MapScalar) -> Iterator[tuple[Any, pa.Scalar]]:
    for entry in scalar.values:
        yield entry["key"].as_py(), entry["value"]
