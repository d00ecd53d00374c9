"""The rows of the tables of a block that some of its anchors, or groups, are joined to, now and then.

Few rows of a table are found by keys in the driver, without a job of Spark; many rows are joined by Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fk_pipeline.blocks.refresh.changes import BothVersions, Changes
from fk_pipeline.blocks.refresh.lookups import Lookups
from fk_pipeline.blocks.refresh.relations import Snapshot
from fk_pipeline.blocks.refresh.tables import is_compared_as_stored
from fk_pipeline.blocks.refresh.tracing import Tracing
from fk_pipeline.blocks.select.block import GROUP_VALUE, NEAR, Alias, Block, NearNumbers
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store.local import distinct

_MOST_OF_A_TABLE = 0.3
"""The share of the groups of a block above which all rows of its tables are read, rather than those of the groups."""


class Joins:
    """The joins of a block over tables of which rows changed; `tracing` finds the anchors that this touches."""

    def __init__(self, read: Reader, block: Block, now: Snapshot, changed: Mapping[str, Changes]) -> None:
        """Takes the block, what it reads at the newer versions, and what changed of it since the older ones."""
        self.read, self.block, self.snapshot, self.changes = read, block, now, changed
        self.lookups = Lookups(read, block, now)
        self.tracing = Tracing(self.lookups, changed)

    def frames(self, anchors: RowSet, both: Collection[str] = ()) -> dict[str, DataFrame]:
        """Returns, per alias, its rows now, of the anchor only those given; and then, of the aliases in `both`.

        Of a table that is joined to few rows, only the rows that match them, then or now, are read.
        """
        return self._joined_to(self.rows_of(anchors, both), both)

    def rows_of(self, anchors: RowSet, both: Collection[str] = ()) -> RowSet:
        """Returns the rows of anchors, now; and then, if the anchor is in `both`."""
        of = self._versions if self.block.anchor.name in both else self.snapshot
        return of.with_keys(self.block.anchor.relation, anchors, self.lookups.anchor_columns())

    @cached_property
    def _versions(self) -> BothVersions:
        return BothVersions(self.read, self.snapshot, self.changes)

    def _joined_to(self, anchors: RowSet, both: Collection[str] = ()) -> dict[str, DataFrame]:
        """Returns, per alias, its rows that rows of the anchor may be joined to; and these."""
        small = {self.block.anchor.name: anchors}
        frames = {self.block.anchor.name: anchors.frame}
        for alias in self.block.aliases[1:]:
            of = self._versions if alias.name in both else self.snapshot
            values, columns = self._looked_up_by(alias, small.get(alias.parent))
            if values is None or values.at_most > self.read.limits.in_driver:
                frames[alias.name] = of.rows(alias.relation)
            else:
                small[alias.name] = of.with_keys(alias.relation, values, columns)
                frames[alias.name] = small[alias.name].frame
        return frames

    def of_groups(self, touched: RowSet, groups: int) -> dict[str, DataFrame] | None:
        """Returns, per alias, its rows that rows of some groups, or partitions, are made of, and perhaps others.

        None if reading all rows is as good, or some of these rows cannot be found by columns.

        Args:
            touched: the groups, with their values (`GROUP_VALUE`).
            groups: the number of all groups that are stored.
        """
        alias = self._alias_of_groups(touched)
        if alias is None or touched.at_most > _MOST_OF_A_TABLE * groups:
            return None
        own = self.lookups.columns(alias.relation)
        names = {own[column][0]: GROUP_VALUE.format(n) for n, column in self.block.grouped_by(alias.name).items()}
        values = touched.local.select([*names.values()]) if touched.local is not None else None
        if values is None or any(column.null_count for column in values.columns):
            return None
        dtypes = {of: dict(own.values())[name] for name, of in names.items()}
        if self.block.near is not None:
            values = self._near(values, touched.local, self.block.near)
            names, dtypes = names | {self.block.near.column: NEAR}, dtypes | {NEAR: "BIGINT"}
        keys = self.read.frames.held(distinct([values], [*dtypes]), [*dtypes.items()])
        rows = self.snapshot.with_keys(alias.relation, keys, names)
        if alias is self.block.anchor:
            return self._joined_to(rows)
        return self.frames(self.tracing.keys_of(self.tracing.traced(alias, [rows])))

    @staticmethod
    def _near(values: pa.Table, touched: pa.Table, near: NearNumbers) -> pa.Table:
        """Returns values of groups, each with every number with which rows of the group may lie."""
        first = touched[GROUP_VALUE.format(near.value)]
        numbers = [pc.add(first, pa.scalar(near.step * place, pa.int64())) for place in range(near.count)]
        return pa.concat_tables([values.append_column(NEAR, column) for column in numbers])

    def _alias_of_groups(self, touched: RowSet) -> Alias | None:
        """Returns the table by whose columns rows of groups are looked up; None if there is none."""
        if touched.local is None:
            return None
        for alias in self.block.aliases:
            by, own = self.block.grouped_by(alias.name), self.lookups.columns(alias.relation)
            keys = {key.lower() for key in self.snapshot.relations[alias.relation].keys}
            is_near = self.block.near is not None and alias is self.block.anchor
            if not (by or is_near) or alias.is_single or any(step.may_match_none for step in self.block.steps(alias)):
                continue
            if not all(is_compared_as_stored(own[name][1]) for name in by.values()):
                continue
            if alias is self.block.anchor or {*by.values()} & keys or len(by) == len(self.block.by):
                return alias if self.snapshot.is_looked_up(alias.relation) else None
        return None

    def _looked_up_by(self, alias: Alias, parent: RowSet | None) -> tuple[RowSet | None, dict[str, str]]:
        """Returns the values by which rows of a table are joined to few rows, and per column of it their names there.

        None if reading the table is as good, or it is not joined by columns alone.
        """
        names = self.lookups.equal(alias)
        if parent is None or not names or not self.snapshot.is_looked_up(alias.relation):
            return None, {}
        return self.lookups.values_by(
            [parent], alias.parent, names, alias.near, alias.near.of_rows if alias.near else ()
        )
