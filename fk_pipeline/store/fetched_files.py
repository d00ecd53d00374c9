"""Copies of table files in S3 on the local disk: a table file never changes, so each is fetched once (ADR 0061)."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from fk_pipeline.environment import storage
from fk_pipeline.environment.scratch import scratch_folder

CACHE_BYTES = 2**30
"""The most bytes of all copies of a process; those that nobody read for longest are removed first."""


class FetchedFiles:
    """The copies that one process has, in its private folder.

    Args:
        folder: the folder; it need not exist.
        most_bytes: the most bytes of the copies that are not just being asked for.
    """

    def __init__(self, folder: Path, most_bytes: int = CACHE_BYTES) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._lock = threading.Lock()  # checks look rows up in several threads
        self._bytes: OrderedDict[Path, int] = OrderedDict()
        """The size of each copy; the copy that was read last is the last one."""

    def lacking(self, files: Mapping[str, int]) -> int:
        """Returns the bytes of those files, given with their sizes, of which there is no copy."""
        with self._lock:
            return sum(size for uri, size in files.items() if self._copy(uri) not in self._bytes)

    def copies(self, files: Mapping[str, int]) -> dict[str, str]:
        """Returns the path of a copy per file, and fetches those that are lacking. A copy has the name of its file.

        Args:
            files: the sizes of the files, by URI.

        Raises:
            OSError: a file is gone, cannot be read or has another size; or the disk is full.
        """
        paths = {uri: self._copy(uri) for uri in files}
        with self._lock:
            lacking = {uri: copy for uri, copy in paths.items() if copy not in self._bytes}
            if lacking:
                self._fetch(lacking, files)
            for copy in paths.values():
                self._bytes.move_to_end(copy)
            self._forget(keep=frozenset(paths.values()))
        return {uri: str(copy) for uri, copy in paths.items()}

    def _fetch(self, copies: Mapping[str, Path], sizes: Mapping[str, int]) -> None:
        """Fetches files, several at once."""
        fs, _ = storage.filesystem(next(iter(copies)))
        begun = {uri: copy.with_name(f".{copy.name}") for uri, copy in copies.items()}
        for copy in copies.values():
            copy.parent.mkdir(parents=True, exist_ok=True)
        with storage.as_os_errors():
            fs.get([storage.filesystem(uri)[1] for uri in begun], [*map(str, begun.values())])
        for uri, file in begun.items():
            if file.stat().st_size != sizes[uri]:
                raise OSError(f"{uri} has {file.stat().st_size} bytes, and {sizes[uri]} in the log of its table")
            file.replace(copies[uri])
            self._bytes[copies[uri]] = sizes[uri]

    def _forget(self, keep: frozenset[Path]) -> None:
        """Removes the copies that nobody read for longest, if all together are too large."""
        size = sum(self._bytes.values())
        for copy in [copy for copy in self._bytes if copy not in keep]:
            if size <= self._most_bytes:
                return
            size -= self._bytes.pop(copy)
            with suppress(OSError):
                copy.unlink()

    def _copy(self, uri: str) -> Path:
        folder, _, name = uri.rpartition("/")
        return self._folder / hashlib.sha256(folder.encode()).hexdigest()[:32] / name


def fetched_files() -> FetchedFiles:
    """Returns the copies of this process."""
    return _fetched_files_of(os.getpid())


@cache
def _fetched_files_of(_process: int) -> FetchedFiles:  # a forked process has copies of its own
    return FetchedFiles(scratch_folder() / "fetched")
