"""The tables of a pipeline as this process reads them, for commands that only look."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fk_pipeline.conditions import RowTest
from fk_pipeline.conditions_of_sql import parsed
from fk_pipeline.contract import loaded
from fk_pipeline.errors import LeftToSpark, UsageError
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store import LEDGER_TABLES
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.entries import SCHEMAS
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.rows_in_process import InProcessTable, NoRows, Relation, RowRequest
from fk_pipeline.store.sizes import Sizes

_KNOWN = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(), "BINARY": pa.binary()}
"""Types of columns in DDL; others are needed for no table without rows, or not known without Spark."""

Order = Sequence[tuple[str, bool]]
"""Columns by which rows are ordered, each with whether it descends."""


def relation(spec: PipelineSpec, ledger: Ledger, sizes: Sizes, name: str) -> Relation:
    """Returns the current rows of a table of a pipeline; for `verdicts` also the implied verdicts.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        sizes: the limits for reading in this process.
        name: the table, which the pipeline has.

    Raises:
        LeftToSpark: only Spark can read them.
    """
    logs = DeltaLogs()

    def table(name: str) -> InProcessTable | None:
        return InProcessTable.of(logs, f"{spec.home}/{name}", sizes)

    if name in LEDGER_TABLES:
        return table(name) or NoRows(SCHEMAS[name])
    view = spec.definition.views_in_process.get(name)
    if view is None and name in spec.definition.views:
        raise LeftToSpark(f"not all rows of {name} are stored")
    return _checked(spec, name, table(name) if view is None else loaded(view)(table, ledger, spec))


def stored(spec: PipelineSpec, sizes: Sizes, name: str) -> Relation:
    """Returns the stored rows of a table of a pipeline.

    Raises:
        LeftToSpark: only Spark can read them.
    """
    return _checked(spec, name, InProcessTable.of(DeltaLogs(), f"{spec.home}/{name}", sizes))


def _checked(spec: PipelineSpec, name: str, rows: Relation | None) -> Relation:
    """Returns rows with the columns that the pipeline file says, in its order; none if there is no table.

    Raises:
        LeftToSpark: they have other columns.
    """
    layout: Layout = loaded(spec.definition.declared_layout)(spec)
    names = layout[name].names
    if rows is None:
        return NoRows(pa.schema([(column, _KNOWN.get(dtype, pa.null())) for column, dtype in layout[name].columns]))
    if {*names} != {*rows.schema.names}:
        raise LeftToSpark("the table has other columns than the pipeline file says")
    return _InOrder(rows, pa.schema([rows.schema.field(column) for column in names]))


class _InOrder:
    """Rows whose columns have another order than the stored ones."""

    def __init__(self, rows: Relation, schema: pa.Schema) -> None:
        self._rows, self.schema = rows, schema

    def read(self, requested: RowRequest) -> pa.Table:
        return self._rows.read(requested)


def result_in_order(rows: Relation, spec: PipelineSpec) -> pa.Table:
    """Returns the selected columns of the result, in the order of `select`, sorted by key.

    Raises:
        LeftToSpark: only Spark can read them, or they are too many for the memory of this process.
    """
    keys = loaded(spec.definition.keys)(spec, spec.definition.result.name).keys
    return rows.read(RowRequest([output.name for output in spec.outputs], order=[(key, False) for key in keys]))


def condition(text: str, rows: Relation) -> RowTest:
    """Returns a condition in Spark's SQL over some rows.

    Raises:
        LeftToSpark: it is not certain how Spark understands it.
    """
    return parsed(text, {field.name: field.type for field in rows.schema})


def order_of(text: str, columns: Sequence[str]) -> Order:
    """Returns an order, such as `a, b DESC`, by some of the columns.

    Raises:
        UsageError: it is none.
    """
    order = []
    for part in text.split(","):
        words = part.split()
        direction = words[1].lower() if len(words) > 1 else "asc"
        if not 1 <= len(words) <= 2 or direction not in ("asc", "desc"):
            raise UsageError(
                f"{part.strip()!r} is no order", fix="columns, each with DESC if it descends: --order-by 'a, b DESC'"
            )
        order.append((column_of(words[0], columns), direction == "desc"))
    return order


def column_of(name: str, columns: Sequence[str]) -> str:
    """Returns the column that a name means; case is not distinguished.

    Raises:
        UsageError: there is none.
    """
    match = next((column for column in columns if column.lower() == name.strip("` ").lower()), None)
    if match is None:
        raise UsageError(f"there is no column {name.strip()!r}", fix=f"columns are {', '.join(columns)}")
    return match
