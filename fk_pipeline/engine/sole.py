"""On Spark Connect the operations of a run outlive its process: a run that takes over a stage ends them first.

The lease (`store.lease`) of a dead process is free at once. In a classic session Spark died with that process; a
Connect server continues, and could commit the dead run's work after the next run has committed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem
from pyspark.sql import SparkSession

from fk_pipeline.environment import storage
from fk_pipeline.environment.whole_files import write_whole
from fk_pipeline.errors import StateError
from fk_pipeline.store.lease import LeaseCheck, leases

_GONE = ("SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED")
"""What the errors of a server contain for a session that it ended, or that it had before it was restarted."""

_ENDING = "SPARK_CONNECT_ILLEGAL_STATE"
"""What its errors contain while it interrupts an operation of the session."""

INTERRUPT_SECONDS = 60.0
"""Seconds that the interruption of an operation may take."""


@contextmanager
def sole_stages(session: SparkSession, home: str, names: Sequence[str]) -> Iterator[LeaseCheck]:
    """Holds the leases of some stages, and ends what dead runs of them left at work; yields a check of the leases."""
    with leases(home, names) as held, sole_session(session, home, names):
        yield held


@contextmanager
def sole_session(session: SparkSession, home: str, names: Iterable[str]) -> Iterator[None]:
    """Ends the sessions of runs that died at some work; records this session as the one at work while the block runs.

    Args:
        session: the current session; nothing is done for a classic one.
        home: the folder of the pipeline's tables.
        names: the leases of the work, which the caller holds.
    """
    own_id: str | None = getattr(session, "session_id", None)
    if own_id is None:
        yield
        return
    notes = [_Note(f"{home}/leases/{name}.session") for name in names]
    for session_id in {note.read() for note in notes} - {own_id, ""}:
        end_session(session, session_id)
    for note in notes:
        note.write(own_id)

    def forget() -> None:
        for note in notes:
            if note.read() == own_id:  # a run that took over has left its own note
                note.remove()

    try:
        yield
    except BaseException:  # the operations may still run: after an interrupt, or when the server did not respond
        with suppress(Exception):  # the server is gone: the next run reads the notes
            session.interruptAll()
            forget()
        raise
    forget()


class _Note:
    """A file or object with the id of a session."""

    def __init__(self, path: str) -> None:
        self._fs, self._path = storage.filesystem(path)

    def read(self) -> str:
        """Returns the id; empty if there is no note."""
        try:
            return str(self._fs.cat_file(self._path).decode(errors="replace"))
        except FileNotFoundError:
            return ""

    def write(self, text: str) -> None:
        """Writes the note as a whole: an object by itself, a file by renaming it."""
        if not isinstance(self._fs, LocalFileSystem):
            self._fs.pipe_file(self._path, text.encode())
            return
        file = Path(self._path)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode())

    def remove(self) -> None:
        """Removes the note, if there is one."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path)


def end_session(session: SparkSession, session_id: str) -> None:
    """Ends another session of the same user on the same Connect server, and its operations.

    Does nothing if no session can have the id, because the note was cut.

    Raises:
        StateError: the operations still run after `INTERRUPT_SECONDS`.
    """
    from pyspark.errors import PySparkValueError
    from pyspark.sql.connect.client import SparkConnectClient

    builder = copy.deepcopy(session.client._builder)  # noqa: SLF001 - its connection settings, tokens included
    builder.set("session_id", session_id)
    try:
        client = SparkConnectClient(builder, user_id=session.client._user_id)  # noqa: SLF001
    except PySparkValueError:
        return
    deadline = time.monotonic() + INTERRUPT_SECONDS
    try:
        while time.monotonic() < deadline:
            try:
                client.interrupt_all()
                client.release_session()
            except Exception as error:
                if any(sign in str(error) for sign in _GONE):
                    return
                if _ENDING not in str(error):
                    raise
            time.sleep(0.2)
        raise StateError(
            f"what a dead run asked the Spark server for goes on after {INTERRUPT_SECONDS:.0f} s",
            where=f"session {session_id}",
            why="it could commit after this run",
            fix="restart the Spark server, and run again",
        )
    finally:
        client.close()
