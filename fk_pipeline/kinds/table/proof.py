"""The proof of a table: the last writer of every key in SQL, without the code of the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.kinds.table.kind import VERSIONS, TableStage
from fk_pipeline.kinds.table.spec import TableSpec
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s
from fk_pipeline.verify.last_writers import current_rows


def expected(tables: Mapping[str, DataFrame], spec: TableSpec, _isolating: bool = False) -> DataFrame:
    """Returns the rows of the last writers of the changelog."""
    return current_rows(tables[TableStage.CHANGELOG], spec.input)


def pending(tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], spec: TableSpec) -> list[DataFrame]:
    """Returns the keys that due work may still change: of rows of due batches; all, if one of them has a truncate."""
    batches = sorted({int(batch) for found in due.values() for batch in found})
    keys = [column.quoted for column in spec.input.key_columns]
    log, versions = tables[TableStage.CHANGELOG], tables[VERSIONS]
    own = log.where(F.col(s.BATCH).isin(batches))
    concerned = F.col(s.OWNER).isin(batches) | F.col(s.APPLIED_IN).isin(batches)
    every = tables[TableStage.TABLE].select(*keys).unionByName(log.where(f"{keys[0]} IS NOT NULL").select(*keys))
    parts = own.where(f"{keys[0]} IS NOT NULL").select(*keys).unionByName(versions.where(concerned).select(*keys))
    truncated = own.where(f"{keys[0]} IS NULL").select().limit(1)
    return [parts.unionByName(every.crossJoin(F.broadcast(truncated)).select(*map(quote, every.columns))).distinct()]


def counted(
    tables: Mapping[str, DataFrame], spec: TableSpec, _isolating: bool, _chosen: Callable[[Iterable[str]], str]
) -> dict[str, DataFrame]:
    """Returns, per number of a `VerifyReport` that is about the input, a frame with as many rows: `left_rows`."""
    return {"left_rows": current_rows(tables[TableStage.CHANGELOG], spec.input)}
