"""The pipeline that the tests of windowed joins begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.store.sizes import MEASURED
from tests.kinds.window.near import Near


@pytest.fixture
def near(tmp_path: Path, spark: SparkSession) -> Callable[..., Near]:
    return lambda sizes=MEASURED, **parts: Near(tmp_path, spark, sizes, **parts)
