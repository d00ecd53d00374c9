"""Makes the row sets of one reader: frames that are computed once, planned frames, rows that are in the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.frames import empty
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.schemas import Table


class RowSets:
    """Makes the row sets of a reader, and frees what they hold; see `fk_pipeline.stage_input.Frames`."""

    def __init__(self, session: SparkSession, in_driver: Callable[[], int]) -> None:
        """Makes row sets.

        Args:
            session: of the frames.
            in_driver: function that returns the largest number of rows that are brought to the driver.
        """
        self._session, self._in_driver = session, in_driver
        self._computed: list[Materialised] = []
        self._on_release: list[Callable[[], None]] = []
        self._local: dict[int, tuple[DataFrame, pa.Table]] = {}

    def cached(self, frame: DataFrame, at_most: int | None) -> Materialised:
        """Returns a frame that is computed once and cached until `release`, for several uses.

        Args:
            frame: the frame.
            at_most: an upper bound of its rows; None: find out by computing the frame.
        """
        rows = self.known(frame)
        if rows is None:
            rows = Materialised.of(frame, at_most, self._in_driver())
            self._computed.append(rows)
        return rows

    def computed(self, rows: RowSet) -> RowSet:
        """Returns rows computed once and cached until `release`, in the driver if they are few.

        They keep what is known of their keys; rows that are in the driver are returned as they are.
        """
        if rows.local is not None:
            return rows
        cached = self.cached(rows.frame, rows.at_most)
        cached.keys, cached.unique = rows.keys, rows.unique
        return cached

    def known(self, frame: DataFrame) -> Materialised | None:
        """Returns the rows of a frame that was made of rows in the driver (`in_hand`); None of any other frame."""
        made = self._local.get(id(frame))
        return None if made is None else Materialised(frame, local=made[1])

    def planned(
        self,
        frame: DataFrame,
        at_most: int,
        *,
        cached: bool = False,
        keys: DataFrame | None = None,
        unique: bool = True,
    ) -> Materialised:
        """Returns a frame that is computed only when it is written; `cached` says that its input is cached."""
        return Materialised(frame, at_most, cached=cached, keys=keys, unique=unique)

    def held(self, rows: pa.Table, columns: Sequence[tuple[str, str]]) -> Materialised:
        """Returns rows that are in the driver; `columns` are their names and types."""
        table = Table("", tuple(columns))
        return Materialised(lambda: self.frame_of(rows, table, table.names), local=rows)

    def frame_of(self, rows: pa.Table, table: Table, columns: Sequence[str]) -> DataFrame:
        """Returns rows in the driver as a frame; `columns` are the columns of the table that they come from."""
        if len(rows):
            return self._session.createDataFrame(rows)
        types = dict(table.columns)
        typed = zip(rows.column_names, columns, strict=True)  # from no rows Connect infers no types
        return empty(self._session, [(name, types[column]) for name, column in typed])

    def in_hand(self, rows: pa.Table, table: Table, columns: Sequence[str], *, broadcast: bool = True) -> DataFrame:
        """Returns a few rows in the driver as a frame, which `cached` need not compute.

        Args:
            rows: the rows.
            table: the table that they come from.
            columns: their columns of it.
            broadcast: whether Spark joins them by sending them to the other side.
        """
        frame = self.frame_of(rows, table, columns)
        frame = F.broadcast(frame) if broadcast else frame
        self._local[id(frame)] = frame, rows
        return frame

    @property
    def all_in_driver(self) -> bool:
        """Whether all rows that were computed are in the driver."""
        return all(rows.local is not None for rows in self._computed)

    def on_release(self, free: Callable[[], None]) -> None:
        """Registers a function that `release` calls."""
        self._on_release.append(free)

    def release(self) -> None:
        """Frees the cached frames, and calls the registered functions."""
        for rows in self._computed:
            rows.release()
        for free in self._on_release:
            free()
        self._computed, self._on_release, self._local = [], [], {}
