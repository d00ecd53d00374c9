"""The checks of `doctor` for paths in object stores: packages, JARs, access, and concurrent writers.

Delta commits by creating a file that must not exist yet. Spark's log store for `s3a://` checks whether it exists and
then writes it, under a lock of its own process: this is safe for the writers of one driver. delta-rs, which writes the
ledger, and the lease let S3 itself refuse the second writer, which needs a store with conditional puts.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fk_pipeline.environment import jars
from fk_pipeline.environment.s3_jars import S3_FETCH_COMMAND, S3_JARS
from fk_pipeline.environment.storage import Refusal, ask_s3, is_s3, scheme_of
from fk_pipeline.errors import EnvironmentNotFit, StorageError

SINGLE_DRIVER = "io.delta.storage.S3SingleDriverLogStore"
"""The log store that Delta uses for S3 by default."""

MANY_DRIVERS = "io.delta.storage.S3DynamoDBLogStore"
"""The log store in io.delta:delta-storage-s3-dynamodb: a row in DynamoDB decides which writer commits."""

_INSTALL = "Run `pip install 'fk-pipeline[s3]'`."


def log_store(scheme: str, setting: Callable[[str], str | None]) -> str:
    """Returns the class by which Spark commits to the tables of a scheme of S3.

    Args:
        scheme: `s3a` or `s3`.
        setting: returns a setting of the session by its name; None or empty if it is not set.
    """
    return setting(f"spark.delta.logStore.{scheme}.impl") or setting("spark.delta.logStore.class") or SINGLE_DRIVER


def is_for_one_driver(store: str) -> bool:
    """Returns whether a log store is Delta's own, which is safe for one driver at a time."""
    return store.rsplit(".", 1)[-1] == SINGLE_DRIVER.rsplit(".", 1)[-1]


@dataclass(frozen=True)
class AccessFinding:
    """The result of a check; the fields are those of `doctor.Check`."""

    name: str
    ok: bool
    actual: str
    expected: str
    fix: str = ""


def findings(warehouse: str, landing: Sequence[str], spark: Mapping[str, str], *, remote: bool) -> list[AccessFinding]:
    """Returns the results of the checks for paths in object stores; none if all paths are on disks.

    Args:
        warehouse: a folder or URI.
        landing: folders, globs or URIs.
        spark: the settings of the session, by Spark name.
        remote: whether sessions are those of a Spark Connect server.
    """
    schemes = {scheme for path in (warehouse, *landing) if (scheme := scheme_of(path)) not in ("", "file")}
    results = [_untested(scheme) for scheme in sorted(schemes - {"s3", "s3a"})]
    if schemes & {"s3", "s3a"}:
        results += [_scheme([warehouse, *landing]), _packages(), _jars(spark, remote=remote)]
    if is_s3(warehouse):
        results += [_log_store(scheme_of(warehouse), spark, remote=remote), _conditional_puts(warehouse)]
    return results


def _untested(scheme: str) -> AccessFinding:
    return AccessFinding(
        f"Paths in {scheme}://",
        ok=True,
        actual="no test covers this store, and there is no lease in it",
        expected="a local disk or s3a://",
        fix="Let one scheduler do all runs of the pipeline, and try run, verify, rebuild and compact on data that you "
        "can lose.",
    )


def _scheme(paths: Sequence[str]) -> AccessFinding:
    wrong = [path for path in paths if scheme_of(path) == "s3"]
    fix = "Write s3a:// in the pipeline file: Spark's Hadoop client has no s3://."
    return AccessFinding("S3 paths", not wrong, ", ".join(wrong) or "s3a://", "s3a://", fix if wrong else "")


def _packages() -> AccessFinding:
    fsspec = importlib.metadata.version("fsspec")
    expected = f"s3fs {fsspec}, the version of fsspec"
    if importlib.util.find_spec("s3fs") is None:
        return AccessFinding("S3 packages", ok=False, actual="s3fs is not installed", expected=expected, fix=_INSTALL)
    version = importlib.metadata.version("s3fs")
    ok = version == fsspec
    return AccessFinding("S3 packages", ok, f"s3fs {version}", expected, "" if ok else _INSTALL)


