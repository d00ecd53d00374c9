"""The tables that `init` uses as examples if it gets no sample."""

from __future__ import annotations

from pathlib import Path

from fk_pipeline.scaffold.column import SampleColumn
from fk_pipeline.scaffold.sampled import Sample
from fk_pipeline.scaffold.types import Inferred


def example(table: str, ddl: str, key: str) -> Sample:
    """Returns the sample of a table without rows, from its columns and its key."""
    columns = tuple(
        SampleColumn(name, Inferred(dtype), frozenset(), 0)
        for name, dtype in (column.split(" ", 1) for column in ddl.split("; "))
    )
    return Sample(Path(), Path(), "rows", "", table, columns, (key,), "", 0, "")


EXAMPLE_LEFT = example(
    "orders", "order_id BIGINT; customer_id STRING; amount DECIMAL(12,2); updated_at TIMESTAMP", "order_id"
)

EXAMPLE_RIGHT = example("customers", "customer_id STRING; name STRING; city STRING", "customer_id")
