"""What Dagster shows of the result as it is now: rows, bytes and a few rows, read without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dagster import AssetObservation, MetadataValue, TableColumn, TableRecord, TableSchema

from fk_pipeline.arrow_text import json_lines
from fk_pipeline.assets.shown import FIGURES, figures_table
from fk_pipeline.contract import loaded
from fk_pipeline.errors import FkPipelineError, LeftToSpark, escaped
from fk_pipeline.identity import BatchId
from fk_pipeline.resources.names import asset_key
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.logs import UNKNOWN_SIZE, DeltaLogs
from fk_pipeline.store.rows_in_process import InProcessTable, RowRequest
from fk_pipeline.store.sizes import MEASURED

PREVIEWED = 5
"""The number of rows of a preview."""

TEXT_SHOWN = 200
"""The largest number of characters of a value in a preview."""

OF_CURRENT = {
    "dagster/row_count": "",
    FIGURES: "`bytes of the result`",
    "preview": f"{PREVIEWED} rows, without sensitive columns",
}
"""The metadata of the result as it is, per name its meaning, or nothing if the name says it.

One that is not known without Spark is left out."""


def observed(spec: PipelineSpec, batches: Sequence[BatchId]) -> AssetObservation | None:
    """Returns an observation of the result as it is after some batches; None if nothing is known without Spark.

    It is no part of what a batch did: the figures of a batch stay when the result grows.
    """
    shown = _of_current(spec) if batches else {}
    key = asset_key(spec, spec.definition.result_stage)
    return AssetObservation(key, partition=batches[-1].key, metadata=shown) if shown else None


def _of_current(spec: PipelineSpec) -> dict[str, Any]:
    """Returns what is to be shown of the result as it is; nothing of what only Spark can read."""
    name = spec.definition.result.name
    if name in spec.definition.views:
        return {}
    shown: dict[str, Any] = {}
    with suppress(FkPipelineError, LeftToSpark):  # the run has succeeded; whoever reads the table is told
        stored = InProcessTable.of(DeltaLogs(), f"{spec.home}/{name}", MEASURED)
        if stored is not None:
            rows = sum(file.rows - len(file.deleted) for file in stored.files)
            shown |= {"dagster/row_count": rows} if rows < UNKNOWN_SIZE else {}
            shown[FIGURES] = figures_table({"bytes of the result": sum(file.bytes for file in stored.files)})
            shown |= _preview(spec, stored)
    return shown


def _preview(spec: PipelineSpec, stored: InProcessTable) -> dict[str, Any]:
    """Returns the first rows of the files, without the columns that are sensitive."""
    table = loaded(spec.definition.declared_layout)(spec)[spec.definition.result.name]
    types = {output.name: "string" for output in spec.outputs} | dict(table.columns)
    names = [
        output.name
        for output in spec.outputs
        if output.name not in {*table.sensitive, *spec.sensitive_outputs} and output.name in stored.schema.names
    ]
    if not names:
        return {}
    rows = stored.read(RowRequest(names, limit=PREVIEWED))
    records = [
        TableRecord({name: _value(value) for name, value in json.loads(line).items()})
        for line in json_lines(rows, hexadecimal=True)
    ]
    schema = TableSchema([TableColumn(name, types[name].lower()) for name in names])
    return {"preview": MetadataValue.table(records, schema)}


def _value(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escaped(text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}...")
