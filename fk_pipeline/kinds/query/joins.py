"""The joins of a block: from changed rows along them to anchors, and from anchors to the rows that they are joined to.

Few rows of a table are found by keys in the driver, without a job of Spark; many rows are joined by Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame

from fk_pipeline.effects import Reader, RowSet
from fk_pipeline.kinds.query.blocks import ANCHOR, Alias, Block
from fk_pipeline.kinds.query.changes import BothVersions, Changes, local_rows
from fk_pipeline.kinds.query.relations import Snapshot, sql_over
from fk_pipeline.kinds.query.tables import is_compared_as_stored
from fk_pipeline.spec import quote
from fk_pipeline.store.local import distinct


class Joins:
    """The joins of a block over tables of which rows changed."""

    def __init__(self, read: Reader, block: Block, now: Snapshot, changed: Mapping[str, Changes]) -> None:
        """Takes the block, what it reads at the newer versions, and what changed of it since the older ones."""
        self.read, self.block, self.snapshot, self.changes = read, block, now, changed

    def anchors(self) -> RowSet:
        """Returns the keys of the anchors whose joined rows may differ."""
        anchor, columns = self.snapshot.relations[self.block.anchor.relation], self._anchor_columns()
        parts = [
            rows
            for one in self.block.aliases
            if one.relation in self.changes
            for rows in self._traced(one, self.changes[one.relation].both)
        ]
        local = local_rows(parts)
        if local is not None and (anchor.is_comparable or not local):
            kinds = dict(anchor.table.columns)
            found = distinct(local, [*columns]).rename_columns(columns) if local else pa.table({})
            return self.read.held(found, [(name, kinds[key]) for key, name in columns.items()])
        named = [rows.frame.selectExpr(*(f"{quote(key)} AS {of}" for key, of in columns.items())) for rows in parts]
        return self.read.cached(reduce(DataFrame.unionByName, named).distinct(), None)

    def out_of_reach(self) -> str:
        """Returns which changed rows are joined to rows that have none of a table on the way; empty if none are."""
        for one in self.block.aliases:
            steps = [*itertools.pairwise(self.block.steps(one))]
            if one.relation not in self.changes or not any(child.may_match_none for child, _ in steps):
                continue
            rows: Sequence[RowSet] = self.changes[one.relation].both
            for child, parent in steps:
                table = self.snapshot.relations[parent.relation].table
                none = self.snapshot.session.range(1).selectExpr(
                    *(f"CAST(NULL AS {t}) AS {quote(n)}" for n, t in table.columns)
                )
                if child.may_match_none and self._matching(child, parent, rows, none).limit(1).count():
                    return f"changed rows of {one.relation} are joined to rows that have none of {parent.name}"
                rows = self._step(child, parent, rows)
        return ""

    def frames(self, anchors: RowSet, both: Collection[str] = ()) -> dict[str, DataFrame]:
        """Returns, per alias, its rows now, of the anchor only those given; and then, of the aliases in `both`.

        Of a table that is joined to few rows, only those are read that these rows ask for, then or now.
        """
        frames, few = dict[str, DataFrame](), dict[str, RowSet]()
        versions = BothVersions(self.read, self.snapshot, self.changes)
        for one in self.block.aliases:
            of = versions if one.name in both else self.snapshot
            wanted, columns = self._asked(one, few.get(one.parent)) if one.parent else (anchors, self._anchor_columns())
            if wanted is None or (one.parent and wanted.at_most > self.read.few):
                frames[one.name] = of.rows(one.relation)
            else:
                few[one.name] = of.with_keys(one.relation, wanted, columns)
                frames[one.name] = few[one.name].frame
        return frames

    def _anchor_columns(self) -> dict[str, str]:
        """Returns, per key column of the anchor, its name among anchors."""
        return {
            name: ANCHOR.format(n) for n, name in enumerate(self.snapshot.relations[self.block.anchor.relation].keys)
        }

    def _asked(self, alias: Alias, parent: RowSet | None) -> tuple[RowSet | None, dict[str, str]]:
        """Returns the values by which rows of a table are joined to few rows, and per column of it their names there.

        None if reading the table is as good, or it is not joined by columns alone.
        """
        names = self._equal(alias)
        if parent is None or not names or not self.snapshot.is_looked_up(alias.relation):
            return None, {}
        return self._distinct([parent], alias.parent, [*names.values()]), names

    def _distinct(self, some: Sequence[RowSet], of: str, names: list[str]) -> RowSet:
        """Returns the values of some columns of rows of an alias, each once."""
        local, kinds = local_rows(some), dict(self._columns(self._alias(of).relation).values())
        if local is not None:
            return self.read.held(distinct(local, names), [(name, kinds[name]) for name in names])
        both = reduce(DataFrame.union, (rows.frame.select(*map(quote, names)) for rows in some))
        return self.read.cached(both.distinct(), None)

    def _alias(self, name: str) -> Alias:
        return next(one for one in self.block.aliases if one.name == name)

    def _equal(self, alias: Alias) -> dict[str, str]:
        """Returns, per column of a table that is equal to one of its parent in matching rows, the name of that column.

        Columns whose values Spark compares otherwise than they are stored, or of two types, are left out.
        """
        own, its = (self._columns(one.relation) for one in (alias, self._alias(alias.parent)))
        pairs = ((own[one], its[other]) for one, other in alias.equal)
        return {name: of for (name, kind), (of, other) in pairs if kind == other and is_compared_as_stored(kind)}

    def _columns(self, relation: str) -> dict[str, tuple[str, str]]:
        """Returns the name and type of each column of a relation, by its name in lower case."""
        return {name.lower(): (name, kind.upper()) for name, kind in self.snapshot.relations[relation].table.columns}

    def _traced(self, alias: Alias, rows: Sequence[RowSet]) -> Sequence[RowSet]:
        """Returns the anchors of rows of a table, found along the joins; maybe some more."""
        for child, parent in itertools.pairwise(self.block.steps(alias)):
            rows = self._step(child, parent, rows)
        return rows

    def _step(self, child: Alias, parent: Alias, rows: Sequence[RowSet]) -> Sequence[RowSet]:
        """Returns the rows of the parent of a table that some rows of the table match; maybe some more."""
        names = {of: own for own, of in self._equal(child).items()}
        wanted = self._distinct(rows, child.name, [*names.values()]) if names else None
        if wanted is None or wanted.at_most > self.read.few:
            return [self.read.cached(self._matching(child, parent, rows, self.snapshot.rows(parent.relation)), None)]
        found = self.snapshot.with_keys(parent.relation, wanted, names)
        if len(names) < len(child.path):  # there are conditions other than the equal columns
            found = self.read.cached(self._matching(child, parent, rows, found.frame), None)
        return [found]

    @staticmethod
    def _matching(child: Alias, parent: Alias, rows: Sequence[RowSet], parents: DataFrame) -> DataFrame:
        """Returns the rows of the parent of a table that some rows of the table match."""
        on = " AND ".join(child.path)

        def sql(tables: Mapping[str, str]) -> str:
            of_child, of_parent = (f"{tables[one.name]} AS {quote(one.name)}" for one in (child, parent))
            return f"SELECT {quote(parent.name)}.* FROM {of_parent} LEFT SEMI JOIN {of_child} ON {on}"

        both = reduce(DataFrame.unionByName, (one.frame for one in rows))
        return sql_over({child.name: both, parent.name: parents}, sql)
