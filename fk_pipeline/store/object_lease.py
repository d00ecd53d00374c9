"""The lease of `lease.py` for a warehouse in S3: an object that is written only by conditional puts (ADR 0018).

The object names its holder, which rewrites it while it works. A waiting run takes the lease over soon if the holder is
a dead process of its own host, and otherwise if the object has not changed for as long as the lease lasts, by the clock
of the waiting run, whatever it contains. Each write names the ETag of the object that it replaces (`If-Match`, or
`If-None-Match: *` for the first write), so one of two concurrent writes is refused. The object is never deleted: a
released lease has no holder.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from fk_pipeline.environment.process import Life, ProcessIdentity
from fk_pipeline.environment.storage import CONDITION_FAILED, Refusal, ask_s3
from fk_pipeline.environment.whole_files import whole
from fk_pipeline.errors import LeaseLostError, StorageError
from fk_pipeline.store.waiting import Holder, lease_taken, telling_waits

POLL_SECONDS = 1.0
"""Seconds between two reads of the lease by a waiting run."""

AFTERLIFE_SECONDS = 3.0
"""Seconds without a change after which a waiting run takes over the lease of a dead process. The JVM of that process
lives on for a moment, and S3 does not refuse a commit that it makes then.
"""


@dataclass(frozen=True)
class Content:
    """The content of a lease object.

    Attributes:
        holder: the fields of a `ProcessIdentity`, with `since` (when it took the lease) and `run_id` (for which run);
            None if no process holds the lease.
        token: identifies one holding of the lease.
        beat: the number of times that the holder has rewritten the object.
        lasts: seconds without a change after which the lease may be taken over.
    """

    holder: dict[str, Any] | None
    token: str
    beat: int
    lasts: float

    @classmethod
    def of(cls, content: dict[str, Any]) -> Content:
        """Returns the content from the fields of the object.

        Raises:
            KeyError, TypeError: they are not those of a lease.
        """
        if not isinstance(content["holder"], dict | None) or not isinstance(content["lasts"], int | float):
            raise TypeError("no lease")
        return cls(**content)


_UNKNOWN = Content({}, "", 0, 0.0)
"""Stands for the content of an object that is not that of a lease: somebody may hold it, and nothing is known of it."""


class LeaseObject:
    """One object in S3 that is read, and written conditionally.

    Args:
        url: `s3a://bucket/key`.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def read(self) -> tuple[Content, str] | None:
        """Returns the content of the object and its ETag; None if there is no object.

        Raises:
            StorageError: the store did not respond.
        """
        answer = ask_s3("get_object", self.url)
        if isinstance(answer, Refusal):
            if answer.code == "NoSuchKey":
                return None
            raise self._refused("read", answer)
        content = whole(answer["Body"].read(), Content.of)
        return _UNKNOWN if content is None else content, answer["ETag"]

    def write(self, content: Content, replaces: str | None) -> str | None:
        """Writes the object if it has not been written since it was read.

        Args:
            content: the new content.
            replaces: the ETag of the current object; None if there is none.

        Returns:
            The new ETag; None if another process has written the object.

        Raises:
            StorageError: the store did not respond; the object may have been written.
        """
        condition = {"IfNoneMatch": "*"} if replaces is None else {"IfMatch": replaces}
        answer = ask_s3("put_object", self.url, Body=json.dumps(asdict(content), indent=1).encode(), **condition)
        if not isinstance(answer, Refusal):
            return str(answer["ETag"])
        if answer.status not in CONDITION_FAILED or answer.code == "NoSuchBucket":
            raise self._refused("written", answer)
        stored = self.read()  # a put that is repeated because its reply got lost fails on its own first try
        return stored[1] if stored is not None and stored[0] == content else None

    def _refused(self, what: str, answer: Refusal) -> StorageError:
        return StorageError(
            f"the lease cannot be {what}: {answer.code}",
            where=self.url,
            why="without it two runs of one stage could bring back an old row",
            fix="make the bucket, or give these credentials the right to read and write there",
        )


class _Held:
    """A lease that this process holds, and the thread that rewrites its object."""

    def __init__(self, file: LeaseObject, content: Content, tag: str) -> None:
        self.file, self.content, self.tag = file, content, tag
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name=f"lease {file.url}")
        self._thread.start()

    def _beat(self) -> None:
        while not self._over.wait(self.content.lasts / 3):
            with suppress(StorageError):  # tried again; `is_held` reads the store itself
                following = Content(**{**asdict(self.content), "beat": self.content.beat + 1})
                tag = self.file.write(following, self.tag)
                if tag is None:
                    return
                self.content, self.tag = following, tag

    def is_held(self) -> bool:
        """Returns whether the object still names this holding."""
        stored = self.file.read()
        return stored is not None and stored[0].token == self.content.token and stored[0].holder is not None

    def give_back(self) -> None:
        """Ends the thread and writes the object without a holder; if the write fails, the lease expires."""
        self._over.set()
        self._thread.join()
        with suppress(StorageError):
            self.file.write(Content(None, self.content.token, 0, self.content.lasts), self.tag)


@contextmanager
def object_lease(
    home: str, what: str, wait_seconds: float, expires_after: float, run_id: str
) -> Iterator[Callable[[], None]]:
    """Holds a lease as `fk_pipeline.store.lease.lease` does, for a home in S3.

    Raises:
        LeaseTakenError: another process holds the lease for longer than `wait_seconds`.
        StorageError: the store did not respond.
    """
    file = LeaseObject(f"{home}/leases/{what}.lease")
    with telling_waits(what, wait_seconds, lambda: _holder(file)):
        held = _acquired(file, what, wait_seconds, expires_after, run_id)

    def check() -> None:
        if not held.is_held():
            raise LeaseLostError(
                f"this run lost its lease on {what}: it was not heard of for {expires_after:.0f} s",
                where=file.url,
                why="another run may have gone on since; committing now could bring back an old row",
                fix="run again: the batches stay due",
            )

    try:
        yield check
    finally:
        held.give_back()


def _holder(file: LeaseObject) -> Holder | None:
    with suppress(StorageError, KeyError):
        stored = file.read()
        return None if stored is None or stored[0].holder is None else Holder.of(stored[0].holder)
    return None


def _acquired(file: LeaseObject, what: str, wait_seconds: float, expires_after: float, run_id: str) -> _Held:
    me = ProcessIdentity.of().as_json() | {"since": time.time(), "run_id": run_id}
    own = Content(me, uuid.uuid4().hex, 0, expires_after)
    deadline = time.monotonic() + wait_seconds
    seen, since = "", 0.0
    while True:
        stored = file.read()
        if stored is None:
            free, tag = True, None
        else:
            content, tag = stored
            if tag != seen:
                seen, since = tag, time.monotonic()
            silent = time.monotonic() - since
            free = content.holder is None or silent >= max(content.lasts, expires_after)
            free = free or (silent >= AFTERLIFE_SECONDS and _is_dead(content.holder))
        if free:
            written = file.write(own, tag)
            if written is not None:
                return _Held(file, own, written)
        left = deadline - time.monotonic()
        if left <= 0:
            raise lease_taken(what, wait_seconds, _holder(file), file.url)
        time.sleep(min(POLL_SECONDS, left, expires_after / 3))


def _is_dead(holder: dict[str, Any] | None) -> bool:
    try:
        known = {field.name for field in fields(ProcessIdentity)}
        who = {name: value for name, value in (holder or {}).items() if name in known}
        return holder is not None and ProcessIdentity.from_json(who).life() is Life.DEAD
    except TypeError:  # written by another version of this project
        return False
