"""Counts the nulls in columns of a stored table without Spark: the footers of its files have their number.

A column is read only from files with deletion vectors: the footers count the rows in these, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from fk_pipeline.environment import storage
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.row_groups import places_of
from fk_pipeline.store.table_files import StoredFile

_PHYSICAL = "delta.columnMapping.physicalName"


def null_counts(logs: DeltaLogs, path: str, columns: Sequence[str], until: float) -> dict[str, int]:
    """Returns, per column, the number of rows of a table, which exists, that are null in it.

    Args:
        logs: the logs.
        path: the folder or URI of the table.
        columns: columns of it, none of them with parts.
        until: when to read no more (`time.monotonic`).

    Raises:
        LeftToSpark: only Spark can find the rows, or a file cannot be read; or the time is over.
    """
    table = logs.table(path)
    assert table is not None
    fields = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    physical = {name: fields[name]["metadata"].get(_PHYSICAL, name) for name in columns}
    counts = dict.fromkeys(columns, 0)
    for file in logs.files(path):
        if time.monotonic() >= until:
            raise LeftToSpark("reading all files takes long")
        try:
            with _opened(file.path) as stored:
                for name, column in physical.items():
                    counts[name] += _nulls(stored, file, column)
        except (pa.ArrowException, OSError) as error:
            raise LeftToSpark(f"a file cannot be read ({type(error).__name__})") from error
    return counts


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    if "://" not in path:
        with pq.ParquetFile(path) as file:
            yield file
        return
    with storage.opened(path) as stream, pq.ParquetFile(stream) as file:
        yield file


def _nulls(stored: pq.ParquetFile, file: StoredFile, column: str) -> int:
    """Returns the number of rows of a file, without those in its deletion vector, that are null in a column."""
    metadata = stored.metadata
    place = places_of(metadata, [column]).get(column)
    if place is None:  # the column is younger than the file
        return int(metadata.num_rows) - len(file.deleted)
    statistics = [metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)]
    if not len(file.deleted) and all(known is not None and known.has_null_count for known in statistics):
        return sum(known.null_count for known in statistics)
    values = stored.read([column], use_threads=False).column(0)
    return int(values.null_count) - (int(values.take(file.deleted).null_count) if len(file.deleted) else 0)
