"""One run of a stage of a pipeline at a time (architecture, rule 8), for the command and Dagster alike.

On a local warehouse the lease is an operating-system file lock: it ends with its process, however that dies, so a
killed run can be started again at once. On an object store there is no lease yet: let one scheduler do all runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fk_pipeline.errors import LeaseTakenError


@contextmanager
def lease(home: str, what: str, *, wait_seconds: float = 600.0) -> Iterator[None]:
    """Holds the lease on `what` under a pipeline's folder while the block runs.

    Raises:
        LeaseTakenError: another process holds it for longer than `wait_seconds`.
    """
    if "://" in home:
        yield
        return
    folder = Path(home) / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{what}.lock")
    try:
        lock.acquire(timeout=wait_seconds)
    except Timeout:
        raise LeaseTakenError(
            f"another run has held {what} for more than {wait_seconds:.0f} s",
            where=home,
            why="two runs of one stage at a time could bring back an old row",
            fix="wait for the other run, or end it, and run again",
        ) from None
    try:
        yield
    finally:
        lock.release()
