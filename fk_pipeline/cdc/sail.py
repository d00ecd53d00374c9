"""How landing files are read on Sail: it tells neither a line's file nor its place, and reads JSON numbers by halves.

The driver reads the files and hands them over as Parquet, with the place of every row; a function of ours reads JSON.
Sail itself would number rows in the order in which its threads come, stop at bytes that are not UTF-8, turn the number
1234567890123456789012 into 1.2345678901234568e21 and not tell a line that is no JSON.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

from fk_pipeline.cdc.json_texts import reader_of
from fk_pipeline.environment import storage
from fk_pipeline.environment.sail import is_sail
from fk_pipeline.environment.sail_sql import CALLS, arguments, rewritten
from fk_pipeline.errors import LandingError, UnreadableFileError

LINES_AT_ONCE = 1 << 24
"""Bytes of a file that are split into lines at a time."""

PLACED = ("_fk_path", "_fk_position")
"""Columns of rows that were handed over, beside their own."""

PLACE = ("_fk_path AS path", "CAST(0 AS BIGINT) AS block", "_fk_position AS position")
"""SQL of their place."""

_PLACE = [("path", pa.string()), ("block", pa.int64()), ("position", pa.int64())]
_BOM = "\ufeff"

_folder: TemporaryDirectory[str] | None = None
_handed: dict[int, list[Path]] = {}
"""By thread, the files that were handed over."""


def lines(session: SparkSession, paths: Sequence[str], not_utf8: str) -> DataFrame:
    """The lines of text files: `value` without a byte order mark, and `path`, `block` and `position` (from 0).

    Args:
        session: a session on Sail.
        paths: the files.
        not_utf8: what stands before the bytes, in Base64, of a line that is not UTF-8.
    """
    schema = pa.schema([("value", pa.string()), *_PLACE])
    written = []
    for path in paths:
        written.append(to := _new_file())
        first = 0
        with pq.ParquetWriter(to, schema) as writer:
            for found in _lines_of(path):
                values = _texts(found, not_utf8)
                writer.write_table(pa.table([values, *_places(path, first, len(found))], schema=schema))
                first += len(found)
    return session.read.parquet(*map(str, written))


def rows(session: SparkSession, paths: Sequence[str]) -> Spoken:
    """The rows of Parquet files with the same columns, and `PLACED` (the position from 0) after these, hidden.

    Raises:
        LandingError: a column has a type that Sail may read in another way than Spark.
    """
    written = []
    for path in paths:
        written.append(to := _new_file())
        first = 0
        with storage.opened(path) as stream:
            file = pq.ParquetFile(stream)
            schema = pa.schema([pa.field(f.name, _kept(f, path)) for f in file.schema_arrow])
            for name, kind in zip(PLACED, (pa.string(), pa.int64()), strict=True):
                schema = schema.append(pa.field(name, kind))
            with pq.ParquetWriter(to, schema) as writer:
                for batch in file.iter_batches():
                    found, _, position = _places(path, first, len(batch))
                    own = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=False)]
                    writer.write_table(pa.table([*own, found, position], schema=schema))
                    first += len(batch)
    return Spoken(session.read.parquet(*map(str, written)), PLACED)


def _kept(field: pa.Field, path: str) -> pa.DataType:
    """The type of a column as it is handed over."""
    try:
        return _alike(field.type)
    except TypeError as error:
        raise LandingError(
            f"column {field.name} is of type {error}",
            where=path,
            why="Sail may read it in another way than Spark; nothing of the batch was applied",
            fix="run on Spark (unset FK_SPARK_REMOTE), or write the file with another type",
        ) from None


def _alike(kind: pa.DataType) -> pa.DataType:
    """A type that Sail and Spark read alike, for one of a file.

    Raises:
        TypeError: there is none.
    """
    if pt.is_dictionary(kind):
        return _alike(kind.value_type)
    if pt.is_large_string(kind) or pt.is_string(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return pa.timestamp("us", tz=kind.tz and "UTC")
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, _alike(f.type)) for f in kind])
    if pt.is_list(kind) or pt.is_large_list(kind):
        return pa.list_(_alike(kind.value_type))
    if pt.is_map(kind):
        return pa.map_(_alike(kind.key_type), _alike(kind.item_type))
    if pt.is_signed_integer(kind) or pt.is_boolean(kind) or pt.is_float32(kind) or pt.is_float64(kind):
        return kind
    if pt.is_date32(kind) or pt.is_decimal128(kind):
        return kind
    raise TypeError(str(kind))


def forget() -> None:
    """Removes what was handed over in this thread."""
    for file in _handed.pop(threading.get_ident(), []):
        file.unlink(missing_ok=True)


def _new_file() -> Path:
    global _folder  # noqa: PLW0603 - one for the process; it is removed when that ends
    _folder = _folder or TemporaryDirectory(prefix="fk-pipeline-sail-")
    file = Path(_folder.name, f"{uuid.uuid4().hex}.parquet")
    _handed.setdefault(threading.get_ident(), []).append(file)
    return file


def _places(path: str, first: int, number: int) -> list[pa.Array]:
    return [
        pa.repeat(path, number),
        pa.repeat(pa.scalar(0, pa.int64()), number),
        pa.array(range(first, first + number), pa.int64()),
    ]


def _lines_of(path: str) -> Iterator[list[bytes]]:
    """The lines of a file, some at a time, split on the line feed only; after the last line feed an empty one is none.

    Raises:
        UnreadableFileError: it breaks off, or is no gzip file.
    """
    with storage.opened(path, compression="gzip" if path.endswith(".gz") else None) as stream:
        rest = b""
        while block := _block(stream, path):
            *found, rest = (rest + block).split(b"\n")
            if found:
                yield found
        if rest:
            yield [rest]


def _block(stream: Any, path: str) -> bytes:
    from zlib import error as ZlibError

    try:
        block: bytes = stream.read(LINES_AT_ONCE)
    except (EOFError, ZlibError, OSError) as error:
        raise UnreadableFileError(
            "the file cannot be read to its end",
            where=path,
            why=str(error),
            fix="replace it by a whole one, or let what can be read of it be read: on_bad_record: quarantine",
        ) from None
    return block


def _texts(found: list[bytes], not_utf8: str) -> pa.Array:
    """Lines as texts, as `records.JsonLines.read` shows them."""
    try:
        texts = pa.array(found, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([_shown(line, not_utf8) for line in found], pa.string())
    if any(_BOM.encode() in line[:3] for line in found):
        texts = pa.array([text.lstrip(_BOM) for text in texts.to_pylist()], pa.string())
    return texts


def _shown(line: bytes, not_utf8: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return not_utf8 + base64.b64encode(line).decode()


class Spoken:
    """A frame on Sail whose SQL is said as Spark understands it; `frame` is what came of it.

    Args:
        frame: the frame.
        hidden: columns of it that it is not said to have.
    """

    def __init__(self, frame: DataFrame, hidden: Sequence[str] = ()) -> None:
        self.frame, self._hidden = frame, hidden

    @property
    def columns(self) -> list[str]:
        """The names of those that are not hidden."""
        return [name for name in self.frame.columns if name not in self._hidden]

    @property
    def sparkSession(self) -> SparkSession:  # noqa: N802 - as the frame calls it
        """The session."""
        return self.frame.sparkSession

    def selectExpr(self, *texts: str) -> Spoken:  # noqa: N802 - as the frame calls it
        """Columns by SQL."""
        return Spoken(self.frame.selectExpr(*[spoken(self.sparkSession, sql) for sql in texts]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.frame, name)


def as_spoken(frame: DataFrame | Spoken) -> Any:
    """A frame whose SQL Sail is told as it needs it; on Spark, and where it is one already, the frame itself."""
    return frame if isinstance(frame, Spoken) or not is_sail(frame.sparkSession) else Spoken(frame)


def frame_of(rows: DataFrame | Spoken) -> DataFrame:
    """The frame itself."""
    return rows.frame if isinstance(rows, Spoken) else rows


def spoken(session: SparkSession, sql: str) -> str:
    """SQL for Sail; every `FROM_JSON(text, 'type', ...)` is a call of a function that reads JSON as Spark does."""

    def from_json(inner: str) -> str:
        value, kind, *options = arguments(inner)
        return f"{_function(session, _literal(kind), any('_corrupt' in one for one in options))}({value})"

    return rewritten(sql, {**CALLS, "FROM_JSON": from_json})


def _function(session: SparkSession, kind: str, corrupt: bool) -> str:
    """The name of a function of the session that reads texts of a JSON value of a type."""
    name = f"fk_json_{hashlib.sha256(f'{kind} {corrupt}'.encode()).hexdigest()[:16]}"
    known = _functions.setdefault(getattr(session, "session_id", ""), set())
    if name not in known:
        # A function of the session answers with texts; Sail gives the rest of the type to it.
        wanted = session.range(0).selectExpr(f"CAST(NULL AS {kind}) AS v").schema["v"].dataType
        read = reader_of(wanted, corrupt=corrupt)
        session.udf.register(name, arrow_udf(read, wanted))
        known.add(name)
    return name


_functions: dict[str, set[str]] = {}


def _literal(sql: str) -> str:
    """The value of a SQL text that `spec.sql.text` made."""
    return sql[1:-1].replace("\\u0024", "$").replace("\\'", "'").replace("\\\\", "\\")
