"""The Delta JARs: brought once, checked always, and never a puzzle when they are missing."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path

import pytest

import fk_pipeline
from fk_pipeline.environment import jars
from fk_pipeline.environment.jars import FETCH_COMMAND, Jar, bring, fetch, jar_folder, jar_paths, main
from fk_pipeline.errors import EnvironmentNotFit

ROOT = Path(fk_pipeline.__file__).parents[1]
REAL_JARS = jars.DELTA_JARS
CONTENT = {"first": b"the first JAR", "second": b"the second JAR"}


@pytest.fixture(autouse=True)
def specs(monkeypatch, tmp_path) -> tuple[Jar, ...]:
    """Two small JARs stand for Delta's, and a folder of the test for the environment's."""
    specs = tuple(Jar(name, "1.0", hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items())
    monkeypatch.setattr(jars, "DELTA_JARS", specs)
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path / "jars"))
    monkeypatch.setenv("FK_MAVEN_BASE_URL", "file:///nowhere")
    return specs


@pytest.fixture
def repository(tmp_path, specs) -> Path:
    """A folder laid out as a Maven repository."""
    root = tmp_path / "repository"
    for jar in specs:
        path = root / jar.repository_path
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT[jar.artifact])
    return root


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_jar_has_the_coordinates_and_the_path_of_a_maven_repository():
    jar = Jar("delta-storage", "4.4.0", "00")
    assert jar.coordinates == "io.delta:delta-storage:4.4.0"
    assert jar.repository_path == "io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar"


def test_jars_are_downloaded_from_a_base_url(repository):
    assert fetch(repository.as_uri()) == list(jar_paths())
    assert [path.read_bytes() for path in jar_paths()] == list(CONTENT.values())


def test_the_base_url_may_come_from_the_environment(repository, monkeypatch):
    monkeypatch.setenv("FK_MAVEN_BASE_URL", repository.as_uri() + "/")
    fetch()
    assert len(jar_paths()) == 2


def test_jars_are_copied_from_a_plain_folder(tmp_path, specs):
    for jar in specs:
        (tmp_path / jar.file_name).write_bytes(CONTENT[jar.artifact])
    fetch(from_dir=tmp_path)
    assert [path.read_bytes() for path in jar_paths()] == list(CONTENT.values())


def test_jars_are_copied_from_a_folder_laid_out_as_a_maven_repository(repository):
    fetch(from_dir=repository)
    assert len(jar_paths()) == 2


def test_a_second_fetch_brings_nothing_and_asks_nobody(repository):
    fetch(from_dir=repository)
    before = [path.stat().st_mtime_ns for path in jar_paths()]
    assert fetch("file:///nowhere") == []
    assert [path.stat().st_mtime_ns for path in jar_paths()] == before


def test_a_damaged_jar_is_brought_again_and_the_good_one_is_left_alone(repository):
    fetch(from_dir=repository)
    damaged = jar_paths()[1]
    damaged.write_bytes(b"half")
    assert fetch(from_dir=repository) == [damaged]
    assert damaged.read_bytes() == CONTENT["second"]


def test_a_wrong_checksum_is_refused_and_leaves_nothing_behind(repository, specs):
    (repository / specs[1].repository_path).write_bytes(b"<html>a login page</html>")
    with pytest.raises(EnvironmentNotFit, match=r"is not io\.delta:second:1\.0 .*\n.*was not used") as caught:
        fetch(repository.as_uri())
    assert specs[1].repository_path in str(caught.value)
    assert names(jar_folder()) == {"first-1.0.jar"}


def test_a_wrong_checksum_does_not_replace_what_is_there(repository, specs):
    fetch(from_dir=repository)
    first = jar_paths()[0]
    first.write_bytes(b"mine")
    (repository / specs[0].repository_path).write_bytes(b"other")
    with pytest.raises(EnvironmentNotFit):
        fetch(from_dir=repository)
    assert first.read_bytes() == b"mine"


def test_an_unreachable_repository_names_mirror_and_offline_way():
    with pytest.raises(
        EnvironmentNotFit, match=r"(?s)file:///nowhere/io/delta/first.*FK_MAVEN_BASE_URL.*--from-dir DIR"
    ):
        fetch()
    assert names(jar_folder()) == set()


def test_a_base_url_without_a_scheme_is_told_apart():
    with pytest.raises(
        EnvironmentNotFit, match=r"is no URL\n  Fix: give FK_MAVEN_BASE_URL or --base-url as https://host/path"
    ):
        fetch("repository.example/maven2")


def test_a_folder_without_the_jar_names_file_and_coordinates(tmp_path):
    with pytest.raises(EnvironmentNotFit, match=r"(?s)has no first-1\.0\.jar.*io\.delta:first:1\.0"):
        fetch(from_dir=tmp_path)


def test_a_target_that_cannot_be_made_names_the_way_out(tmp_path, repository):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentNotFit, match=r"(?s)cannot be written .*set FK_JARS_DIR"):
        fetch(from_dir=repository, target=tmp_path / "file")


def test_login_in_the_base_url_reaches_the_mirror_but_no_message(repository, monkeypatch):
    seen = []

    class Mirror(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200 if self.path.endswith("first-1.0.jar") else 404)
            self.end_headers()
            self.wfile.write(CONTENT["first"])

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), Mirror) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(EnvironmentNotFit, match="HTTP 404") as caught:
            fetch(f"http://me:s%40cret@127.0.0.1:{server.server_port}/maven2")
        server.shutdown()
    assert seen == ["Basic " + b64encode(b"me:s@cret").decode()] * 2
    assert "me:" not in str(caught.value)
    assert "cret" not in str(caught.value)
    assert names(jar_folder()) == {"first-1.0.jar"}


def test_missing_jars_are_named_with_the_fix():
    with pytest.raises(
        EnvironmentNotFit, match=rf"(?s)first-1\.0\.jar is missing and second-1\.0\.jar is missing.*run {FETCH_COMMAND}"
    ):
        jar_paths()


def test_a_session_fetches_what_is_missing_once_and_tells_it(repository, monkeypatch):
    monkeypatch.setenv("FK_MAVEN_BASE_URL", repository.as_uri())
    told: list[str] = []
    assert bring(told.append) == jar_paths()
    assert len(told) == 2
    assert told[0].startswith(f"fetching {repository.as_uri()}/io/delta/first/1.0/first-1.0.jar into {jar_folder()} ")
    monkeypatch.setenv("FK_MAVEN_BASE_URL", "file:///nowhere")
    assert bring(told.append) == jar_paths()
    assert len(told) == 2


def test_a_session_fetches_a_jar_that_is_empty_or_cut_anywhere_again(repository, monkeypatch):
    monkeypatch.setenv("FK_MAVEN_BASE_URL", repository.as_uri())
    first, second = bring(lambda _: None)
    for length in range(len(CONTENT["first"])):
        first.write_bytes(CONTENT["first"][:length])
        told: list[str] = []
        assert bring(told.append) == (first, second)
        assert first.read_bytes() == CONTENT["first"]
        assert len(told) == 1


def test_what_a_fetch_that_died_has_left_is_removed_when_nobody_writes_it_any_more(repository):
    (folder := jar_folder()).mkdir(parents=True)
    for name in (".first-1.0.jar.dead", ".second-1.0.jar.alive"):
        (folder / name).write_bytes(b"the fir")
    os.utime(folder / ".first-1.0.jar.dead", (0, time.time() - 3601))
    fetch(base_url=repository.as_uri())
    assert names(folder) == {".second-1.0.jar.alive", "first-1.0.jar", "second-1.0.jar"}


def test_what_a_session_fetches_is_told_on_stderr(repository, monkeypatch, capsys):
    monkeypatch.setenv("FK_MAVEN_BASE_URL", repository.as_uri())
    bring()
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("fetching file://")) == ("", 2)


def test_a_session_that_cannot_fetch_names_mirror_folder_and_offline_way():
    with pytest.raises(EnvironmentNotFit) as caught:
        bring(lambda _: None)
    assert caught.value.exit_code == 3
    assert "file:///nowhere/io/delta/first/1.0/first-1.0.jar could not be loaded" in caught.value.what
    for way in ("FK_MAVEN_BASE_URL", f"{FETCH_COMMAND} --from-dir DIR", "FK_JARS_DIR"):
        assert way in caught.value.fix


def test_a_session_that_may_not_write_names_the_folder_and_the_way_out(tmp_path, repository, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path / "file" / "jars"))
    monkeypatch.setenv("FK_MAVEN_BASE_URL", repository.as_uri())
    with pytest.raises(EnvironmentNotFit, match=rf"{tmp_path}/file/jars cannot be written") as caught:
        bring(lambda _: None)
    assert caught.value.fix.startswith("set FK_JARS_DIR to a folder of yours, and the next session fetches them")


def test_processes_that_fetch_at_once_do_not_disturb_each_other(tmp_path):
    """The real JARs' names, and a mirror that serves the first bytes of each and waits until everybody has asked."""
    processes, asked, all_asked = 3, [], threading.Event()
    contents = {spec.artifact: spec.artifact.encode() * 1000 for spec in REAL_JARS}

    class Mirror(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = next(c for name, c in contents.items() if f"/{name}/" in self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:10])
            self.wfile.flush()
            asked.append(self.path)
            if len(asked) >= processes:
                all_asked.set()
            all_asked.wait(30)
            self.wfile.write(content[10:])

        def log_message(self, *_: object) -> None:
            pass

    code = (
        "import dataclasses, hashlib; from fk_pipeline.environment import jars\n"
        "jars.DELTA_JARS = tuple(dataclasses.replace(j, sha256=hashlib.sha256(j.artifact.encode() * 1000).hexdigest())"
        " for j in jars.DELTA_JARS)\n"
        "print(*(path.stat().st_size for path in jars.bring()))"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {"FK_JARS_DIR": str(tmp_path / "shared"), "NO_PROXY": "127.0.0.1"}
        environment["FK_MAVEN_BASE_URL"] = f"http://127.0.0.1:{server.server_port}"
        started = [
            subprocess.Popen(
                [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for _ in range(processes)
        ]
        ended = [(*process.communicate(timeout=60), process.returncode) for process in started]
        server.shutdown()
    sizes = " ".join(str(len(content)) for content in contents.values()).encode() + b"\n"
    assert [(out, code) for out, _, code in ended] == [(sizes, 0)] * processes
    assert names(tmp_path / "shared") == {jar.file_name for jar in REAL_JARS}


def test_jars_lie_in_the_python_environment_unless_a_folder_is_set(monkeypatch):
    monkeypatch.delenv("FK_JARS_DIR")
    assert jar_folder() == Path(sys.prefix, "share", "fk-pipeline", "jars")
    monkeypatch.setenv("FK_JARS_DIR", "/opt/jars")
    assert jar_folder() == Path("/opt/jars")


def test_the_command_fetches_then_verifies(repository, capsys):
    assert main(["--from-dir", str(repository)]) == 0
    assert capsys.readouterr().out.count("fetched ") == 2
    assert main(["--verify"]) == 0


def test_the_command_reports_an_unfit_environment_by_exit_status_3(repository, capsys):
    main(["--base-url", repository.as_uri()])
    jar_paths()[0].write_bytes(b"damaged")
    assert main(["--verify"]) == 3
    assert "first-1.0.jar has another SHA-256\n" in (told := capsys.readouterr().err)
    assert "Fix: run python -m fk_pipeline.environment.jars" in told
    assert main(["--from-dir", "/nowhere"]) == 3


def test_the_module_runs_on_a_bare_python(tmp_path):
    command = [sys._base_executable, "-S", "-m", "fk_pipeline.environment.jars", "--verify"]
    done = subprocess.run(
        command, cwd=ROOT, env={"FK_JARS_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "delta-storage-4.4.0.jar is missing" in done.stderr
