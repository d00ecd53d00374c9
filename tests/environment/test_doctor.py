"""`fk-pipeline doctor`: every failed line names what was found and carries its fix."""

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fk_pipeline
from fk_pipeline.environment import doctor, jars, object_stores, spark_address
from fk_pipeline.environment.doctor import Check, check_environment
from fk_pipeline.environment.s3_jars import S3_JARS
from fk_pipeline.environment.storage import filesystem

ROOT = Path(fk_pipeline.__file__).parents[1]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """No setting of the caller reaches a test."""
    for name in ("JAVA_HOME", "DAGSTER_HOME", "SPARK_MASTER", "FK_SPARK_REMOTE", "FK_JARS_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def java_home(tmp_path, monkeypatch):
    """Makes JAVA_HOME a folder whose java prints a text, as a JDK does, on stderr."""

    def make(text: str) -> Path:
        java = tmp_path / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
        return java

    return make


def assert_failed(check: Check, found: str, fix: str) -> None:
    assert not check.ok
    assert found in check.actual
    assert fix in check.fix
    assert check.fix.endswith(".")


@pytest.fixture
def s3_jars(tmp_path, monkeypatch) -> None:
    """The JARs for S3 are there: small ones stand for them."""
    small = tuple(dataclasses.replace(jar, sha256=hashlib.sha256(b"small").hexdigest()) for jar in S3_JARS)
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path / "jars"))
    (tmp_path / "jars").mkdir()
    for jar in small:
        (tmp_path / "jars" / jar.file_name).write_bytes(b"small")
    monkeypatch.setattr(object_stores, "S3_JARS", small)


def in_s3(warehouse: str) -> dict[str, Check]:
    """The checks of a pipeline in S3, by name."""
    return {check.name: check for check in doctor.check_storage(warehouse, [f"{warehouse}/landing"], {})}


def test_paths_on_disks_ask_for_no_checks_of_object_stores():
    assert doctor.check_storage("/data/warehouse", ["/data/landing/*.jsonl", "file:///data/landing"], {}) == []


def test_a_pipeline_in_s3_that_lacks_nothing_is_told_who_may_write(s3, s3_jars):
    checks = in_s3(f"{s3}/warehouse")
    assert {name: check.verdict for name, check in checks.items()} == {
        "S3 paths": "ok", "S3 packages": "ok", "S3 JARs": "ok", "S3 writers": "WARNING", "S3 conditional puts": "ok",
    }  # fmt: skip
    writers = checks["S3 writers"]
    assert "S3SingleDriverLogStore: safe for one driver at a time" in writers.actual
    assert "spark.delta.logStore.s3a.impl: io.delta.storage.S3DynamoDBLogStore" in writers.fix
    fs, root = filesystem(s3)
    assert fs.find(root) == []


def test_with_a_log_store_for_many_drivers_several_may_write(s3):
    many = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}
    found = {check.name: check for check in doctor.check_storage(f"{s3}/warehouse", [], many)}
    assert found["S3 writers"].verdict == "ok"
    assert "several drivers may commit" in found["S3 writers"].actual


def test_a_log_store_that_is_made_for_another_store_is_found(s3):
    wrong = {"spark.delta.logStore.class": "org.apache.spark.sql.delta.storage.HDFSLogStore"}
    found = {check.name: check for check in doctor.check_storage(f"{s3}/warehouse", [], wrong)}
    assert_failed(found["S3 writers"], "HDFSLogStore: not known to be safe on S3", "S3DynamoDBLogStore")


def test_a_store_that_does_not_know_conditional_puts_is_found(s3, monkeypatch):
    monkeypatch.setattr(object_stores, "ask_s3", lambda *_, **__: {"ETag": "accepted"})
    assert_failed(in_s3(s3)["S3 conditional puts"], "both puts were accepted", "two runs could hold one lease")


def test_a_bucket_that_is_not_there_and_a_server_that_is_not_there_are_told(s3, monkeypatch):
    assert_failed(in_s3("s3a://there-is-none")["S3 conditional puts"], "NoSuchBucket", "may read and write")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert_failed(in_s3(s3)["S3 conditional puts"], "no answer from S3", "Set AWS_ACCESS_KEY_ID")


def test_missing_jars_for_s3_are_told_with_their_command(tmp_path, monkeypatch, s3):
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path))
    fix = "Run `python -m fk_pipeline.environment.jars --s3`."
    assert_failed(in_s3(s3)["S3 JARs"], "hadoop-aws-3.5.0.jar is missing, and 34 more", fix)


