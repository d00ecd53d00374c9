"""The proof of a table: the last writer of every key in SQL, without the code of the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.kinds.table.kind import VERSIONS, TableStage
from fk_pipeline.kinds.table.spec import TableSpec
from fk_pipeline.spec import quote
from fk_pipeline.verify.last_writers import concerned, current_rows


def expected(tables: Mapping[str, DataFrame], spec: TableSpec, _isolating: bool = False) -> DataFrame:
    """Returns the rows of the last writers of the changelog."""
    return current_rows(tables[TableStage.CHANGELOG], spec.input)


def pending(tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], spec: TableSpec) -> list[DataFrame]:
    """Returns the keys that due work may still change: of rows of due batches; all, if one of them has a truncate."""
    keys = [column.name for column in spec.input.key_columns]
    log, names = tables[TableStage.CHANGELOG], [*map(quote, keys)]
    changed, truncated = concerned(log, tables[VERSIONS], keys, due)
    every = tables[TableStage.TABLE].select(*names).unionByName(log.where(f"{names[0]} IS NOT NULL").select(*names))
    return [changed.unionByName(every.crossJoin(F.broadcast(truncated))).distinct()]


def counted(
    tables: Mapping[str, DataFrame], spec: TableSpec, _isolating: bool, _chosen: Callable[[Iterable[str]], str]
) -> dict[str, DataFrame]:
    """Returns, per number of a `VerifyReport` that is about the input, a frame with as many rows: `left_rows`."""
    return {"left_rows": current_rows(tables[TableStage.CHANGELOG], spec.input)}
