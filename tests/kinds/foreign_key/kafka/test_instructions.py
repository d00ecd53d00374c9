"""The instruction of a left change: the SQL of the stage and its Python twin in the reference."""

from __future__ import annotations

from itertools import product

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.kinds.foreign_key.kafka.instructions import DELETE_KEY_NO_PROPAGATE, engine_messages, instruction_sql


@pytest.mark.spark
def test_the_sql_and_the_reference_agree_on_every_kind_of_change(spark: SparkSession) -> None:
    checked = 0
    for inner, seen, old, exists, new in product(
        (True, False), (True, False), (None, b"a"), (True, False), (None, b"a", b"b")
    ):
        if (old is not None and not seen) or (new is not None and not exists):
            continue
        sql = instruction_sql(
            seen=str(seen).lower(),
            deleted=str(not exists).lower(),
            fk_null=str(new is None).lower(),
            had_fk=str(old is not None).lower(),
            inner=inner,
        )
        (row,) = spark.sql(f"SELECT {sql} AS instruction").collect()
        asked = [i for _, i in engine_messages(inner, seen, old, exists, new) if i != DELETE_KEY_NO_PROPAGATE]
        assert asked == ([row["instruction"]] if row["instruction"] else [])
        checked += 1
    assert checked == 24
