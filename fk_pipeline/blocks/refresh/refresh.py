"""A block between two versions of what it reads: those of its last commit, and the newest ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame

from fk_pipeline.blocks.hashing import with_row_hash
from fk_pipeline.blocks.refresh.refreshed import Refreshed
from fk_pipeline.blocks.refresh.relations import Snapshot, more_columns, relations, row_key
from fk_pipeline.blocks.refresh.since import seen_then
from fk_pipeline.blocks.refresh.sums import ROWS, sums_of
from fk_pipeline.blocks.select.block import GROUP_VALUE, PART, ROW, Block
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.reader import ABSENT


@dataclass(frozen=True)
class Own:
    """What a kind adds to the refresh of a block.

    Attributes:
        block: the block; None: as the pipeline declares it (`Refreshed.block_of`).
        whole: why the block must be computed whole, if it was before; empty: it need not.
        facts: function that returns further facts about the rows, for the commit.
        again: function that returns, per alias, the keys of rows that are anchors though nothing of them changed.
        of_removed: columns of the block that removed rows have, too; what becomes of a row with a null in one of them
            is marked (`differing.UNMATCHED`).
        counts: per decision about rows (`differing.DECIDED`), the name of its count; others are counted as they are.
        expected: function of expected rows that returns those which can be.
        settled: function of the rows to be written that returns those which really are.
    """

    block: Block | None = None
    whole: str = ""
    facts: Callable[[], Mapping[str, Any]] = dict
    again: Callable[[], Mapping[str, RowSet]] = dict
    of_removed: tuple[str, ...] = ()
    counts: Mapping[str, str] = field(default_factory=dict)
    expected: Callable[[DataFrame], DataFrame] = lambda rows: rows
    settled: Callable[[RowSet], RowSet] = lambda rows: rows


class Refresh:
    """What a stage of a block reads.

    Attributes:
        read: the reader of the stage.
        block: the block, of the pipeline `spec`.
        tables: the tables of the pipeline that the block reads, and its own, by name; `table` is its own.
        sums: how its groups are kept by arithmetic; None: they are not.
        relations: what the block reads, by name.
        now: the newest version of each; None of one that has no table.
        facts: what its last commit says; empty: there is none.
        then: the version of each that this commit stands for.
        more: the columns by which its rows are told apart, and found again (`more_columns`).
        own: what its kind adds.
    """

    def __init__(self, read: Reader, own: Own = Own()) -> None:
        spec: Refreshed = read.spec
        self.read, self.spec, self.own = read, spec, own
        self.block: Block = own.block or spec.block_of(read.history.stage, lambda name: read.about(name).declared)
        tables = [name for name in self.block.relations if name not in spec.inputs]
        self.tables = {name: read.about(name).declared for name in (*tables, self.block.name)}
        self.table = self.tables[self.block.name]
        self.sums = sums_of(self.block) if ROWS in self.table.names else None
        self.relations = relations(spec, {name: self.tables[name] for name in tables}, self.block)
        self.now: dict[str, Seen | None] = {name: read.seen(name) for name in self.block.relations}
        self.facts = read.about(self.block.name).metadata
        self.then = {name: seen_then(self.facts, name, seen) for name, seen in self.now.items()}
        self.session = read.read(self.block.name).sparkSession
        self.more = more_columns(spec, self.tables, self.block, self.relations)

    @property
    def moved(self) -> list[str]:
        """The relations that have another version than then."""
        return [name for name, after in self.now.items() if self.then[name] != after]

    @cached_property
    def snapshot(self) -> Snapshot:
        """What the block reads, at the newest versions."""
        places = {name: seen.location for name, seen in self.now.items() if seen is not None}
        at = {name: ABSENT if seen is None else seen.version for name, seen in self.now.items()}
        snapshot = Snapshot(self.session, self.relations, places, at, self.read.limits.sizes)
        self.read.frames.on_release(snapshot.reader.release)
        return snapshot

    @property
    def hidden(self) -> dict[str, str]:
        """The hidden columns of groups that are kept by arithmetic: name and SQL."""
        return {} if self.sums is None else self.sums.numbers(dict(self.table.columns))

    def hashed(self, rows: DataFrame) -> DataFrame:
        """Returns rows of the block with the hashes of key, partition and values."""
        names = self.table.names
        if PART in names and PART not in rows.columns:
            rows = with_row_hash(rows, PART, group_values(self.block), "FALSE")
        if ROW in names and ROW not in rows.columns:
            rows = with_row_hash(rows, ROW, row_key(rows, self.block), "FALSE")
        stored = [name for name in self.block.columns if name in names]
        beside = [name for name in self.block.columns if name not in names]
        rows = with_row_hash(rows, s.HASH, stored, "FALSE")
        return rows.select(*[quote(name) for name in (*names, *beside) if name not in (s.BATCH, s.CHANGED_AT)])


def group_values(block: Block) -> list[str]:
    """Returns the names of the columns with the values of a group or partition."""
    return [GROUP_VALUE.format(number) for number in range(len(block.by))]
