"""The join that tests of checks look at."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.pipeline import Pipeline
from tests.expectations.world import make


@pytest.fixture(scope="package")
def whole(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Pipeline:
    """An inner join with its history done batch by batch; nobody changes it."""
    pipeline = make(tmp_path_factory.mktemp("whole"), spark)
    pipeline.run("0,1,2")
    return pipeline
