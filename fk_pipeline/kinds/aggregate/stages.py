"""The stage of the table of an aggregate; that of its result is a block (`blocks.refresh.stages`)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.state import by_versions, state_effects
from fk_pipeline.effects import Effect, Reader
from fk_pipeline.kinds.aggregate import tables as k
from fk_pipeline.kinds.aggregate.kind import AT, PANE, AggregateStage
from fk_pipeline.kinds.aggregate.windows import windows_of


def table(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches to the table."""
    spec, keys = read.spec, k.input_key(read.spec)
    payload = [*k.placing_columns(spec), *(column.name for column in k.payload_columns(spec))]
    windows = windows_of(spec, dict(read.table_of(AggregateStage.TABLE).columns))

    def placed(log: DataFrame) -> DataFrame:
        return log if windows is None else log.withColumn(PANE, F.expr(windows.pane(AT)))

    make = by_versions(keys, payload, placed=placed)
    same = {key: key for key in keys}
    return state_effects(read, AggregateStage.CHANGELOG, "changelog", AggregateStage.TABLE, same, make)
