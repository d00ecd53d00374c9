"""The Parquet files of a version of a table, as its log names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fk_pipeline.environment.storage import is_s3
from fk_pipeline.store.fetched_files import fetched_files

UNMARKED = pa.nulls(0, pa.int64())  # `pa.array` would import pandas
"""The indices of the deleted rows of a file without a deletion vector: none."""


@dataclass(frozen=True)
class PlainFiles:
    """The Parquet files of a version of a table, or those that conditions do not skip.

    Attributes:
        paths: the paths of the files.
        schema: the schema as Spark's JSON.
        rows: the number of rows of all files together, with deleted rows.
        sizes: the size of each file.
        deleted: per file name without folder, the ascending indices (from 0) of the rows in its deletion vector; only
            files that have such rows.
    """

    paths: tuple[str, ...]
    schema: dict[str, Any]
    rows: int
    sizes: tuple[int, ...]
    deleted: dict[str, pa.Array]

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(self.sizes)

    def fetched(self, most_bytes: int) -> PlainFiles | None:
        """Returns the files on a local disk: those in S3 as copies; None if more than so many bytes lack a copy.

        Raises:
            OSError: a file in S3 is gone or cannot be read.
        """
        if not self.paths or not is_s3(self.paths[0]):
            return self
        copies, files = fetched_files(), dict(zip(self.paths, self.sizes, strict=True))
        if copies.lacking(files) > most_bytes:
            return None
        return replace(self, paths=tuple(copies.copies(files).values()))

    def deleted_in(self, path: str) -> pa.Array:
        """Returns the indices of the rows in the deletion vector of one of the files, by its path."""
        return self.deleted.get(path.rsplit("/", 1)[1], UNMARKED)

    @property
    def marked(self) -> int:
        """The number of rows in deletion vectors."""
        return sum(map(len, self.deleted.values()))


@dataclass(frozen=True)
class StoredFile:
    """A Parquet file of a table.

    Attributes:
        path: its path or URI.
        rows: the number of its rows, with deleted ones.
        bytes: its size.
        deleted: the ascending indices (from 0) of the rows in its deletion vector.
        parts: the values of the partition columns of its rows.
    """

    path: str
    rows: int
    bytes: int
    deleted: pa.Array
    parts: Mapping[str, Any]
