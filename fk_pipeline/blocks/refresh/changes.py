"""What changed in the tables that a block reads, between two versions of each, and the tables with rows of both.

Few changes of a table of which Spark sees the rows as they are stored are found in the driver, without a job of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.refresh.relations import Snapshot, TableRead
from fk_pipeline.blocks.select.block import IS_NOW
from fk_pipeline.cdc.delta import changes_between, changes_in_process
from fk_pipeline.cdc.table_versions import DELETED, Seen, are_kept
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store.local import having, lacking, plain, renamed
from fk_pipeline.store.reader import keys_as
from fk_pipeline.store.schemas import Table

IS, MORE = "_fk_is", "_fk_more"
"""Columns of keys: whether a key has a row at the newer version; how many rows more the changes left it than those that
old and new tell."""

OLD, NEW = "_fk_old", "_fk_new"
"""Columns of pairs: the old and the new row of a key as structs; null where there is none."""

_CHANGE, _VERSION = "_change_type", "_commit_version"
_REMOVED = (DELETED, "update_preimage")


@dataclass(frozen=True)
class Changes:
    """The rows of a relation that differ between two versions; one row per key, with the columns of the relation.

    Attributes:
        old: as they were; not those that were not there.
        new: as they are; not those that are gone.
        number: the number of keys.
        to_check: of a relation whose key is only declared, the keys that got a row, have a null, or have more changes
            than old and new tell, with `IS` and `MORE` (`keys` looks at them); None of others.
    """

    old: RowSet
    new: RowSet
    number: int
    to_check: pa.Table | None = None

    @property
    def both(self) -> tuple[RowSet, RowSet]:
        """Old and new rows."""
        return self.old, self.new


def changes(read: Reader, snapshot: Snapshot, name: str, before: Seen, after: Seen) -> Changes | None:
    """Returns what changed in a relation; None if that is lost.

    Args:
        read: the reader of the stage, which frees what is computed.
        snapshot: the relations at the newer version.
        name: the relation.
        before: the older version.
        after: the newer one.
    """
    relation = snapshot.relations[name]
    if relation.is_clock:
        return of_step(snapshot, name, before.version, after.version)
    path = f"{after.location}@{before.version + 1}..{after.version}"
    if not are_kept(path):
        return None
    if relation.stored and relation.is_comparable:
        feed = changes_in_process(path, relation.table.names, read.limits.in_driver)
        if feed is not None:
            old, new, to_check, number = _ends(feed, relation)
            snapshot.knows(name, new, old)
            return Changes(snapshot.held(name, old), snapshot.held(name, new), number, to_check)
    versions = read.frames.cached(_versions(changes_between(snapshot.session, path), relation), None)
    to_check = _to_check(versions, relation) if relation.declared else None
    return of_versions(read, relation, versions, to_check)


def of_step(snapshot: Snapshot, name: str, before: int, after: int) -> Changes:
    """Returns the old and the new row of a clock that goes from a step to another one, as far as they differ."""
    old, new = (snapshot.shown(name, version) for version in (before, after))
    if old.equals(new):
        old, new = old.slice(0, 0), new.slice(0, 0)
    return Changes(snapshot.held(name, old), snapshot.held(name, new), len(new))


def of_versions(read: Reader, relation: TableRead, versions: RowSet, to_check: pa.Table | None = None) -> Changes:
    """Returns changes, given a row per key with the old and the new row as structs, `OLD` and `NEW`."""
    names = relation.table.names
    if versions.local is None:
        some = (versions.frame.where(f"{column} IS NOT NULL").select(f"{column}.*") for column in (OLD, NEW))
        old, new = (
            read.frames.planned(rows.select(*map(quote, names)), versions.at_most, cached=True) for rows in some
        )
        return Changes(old, new, versions.frame.count(), to_check)
    structs = [versions.local[column].drop_null().combine_chunks() for column in (OLD, NEW)]
    tables = [pa.table(values.flatten(), [field.name for field in values.type]).select(names) for values in structs]
    old, new = (read.frames.held(table, relation.table.columns) for table in tables)
    return Changes(old, new, len(versions.local), to_check)


def _ends(feed: pa.Table, relation: TableRead) -> tuple[pa.Table, pa.Table, pa.Table | None, int]:
    """Returns old rows, new rows, keys to look at, and the number of keys, of the rows of a feed in the driver."""
    was = [kind in _REMOVED for kind in feed[_CHANGE].to_pylist()]
    order = [*zip(feed[_VERSION].to_pylist(), (not removed for removed in was), range(len(was)), strict=True)]
    rows = feed.select(relation.table.names)
    by_key: dict[tuple[object, ...], list[tuple[int, bool, int]]] = {}
    for key, place in zip(zip(*(plain(rows[column]) for column in relation.keys), strict=True), order, strict=True):
        by_key.setdefault(key, []).append(place)
    ends = {key: (min(some)[2], max(some)[2]) for key, some in by_key.items()}
    pairs = [(first if was[first] else None, None if was[last] else last) for first, last in ends.values()]
    values = [plain(rows[column]) for column in rows.column_names]
    pairs = [(old, new) for old, new in pairs if old is None or new is None or any(v[old] != v[new] for v in values)]
    pairs = [(old, new) for old, new in pairs if new is not None or (old is not None and not relation.is_state)]
    places = [pa.array([at for at in some if at is not None], pa.int64()) for some in zip(*pairs, strict=True)]
    old, new = (rows.take(some) for some in places) if places else (rows.slice(0, 0), rows.slice(0, 0))
    return old, new, _to_check_in_driver(rows, relation, by_key, was, ends) if relation.declared else None, len(pairs)


def _to_check_in_driver(
    rows: pa.Table,
    relation: TableRead,
    by_key: Mapping[tuple[object, ...], Sequence[tuple[int, bool, int]]],
    was: Sequence[bool],
    ends: Mapping[tuple[object, ...], tuple[int, int]],
) -> pa.Table:
    """Returns `Changes.to_check`; `by_key`: the changes per key, `was`: which removed a row, `ends`: first and last."""
    at, present, more = list[int](), list[bool](), list[int]()
    for key, (first, last) in ends.items():
        left = sum(1 if is_new else -1 for _, is_new, _ in by_key[key])
        above = left - (0 if was[last] else 1) + (1 if was[first] else 0)
        if not was[first] or above or None in key:
            at.append(last)
            present.append(not was[last])
            more.append(above)
    keys = rows.select([*relation.keys]).take(pa.array(at, pa.int64()))
    return keys.append_column(IS, pa.array(present, pa.bool_())).append_column(MORE, pa.array(more, pa.int32()))


def _to_check(versions: RowSet, relation: TableRead) -> pa.Table:
    """Returns `Changes.to_check` of what Spark computed."""
    keys = [quote(key) for key in relation.keys]
    present = f"{NEW} IS NOT NULL AS {IS}"
    without = " OR ".join(f"{key} IS NULL" for key in keys)
    rows = versions.frame.where(f"{OLD} IS NULL OR {MORE} <> 0 OR {without}")
    return rows.selectExpr(*keys, present, MORE).toArrow()


def _versions(feed: DataFrame, relation: TableRead) -> DataFrame:
    """Returns the old and new version, as structs, of every row that changed; null where there is no such row.

    If the key of the relation is only declared, also the key, `MORE`, and rows of keys that came and went.
    """
    rows = _with(feed, relation.table) if relation.stored else relation.view(feed)
    row = ", ".join(quote(name) for name in relation.table.names)
    was = f"{_CHANGE} IN {_REMOVED}"
    ends = rows.selectExpr(
        *map(quote, relation.keys),
        f"STRUCT({was} AS was, STRUCT({row}) AS row) AS _fk_one",
        f"STRUCT({_VERSION} AS version, NOT ({was}) AS is_new) AS _fk_order",
    )
    first, last = (F.expr(f"{function}(_fk_one, _fk_order)") for function in ("MIN_BY", "MAX_BY"))
    left = [F.expr("CAST(SUM(IF(_fk_one.was, -1, 1)) AS INT)").alias(MORE)] if relation.declared else []
    both = ends.groupBy(*map(quote, relation.keys)).agg(first.alias("_fk_first"), last.alias("_fk_last"), *left)
    columns = [f"IF(_fk_first.was, _fk_first.row, NULL) AS {OLD}", f"IF(_fk_last.was, NULL, _fk_last.row) AS {NEW}"]
    if relation.declared:
        columns += [*map(quote, relation.keys), f"{MORE} - IF(_fk_last.was, 0, 1) + IF(_fk_first.was, 1, 0) AS {MORE}"]
    versions = both.selectExpr(*columns)
    has_maps = "map<" in versions.schema.simpleString()  # which Spark does not compare
    versions = versions.where(f"{NEW} IS NOT NULL") if relation.is_state else versions
    unclear = f" OR {OLD} IS NULL OR {MORE} <> 0" if relation.declared else ""
    return versions if has_maps else versions.where(f"NOT ({OLD} <=> {NEW}){unclear}")


def _with(rows: DataFrame, table: Table) -> DataFrame:
    """Returns rows of a feed with the columns of a table; one that it has got since is null."""
    present = {name.lower() for name in rows.columns}
    own = [
        quote(name) if name.lower() in present else f"CAST(NULL AS {dtype}) AS {quote(name)}"
        for name, dtype in table.columns
    ]
    return rows.selectExpr(*own, _CHANGE, _VERSION)


class BothVersions:
    """The relations with the rows of two versions, told apart by `IS_NOW`: of a snapshot, and as they were before."""

    def __init__(self, read: Reader, now: Snapshot, changed: Mapping[str, Changes]) -> None:
        """Takes the newer versions, and per relation what changed since the older one."""
        self.read, self.now, self.changed = read, now, changed

    def rows(self, name: str) -> DataFrame:
        """Returns the rows of a relation."""
        now = self.now.rows(name)
        then = now if name not in self.changed else self._before(name, now, self.changed[name].old.frame)
        return _side_by_side(now, then)

    def with_keys(self, name: str, keys: RowSet, columns: Mapping[str, str]) -> RowSet:
        """Returns the rows of a relation with some keys (`Snapshot.with_keys`)."""
        now = self.now.with_keys(name, keys, columns)
        then = self._before_in_driver(name, now, keys, columns)
        if now.local is not None and then is not None:
            sides = [
                side.append_column(IS_NOW, pa.repeat(is_now, len(side)))
                for side, is_now in ((now.local, True), (then, False))
            ]
            return self.now.held(name, pa.concat_tables(sides).combine_chunks(), (IS_NOW, "BOOLEAN"))
        if name not in self.changed:
            return self.read.frames.cached(_side_by_side(now.frame, now.frame), None)
        old = self.changed[name].old.frame.select(*map(quote, now.frame.columns))
        matching = old.join(keys_as(keys.frame, columns), [*columns], "left_semi")
        return self.read.frames.cached(_side_by_side(now.frame, self._before(name, now.frame, matching)), None)

    def _before_in_driver(self, name: str, now: RowSet, keys: RowSet, columns: Mapping[str, str]) -> pa.Table | None:
        """Returns the older rows with some keys, given the newer ones; None if Spark must find them."""
        if name not in self.changed:
            return now.local
        changed = self.changed[name]
        if now.local is None or changed.old.local is None or changed.new.local is None or keys.local is None:
            return None
        if not self.now.relations[name].is_comparable:
            return None
        requested = renamed(keys.local, columns)
        old = changed.old.local.select(now.local.column_names).cast(now.local.schema)
        new = changed.new.local.select(self.now.relations[name].keys)
        return pa.concat_tables([lacking(now.local, new), having(old, requested)])

    def _before(self, name: str, now: DataFrame, old: DataFrame) -> DataFrame:
        """Returns the older rows, given the newer ones and the old versions of changed ones among them."""
        keys = [*self.now.relations[name].keys]
        new = self.changed[name].new.frame.select(*map(quote, keys))
        same = now.join(F.broadcast(new), keys, "left_anti")
        return same.unionByName(old.select(*map(quote, now.columns)))


def _side_by_side(now: DataFrame, then: DataFrame) -> DataFrame:
    return now.selectExpr("*", f"TRUE AS {IS_NOW}").unionByName(then.selectExpr("*", f"FALSE AS {IS_NOW}"))


def local_rows(some: Sequence[RowSet]) -> list[pa.Table] | None:
    """Returns the rows of all sets; None if one of them is not in the driver."""
    tables = [rows.local for rows in some if rows.local is not None]
    return tables if len(tables) == len(some) else None
