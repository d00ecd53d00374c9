"""Tells which bounds of files in a Delta log count: those whose source is exact for their type (ADR 0044).

A file is read if its bounds do not count. By the type of the column:

* integers: every source is exact;
* texts: a bound with a replacement character does not count: JSON has it in place of bytes that are no UTF-8;
* timestamps: commits are exact, and so are checkpoints that have 64-bit microseconds from Spark (`Times`);
* other types: no bound counts. No condition of the engine skips files by them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from fk_pipeline.environment import storage

NO_TEXT = "\ufffd"
"""The replacement character."""

_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint\.(?:parquet|(\d{10})\.(\d{10})\.parquet|(?P<id>[0-9a-f-]{36})\.(?:parquet|json))"
)
"""The name of a checkpoint: of one file, of one part of several, or of the format V2 with an id, whose files are in the
folder `_sidecars`.
"""

_UNKNOWN = ""

PARTITION = "partition."
"""The beginning of the names of partition columns in what the log tells about files."""

_BOUND = ("add.stats_parsed.minValues.", "add.stats_parsed.maxValues.")

_OF_SPARK = "parquet-mr"
"""The Parquet library of Spark. delta-rs copies the bounds into its checkpoints as it has read them."""


def used_columns(table: DeltaTable) -> tuple[dict[str, list[Any]], frozenset[str]]:
    """Returns what a log tells about the files of a table: path, rows, size, and bounds and nulls of columns.

    Returns:
        Per name one value per file, of timestamps microseconds since 1970: Python may have no date for them. Partition
        columns are after `PARTITION`. And the columns with timestamps, whose bounds count only as far as `Times` tells.
    """
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()  # pa.table loads pandas
    columns: dict[str, list[Any]] = {}
    times = set()
    for name in actions.column_names:
        values, dtype = actions[name], actions.schema.field(name).type
        if name in ("path", "num_records", "size_bytes") or name.startswith(("null_count.", PARTITION)):
            columns[name] = values.to_pylist()
        elif not name.startswith(("min.", "max.")):
            continue
        elif pa.types.is_integer(dtype):
            columns[name] = values.to_pylist()
        elif pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
            columns[name] = [None if text is None or NO_TEXT in text else text for text in values.to_pylist()]
        elif pa.types.is_timestamp(dtype):
            columns[name] = values.cast(pa.timestamp("us", dtype.tz)).cast(pa.int64()).to_pylist()
            times.add(name.split(".", 1)[1])
    return columns, frozenset(times)


class Times:
    """Tells whether the bounds of timestamps count that delta-rs read from the log of a table.

    Spark writes timestamps of 96 bits into its checkpoints unless a setting says otherwise (`settings.file_settings`).
    delta-rs takes them as 64-bit nanoseconds: a time before 1677 or after 2262 becomes another one.
    """

    def __init__(self, path: str, since: int) -> None:
        """Takes the folder or URI of the table, and the version at which delta-rs began with the last checkpoint."""
        self._path, self._since, self._version, self._count = path, since, -1, True
        self._exact: set[str] = set()

    def count(self, version: int) -> bool:
        """Returns whether they count, at a version that delta-rs reached by new commits, and maybe new checkpoints.

        Once they do not, they do not until the log is read again: nobody knows which checkpoints delta-rs has used.
        """
        if self._count and self._version != version:
            self._count, self._version = self._are_exact(version), version
        return self._count

    def _are_exact(self, version: int) -> bool:
        fs, log = storage.filesystem(f"{self._path}/_delta_log")
        try:
            checkpoints = _checkpoints(fs, log)
            first = max((number for number in checkpoints if number <= self._since), default=-1)
            files = {file for number, some in checkpoints.items() if first <= number <= version for file in some}
            new = files - self._exact
            if _UNKNOWN in new or not all(_has_exact_times(fs, file) for file in new):
                return False
        except (OSError, pa.ArrowException):
            return False
        self._exact |= new
        return True


def _checkpoints(fs: Any, log: str) -> dict[int, list[str]]:
    """Returns the Parquet files of all complete checkpoints of a log, by version; `_UNKNOWN` for one of other files."""
    names = [file.rsplit("/", 1)[1] for file in fs.ls(log, detail=False)]
    checkpoints: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    second: set[int] = set()
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        version = int(match[1])
        if match["id"]:
            second.add(version)
        elif match[3]:
            parts.setdefault((version, int(match[3])), []).append(f"{log}/{match[0]}")
        else:
            checkpoints.setdefault(version, []).append(f"{log}/{match[0]}")
    for (version, number), files in parts.items():
        if len(files) == number:
            checkpoints.setdefault(version, []).extend(files)
    beside = list(_sidecars(fs, log)) if second else []
    for version in second:
        checkpoints.setdefault(version, []).extend([file for number, file in beside if number == version] or [_UNKNOWN])
    return checkpoints


def _sidecars(fs: Any, log: str) -> Iterator[tuple[int, str]]:
    """Yields the files of checkpoints of the format V2 that have the names that Spark gives them, with the version."""
    for file in fs.ls(f"{log}/_sidecars", detail=False):
        number = file.rsplit("/", 1)[1].partition(".")[0]
        if number.isdecimal() and file.endswith(".parquet"):
            yield int(number), file


def _has_exact_times(fs: Any, file: str) -> bool:
    import pyarrow.parquet as pq  # takes a while to load, and most tables have no bounds of times

    with fs.open(file) as opened:
        metadata = pq.read_metadata(opened)
    stored = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    bounds = [column for column in stored if column.path.startswith(_BOUND)]
    if any(column.physical_type == "INT96" for column in bounds):
        return False
    times = [column.logical_type.to_json() for column in bounds if column.logical_type.type == "TIMESTAMP"]
    by_spark = metadata.created_by.startswith(_OF_SPARK)
    return not times or (by_spark and all('"microseconds"' in logical_type for logical_type in times))
