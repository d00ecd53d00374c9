"""Landing files that Spark cannot read as they are (`docs/reference/landing.md`): what is wrong, and what can be read.

A file may break off, or have lines that are too long. The first is looked for after Spark failed on a file, the second
before Spark reads one that may have such lines. Either way a copy has the lines that can be read. Of a gzip file that
ends early these are the whole lines before its end; a Parquet file is read in full or not at all.
"""

from __future__ import annotations

import gzip
import hashlib
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from fk_pipeline.cdc.long_lines import BLOCK, BYTES_SHOWN, HIGHEST_RATIO, LineScan, may_have_long_lines, without
from fk_pipeline.environment import storage

UNREADABLE = "unreadable from byte "
"""How the reason of a file that breaks off begins."""

TOO_LONG = "longer than "
"""How the reason of a line that is too long begins."""

MARK = f"FK{uuid.uuid4().hex.upper()}"
"""What the lines of a copy begin with that stand in the place of those that are too long, and no other line."""

_PIECE = 1 << 16
_GZIP = 31
"""Window bits of zlib that stand for gzip."""


@dataclass(frozen=True)
class Unreadable:
    """What of a file is not read."""

    offset: int = 0
    """The first byte that is not read, where the file breaks off."""
    problem: str | None = None
    """Why it breaks off; None where it does not."""
    tail: str = ""
    """The text of the line that breaks off, or its beginning."""
    readable: str | None = None
    """A file with the lines that can be read; None where there are none."""
    limit: int = 0
    """The most bytes of a line; 0 where none is longer."""

    @property
    def reason(self) -> str:
        """What the quarantine says of a file that breaks off; of one that does not, of its long lines."""
        return too_long(self.limit) if self.problem is None else f"{UNREADABLE}{self.offset}: {self.problem}"


@dataclass(frozen=True)
class Looked:
    """What a look into a file has found."""

    size: int
    """Bytes of its text, which are more than those of the file where this is compressed; 0 where nobody asked."""
    unreadable: Unreadable | None = None


@dataclass(frozen=True)
class Shape:
    """How the lines of a file end."""

    delimiter: str | None = None
    """Between the fields of a CSV record; None where lines end at every line feed."""
    columns: int = 0
    """The most fields of a CSV record of a file without a header."""
    header: bool = False
    """The first record names the columns."""


LINES = Shape()


def too_long(limit: int) -> str:
    """The reason of a line that is too long."""
    return f"{TOO_LONG}{limit:,} bytes"


def needs_look(path: str, size: int, limit: int) -> bool:
    """Whether a file of a format with lines may have one that is too long, by its size.

    Args:
        path: the file.
        size: its bytes.
        limit: the most bytes of a line.
    """
    return size > (limit // HIGHEST_RATIO if path.endswith(".gz") else limit)


def look_into(path: str, folder: str, *, limit: int | None = None, shape: Shape = LINES) -> Looked:
    """Reads a file to its end, in constant memory; a plain one only as far as that is needed.

    Args:
        path: the file.
        folder: where a copy of what can be read is put, under a name that tells the file.
        limit: the most bytes of a line; None: any number.
        shape: how its lines end.

    Raises:
        OSError: the storage does not give it, or does not take the copy.
    """
    if path.endswith((".parquet", ".parq")):
        return Looked(0, _parquet(path))
    if not path.endswith(".gz"):
        if limit is None:
            return Looked(0)
        size = _size(path)
        if size <= limit or (shape.delimiter is None and not may_have_long_lines(path, size, limit)):
            return Looked(size)
    bound = limit or 1 << 62
    scan = LineScan(bound, shape.delimiter.encode() if shape.delimiter else None)
    text = _Text(path, min(BLOCK, bound))
    member = [deepcopy(scan)]
    for block in text.blocks(lambda: member.__setitem__(0, deepcopy(scan))):
        scan.feed(block)
    if text.broken is None:
        scan.end()
    elif text.is_lost:
        scan = member[0]
    if text.broken is None and not scan.long:
        return Looked(scan.at)
    return Looked(scan.at, _unreadable(text, scan, folder, shape))


def _unreadable(text: _Text, scan: LineScan, folder: str, shape: Shape) -> Unreadable:
    """What is wrong with a file that was scanned, with a copy of what can be read."""
    if shape.header and scan.long and not scan.long[0][0]:
        tail = b"".join(text.between(0, BYTES_SHOWN)).decode("utf-8", "replace")
        return Unreadable(0, f"the row with the names is {too_long(scan.limit)}", tail)
    whole = scan.at if text.broken is None else scan.start
    tail = b"".join(text.between(whole, min(scan.at, whole + BYTES_SHOWN))).decode("utf-8", "replace")
    if text.broken and scan.at - whole > scan.limit:
        text.broken = text.broken[0], f"{text.broken[1]}, within a line {too_long(scan.limit)}"
    copy = _copy(text, scan, whole, folder, shape) if whole else None
    offset, problem = text.broken or (0, None)
    return Unreadable(offset, problem, tail, copy, scan.limit if scan.long else 0)


def _copy(text: _Text, scan: LineScan, whole: int, folder: str, shape: Shape) -> str:
    """Writes what can be read of a text beside it, compressed as the file is; returns where."""
    fields = 0
    if shape.delimiter:
        named = b"".join(text.between(0, scan.first_end)).count(shape.delimiter.encode()) if shape.header else 0
        fields = max(named, shape.columns) + 2  # one more than any row of the file

    def stands_for(line: bytes) -> bytes:
        told = MARK + line.decode("utf-8", "replace").encode().hex().upper()
        return (told + (shape.delimiter or "") * fields).encode()

    name = text.path.rsplit("/", 1)[-1]
    ending = name.removesuffix(".gz").rsplit(".", 1)[-1] + (".gz" if text.is_gzip else "")
    # A name that a full load of DMS may have, too.
    to = f"{folder}/LOAD{hashlib.sha256(text.path.encode()).hexdigest()[:16].upper()}.{ending}"
    with storage.opened(to, "wb") as stream:
        packed = gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) if text.is_gzip else nullcontext(stream)
        with packed as out:
            for piece in without(text.blocks(), whole, scan.long, stands_for):
                out.write(piece)
    return to