@pytest.mark.parametrize(
    ("packages", "ok"), [("io.delta:delta-spark:4,org.apache.hadoop:hadoop-aws:3.5.0", True), ("io.delta:d:4", False)]
)
def test_packages_of_the_users_own_must_have_hadoop_aws(packages, ok, s3):
    found = {c.name: c for c in doctor.check_storage(s3, [], {"spark.jars.packages": packages})}["S3 JARs"]
    assert found.ok is ok
    assert ("without hadoop-aws" in found.actual) is not ok


def test_a_missing_s3fs_is_told(s3, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "s3fs" else found(name))
    assert_failed(in_s3(s3)["S3 packages"], "s3fs is not installed", "pip install 'fk-pipeline[s3]'")


def test_the_scheme_that_spark_does_not_know_is_told(s3):
    assert_failed(in_s3(s3.replace("s3a:", "s3:"))["S3 paths"], "s3://", "Write s3a://")


@pytest.mark.parametrize("uri", ["abfss://c@a.dfs.core.windows.net/w", "gs://bucket/w", "hdfs://host/w"])
def test_other_stores_are_told_to_be_untested(uri):
    [check] = doctor.check_storage(uri, [], {})
    assert check.verdict == "WARNING"
    assert check.actual == "no test covers this store, and there is no lease in it"


def test_every_check_has_one_name_and_a_fix_exactly_when_it_failed(tmp_path):
    checks = check_environment(tmp_path)
    assert len({check.name for check in checks}) == len(checks) == 15
    assert [check.name for check in checks if check.ok == bool(check.fix)] == []


def test_checking_imports_nothing_heavy():
    code = (
        "import sys; from fk_pipeline.environment.doctor import check_environment; check_environment(); "
        "print(sorted({'dagster', 'delta', 'great_expectations', 'pandas', 'pyspark', 'assets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_old_python_is_found(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 12, "final", 0))
    assert_failed(doctor.check_python(), "3.10.12", "Install Python 3.11 or newer")


def test_java_is_checked_on_a_bare_python_as_make_setup_does_before_it_installs():
    code = "from fk_pipeline.environment.doctor import check_java; check_java()"
    command = [sys._base_executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('openjdk version "21" 2023-09-19', True),
        ('openjdk version "25-ea" 2025-09-16', True),
        ('openjdk version "11.0.22" 2024-01-16', False),
        ('java version "1.8.0_392"', False),
    ],
)
def test_java_is_judged_by_its_major_version(java_home, text, ok):
    java = java_home(text)
    check = doctor.check_java()
    assert check.ok is ok
    assert check.actual == f"{text.split('version ')[1].split(' 20')[0]} at {java}"
    assert check.fix == ("" if ok else "Install a JDK 17 or newer and set JAVA_HOME to it.")


def test_a_java_that_prints_no_version_is_found(java_home):
    java_home("Unable to locate a Java Runtime.")
    assert_failed(doctor.check_java(), "names no version", "Install a JDK 17")


def test_a_java_home_without_java_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert_failed(doctor.check_java(), f"{tmp_path}/bin/java does not run", "set JAVA_HOME")


def test_no_java_at_all_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_failed(doctor.check_java(), "no java on the PATH", "Install a JDK 17 or newer and set JAVA_HOME")


def test_spark_connect_needs_neither_java_nor_jars_here(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path))
    monkeypatch.setenv("FK_SPARK_REMOTE", "sc://spark.example:15002")
    checks = [doctor.check_java(), doctor.check_jars()]
    assert [check.ok for check in checks] == [True, True]
    assert all("not needed" in check.actual for check in checks)


def test_a_cluster_still_needs_java_and_jars_for_the_driver_here(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_MASTER", "spark://cluster.example:7077")
    assert not doctor.check_java().ok
    assert "the first session fetches them" in doctor.check_jars().actual


def test_jars_that_the_first_session_will_fetch_are_no_fault_and_say_from_where_to_where(tmp_path, monkeypatch):
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("FK_MAVEN_BASE_URL", "https://me:secret@maven.example.com/repository/")
    check = doctor.check_jars()
    assert check.ok
    told = f"the first session fetches them from https://maven.example.com/repository into {tmp_path / 'new'}"
    assert told in check.actual


def test_missing_jars_that_no_session_could_write_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path / "new"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert_failed(doctor.check_jars(), f"{tmp_path} cannot be written", "Set FK_JARS_DIR to a folder of yours")


def test_the_jars_that_are_there_are_told_with_their_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path))
    contents = [b"one", b"two"]
    specs = tuple(
        dataclasses.replace(jar, sha256=hashlib.sha256(content).hexdigest())
        for jar, content in zip(jars.DELTA_JARS, contents, strict=True)
    )
    monkeypatch.setattr(jars, "DELTA_JARS", specs)
    for jar, content in zip(specs, contents, strict=True):
        (tmp_path / jar.file_name).write_bytes(content)
    assert (doctor.check_jars().ok, doctor.check_jars().actual) == (True, str(tmp_path))


