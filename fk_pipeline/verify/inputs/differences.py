"""The differences between the files and the tables of an input, as a report names them: no sensitive value is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fk_pipeline.identity import Side
from fk_pipeline.spec import SideSpec
from fk_pipeline.verify.inputs.landed import LandedRecord
from fk_pipeline.verify.inputs.moments import date_text, moment_text
from fk_pipeline.verify.inputs.report import InputDifference, InputsReport
from fk_pipeline.verify.inputs.sent import text_of
from fk_pipeline.verify.inputs.typed import base_of

_LONGEST = 120
_SECRET = "a sensitive value"  # noqa: S105 - shown in place of one


class InputDifferences:
    """Adds the differences of an input to a report.

    Args:
        side: the input, as the pipeline file declares it.
        name: its name.
        report: the report.
        files: per batch and place of a file in it, the name of the file.
    """

    def __init__(
        self, side: SideSpec, name: Side, report: InputsReport, files: Mapping[tuple[int, int], str] | None = None
    ) -> None:
        self._side, self._name, self._report, self._files = side, name, report, files or {}

    def add(
        self,
        batch: int,
        what: str,
        entry: LandedRecord | None = None,
        key: tuple[Any, ...] | None = None,
        column: str = "",
        landed: str = "",
        stored: str = "",
        at: tuple[str, int] = ("", 0),
    ) -> None:
        """Adds a difference.

        Args:
            batch: its batch.
            what: its kind, as `InputDifference` has it.
            entry: the record that it is about, if it is about one.
            key: the key that it is about; by default that of the record.
            column: the column that it is about.
            landed: what the file says.
            stored: what the tables have.
            at: file and line, where there is no record.
        """
        file, line = at
        if entry is not None:
            file, line = self._files.get((batch, entry.place[0]), ""), entry.line
        keys = key if key is not None or entry is None else entry.key
        shown = "" if keys is None else self._key(keys)
        self._report.add(InputDifference(self._name, batch, what, file, line, shown, column, landed, stored))

    def _key(self, key: tuple[Any, ...]) -> str:
        names = [column.name for column in self._side.key_columns]
        return ", ".join(f"{name}={self.value(name, value)}" for name, value in zip(names, key, strict=False))

    def problem(self, entry: LandedRecord) -> str:
        """Returns why a record does not fit, with the value that does not."""
        if not entry.column:
            return entry.reason
        sent = _SECRET if self._side.is_sensitive(entry.column) else entry.sent
        return f"{entry.reason}: {sent}"

    def why(self, reason: str) -> str:
        """Returns that a record is in the quarantine, and why, unless that may have a sensitive value."""
        return "in the quarantine" if self._side.sensitive else f"in the quarantine: {reason}"

    def order(self, order: tuple[Any, ...]) -> str:
        """Returns a place in the source's order as text."""
        if self._side.sequence_by is not None and self._side.sensitive:
            return _SECRET
        return f"({', '.join(map(str, order))})"

    def value(self, name: str, value: Any) -> str:
        """Returns a value of a column as text."""
        if value is None:
            return "NULL"
        if self._side.is_sensitive(name):
            return _SECRET
        column = self._side.column(name)
        base = base_of(column.type) if column is not None else ""
        if base == "DATE" and isinstance(value, int):
            return date_text(value)
        if base.startswith("TIMESTAMP") and isinstance(value, int):
            return moment_text(value)
        if isinstance(value, bytes):
            return value.hex()[:_LONGEST]
        return text_of(value)[:_LONGEST] if value != "" else '""'
