"""Which engine reads and commits the tables of a session."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from fk_pipeline.environment.sail import is_sail
from fk_pipeline.tables.warehouse import Warehouse


def open_warehouse(session: SparkSession, home: str, elsewhere: Mapping[str, str] | None = None) -> Warehouse:
    """The tables under a folder or URI, some of them in folders of their own, for the engine of a session."""
    if is_sail(session):
        from fk_pipeline.tables.sail import SailWarehouse

        return SailWarehouse(session, home, elsewhere)
    return Warehouse(session, home, elsewhere)
