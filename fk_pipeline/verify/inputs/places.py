"""Finds the line of a landing file that brought a version of a row, by the reader of `verify --inputs`. No Spark.

The changelogs know the file of a version, and not its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fk_pipeline.blocks.story import JsonRow, Origin
from fk_pipeline.cdc.names import real
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.places import relative
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.verify.inputs.compare import sortable
from fk_pipeline.verify.inputs.doubts import NotReadError
from fk_pipeline.verify.inputs.inputs import reader_of
from fk_pipeline.verify.inputs.landed import Fate, FilePlace, InputColumns, LandedRecord
from fk_pipeline.verify.inputs.moments import date_text, moment_text
from fk_pipeline.verify.inputs.sent import text_of
from fk_pipeline.verify.inputs.typed import base_of

MOST_BYTES = 8_000_000
"""The size of a file up to which its lines are searched: that takes a second or two."""

PER_PACKED_BYTE = 8
"""How many bytes of records a byte of a packed file stands for."""


class LandedPlaces:
    """Tells where versions of rows landed."""

    def __init__(self, spec: PipelineSpec, ledger: Ledger) -> None:
        self.spec, self.ledger = spec, ledger

    def __call__(self, origin: Origin) -> str:
        """Returns the file of a version and its line, or its row: `landing/orders/00000003.jsonl, line 2`.

        Without the line where it is not certain: of a file that is large, gone or in an object store, or has changed
        since it was read, and of a format that this reader does not know.
        """
        line = self._line(origin)
        what = "row" if self.spec.side(origin.side).format in ("csv", "parquet", "dms") else "line"
        return origin.file if line is None else f"{origin.file}, {what} {line}"

    def _line(self, origin: Origin) -> int | None:
        source = self.spec.definition.input(origin.side).shared(self.spec) or origin.side
        side, file = self.spec.side(source), self._file(source, origin)
        if file is None or ":" in side.format or side.format == "delta" or side.key_of_result or side.told_apart:
            return None
        path = self.spec.location(file.path).removeprefix("file://")
        unpacked = file.size * (PER_PACKED_BYTE if path.endswith((".gz", ".parquet", ".parq")) else 1)
        if "://" in path or unpacked > MOST_BYTES:
            return None
        texts = self.ledger.corrections.texts(source, file.path)
        place = FilePlace(real(path), path, file.known_as or file.path, origin.batch, 0, texts)
        columns = InputColumns(side)
        try:
            if Path(place.path).stat().st_size != file.size:
                return None
            records = reader_of(columns, self.spec.settings.max_line_bytes).entries(place)
            candidates = [*_of_key(records, origin.key, side)]
        except (OSError, NotReadError):
            return None
        if any(record.doubt or record.maybe_deleted for record in candidates):
            return None  # the stage may have read it otherwise
        unordered = not columns.knows_order or side.valid_from is not None
        if len(candidates) > 1 and (unordered or any(record.order is None for record in candidates)):
            return None
        newest = max(candidates, key=lambda record: (sortable(record.order), record.line), default=None)
        return newest.line or None if newest is not None else None

    def _file(self, side: Side, origin: Origin) -> LandedFile | None:
        files = self.ledger.files.of(origin.batch, side)
        return next((file for file in files if relative(self.spec, self.spec.location(file.path)) == origin.file), None)


def _of_key(records: Iterator[LandedRecord], key: JsonRow | None, side: SideSpec) -> Iterator[LandedRecord]:
    """Yields the records that write or delete the row of a key; without a key those that delete all rows."""
    expected = None if key is None else [str(value) for value in key.values()]
    columns = side.key_columns
    for record in records:
        if expected is None:
            if record.fate is Fate.TRUNCATED:
                yield record
        elif record.fate in (Fate.WRITTEN, Fate.DELETED) and record.key is not None:
            pairs = zip(record.key, columns, strict=False)
            if [_text(value, base_of(column.type)) for value, column in pairs] == expected:
                yield record


def _text(value: Any, base: str) -> str:
    """Returns a value of a key as a story has it."""
    if base == "DATE" and isinstance(value, int):
        return date_text(value)
    if base.startswith("TIMESTAMP") and isinstance(value, int):
        seconds, _, fraction = moment_text(value).partition(".")
        return f"{seconds}.{fraction:0<6}{'' if base == 'TIMESTAMP_NTZ' else 'Z'}"
    return text_of(value)
