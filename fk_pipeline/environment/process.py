"""Which process did something, so that it can be proved later that it is dead."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID = Path("/etc/machine-id")
_PID_SPACE = Path("/proc/self/ns/pid")
_SECONDS_APART = 5.0
"""Start times of one process, told twice, differ by less: the clock may have been set in between."""


class Life(StrEnum):
    """What is known of a process."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ProcessIdentity:
    """A process for ever: a number is used again, a number with its start on a host since a boot is not.

    Attributes:
        host: its name.
        machine: its id, where it has one: names may be the same.
        boot: of the host's kernel, or the time of it.
        space: of the process numbers; a container has one of its own.
        pid: the number.
        started: in seconds since 1970.
    """

    host: str
    machine: str
    boot: str
    space: str
    pid: int
    started: float

    @classmethod
    def of(cls, pid: int | None = None) -> ProcessIdentity:
        """A process of this host that is alive; this one by default."""
        process = psutil.Process(pid)
        return cls(socket.gethostname(), _machine(), _boot(), _space(), process.pid, process.create_time())

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ProcessIdentity:
        """What `as_json` returned."""
        return cls(**fields)

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    def life(self) -> Life:
        """Whether it is alive; not known where that cannot be seen from here."""
        if (self.host, self.machine) != (socket.gethostname(), _machine()):
            return Life.UNKNOWN
        if self.boot != _boot():
            return Life.DEAD
        if self.space != _space():
            return Life.UNKNOWN
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < _SECONDS_APART
            return Life.ALIVE if same and process.status() != psutil.STATUS_ZOMBIE else Life.DEAD
        except psutil.NoSuchProcess:
            return Life.DEAD

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _boot() -> str:
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else f"{psutil.boot_time():.0f}"


def _machine() -> str:
    return _MACHINE_ID.read_text().strip() if _MACHINE_ID.exists() else ""


def _space() -> str:
    return str(_PID_SPACE.readlink()) if _PID_SPACE.is_symlink() else ""
