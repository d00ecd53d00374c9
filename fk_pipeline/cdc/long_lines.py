"""The search for lines that are longer than Spark should read, in constant memory.

A line ends at a line feed. A CSV record ends at a line feed or a carriage return outside of quotes; a quote opens a
field only where a field begins, as in Spark's parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fk_pipeline.environment import storage

BLOCK = 1 << 20
"""The largest number of bytes of a text in memory at once."""

HIGHEST_RATIO = 1032
"""The largest number of bytes that deflate, the method of gzip, stores in one byte (zlib's technical details)."""

BYTES_SHOWN = 1000
"""The number of bytes that the quarantine shows of a line that is too long or breaks off."""

_LOOK = 1 << 16
BOM = b"\xef\xbb\xbf"


@dataclass
class LineScan:
    """A scan of a text for lines that are too long, block by block.

    Args:
        limit: the largest number of bytes of a line; no block has more.
        delimiter: the delimiter between the fields of a CSV record; None if lines end at every line feed.
    """

    limit: int
    delimiter: bytes | None = None
    at: int = 0
    """Number of bytes scanned."""
    start: int = 0
    """Position at which the line begins that has not ended yet."""
    first_end: int = 0
    """Position at which the first line ends."""
    long: list[tuple[int, int]] = field(default_factory=list)
    """Begin and end of each line that is too long, without its line feed."""

    def __post_init__(self) -> None:
        self._in_quotes = self._maybe_closed = False
        self._before = b"\n"
        self._separators = (b"\n", b"\r", (self.delimiter or b"")[-1:])
        self._opens = re.compile(rb'(?<=[%s])"' % re.escape(b"".join(self._separators)))

    def feed(self, block: bytes) -> None:
        """Scans the next block."""
        first, last = self._ends(block) if self.delimiter is not None else (block.find(b"\n"), block.rfind(b"\n"))
        if first >= 0:
            self._ended(self.at + first)
            self.first_end = self.first_end or self.at + first
            self.start = self.at + last + 1
        self.at += len(block)

    def end(self) -> None:
        """Ends the last line; call it after the last block."""
        self._ended(self.at)

    def _ended(self, at: int) -> None:
        if at - self.start > self.limit:
            self.long.append((self.start, at))

    def _ends(self, block: bytes) -> tuple[int, int]:
        """Returns the positions of the first and the last end of a record in a block; -1 if no record ends in it."""
        first = last = -1
        at, size = 0, len(block)
        if not self.at and block.startswith(BOM):
            at, self._before = len(BOM), b"\n"
        if self._maybe_closed:
            self._maybe_closed, self._in_quotes = False, block[:1] == b'"'
            at = int(self._in_quotes)
        elif not self._in_quotes and block[at : at + 1] == b'"' and self._before in self._separators:
            self._in_quotes, at = True, at + 1
        while at < size:
            if self._in_quotes:
                quote = block.find(b'"', at)
                if quote < 0:
                    break
                if quote + 1 == size:
                    self._maybe_closed = True
                    break
                self._in_quotes = block[quote + 1 : quote + 2] == b'"'
                at = quote + 1 + self._in_quotes
                continue
            opening = self._opens.search(block, at)
            stop = opening.start() if opening else size
            ends = [end for end in (block.find(b"\n", at, stop), block.find(b"\r", at, stop)) if end >= 0]
            if ends:
                first = min(ends) if first < 0 else first
                last = max(block.rfind(b"\n", at, stop), block.rfind(b"\r", at, stop))
            self._in_quotes, at = opening is not None, stop + 1
        self._before = block[-1:] or self._before
        return first, last


def may_have_long_lines(path: str, size: int, limit: int) -> bool:
    """Returns whether a plain text may have a line that is too long, by a quick test that reads little of it.

    The file is divided into parts of half the limit; a line above the limit covers a whole part. So it is enough to
    find a line feed in each part, and most parts have one near their beginning.

    Args:
        path: the file.
        size: its size in bytes.
        limit: the largest number of bytes of a line.
    """
    if size <= limit:
        return False
    fs, root = storage.filesystem(path)
    part = max(1, limit // 2)
    for start in range(0, size - part + 1, part):
        at = start
        while at < start + part:
            until = min(at + _LOOK, start + part)
            if b"\n" in fs.cat_file(root, start=at, end=until):
                break
            at = until
        else:
            return True
    return False


def without(
    blocks: Iterable[bytes], until: int, long: Iterable[tuple[int, int]], stands_for: Callable[[bytes], bytes]
) -> Iterator[bytes]:
    """Yields a text in which the lines that are too long are replaced.

    Args:
        blocks: the text.
        until: the number of its bytes to use.
        long: begin and end of each such line.
        stands_for: returns the replacement of such a line, given its first `BYTES_SHOWN` bytes.
    """
    cuts, at = iter(long), 0
    begin, end = next(cuts, (until, until))
    shown = bytearray()
    for whole in blocks:
        block = memoryview(whole)[: max(0, until - at)]
        while block:
            if at < begin:
                copied = block[: begin - at]
                yield bytes(copied)
                at, block = at + len(copied), block[len(copied) :]
                continue
            cut = block[: end - at]
            shown += cut[: BYTES_SHOWN - len(shown)]
            at, block = at + len(cut), block[len(cut) :]
            if at == end:
                yield stands_for(bytes(shown))
                shown.clear()
                begin, end = next(cuts, (until, until))
        if at >= until:
            return
