"""The Spark session of a Dagster run, on dagster-pyspark: the environment selects local, cluster or Spark Connect."""

from __future__ import annotations

import os
from typing import Any

from dagster import InitResourceContext
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from fk_pipeline.environment.spark_life import is_gone
from fk_pipeline.resources.worker import mark
from fk_pipeline.session import prepare, start_session
from fk_pipeline.spec import Settings


class FkSparkResource(LazyPySparkResource):
    """Starts a session when the first stage needs one, with the JARs and settings of `fk_pipeline.session`.

    Attributes:
        spark_config: further Spark settings by name.
        driver_memory: the heap size of a local driver.
        shuffle_partitions: the number of shuffle partitions of a local session.
        master: the Spark master; default: SPARK_MASTER, else this process.
        remote: the URL of a Spark Connect server, which wins over `master`; default: FK_SPARK_REMOTE.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - a field of the parent, with a default
    driver_memory: str | None = None
    shuffle_partitions: int | None = None
    master: str | None = None
    remote: str | None = None

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Records the process of the run in a tag of the run."""
        if context.instance is not None and context.run is not None:
            mark(context.instance, context.run)

    def _init_session(self) -> None:
        if self._spark_session is None or is_gone(self._spark_session):
            flat = {name: str(value) for name, value in self.spark_config.items()}
            settings = Settings(
                spark=flat, driver_memory=self.driver_memory, shuffle_partitions=self.shuffle_partitions
            )
            chosen = {"SPARK_MASTER": self.master, "FK_SPARK_REMOTE": self.remote}
            given = {name: value for name, value in chosen.items() if value}
            self._spark_session = start_session(settings, os.environ | given)

    def use(self, session: SparkSession) -> FkSparkResource:
        """Uses a session that already runs, and returns this resource; the session is never stopped."""
        self._spark_session = prepare(session)
        return self
