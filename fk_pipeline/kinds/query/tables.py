"""Names and schemas of the tables of a query: one per block, whose rows know their key and the hash of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.blocks.input_types import empty_rows, first_line
from fk_pipeline.blocks.refresh.facts import standing_for
from fk_pipeline.blocks.refresh.tables import analysed_table, declared_table
from fk_pipeline.blocks.select.block import ANCHOR, PART, ROW
from fk_pipeline.blocks.select.lineage import reads_of
from fk_pipeline.cdc.table_versions import shown_version
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.frames import empty
from fk_pipeline.kinds.query.proof import as_written
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.spec.load import file_and_line
from fk_pipeline.store import schemas as s
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.schemas import Table


def layout_of(session: SparkSession, spec: QuerySpec) -> Layout:
    """Returns the tables; Spark analyses the query over empty tables.

    Raises:
        PipelineFileError: Spark refuses a part of the query.
    """
    rows = {name: empty_rows(session, spec, side) for name, side in spec.inputs.items()}
    _refuse_what_spark_refuses(rows, spec)
    tables, declared = dict[str, Table](), declared_layout(spec)
    for block in spec.blocks.blocks:
        hashed = ROW in declared[block.name].names
        tables[block.name] = analysed_table(spec, tables, block, rows, hashed=hashed)
        rows[block.name] = empty(session, tables[block.name].columns)
    return Layout(tuple(tables.values()))


def _refuse_what_spark_refuses(rows: Mapping[str, DataFrame], spec: QuerySpec) -> None:
    """Refuses a query that Spark could not run as it is written, as `verify` does, though its blocks could be."""
    try:
        as_written(rows, spec).schema  # noqa: B018 - analyses it
    except PySparkException as error:
        place = file_and_line(spec.file, "query", "")
        raise PipelineFileError(f"query: {first_line(error)}", where=place) from None


def declared_layout(spec: QuerySpec) -> Layout:
    """Returns the tables as far as the pipeline file alone tells: the type of an expression is `expression`."""
    tables: dict[str, Table] = {}
    for block in spec.blocks.blocks:
        tables[block.name] = declared_table(spec, tables, block)
    return Layout(tuple(tables.values()))


def keys_of(spec: QuerySpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    declared = declared_layout(spec)[table]
    types = dict(declared.columns)
    return Table(table, tuple((k, types[k]) for k in declared.keys), keys=declared.keys, sensitive=declared.sensitive)


def shown_keys(_: QuerySpec) -> list[str]:
    """Returns the names of the columns by which rows are paired, for people."""
    return ["content", "copy"]


def lineage(spec: QuerySpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a block, the (stage or input, column) pairs from which its values come."""
    block = spec.blocks.block(stage)
    return {column: sorted(reads_of(block, column)) for column in block.columns}


_MEANING = {
    **s.MEANING,
    ROW: "a hash of the keys of all joined rows, or of the group",
    PART: "a hash of the partition",
    s.HASH: "of the values of the row",
    s.BATCH: "the look at the inputs after which the row was last written",
}


def meaning(column: str, _: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    if column.startswith(ANCHOR.format("")):
        return "a part of the key of the anchor"
    return _MEANING.get(column)


def stands_for(facts: Mapping[str, Any]) -> dict[str, str]:
    """Returns, per input, the version that the result stands for, as text."""
    stands = standing_for(facts)
    return {name: ", ".join(shown_version(of, version) for of, version in some) for name, some in stands.items()}
