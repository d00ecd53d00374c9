"""Lines that are too long: found in constant memory, whatever the blocks, and cut out of a copy. Without Spark."""

from __future__ import annotations

import csv
import gzip
import io
import random
import re
import tracemalloc
import zlib
from pathlib import Path

import pytest

from fk_pipeline.cdc import long_lines, unreadable
from fk_pipeline.cdc.long_lines import HIGHEST_RATIO, LineScan, may_have_long_lines
from fk_pipeline.cdc.unreadable import MARK, Shape, look_into, needs_look

CSV = Shape(",", 3)


def scanned(text: bytes, limit: int, block: int, delimiter: bytes | None = None) -> list[tuple[int, int]]:
    scan = LineScan(limit, delimiter)
    for at in range(0, len(text), block):
        scan.feed(text[at : at + block])
    scan.end()
    return scan.long


def test_long_lines_are_found_wherever_blocks_end() -> None:
    random.seed(7)
    for _ in range(500):
        text = b"".join(random.choice([b"\n", b"a", b"bb"]) for _ in range(random.randint(0, 60)))
        limit = random.randint(1, 12)
        block = random.randint(1, limit)
        lines, at = [], 0
        for line in text.split(b"\n"):
            lines += [(at, at + len(line))] if len(line) > limit else []
            at += len(line) + 1
        assert scanned(text, limit, block) == lines, (text, limit, block)


def test_long_records_of_csv_are_found_wherever_blocks_end() -> None:
    """Compared with Python's own reader of CSV, which knows where its records end."""
    random.seed(8)
    pieces = ['"', '""', ",", "\n", "a", "b", ' "', '"x"', '"\n"', ',"']
    for _ in range(3000):
        text = "".join(random.choice(pieces) for _ in range(random.randint(0, 25)))
        limit = random.randint(1, 12)
        block = random.randint(1, limit)
        lines = io.StringIO(text, newline="")
        records, at = [], 0
        reader = csv.reader(iter(lines.readline, ""))
        for _ in reader:
            end = lines.tell()
            ended = len(list(csv.reader(io.StringIO(text[at:end] + "z", newline="")))) > 1
            length = end - at - ended
            records += [(at, at + length)] if length > limit else []
            at = end
        assert scanned(text.encode(), limit, block, b",") == records, (text, limit, block)


def test_a_byte_order_mark_and_carriage_returns_are_no_part_of_a_csv_record() -> None:
    assert scanned('\ufeff"a\n\n\n",b\r\nc,"d\r\r"\r\n'.encode(), 12, 5, b",") == []
    assert scanned(b"a,b\rc,d\re,f\r", 4, 3, b",") == []


def test_a_plain_file_is_hardly_read_to_see_that_its_lines_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    fs, _ = long_lines.storage.filesystem(str(tmp_path))
    plain = type(fs).cat_file

    def counted(self: object, path: str, start: int, end: int) -> bytes:
        read.append(end - start)
        return plain(self, path, start=start, end=end)  # type: ignore[arg-type]

    monkeypatch.setattr(type(fs), "cat_file", counted)
    file = tmp_path / "short.jsonl"
    file.write_bytes(b'{"id": 1}\n' * 2_000_000)
    assert not may_have_long_lines(str(file), 20_000_000, 1_000_000)
    assert sum(read) < 3_000_000
    random.seed(9)
    for _ in range(300):
        limit = random.randint(2, 60)
        text = b"\n".join(b"x" * random.randint(0, 70) for _ in range(20))
        file.write_bytes(text)
        if any(len(line) > limit for line in text.split(b"\n")):
            assert may_have_long_lines(str(file), len(text), limit), (text, limit)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_copy_has_all_other_lines_in_their_places(tmp_path: Path, name: str) -> None:
    random.seed(10)
    for number in range(60):
        lines = [bytes(random.choices(b"abc ", k=random.choice([0, 3, 90, 101, 250, 3000]))) for _ in range(30)]
        text = b"\n".join(lines) + random.choice([b"", b"\n"])
        file = tmp_path / name
        file.write_bytes(gzip.compress(text[:900]) + gzip.compress(text[900:]) if name.endswith(".gz") else text)
        looked = look_into(str(file), str(tmp_path / "readable"), limit=100)
        long = sum(len(line) > 100 for line in lines)
        assert (looked.unreadable is not None) == (long > 0), number
        if looked.unreadable is None:
            continue
        assert looked.size == len(text)
        assert looked.unreadable.problem is None
        assert looked.unreadable.readable is not None
        stored = Path(looked.unreadable.readable).read_bytes()
        copy = gzip.decompress(stored) if name.endswith(".gz") else stored
        for was, now in zip(text.split(b"\n"), copy.split(b"\n"), strict=True):
            if len(was) <= 100:
                assert now == was
            else:
                assert bytes.fromhex(now.decode().removeprefix(MARK)) == was[: long_lines.BYTES_SHOWN]


