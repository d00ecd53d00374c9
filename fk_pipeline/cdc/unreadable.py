"""Landing files that Spark cannot read as they are (`docs/reference/landing.md`): their problem and readable lines.

A file may break off, have lines that are too long, or, if it is CSV, mislead Spark by its beginning (`Beginning`). The
first is checked after Spark failed on a file, the others before Spark reads a file that may have them. In each case a
copy has the lines that can be read. For a gzip file that ends early these are the whole lines before its end; a Parquet
file is read in full or not at all.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from fk_pipeline.cdc.long_lines import BLOCK, BOM, BYTES_SHOWN, HIGHEST_RATIO, LineScan, may_have_long_lines, without
from fk_pipeline.environment import storage

UNREADABLE = "unreadable from byte "
"""The beginning of the reason of a file that breaks off."""

TOO_LONG = "longer than "
"""The beginning of the reason of a line that is too long."""

MARK = f"FK{uuid.uuid4().hex.upper()}"
"""The beginning of the lines of a copy that replace lines that are too long; no other line begins with it."""

_BREAK = re.compile(rb"\r\n|\n|\r")
_LOOKS = 1 << 13
"""The number of bytes in which Spark finds the first line break at any rate: those that it may read at once."""

_PIECE = 1 << 16
_GZIP = 31
"""The window bits of zlib that select gzip."""


@dataclass(frozen=True)
class Unreadable:
    """The parts of a file that are not read, and a copy of those that are."""

    offset: int = 0
    """The first byte that is not read, if the file breaks off."""
    problem: str | None = None
    """The reason why it breaks off; None if it does not."""
    tail: str = ""
    """The text of the line that breaks off, or its beginning."""
    readable: str | None = None
    """A file with the lines that can be read; None if there are none."""
    limit: int = 0
    """The largest number of bytes of a line; 0 if no line is longer."""

    @property
    def loses(self) -> bool:
        """Whether some of the text is not in the copy."""
        return self.problem is not None or self.limit > 0

    @property
    def reason(self) -> str:
        """The reason in the quarantine for a file that breaks off; for any other file, for its long lines."""
        return too_long(self.limit) if self.problem is None else f"{UNREADABLE}{self.offset}: {self.problem}"


@dataclass(frozen=True)
class Looked:
    """The outcome of checking a file."""

    size: int
    """Bytes of its text, which are more than those of the file if this is compressed; 0 if it was not measured."""
    unreadable: Unreadable | None = None


@dataclass(frozen=True)
class Shape:
    """The description of how the lines of a file end."""

    delimiter: str | None = None
    """The delimiter between the fields of a CSV record; None if lines end at every line feed."""
    columns: int = 0
    """The largest number of fields of a CSV record of a file without a header."""
    header: bool = False
    """Whether the first record names the columns."""


LINES = Shape()


@dataclass(frozen=True)
class Beginning:
    """The beginning of a CSV file, as far as Spark misunderstands it.

    Spark does not take a quote after a byte order mark for one. And it takes the first line break of a file for the
    ending of its rows, also one within quotes: of rows that end in CR LF, the last field would then keep the CR, and
    carriage returns within quotes would become line feeds.
    """

    has_mark: bool
    """Whether a byte order mark begins the file; a copy leaves it out."""
    empty_line: bytes
    """The ending of its rows, with which a copy begins if the first line break is another one; else nothing."""


def too_long(limit: int) -> str:
    """Returns the reason of a line that is too long."""
    return f"{TOO_LONG}{limit:,} bytes"


def needs_look(path: str, size: int, limit: int) -> bool:
    """Returns whether a file of a format with lines may have a line that is too long, judged by its size.

    Args:
        path: the file.
        size: its size in bytes.
        limit: the largest number of bytes of a line.
    """
    return size > (limit // HIGHEST_RATIO if path.endswith(".gz") else limit)


def misunderstood(path: str, shape: Shape) -> Beginning | None:
    """Returns the beginning of a CSV file if Spark would misunderstand it; None if not, or if it cannot be read."""
    if shape.delimiter is None:
        return None
    scan, ending = LineScan(1 << 62, shape.delimiter.encode()), b"\n"
    try:
        with storage.opened(path, compression="gzip" if path.endswith(".gz") else None) as stream:
            start = block = stream.read(_LOOKS)
            first = _BREAK.search(start)
            if first and not first.start():
                return None
            while block:
                before = scan.at
                scan.feed(block)
                if scan.first_end:
                    after = block[scan.first_end - before :] + stream.read(1)
                    ending = b"\r\n" if after.startswith(b"\r\n") else after[:1]
                    break
                block = stream.read(BLOCK)
    except (OSError, EOFError, zlib.error):
        return None
    misleads = (first[0] if first else b"\n") != ending
    has_mark = start.startswith(BOM)
    hides = has_mark and start[len(BOM) :].startswith(b'"')
    return Beginning(has_mark, ending if misleads else b"") if misleads or hides else None


def look_into(path: str, folder: str, *, limit: int | None = None, shape: Shape = LINES) -> Looked:
    """Checks a file by reading it to its end, in constant memory; a plain file only as far as necessary.

    Args:
        path: the file.
        folder: the folder for a copy of the readable lines, under a name derived from the path.
        limit: the largest number of bytes of a line; None: any number.
        shape: how its lines end.

    Raises:
        OSError: the storage cannot read the file or write the copy.
    """
    if path.endswith((".parquet", ".parq")):
        return Looked(0, _parquet(path))
    beginning = misunderstood(path, shape)
    if not path.endswith(".gz") and beginning is None:
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
    if text.broken is None and not scan.long and beginning is None:
        return Looked(scan.at)
    return Looked(scan.at, _unreadable(text, scan, folder, shape, beginning))


def _unreadable(text: _Text, scan: LineScan, folder: str, shape: Shape, beginning: Beginning | None) -> Unreadable:
    """Returns the problem of a scanned file, and writes a copy of its readable lines."""
    if shape.header and scan.long and not scan.long[0][0]:
        tail = b"".join(text.between(0, BYTES_SHOWN)).decode("utf-8", "replace")
        return Unreadable(0, f"the row with the names is {too_long(scan.limit)}", tail)
    whole = scan.at if text.broken is None else scan.start
    tail = b"".join(text.between(whole, min(scan.at, whole + BYTES_SHOWN))).decode("utf-8", "replace")
    if text.broken and scan.at - whole > scan.limit:
        text.broken = text.broken[0], f"{text.broken[1]}, within a line {too_long(scan.limit)}"
    copy = _copy(text, scan, whole, folder, shape, beginning) if whole else None
    offset, problem = text.broken or (0, None)
    return Unreadable(offset, problem, tail, copy, scan.limit if scan.long else 0)


def _copy(text: _Text, scan: LineScan, whole: int, folder: str, shape: Shape, beginning: Beginning | None) -> str:
    """Writes the readable lines of a text to a file in the folder, compressed as the text is; returns its path.

    If Spark would misunderstand the beginning, the copy has no byte order mark, and an empty line first if the first
    line break misleads.
    """
    fields = 0
    if shape.delimiter:
        named = b"".join(text.between(0, scan.first_end)).count(shape.delimiter.encode()) if shape.header else 0
        fields = max(named, shape.columns) + 2  # one more than any row of the file

    def stands_for(line: bytes) -> bytes:
        if line == BOM:
            return b""
        marked = MARK + line.decode("utf-8", "replace").encode().hex().upper()
        return (marked + (shape.delimiter or "") * fields).encode()

    has_mark = beginning is not None and beginning.has_mark and not (scan.long and scan.long[0][0] < len(BOM))
    cuts = [*([(0, len(BOM))] if has_mark else []), *scan.long]
    name = text.path.rsplit("/", 1)[-1]
    ending = name.removesuffix(".gz").rsplit(".", 1)[-1] + (".gz" if text.is_gzip else "")
    # A name that is also valid for a full load of DMS.
    to = f"{folder}/LOAD{hashlib.sha256(text.path.encode()).hexdigest()[:16].upper()}.{ending}"
    with storage.opened(to, "wb") as stream:
        packed = gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) if text.is_gzip else nullcontext(stream)
        with packed as out:
            if beginning is not None:
                out.write(beginning.empty_line)
            for piece in without(text.blocks(), whole, cuts, stands_for):
                out.write(piece)
    return to


def remove_copies(folder: str) -> None:
    """Removes a folder with copies that `look_into` wrote."""
    fs, root = storage.filesystem(folder)
    if fs.exists(root):
        fs.rm(root, recursive=True)


def _parquet(path: str) -> Unreadable | None:
    with tempfile.TemporaryFile() as whole:
        for piece in _pieces(path, _PIECE):  # an error of the storage is raised: it is not a damaged file
            whole.write(piece)
        try:
            for _ in pq.ParquetFile(whole).iter_batches():
                pass
        except (OSError, pa.ArrowException) as error:
            return Unreadable(0, str(error).strip().splitlines()[0])
    return None


class _Text:
    """The text of a file, in blocks, as far as the file can be read.

    A gzip member that ends early gives the text before its end. A member that is damaged is lost as a whole, because
    the position at which the damage begins is not known.
    """

    def __init__(self, path: str, block: int) -> None:
        self.path, self._block = path, block
        self.is_gzip = path.endswith(".gz")
        self.broken: tuple[int, str] | None = None
        """The first byte of the file that is not used, and the reason; known after the last block."""
        self.is_lost = False
        """Whether the text of the last member must be discarded."""

    def blocks(self, begins: Callable[[], None] = lambda: None) -> Iterator[bytes]:
        """Yields the blocks, none larger than the block size.

        Args:
            begins: called at the beginning of each gzip member after the first.
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
        """Yields the bytes of the text between two positions."""
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
