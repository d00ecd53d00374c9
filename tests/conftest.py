"""Fixtures: one Spark session per test process, of the kind that FK_TEST_SPARK names; small pipelines; a local S3."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from fk_pipeline import readable
from fk_pipeline.cli.main import app_main
from fk_pipeline.environment.storage import filesystem
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.sizes import MEASURED, Sizes
from tests.durations import Recorder, longest_first
from tests.sessions import SESSIONS

LEFT_SCHEMA = "id INT, fk STRING, v STRING, note STRING"
RIGHT_SCHEMA = "k STRING, name STRING, note STRING"


KIND = os.environ.get("FK_TEST_SPARK", "classic")


def pytest_report_header() -> str:
    return f"Spark session of the tests: {KIND}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option of `make test-durations`."""
    parser.addoption("--store-durations", action="store_true", help="store the seconds of each file of tests")


def pytest_configure(config: pytest.Config) -> None:
    """Stores the seconds of each file of tests if that is asked for."""
    if config.getoption("--store-durations") and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks every test that gets the session as one that needs Spark; the files that take longest run first."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    longest_first(items, config.rootpath)


@pytest.fixture(scope="session", autouse=True)
def state_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Gives the tests a folder for what is kept per user, such as the tokens of Spark Connect servers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yields the session of the test run: two cores, few partitions, and no Python for its executors."""
    with SESSIONS[KIND](tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def python_on_executors(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives executors Python, which frames made of Python rows need; a Connect client sends such rows as data."""
    if KIND != "connect":
        monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)


@pytest.fixture(scope="session")
def rows_pipeline(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Callable[..., RowsPipeline]:
    """Returns a function that makes a pipeline over plain rows in a folder of its own."""

    def make(join: str = "left", sizes: Sizes = MEASURED, **changes: str) -> RowsPipeline:
        return RowsPipeline(tmp_path_factory.mktemp("pipeline"), spark, join, sizes, **changes)

    return make


@pytest.fixture(scope="session")
def copy_of(rows_pipeline: Callable[..., RowsPipeline]) -> Callable[[RowsPipeline], RowsPipeline]:
    """Returns a function that copies a pipeline with its landing files and tables."""

    def copy(made: RowsPipeline) -> RowsPipeline:
        copied = rows_pipeline("left")
        shutil.copytree(made.folder, copied.folder, dirs_exist_ok=True)
        copied.pipeline = Pipeline(load_spec(copied.file), made.pipeline.session)
        return copied

    return copy


@pytest.fixture(scope="session")
def told_alike() -> Callable[..., Any]:
    """Returns a function that returns a story, or an impact, as it is told without Spark: Spark tells the same."""

    def told(pipeline: Pipeline, key: str, what: str = "explain", **given: Any) -> Any:
        tell = getattr(pipeline, what)
        story = tell(key, notify=pytest.fail, **given)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readable, "answer_in_process", left_to_spark)
            by_spark = tell(key, **given)
        assert json.dumps(story.as_json()) == json.dumps(by_spark.as_json())
        return story

    return told


def left_to_spark(*_: object) -> None:
    """Stands for a function that would answer without Spark."""
    raise LeftToSpark("it is asked for")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Yields the address of a server with the S3 API."""
    for package in ("moto", "flask", "flask_cors", "s3fs"):
        pytest.importorskip(package, reason=f"{package} is not installed: it is among the extras dev and s3")
    command = [sys.executable, str(Path(__file__).parent / "s3_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            assert port.isdigit(), "the server did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Returns the URI of a new bucket for the test; the environment variables point to its server."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    given = {"AWS_ACCESS_KEY_ID": "tested", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-central-1"}
    for name, value in (given | {"AWS_ENDPOINT_URL": s3_server, "AWS_EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(name, value)
    bucket = f"s3a://b{abs(hash(request.node.nodeid)):020d}"
    fs, root = filesystem(bucket)
    fs.mkdir(root)
    return bucket


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Returns a function that calls the command as its process does, in this one."""

    def call(*args: Any) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fk-pipeline", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app_main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return call


class RowsPipeline:
    """A pipeline of `format: rows` whose batches a test writes as Python rows.

    A left row is `(id, fk, v)`, a right row `(k, name)`; a row with one component is a delete.
    """

    def __init__(self, folder: Path, spark: SparkSession, join: str, sizes: Sizes = MEASURED, **changes: str) -> None:
        self.folder = folder
        parts = {
            "select": "[id, v, name]",
            "left_key": "id",
            "foreign_key": "fk",
            "left_extra": "",
            "right_extra": "",
            "on_bad_record": "quarantine",
            "settings": "{}",
            "more": "",
        } | changes
        file = folder / "pipeline.yaml"
        file.write_text(
            f"name: tested\njoin: {join}\n"
            f'left:\n  path: landing/left\n  format: rows\n  schema: "{LEFT_SCHEMA}"\n  op_column: op\n'
            f"  key: {parts['left_key']}\n  foreign_key: {parts['foreign_key']}\n{parts['left_extra']}"
            f'right:\n  path: landing/right\n  format: rows\n  schema: "{RIGHT_SCHEMA}"\n  key: k\n  op_column: op\n'
            f"{parts['right_extra']}select: {parts['select']}\non_bad_record: {parts['on_bad_record']}\n"
            f"settings: {parts['settings']}\n{parts['more']}"
        )
        for side in ("left", "right"):
            (folder / "landing" / side).mkdir(parents=True, exist_ok=True)
        self.file = file
        self.pipeline = Pipeline(load_spec(file), spark, sizes=sizes)

    def land(self, batch: int, left: Sequence[Any] = (), right: Sequence[Any] = ()) -> None:
        """Writes or rewrites the landing files of a batch."""
        for side, names, rows in (("left", ("id", "fk", "v"), left), ("right", ("k", "name"), right)):
            lines = []
            for row in rows:
                if isinstance(row, str):
                    lines.append(row)
                    continue
                op = "d" if len(row) == 1 else "u"
                lines.append(json.dumps({"op": op} | dict(zip(names, row, strict=False))))
            file = self.folder / "landing" / side / f"{batch:08d}.jsonl"
            if lines or file.exists():
                file.write_text("".join(line + "\n" for line in lines))

    def result(self) -> dict[int, tuple[str | None, str | None]]:
        """Returns the result: `id` to `(v, name)`."""
        rows = self.pipeline.table("resolved_join").collect()
        assert len(rows) == len({row["id"] for row in rows}), "two result rows for one key"
        return {row["id"]: (row["v"], row["name"]) for row in rows}

    def verdicts(self, batch: int) -> dict[tuple[int, str], str]:
        """Returns the stored verdicts of a batch: `(id, cause)` to verdict."""
        rows = self.pipeline.table("verdicts").where(f"_fk_batch = {batch}").collect()
        return {(row["_fk_pk_id"], row["_fk_cause"]): row["_fk_verdict"] for row in rows}
