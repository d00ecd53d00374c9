"""The checks of `fk-pipeline doctor`: whether this machine can run a pipeline.

Nothing heavy is imported, except the client of a Spark Connect server if one is configured, and no Spark is started, so
that the checks are quick and also work on a broken installation.
The tested versions are those of `requirements.lock`, which the package contains; its metadata has the other versions
that fit.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fk_pipeline.environment import class_archive, jars, spark_address
from fk_pipeline.environment.object_stores import findings
from fk_pipeline.environment.refusals import refusal
from fk_pipeline.environment.s3_jars import s3_jar_paths
from fk_pipeline.errors import EnvironmentNotFit, StorageError

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
COMPARED_PACKAGES = ("dagster", "dagster-pyspark", "pyspark", "delta-spark", "great-expectations", "deltalake")
_GIB = 1024**3
_LEAST_DISK = 1 * _GIB
_LEAST_MEMORY = 3 * _GIB  # a JVM with a heap of 1 GiB, its Python, and Dagster


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report; `fix` is empty if there is no fault and no warning."""

    name: str
    ok: bool
    actual: str
    expected: str
    fix: str = ""

    @property
    def verdict(self) -> str:
        """The verdict: `ok`, `WARNING` (it works if the user follows the fix) or `FAILED`."""
        return "FAILED" if not self.ok else "WARNING" if self.fix else "ok"


def check_environment(
    pipeline_folder: Path | None = None,
    warehouse: Path | str | None = None,
    landing: Sequence[str] = (),
    spark: Mapping[str, str] | None = None,
) -> list[Check]:
    """Returns every check, also the successful ones, in the best order for fixing them.

    Args:
        pipeline_folder: the folder from which Dagster will be started; default: the working directory.
        warehouse: the folder or URI that will be written; default: `warehouse` in that folder.
        landing: the folders, globs or URIs that will be read.
        spark: the settings of the session in the pipeline file.
    """
    folder = pipeline_folder or Path.cwd()
    store = warehouse or folder / "warehouse"
    return [
        check_python(),
        check_engine(),
        check_java(),
        check_jars(),
        check_classes(),
        *(check_version(package) for package in COMPARED_PACKAGES),
        check_dagster_home(),
        check_writable(store),
        check_disk(store),
        check_memory(),
        *check_storage(str(store), landing, spark or {}),
    ]


def remote_session() -> str | None:
    """Returns the Spark Connect URL that sessions will use; None without one. With it, no JVM starts on this machine.

    With SPARK_MASTER, the driver still runs here, on this machine's Java, and sends the JARs to the cluster.
    """
    return spark_address.remote_of(os.environ)


def check_python() -> Check:
    """Checks that this interpreter is Python 3.11 or newer."""
    ok = sys.version_info[:2] >= OLDEST_PYTHON
    fix = "Install Python 3.11 or newer, and fk-pipeline into an environment of it."
    return Check("Python", ok, ".".join(map(str, sys.version_info[:3])), "3.11 or newer", "" if ok else fix)


def check_engine() -> Check:
    """Checks the engine and its version: Spark in this process or on a cluster, or a Spark Connect server.

    A Spark Connect server, or the master of a standalone cluster, must respond, so that a session would start.
    """
    remote, master = remote_session(), os.environ.get("SPARK_MASTER")
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        version = "that is not installed"
    try:
        if remote:
            engine = f"a Spark Connect server at {remote.split(';')[0]}, Spark {spark_address.check_remote(remote)}"
        elif master:
            spark_address.check_master(master)
            engine = f"Spark {version}, its driver in this process, on {master}"
        else:
            engine = f"Spark {version}, in this process{_warm()}"
    except EnvironmentNotFit as error:
        fix = f"{error.fix[0].upper()}{error.fix[1:]}."
        return Check("Engine", ok=False, actual=f"{error.where}: {error.what}", expected="Spark", fix=fix)
    return Check("Engine", ok=True, actual=engine, expected="Spark")


def _warm() -> str:
    """Returns the words about a warm Spark of the user; none if there is none, or if it is not looked for."""
    from fk_pipeline.environment.warm_spark import usable

    warm = next(iter(usable(os.environ)), None)
    return "" if warm is None else f", or the warm one at {warm.address} where its settings fit"


