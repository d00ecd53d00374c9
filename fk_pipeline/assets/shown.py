"""What Dagster shows of a stage: counts per batch as plots, columns and their origin, versions, paths; lines of a log.

Texts that may have names from outside, such as those of landing files, are shown as the command shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import (
    AssetExecutionContext,
    MetadataValue,
    OpExecutionContext,
    SensorEvaluationContext,
    TableColumn,
    TableColumnDep,
    TableColumnLineage,
    TableSchema,
)

from fk_pipeline.contract import loaded
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import escaped
from fk_pipeline.identity import BatchId, BatchRange
from fk_pipeline.resources.names import asset_key, result_read_by
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.inputs import RESULT_KEY
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.schemas import Table

OF_BATCH = {
    "files": "landing files of the batch that the stage read; only of stages that read any",
    "seconds": "of the whole run, all its batches together",
    "batches in this run": "the range",
    "run id": "as in the ledger and in the Delta history; only if something was done",
    "path": "of the main table of the stage",
    "Delta version of TABLE": "of every table that the run wrote",
    "strategy": "`incremental` or `full`, and why",
    "note": "what somebody should know; only if there is something",
    "warning": "what is probably wrong in the pipeline file; only if there is something",
    "dagster/column_lineage": "for each column the columns of other assets that its values come from",
}
"""The metadata of a materialisation besides its counts, per name its meaning. `docs/reference/dagster.md` shows it."""

OF_DEFINITION = {
    "dagster/column_schema": "the columns of the main table: type, meaning, and the tag `sensitive`",
    "dagster/table_name": "`<pipeline>.<table>`",
    "path": "of the main table",
    "pipeline file": "its path",
    "dagster/column_lineage": "as above",
}
"""The metadata of the definition of an asset, per name its meaning."""


class Log:
    """The log of a run or of a tick, for texts with names from outside."""

    def __init__(self, context: OpExecutionContext | AssetExecutionContext | SensorEvaluationContext) -> None:
        self._log = context.log

    def info(self, text: str) -> None:
        """Logs one line."""
        self._log.info("%s", escaped(text))

    def warning(self, text: str) -> None:
        """Logs one line as a warning."""
        self._log.warning("%s", escaped(text))


def of_definition(spec: PipelineSpec, stage: str, table: Table) -> dict[str, Any]:
    """Returns the metadata of an asset: the columns of its main table, their origin, the path, the pipeline file."""
    return {
        "dagster/column_schema": TableSchema([_column(spec, stage, table, name, kind) for name, kind in table.columns]),
        "dagster/table_name": f"{spec.name}.{table.name}",
        "path": MetadataValue.path(f"{spec.home}/{table.name}"),
        "pipeline file": MetadataValue.path(str(spec.file)),
        **_lineage(spec, stage),
    }


def files_read(spec: PipelineSpec, ledger: Ledger, stage: str, batch: BatchId) -> int | None:
    """Returns the number of landing files of a batch that a stage reads; None for a stage that reads none."""
    side = spec.definition.side_of(stage)
    return None if side is None else len(ledger.files.of(batch, side))


def as_it_was(ledger: Ledger, stage: str, batch: BatchId) -> StageRun:
    """Returns what is shown of a batch for which a stage was not due: the counts of its last run, and a note."""
    counts = {int(batch): dict(ledger.state(stage, batch).counts)}
    return StageRun(stage, BatchRange(batch, batch), "", counts, 0.0, notes=("it was not due: nothing was done",))


def of_batch(spec: PipelineSpec, result: StageRun, batch: BatchId, files: int | None) -> dict[str, Any]:
    """Returns the metadata of the materialisation of one batch: its counts, and the figures of the whole run.

    Args:
        spec: the pipeline.
        result: the result of the run.
        batch: the batch.
        files: what `files_read` returns.
    """
    counts: Mapping[str, int] = result.counts.get(batch, {})
    shown: dict[str, Any] = dict(counts)
    shown |= {
        name: sum(counts.get(part, 0) for part in parts)
        for name, parts in spec.definition.stage(result.stage).counts.items()
    }
    if files is not None:
        shown["files"] = files
    shown["seconds"] = round(result.seconds, 3)
    shown["batches in this run"] = str(result.batches)
    if result.run_id:
        shown["run id"] = result.run_id
    shown["path"] = MetadataValue.path(f"{spec.home}/{result.stage}")  # a stage has the name of its main table
    for name, version in result.versions.items():
        if name.endswith(" written"):
            shown[f"Delta version of {name.removesuffix(' written')}"] = version
    if result.choice:
        shown["strategy"] = f"{result.choice.strategy}: {result.choice.reason}"
    if result.notes:
        shown["note"] = escaped("; ".join(result.notes))
    if result.warnings:
        shown["warning"] = escaped("; ".join(result.warnings))
    return shown | _lineage(spec, result.stage)


def _column(spec: PipelineSpec, stage: str, table: Table, name: str, kind: str) -> TableColumn:
    """Returns a column with its meaning and whether it is sensitive.

    The meaning is that of a stored column of the pipeline, the expression in `select`, or `as in the source`.
    """
    outputs = spec.outputs if stage == spec.definition.result_stage else ()
    selected = next((one.sql for one in outputs if one.name == name != one.sql), None)
    tags = {"sensitive": ""} if name in table.sensitive else {}
    return TableColumn(
        name,
        kind,
        description=loaded(spec.definition.meaning)(name, table.name) or selected or "as in the source",
        tags=tags,
    )


def _lineage(spec: PipelineSpec, stage: str) -> dict[str, Any]:
    """Returns, per column of a stage's main table, the columns of other assets from which its values come."""
    found = loaded(spec.definition.lineage)(spec, stage)
    columns = {
        name: [TableColumnDep(asset_key(spec, of), column) for of, column in made] for name, made in found.items()
    }
    side, result = spec.definition.side_of(stage), result_read_by(spec, stage)
    if side is not None and result is not None:
        parts = {RESULT_KEY: spec.side(side).key_of_result}
        for column in spec.side(side).columns:
            columns[column.name] = [TableColumnDep(result, of) for of in parts.get(column.name) or (column.name,)]
    return {"dagster/column_lineage": TableColumnLineage(columns)} if columns else {}
