"""The Spark session of the command and of Dagster: local with the JARs of the set-up, a cluster, or Spark Connect.

A session that the caller already runs is used as it is and never stopped; it must have the Delta extension.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from pyspark.sql import SparkSession

from fk_pipeline.environment.class_archive import ARCHIVE_OPTIONS, archive_options
from fk_pipeline.environment.jars import BRINGING, bring
from fk_pipeline.environment.java_names import remember_names
from fk_pipeline.environment.s3_jars import S3_FETCH_COMMAND, s3_jar_paths
from fk_pipeline.environment.scratch import scratch_folder
from fk_pipeline.environment.spark_address import check_master, check_remote, remote_of
from fk_pipeline.environment.spark_life import forget_dead, forget_session, is_classic, is_gone, is_lost, leave_connect
from fk_pipeline.environment.spark_token import TOKEN_SETTING, with_token
from fk_pipeline.environment.storage import S3Place, is_s3
from fk_pipeline.environment.warm_spark import choose, warm_sparks
from fk_pipeline.errors import EnvironmentNotFit, escaped
from fk_pipeline.spec import Settings

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SEMANTICS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.datetime.java8API.enabled": "true",
}
"""Settings on which the results depend; they are set on every session, also on one that was running before.

The last one is for conditions that Parquet evaluates: the older classes of Java have no days from 5 to 14 October 1582.
"""

_OF_JAVA = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID", "AZURE_TENANT_ID")
"""Environment variables by which a driver finds settings, or who it is in other stores than S3."""

_JAVA_OPTIONS, _CLASS_PATH = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"
"""Settings of the Java process of a driver."""

RETRIES = 5
"""Number of retries of a Spark Connect client: after 0.05 s, then four times as long each time, 17 s in all."""

COMPILED = {
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.codegen.hugeMethodLimit": "8000",
}
"""Settings of compiled plans. Spark keeps so many classes: a batch compiles up to 350, the next one only 40 others (ADR
0005). And it divides a method of more than so many bytes: Java would interpret it for ever (ADR 0059).
"""

LOCAL = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # the text of each plan for the pages of Spark, which are off
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.buffer.pageSize": "4m",  # the initial size of every sort and hash table: otherwise 64 MB for ten rows
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "200",
}


def session_conf(settings: Settings | None = None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns every setting of a session that the engine starts, by Spark name; the file's `settings.spark` wins.

    The Delta JARs are fetched if they are missing, unless the settings name others; the JARs for S3 are used if they
    are present. The endpoint and region of S3 in the environment are passed to Spark. A local session spills to a
    private folder.

    Raises:
        EnvironmentNotFit: the Delta JARs are missing and could not be fetched, or there is no folder to spill to.
    """
    private = _private(environment) if _master(environment).startswith("local") else {}
    return private | shared_conf(settings, environment)


