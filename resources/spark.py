"""The Spark session of a Dagster run, on dagster-pyspark: local, cluster or Spark Connect, as the environment says."""

from __future__ import annotations

from typing import Any

from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from fk_pipeline.session import prepare, start_session
from fk_pipeline.spec import Settings


class FkSparkResource(LazyPySparkResource):
    """Starts a session when the first stage needs one, with the JARs and settings of `fk_pipeline.session`.

    `spark_config` holds further Spark settings by name; `SPARK_MASTER` and `FK_SPARK_REMOTE` choose where it runs.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - the field of the parent, with a default
    driver_memory: str | None = None
    shuffle_partitions: int | None = None

    def _init_session(self) -> None:
        if self._spark_session is None:
            flat = {name: str(value) for name, value in self.spark_config.items()}
            settings = Settings(
                spark=flat, driver_memory=self.driver_memory, shuffle_partitions=self.shuffle_partitions
            )
            self._spark_session = start_session(settings)

    def use(self, session: SparkSession) -> FkSparkResource:
        """Takes a session that already runs; it is never stopped."""
        self._spark_session = prepare(session)
        return self
