"""Records by key, in memory or, where they are many, in temporary files that are taken into memory one by one."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self
from zlib import crc32

_MOST = 200
"""The largest number of files that are open at once."""

_AT_ONCE = 1 << 25
"""Bytes of landing files whose records are in memory at once."""


class Buckets:
    """Values by key.

    Args:
        size: bytes of the landing files whose records are added.
    """

    def __init__(self, size: int) -> None:
        self._files: list[Any] = []
        self._memory: dict[Any, list[Any]] = {}
        self._number = min(_MOST, size // _AT_ONCE)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for _ in range(self._number):
            self._files.append(self._stack.enter_context(tempfile.TemporaryFile()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, key: Any, value: Any) -> None:
        """Adds a value of a key."""
        if not self._files:
            self._memory.setdefault(key, []).append(value)
        else:
            pickle.dump((key, value), self._files[slot_of(key) % self._number], pickle.HIGHEST_PROTOCOL)

    def groups(self) -> Iterator[tuple[Any, list[Any]]]:
        """Yields each key with its values, in the order in which they were added."""
        yield from self._memory.items()
        for file in self._files:
            file.seek(0)
            by_key: dict[Any, list[Any]] = {}
            try:
                while True:
                    key, value = pickle.load(file)  # noqa: S301 - our own, of a moment ago
                    by_key.setdefault(key, []).append(value)
            except EOFError:
                pass
            yield from by_key.items()


def slot_of(key: Any) -> int:
    """Returns a number of 32 bits that depends on the key alone; equal keys have equal numbers."""
    return crc32(repr(key).encode("utf-8", "surrogatepass"))
