"""What tests of tables have in common: their plans are interpreted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.store.settings import FEW_PARTITIONS, INTERPRETED, settings


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Interprets plans, as stages do for few rows: compiling them takes longer than the tests."""
    with settings(spark, FEW_PARTITIONS | INTERPRETED):
        yield
