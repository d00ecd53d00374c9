"""Removes lease files that nobody holds any more and that filelock leaves where they are (ADR 0007).

filelock takes over a lease whose holder is dead or silent. It never takes over an empty file, which is what a process
leaves that dies while it makes the file, nor any file where the file system cannot exchange two names in one step, as
NFS and SMB cannot.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from filelock import FileLock, SoftFileLease, Timeout

SPARE = 4 / 3
"""How much longer than a lease lasts its file must be unchanged before it is removed, so that filelock comes first."""

EVERYBODY = 0o666
"""The mode of the lock: whoever may write the folder of the leases may remove one, not only who did so first."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)


class AbandonedLease:
    """The file of a lease that a run waits for."""

    def __init__(self, lease: SoftFileLease) -> None:
        """Takes the lease, which the run does not hold."""
        self._lease, self._file = lease, Path(lease.lock_file)
        self._seen: tuple[int, ...] = ()
        self._since = 0.0

    def remove(self) -> bool:
        """Removes the file if nobody holds the lease any more; returns whether it did.

        That is so if the file is empty and older than the lease lasts, by the clock of the file system; or if it has
        not changed for `SPARE` times as long, by the clock of this run. One process at a time looks and removes, under
        a lock of the operating system, so that none removes the file of another that has just taken the lease.

        Raises:
            OSError: the file system refuses the removal.
        """
        try:
            if self._is_empty() or self._is_silent():
                lock = self._file.with_name("takeover.lock")
                with FileLock(lock, timeout=0, mode=EVERYBODY, fallback_to_soft=False):
                    os.utime(lock)
                    age = lock.stat().st_mtime - self._file.stat().st_mtime
                    if self._is_silent() or (self._is_empty() and age >= self._lease.lease_duration):
                        self._file.unlink()
                        return True
        except (Timeout, FileNotFoundError):  # another process removes it, or it is gone
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return False

    def _is_empty(self) -> bool:
        return self._file.stat().st_size == 0

    def _is_silent(self) -> bool:
        """Returns whether the file is still the one of the last look, and was not touched for long enough since."""
        status = self._file.stat()
        seen = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        owner = self._lease.owner
        lasts = max(self._lease.lease_duration, (owner and owner.lease_duration) or 0.0)
        return time.monotonic() - self._since >= SPARE * lasts
