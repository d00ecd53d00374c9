"""A frame that is computed once and used several times: kept in the driver if it is small, else cached by Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.spec import quote
from fk_pipeline.store.sizes import UNKNOWN


class Materialised:
    """A frame with a bound of its rows, and with the rows themselves if they are in the driver.

    Attributes:
        at_most: an upper bound of their number; `UNKNOWN` if there is none.
        local: the rows, if they are in the driver; otherwise None.
        cached: whether reading the rows twice computes them only once.
        keys: a frame with the key columns of the rows, where it is cheaper to compute than the rows.
        unique: whether there is one row per key; if not, any of them may be taken.
    """

    def __init__(
        self,
        frame: DataFrame | Callable[[], DataFrame],
        at_most: int = UNKNOWN,
        *,
        local: pa.Table | None = None,
        cached: bool = False,
        keys: DataFrame | None = None,
        unique: bool = True,
    ) -> None:
        """Takes a frame as it is, or what makes it when it is needed; nothing is computed."""
        self._frame, self.local = frame, local
        self.at_most = at_most if local is None else len(local)
        self.cached, self.keys, self.unique = cached or local is not None, keys, unique
        self._persisted: DataFrame | None = None
        self._values: dict[tuple[str, ...], pa.Table] = {}

    @cached_property
    def frame(self) -> DataFrame:
        """The rows, for Spark."""
        return self._frame() if callable(self._frame) else self._frame

    @classmethod
    def of(cls, frame: DataFrame, at_most: int | None, driver_limit: int) -> Materialised:
        """Computes a frame.

        Args:
            frame: the frame.
            at_most: an upper bound of its rows; None: find out by computing the frame.
            driver_limit: the most rows that are brought to the driver.
        """
        if at_most is None or at_most <= driver_limit:
            nullable, schema = _nullable(frame)
            rows = (nullable.limit(max(0, driver_limit + 1)) if at_most is None else nullable).toArrow()
            if at_most is not None or len(rows) <= driver_limit:
                session = frame.sparkSession
                return cls(lambda: session.createDataFrame(rows, schema), local=rows)
        cached = cls(frame.persist(), UNKNOWN if at_most is None else at_most, cached=True)
        cached._persisted = cached.frame
        return cached

    def counts(self, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
        """Returns, per batch, the number of rows for every combination of values of some columns."""
        if self.local is None:
            return counted(self.frame, batch, *names)
        out: dict[int, dict[tuple[Any, ...], int]] = {}
        columns = [self.local[name].to_pylist() for name in (batch, *names)]
        for key, number in Counter(zip(*columns, strict=True)).items():
            out.setdefault(key[0], {})[key[1:]] = number
        return out

    def bounded(self, number: int) -> Materialised:
        """Returns the same rows with another upper bound of their number; rows in the driver have been counted."""
        other = copy(self)
        other.at_most = number if self.local is None else self.at_most
        return other

    def values(self, columns: Sequence[str]) -> pa.Table | None:
        """Returns some columns of the rows, in the driver; None if the rows are not computed yet."""
        if self.local is not None:
            return self.local.select(columns)
        if self._persisted is not None and tuple(columns) not in self._values:
            self._values[tuple(columns)] = self._persisted.select(*map(quote, columns)).toArrow()
        return self._values.get(tuple(columns))

    def but(self, column: str, *values: Any) -> Materialised:
        """Returns all rows except those with certain values in a column."""
        chosen = F.col(column).isin(*values)
        return self._some(~chosen | F.col(column).isNull(), lambda rows: pc.invert(_is_in(rows[column], values)))

    def only(self, column: str, values: Sequence[Any]) -> Materialised:
        """Returns the rows with certain values in a column."""
        return self._some(F.col(column).isin(*values), lambda rows: _is_in(rows[column], values))

    def _some(self, condition: Column, mask: Callable[[pa.Table], pa.ChunkedArray]) -> Materialised:
        """Returns the rows that meet a condition, given as a column for Spark and as a mask for Arrow."""
        if self.local is None:
            return Materialised(self.frame.where(condition), self.at_most, cached=self.cached, unique=self.unique)
        rows = self.local.filter(mask(self.local))
        if len(rows) == len(self.local):
            return self

        def frame() -> DataFrame:  # PySpark cannot create structs from an empty table
            whole = self.frame
            return whole.sparkSession.createDataFrame(rows, whole.schema) if len(rows) else whole.limit(0)

        return Materialised(frame, local=rows, unique=self.unique)

    def compute(self) -> None:
        """Computes the frame if it is cached by Spark and may not be computed yet."""
        if self._persisted is not None:
            self._persisted.count()

    def release(self) -> None:
        """Frees the cached rows."""
        self._values = {}
        if self._persisted is not None:
            self._persisted.unpersist()


def _nullable(frame: DataFrame) -> tuple[DataFrame, T.StructType]:
    """Returns a frame whose structs may have null fields, and its schema.

    Arrow refuses a null struct whose fields are declared not null.
    """
    schema = frame.schema.toNullable()
    pairs = zip(frame.schema.fields, schema.fields, strict=True)
    # Each cast is some calls to the JVM: only what differs is cast.
    casts = {f.name: F.col(quote(f.name)).cast(f.dataType) for was, f in pairs if was.dataType != f.dataType}
    return (frame.withColumns(casts) if casts else frame), schema


def counted(frame: DataFrame, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
    """Returns the counts of `Materialised.counts` for any frame, by a Spark job of its own."""
    out: dict[int, dict[tuple[Any, ...], int]] = {}
    for row in frame.groupBy(batch, *names).count().collect():
        out.setdefault(row[0], {})[tuple(row[1:-1])] = row[-1]
    return out


def _is_in(column: pa.ChunkedArray, values: Sequence[Any]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(values, column.type))
