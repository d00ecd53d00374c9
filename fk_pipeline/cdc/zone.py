"""The listing of landing zones. It uses fsspec, for a local folder Python itself, and never starts Spark.

Links are followed. Names that start with `.` or `_` are ignored: writers rename complete files into place.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fsspec.implementations.local import LocalFileSystem

from fk_pipeline.cdc.names import as_utf8, real
from fk_pipeline.environment import storage
from fk_pipeline.spec.paths import GLOB

FILE, FOLDER, BROKEN_LINK = "file", "folder", "broken link"


@dataclass(frozen=True)
class FoundFile:
    """A file in the landing zone as its storage describes it, or another entry there, such as a folder.

    Attributes:
        path: a URI, or a local path as `fk_pipeline.cdc.names` records it.
        size: its size in bytes.
        modified: the storage's own text for time or etag.
        kind: `file`, or the kind of the entry, such as `folder`.
    """

    path: str
    size: int
    modified: str
    kind: str = FILE


class LandingZone(Protocol):
    """The interface of a landing zone as the engine uses it; tests have their own implementation."""

    def list(self, location: str) -> list[FoundFile]:
        """Returns the entries of a folder, or those that match a glob, except names that start with `.` or `_`."""
        ...

    def exists(self, location: str) -> bool:
        """Returns whether the folder exists, or the folder from which a glob starts."""
        ...

    def digest(self, file: FoundFile) -> str:
        """Returns a digest of a file's content."""
        ...


class FsspecLandingZone:
    """A landing zone on any file system that fsspec knows."""

    def list(self, location: str) -> list[FoundFile]:
        fs, root = storage.filesystem(location)
        listed = _local(root) if isinstance(fs, LocalFileSystem) else self._remote(fs, root, location)
        files = [file for file in listed if _is_data(file.path)]
        return sorted(files, key=lambda f: (f.path.rsplit("/", 1)[-1], f.path))

    def exists(self, location: str) -> bool:
        fs, root = storage.filesystem(location)
        return bool(fs.exists(root) or (GLOB.search(root) and fs.exists(before_glob(root))))

    def _remote(self, fs: Any, root: str, location: str) -> Iterator[FoundFile]:
        if fs.isdir(root):
            entries = fs.ls(root, detail=True)
        elif fs.isfile(root):
            entries = [fs.info(root)]
        else:
            entries = list(fs.glob(root, detail=True).values()) if GLOB.search(root) else []
        scheme = storage.scheme_of(location)
        for entry in entries:
            name = re.sub(r"^[a-z][a-z0-9+.-]*://", "", entry["name"]).rstrip("/")
            kind = FILE if entry.get("type") == "file" else FOLDER
            if name != root.rstrip("/"):  # an empty object may stand for the folder itself
                yield FoundFile(f"{scheme}://{name}", int(entry.get("size") or 0), self._modified(entry), kind)

    @staticmethod
    def _modified(entry: dict[str, Any]) -> str:
        for name in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created"):
            if entry.get(name):
                return str(entry[name])
        return ""

    def digest(self, file: FoundFile) -> str:
        if file.modified and "://" in file.path:
            return f"{file.size}:{file.modified}"  # an object's etag or time: hashing it would read the whole object
        digest = hashlib.sha256()
        with storage.opened(real(file.path)) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()


def _local(root: str) -> Iterator[FoundFile]:
    """Yields the entries of a local folder, or those that match a glob; links are followed."""
    folder = Path(root) if Path(root).is_dir() else Path(_unescaped(root))
    inside = folder.iterdir() if folder.is_dir() else map(Path, glob.glob(root, recursive=True))  # noqa: PTH207
    for path in inside:  # a pattern for `Path.glob` cannot have characters of its folder escaped
        try:
            about = path.stat()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                raise
            if path.is_symlink():  # otherwise it was removed during the listing
                yield FoundFile(as_utf8(str(path)), 0, "", BROKEN_LINK)
            continue
        kind = FILE if stat.S_ISREG(about.st_mode) else FOLDER if stat.S_ISDIR(about.st_mode) else "no file"
        yield FoundFile(as_utf8(str(path)), about.st_size, str(about.st_mtime), kind)


def _unescaped(root: str) -> str:
    """Returns the path from which `glob.escape` made a pattern."""
    return re.sub(r"\[([*?[])\]", r"\1", root)


def before_glob(root: str) -> str:
    """Returns the folder from which a glob starts."""
    parts = root.split("/")
    fixed = next(i for i, part in enumerate(parts) if GLOB.search(re.sub(r"\[[*?[]\]", "", part)))
    return _unescaped("/".join(parts[:fixed])) or "/"


def _is_data(path: str) -> bool:
    return not path.rsplit("/", 1)[-1].startswith((".", "_"))
