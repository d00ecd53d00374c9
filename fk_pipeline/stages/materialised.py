"""A frame that a stage uses several times, computed once: in the driver when it is small, cached on Spark when not."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.spec import quote

SMALL = 20_000
"""Rows up to which a frame is brought to the driver: a MERGE from a local relation saves Spark several jobs."""


UNKNOWN = sys.maxsize
"""An upper bound of rows where none is known."""


class Materialised:
    """A computed frame, and counts of its rows."""

    def __init__(
        self, frame: DataFrame, at_most: int | None = None, *, computed: bool = False, local: pa.Table | None = None
    ) -> None:
        """Computes the frame.

        Args:
            frame: what to compute.
            at_most: an upper bound of its rows, as far as it is known; None: let the frame itself tell.
            computed: it is part of one that was computed.
            local: its rows, if they are in the driver already.
        """
        self.local: pa.Table | None = local
        """The rows, where they are in the driver."""
        self.at_most = len(local) if local is not None else UNKNOWN if at_most is None else at_most
        """An upper bound of the rows; very many where none is known."""
        self.held = local is not None or not computed
        """Its rows are kept once they are computed: looking at them twice does not compute them twice."""
        self._cached: DataFrame | None = None
        self._values: dict[tuple[str, ...], pa.Table] = {}
        if computed:
            self.frame = frame
            return
        if at_most is None or at_most <= SMALL:
            # Nullable throughout: Arrow refuses a null struct whose fields are declared not null.
            schema = frame.schema.toNullable()
            wanted = frame.select(*[F.col(quote(f.name)).cast(f.dataType).alias(f.name) for f in schema.fields])
            found = (wanted.limit(SMALL + 1) if at_most is None else wanted).toArrow()
            if at_most is not None or len(found) <= SMALL:
                self.local, self.at_most = found, len(found)
                self.frame = frame.sparkSession.createDataFrame(found, schema)
                return
        self.frame = self._cached = frame.persist()

    def counts(self, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
        """Per batch the number of rows for every combination of values of some columns."""
        out: dict[int, dict[tuple[Any, ...], int]] = {}
        if self.local is not None:
            columns = [self.local[name].to_pylist() for name in (batch, *names)]
            for key, number in Counter(zip(*columns, strict=True)).items():
                out.setdefault(key[0], {})[key[1:]] = number
            return out
        return self.counted(self.frame, batch, *names)

    @staticmethod
    def counted(frame: DataFrame, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
        """The same of any frame, by a job of its own."""
        out: dict[int, dict[tuple[Any, ...], int]] = {}
        for row in frame.groupBy(batch, *names).count().collect():
            out.setdefault(row[0], {})[tuple(row[1:-1])] = row[-1]
        return out

    def values(self, columns: Sequence[str]) -> pa.Table | None:
        """Some columns of the rows, in the driver; None where the rows are not computed yet."""
        if self.local is not None:
            return self.local.select(columns)
        if self._cached is not None and tuple(columns) not in self._values:
            self._values[tuple(columns)] = self._cached.select(*map(quote, columns)).toArrow()
        return self._values.get(tuple(columns))

    def but(self, column: str, *values: Any) -> Materialised:
        """All rows but those with certain values in a column."""
        chosen = F.col(column).isin(*values)
        return self._some(~chosen | F.col(column).isNull(), lambda rows: pc.invert(_is_in(rows[column], values)))

    def only(self, column: str, values: Sequence[Any]) -> Materialised:
        """The rows with certain values in a column."""
        return self._some(F.col(column).isin(*values), lambda rows: _is_in(rows[column], values))

    def _some(self, condition: Column, mask: Callable[[pa.Table], pa.ChunkedArray]) -> Materialised:
        """The rows that meet a condition, said for Spark and for Arrow."""
        if self.local is None:
            chosen = Materialised(self.frame.where(condition), self.at_most, computed=True)
            chosen.held = self.held
            return chosen
        rows = self.local.filter(mask(self.local))
        if len(rows) == len(self.local):
            return self
        # Of no rows PySpark makes no structs.
        frame = self.frame.sparkSession.createDataFrame(rows, self.frame.schema) if len(rows) else self.frame.limit(0)
        return Materialised(frame, computed=True, local=rows)

    def compute(self) -> None:
        """Computes what is only planned so far."""
        if self._cached is not None:
            self._cached.count()

    def release(self) -> None:
        """Frees what is cached."""
        self._values = {}
        if self._cached is not None:
            self._cached.unpersist()


def _is_in(column: pa.ChunkedArray, values: Sequence[Any]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(values, column.type))
