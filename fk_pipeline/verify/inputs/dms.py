"""Files of the AWS Database Migration Service as this reader understands them (`docs/reference/dms.md`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fk_pipeline.verify.inputs.csv_files import CsvEntries
from fk_pipeline.verify.inputs.landed import FilePlace, InputColumns, LandedRecord
from fk_pipeline.verify.inputs.parquet_files import ParquetEntries
from fk_pipeline.verify.inputs.rows import DMS_WORDS, RowEntries

OP_OF_DMS = "Op"
_TIME = re.compile(r"([0-9]{8})-([0-9]{9})")
_LOAD = re.compile(r"LOAD[0-9A-F]+\.", re.IGNORECASE)


class DmsEntries:
    """The records of full loads and of changes."""

    def __init__(self, columns: InputColumns, limit: int) -> None:
        rows = RowEntries(columns, OP_OF_DMS, DMS_WORDS)
        self._fields = len(columns.side.as_sent.columns)
        header = columns.side.csv.header is True
        self._texts = CsvEntries(rows, limit, header=header, order=_order, lacks=self._lacks)
        self._columns = ParquetEntries(rows, order=_order, may_lack=True)

    def entries(self, place: FilePlace) -> Iterator[LandedRecord]:
        """Yields the records of a file, in their order."""
        is_text = place.path.endswith((".csv", ".csv.gz"))
        return self._texts.entries(place) if is_text else self._columns.entries(place)

    def _lacks(self, place: FilePlace, first: Sequence[Any]) -> bool:
        """Returns whether a file without a header has no operations, by its first row."""
        if not first or str(first[0]).lower() not in DMS_WORDS:
            return True
        return len(first) == self._fields and _LOAD.match(_name(place)) is not None


def _name(place: FilePlace) -> str:
    return place.name.rsplit("/", 1)[-1]


def _order(place: FilePlace) -> tuple[int]:
    """Returns the order of the rows of a file: the time in its name, as a number; 0 for a full load."""
    match = _TIME.search(_name(place))
    return (int(match[1] + match[2]) if match else 0,)
