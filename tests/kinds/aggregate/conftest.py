"""The pipeline that the tests of aggregates begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.store.sizes import MEASURED
from tests.kinds.aggregate.grouped import Grouped


@pytest.fixture
def grouped(tmp_path: Path, spark: SparkSession) -> Callable[..., Grouped]:
    return lambda sizes=MEASURED, **parts: Grouped(tmp_path, spark, sizes, **parts)
