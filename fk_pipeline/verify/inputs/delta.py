"""Versions of a Delta table as this reader understands them, through delta-rs (`docs/reference/delta.md`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from fk_pipeline.cdc.table_versions import version_range
from fk_pipeline.environment.storage import delta_options
from fk_pipeline.verify.inputs.doubts import NotReadError
from fk_pipeline.verify.inputs.landed import Fate, Fields, FilePlace, InputColumns, LandedRecord
from fk_pipeline.verify.inputs.parquet_files import rows_of

_KINDS = {"insert": "c", "update_postimage": "u", "update_preimage": "d", "delete": "d"}


class DeltaEntries:
    """The records of version ranges: a truncate and the whole table, or the changes of some versions."""

    def __init__(self, columns: InputColumns) -> None:
        self._columns = columns

    def entries(self, place: FilePlace) -> Iterator[LandedRecord]:
        """Yields the records of a range; they have no lines.

        Raises:
            NotReadError: delta-rs cannot read these versions.
        """
        location, first, last = version_range(place.path)
        try:
            if first is None:
                yield LandedRecord(0, Fate.TRUNCATED, "snapshot", op="t", order=(last, 0))
                table = DeltaTable(location, version=last, storage_options=delta_options(location))
                rows = _rows(QueryBuilder().register("versions", table).execute("SELECT * FROM versions"))
                yield from (self._of(place, row, "r", last) for row in rows if self._is_whole(row))
                return
            table = DeltaTable(location, storage_options=delta_options(location))
            for row in _rows(table.load_cdf(starting_version=first, ending_version=last)):
                if self._is_whole(row):
                    yield self._of(place, row, _KINDS[row["_change_type"]], int(row["_commit_version"]))
        except (DeltaError, OSError, pa.ArrowException) as error:
            why = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise NotReadError(f"delta-rs cannot read these versions: {why}") from error

    def _of(self, place: FilePlace, row: dict[str, Any], op: str, version: int) -> LandedRecord:
        return self._columns.entry(place, 0, op, Fields(row), (version, int(op != "d")))

    def _is_whole(self, row: dict[str, Any]) -> bool:
        """Returns whether a row is read: one of the result of another pipeline only if its key has no null."""
        return self._columns.side.pipeline is None or all(row.get(c.name) is not None for c in self._columns.keys)


def _rows(stream: Any) -> Iterator[dict[str, Any]]:
    for batch in pa.RecordBatchReader.from_stream(stream):
        yield from rows_of(batch)
