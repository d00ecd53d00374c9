"""Which Spark a command uses: from the environment, the records of warm ones, and their responses. Starts no Spark."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.environment.doctor import check_engine
from fk_pipeline.environment.process import ProcessIdentity
from fk_pipeline.environment.spark_address import Probe, probe_remote, remote_of
from fk_pipeline.environment.spark_token import forget_token, new_token
from fk_pipeline.environment.warm_spark import WarmSpark, choose, forget_warm, record_warm, usable, warm_sparks
from fk_pipeline.errors import EnvironmentNotFit
from fk_pipeline.session import comparable_conf, session_conf
from fk_pipeline.spec import Settings

SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.hadoop.fs.s3a.secret.key": "s3cr3t",
}
VERSION = "4.2.0"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("fk_pipeline.environment.warm_spark.version", lambda _: VERSION)
    return tmp_path / "state" / "fk-pipeline"


@pytest.fixture
def warm(state: Path) -> Iterator[WarmSpark]:
    """A recorded server whose process is this one; it listens, and its token is there."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen(8)
        port = made.getsockname()[1]
        new_token(port)
        record_warm(f"sc://127.0.0.1:{port}", Path("/home/of"), SETTINGS)
        [found] = warm_sparks()
        yield found


def answer(_: str, names: Collection[str]) -> Probe:
    """As Spark does: a session can set what begins so."""
    return Probe(VERSION, frozenset(name for name in names if name.startswith("spark.sql.")))


def silence(address: str, _: Collection[str]) -> Probe:
    raise EnvironmentNotFit("it does not respond as it should: too late", where=address)


def another(_: str, __: Collection[str]) -> Probe:
    return Probe("4.1.0")


