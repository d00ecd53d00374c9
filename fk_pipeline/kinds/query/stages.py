"""The stage of a block: brings its table from the versions in its last commit to the newest ones, in one commit.

A refresh (`docs/concepts/queries.md`) knows nothing of batches. With `then` and `now` for the tables at both versions:

    changed  = per table the old and new version of every row that differs
    anchors  = the anchors of changed rows, old and new, along the joins, through the tables of now
    touched  = groups, or partitions, of the joined rows of anchors, then and now
    expected = the block over now, of these anchors, groups or partitions alone
    commit   = expected against what is stored of them: rows that differ, and no others
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.hashing import with_row_hash
from fk_pipeline.blocks.hashing_here import row_digests
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.effects import CountBy, Effect, Reader, Report, RowSet, Upsert
from fk_pipeline.errors import LeftToSpark, StageError
from fk_pipeline.kinds.query.advice import advice_on
from fk_pipeline.kinds.query.blocks import ANCHOR, BRANCH, GROUP_VALUE, IS_NOW, PART, ROW, Unit
from fk_pipeline.kinds.query.changes import Changes, changes
from fk_pipeline.kinds.query.costs import (
    COSTS,
    Decision,
    Numbers,
    Run,
    Way,
    decide,
    earlier_runs,
    facts_of,
    numbers_of,
    predicted,
    strategy_of,
)
from fk_pipeline.kinds.query.joins import Joins
from fk_pipeline.kinds.query.keys import refuse_shared_keys, why_unclear
from fk_pipeline.kinds.query.kind import ADDED, REMOVED, STANDS_FOR, VERSIONS, WRITTEN, standing_for
from fk_pipeline.kinds.query.relations import Snapshot, columns_of_part, more_columns, relations, row_key, sql_over
from fk_pipeline.kinds.query.since import changed_between, lost, seen_then, why_another, why_lost
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.sums import ROWS, sums_of
from fk_pipeline.kinds.query.tables import is_compared_as_stored, means_of
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger.commits import READ
from fk_pipeline.store.local import distinct
from fk_pipeline.store.reader import ABSENT
from fk_pipeline.store.sizes import UNKNOWN

_BEFORE, _DECISION, _TOUCHED = "_fk_before", "_fk_decision", "_fk_touched"


def block(read: Reader) -> list[Effect]:
    """Returns the effects that bring the table of a block to the newest versions of what it reads."""
    refresh = Refresh(read)
    if refresh.facts and refresh.now == refresh.then and refresh.spec.refresh != "full":
        return [Report(notes=[f"{refresh.block.name} stands for the newest versions already"])]
    why = refresh.why_whole()
    if why:
        refuse_shared_keys(refresh.spec, refresh.snapshot, refresh.moved)
    return [refresh.report(why), refresh.upsert(refresh.whole() if why else refresh.changed_part())]


@dataclass(frozen=True)
class _Part:
    """Rows that the table must have, and what of the table they stand in place of.

    Attributes:
        rows: the rows: key, hash, values.
        keys: the values in `columns` of the stored rows in whose place they stand; None: of all.
        columns: columns of the table.
    """

    rows: DataFrame
    keys: RowSet | None = None
    columns: tuple[str, ...] = ()


class Refresh:
    """One refresh of a block: what it reads, at the versions of its last commit and at the newest ones."""

    def __init__(self, read: Reader) -> None:
        spec: QuerySpec = read.spec
        self.read, self.spec = read, spec
        self.block = spec.blocks.block(read.stage)
        self.tables = {one.name: read.table_of(one.name) for one in spec.blocks.blocks}
        self.table = self.tables[self.block.name]
        self.sums = sums_of(self.block) if ROWS in self.table.names else None
        earlier = {name: self.tables[name] for name in self.block.relations if name in self.tables}
        self.relations = relations(spec, earlier, self.block)
        self.now: dict[str, Seen | None] = {name: read.seen(name) for name in self.block.relations}
        self.facts = read.metadata(self.block.name)
        self.then = {name: seen_then(self.facts, name, found) for name, found in self.now.items()}
        self.session = read.read(self.block.name).sparkSession
        self.more = more_columns(spec, self.tables, self.block, self.relations)
        self.changes: dict[str, Changes] = {}
        self.decision: Decision | None = None

    @cached_property
    def joins_of_parts(self) -> tuple[Joins, ...]:
        """The joins of each part of the block, with what changed."""
        return tuple(Joins(self.read, part, self.snapshot, self.changes) for part in self.block.parts)

    @property
    def joins(self) -> Joins:
        """The joins of a block of one part."""
        [joins] = self.joins_of_parts
        return joins

    def report(self, why: str) -> Report:
        """Returns what the run tells: whether the block is computed whole and why, and between which versions."""
        moved = [f"{name} {_version(self.then[name])} to {_version(self.now[name])}" for name in self.moved]
        how = f"whole, {why}" if why else "what changed"
        first = () if self.facts else advice_on(self.spec, self.block)
        notes = [f"{self.block.name}: {how}; versions of {', '.join(moved) or 'nothing'}", *first]
        self.decision = self._decided(why)
        return Report(notes=notes, strategy=strategy_of(self.decision))

    @property
    def moved(self) -> list[str]:
        """The relations that have another version than then."""
        return [name for name, after in self.now.items() if self.then[name] != after]

    @cached_property
    def snapshot(self) -> Snapshot:
        """What the block reads, at the newest versions."""
        places = {name: seen.location for name, seen in self.now.items() if seen is not None}
        at = {name: ABSENT if seen is None else seen.version for name, seen in self.now.items()}
        found = Snapshot(self.session, self.relations, places, at, self.read.sizes)
        self.read.on_release(found.reader.release)
        return found

    def why_whole(self) -> str:
        """Returns why the block is computed whole; empty if only what changed is, which is known then.

        Raises:
            StageError: `refresh` is `incremental`, and it is not the first time.
        """
        why = self._must_be_whole()
        if why and self.facts and self.spec.refresh == "incremental":
            raise StageError(
                f"block {self.block.name} can only be computed whole: {why}",
                where=str(self.spec.file),
                why="refresh is incremental",
                fix=f"refresh: auto in {self.spec.file}",
            )
        return why

    def _must_be_whole(self) -> str:
        if self.spec.refresh == "full":
            return "refresh is full"
        if not self.facts:
            return "for the first time"
        for name, after in self.now.items():
            if why := why_another(name, self.then[name], after):
                return why
            if self.spec.refresh == "incremental" and (why := why_lost(name, self.then[name], after)):
                return why  # it is refused before any change is read
        if why := self._dearer_by_logs():
            return why
        for name, after in self.now.items():
            before = self.then[name]
            if before == after or after is None:
                continue
            start = before or Seen(after.location, after.id, -1)
            found = changes(self.read, self.snapshot, name, start, after)
            if found is None:
                return lost(name, start)
            if found.number:
                self.changes[name] = found
            unclear = why_unclear(self.spec, self.snapshot, name, found)
            if unclear:
                return unclear
        changed = {name: found.number for name, found in self.changes.items()}
        reached = (joins.out_of_reach() for joins in self.joins_of_parts)
        return self._dearer(changed) or next(filter(None, reached), "")

    def _dearer(self, changed: Mapping[str, int]) -> str:
        """Returns why a refresh should take longer than the whole; empty if it should not, or if it is wanted."""
        may_be_whole = self.spec.refresh != "incremental"
        self.decision = decide(self._numbers_with(changed), self.earlier, may_be_whole=may_be_whole)
        return self.decision.why if self.decision.way is Way.WHOLE else ""

    def _dearer_by_logs(self) -> str:
        """Returns what `_dearer` does, before a change is read; empty if the logs do not tell how many there are."""
        changed = self._changed_by_logs
        return self._dearer(changed) if len(changed) == len(self.moved) else ""

    @cached_property
    def _changed_by_logs(self) -> dict[str, int]:
        """About how many rows changed of each relation that has another version than then, where its log tells."""
        found = {name: changed_between(self.then[name], self.now[name]) for name in self.moved}
        return {name: number for name, number in found.items() if number is not None}

    def _decided(self, why: str) -> Decision:
        """Returns how the block is computed, and what that should take; `why` it is computed whole, if it is."""
        way = Way.REFRESH if not why else Way.WHOLE if self.read.rows(self.table.name) else Way.FIRST
        if self.decision is not None and self.decision.way is way:
            return self.decision
        numbers = self._numbers_with(self._changed_by_logs)
        return Decision(way, why, predicted(way, numbers, self.earlier), numbers)

    def _numbers_with(self, changed: Mapping[str, int]) -> Numbers:
        """Returns what is known of the block, with numbers of changed rows."""
        rows = {name: self.snapshot.number(name) for name in self.block.relations}
        keys = {name: one.keys for name, one in self.relations.items()}
        return numbers_of(self.block, rows, keys, changed, self.read.rows(self.table.name), adds=self.sums is not None)

    @cached_property
    def earlier(self) -> list[Run]:
        """The earlier runs of the block."""
        version = self.facts.get(READ, ABSENT)
        return earlier_runs(self.facts, self.read.history.seconds(self.block.name, version))

    # ------------------------------------------------------------------------------------------------ what is computed
    def whole(self) -> _Part:
        """Returns all rows of the block."""
        frames = self._all()
        if self.block.branches:
            return _Part(self._united([self._branch(number, frames) for number in range(len(self.block.branches))]))
        if self.sums is not None:
            return _Part(self._shown(sql_over(frames, self._numbers)))
        return _Part(self._hashed(sql_over(frames, lambda tables: self.block.of(tables, self.more))))

    def _all(self) -> dict[str, DataFrame]:
        """Returns, per alias, all its rows."""
        return {one.name: self.snapshot.rows(one.relation) for one in self.block.aliases}

    def changed_part(self) -> _Part:
        """Returns the rows of the anchors, groups or partitions that changes touch."""
        if self.block.branches:
            return self._by_branch()
        anchors = self._anchors()
        if not anchors.at_most:
            return self._nothing(anchors)
        if self.block.unit is Unit.ROW:
            rows = sql_over(self.joins.frames(anchors), lambda tables: self.block.of(tables, self.more))
            return _Part(self._hashed(rows), anchors, tuple(anchors.frame.columns))
        return self._by_group(anchors) if self.sums is None else self._by_arithmetic(anchors)

    def _nothing(self, keys: RowSet) -> _Part:
        """Returns no rows, in place of no rows."""
        return _Part(self.read.read(self.table.name).limit(0).drop(s.BATCH, s.CHANGED_AT), keys)

    def _both(self) -> list[str]:
        """Returns the aliases of which rows of two versions are joined: the anchor, and those that changed."""
        return [one.name for one in self.block.aliases if one.relation in self.changes or not one.parent]

    def _by_branch(self) -> _Part:
        """Returns the joined rows of the anchors that changes touch, of each branch of a UNION ALL."""
        rows, wanted = list[DataFrame](), self._anchors()
        for number, (anchors, joins) in self.touched.items():
            rows.append(self._branch(number, joins.frames(anchors)))
        return _Part(self._united(rows), wanted, (PART,)) if rows else self._nothing(wanted)

    @cached_property
    def touched(self) -> dict[int, tuple[RowSet, Joins]]:
        """Per branch of a UNION ALL with anchors that changes touch, these anchors, and its joins."""
        found = {number: (joins.anchors(), joins) for number, joins in enumerate(self.joins_of_parts)}
        return {number: (anchors, joins) for number, (anchors, joins) in found.items() if anchors.at_most}

    def _branch(self, number: int, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Returns the rows of a branch of a UNION ALL over some of its tables, with their hashes but that of values."""
        branch, kinds = self.block.branches[number], dict(self.table.columns)
        more = columns_of_part(self.spec, self.tables, self.block, number, self.relations)
        rows = sql_over({one.name: frames[one.name] for one in branch.aliases}, lambda tables: branch.of(tables, more))
        rows = with_row_hash(rows, PART, _anchor_of(rows), "FALSE")
        rows = with_row_hash(rows, ROW, row_key(rows, branch), "FALSE")
        columns = [f"CAST({quote(name)} AS {kinds[name]}) AS {quote(name)}" for name in self.block.columns]
        return rows.selectExpr(PART, ROW, *columns)

    def _united(self, rows: Sequence[DataFrame]) -> DataFrame:
        """Returns the rows of branches with the hash of their values."""
        return self._hashed(reduce(DataFrame.unionAll, rows))

    def _by_group(self, anchors: RowSet) -> _Part:
        """Returns the groups, or partitions, of joined rows of anchors, then or now, computed from all their rows."""
        column = ROW if self.block.unit is Unit.GROUP else PART
        keys = self._groups_here(anchors, column) or self._groups_of(anchors, column)
        if not keys.at_most:
            return self._nothing(keys)
        same = [f"{_TOUCHED}.{GROUP_VALUE.format(n)} <=> {sql}" for n, sql in enumerate(self.block.values)]
        found = self.joins.of_groups(keys, self._most_groups()) if same else None
        frames = (self._all() if found is None else found) | ({_TOUCHED: keys.frame} if same else {})

        def sql(tables: Mapping[str, str]) -> str:
            of_touched = f"EXISTS (SELECT 1 FROM {tables.get(_TOUCHED)} AS {_TOUCHED} WHERE {' AND '.join(same)})"
            return self.block.of(tables, self.more, of_touched if same else "")

        return _Part(self._hashed(sql_over(frames, sql)), keys, (column,))

    def _most_groups(self) -> int:
        """Returns the number of groups that are stored; of the rows of the anchor, if only some groups are kept."""
        block = self.block
        if block.having() or (block.keep is not None and block.keep.where):
            return self.snapshot.number(block.anchor.relation)
        return self.read.rows(block.name)

    def _groups_of(self, anchors: RowSet, column: str) -> RowSet:
        """Returns the groups, or partitions, of joined rows of anchors, then or now: values and hash."""
        values = [f"{sql} AS {GROUP_VALUE.format(number)}" for number, sql in enumerate(self.block.values)]
        of_one, both = values or ["1 AS _fk_one"], self._both()
        joined = sql_over(self.joins.frames(anchors, both), lambda tables: self.block.joined(tables, of_one, both))
        return self.read.cached(with_row_hash(joined.distinct(), column, _values(self.block.by), "FALSE"), None)

    def _groups_here(self, anchors: RowSet, column: str) -> RowSet | None:
        """Returns the same, and perhaps others, where they are columns of the anchor; None if Spark must find them."""
        by = self.block.grouped_by(self.block.anchor.name)
        if not by or len(by) < len(self.block.by):
            return None
        rows = self.joins.rows_of(anchors, [self.block.anchor.name]).local
        relation = self.relations[self.block.anchor.relation].table
        own = {name.lower(): (name, kind) for name, kind in relation.columns}
        if rows is None or not all(is_compared_as_stored(own[name][1].upper()) for name in by.values()):
            return None
        columns = [own[name][0] for name in by.values()]
        if len({*columns}) < len(columns):
            return None
        values = distinct([rows], columns).rename_columns(_values(self.block.by))
        try:
            hashes = pa.array(row_digests(values, values.column_names), pa.binary())
        except LeftToSpark:
            return None
        kinds = [(GROUP_VALUE.format(number), own[name][1]) for number, name in by.items()]
        return self.read.held(values.append_column(column, hashes), [*kinds, (column, "BINARY")])

    def _by_arithmetic(self, anchors: RowSet) -> _Part:
        """Returns the groups of joined rows of anchors, from their numbers and what the anchors gave and give."""
        names, groups, both = [*self._kept()], _values(self.block.by), self._both()
        numbers = sql_over(self.joins.frames(anchors, both), lambda tables: self._numbers(tables, both))
        # Counts and sums are added by SUM alone: `+` and `*` of long DECIMALs lose digits.
        signed = numbers.selectExpr(*groups, *(f"IF({IS_NOW}, {name}, -{name}) AS {name}" for name in names))
        added = _summed(signed, groups, names)
        keys = self.read.cached(with_row_hash(added, ROW, groups, "FALSE"), None)
        stored = self.read.with_keys(self.block.name, keys, {ROW: ROW}, needed=names).select(ROW, *names)
        totals = _summed(stored.unionByName(keys.frame.select(ROW, *names)), [ROW], names)
        kinds = dict(self.table.columns)
        sums = [f"CAST({name} AS {kinds[name]}) AS {name}" for name in names]
        rows = keys.frame.drop(*names).join(totals, ROW).selectExpr(*groups, *sums)
        rows = rows.where(f"{ROWS} > 0") if groups else rows
        return _Part(self._shown(rows), keys, (ROW,))

    def _kept(self) -> dict[str, str]:
        """Returns the hidden columns: name and SQL."""
        return {} if self.sums is None else self.sums.numbers(dict(self.table.columns))

    def _numbers(self, tables: Mapping[str, str], both: Collection[str] = ()) -> str:
        """SQL: the hidden columns of each group; with tables of two versions (`Block.joined`) of each in each."""
        values = [f"{sql} AS {GROUP_VALUE.format(number)}" for number, sql in enumerate(self.block.values)]
        kept = [f"{sql} AS {name}" for name, sql in self._kept().items()]
        side = [f"{quote(self.block.anchor.name)}.{IS_NOW}"] if both else []
        sql, by = self.block.joined(tables, [*side, *values, *kept], both), [*side, *self.block.values]
        return f"{sql} GROUP BY {', '.join(by)}" if by else sql

    def _shown(self, numbers: DataFrame) -> DataFrame:
        """Returns groups with the columns of the block, given their numbers."""
        assert self.sums is not None
        types = dict(self.table.columns) | means_of(self.session, self.sums, dict(self.table.columns))
        made = self.sums.values(types)
        inner = numbers.selectExpr(*numbers.columns, *(f"{sql} AS {quote(name)}" for name, sql in made.items()))
        keep, hidden = self.block.keep, [*_values(self.block.by), *self._kept()]
        if keep is not None:
            kept = [f"{sql} AS {quote(name)}" for sql, name in zip(keep.columns, self.block.columns, strict=True)]
            inner = sql_over(
                {"rows": inner},
                lambda tables: f"SELECT {', '.join((*kept, *hidden))} FROM {tables['rows']} AS {quote(keep.alias)}",
            )
        return self._hashed(inner)

    def _anchors(self) -> RowSet:
        """Returns the keys of the anchors whose joined rows may differ; of a UNION ALL, hashes of branch and key."""
        if not self.block.branches:
            return self.joins.anchors()
        keys = [
            with_row_hash(rows, PART, _anchor_of(rows), "FALSE").select(PART)
            for number, (anchors, _) in self.touched.items()
            for rows in [anchors.frame.selectExpr(f"{number} AS {BRANCH}", "*")]
        ]
        if not keys:
            return self.read.held(pa.table({PART: pa.array([], pa.binary())}), [(PART, "BINARY")])
        return self.read.cached(reduce(DataFrame.unionAll, keys), None)

    # ------------------------------------------------------------------------------------------------ what is committed
    def _hashed(self, rows: DataFrame) -> DataFrame:
        """Returns rows with the hashes of key, partition and values."""
        names = self.table.names
        if PART in names and PART not in rows.columns:
            rows = with_row_hash(rows, PART, _values(self.block.by), "FALSE")
        if ROW in names and ROW not in rows.columns:
            rows = with_row_hash(rows, ROW, row_key(rows, self.block), "FALSE")
        rows = with_row_hash(rows, s.HASH, self.block.columns, "FALSE")
        return rows.select(*[quote(name) for name in names if name not in (s.BATCH, s.CHANGED_AT)])

    def upsert(self, part: _Part) -> Upsert:
        """Returns the effect that writes the rows which differ from what is stored, with the versions."""
        name, batch = self.table.name, int(self.read.known[-1])
        is_first = not self.read.rows(name)
        as_new = (f"'{ADDED}' AS {_DECISION}", f"FALSE AS {s.DELETED}")
        changed = part.rows.selectExpr("*", *as_new) if is_first else self._differing(part)
        rows = changed.selectExpr("*", f"{batch} AS {s.BATCH}", f"CURRENT_TIMESTAMP() AS {s.CHANGED_AT}")
        all_at_once = is_first and part.keys is None
        kept = self.read.planned(rows, UNKNOWN) if all_at_once else self.read.cached(rows, None)
        counted = CountBy(s.BATCH, _DECISION, stored=s.BATCH, first=ADDED if is_first else "")
        number, facts = kept.at_most, self._facts()
        if all_at_once:  # they are written as they are computed, and counted in the table
            anchors = sum(self.snapshot.number(one.anchor.relation) for one in self.block.parts)
            number = max(self.read.few + 1, anchors)
        return Upsert(name, kept, number, s.DELETED, counted=counted, new=ADDED, metadata=facts, always=True)

    def _differing(self, part: _Part) -> DataFrame:
        """Returns the rows that differ from what is stored, and the keys of those that are gone."""
        keys, numbers = [*self.table.keys], [*self._kept()]
        stored, needed = self.read.read(self.table.name), [*keys, s.HASH, *numbers]
        if part.keys is not None and not part.keys.at_most:
            stored = stored.limit(0)
        elif part.keys is not None:
            same = {column: column for column in part.columns}
            stored = self.read.with_keys(self.table.name, part.keys, same, needed=[*needed, *same])
            stored = stored.join(part.keys.frame.select(*same), [*same], "left_semi")
        before = stored.selectExpr(*map(quote, keys), f"STRUCT({', '.join((s.HASH, *numbers))}) AS {_BEFORE}")
        both = part.rows.join(before, keys, "full")
        there = f"STRUCT({', '.join((s.HASH, *numbers))})"
        differs = f"IF({s.HASH} IS NULL, {_BEFORE} IS NOT NULL, NOT ({there} <=> {_BEFORE}))"
        decided = (
            f"CASE WHEN {s.HASH} IS NULL THEN '{REMOVED}' WHEN {_BEFORE} IS NULL THEN '{ADDED}' ELSE '{WRITTEN}' END"
        )
        told = (f"{decided} AS {_DECISION}", f"{s.HASH} IS NULL AS {s.DELETED}")
        return both.where(differs).selectExpr("*", *told).drop(_BEFORE)

    def _facts(self) -> dict[str, Any]:
        """Returns what the commit says of its rows: which versions they were made of, and which they stand for."""
        versions = {name: [seen.id, seen.version] for name, seen in self.now.items() if seen is not None}
        stands: dict[str, set[tuple[str, int]]] = {}
        for name, seen in self.now.items():
            own = {name: [] if seen is None else [(seen.id, seen.version)]}
            for of, some in (own if name in self.spec.inputs else standing_for(self.read.metadata(name))).items():
                stands.setdefault(of, set()).update(some)
        facts = {VERSIONS: versions, STANDS_FOR: {name: sorted(some) for name, some in stands.items()}}
        return facts if self.decision is None else facts | {COSTS: facts_of(self.decision, self.earlier)}


def _anchor_of(rows: DataFrame) -> list[str]:
    """Returns the columns with the number of the branch of a UNION ALL, and the key of the anchor."""
    return [name for name in rows.columns if name.startswith((BRANCH, ANCHOR.format("")))]


def _summed(rows: DataFrame, by: list[str], names: list[str]) -> DataFrame:
    """Returns the sums of some columns per group."""
    return rows.groupBy(*by).agg(*(F.sum(name).alias(name) for name in names))


def _values(by: tuple[Any, ...]) -> list[str]:
    """Returns the names of the columns with the values of a group or partition."""
    return [GROUP_VALUE.format(number) for number in range(len(by))]


def _version(seen: Seen | None) -> str:
    return "-" if seen is None else seen.shown
