"""A short run of mutated lines and files of every format; `make fuzz-formats` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cdc.fuzz import FORMATS, fuzz

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_nothing_crashes_and_nothing_is_lost(spark: SparkSession, tmp_path: Path, name: str) -> None:
    found = fuzz(spark, tmp_path, name, records=300, batches=2, seed=9)
    assert found["read"] >= 250
    assert found["quarantined"] > 20
    assert found["inserted"] > 20
