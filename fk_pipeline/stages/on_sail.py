"""What a pipeline may not say where Sail computes: the result is not Spark's, or nobody knows whether it is."""

from __future__ import annotations

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.environment.storage import scheme_of
from fk_pipeline.errors import PipelineFileError, StateError
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.portable import not_alike
from fk_pipeline.spec.sql import INTEGERS
from fk_pipeline.tables import schemas as s
from fk_pipeline.tables.logs import DeltaLogs

MARKS = "deletionVectors"
"""The feature of tables that Spark makes and delta-rs cannot write."""


def refuse_what_is_not_alike(spec: PipelineSpec) -> None:
    """Refuses, on Sail, a pipeline whose result might not be the one that Spark gives.

    Raises:
        PipelineFileError: it is one; the message names what it is about.
        StateError: its tables were made by Spark.
    """
    _refuse_object_stores(spec)
    _refuse_tables_of_spark(spec)
    _refuse_otherwise_computed(spec)
    _refuse_decimals_of_texts(spec)
    _refuse_otherwise_stored(spec)


def _refuse_tables_of_spark(spec: PipelineSpec) -> None:
    """Refuses a warehouse that Spark made.

    Raises:
        StateError: a table of it may have deletion vectors.
    """
    logs = DeltaLogs()
    for name in (s.RIGHT_TABLE, s.SUBSCRIPTION_STORE, s.RESOLVED_JOIN):
        stored = logs.table(f"{spec.home}/{name}")
        if stored is not None and MARKS in (stored.protocol().writer_features or ()):
            raise StateError(
                f"{name} was made by Spark, and Sail cannot write it",
                where=f"{spec.home}/{name}",
                why="it may have deletion vectors; nothing was changed",
                fix="run on Spark (unset FK_SPARK_REMOTE), or choose another warehouse for Sail",
            )


def _refuse_object_stores(spec: PipelineSpec) -> None:
    """Refuses paths in object stores.

    Raises:
        PipelineFileError: the pipeline has one.
    """
    for path in (spec.home, *map(spec.landing, Side)):
        if scheme_of(path) not in ("", "file"):
            raise PipelineFileError(
                "Sail was never tried with an object store",
                where=f"pipeline {spec.name}, {path}",
                why="nothing was read",
                fix="run on Spark (unset FK_SPARK_REMOTE), or take folders of this machine",
            )


def _refuse_otherwise_computed(spec: PipelineSpec) -> None:
    """Refuses, on Sail, expressions that it computes otherwise than Spark.

    Raises:
        PipelineFileError: the pipeline has one.
    """
    written = [*spec.row_expressions(Side.LEFT), *spec.row_expressions(Side.RIGHT)]
    for sql in [*written, *(output.sql for output in spec.outputs)]:
        part = not_alike(sql)
        if part is not None:
            raise PipelineFileError(
                f"Sail may compute {part} otherwise than Spark",
                where=f"pipeline {spec.name}, expression {sql}",
                why="the result would not be the one that Spark gives (docs/how-to/sail.md); nothing was read",
                fix="run on Spark (unset FK_SPARK_REMOTE), or compute it downstream",
            )


def _refuse_decimals_of_texts(spec: PipelineSpec) -> None:
    """Refuses, on Sail, `DECIMAL` columns of formats of lines: sources may write their values as bytes.

    Raises:
        PipelineFileError: the pipeline has one.
    """
    for side in (spec.left, spec.right):
        for column in side.columns if format_of(side).is_text else ():
            if column.type.upper().startswith("DECIMAL"):
                raise PipelineFileError(
                    f"Sail cannot make {column.type} of what lines of format {side.format} may say",
                    where=f"pipeline {spec.name}, column {column.name}",
                    why="it has no TRY_MULTIPLY of decimals (docs/how-to/sail.md); nothing was read",
                    fix="run on Spark (unset FK_SPARK_REMOTE), land Parquet, or declare the column as STRING",
                )


def _refuse_otherwise_stored(spec: PipelineSpec) -> None:
    """Refuses, on Sail, columns whose values it does not keep as JSON, where a format stores values as JSON.

    Raises:
        PipelineFileError: the pipeline has one.
    """
    for side in (spec.left, spec.right):
        if not format_of(side).has_holes:
            continue
        keys = {c.name for c in side.key_columns}
        for column in side.columns:
            kind = column.type.upper()
            kept = kind in (*INTEGERS, "STRING", "DATE", "BOOLEAN")
            if not kept and (column.name in keys or side.sequence_by is not None or "DECIMAL" in kind):
                raise PipelineFileError(
                    f"Sail does not keep {column.type} in JSON, and rows of format {side.format} need that",
                    where=f"pipeline {spec.name}, column {column.name}",
                    why="a value could be taken for another one (docs/how-to/sail.md); nothing was read",
                    fix="run on Spark (unset FK_SPARK_REMOTE), or declare the column as STRING",
                )
