"""The tables of a pipeline as they are written: with the texts for people, and with statistics for readers."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from fk_pipeline.blocks.meaning import description_of, meanings_of
from fk_pipeline.contract import loaded
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.schemas import Table, is_filtered_by

MOST_COLUMNS = 16
"""Columns of the result that have statistics, unless the pipeline file names them (ADR 0060)."""


def layout_of(session: SparkSession, spec: PipelineSpec) -> Layout:
    """Returns the tables of a pipeline as they are written; Spark analyses the expressions of the pipeline file.

    Raises:
        PipelineFileError: Spark refuses an expression, or Delta has no statistics of a column that the file names.
    """
    return described(spec, loaded(spec.definition.layout)(session, spec))


def described(spec: PipelineSpec, layout: Layout) -> Layout:
    """Returns the tables of a pipeline with the texts for people, and with statistics for readers of the result."""
    return Layout(tuple(_described(spec, table) for table in layout.tables))


def _described(spec: PipelineSpec, table: Table) -> Table:
    if table.name == spec.definition.result.name:
        table = replace(table, sensitive=table.sensitive | (spec.sensitive_outputs & {*table.names}))
        columns = (*table.skip_by, *_filtered_by(spec, table))
    else:
        columns = table.skip_by
    return replace(
        table,
        description=description_of(spec, table.name),
        comments=meanings_of(spec, table),
        skip_by=tuple(dict.fromkeys(columns)),
    )


def _filtered_by(spec: PipelineSpec, table: Table) -> list[str]:
    """Returns the columns of the result by which its readers may skip files."""
    types, named = dict(table.columns), spec.settings.statistics_columns
    for name in named or ():
        if not is_filtered_by(types.get(name, "")):
            raise PipelineFileError(
                f"settings.statistics_columns: {name} is {types.get(name)}, of which tables have no statistics",
                where=str(spec.file),
                fix="name columns with dates, timestamps, numbers or texts",
            )
    if named is not None:
        return list(named)
    chosen = [output.name for output in spec.outputs if output.name not in table.sensitive]
    return [name for name in chosen if is_filtered_by(types.get(name, ""))][:MOST_COLUMNS]