def test_a_record_is_for_its_user_alone_and_has_no_secret(warm: WarmSpark, state: Path) -> None:
    [file] = state.glob("warm-*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "s3cr3t" not in file.read_text()
    assert (warm.home, warm.version, warm.listens) == ("/home/of", VERSION, True)
    content = file.read_text()
    for damaged in (
        "",
        content[:40],
        content[:-1],
        "{}\n",
        "[]\n",
        content.replace('"settings": {', '"settings": 7, "x": {'),
    ):
        file.write_text(damaged)
        assert warm_sparks() == []
    file.write_text(content)
    file.chmod(0o640)
    assert warm_sparks() == []
    file.chmod(0o600)
    forget_warm(replace(warm.process, pid=1))
    assert warm_sparks() == [warm]
    forget_warm(warm.process)
    assert not file.exists()


def test_without_a_folder_of_the_user_nothing_is_recorded_and_nothing_found(state: Path) -> None:
    state.parent.write_text("no folder")
    record_warm("sc://127.0.0.1:1", Path("/home/of"), {})
    assert warm_sparks() == []
    assert not usable({})


@pytest.mark.parametrize(
    ("environment", "wanted", "probe", "sets", "said"),
    [
        ({}, {}, answer, {}, "Spark is the warm one at"),
        ({"FK_SPARK_REMOTE": ""}, {}, answer, {}, "Spark is the warm one at"),
        ({"FK_SPARK_REMOTE": "none"}, {}, answer, None, ""),
        ({"FK_SPARK_REMOTE": "sc://elsewhere"}, {}, answer, None, ""),
        ({"SPARK_MASTER": "local[2]"}, {}, answer, None, ""),
        ({}, {"spark.driver.memory": None}, answer, {}, "Spark is the warm one at"),
        (
            {},
            {"spark.sql.shuffle.partitions": "8", "spark.sql.new": "1"},
            answer,
            {"spark.sql.shuffle.partitions": "8", "spark.sql.new": "1"},
            "Spark is the warm one at",
        ),
        (
            {},
            {"spark.driver.memory": "8g", "spark.jars": "a.jar", "spark.sql.new": "1"},
            answer,
            None,
            "is not used: it was started with other values of spark.driver.memory, spark.jars.",
        ),
        (
            {"http_proxy": "http://proxy:1", "no_proxy": "localhost, 127.0.0.1"},
            {},
            answer,
            {},
            "Spark is the warm one at",
        ),
        ({"http_proxy": "http://proxy:1"}, {}, answer, None, "is not used: gRPC would ask a proxy for it (http_proxy)"),
        ({}, {}, silence, None, "is not used: it does not respond as it should: too late."),
        ({}, {}, another, None, f"is not used: it is Spark 4.1.0, and this is PySpark {VERSION}."),
    ],
)
def test_the_environment_wins_and_else_a_warm_one_whose_settings_fit(
    environment: dict[str, str], wanted: dict[str, str | None], probe: Any, sets: Any, said: str, warm: WarmSpark
) -> None:
    settings = {name: value for name, value in (SETTINGS | wanted).items() if value is not None}
    choice = choose(environment, settings, [warm], probe)
    assert choice.address == (None if sets is None else warm.address)
    assert choice.settings == (sets or {})
    assert said in choice.notice
    assert bool(said) == (warm.address in choice.notice)
    assert "\n" not in choice.notice
    assert usable(environment) == ([warm] if said else [])


def test_what_is_not_certainly_our_running_server_is_not_used(warm: WarmSpark, state: Path) -> None:
    def refused(changed: Mapping[str, Any], reason: str) -> None:
        def never(*_: Any) -> Probe:
            raise AssertionError("it is not asked")

        choice = choose({}, SETTINGS, [replace(warm, **changed)], never)
        assert choice.address is None
        assert choice.notice.startswith(
            f"Spark starts in this process; the warm one at {warm.address} is not used: {reason}"
        )

    refused({"version": "4.1.0"}, "it is Spark 4.1.0, and this is PySpark")
    refused({"process": ProcessIdentity.of(os.getppid())}, "it is still starting")  # and somebody else listens there
    forget_token(warm.port, Path("/no/home"))
    refused({}, "its token is not there any more")
    new_token(warm.port)
    assert choose({}, SETTINGS, warm_sparks(), answer).address == warm.address

    [file] = state.glob("*.json")
    file.write_text(file.read_text().replace(f'"started": {warm.process.started}', '"started": 1.0'))
    assert not usable({})
    [dead] = warm_sparks()
    choice = choose({}, SETTINGS, [dead], answer)
    assert "it has ended, 'fk-pipeline spark start' starts it again" in choice.notice
    assert (warm_sparks(), choose({}, SETTINGS, warm_sparks(), answer).notice) == ([], ""), "it is said once"


def test_the_doctor_tells_of_it(warm: WarmSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FK_SPARK_REMOTE", "SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)
    assert check_engine().actual.endswith(f", or the warm one at {warm.address} where its settings fit")
    monkeypatch.setenv("FK_SPARK_REMOTE", "none")
    assert check_engine().actual.endswith(", in this process")


def test_of_several_the_first_that_fits_is_used(warm: WarmSpark) -> None:
    other = replace(warm, settings=warm.settings | {"spark.driver.memory": "other"})
    assert choose({}, SETTINGS, [other, warm], answer).notice == f"Spark is the warm one at {warm.address}."
    assert "other values of spark.driver.memory" in choose({}, SETTINGS, [other, other], answer).notice


def test_a_program_that_says_nothing_costs_the_deadline_and_no_more(warm: WarmSpark) -> None:
    with pytest.raises(EnvironmentNotFit, match="does not speak gRPC within 0 s"):
        probe_remote(warm.address, (), 0.2)


def test_what_is_compared_is_what_spark_here_would_get(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(spark={"spark.connect.authenticate.token": "s3cr3t", "spark.sql.x": "1"}, driver_memory="3g")
    conf, own = comparable_conf(settings, {}), session_conf(settings, {})
    assert (conf["spark.driver.memory"], conf["spark.sql.x"], conf["spark.master"]) == ("3g", "1", "local[*]")
    assert own.keys() - conf.keys() == {
        "spark.local.dir",
        "spark.hadoop.hadoop.tmp.dir",
        "spark.connect.authenticate.token",
    }
    assert conf == comparable_conf(settings, {"AWS_PROFILE": "a"}), "nothing is read from S3"
    monkeypatch.setattr("fk_pipeline.session.s3_jar_paths", lambda: ("/jars/s3.jar",))
    as_one, as_another = (comparable_conf(settings, {"AWS_PROFILE": name}) for name in "ab")
    assert [name for name in as_one if as_one[name] != as_another[name]] == ["AWS_* of the environment"]


def test_the_address_in_the_environment_may_be_none() -> None:
    values: list[tuple[dict[str, str], str | None]] = [
        ({}, None), ({"FK_SPARK_REMOTE": ""}, None), ({"FK_SPARK_REMOTE": "none"}, None),
        ({"FK_SPARK_REMOTE": "sc://host"}, "sc://host"),
    ]  # fmt: skip
    assert [remote_of(environment) for environment, _ in values] == [remote for _, remote in values]
