"""The classes of Spark as Java has them in memory, in a file that a session maps instead of loading them from JARs.

Java calls it a class-data archive. Loading and verifying classes is half of what a session takes to start (ADR 0053).
The first session that finds none makes one: Java writes it when it ends, in the background, while the command has ended
already. It belongs to one Java and to one set of JARs, which its name tells; Java compares them once more, and where
they differ, it loads the classes from the JARs. FK_CLASS_ARCHIVE=off does without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from fk_pipeline.environment.jars import jar_folder

SWITCH = "FK_CLASS_ARCHIVE"

ARCHIVE_OPTIONS = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit")
"""The options of Java that use an archive, or make it."""

_OWN_ARCHIVE = Path("lib") / "server" / "classes.jsa"
"""The archive of Java's own classes, in its home: ours is on top of it."""

_QUIET = "-Xlog:cds*=off -Xlog:class+path=off"
"""Options of Java: it would warn of each class that it leaves out, and of an archive that does not fit."""

_STARTED_SECONDS = 60.0
"""Seconds after which a Java that is to make an archive has started: without one, its process was killed."""

_AWAITED_SECONDS = 3600.0
"""Seconds for which nobody else makes an archive that a living Java is to make when it ends."""

_UNUSED_SECONDS = 30 * 86400.0
"""Seconds after which an archive is removed that no session has used: those of another Java, and of older JARs."""


def archive_options(class_path: str) -> str:
    """Returns the options with which Java uses the archive of a session, or makes it; empty if it can do neither.

    Args:
        class_path: what the class path of the session has before Spark's own JARs.
    """
    archive = archive_of(class_path)
    if archive is None:
        return ""
    _remove_unused(archive)
    if is_whole(archive):
        with suppress(OSError):  # the folder may be that of somebody else
            os.utime(archive)
        return f'"-XX:SharedArchiveFile={archive}" {_QUIET}'
    return f'"-XX:ArchiveClassesAtExit={archive}" {_QUIET}' if _begin(archive) else ""


def archive_of(class_path: str) -> Path | None:
    """Returns the path of the archive of a session, which need not exist; None if there is no Java, or none is wanted.

    Its name follows from the Java and from the JARs of the class path and of Spark: their paths, sizes and times.
    """
    command = java()
    if command is None or os.environ.get(SWITCH) == "off":
        return None
    home = Path(command).resolve().parent.parent
    if not (home / _OWN_ARCHIVE).is_file():
        return None
    jars = [*map(Path, class_path.split(os.pathsep)), *sorted(_jars_of_spark().glob("*.jar"))]
    facts = [f"{jar} {status.st_size} {status.st_mtime_ns}" for jar in jars if jar.is_file() for status in [jar.stat()]]
    with suppress(OSError):
        facts.append((home / "release").read_text(encoding="utf-8"))
    digest = hashlib.sha256("\n".join([str(home), *facts]).encode()).hexdigest()
    return jar_folder() / f"classes-{digest[:16]}.jsa"


def java() -> str | None:
    """Returns the Java that Spark's start script uses: that of JAVA_HOME, else the first on the PATH, if any."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def _jars_of_spark() -> Path:
    """Returns the folder of Spark's JARs, of SPARK_HOME if that is set; PySpark is not imported for that."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home) / "jars"
    module = importlib.util.find_spec("pyspark")
    return Path(module.origin).parent / "jars" if module is not None and module.origin else Path("no PySpark")


def is_whole(archive: Path) -> bool:
    """Returns whether Java has written an archive to its end: it writes the first bytes last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except OSError:
        return False


def _begin(archive: Path) -> bool:
    """Returns whether this process is to make an archive: no other one does, and the folder can be written."""
    with suppress(OSError):
        age = time.time() - archive.stat().st_mtime
        if age < _STARTED_SECONDS or (age < _AWAITED_SECONDS and _is_made(archive)):
            return False
        archive.unlink()
    try:
        archive.open("x").close()
    except OSError:  # another process was quicker, perhaps
        return False
    return True


def _is_made(archive: Path) -> bool:
    """Returns whether a process of this machine has been told to make an archive when it ends."""
    import psutil  # `make setup` asks for the Java before it is installed

    option = f"-XX:ArchiveClassesAtExit={archive}"
    commands = (process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"]))
    return any(option in word for command in commands for word in command)


def _remove_unused(archive: Path) -> None:
    """Removes the archives beside one that no session has used for long. Who maps one of them keeps it."""
    for other in archive.parent.glob("classes-*.jsa"):
        with suppress(OSError):
            if other != archive and time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                other.unlink()
