"""One run of a stage of a pipeline at a time (architecture, rule 8), for the command and Dagster alike.

The lease is a file below the pipeline's tables. It names its holder, who refreshes it at work. A waiting run takes it
over at once when the holder is a dead process of its own host, and otherwise when it has not been refreshed for
`EXPIRES_AFTER_SECONDS`. A holder that lost it (a machine that slept) finds that out before its next commit. In S3 the
lease is an object (`object_lease.py`). In other object stores there is none yet: let one scheduler do all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import SoftFileLease, Timeout

from fk_pipeline.environment.refusals import telling_refusals
from fk_pipeline.environment.storage import is_s3
from fk_pipeline.errors import LeaseLostError, LeaseTakenError

EXPIRES_AFTER_SECONDS = 60.0
"""Without a refresh; it is refreshed three times as often. All hosts that share a warehouse must agree on it."""

Check = Callable[[], None]
"""Raises LeaseLostError when the lease that it belongs to is not held any more."""


@contextmanager
def lease(
    home: str, what: str, *, wait_seconds: float = 600.0, expires_after: float = EXPIRES_AFTER_SECONDS
) -> Iterator[Check]:
    """Holds the lease on `what` under a pipeline's folder while the block runs; yields a check that it is still held.

    Raises:
        LeaseTakenError: another process holds it for longer than `wait_seconds`.
    """
    if is_s3(home):
        from fk_pipeline.tables.object_lease import object_lease

        with object_lease(home, what, wait_seconds=wait_seconds, expires_after=expires_after) as held_there:
            yield held_there
        return
    if "://" in home:
        yield lambda: None
        return
    file = Path(home) / "leases" / f"{what}.lease"
    try:
        with telling_refusals(home):
            file.parent.mkdir(parents=True, exist_ok=True)
            held = SoftFileLease(file, lease_duration=expires_after, thread_local=False)
            held.acquire(timeout=wait_seconds)
    except Timeout:
        raise LeaseTakenError(
            f"another run has held {what} for more than {wait_seconds:.0f} s",
            where=str(file),
            why="two runs of one stage at a time could bring back an old row",
            fix="wait for the other run, or end it, and run again; the file names the process that holds it",
        ) from None
    token = held.token

    def check() -> None:
        if token is None or held.compromise is not None or token not in _content(file):
            raise LeaseLostError(
                f"this run lost its lease on {what}: it was not heard of for {expires_after:.0f} s",
                where=str(file),
                why="another run may have gone on since; committing now could bring back an old row",
                fix="run again: the batches stay due",
            )

    try:
        yield check
    finally:
        held.release()


@contextmanager
def leases(home: str, names: Iterable[str]) -> Iterator[Check]:
    """Holds several leases, taken in the order given; yields a check that all are still held."""
    with ExitStack() as stack:
        held = [stack.enter_context(lease(home, name)) for name in names]

        def check() -> None:
            for still_held in held:
                still_held()

        yield check


def _content(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""
