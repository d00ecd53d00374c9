"""The result of a pipeline for assets downstream: current, or as it was after a batch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagster import ConfigurableResource
from pydantic import PrivateAttr
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.errors import LeftToSpark, StateError
from fk_pipeline.identity import BatchId
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.session import prepare
from fk_pipeline.spec import load_spec, quote
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.rows_in_process import InProcessTable, Relation, RowRequest

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class FkResult(ConfigurableResource[Any]):
    """Reads the columns of `select` of the result of a pipeline.

    With a batch, its number or the key of its partition, the result is as the last run of this batch left it, as far
    back as `retention_hours`; without one it is the current one. Spark starts only where the process cannot read it.

    Attributes:
        pipeline: the pipeline file.
    """

    pipeline: str
    _session: SparkSession | None = PrivateAttr(default=None)

    def use(self, session: SparkSession) -> FkResult:
        """Uses a session that already runs where Spark is needed, and returns this resource."""
        self._session = prepare(session)
        return self

    def spark(self, batch: int | str | None = None) -> DataFrame:
        """Returns the rows as a DataFrame of Spark.

        Raises:
            StateError: the batch has not run, or nothing was ever run.
        """
        opened = self._opened()
        name = opened.spec.definition.result.name
        columns = [quote(output.name) for output in opened.spec.outputs]
        if batch is None:
            return opened.table(name).select(*columns)
        read = opened.session.read.format("delta").option("versionAsOf", _version(opened, _id(batch)))
        return read.load(f"{opened.spec.home}/{name}").select(*columns)

    def arrow(self, batch: int | str | None = None) -> pa.Table:
        """Returns the rows as a table of Arrow, in no order; Spark reads them if this process cannot.

        Raises:
            StateError: as with `spark`.
        """
        opened = self._opened()
        try:
            return _local_relation(opened, batch).read(RowRequest([output.name for output in opened.spec.outputs]))
        except LeftToSpark:
            return self.spark(batch).toArrow()

    def pandas(self, batch: int | str | None = None) -> pd.DataFrame:
        """Returns the rows as a DataFrame of pandas, as `arrow` does."""
        return self.arrow(batch).to_pandas()

    def polars(self, batch: int | str | None = None) -> Any:
        """Returns the rows as a DataFrame of Polars, which the project installs, as `arrow` does."""
        return import_module("polars").from_arrow(self.arrow(batch))

    def _opened(self) -> Pipeline:
        return Pipeline(load_spec(self.pipeline), self._session)


def _id(batch: int | str) -> BatchId:
    return BatchId(batch) if isinstance(batch, int) else BatchId.from_key(batch)


def _local_relation(opened: Pipeline, batch: int | str | None) -> Relation:
    """Returns the rows of the result as this process reads them.

    Raises:
        LeftToSpark: only Spark can read them.
        StateError: the batch has not run, or nothing was ever run.
    """
    name = opened.spec.definition.result.name
    if batch is None:
        return opened.relation(name)
    version = _version(opened, _id(batch))
    table = InProcessTable.of(DeltaLogs(version), f"{opened.spec.home}/{name}", opened.sizes)
    if table is None:
        raise LeftToSpark("there is no table")
    return table


def _version(opened: Pipeline, batch: BatchId) -> int:
    """Returns the version of the result after the last run for a batch: the one that it wrote, or found.

    Raises:
        StateError: it has not run, or the tables do not fit the pipeline file.
    """
    spec = opened.spec
    opened.check_fingerprints()
    opened.refuse_unfinished()
    opened.refuse_never_run()
    name, last = spec.definition.result.name, opened.ledger().state(spec.definition.result_stage, batch).last
    versions = {} if last is None else last.versions
    version = versions.get(f"{name} written", versions.get(name))
    if version is None:
        raise StateError(
            f"there is no result after batch {batch}: it has not run",
            where=spec.home,
            fix=f"fk-pipeline run {spec.file} --batches {batch}",
        )
    return version
