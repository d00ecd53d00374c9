"""The token of our own Spark Connect server: who may read it, who finds it, and what its loss means."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client import SparkConnectClient

from fk_pipeline.environment.spark_address import check_remote
from fk_pipeline.environment.spark_life import is_lost
from fk_pipeline.environment.spark_token import forget_token, new_token, token_at, with_token
from fk_pipeline.errors import EnvironmentNotFit
from fk_pipeline.session import session_conf
from fk_pipeline.spec import Settings

PORT = 15999
SHOWN = f"sc://127.0.0.1:{PORT}"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The files with the token: in a Dagster home, and in the user's folder."""
    home, state = tmp_path / "home", tmp_path / "state"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    name = f"spark-{PORT}.token"
    return SimpleNamespace(home=home, in_home=home / "servers" / name, of_user=state / "fk-pipeline" / name)


def test_only_the_owner_may_read_the_token_and_each_start_makes_another(places: SimpleNamespace) -> None:
    old_mask = os.umask(0)
    try:
        first, second = new_token(PORT), new_token(PORT)
    finally:
        os.umask(old_mask)
    assert first != second
    assert len(second) >= 43
    for file in (places.in_home, places.of_user):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert [one.name for one in file.parent.iterdir()] == [file.name]
    assert token_at(PORT) == second
    forget_token(PORT, places.home)
    assert token_at(PORT) is None


def test_the_token_of_another_home_at_the_same_port_stays(places: SimpleNamespace, tmp_path: Path) -> None:
    """A server of one home died without `down`, a server of another home took its port."""
    new_token(PORT)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(other))
        living = new_token(PORT)
    forget_token(PORT, places.home)
    assert not places.in_home.exists()
    assert token_at(PORT) == token_at(PORT, other) == living
    forget_token(PORT, other)
    assert not places.of_user.exists()


def test_a_client_finds_it_from_any_folder_and_the_newest_counts(
    places: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_token(PORT)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "other"))
    second = new_token(PORT)
    assert token_at(PORT) == second
    monkeypatch.setenv("DAGSTER_HOME", str(places.home))
    assert token_at(PORT) == second
    places.of_user.unlink()
    assert token_at(PORT) not in (None, second)


def empty(file: Path) -> None:
    file.write_text("")


def cut(file: Path) -> None:
    file.write_text(file.read_text()[:20])


def readable_by_others(file: Path) -> None:
    file.chmod(0o644)


def link(file: Path) -> None:
    moved = file.rename(file.with_suffix(".moved"))
    file.symlink_to(moved)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def bytes_of_no_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\n")


@pytest.mark.parametrize(
    "damage", [empty, cut, readable_by_others, link, pipe, bytes_of_no_text, folder], ids=lambda one: one.__name__
)
def test_a_file_that_is_not_whole_or_not_private_has_no_token_and_is_made_again(
    damage: Callable[[Path], None], places: SimpleNamespace
) -> None:
    new_token(PORT)
    places.of_user.unlink()
    damage(places.in_home)
    assert token_at(PORT) is None
    assert with_token(SHOWN) == SHOWN
    assert token_at(PORT) is None
    made = new_token(PORT)
    assert token_at(PORT) == made


def test_without_a_folder_for_it_no_server_starts_without_a_token(
    places: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.in_home.parent.write_text("no folder")
    places.of_user.parent.parent.write_text("no folder")
    with pytest.raises(EnvironmentNotFit, match="the token of the Spark server cannot be written") as found:
        new_token(PORT)
    assert "DAGSTER_HOME" in found.value.fix
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(lambda _: (_ for _ in ()).throw(RuntimeError("no home"))))
    with pytest.raises(EnvironmentNotFit):
        new_token(PORT)