def check_java() -> Check:
    """Checks the Java that Spark's start script would use: that of JAVA_HOME, else the first on the PATH."""
    expected = f"JDK {OLDEST_JAVA} or newer"
    if remote_session():
        return Check("Java", ok=True, actual="not needed: sessions are remote (Spark Connect)", expected=expected)
    java = class_archive.java()
    fix = f"Install a JDK {OLDEST_JAVA} or newer and set JAVA_HOME to it."
    if java is None:
        return Check("Java", ok=False, actual="no java on the PATH, JAVA_HOME is not set", expected=expected, fix=fix)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("Java", ok=False, actual=f"{java} does not run: {error}", expected=expected, fix=fix)
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', done.stderr + done.stdout)
    if version is None:
        return Check("Java", ok=False, actual=f"{java} -version names no version", expected=expected, fix=fix)
    ok = int(version[1]) >= OLDEST_JAVA
    return Check("Java", ok, f"{version[0].removeprefix('version ')} at {java}", expected, "" if ok else fix)


def check_jars() -> Check:
    """Checks the Delta JARs by their SHA-256; wrong ones are no fault if the next session can fetch them."""
    expected = " and ".join(jar.file_name for jar in jars.DELTA_JARS)
    if remote_session():
        return Check(
            "Delta JARs", ok=True, actual="not needed: the Spark Connect server has its own", expected=expected
        )
    folder, wrong = jars.jar_folder(), jars.wrong_jars()
    if not wrong:
        return Check("Delta JARs", ok=True, actual=str(folder), expected=expected)
    existing = _nearest_existing(folder)
    if existing.is_dir() and _can_write(existing):
        none = not any((folder / jar.file_name).is_file() for jar in jars.DELTA_JARS)
        when = "not there yet: the first session" if none else f"{', '.join(wrong)}: the next session"
        origin = f"{when} fetches them from {jars.base_address()} into {folder}"
        return Check("Delta JARs", ok=True, actual=origin, expected=expected)
    problem = f"{', '.join(wrong)}, and {existing} cannot be written"
    fix = (
        f"Set FK_JARS_DIR to a folder of yours, let somebody who may write there run `{jars.FETCH_COMMAND}`, "
        "or set spark.jars.packages under settings.spark in the pipeline file."
    )
    return Check("Delta JARs", ok=False, actual=problem, expected=expected, fix=fix)


def check_classes() -> Check:
    """Tells whether a session maps Spark's classes from an archive; without one it starts more slowly."""
    expected = "an archive of Spark's classes, with which a session starts sooner"
    own = [jars.jar_folder() / jar.file_name for jar in jars.DELTA_JARS]
    archive = None if remote_session() else class_archive.archive_of(os.pathsep.join(map(str, [*own, *s3_jar_paths()])))
    if archive is None:
        state = "not used"
    elif class_archive.is_whole(archive):
        state = str(archive)
    else:
        state = "not there yet: the next session writes it when it ends"
    return Check("Classes", ok=True, actual=state, expected=expected)


def tested_versions() -> dict[str, str]:
    """Returns the versions that the tests ran with, by distribution name."""
    module = Path(__file__).resolve()
    shipped, checkout = module.with_name("requirements.lock"), module.parents[2] / "requirements.lock"
    lines = (shipped if shipped.is_file() else checkout).read_text(encoding="utf-8").splitlines()
    pins = (re.match(r"([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)", line) for line in lines)
    return {pin[1].lower(): pin[2] for pin in pins if pin}


def fitting_versions() -> "dict[str, SpecifierSet]":
    """Returns the versions that this package accepts, by distribution name; empty if it is not installed."""
    # Here, because `make setup` asks for the Java before it installs anything.
    from packaging.requirements import Requirement

    try:
        requirements = map(Requirement, importlib.metadata.requires("fk-pipeline") or [])
    except importlib.metadata.PackageNotFoundError:
        return {}
    return {
        requirement.name.lower(): requirement.specifier for requirement in requirements if requirement.marker is None
    }


def check_version(package: str) -> Check:
    """Checks an installed distribution: it has the tested version, another version that fits, or one that does not."""
    tested, fits = tested_versions()[package], fitting_versions().get(package)
    if fits is None:
        fix = "Run `pip install fk-pipeline`, or in a checkout `make setup`."
        return Check(package, ok=False, actual="fk-pipeline itself is not installed", expected=tested, fix=fix)
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        installed = "not installed"
    if installed == tested:
        return Check(package, ok=True, actual=installed, expected=tested)
    ok, install = installed != "not installed" and installed in fits, f"`pip install '{package}=={tested}'`"
    expected = f"{tested} (tested), or {fits}"
    return Check(
        package,
        ok,
        installed,
        expected,
        f"{install} is the version that the tests ran with." if ok else f"Run {install}.",
    )


