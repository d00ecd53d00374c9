"""The archive of Spark's classes: who makes it, when it is used, and that Java takes classes from it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from fk_pipeline.environment import doctor
from fk_pipeline.environment.class_archive import archive_of, archive_options, is_whole
from fk_pipeline.environment.jars import jar_paths
from fk_pipeline.session import with_class_archive

CONF = {"spark.master": "local[*]", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}


@pytest.fixture(autouse=True)
def jars_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives the archive a folder of its own, in which there is a JAR."""
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "one.jar").write_bytes(b"one")
    monkeypatch.setenv("FK_JARS_DIR", str(folder))
    monkeypatch.delenv("FK_CLASS_ARCHIVE", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return folder


def test_one_process_makes_the_archive_and_others_use_it_when_it_is_whole() -> None:
    archive = archive_of("")
    assert archive is not None
    assert archive_options("").startswith(f'"-XX:ArchiveClassesAtExit={archive}" ')
    assert archive_options("") == "", "another one makes it"
    archive.write_bytes(bytes(4) + b"classes")  # Java writes the first bytes last
    assert not is_whole(archive)
    assert archive_options("") == ""
    archive.write_bytes(b"made" + b"classes")
    assert archive_options("").startswith(f'"-XX:SharedArchiveFile={archive}" ')


def aged(file: Path, seconds: float) -> None:
    """Makes a file so old."""
    os.utime(file, (time.time() - seconds,) * 2)


@contextmanager
def making(archive: Path) -> Iterator[None]:
    """Runs a process with the option of a Java that makes an archive when it ends, and kills it."""
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, f"-XX:ArchiveClassesAtExit={archive}"], stdin=PIPE) as maker:
        try:
            yield
        finally:
            maker.kill()


def test_an_archive_whose_process_was_killed_is_made_by_another() -> None:
    archive = archive_of("")
    assert archive is not None
    with making(archive):
        assert "ArchiveClassesAtExit" in archive_options("")
        aged(archive, 61)
        assert archive_options("") == "", "it makes it when it ends"
    assert "ArchiveClassesAtExit" in archive_options("")
    assert archive_options("") == "", "its Java may not have started yet"


def test_a_java_that_lives_long_is_not_waited_for() -> None:
    archive = archive_of("")
    assert archive is not None
    archive.touch()
    aged(archive, 3601)
    with making(archive):
        assert "ArchiveClassesAtExit" in archive_options("")


def test_archives_that_no_session_uses_any_more_are_removed(jars_elsewhere: Path) -> None:
    archive = archive_of("")
    assert archive is not None
    others = [jars_elsewhere / f"classes-{name}.jsa" for name in ("of-older-jars", "of-another-java")]
    for file in (archive, *others):
        file.write_bytes(b"made")
        aged(file, 31 * 86400)
    aged(others[1], 29 * 86400)
    assert "SharedArchiveFile" in archive_options("")
    assert [file.exists() for file in (archive, *others, jars_elsewhere / "one.jar")] == [True, False, True, True]
    assert time.time() - archive.stat().st_mtime < 3600, "it is used"


def test_another_spark_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, home = archive_of(""), tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    first = archive_of("")
    (home / "jars/spark-core.jar").write_bytes(b"core")
    assert len({own, first, archive_of("")}) == 3


def test_each_java_and_set_of_jars_has_an_archive_of_its_own(jars_elsewhere: Path) -> None:
    jar = jars_elsewhere / "one.jar"
    names = {archive_of(""), archive_of(str(jar)), archive_of(f"{jar}:/no/such.jar:/opt/jars/*")}
    assert len(names) == 2, "what is no file is not looked at"
    jar.write_bytes(b"another")
    assert archive_of(str(jar)) not in names


def test_there_is_none_without_java_or_where_it_is_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("FK_CLASS_ARCHIVE", "off")
        assert archive_of("") is None
        assert doctor.check_classes().actual == "not used"
        assert with_class_archive(CONF) == CONF
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # one without an archive of its own classes
    assert archive_options("") == ""


def test_the_folder_need_not_be_writable(jars_elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FK_JARS_DIR", str(jars_elsewhere / "one.jar" / "no folder"))
    assert archive_options("") == ""


def test_only_a_driver_here_has_it_and_options_of_the_user_win() -> None:
    elsewhere = {**CONF, "spark.master": "spark://host:7077"}
    own = {**CONF, "spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=/own.jsa"}
    assert [with_class_archive(conf) for conf in (elsewhere, own)] == [elsewhere, own]
    assert with_class_archive(CONF)["spark.driver.extraJavaOptions"].startswith('-XX:+UseSerialGC "-XX:ArchiveClasses')


def test_doctor_tells_whether_it_is_there() -> None:
    assert doctor.check_classes().actual == "not there yet: the next session writes it when it ends"
    archive = archive_of(":".join(str(path) for path in _own_jars()))
    assert archive is not None
    archive.write_bytes(b"made")
    assert doctor.check_classes().actual == str(archive)


def _own_jars() -> list[Path]:
    from fk_pipeline.environment.jars import DELTA_JARS, jar_folder

    return [jar_folder() / jar.file_name for jar in DELTA_JARS]


SESSION = """
from fk_pipeline.session import start_session
session = start_session()
assert session.range(3).count() == 3
"""


@pytest.mark.slow
def test_a_session_maps_what_an_earlier_one_has_written(jars_elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FK_JARS_DIR")
    for jar in jar_paths():
        (jars_elsewhere / jar.name).symlink_to(jar)
    monkeypatch.setenv("FK_JARS_DIR", str(jars_elsewhere))
    monkeypatch.setenv("FK_SPARK_REMOTE", "none")
    archive = archive_of(":".join(map(str, jar_paths())))
    assert archive is not None
    subprocess.run([sys.executable, "-c", SESSION], check=True)
    until = time.monotonic() + 120
    while not is_whole(archive):
        assert time.monotonic() < until, "Java has not written it"
        time.sleep(0.2)
    loaded = jars_elsewhere.parent / "loaded.txt"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Xlog:class+load:file={loaded}")
    subprocess.run([sys.executable, "-c", SESSION], check=True)
    spark = [line for line in loaded.read_text().splitlines() if " org.apache.spark.sql." in line]
    mapped, of_jars = (sum(source in line for line in spark) for source in ("shared objects file (top)", "file:/"))
    assert mapped > 1000
    assert of_jars < mapped / 10