def test_a_damaged_jar_that_the_next_session_fetches_is_told_and_one_that_it_cannot_write_is_a_fault(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path))
    for jar in jars.DELTA_JARS:
        (tmp_path / jar.file_name).write_bytes(b"not a JAR")
    check = doctor.check_jars()
    assert check.ok
    assert "delta-storage-4.4.0.jar has another SHA-256: the next session fetches them from " in check.actual
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert_failed(doctor.check_jars(), "delta-storage-4.4.0.jar has another SHA-256, and ", "spark.jars.packages")


def test_the_tested_versions_are_those_of_the_lock():
    pins = doctor.tested_versions()
    assert set(doctor.COMPARED_PACKAGES) <= set(pins)
    assert pins["pyspark"] == "4.2.0"  # written with an extra, pyspark[connect]
    delta_jar = next(jar for jar in jars.DELTA_JARS if jar.artifact.startswith("delta-spark"))
    minor, _, _ = pins["delta-spark"].rpartition(".")  # a patch of the package alone may come without a JAR
    assert delta_jar.version.startswith(f"{minor}.")


def test_a_version_that_does_not_fit_is_found(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "3.5.1")
    assert_failed(doctor.check_version("pyspark"), "3.5.1", "pip install 'pyspark==4.2.0'")


def test_a_version_that_fits_and_was_not_tested_is_told(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.2.1")
    check = doctor.check_version("pyspark")
    assert (check.verdict, check.actual) == ("WARNING", "4.2.1")
    assert check.expected.startswith("4.2.0 (tested), or ")
    assert "pip install 'pyspark==4.2.0'" in check.fix


def test_a_package_that_is_not_installed_is_found(monkeypatch):
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert_failed(doctor.check_version("delta-spark"), "not installed", "pip install 'delta-spark==")


def test_without_our_own_metadata_the_pins_are_unknown(monkeypatch):
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert_failed(doctor.check_version("dagster"), "fk-pipeline itself is not installed", "make setup")


def test_an_unset_dagster_home_is_allowed_with_a_note():
    check = doctor.check_dagster_home()
    assert check.ok
    assert check.actual.startswith("not set: ")


def test_a_dagster_home_that_works_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert doctor.check_dagster_home() == Check(
        "DAGSTER_HOME", ok=True, actual=str(tmp_path), expected="unset, or a folder that can be written"
    )


def test_a_relative_dagster_home_is_found(monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", "here")
    assert_failed(doctor.check_dagster_home(), "here is a relative path", f"such as {Path.cwd() / 'here'}.")


def test_a_dagster_home_that_does_not_exist_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "gone"))
    assert_failed(doctor.check_dagster_home(), "is not a folder", f"mkdir -p {tmp_path / 'gone'}")


def test_a_dagster_home_that_cannot_be_written_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere: a mode would not do
    assert_failed(doctor.check_dagster_home(), "cannot be written", f"Make {tmp_path} writable")


def test_a_warehouse_to_be_made_is_judged_by_its_nearest_existing_parent(tmp_path, monkeypatch):
    new = tmp_path / "deep" / "warehouse"
    assert doctor.check_writable(new).ok
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert_failed(doctor.check_writable(new), f"{tmp_path} cannot be written", "another `warehouse`")


def test_a_file_in_the_place_of_the_warehouse_is_found(tmp_path):
    (tmp_path / "warehouse").touch()
    assert_failed(doctor.check_writable(tmp_path / "warehouse"), "is not a folder", "another `warehouse`")


def test_a_warehouse_in_an_object_store_is_left_to_spark(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    for check in (doctor.check_writable("s3a://bucket/fk"), doctor.check_disk("s3a://bucket/fk")):
        assert check.ok
        assert check.actual == "s3a://bucket/fk: a URI, not checked here"


def test_a_file_uri_is_a_folder_like_any_other(tmp_path):
    assert doctor.check_writable(tmp_path.as_uri()).actual == str(tmp_path)


def test_a_full_disk_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=300 * 1024**2))
    assert_failed(doctor.check_disk(tmp_path / "warehouse"), f"0.3 GiB free at {tmp_path}", "Free space on the disk")


def test_little_memory_is_found(monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**18}.get)
    assert_failed(doctor.check_memory(), "1.0 GiB", "FK_SPARK_REMOTE")


def test_the_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FK_SPARK_REMOTE", raising=False)
    assert doctor.check_engine().actual.startswith("Spark 4.")
    monkeypatch.setenv("FK_SPARK_REMOTE", "sc://spark:15002/;token=secret")
    monkeypatch.setattr(spark_address, "check_remote", lambda _: "4.2.0")
    assert doctor.check_engine().actual == "a Spark Connect server at sc://spark:15002/, Spark 4.2.0"
