"""The formats of landing files by their names: which there are, and what the records of each can tell."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fk_pipeline.spec.base import Frozen, problem
from fk_pipeline.words import did_you_mean

FORMATS = ("csv", "debezium", "delta", "dms", "maxwell", "parquet", "rows")
"""Formats that this version reads; `fk_pipeline.cdc` has one class for each."""

PLAIN = ("csv", "parquet", "rows")
"""The formats whose records are rows, where only a column can name the operation."""

NAMING_TABLES = ("debezium", "maxwell")
"""The formats whose records name their table."""

CHANGE_TYPE = "_change_type"
"""The column with the operation in the change feed of a Delta table."""

BY_COMMIT = ("_commit_version", "_commit_timestamp")
"""The columns of a change feed of Delta that all rows of a commit have in common."""

COMMITTED_AT = "committed_at"
"""The word for the time at which the source committed a change."""

TELLING_TIMES = ("debezium", "dms", "maxwell")
"""The formats whose records tell that time."""

OWN_FORMAT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""A format of the user's: `module:Class`."""

LogicalType = Literal["decimal_bytes", "epoch_days", "epoch_seconds", "epoch_millis", "epoch_micros", "epoch_nanos"]
READ_INTO = {"decimal_bytes": "DECIMAL", "epoch_days": "DATE"}
"""Per logical type, the beginning of the types that it is read into; the others are read into timestamps."""


def _known(value: str) -> str:
    if value not in FORMATS and not OWN_FORMAT.fullmatch(value):
        raise problem(
            f"{value!r} is not a format that this version reads; it reads {', '.join(FORMATS)}, and module:Class"
            f"{did_you_mean(value, FORMATS)}"
        )
    return value


FormatName = Annotated[str, AfterValidator(_known)]
"""A format of this version, or one of the user's."""


class CsvSpec(Frozen):
    """How CSV files are written; without a header the columns are those of the schema, in its order."""

    delimiter: str = Field(default=",", pattern=r'^[^"\r\n]$')
    """Between two fields."""
    header: bool | None = None
    """Whether the first line has names; default: yes for `csv`, no for `dms`."""
    null_text: str = ""
    """Stands for null, as an empty field without quotes does."""
