"""The note of the session that is at a stage: a file on a disk, an object in S3."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.connect.client.core import DefaultChannelBuilder

from fk_pipeline.engine import sole
from fk_pipeline.engine.sole import sole_session
from fk_pipeline.environment.storage import filesystem


@pytest.fixture(params=["local", "s3"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The folder of a pipeline, on a disk and in a bucket."""
    return str(tmp_path) if request.param == "local" else f"{request.getfixturevalue('s3')}/pipeline"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions that were ended."""
    found: list[str] = []
    monkeypatch.setattr(sole, "end_session", lambda _, session_id: found.append(session_id))
    return found


def connected(session_id: str) -> Any:
    """A session of Spark Connect, as far as it is asked for here."""
    return SimpleNamespace(session_id=session_id, interruptAll=lambda: None)


def notes(home: str) -> list[str]:
    fs, root = filesystem(home)
    return sorted(name.rsplit("/", 1)[-1] for name in fs.find(root))


def test_a_session_is_noted_while_it_is_at_work(home: str, ended: list[str]) -> None:
    with sole_session(connected("mine"), home, ["one", "other"]):
        assert notes(home) == ["one.session", "other.session"]
    assert notes(home) == []
    assert ended == []


def test_the_session_of_a_dead_run_is_ended_once_and_its_notes_are_taken_over(home: str, ended: list[str]) -> None:
    dead = sole_session(connected("dead"), home, ["one", "other"])
    dead.__enter__()  # and it never comes to the end of the block
    with sole_session(connected("mine"), home, ["one", "other"]):
        assert ended == ["dead"]
        with sole_session(connected("next"), home, ["one"]):
            pass
    assert ended == ["dead", "mine"]
    assert notes(home) == []


def test_a_note_that_is_not_whole_does_not_stop_the_next_run(home: str) -> None:
    """No server is asked: none can have such a session."""
    fs, root = filesystem(home)
    session, session_id = connected("mine"), str(uuid.uuid4())
    session.client = SimpleNamespace(_builder=DefaultChannelBuilder("sc://127.0.0.1:1"), _user_id="somebody")
    for note in (*(session_id[:length] for length in range(0, len(session_id), 5)), "\0" * 36, "\udcff"):
        fs.makedirs(f"{root}/leases", exist_ok=True)
        fs.pipe_file(f"{root}/leases/one.session", note.encode(errors="surrogateescape"))
        with sole_session(session, home, ["one"]):
            assert notes(home) == ["one.session"]
    assert notes(home) == []


def test_a_classic_session_leaves_no_note(home: str, ended: list[str]) -> None:
    with sole_session(SimpleNamespace(), home, ["one"]):  # type: ignore[arg-type]
        assert notes(home) == []
