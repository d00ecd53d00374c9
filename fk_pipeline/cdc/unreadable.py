"""Landing files that cannot be read to their end (`docs/reference/landing.md`): where that is, and what comes before.

Looked for only after Spark failed on a file. Of a gzip file that ends early the whole lines are kept; a Parquet file is
read in full or not at all.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from fk_pipeline.environment import storage

UNREADABLE = "unreadable from byte "
"""How the reason of such a record begins."""

_BLOCK = 1 << 16
_GZIP = 31
"""Window bits of zlib that stand for gzip."""


@dataclass(frozen=True)
class Unreadable:
    """Where a file stops to be readable."""

    offset: int
    """The first byte that is not read."""
    problem: str
    tail: str = ""
    """The text of the line that breaks off."""
    readable: str | None = None
    """A file with the lines before; None where there are none."""

    @property
    def reason(self) -> str:
        """What the quarantine says."""
        return f"{UNREADABLE}{self.offset}: {self.problem}"


def look_into(path: str, folder: str) -> Unreadable | None:
    """Reads a file to its end.

    Args:
        path: the file.
        folder: where the lines before the break are put, under a name that tells the file.

    Returns:
        Where it breaks; None when it is whole.

    Raises:
        OSError: the storage does not give it.
    """
    if path.endswith((".parquet", ".parq")):
        return _parquet(path)
    if not path.endswith(".gz"):
        return None
    with tempfile.TemporaryFile() as whole:
        broken = _unpack(path, whole)
        if broken is None:
            return None
        whole.seek(0)
        size = sum(len(line) for line in whole if line.endswith(b"\n"))
        whole.seek(size)
        tail = whole.read().decode("utf-8", "replace")
        whole.truncate(size)
        if not size:
            return Unreadable(*broken, tail)
        ending = path.removesuffix(".gz").rsplit("/", 1)[-1].rsplit(".", 1)[-1]
        to = f"{folder}/{hashlib.sha256(path.encode()).hexdigest()[:16]}.{ending}"
        whole.seek(0)
        with storage.opened(to, "wb", auto_mkdir=True) as stream:
            shutil.copyfileobj(whole, stream)
    return Unreadable(*broken, tail, to)


def forget(folder: str) -> None:
    """Removes what `look_into` has put into a folder."""
    fs, root = storage.filesystem(folder)
    if fs.exists(root):
        fs.rm(root, recursive=True)


def _parquet(path: str) -> Unreadable | None:
    with tempfile.TemporaryFile() as whole:
        for piece in _pieces(path):  # an error of the storage is no damage, and is raised
            whole.write(piece)
        try:
            for _ in pq.ParquetFile(whole).iter_batches():
                pass
        except (OSError, pa.ArrowException) as error:
            return Unreadable(0, str(error).strip().splitlines()[0])
    return None


def _unpack(path: str, to: IO[bytes]) -> tuple[int, str] | None:
    """Unpacks a gzip file, which may have several members, as far as it can be trusted.

    Of a member that ends early what there is; of one whose checksum cannot be right nothing: where the damage begins
    nobody knows.

    Returns:
        The first byte that is not used and why; None when all was.
    """
    decoder, offset, member, written = zlib.decompressobj(_GZIP), 0, 0, 0
    for piece in _pieces(path):
        rest = piece
        while rest:
            if decoder.eof:
                decoder, member, written = zlib.decompressobj(_GZIP), offset, to.tell()
            try:
                to.write(decoder.decompress(rest))
            except zlib.error as error:
                to.seek(written)
                to.truncate()
                return member, f"gzip: {str(error).split(': ')[-1]}"
            offset += len(rest) - len(decoder.unused_data)
            rest = decoder.unused_data
    return None if decoder.eof or not offset else (offset, "gzip: the file ends before its content")


def _pieces(path: str) -> Iterator[bytes]:
    with storage.opened(path) as stream:
        while piece := stream.read(_BLOCK):
            yield piece
