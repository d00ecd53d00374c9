"""The joins of a block: from changed rows along them to anchors, and from anchors to the rows that they are joined to.

Few rows of a table are found by keys in the driver, without a job of Spark; many rows are joined by Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from sqlglot import exp

from fk_pipeline.blocks.refresh.changes import BothVersions, Changes, local_rows
from fk_pipeline.blocks.refresh.ranges import passed_range
from fk_pipeline.blocks.refresh.relations import Snapshot
from fk_pipeline.blocks.refresh.tables import is_compared_as_stored
from fk_pipeline.blocks.select.block import ANCHOR, GROUP_VALUE, NEAR, Alias, Block, NearMatch, NearNumbers
from fk_pipeline.blocks.select.trees import named
from fk_pipeline.blocks.select.written import expression_over
from fk_pipeline.conditions import parsed
from fk_pipeline.effects import Reader, RowSet
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.frames import sql_over
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import DIALECT
from fk_pipeline.store.local import distinct

_MOST_OF_A_TABLE = 0.3
"""The share of the groups of a block above which all rows of its tables are read, rather than those of the groups."""

_OLD, _NEW = "_fk_then", "_fk_now"
"""The names of a table of one row, with the old row and with the new one."""


class Joins:
    """The joins of a block over tables of which rows changed."""

    def __init__(self, read: Reader, block: Block, now: Snapshot, changed: Mapping[str, Changes]) -> None:
        """Takes the block, what it reads at the newer versions, and what changed of it since the older ones."""
        self.read, self.block, self.snapshot, self.changes = read, block, now, changed
        self._found_changed: dict[str, list[tuple[Alias, Sequence[RowSet]]]] = {}

    def anchors(self, again: RowSet | None = None) -> RowSet:
        """Returns the keys of the anchors whose joined rows may differ; `again`: further rows of the anchor."""
        parts = [
            rows
            for one in self.block.aliases
            if one.relation in self.changes
            for at, changed in self._changed(one)
            for rows in self._traced(at, changed)
        ]
        return self._keys_of([*parts, *self.passed, *([] if again is None else [again])])

    @cached_property
    def passed(self) -> list[RowSet]:
        """The rows of the anchor for which the condition that moves is another one than it was."""
        moving, name = self.block.moving, self.block.anchor.relation
        if moving is None or (moving.low is not None and moving.low == moving.high):
            return []
        rows = self.snapshot.reader.in_range(name, moving.column, moving.low, moving.high)
        keys = [*map(quote, self.snapshot.relations[name].keys)]
        return [self.read.cached(self._left_by_spark(self.block.anchor, rows).select(*keys), None)]

    def _keys_of(self, parts: Sequence[RowSet]) -> RowSet:
        """Returns the keys of rows of the anchor, each once."""
        anchor, columns = self.snapshot.relations[self.block.anchor.relation], self._anchor_columns()
        local = local_rows(parts)
        if local is not None and (anchor.is_comparable or not local):
            kinds = dict(anchor.table.columns)
            found = distinct(local, [*columns]).rename_columns(columns) if local else pa.table({})
            return self.read.held(found, [(name, kinds[key]) for key, name in columns.items()])
        named = [rows.frame.selectExpr(*(f"{quote(key)} AS {of}" for key, of in columns.items())) for rows in parts]
        return self.read.cached(reduce(DataFrame.unionByName, named).distinct(), None)

    def _changed(self, alias: Alias) -> list[tuple[Alias, Sequence[RowSet]]]:
        """Returns the rows that must be traced as a table changed, and the table that they are rows of.

        Of a table of one row these are, in each table that a condition compares with it, the rows for which the
        condition is another one with the new row than with the old one.
        """
        if alias.name not in self._found_changed:
            both = self.changes[alias.relation].both
            found = self._found_changed[alias.name] = []
            if not alias.is_single:
                found.append((alias, [self._left(alias, rows) for rows in both]))
            for of, condition in (self.block.compared_with(alias) or ()) if alias.is_single else ():
                rows = self.snapshot.rows(self._alias(of).relation)
                passed = self.read.cached(self._passed(alias, of, condition, rows), None)
                found.append((self._alias(of), [passed]))
        return self._found_changed[alias.name]

    def _passed(self, single: Alias, of: str, condition: str, rows: DataFrame) -> DataFrame:
        """Returns the rows of a table for which a condition with a table of one row is another one than before.

        Only those that meet what WHERE asks of them alone: others are joined to nothing, and may fail the condition.
        """
        sides = [_over(condition, single.name, side) for side in (_OLD, _NEW)]
        old, new = (one.frame for one in self.changes[single.relation].both)
        own = self.block.conditions_of(of)

        def sql(tables: Mapping[str, str]) -> str:
            from_ = (
                f"{tables[of]} AS {quote(of)} CROSS JOIN {tables[_OLD]} AS {_OLD} CROSS JOIN {tables[_NEW]} AS {_NEW}"
            )
            differs = [f"({one})" for one in own] + [f"NOT (({sides[0]}) <=> ({sides[1]}))"]
            return f"SELECT {quote(of)}.* FROM {from_} WHERE {' AND '.join(differs)}"

        near = passed_range(condition, of, single.name, old, new)
        return sql_over({of: rows.where(near) if near else rows, _OLD: old, _NEW: new}, sql)

    def out_of_reach(self) -> str:
        """Returns why not all rows that a change touches can be found along the joins; empty if they can."""
        for one in self.block.aliases:
            if one.relation not in self.changes:
                continue
            if one.is_single:
                why = self._of_every_row(one)
            else:
                why = next(filter(None, (self._of_absent_rows(*changed) for changed in self._changed(one))), "")
            if why:
                return why
        return ""

    def _of_every_row(self, single: Alias) -> str:
        """Returns why a changed table of one row touches rows that cannot be found; empty if all can."""
        compared, both = self.block.compared_with(single), self.changes[single.relation].both
        if compared is None or any(rows.at_most != 1 for rows in both):
            return f"the row of {single.relation} changed, which every row of the block reads"
        for of, condition in compared:
            alias = self._alias(of)
            may_be_absent = any(step.how for step in self.block.steps(alias))
            if may_be_absent and self._passed(single, of, condition, self._none(alias)).limit(1).count():
                return f"the row of {single.relation} changed, which rows without one of {of} are compared with"
        absent = (self._of_absent_rows(alias, rows) for alias, rows in self._changed(single))
        return next(filter(None, absent), "")

    def _of_absent_rows(self, alias: Alias, rows: Sequence[RowSet]) -> str:
        """Returns which rows of a table are joined to rows that have none of a table on the way; empty if none are."""
        steps = [*itertools.pairwise(self.block.steps(alias))]
        if not any(child.may_match_none for child, _ in steps):
            return ""
        for child, parent in steps:
            if child.may_match_none and self._matching(child, parent, rows, self._none(parent)).limit(1).count():
                return f"changed rows of {alias.relation} are joined to rows that have none of {parent.name}"
            rows = self._step(child, parent, rows)
        return ""

    def _none(self, alias: Alias) -> DataFrame:
        """Returns a row of nulls, as a left join has it where it finds no row of a table."""
        columns = self.snapshot.relations[alias.relation].table.columns
        return self.snapshot.session.range(1).selectExpr(*(f"CAST(NULL AS {t}) AS {quote(n)}" for n, t in columns))

    def frames(self, anchors: RowSet, both: Collection[str] = ()) -> dict[str, DataFrame]:
        """Returns, per alias, its rows now, of the anchor only those given; and then, of the aliases in `both`.

        Of a table that is joined to few rows, only those are read that these rows ask for, then or now.
        """
        return self._joined_to(self.rows_of(anchors, both), both)

    def rows_of(self, anchors: RowSet, both: Collection[str] = ()) -> RowSet:
        """Returns the rows of anchors, now; and then, if the anchor is in `both`."""
        of = self._versions if self.block.anchor.name in both else self.snapshot
        return of.with_keys(self.block.anchor.relation, anchors, self._anchor_columns())

    @cached_property
    def _versions(self) -> BothVersions:
        return BothVersions(self.read, self.snapshot, self.changes)

    def _joined_to(self, anchors: RowSet, both: Collection[str] = ()) -> dict[str, DataFrame]:
        """Returns, per alias, its rows that rows of the anchor may be joined to; and these."""
        few = {self.block.anchor.name: anchors}
        frames = {self.block.anchor.name: anchors.frame}
        for one in self.block.aliases[1:]:
            of = self._versions if one.name in both else self.snapshot
            wanted, columns = self._asked(one, few.get(one.parent))
            if wanted is None or wanted.at_most > self.read.few:
                frames[one.name] = of.rows(one.relation)
            else:
                few[one.name] = of.with_keys(one.relation, wanted, columns)
                frames[one.name] = few[one.name].frame
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
        own = self._columns(alias.relation)
        names = {own[column][0]: GROUP_VALUE.format(n) for n, column in self.block.grouped_by(alias.name).items()}
        values = touched.local.select([*names.values()]) if touched.local is not None else None
        if values is None or any(column.null_count for column in values.columns):
            return None
        kinds = {of: dict(own.values())[name] for name, of in names.items()}
        if self.block.near is not None:
            values = self._near(values, touched.local, self.block.near)
            names, kinds = names | {self.block.near.column: NEAR}, kinds | {NEAR: "BIGINT"}
        wanted = self.read.held(distinct([values], [*kinds]), [*kinds.items()])
        found = self.snapshot.with_keys(alias.relation, wanted, names)
        if alias is self.block.anchor:
            return self._joined_to(found)
        return self.frames(self._keys_of(self._traced(alias, [found])))

    @staticmethod
    def _near(values: pa.Table, touched: pa.Table, near: NearNumbers) -> pa.Table:
        """Returns values of groups, each with every number with which rows of the group may lie."""
        first = touched[GROUP_VALUE.format(near.value)]
        numbers = [pc.add(first, pa.scalar(near.step * place, pa.int64())) for place in range(near.count)]
        return pa.concat_tables([values.append_column(NEAR, one) for one in numbers])

    def _alias_of_groups(self, touched: RowSet) -> Alias | None:
        """Returns the table by whose columns rows of groups are looked up; None if there is none."""
        if touched.local is None:
            return None
        for one in self.block.aliases:
            by, own = self.block.grouped_by(one.name), self._columns(one.relation)
            keys = {key.lower() for key in self.snapshot.relations[one.relation].keys}
            is_near = self.block.near is not None and one is self.block.anchor
            if not (by or is_near) or one.is_single or any(step.may_match_none for step in self.block.steps(one)):
                continue
            if not all(is_compared_as_stored(own[name][1]) for name in by.values()):
                continue
            if one is self.block.anchor or {*by.values()} & keys or len(by) == len(self.block.by):
                return one if self.snapshot.is_looked_up(one.relation) else None
        return None

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
        return self._wanted([parent], alias.parent, names, alias.near, alias.near.of_rows if alias.near else ())

    def _wanted(
        self, rows: Sequence[RowSet], of: str, names: dict[str, str], near: NearMatch | None, numbers: Sequence[int]
    ) -> tuple[RowSet, dict[str, str]]:
        """Returns the values by which rows of one table are found from rows of another, and its columns with them.

        Args:
            rows: the rows.
            of: their alias.
            names: per column of the table in which they are looked for, the equal one of theirs.
            near: where matching rows lie, if that is known.
            numbers: what is added to their numbers.
        """
        if near is None:
            return self._distinct(rows, of, [*names.values()]), names
        values = self._distinct(rows, of, [*names.values(), near.column])
        return self._with_near(values, near.column, numbers), names | {near.column: near.column}

    def _with_near(self, rows: RowSet, column: str, numbers: Sequence[int]) -> RowSet:
        """Returns values, each once per number that is added to that in a column; those without one not at all."""
        kinds = [(field.name, field.dataType.simpleString()) for field in rows.frame.schema.fields]
        if rows.local is None:
            others = [quote(name) for name, _ in kinds if name != column]
            added = (
                f"EXPLODE(ARRAY({', '.join(f'{quote(column)} + {number}L' for number in numbers)})) AS {quote(column)}"
            )
            near = rows.frame.where(f"{quote(column)} IS NOT NULL").selectExpr(*others, added)
            return self.read.cached(near.distinct(), None)
        place = rows.local.column_names.index(column)
        local = rows.local.filter(pc.is_valid(rows.local[column]))
        near_rows = [
            local.set_column(place, column, pc.add(local[column], pa.scalar(one, pa.int64()))) for one in numbers
        ]
        return self.read.held(distinct(near_rows, [*dict(kinds)]), kinds)

    def _distinct(self, some: Sequence[RowSet], of: str, names: list[str]) -> RowSet:
        """Returns the values of some columns of rows of an alias, each once."""
        names = [*dict.fromkeys(names)]
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
            if not any(one.at_most for one in rows):
                return []
            rows = self._step(child, parent, rows)
        return rows

    def _step(self, child: Alias, parent: Alias, rows: Sequence[RowSet]) -> Sequence[RowSet]:
        """Returns the rows of the parent of a table that some rows of the table match; maybe some more."""
        names = {of: own for own, of in self._equal(child).items()}
        wanted = None
        if names:
            numbers = child.near.of_parents if child.near else ()
            wanted, names = self._wanted(rows, child.name, names, child.near, numbers)
        if wanted is None or wanted.at_most > self.read.few:
            parents = self._left_by_spark(parent, self.snapshot.rows(parent.relation))
            return [self.read.cached(self._matching(child, parent, rows, parents), None)]
        found = self._left(parent, self.snapshot.with_keys(parent.relation, wanted, names))
        if len(names) < len(child.path):  # there are conditions other than the equal columns
            found = self.read.cached(self._matching(child, parent, rows, found.frame), None)
        return [found]

    def _left(self, alias: Alias, rows: RowSet) -> RowSet:
        """Returns the rows of a table that WHERE leaves, as far as it asks of them alone; perhaps some more.

        The others are joined to nothing, whatever version of another table.
        """
        conditions = self.block.filters_of(alias)
        if not conditions:
            return rows
        if rows.local is None:
            return self.read.planned(self._left_by_spark(alias, rows.frame), rows.at_most, cached=True)
        left, columns = rows.local, self._columns(alias.relation).values()
        kinds = {name: left.schema.field(name).type for name, kind in columns if is_compared_as_stored(kind)}
        for one in conditions:
            with suppress(LeftToSpark):
                left = left.filter(parsed(_over(one, alias.name, ""), kinds).mask(left))
        return rows if len(left) == len(rows.local) else self.snapshot.held(alias.relation, left)

    def _left_by_spark(self, alias: Alias, rows: DataFrame) -> DataFrame:
        """Returns the rows of a table that WHERE leaves (`_left`)."""
        conditions = " AND ".join(f"({one})" for one in self.block.filters_of(alias))
        if not conditions:
            return rows
        name = quote(alias.name)
        return sql_over({"t": rows}, lambda tables: f"SELECT {name}.* FROM {tables['t']} AS {name} WHERE {conditions}")

    @staticmethod
    def _matching(child: Alias, parent: Alias, rows: Sequence[RowSet], parents: DataFrame) -> DataFrame:
        """Returns the rows of the parent of a table that some rows of the table match."""
        near = [] if child.near is None else [child.near.equal(child.name, parent.name)]
        on = " AND ".join((*child.path, *near)) or "TRUE"

        def sql(tables: Mapping[str, str]) -> str:
            of_child, of_parent = tables[child.name], f"{tables[parent.name]} AS {quote(parent.name)}"
            of_child = of_child if child.near is None else child.near.spread(of_child, child.name)
            of_child = f"{of_child} AS {quote(child.name)}"
            return f"SELECT {quote(parent.name)}.* FROM {of_parent} LEFT SEMI JOIN {of_child} ON {on}"

        both = reduce(DataFrame.unionByName, (one.frame for one in rows))
        return sql_over({child.name: both, parent.name: parents}, sql)


def _over(condition: str, name: str, other: str) -> str:
    """Returns a condition in which a table has another name; empty: none."""
    tree = expression_over(condition, {name})
    for one in tree.find_all(exp.Column):
        if one.table == name:
            one.set("table", named(other) if other else None)
    return tree.sql(DIALECT)
