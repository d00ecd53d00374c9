"""How large a table is: its current version, and what is on disk besides. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from fk_pipeline.environment import storage
from fk_pipeline.table_features import open_table

LOG_FOLDER = "/_delta_log/"
"""Part of the path of a file that is not a data file of a table."""


@dataclass(frozen=True)
class Size:
    """The size of a table: files and bytes of its current version, and bytes on disk, older versions included.

    `unneeded` is the number of bytes of data files on disk that the current version does not need.
    """

    files: int
    bytes: int
    stored: int
    unneeded: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(
            self.files + other.files,
            self.bytes + other.bytes,
            self.stored + other.stored,
            self.unneeded + other.unneeded,
        )


def size_of(path: str) -> Size:
    """Returns the size of a table, by its log and by the files in its folder.

    Raises:
        StateError: delta-rs cannot open it, because of a feature that somebody has given it.
    """
    table = open_table(path)
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    fs, root = storage.filesystem(path)
    on_disk = fs.find(root, detail=True)
    stored = sum(int(entry["size"]) for entry in on_disk.values())
    data = sum(
        int(entry["size"]) for file, entry in on_disk.items() if file.endswith(".parquet") and LOG_FOLDER not in file
    )
    return Size(len(sizes), sum(sizes), stored, max(0, data - sum(sizes)))
