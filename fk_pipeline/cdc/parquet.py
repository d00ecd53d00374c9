"""Plain rows as Parquet files: each row replaces the one with its key (`docs/reference/rows.md`).

With `op_column`, that column names the operation of a row, as in `fk_pipeline.cdc.rows`. Values are used as they are if
the file has the declared type, and converted from their text otherwise. Files with different columns or types may be
read together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.cdc.columnar import Columnar, as_lines, operation
from fk_pipeline.cdc.parquet_columns import FileColumns, columns_of
from fk_pipeline.cdc.records import WORDS
from fk_pipeline.environment import storage
from fk_pipeline.spec import SideSpec
from fk_pipeline.spec.sql import INTEGERS

KEYS_AT_ONCE = 1 << 20
"""The number of keys in memory at once while it is checked whether they ascend."""

_PLACE = ("_metadata.file_path AS path", "CAST(0 AS BIGINT) AS block", "_metadata.row_index AS position")


class Parquet(Columnar):
    """The format `parquet`: one change per row."""

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """Returns the rows of the files as lines; see `parquet_rows`.

        Raises:
            LandingError: a declared column has a type that Spark does not read.
            UnreadableFileError: a file is not Parquet.
        """
        return parquet_rows(session, paths, side, side.op_column)

    def has_keys_once(self, path: str, side: SideSpec) -> bool:
        """Returns whether each key of a file is one number or text that needs no conversion, greater than the last."""
        with storage.opened(path) as stream:
            file = pq.ParquetFile(stream)
            key = side.key_columns[0]
            stored = [field for field in file.schema_arrow if field.name.lower() == key.name.lower()]
            if len(side.key_columns) > 1 or len(stored) != 1 or not _is_unchanged(stored[0].type, key.type):
                return False
            before: list[pa.Scalar] = []
            for batch in file.iter_batches(KEYS_AT_ONCE, columns=[stored[0].name]):
                keys = pa.chunked_array([pa.array(before, stored[0].type), batch.column(0)])
                if keys.null_count or pc.any(pc.greater_equal(keys[:-1], keys[1:])).as_py():
                    return False
                before = [keys[-1]]
        return True


def _is_unchanged(stored: pa.DataType, declared: str) -> bool:
    """Returns whether a column is a number or text that needs no conversion."""
    texts = pt.is_string(stored) or pt.is_large_string(stored)
    return bool(pt.is_integer(stored)) if declared.upper() in INTEGERS else texts and declared.upper() == "STRING"


def parquet_rows(
    session: SparkSession,
    paths: Sequence[str],
    side: SideSpec,
    op_column: str | None,
    words: Iterable[str] = WORDS,
    *,
    may_lack: bool = False,
) -> DataFrame:
    """Returns the rows of Parquet files as lines.

    Args:
        session: a Spark session.
        paths: the files.
        side: declares the columns.
        op_column: the column that names the operation of a row; None if each row is written.
        words: the words that the column may have.
        may_lack: whether files may lack the column: their rows are written.

    Returns:
        Lines as from `as_lines`; `value.value` is the row, of the declared columns, as it is, or as JSON if the files
        have different columns or may lack `op_column`; `position` is its number in the file, from 0.
    """
    requested = {name.lower(): name for name in [*(c.name for c in side.columns), *([op_column] if op_column else [])]}
    declared = {c.name.lower(): c.type for c in side.columns}
    alike: dict[FileColumns, list[str]] = {}
    for path in paths:
        alike.setdefault(columns_of(path, requested, declared), []).append(path)
    raw = "_raw" if len(alike) == 1 and not may_lack else "TO_JSON(_raw)"
    parts = []
    for columns, group in alike.items():
        stored = session.read.schema(columns.read).options(**storage.PATHS_AS_THEY_ARE).parquet(*group)
        op, named = operation(op_column, columns.names, may_lack=may_lack)
        parts.append(as_lines(stored, side, raw, _PLACE, op=op, named=named, words=words, sent=columns.names))
    return reduce(DataFrame.unionByName, parts)
