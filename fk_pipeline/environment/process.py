"""The identity of a process, with which another process can prove later that it is dead."""

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
"""Seconds by which two readings of a process's start time may differ: the clock may have been set in between."""


class Life(StrEnum):
    """The state of a process, as far as it is known."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ProcessIdentity:
    """The permanent identity of a process: its number is used again, but not with its start, its host and its boot.

    Attributes:
        host: the name of the host.
        machine: the id of the host, if it has one: names may be the same.
        boot: the id of the boot of the host's kernel, or the time of the boot.
        space: the namespace of the process numbers; a container has one of its own.
        pid: the process number.
        started: the start time in seconds since 1970.
    """

    host: str
    machine: str
    boot: str
    space: str
    pid: int
    started: float

    @classmethod
    def of(cls, pid: int | None = None) -> ProcessIdentity:
        """Returns the identity of a live process of this host; by default of this process."""
        process = psutil.Process(pid)
        return cls(socket.gethostname(), _machine(), _boot(), _space(), process.pid, process.create_time())

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ProcessIdentity:
        """Returns the identity from the fields that `as_json` returned."""
        return cls(**fields)

    def as_json(self) -> dict[str, Any]:
        """Returns the fields of the identity."""
        return asdict(self)

    def life(self) -> Life:
        """Returns whether the process is alive; UNKNOWN if that cannot be seen from here."""
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
