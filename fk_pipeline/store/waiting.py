"""Says for whom a run waits, while it wants a lease that another holds: soon, and then now and again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

FIRST_SECONDS = 1.0
"""A wait is told that is longer: leases change hands quicker where nobody is at work."""

EVERY_SECONDS = 60.0

WaitListener = Callable[[str], None]

_listeners: list[WaitListener] = []


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, as far as it is known.

    Attributes:
        pid: of the process.
        host: of the process.
        since: when it took the lease, in seconds since 1970.
        run_id: of the run of the stage; empty where it is for something else.
    """

    pid: int
    host: str
    since: float | None = None
    run_id: str = ""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Holder:
        """What a lease says of its holder, with whatever else it says."""
        return cls(told["pid"], told["host"], told.get("since"), told.get("run_id", ""))

    def __str__(self) -> str:
        run = f", run {self.run_id}" if self.run_id else ""
        since = "" if self.since is None else datetime.fromtimestamp(self.since, UTC).strftime(", since %F %T UTC")
        return f"process {self.pid} on {self.host}{run}{since}"


@contextmanager
def hearing(listener: WaitListener) -> Iterator[None]:
    """Tells the listener of every wait while the block runs; otherwise stderr says it."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def telling_waits(what: str, wait_seconds: float, holder: Callable[[], Holder | None]) -> Iterator[None]:
    """Tells, while the block waits for a lease, who holds it.

    Args:
        what: the lease.
        wait_seconds: how long the block waits at most.
        holder: looks who holds it now; None when nobody does, or when that cannot be seen.
    """
    over, listeners = Event(), [*_listeners] or [_to_stderr]

    def tell() -> None:
        pause = FIRST_SECONDS
        while not over.wait(pause):
            pause = EVERY_SECONDS
            found = holder()
            if found is not None and not over.is_set():
                for listener in listeners:
                    listener(f"waiting for {found}, which holds {what}; for {wait_seconds:.0f} s at most")

    thread = Thread(target=tell, daemon=True, name=f"waiting for {what}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _to_stderr(said: str) -> None:
    sys.stderr.write(f"{said}\n")
    sys.stderr.flush()
