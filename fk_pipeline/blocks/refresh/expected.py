"""The rows that a block must have: all of them, or those that changes touch, in place of which stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import DataFrame

from fk_pipeline.blocks.hashing import with_row_hash
from fk_pipeline.blocks.hashing_in_process import row_digests
from fk_pipeline.blocks.refresh.arithmetic import all_groups, changed_groups
from fk_pipeline.blocks.refresh.changes import Changes
from fk_pipeline.blocks.refresh.joins import Joins
from fk_pipeline.blocks.refresh.refresh import Refresh, group_values
from fk_pipeline.blocks.refresh.relations import Snapshot, columns_of_part, row_key
from fk_pipeline.blocks.refresh.tables import is_compared_as_stored
from fk_pipeline.blocks.select.block import ANCHOR, BRANCH, GROUP_VALUE, PART, ROW, Block, Unit
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.frames import sql_over
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.local import distinct
from fk_pipeline.store.sizes import UNKNOWN

_TOUCHED = "_fk_touched"


@dataclass(frozen=True)
class ExpectedRows:
    """Rows that the table of a block must have, and what of the table they stand in place of.

    Attributes:
        rows: the rows: key, hash, values.
        keys: the values in `columns` of the stored rows in whose place they stand; None: of all.
        columns: columns of the table.
    """

    rows: DataFrame
    keys: RowSet | None = None
    columns: tuple[str, ...] = ()


class Expected:
    """The rows of a block over the newer versions of what it reads."""

    def __init__(self, refresh: Refresh, block: Block, snapshot: Snapshot, changes: Mapping[str, Changes]) -> None:
        """Takes the block, what it reads at the newer versions, and what changed of it since the older ones."""
        self.refresh, self.read, self.table = refresh, refresh.read, refresh.table
        self.block, self.snapshot, self.changes = block, snapshot, changes
        self.joins_of_parts = tuple(Joins(refresh.read, part, snapshot, changes) for part in block.parts)

    @property
    def joins(self) -> Joins:
        """The joins of a block of one part."""
        [joins] = self.joins_of_parts
        return joins

    @cached_property
    def out_of_reach(self) -> str:
        """Why not all rows that the changes touch can be found along the joins; empty if they can."""
        return next(filter(None, (joins.tracing.out_of_reach() for joins in self.joins_of_parts)), "")

    @cached_property
    def passed(self) -> int:
        """How many rows of anchors are looked at because a condition moved."""
        parts = [rows for joins in self.joins_of_parts for rows in joins.tracing.passed]
        return sum(rows.at_most if rows.at_most < UNKNOWN else rows.frame.count() for rows in parts)

    @property
    def reached(self) -> int | None:
        """How many anchors the changes touch; None if that was not counted."""
        number = self.anchors.at_most
        return None if number >= UNKNOWN else max(0, number - self.passed)

    def whole(self) -> ExpectedRows:
        """Returns all rows of the block."""
        frames = self._all()
        if self.block.branches:
            branches = [self._branch(number, frames) for number in range(len(self.block.branches))]
            return ExpectedRows(self._united(branches))
        if self.refresh.sums is not None:
            return ExpectedRows(all_groups(self.refresh, frames))
        return ExpectedRows(self._computed(frames))

    def _computed(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Returns the rows of a block of one part over some rows of its tables."""
        return self.refresh.hashed(sql_over(frames, lambda tables: self.block.of(tables, self.refresh.more)))

    def _all(self) -> dict[str, DataFrame]:
        """Returns, per alias, all its rows."""
        return {alias.name: self.snapshot.rows(alias.relation) for alias in self.block.aliases}

    def changed_part(self) -> ExpectedRows:
        """Returns the rows of the anchors, groups or partitions that changes touch."""
        if self.block.branches:
            return self._by_branch()
        anchors = self.anchors
        if not anchors.at_most:
            return self._nothing(anchors)
        if self.block.unit is Unit.ROW:
            return ExpectedRows(self._computed(self.joins.frames(anchors)), anchors, tuple(anchors.frame.columns))
        if self.refresh.sums is None:
            return self._by_group(anchors)
        both = self._both()
        rows, keys = changed_groups(self.refresh, self.joins.frames(anchors, both), both)
        return ExpectedRows(rows, keys, (ROW,))

    def _nothing(self, keys: RowSet) -> ExpectedRows:
        """Returns no rows, in place of no rows."""
        return ExpectedRows(self.read.read(self.table.name).limit(0).drop(s.BATCH, s.CHANGED_AT), keys)

    def _both(self) -> list[str]:
        """Returns the aliases of which rows of two versions are joined: the anchor, and those that changed."""
        return [alias.name for alias in self.block.aliases if alias.relation in self.changes or not alias.parent]

    def _by_branch(self) -> ExpectedRows:
        """Returns the joined rows of the anchors that changes touch, of each branch of a UNION ALL."""
        rows, keys = list[DataFrame](), self.anchors
        for number, (anchors, joins) in self.touched.items():
            rows.append(self._branch(number, joins.frames(anchors)))
        return ExpectedRows(self._united(rows), keys, (PART,)) if rows else self._nothing(keys)

    @cached_property
    def touched(self) -> dict[int, tuple[RowSet, Joins]]:
        """Per branch of a UNION ALL with anchors that changes touch, these anchors, and its joins."""
        again = self.refresh.own.again()
        branches = {
            number: (joins.tracing.anchors(again.get(joins.block.anchor.name)), joins)
            for number, joins in enumerate(self.joins_of_parts)
        }
        return {number: (anchors, joins) for number, (anchors, joins) in branches.items() if anchors.at_most}

    def _branch(self, number: int, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Returns the rows of a branch of a UNION ALL over some of its tables, with their hashes but that of values."""
        branch, dtypes = self.block.branches[number], dict(self.table.columns)
        more = columns_of_part(self.refresh.spec, self.refresh.tables, self.block, number, self.refresh.relations)
        rows = sql_over(
            {alias.name: frames[alias.name] for alias in branch.aliases}, lambda tables: branch.of(tables, more)
        )
        rows = with_row_hash(rows, PART, _anchor_of(rows), "FALSE")
        rows = with_row_hash(rows, ROW, row_key(rows, branch), "FALSE")
        columns = [
            f"CAST({quote(name)} AS {dtypes[name]}) AS {quote(name)}" if name in dtypes else quote(name)
            for name in self.block.columns
        ]
        return rows.selectExpr(PART, ROW, *columns)

    def _united(self, rows: Sequence[DataFrame]) -> DataFrame:
        """Returns the rows of branches with the hash of their values."""
        return self.refresh.hashed(reduce(DataFrame.unionAll, rows))

    def _by_group(self, anchors: RowSet) -> ExpectedRows:
        """Returns the groups, or partitions, of joined rows of anchors, then or now, computed from all their rows."""
        column = ROW if self.block.unit is Unit.GROUP else PART
        keys = self._groups_in_driver(anchors, column) or self._groups_of(anchors, column)
        if not keys.at_most:
            return self._nothing(keys)
        same = [f"{_TOUCHED}.{GROUP_VALUE.format(n)} <=> {sql}" for n, sql in enumerate(self.block.values)]
        joined = self.joins.of_groups(keys, self._most_groups()) if same else None
        frames = (self._all() if joined is None else joined) | ({_TOUCHED: keys.frame} if same else {})

        def sql(tables: Mapping[str, str]) -> str:
            of_touched = f"EXISTS (SELECT 1 FROM {tables.get(_TOUCHED)} AS {_TOUCHED} WHERE {' AND '.join(same)})"
            return self.block.of(tables, self.refresh.more, of_touched if same else "")

        return ExpectedRows(self.refresh.hashed(sql_over(frames, sql)), keys, (column,))

    def _most_groups(self) -> int:
        """Returns the number of groups that are stored; of the rows of the anchor, if only some groups are kept."""
        block = self.block
        if block.having() or (block.keep is not None and block.keep.where):
            return self.snapshot.number(block.anchor.relation)
        return self.read.about(block.name).rows

    def _groups_of(self, anchors: RowSet, column: str) -> RowSet:
        """Returns the groups, or partitions, of joined rows of anchors, then or now: values and hash."""
        values = [f"{sql} AS {GROUP_VALUE.format(number)}" for number, sql in enumerate(self.block.values)]
        of_one, both = values or ["1 AS _fk_one"], self._both()
        joined = sql_over(self.joins.frames(anchors, both), lambda tables: self.block.joined(tables, of_one, both))
        return self.read.frames.cached(
            with_row_hash(joined.distinct(), column, group_values(self.block), "FALSE"), None
        )

    def _groups_in_driver(self, anchors: RowSet, column: str) -> RowSet | None:
        """Returns the same, and perhaps others, where they are columns of the anchor; None if Spark must find them."""
        by = self.block.grouped_by(self.block.anchor.name)
        if not by or len(by) < len(self.block.by):
            return None
        rows = self.joins.rows_of(anchors, [self.block.anchor.name]).local
        relation = self.refresh.relations[self.block.anchor.relation].table
        own = {name.lower(): (name, dtype) for name, dtype in relation.columns}
        if rows is None or not all(is_compared_as_stored(own[name][1].upper()) for name in by.values()):
            return None
        columns = [own[name][0] for name in by.values()]
        if len({*columns}) < len(columns):
            return None
        values = distinct([rows], columns).rename_columns(group_values(self.block))
        try:
            hashes = pa.array(row_digests(values, values.column_names), pa.binary())
        except LeftToSpark:
            return None
        dtypes = [(GROUP_VALUE.format(number), own[name][1]) for number, name in by.items()]
        return self.read.frames.held(values.append_column(column, hashes), [*dtypes, (column, "BINARY")])

    @cached_property
    def anchors(self) -> RowSet:
        """The keys of the anchors whose joined rows may differ; of a UNION ALL, hashes of branch and key."""
        if not self.block.branches:
            return self.joins.tracing.anchors()
        keys = [
            with_row_hash(rows, PART, _anchor_of(rows), "FALSE").select(PART)
            for number, (anchors, _) in self.touched.items()
            for rows in [anchors.frame.selectExpr(f"{number} AS {BRANCH}", "*")]
        ]
        if not keys:
            return self.read.frames.held(pa.table({PART: pa.array([], pa.binary())}), [(PART, "BINARY")])
        return self.read.frames.cached(reduce(DataFrame.unionAll, keys), None)


def _anchor_of(rows: DataFrame) -> list[str]:
    """Returns the columns with the number of the branch of a UNION ALL, and the key of the anchor."""
    return [name for name in rows.columns if name.startswith((BRANCH, ANCHOR.format("")))]
