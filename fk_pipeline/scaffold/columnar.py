"""Samples of Parquet files and Delta tables, which declare their types."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.deletes import inserted, operation_field
from fk_pipeline.scaffold.sampled import MOST_RECORDS, Sample, sample_of
from fk_pipeline.scaffold.types import of_arrow


def of_parquet(path: Path, files: Sequence[Path], name: str) -> Sample:
    """Returns the sample of a table of this name from its Parquet files.

    Raises:
        UsageError: the first file is no Parquet.
    """
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(files[0])
        batches = pq.ParquetFile(files[0]).iter_batches(MOST_RECORDS)
        rows: list[dict[str, Any]] = next((batch.to_pylist() for batch in batches), [])
    except (OSError, ValueError) as error:
        raise UsageError(f"{files[0]} is no Parquet: {error}") from None
    types = {field.name: of_arrow(field.type) for field in schema}
    dms = next(iter(types), "") == "Op" and {row["Op"] for row in rows} <= {"I", "U", "D", None}
    options: dict[str, Any] = {}
    op = "Op" if dms else operation_field(list(types), rows)
    if op is not None:
        del types[op]
        options |= {} if dms else {"op_column": op}
    return sample_of(
        path,
        files[0].parent,
        "dms" if dms else "parquet",
        "Parquet of AWS DMS" if dms else "Parquet",
        name,
        types,
        rows,
        None,
        inserted(rows, op),
        records=len(rows),
        types_from="the file",
        options=options,
    )


def of_delta(path: Path, name: str) -> Sample:
    """Returns the sample of a Delta table of this name.

    Raises:
        UsageError: the folder is no Delta table.
    """
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(str(path))
    except DeltaError as error:
        raise UsageError(f"{path} is no Delta table: {error}") from None
    schema = pa.schema(table.schema().to_arrow())
    rows = _rows_of_delta(table)
    types = {field.name: of_arrow(field.type) for field in schema if not field.name.startswith("_fk_")}
    has_feed = str(table.metadata().configuration.get("delta.enableChangeDataFeed", "")).lower() == "true"
    notes = [] if has_feed else ["the table has no change feed (delta.enableChangeDataFeed): each look reads it whole"]
    return sample_of(
        path,
        path,
        "delta",
        "a Delta table",
        name,
        types,
        rows,
        None,
        rows,
        records=len(rows),
        types_from="the table",
        notes=notes,
    )


def _rows_of_delta(table: Any) -> list[dict[str, Any]]:
    """Returns some rows of a Delta table; none if it has a feature that only Spark can read."""
    from deltalake.exceptions import DeltaError

    try:
        rows: list[dict[str, Any]] = table.to_pyarrow_dataset().head(MOST_RECORDS).to_pylist()
    except (DeltaError, OSError, ValueError):
        return []
    return rows