def remove_copies(folder: str) -> None:
    """Removes what `look_into` has put into a folder."""
    fs, root = storage.filesystem(folder)
    if fs.exists(root):
        fs.rm(root, recursive=True)


def _parquet(path: str) -> Unreadable | None:
    with tempfile.TemporaryFile() as whole:
        for piece in _pieces(path, _PIECE):  # an error of the storage is no damage, and is raised
            whole.write(piece)
        try:
            for _ in pq.ParquetFile(whole).iter_batches():
                pass
        except (OSError, pa.ArrowException) as error:
            return Unreadable(0, str(error).strip().splitlines()[0])
    return None


class _Text:
    """The text of a file, in blocks, as far as the file can be read.

    Of a gzip member that ends early there is what there is; one whose checksum cannot be right is lost as a whole:
    where in it the damage begins nobody knows.
    """

    def __init__(self, path: str, block: int) -> None:
        self.path, self._block = path, block
        self.is_gzip = path.endswith(".gz")
        self.broken: tuple[int, str] | None = None
        """The first byte of the file that is not used, and why; known after the last block."""
        self.is_lost = False
        """What the last member has given does not count."""

    def blocks(self, begins: Callable[[], None] = lambda: None) -> Iterator[bytes]:
        """The blocks, none larger than was asked for.

        Args:
            begins: is called where a gzip member begins that is not the first.
        """
        if not self.is_gzip:
            yield from _pieces(self.path, self._block)
            return
        decoder, offset, member = zlib.decompressobj(_GZIP), 0, 0
        for piece in _pieces(self.path, _PIECE):
            rest, more = piece, False
            while rest or more:
                if decoder.eof:
                    decoder, member = zlib.decompressobj(_GZIP), offset
                    begins()
                try:
                    made = decoder.decompress(rest, self._block)
                except zlib.error as error:
                    self.broken, self.is_lost = (member, f"gzip: {str(error).split(': ')[-1]}"), True
                    return
                if made:
                    yield made
                left = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                offset += len(rest) - len(left)
                rest, more = left, len(made) == self._block and not decoder.eof
        if offset and not decoder.eof:
            self.broken = offset, "gzip: the file ends before its content"

    def between(self, begin: int, end: int) -> Iterator[bytes]:
        """Some bytes of the text."""
        at = 0
        for block in self.blocks() if begin < end else ():
            yield block[max(0, begin - at) : end - at]
            at += len(block)
            if at >= end:
                return


def _size(path: str) -> int:
    fs, root = storage.filesystem(path)
    return int(fs.size(root))


def _pieces(path: str, size: int) -> Iterator[bytes]:
    with storage.opened(path) as stream:
        while piece := stream.read(size):
            yield piece