@pytest.mark.parametrize(
    ("remote", "completed"),
    [
        (SHOWN, f"{SHOWN}/;authorization=Bearer%20a%2Bb"),
        (f"sc://localhost:{PORT}/", f"sc://localhost:{PORT}/;authorization=Bearer%20a%2Bb"),
        (f"sc://127.0.0.2:{PORT}", f"sc://127.0.0.2:{PORT}/;authorization=Bearer%20a%2Bb"),
        (f"sc://[::1]:{PORT}", f"sc://[::1]:{PORT}/;authorization=Bearer%20a%2Bb"),
        (f"{SHOWN}/;user_id=ada", f"{SHOWN}/;user_id=ada;authorization=Bearer%20a%2Bb"),
        (f"{SHOWN}/;token=mine", None),
        (f"{SHOWN}/;user_id=ada;use_ssl=true", None),
        (f"sc://spark.example.com:{PORT}", None),
        ("sc://127.0.0.1:15998", None),
        ("sc://127.0.0.1:port", None),
        (f"spark://127.0.0.1:{PORT}", None),
        ("nonsense", None),
    ],
)
def test_the_address_of_our_server_gets_the_token_and_others_stay_as_they_are(
    remote: str, completed: str | None, places: SimpleNamespace
) -> None:
    new_token(PORT, "a+b")
    assert with_token(remote) == (completed or remote)


def test_a_server_beyond_this_machine_says_that_it_is_open(places: SimpleNamespace, tmp_path: Path) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "java").write_text("#!/bin/sh\nexit 0\n")
    (fake / "java").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "fk_pipeline.servers.spark", "--host", "0.0.0.0", "--port", str(PORT)],
        env=environment | {"PATH": f"{fake}:{os.environ['PATH']}", "FK_PIPELINES": ""},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert f"whoever reaches 0.0.0.0:{PORT} can run code here" in done.stderr
    assert not places.in_home.exists()


@pytest.mark.parametrize(
    ("master", "setting", "asks"),
    [
        ("local[2]", {}, True),
        ("local[2]", {"spark.authenticate": "false"}, False),
        ("local[2]", {"spark.master": "spark://host:7077"}, False),  # such a cluster has a secret of its own, or none
        ("local-cluster[2,1,1024]", {}, False),
        ("spark://host:7077", {}, False),
    ],
)
def test_the_other_ports_of_a_local_spark_ask_for_a_secret(master: str, setting: dict[str, str], asks: bool) -> None:
    conf = session_conf(Settings(spark=setting), {"SPARK_MASTER": master})
    assert (conf.get("spark.authenticate") == "true") == asks


@pytest.mark.connect
def test_our_connect_server_takes_nobody_without_the_token(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if "connect" not in type(spark).__module__:
        pytest.skip("the session of this run is none of a Connect server")
    host, _, port = spark.client._builder.endpoint.rpartition(":")
    remote = f"sc://{host}:{port}"
    assert check_remote(remote) == spark.version
    token = token_at(int(port))
    assert token is not None
    assert spark.conf.get("spark.authenticate") == "true"
    assert spark.conf.get("spark.authenticate") == "true"
    commands = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    assert any("SparkConnectServer" in one and f"binding.port={port}" in one for one in commands)
    assert not [one for one in commands if token in one]
    with pytest.raises(EnvironmentNotFit, match="refuses this client: Invalid authentication token") as found:
        check_remote(f"{remote}/;authorization=Bearer%20{token}x")
    assert token not in str(found.value)
    client = SparkConnectClient(f"{remote}/;authorization=Bearer%20{token}x", retry_policy={"max_retries": 0})
    with pytest.raises(SparkConnectGrpcException) as refused:
        client.get_configs("spark.master")
    assert is_lost(refused.value), "a session of a server that was started anew is forgotten, and made anew"
    client.close()
    monkeypatch.setenv("XDG_STATE_HOME", "/nowhere")  # as another user, who cannot read the file
    with pytest.raises(EnvironmentNotFit, match="refuses this client: No authentication token provided"):
        check_remote(remote)
