"""Finds damage of a stored table, in its log or in a file of its current version, by a listing and without Spark.

Delta and Parquet detect only some damage, each with its own messages: Spark reads a file by its name, whatever its
content is now. So the size in the log is compared with the size of the file.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fk_pipeline.environment import storage
from fk_pipeline.store import LEDGER_TABLES
from fk_pipeline.table_features import open_table, reads_vectors

LOG = "_delta_log"

ASIDE = "damaged"
"""The folder beside the tables into which a rebuild moves a table that can no longer be written to."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")
_VECTOR = re.compile(r"(?:.*/)?deletion_vector_[0-9a-f-]+\.bin")


class DamagedTableError(Exception):
    """A table has other rows than its log says; the caller that knows the pipeline adds the remedy."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        super().__init__(str(damage))


@dataclass(frozen=True)
class Damage:
    """The damage of a table.

    Attributes:
        table: its name.
        file: the path or URI of the file, or of the folder where it is no single file.
        what: what is wrong with the file, as the end of a sentence about it.
        of_log: whether the log is damaged: the table cannot be opened, so nothing can be committed to it.
    """

    table: str
    file: str
    what: str
    of_log: bool = False

    def __str__(self) -> str:
        return f"table {self.table} is damaged: {self.file.rsplit('/', 1)[1]} {self.what}"


def damage_of(home: str, table: str) -> Damage | None:
    """Returns the first damage of a table that its log and a listing of its files show; None if there is none.

    A table that does not exist has no damage. The content of files is not read (`damage_in` does that).

    Args:
        home: the folder or URI of the pipeline's tables.
        table: the name of the table.

    Raises:
        OSError: the storage does not respond, or refuses access.
        StateError: delta-rs cannot open the table, because of a feature that somebody has given it.
    """
    path = f"{home}/{table}"
    fs, root = storage.filesystem(path)
    if not fs.exists(root):
        return None
    sizes = {name.removeprefix(f"{root}/"): info["size"] for name, info in fs.find(root, detail=True).items()}
    log = {name.removeprefix(f"{LOG}/") for name in sizes if name.startswith(f"{LOG}/")}
    damage = _damage_of_log(home, table, log)
    if damage is not None or not any(map(_COMMIT.fullmatch, log)):
        return damage
    try:
        opened = open_table(path, ledger=table in LEDGER_TABLES)
        files = _files(opened)
    except (DeltaError, pa.ArrowException) as error:
        return Damage(table, f"{path}/{LOG}", f"cannot be read ({_first_line(error)})", of_log=True)
    for name, size in files:
        if name not in sizes:
            return Damage(table, f"{path}/{name}", "is gone")
        if sizes[name] != size:
            return Damage(table, f"{path}/{name}", other_size(sizes[name], size))
    return _damaged_vector(opened, path, table, sizes)


def other_size(size: int, logged: int) -> str:
    """Returns the text about a file whose size is not the size in the log."""
    return f"has {size:,} bytes and was written with {logged:,}: it was cut or replaced"


def _files(table: DeltaTable) -> list[tuple[str, int]]:
    """Returns the name below the folder of the table and the size in bytes of each file of the current version."""
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    names = [unquote(name) for name in actions["path"].to_pylist()]
    return list(zip(names, actions["size_bytes"].to_pylist(), strict=True))


def _damage_of_log(home: str, table: str, names: set[str]) -> Damage | None:
    """Returns the first damage of the commits after the last checkpoint; None if there is none."""
    folder = f"{home}/{table}/{LOG}"
    commits = sorted(int(m[1]) for name in names if (m := _COMMIT.fullmatch(name)))
    begin = max((int(m[1]) for name in names if (m := _CHECKPOINT.fullmatch(name))), default=-1)
    following = [number for number in commits if number > begin]
    for expected, number in enumerate(following, start=begin + 1):
        if number != expected:
            return Damage(table, f"{folder}/{expected:020d}.json", "is gone", of_log=True)
        file = f"{folder}/{number:020d}.json"
        with storage.opened(file) as opened:
            if not _is_commit(opened.read()):
                return Damage(table, file, "is no commit of a Delta table", of_log=True)
    return None


def _is_commit(content: bytes) -> bool:
    """Returns whether the content has the form of a Delta commit: one JSON object per line, at least one."""
    try:
        lines = [json.loads(line) for line in content.decode().split("\n") if line.strip()]
    except ValueError:
        return False
    return bool(lines) and all(isinstance(line, dict) for line in lines)


def _damaged_vector(table: DeltaTable, path: str, name: str, sizes: dict[str, int]) -> Damage | None:
    """Returns the damage of a deletion vector that cannot be read: its deleted rows would reappear."""
    protocol = table.protocol()
    if "deletionVectors" not in (protocol.reader_features or ()) or not reads_vectors(table):
        return None
    try:
        for batch in table.deletion_vectors():
            pa.record_batch(batch)
    except (DeltaError, pa.ArrowException, OSError) as error:
        files = [file_name for file_name in sizes if _VECTOR.fullmatch(file_name)]
        file = f"{path}/{files[0]}" if len(files) == 1 else path
        return Damage(name, file, f"has a deletion vector that cannot be read ({_first_line(error)})")
    return None


def damage_in(home: str, tables: Iterable[str], text: str) -> Damage | None:
    """Returns the damage of a file that an error names, found by reading its content; None if it is intact.

    Args:
        home: the folder or URI of the pipeline's tables.
        tables: their names.
        text: the text of the error.
    """
    place = re.escape(home.split("://", 1)[-1])
    names = "|".join(map(re.escape, tables))
    for match in re.finditer(rf"{place}/({names})/([^\s'\",:]+?\.parquet)", text):
        file = f"{home}/{match[1]}/{unquote(match[2])}"
        if not _is_parquet(file):
            return Damage(match[1], file, "is no Parquet file any more, or has other bytes than were written")
    return None


def _is_parquet(file: str) -> bool:
    import pyarrow.parquet as pq  # takes a while to load, and is needed after damage only

    try:
        with storage.opened(file) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as content:
            for _ in content.iter_batches():
                pass
    except (pa.ArrowException, OSError):
        return False
    return _fits_checksum(file)


def _fits_checksum(file: str) -> bool:
    """Returns whether a local file matches the checksums that Hadoop wrote beside it; true if it wrote none.

    The checksum file has `crc`, a zero byte, the number of bytes per checksum, and the CRC-32 of each such block; all
    numbers are in big-endian order.
    """
    folder, _, name = file.rpartition("/")
    fs, note = storage.filesystem(f"{folder}/.{name}.crc")
    if not fs.exists(note):
        return True
    stored, content = fs.cat_file(note), fs.cat_file(f"{note.rpartition('/')[0]}/{name}")
    width = int.from_bytes(stored[4:8], "big")
    if stored[:4] != b"crc\0" or width <= 0:
        return False
    sums = [zlib.crc32(content[at : at + width]) for at in range(0, len(content), width)]
    return bool(stored[8:] == b"".join(checksum.to_bytes(4, "big") for checksum in sums))


def put_aside(home: str, table: str) -> str:
    """Moves a table into the folder of damaged tables without removing files; returns its new path or URI."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    place = f"{home}/{ASIDE}/{table}-{now}"
    fs, old = storage.filesystem(f"{home}/{table}")
    new = storage.filesystem(place)[1]
    fs.makedirs(new.rpartition("/")[0], exist_ok=True)
    fs.mv(old, new, recursive=True)
    return place


def is_there(home: str, table: str) -> bool:
    """Returns whether a table has a log, readable or not."""
    path = f"{home}/{table}"
    return DeltaTable.is_deltatable(path, storage.delta_options(path))


def has_files_only(home: str, table: str) -> bool:
    """Returns whether the folder of a table has files but no log, so that no table can be created there."""
    fs, root = storage.filesystem(f"{home}/{table}")
    return not is_there(home, table) and fs.exists(root) and bool(fs.find(root))


def _first_line(error: Any) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
