"""Leases allow one run of a stage of a pipeline at a time (architecture, rule 8), for the command and Dagster alike.

The lease is a file below the pipeline's tables. It names its holder, which refreshes it while it works. A waiting run
takes it over at once if the holder is a dead process of the same host, and otherwise once it has not been refreshed for
`EXPIRES_AFTER_SECONDS`, whatever it contains (`abandoned.py`). A holder that lost it (a machine that slept) finds that
out before its next commit. In S3 the lease is an object (`object_lease.py`). In other object stores there is none yet:
let one scheduler do all runs.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from fk_pipeline.environment.refusals import telling_refusals
from fk_pipeline.environment.storage import is_s3
from fk_pipeline.environment.whole_files import read_whole
from fk_pipeline.errors import LeaseLostError
from fk_pipeline.store.abandoned import AbandonedLease
from fk_pipeline.store.waiting import Holder, lease_taken, telling_waits

EXPIRES_AFTER_SECONDS = 60.0
"""Seconds without a refresh after which a lease expires; it is refreshed three times as often.

All hosts that share a warehouse must use the same value.
"""

LOOK_SECONDS = 1.0
"""Seconds between two looks of a waiting run whether the lease is one that nobody holds any more."""

LeaseCheck = Callable[[], None]
"""A function that raises LeaseLostError if the lease that it belongs to is no longer held."""


@contextmanager
def lease(
    home: str,
    what: str,
    *,
    wait_seconds: float = 600.0,
    expires_after: float = EXPIRES_AFTER_SECONDS,
    run_id: str = "",
) -> Iterator[LeaseCheck]:
    """Holds the lease on `what` under a pipeline's folder while the block runs; yields a check that it is still held.

    A run that waits for the lease reports its holder (`waiting.py`).

    Args:
        home: the folder.
        what: the name of the lease, for example a stage.
        wait_seconds: the longest time to wait for another holder.
        expires_after: seconds without a refresh by the holder after which others take it over.
        run_id: the id of the run that needs it, which waiting runs report.

    Raises:
        LeaseTakenError: another process holds it for longer than `wait_seconds`.
    """
    if is_s3(home):
        from fk_pipeline.store.object_lease import object_lease

        with object_lease(home, what, wait_seconds, expires_after, run_id) as object_check:
            yield object_check
        return
    if "://" in home:
        yield lambda: None
        return
    file = Path(home) / "leases" / f"{what}.lease"
    with telling_refusals(home):
        file.parent.mkdir(parents=True, exist_ok=True)
        held = SoftFileLease(file, lease_duration=expires_after, thread_local=False)
        with telling_waits(what, wait_seconds, lambda: _holder(held)):
            taken = _take(held, wait_seconds)
    if not taken:
        raise lease_taken(what, wait_seconds, _holder(held), str(file))
    token = held.token
    note = {"token": token, "pid": os.getpid(), "host": socket.gethostname(), "since": time.time(), "run_id": run_id}
    with suppress(OSError):  # nothing depends on it
        _note(held).write_text(json.dumps(note))

    def check() -> None:
        owner = held.owner
        if token is None or held.compromise is not None or owner is None or owner.token != token:
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
def leases(home: str, names: Iterable[str]) -> Iterator[LeaseCheck]:
    """Holds several leases, taken in the order given; yields a check that all are still held."""
    with ExitStack() as stack:
        held = [stack.enter_context(lease(home, name)) for name in names]

        def check() -> None:
            for still_held in held:
                still_held()

        yield check


def _take(held: SoftFileLease, wait_seconds: float) -> bool:
    """Takes a lease; returns False if another process has held it all the time."""
    abandoned, deadline = AbandonedLease(held), time.monotonic() + wait_seconds
    while True:
        left = deadline - time.monotonic()
        try:
            held.acquire(timeout=max(0.0, min(left, LOOK_SECONDS)))
        except (Timeout, LeaseSettingsMismatch) as refused:
            if abandoned.remove():
                continue
            if left <= 0:
                return False
            if not isinstance(refused, Timeout):  # raised at once: a record of another length, or a cut one
                time.sleep(min(left, LOOK_SECONDS))
        else:
            return True


def _holder(held: SoftFileLease) -> Holder | None:
    """Returns the holder of a lease from its file and the note that the holder wrote beside it; None if unknown."""
    owner, holder = held.owner, None
    if owner is None:
        return None
    with suppress(OSError):
        holder = read_whole(_note(held), lambda note: Holder.of(note) if note["token"] == owner.token else None)
    return holder or Holder(owner.pid, owner.hostname)


def _note(held: SoftFileLease) -> Path:
    return Path(held.lock_file).with_suffix(".holder")