def _jars(spark: Mapping[str, str], *, remote: bool) -> AccessFinding:
    what, expected = "S3 JARs", f"hadoop-aws and the S3 modules of the AWS SDK: {len(S3_JARS)} JARs"
    if remote:
        return AccessFinding(
            what, ok=True, actual="not needed here: the Spark Connect server has its own", expected=expected
        )
    own = {name: value for name in jars.BRINGING if (value := spark.get(name))}
    if own:
        ok = any("hadoop-aws" in value for value in own.values())
        state = f"{' and '.join(own)} under settings.spark, {'with' if ok else 'without'} hadoop-aws"
        fix = "" if ok else f"Name hadoop-aws there too, or take {' and '.join(own)} out and run `{S3_FETCH_COMMAND}`."
        return AccessFinding(what, ok, state, expected, fix)
    wrong = jars.wrong_jars(jars=S3_JARS)
    state = f"in {jars.jar_folder()}: {wrong[0]}, and {len(wrong) - 1} more" if wrong else str(jars.jar_folder())
    return AccessFinding(what, not wrong, state, expected, f"Run `{S3_FETCH_COMMAND}`." if wrong else "")


def _log_store(scheme: str, spark: Mapping[str, str], *, remote: bool) -> AccessFinding:
    what, expected = "S3 writers", "a log store that is safe for those who write at the same time"
    if remote:
        fix = f"See which log store the Spark Connect server has; with {SINGLE_DRIVER} let it be the only writer."
        return AccessFinding(
            what, ok=True, actual="unknown: the Spark Connect server's own", expected=expected, fix=fix
        )
    store = log_store(scheme, spark.get)
    if store == MANY_DRIVERS:
        return AccessFinding(
            what, ok=True, actual=f"{store}: several drivers may commit at the same time", expected=expected
        )
    if is_for_one_driver(store):
        return AccessFinding(
            what,
            ok=True,
            actual=f"{store}: safe for one driver at a time; runs of fk-pipeline take turns by the lease",
            expected=expected,
            fix="Let nothing but fk-pipeline write these tables; where something else must, give both "
            f"spark.delta.logStore.{scheme}.impl: {MANY_DRIVERS}.",
        )
    fix = f"Take spark.delta.logStore settings out, or set spark.delta.logStore.{scheme}.impl to {MANY_DRIVERS}."
    return AccessFinding(what, ok=False, actual=f"{store}: not known to be safe on S3", expected=expected, fix=fix)


def _conditional_puts(warehouse: str) -> AccessFinding:
    """Checks that the store refuses a conditional put: writes a new object twice if absent, and removes it."""
    what, expected = "S3 conditional puts", "the second put with If-None-Match is refused"
    probe = f"{warehouse.rstrip('/')}/leases/doctor-{uuid.uuid4().hex}"
    try:
        answers = [ask_s3("put_object", probe, Body=b"fk-pipeline doctor", IfNoneMatch="*") for _ in range(2)]
        ask_s3("delete_object", probe)
    except (EnvironmentNotFit, StorageError) as error:
        fix = _INSTALL if isinstance(error, EnvironmentNotFit) else (
            "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, and AWS_ENDPOINT_URL for another server than "
            "Amazon's, to what this bucket needs."
        )  # fmt: skip
        return AccessFinding(what, ok=False, actual=error.what, expected=expected, fix=fix)
    first, second = answers
    if isinstance(first, Refusal):
        fix = f"Make {warehouse} a place that these credentials may read and write."
        return AccessFinding(what, ok=False, actual=f"nothing can be written: {first.code}", expected=expected, fix=fix)
    if not isinstance(second, Refusal):
        fix = "Use a store that knows conditional puts: with this one two runs could hold one lease, and lose entries."
        return AccessFinding(what, ok=False, actual="both puts were accepted", expected=expected, fix=fix)
    return AccessFinding(what, ok=True, actual=f"refused: {second.code}", expected=expected)
