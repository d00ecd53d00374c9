"""The numbers of rows up to which a reader reads and writes in one way, and above which in another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fk_pipeline.identity import BatchRange
from fk_pipeline.spec.sql import INTEGERS
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import Within

if TYPE_CHECKING:
    from fk_pipeline.store.tables import StoredTables


class Limits:
    """The numbers of rows up to which a reader reads in one way, and above which in another.

    Attributes:
        sizes: the sizes at which the reader changes its physical way.
    """

    def __init__(
        self,
        stored: StoredTables,
        tables: Mapping[str, Table],
        versions: Mapping[str, int],
        batches: BatchRange | None,
    ) -> None:
        """Takes what a reader reads.

        Args:
            stored: the stored tables.
            tables: the declarations, by name.
            versions: per table that was read so far, its version.
            batches: the batches that the reader is for; None: all.
        """
        self.sizes = stored.sizes
        self._stored, self._tables, self._versions, self._batches = stored, tables, versions, batches
        self._widths: dict[str, int] = {}

    @property
    def in_driver(self) -> int:
        """The largest number of rows that are brought to the driver; smaller if a table that was read has wide rows."""
        widest = max(map(self._width, self._versions), default=0)
        return min(self.sizes.driver_rows, self.sizes.driver_bytes // max(1, widest))

    def _width(self, name: str) -> int:
        """Returns the average stored bytes per row of a table."""
        version, table = self._versions[name], self._tables[name]
        if name not in self._widths:
            batches = self._batches if s.BATCH in table.names else None
            within = [] if batches is None else [Within(s.BATCH, batches)]
            self._widths[name] = 0 if version < 0 else self._stored.width(table, version, within)
        return self._widths[name]

    def fits_memory(self, name: str) -> bool:
        """Returns whether a table is small enough for Spark to keep in memory for a join."""
        return self._stored.bytes(self._tables[name]) <= self.sizes.broadcast_bytes

    def names_keys(self, name: str, number: int) -> bool:
        """Returns whether a commit to a table can name the keys of `number` rows, more than the driver collects."""
        return max(self.in_driver, 0) < number <= self._stored.nameable(self._tables[name])


def sendable(table: Table, columns: Iterable[str], sizes: Sizes) -> int:
    """Returns the most keys of a table that are sent to it: an integer takes 16 bytes in memory, others about 200."""
    dtypes = dict(table.columns)
    width = sum(16 if dtypes[column].upper() in INTEGERS else 200 for column in columns)
    return sizes.sent_bytes // width