def check_dagster_home() -> Check:
    """Checks DAGSTER_HOME: it may be unset, but not set to a place that Dagster cannot use."""
    expected = "unset, or a folder that can be written"
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        state = "not set: `dagster dev` forgets its runs when it stops, the data stays"
        return Check("DAGSTER_HOME", ok=True, actual=state, expected=expected)
    path = Path(home)
    if not path.is_absolute():
        fix = f"Set DAGSTER_HOME to an absolute path, such as {path.absolute()}."
        return Check("DAGSTER_HOME", ok=False, actual=f"{home} is a relative path", expected=expected, fix=fix)
    if not path.is_dir():
        fix = f"Run `mkdir -p {home}`, or unset DAGSTER_HOME."
        return Check("DAGSTER_HOME", ok=False, actual=f"{home} is not a folder", expected=expected, fix=fix)
    if not _can_write(path):
        fix = f"Make {home} writable for this user, or set DAGSTER_HOME to another folder."
        return Check("DAGSTER_HOME", ok=False, actual=f"{home} cannot be written", expected=expected, fix=fix)
    return Check("DAGSTER_HOME", ok=True, actual=home, expected=expected)


def check_writable(warehouse: Path | str) -> Check:
    """Checks the write access to the warehouse, or to the folder in which it will be created."""
    expected = "a folder that can be written"
    path = _local_path(warehouse)
    if path is None:
        return Check("Warehouse", ok=True, actual=f"{warehouse}: a URI, not checked here", expected=expected)
    existing = _nearest_existing(path)
    if existing.is_dir() and _can_write(existing):
        refused = _refused(existing)
        if refused is None:
            return Check("Warehouse", ok=True, actual=str(path), expected=expected)
        fix = f"{refused.fix[0].upper()}{refused.fix[1:]}."
        return Check("Warehouse", ok=False, actual=f"{existing}: {refused.what}", expected=expected, fix=fix)
    problem = "cannot be written" if existing.is_dir() else "is not a folder"
    fix = f"Make {existing} a folder that this user can write, or name another `warehouse` in the pipeline file."
    return Check("Warehouse", ok=False, actual=f"{existing} {problem}", expected=expected, fix=fix)


def check_disk(warehouse: Path | str) -> Check:
    """Checks the free space on the disk of the warehouse."""
    expected = f"more than {_gib(_LEAST_DISK)} free"
    path = _local_path(warehouse)
    if path is None:
        return Check("Disk", ok=True, actual=f"{warehouse}: a URI, not checked here", expected=expected)
    place = _nearest_existing(path)
    free = shutil.disk_usage(place).free
    ok = free > _LEAST_DISK
    fix = f"Free space on the disk of {place}, or name another `warehouse` in the pipeline file."
    return Check("Disk", ok, f"{_gib(free)} free at {place}", expected, "" if ok else fix)


def check_memory() -> Check:
    """Checks the memory of this machine, or of the container if that has less."""
    expected = f"{_gib(_LEAST_MEMORY)} or more"
    if remote_session():
        return Check("Memory", ok=True, actual="no Spark here: sessions are remote (Spark Connect)", expected=expected)
    memory = _memory()
    if memory is None:
        return Check("Memory", ok=True, actual="unknown on this system", expected=expected)
    ok = memory >= _LEAST_MEMORY
    fix = "Give the machine or container more memory, or use a Spark elsewhere by FK_SPARK_REMOTE."
    return Check("Memory", ok, _gib(memory), expected, "" if ok else fix)


def check_storage(warehouse: str, landing: Sequence[str], spark: Mapping[str, str]) -> list[Check]:
    """Checks the requirements of paths in object stores; returns no check if all paths are on disks."""
    return [Check(**vars(finding)) for finding in findings(warehouse, landing, spark, remote=bool(remote_session()))]


def _memory() -> int | None:
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    try:
        container = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(container)) if container.isdigit() else machine


def _local_path(warehouse: Path | str) -> Path | None:
    """Returns the folder that a path or a file: URI names; None for any other URI."""
    text = str(warehouse)
    if text.startswith("file:"):
        return Path("/" + text.removeprefix("file:").lstrip("/"))
    return None if re.match(r"[A-Za-z][\w+.-]+:/", text) else Path(text).absolute()


def _nearest_existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _refused(folder: Path) -> StorageError | None:
    """Returns the error if a folder refuses a file, or refuses to rename and link it as commits do; None if not."""
    probe = folder / f".fk-pipeline-doctor-{uuid.uuid4().hex}"
    renamed, linked = probe.with_suffix(".renamed"), probe.with_suffix(".linked")
    try:
        probe.write_bytes(b"fk-pipeline doctor" * 1000)
        probe.rename(renamed)
        linked.hardlink_to(renamed)
    except OSError as error:
        return refusal(error, str(folder)) or StorageError(str(error), where=str(folder), fix="mend what it says")
    finally:
        for file in (probe, renamed, linked):
            with suppress(OSError):
                file.unlink(missing_ok=True)
    return None


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