def test_a_csv_record_that_is_too_long_is_replaced_by_one_with_too_many_fields(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('id,fk,v\n1,a,x\n2,"b\n' + "y" * 200 + '",z\n3,c,"w\n"\n')
    looked = look_into(str(file), str(tmp_path / "readable"), limit=100, shape=Shape(",", 3, header=True))
    assert looked.unreadable is not None
    assert looked.unreadable.readable is not None
    rows = list(csv.reader(io.StringIO(Path(looked.unreadable.readable).read_text(), newline="")))
    assert [rows[0], rows[1], rows[3]] == [["id", "fk", "v"], ["1", "a", "x"], ["3", "c", "w\n"]]
    assert len(rows[2]) > 4
    assert bytes.fromhex(rows[2][0].removeprefix(MARK)) == b'2,"b\n' + b"y" * 200 + b'",z'
    file.write_text("x" * 101 + "\n1\n")
    looked = look_into(str(file), str(tmp_path / "readable"), limit=100, shape=Shape(",", 3, header=True))
    assert looked.unreadable is not None
    assert (looked.unreadable.readable, looked.unreadable.reason) == (
        None, "unreadable from byte 0: the row with the names is longer than 100 bytes",
    )  # fmt: skip


def test_a_look_takes_the_same_memory_for_any_line(tmp_path: Path) -> None:
    """Deflate makes a thousand bytes of one: 200 MB of one line, and as many of short ones, are 200 kB on the disk."""
    bombs = {"line": b"x" * 1_000_000, "lines": (b'{"id": 1, "v": "' + b"y" * 500 + b'"}\n') * 1900}
    for name, piece in bombs.items():
        pack = zlib.compressobj(9, wbits=31)
        with (tmp_path / f"{name}.jsonl.gz").open("wb") as out:
            for _ in range(200):
                out.write(pack.compress(piece))
            out.write(pack.flush())
    for name, piece in bombs.items():
        file = tmp_path / f"{name}.jsonl.gz"
        assert file.stat().st_size < 1_500_000
        assert needs_look(str(file), file.stat().st_size, 32 << 20)
        tracemalloc.start()
        looked = look_into(str(file), str(tmp_path / "readable"), limit=32 << 20)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 12_000_000, name
        assert looked.size == 200 * len(piece)
        assert (looked.unreadable is not None) == (name == "line")
        if looked.unreadable is not None and looked.unreadable.readable is not None:
            line = gzip.decompress(Path(looked.unreadable.readable).read_bytes())
            assert re.fullmatch(rf"{MARK}[0-9A-F]+".encode(), line)


def test_what_cannot_have_a_long_line_is_not_looked_at() -> None:
    assert not needs_look("a.jsonl", 32 << 20, 32 << 20)
    assert needs_look("a.jsonl", (32 << 20) + 1, 32 << 20)
    assert not needs_look("a.jsonl.gz", (32 << 20) // HIGHEST_RATIO, 32 << 20)
    assert len(zlib.compress(b"x" * 10_000_000, 9)) > 10_000_000 // HIGHEST_RATIO


def test_a_gzip_that_ends_within_a_long_line_has_one_record_for_it(tmp_path: Path) -> None:
    text = b"short\n" + bytes(random.Random(1).choices(range(97, 123), k=20_000))
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(text)[:-2000])
    found = look_into(str(file), str(tmp_path / "readable"), limit=1000).unreadable
    assert found is not None
    assert found.reason.endswith("gzip: the file ends before its content, within a line longer than 1,000 bytes")
    assert found.tail == text[6 : 6 + long_lines.BYTES_SHOWN].decode()
    assert found.readable is not None
    assert gzip.decompress(Path(found.readable).read_bytes()) == b"short\n"
    assert unreadable.look_into(str(file), str(tmp_path / "readable")).unreadable is not None
