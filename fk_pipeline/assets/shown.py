"""What Dagster shows of a stage: a number per batch as a plot, a table of figures, columns, paths; lines of a log.

Texts that may have names from outside, such as those of landing files, are shown as the command shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dagster import (
    AssetExecutionContext,
    MetadataValue,
    OpExecutionContext,
    SensorEvaluationContext,
    TableColumn,
    TableColumnDep,
    TableColumnLineage,
    TableMetadataValue,
    TableRecord,
    TableSchema,
)

from fk_pipeline.blocks.meaning import meanings_of
from fk_pipeline.cdc.table_versions import names_versions, shown_file, version_range
from fk_pipeline.contract import StageDef, loaded
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import escaped
from fk_pipeline.identity import BatchId, BatchRange, Side, parse_batches
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.privacy import message_of
from fk_pipeline.report.files import place_of_report, renew
from fk_pipeline.resources.names import asset_key, input_key, result_read_by
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.inputs import RESULT_KEY
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import commits
from fk_pipeline.store.ledger.runs import StageState, Success
from fk_pipeline.store.schemas import Table

FILES_SHOWN = 20
"""The largest number of files of a batch in the metadata."""

FIGURES = "figures"
"""The name of the table of what is no plot: Dagster makes a plot of every number that is metadata of its own."""

OF_BATCH = {
    "NUMBER": "the first of the stage",
    "dagster/partition_row_count": "of the changelog",
    FIGURES: "",
    "path": "of the main table",
    "report": "its [page](../how-to/report.md#the-page-in-dagster)",
    "note": "the same work ran again, or never succeeded",
    "dagster/column_lineage": "",
}
"""The metadata of a materialisation, per name its meaning, or nothing. `docs/reference/dagster.md` shows it."""

OF_FIGURES = {
    "NUMBER": "the others",
    "COUNT": "every other",
    "files": "",
    "seconds": "of the whole run",
    "batches of the run": "",
    "run id": "",
    "Delta version of TABLE": "of each written",
    "strategy": "and why",
}
"""The rows of the table of figures of a materialisation, per name its meaning, or nothing if the name says it."""

OF_LANDING = {
    "files": "their number, or of versions",
    FIGURES: "`bytes`",
    "first files": "up to 20",
    "batches of PIPELINE": "that wrote the result read",
    "note": "withdrawn",
}
"""The metadata of an observation of what landed, per name its meaning."""

OF_DEFINITION = {
    "dagster/column_schema": "with the tag `sensitive`",
    "dagster/table_name": "",
    "dagster/uri": "",
    "path": "",
    "pipeline file": "",
    "dagster/column_lineage": "",
}
"""The metadata of the definition of an asset, per name its meaning, or nothing if the name says it."""


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

    def ran(self, result: StageRun) -> None:
        """Logs a run of a stage: its seconds, notes and warnings."""
        self.info(f"{result.stage}, batch {result.batches}: {result.seconds:.1f} s")
        for note in result.notes:
            self.info(note)
        for warning in result.warnings:
            self.warning(warning)


@contextmanager
def renewing_report(pipeline: Pipeline, log: Log, *, always: bool = True) -> Iterator[None]:
    """Writes the page of the report anew after some work: if it failed, or always; the error of the work passes on."""
    try:
        yield
    except Exception:
        _renew_report(pipeline, log)
        raise
    if always:
        _renew_report(pipeline, log)


def _renew_report(pipeline: Pipeline, log: Log) -> None:
    """Writes the page of the report anew, unless it is switched off; what hinders it ends no run."""
    if not pipeline.spec.settings.report:
        return
    try:
        renew(pipeline)
    except Exception as error:  # noqa: BLE001 - the run has done its work
        log.warning(f"the report was not written: {message_of(error, pipeline.spec)}")  # noqa: G004 - not a logger


def of_definition(spec: PipelineSpec, stage: str, table: Table) -> dict[str, Any]:
    """Returns the metadata of an asset: the columns of its main table, their origin, the path, the pipeline file."""
    meta = spec.meta if stage == spec.definition.result_stage else {}
    return {
        **meta,
        "dagster/column_schema": TableSchema(_columns(spec, table)),
        "dagster/table_name": f"{spec.name}.{table.name}",
        "dagster/uri": _uri(f"{spec.home}/{table.name}"),
        "path": MetadataValue.path(f"{spec.home}/{table.name}"),
        "pipeline file": MetadataValue.path(str(spec.file)),
        **_lineage(spec, stage),
    }


def files_read(spec: PipelineSpec, ledger: Ledger, stage: str, batch: BatchId) -> int | None:
    """Returns the number of landing files of a batch that a stage reads; None for a stage that reads none."""
    inputs = spec.definition.inputs_of(stage)
    return sum(len(ledger.files.of(batch, side)) for side in inputs) if inputs else None


def of_batch(spec: PipelineSpec, ledger: Ledger, stage: str, batch: BatchId) -> dict[str, Any]:
    """Returns the metadata of the materialisation of one batch, as the ledger has it, whoever ran the stage.

    A run that repeats the work of an earlier one tells nothing new of the batch: the figures of the first one stay.
    """
    shown = of_state(spec, stage, ledger.state(stage, batch), files_read(spec, ledger, stage, batch))
    return shown or {"note": "no run has succeeded for it" if batch in ledger.batches else "it has no files"}


def of_state(spec: PipelineSpec, stage: str, state: StageState, files: int | None) -> dict[str, Any]:
    """Returns the metadata of a stage and batch in a state; none if no run has succeeded.

    Args:
        spec: the pipeline.
        stage: the stage.
        state: its state.
        files: the number of landing files of the batch that the stage reads; None if it reads none.
    """
    last, figures = state.last, state.figures
    if last is None or figures is None:
        return {}
    counts = _counts(spec.definition.stage(stage), figures)
    shown: dict[str, Any] = dict([*counts.items()][:1])
    if files is not None and "rows" in figures.counts:
        shown["dagster/partition_row_count"] = figures.counts["rows"]
    shown[FIGURES] = _table_of({name: value for name, value in counts.items() if name not in shown}, figures, files)
    shown["path"] = MetadataValue.path(f"{spec.home}/{stage}")  # a stage has the name of its main table
    if spec.settings.report:
        shown["report"] = MetadataValue.path(place_of_report(spec))
    if last is not figures:
        shown["note"] = f"run {last.run_id} did the same work again"
    return shown | _lineage(spec, stage)


def _counts(stage: StageDef, figures: Success) -> dict[str, int]:
    """Returns the counts of a batch: the numbers of the stage, then those counts that no such number is called as."""
    numbers = {name: sum(figures.counts.get(part, 0) for part in parts) for name, parts in stage.counts.items()}
    return numbers | {name: value for name, value in figures.counts.items() if name not in numbers}


def _table_of(counts: Mapping[str, int], figures: Success, files: int | None) -> TableMetadataValue:
    """Returns some counts of a batch, and what is known of the run that made them, as a table of two columns."""
    rows: dict[str, str | int | float] = dict(counts)
    if files is not None:
        rows["files"] = files
    rows |= {"seconds": round(figures.seconds, 3), "batches of the run": str(figures.batches), "run id": figures.run_id}
    for name, version in figures.versions.items():
        if name.endswith(" written"):
            rows[f"Delta version of {name.removesuffix(' written')}"] = version
    if figures.strategy:
        rows["strategy"] = f"{figures.strategy}: {figures.reason}"
    return figures_table(rows)


def figures_table(rows: Mapping[str, str | int | float]) -> TableMetadataValue:
    """Returns the table of figures: two columns, and a row per name."""
    records = [TableRecord({"figure": name, "value": value}) for name, value in rows.items()]
    return MetadataValue.table(records, TableSchema([TableColumn("figure"), TableColumn("value", "number or text")]))


def of_landing(spec: PipelineSpec, ledger: Ledger, side: Side, batch: BatchId) -> dict[str, Any]:
    """Returns the metadata of what landed of a batch on a side: its files in the order in which they are read."""
    files = ledger.files.of(batch, side)
    shown = [TableRecord({"file": escaped(shown_file(file)), "bytes": file.size}) for file in files[:FILES_SHOWN]]
    schema = TableSchema([TableColumn("file", "string"), TableColumn("bytes", "int")])
    metadata = {
        "files": len(files),
        FIGURES: figures_table({"bytes": sum(file.size for file in files)}),
        "first files": MetadataValue.table(shown, schema),
    }
    result = result_read_by(spec, side)
    read = _batches_read([spec.location(file.path) for file in files]) if result is not None else ""
    metadata |= {f"batches of {result.path[-1]}": read} if result is not None and read else {}
    return metadata | ({"note": "the batch was withdrawn"} if ledger.files.is_removed(batch, side) else {})


def _batches_read(paths: Iterable[str]) -> str:
    """Returns the batches of another pipeline whose runs wrote some versions of its result, as text: `4..5, 9`.

    They are those in the commits of these versions; of a whole table it is too many to name.
    """
    batches: dict[BatchRange, None] = {}
    for table, first, last in (version_range(path) for path in paths if names_versions(path)):
        if first is None:
            return f"all up to version {last}"
        with suppress(OSError, ValueError):  # no log there, or commits of somebody else
            newest = range(last, max(first, last - FILES_SHOWN + 1) - 1, -1)
            for commit in commits(table, newest):
                batches |= dict.fromkeys(parse_batches(commit.batches) if commit.batches else ())
    return ", ".join(map(str, sorted(batches, key=lambda span: (span.first, span.last))))


def _uri(place: str) -> str:
    return place if "://" in place else Path(place).as_uri()


def _columns(spec: PipelineSpec, table: Table) -> list[TableColumn]:
    """Returns the columns of a table, each with its meaning and whether it is sensitive."""
    meanings = meanings_of(spec, table)
    return [
        TableColumn(
            name,
            dtype,
            description=meanings.get(name, "as in the source"),
            tags={"sensitive": ""} if name in table.sensitive else {},
        )
        for name, dtype in table.columns
    ]


def _lineage(spec: PipelineSpec, stage: str) -> dict[str, Any]:
    """Returns, per column of a stage's main table, the columns of other assets from which its values come."""
    lineage = loaded(spec.definition.lineage)(spec, stage)
    columns = {
        name: [dep for of, column in made for dep in _made_of(spec, of, column)] for name, made in lineage.items()
    }
    side = spec.definition.side_of(stage)
    if side is not None and result_read_by(spec, side) is not None:
        columns |= {column.name: _read(spec, side, column.name) for column in spec.side(side).columns}
    return {"dagster/column_lineage": TableColumnLineage(columns)} if columns else {}


def _made_of(spec: PipelineSpec, of: str, column: str) -> list[TableColumnDep]:
    """Returns where a column of a stage's table is, or of an input that stages read where it lies."""
    kind = spec.definition
    lying = of in {source.name for source in kind.inputs} and of not in kind.stage_names
    return _read(spec, Side(of), column) if lying else [TableColumnDep(asset_key(spec, of), column)]


def _read(spec: PipelineSpec, side: Side, column: str) -> list[TableColumnDep]:
    """Returns the columns that a column of an input is: of the result of another pipeline, or of what landed."""
    asset, declared = result_read_by(spec, side) or input_key(spec, side), spec.side(side).column(column)
    name = column if declared is None else declared.name  # a query may spell it in another case
    parts = {RESULT_KEY: spec.side(side).key_of_result}
    return [TableColumnDep(asset, of) for of in parts.get(name) or (name,)]
