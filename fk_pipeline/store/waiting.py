"""Reports which process a run waits for while another holds the lease: after a second, then every minute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

from fk_pipeline.errors import LeaseTakenError, escaped

FIRST_SECONDS = 1.0
"""Seconds after which a wait is reported first; a lease that is not in use changes its holder sooner."""

EVERY_SECONDS = 60.0
"""Seconds between later reports."""

WaitListener = Callable[[str], None]

_listeners: list[WaitListener] = []


@dataclass(frozen=True)
class Holder:
    """The holder of a lease, as far as it is known.

    Attributes:
        pid: the id of the process.
        host: the host of the process.
        since: the time at which it took the lease, in seconds since 1970; None if unknown.
        run_id: the id of the run of the stage; empty if the lease is for something else.
    """

    pid: int
    host: str
    since: float | None = None
    run_id: str = ""

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Holder:
        """Returns the holder from the fields of a lease; other fields are ignored."""
        return cls(fields["pid"], fields["host"], fields.get("since"), fields.get("run_id", ""))

    def __str__(self) -> str:
        run = f", run {self.run_id}" if self.run_id else ""
        since = "" if self.since is None else datetime.fromtimestamp(self.since, UTC).strftime(", since %F %T UTC")
        return f"process {self.pid} on {self.host}{run}{since}"


@contextmanager
def hearing(listener: WaitListener) -> Iterator[None]:
    """Reports every wait to the listener while the block runs; without any listener it goes to stderr."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def telling_waits(what: str, wait_seconds: float, holder: Callable[[], Holder | None]) -> Iterator[None]:
    """Reports the holder of a lease while the block waits for it.

    Args:
        what: the lease.
        wait_seconds: the longest time that the block waits.
        holder: returns the current holder; None if there is none, or if it cannot be found out.
    """
    over, listeners = Event(), [*_listeners] or [_to_stderr]

    def tell() -> None:
        pause = FIRST_SECONDS
        while not over.wait(pause):
            pause = EVERY_SECONDS
            current = holder()
            if current is not None and not over.is_set():
                for listener in listeners:
                    listener(f"waiting for {current}, which holds {what}; for {wait_seconds:.0f} s at most")

    thread = Thread(target=tell, daemon=True, name=f"waiting for {what}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def lease_taken(what: str, wait_seconds: float, holder: Holder | None, where: str) -> LeaseTakenError:
    """Returns the error of a run that has waited for a lease in vain."""
    fix = "wait for the other run, or end it, and run again"
    return LeaseTakenError(
        f"another run has held {what} for more than {wait_seconds:.0f} s: {holder or 'nobody knows which'}",
        where=where,
        why="two runs of one stage at a time could bring back an old row",
        fix=fix if holder else f"{fix}; if none is at work, remove {where}",
    )


def _to_stderr(message: str) -> None:
    sys.stderr.write(f"{escaped(message)}\n")
    sys.stderr.flush()
