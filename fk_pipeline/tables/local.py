"""Rows that some batches left in few small files, read by Arrow: a Spark job takes ten times as long."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fk_pipeline.tables.logs import PlainFiles
from fk_pipeline.tables.skipping import Within

LOCAL_ROWS = 200_000
"""Rows of the files that are read here."""

ALIKE = (
    T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.StringType, T.BinaryType, T.BooleanType, T.DecimalType,
)  # fmt: skip
"""Types that Arrow reads from Parquet as Spark does, whoever wrote them (of dates, some calendar may be meant)."""


def read_here(files: PlainFiles, columns: Sequence[str], within: Within) -> pa.Table | None:
    """Rows of some batches, typed as Spark has them; None where Spark has to read them.

    Args:
        files: files with at least these rows.
        columns: the columns that are wanted.
        within: the batches.
    """
    stored = T.StructType.fromJson(files.schema)
    schema = T.StructType([stored[name] for name in columns]).toNullable()
    if files.rows > LOCAL_ROWS or not all(isinstance(field.dataType, ALIKE) for field in schema.fields):
        return None
    wanted = to_arrow_schema(schema)
    parts = [wanted.empty_table()]
    for path in files.paths:
        with pq.ParquetFile(path) as file:
            rows = file.read(list(dict.fromkeys([*columns, within.column])))
        batch = rows[within.column]
        of_the_batches = pc.and_(
            pc.greater_equal(batch, int(within.batches.first)), pc.less_equal(batch, int(within.batches.last))
        )
        here = pc.equal(files.deleted["file"], path.rsplit("/", 1)[1])
        marked = pc.is_in(pa.array(range(len(rows)), pa.int64()), files.deleted["row"].filter(here).combine_chunks())
        # Typed first: some writers note texts in a form that Arrow does not filter.
        parts.append(rows.select(columns).cast(wanted).filter(pc.and_not(of_the_batches, marked)))
    return pa.concat_tables(parts).combine_chunks()