def with_class_archive(conf: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a session that is about to start here, with Spark's classes from an archive.

    Not if Java's options in the pipeline file name an archive, or the driver is elsewhere.
    """
    own = conf.get(_JAVA_OPTIONS, "")
    if not _is_one_process(conf["spark.master"]) or any(option in own for option in ARCHIVE_OPTIONS):
        return dict(conf)
    return {**conf, _JAVA_OPTIONS: f"{own} {archive_options(conf.get(_CLASS_PATH, ''))}".strip()}


def shared_conf(settings: Settings | None = None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the settings of `session_conf` that another process starts Spark with as well: all but its folder.

    Raises:
        EnvironmentNotFit: the Delta JARs are missing and could not be fetched.
    """
    settings = settings or Settings()
    master = _master(environment)
    conf = {"spark.app.name": "fk-pipeline", "spark.master": master, **DELTA, **SEMANTICS, **COMPILED}
    if master.startswith("local"):
        cores = os.cpu_count() or 2
        conf |= LOCAL | {"spark.sql.shuffle.partitions": str(settings.shuffle_partitions or cores)}
        logging = files("fk_pipeline") / "log4j2.properties"
        conf[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile=file:{logging} -XX:+UseSerialGC"
        if settings.driver_memory:
            conf["spark.driver.memory"] = settings.driver_memory
    conf |= S3Place.of(environment).for_spark() | settings.spark
    if _is_one_process(conf["spark.master"]):  # its ports take nobody else: Spark makes a secret of its own
        conf.setdefault("spark.authenticate", "true")
    if not any(name in conf for name in BRINGING):
        jars = [*map(str, bring()), *s3_jar_paths()]
        if _is_one_process(master):
            conf[_CLASS_PATH] = os.pathsep.join(jars)
        else:
            conf["spark.jars"] = ",".join(jars)
    return conf


def comparable_conf(settings: Settings | None = None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns what must be the same in a warm Spark that a command uses: its settings, and who it is in S3.

    Raises:
        EnvironmentNotFit: the Delta JARs are missing and could not be fetched.
    """
    conf = shared_conf(settings, environment)
    conf.pop(TOKEN_SETTING, None)
    if s3_jar_paths() or any(name in (settings or Settings()).spark for name in BRINGING):
        keys = sorted((name, value) for name, value in environment.items() if name.startswith("AWS_"))
        conf["AWS_* of the environment"] = str(keys)
    return conf | {f"{name} of the environment": environment.get(name, "") for name in _OF_JAVA}


def _master(environment: Mapping[str, str]) -> str:
    return environment.get("SPARK_MASTER", "local[*]")


def _is_one_process(master: str) -> bool:
    return master.startswith("local") and not master.startswith("local-cluster")


def _private(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with the folder to which a local session spills, which no other user may enter.

    Returns none if the environment names a folder.

    Raises:
        EnvironmentNotFit: the folder cannot be created.
    """
    if environment.get("SPARK_LOCAL_DIRS"):
        return {}
    try:
        folder = scratch_folder()
    except OSError as error:
        raise EnvironmentNotFit(
            f"there is no room for what Spark spills to disk: {error}",
            where=tempfile.gettempdir(),
            fix="set TMPDIR to a folder that you may write, with room for some gigabytes",
        ) from None
    return {"spark.local.dir": str(folder), "spark.hadoop.hadoop.tmp.dir": f"{folder}/hadoop"}


def require_s3(paths: Iterable[str], settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
    """Checks that a session started here could read the paths in S3.

    Raises:
        EnvironmentNotFit: a path is in S3, and neither the settings nor the set-up provide the JARs for it.
    """
    in_s3 = next((path for path in paths if is_s3(path)), None)
    remote = remote_of(environment) or _running() is not None
    if in_s3 is None or remote or any(name in settings.spark for name in BRINGING) or s3_jar_paths():
        return
    raise EnvironmentNotFit(
        "the JARs with which Spark reaches S3 are not there", where=in_s3, fix=f"run {S3_FETCH_COMMAND}"
    )


def _tell_on_stderr(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{escaped(text)}\n")
    sys.stderr.flush()


def start_session(
    settings: Settings | None = None,
    environment: Mapping[str, str] = os.environ,
    tell: Callable[[str], None] = _tell_on_stderr,
) -> SparkSession:
    """Returns the running session, or a new one.

    Args:
        settings: the Spark settings of the pipelines.
        environment: the environment variables.
        tell: called with a line if there is a warm Spark of the user: whether it is used, and why not.

    Raises:
        EnvironmentNotFit: Java or the Delta JARs are missing, the running session has no Delta, or there is no Spark at
            the address in the environment.
    """
    running = _running()
    if running is not None:
        try:
            return prepare(running)
        except Exception as error:
            if not is_lost(error):
                raise
            forget_session(running)
    remote = remote_of(environment)
    if remote:
        check_remote(remote)
        return _connected(remote, {})
    if not is_classic():
        warm = choose(environment, comparable_conf(settings, environment), warm_sparks())
        if warm.notice:
            tell(warm.notice)
        if warm.address:
            try:
                return _connected(warm.address, warm.settings)
            except Exception as error:
                if not is_lost(error):
                    raise
                tell(f"the warm Spark at {warm.address} has ended meanwhile; Spark starts in this process.")
    return _started(settings, environment)


def _connected(remote: str, settings: Mapping[str, str]) -> SparkSession:
    """Returns a session of a Spark Connect server that responds, with settings of its own."""
    builder: Any = SparkSession.builder
    session = _with_few_retries(builder.remote(with_token(remote)).getOrCreate())
    for name, value in settings.items():
        session.conf.set(name, value)
    return prepare(session)


def _started(settings: Settings | None, environment: Mapping[str, str]) -> SparkSession:
    """Returns a session whose driver is in this process."""
    conf = session_conf(settings, environment)
    check_master(conf["spark.master"])
    leave_connect()
    builder: Any = SparkSession.builder
    for name, value in with_class_archive(conf).items():
        builder = builder.config(name, value)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:  # the gateway raises half a dozen types, all with the same cause
        raise EnvironmentNotFit(
            f"Spark did not start: {str(error).strip().splitlines()[0]}",
            fix="run 'fk-pipeline doctor'; Spark needs a JDK 17 or newer in JAVA_HOME or on the PATH",
        ) from error
    return prepare(session)


def _running() -> SparkSession | None:
    """Returns the session of this process, unless its Java process or its server has ended."""
    forget_dead()
    session = SparkSession.getActiveSession()
    if session is not None and is_gone(session):
        forget_session(session)
        return None
    return session


def _with_few_retries(session: SparkSession) -> SparkSession:
    """Makes the client of a Spark Connect session give up within half a minute; its own limit is ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
    return session


def prepare(session: SparkSession) -> SparkSession:
    """Sets the settings on which results depend, and returns the session.

    Raises:
        EnvironmentNotFit: the session has no Delta extension.
    """
    remember_names(session)
    for name, value in SEMANTICS.items():
        session.conf.set(name, value)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they print as JSON what is raised anyway
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    extensions = session.conf.get("spark.sql.extensions", "") or ""
    if "DeltaSparkSessionExtension" not in extensions:
        raise EnvironmentNotFit(
            "the running Spark session has no Delta: spark.sql.extensions lacks DeltaSparkSessionExtension",
            fix="start it with " + " and ".join(f"{k}={v}" for k, v in DELTA.items()),
        )
    return session
