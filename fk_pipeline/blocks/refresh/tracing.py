"""From changed rows of the tables of a block along its joins to the anchors that they touch.

Few rows of a table are found by keys in the driver, without a job of Spark; many rows are joined by Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from fk_pipeline.blocks.refresh.changes import Changes, local_rows
from fk_pipeline.blocks.refresh.lookups import Lookups
from fk_pipeline.blocks.refresh.ranges import passed_range
from fk_pipeline.blocks.refresh.tables import is_compared_as_stored
from fk_pipeline.blocks.select.block import Alias
from fk_pipeline.blocks.select.trees import named
from fk_pipeline.blocks.select.written import expression_over
from fk_pipeline.conditions_of_sql import parsed
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.frames import sql_over
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import DIALECT
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store.local import distinct

_OLD, _NEW = "_fk_then", "_fk_now"
"""The names of a table of one row, with the old row and with the new one."""


class Tracing:
    """Finds the anchors of a block whose joined rows changes of its tables touch."""

    def __init__(self, lookups: Lookups, changed: Mapping[str, Changes]) -> None:
        """Takes the lookups of a block, and what changed of its tables since the older versions."""
        self.lookups, self.changes = lookups, changed
        self.read, self.block, self.snapshot = lookups.read, lookups.block, lookups.snapshot
        self._changed_rows: dict[str, list[tuple[Alias, Sequence[RowSet]]]] = {}

    def anchors(self, again: RowSet | None = None) -> RowSet:
        """Returns the keys of the anchors whose joined rows may differ; `again`: further rows of the anchor."""
        parts = [
            rows
            for alias in self.block.aliases
            if alias.relation in self.changes
            for at, changed in self._changed(alias)
            for rows in self.traced(at, changed)
        ]
        return self.keys_of([*parts, *self.passed, *([] if again is None else [again])])

    @cached_property
    def passed(self) -> list[RowSet]:
        """The rows of the anchor for which the condition that moves is another one than it was."""
        moving, name = self.block.moving, self.block.anchor.relation
        if moving is None or (moving.low is not None and moving.low == moving.high):
            return []
        rows = self.snapshot.reader.in_range(name, moving.column, moving.low, moving.high)
        keys = [*map(quote, self.snapshot.relations[name].keys)]
        return [self.read.frames.cached(self._left_by_spark(self.block.anchor, rows).select(*keys), None)]

    def keys_of(self, parts: Sequence[RowSet]) -> RowSet:
        """Returns the keys of rows of the anchor, each once."""
        anchor, columns = self.snapshot.relations[self.block.anchor.relation], self.lookups.anchor_columns()
        local = local_rows(parts)
        if local is not None and (anchor.is_comparable or not local):
            dtypes = dict(anchor.table.columns)
            keys = distinct(local, [*columns]).rename_columns(columns) if local else pa.table({})
            return self.read.frames.held(keys, [(name, dtypes[key]) for key, name in columns.items()])
        named = [rows.frame.selectExpr(*(f"{quote(key)} AS {of}" for key, of in columns.items())) for rows in parts]
        return self.read.frames.cached(reduce(DataFrame.unionByName, named).distinct(), None)

    def _changed(self, alias: Alias) -> list[tuple[Alias, Sequence[RowSet]]]:
        """Returns the rows that must be traced as a table changed, and the table that they are rows of.

        Of a table of one row these are, in each table that a condition compares with it, the rows for which the
        condition is another one with the new row than with the old one.
        """
        if alias.name not in self._changed_rows:
            both = self.changes[alias.relation].both
            parts = self._changed_rows[alias.name] = []
            if not alias.is_single:
                parts.append((alias, [self._left(alias, rows) for rows in both]))
            for of, condition in (self.block.compared_with(alias) or ()) if alias.is_single else ():
                rows = self.snapshot.rows(self.lookups.alias(of).relation)
                passed = self.read.frames.cached(self._passed(alias, of, condition, rows), None)
                parts.append((self.lookups.alias(of), [passed]))
        return self._changed_rows[alias.name]

    def _passed(self, single: Alias, of: str, condition: str, rows: DataFrame) -> DataFrame:
        """Returns the rows of a table for which a condition with a table of one row is another one than before.

        Only those that meet what WHERE asks of them alone: others are joined to nothing, and may fail the condition.
        """
        sides = [_over(condition, single.name, side) for side in (_OLD, _NEW)]
        old, new = (changed.frame for changed in self.changes[single.relation].both)
        own = self.block.conditions_of(of)

        def sql(tables: Mapping[str, str]) -> str:
            from_ = (
                f"{tables[of]} AS {quote(of)} CROSS JOIN {tables[_OLD]} AS {_OLD} CROSS JOIN {tables[_NEW]} AS {_NEW}"
            )
            differs = [f"({term})" for term in own] + [f"NOT (({sides[0]}) <=> ({sides[1]}))"]
            return f"SELECT {quote(of)}.* FROM {from_} WHERE {' AND '.join(differs)}"

        near = passed_range(condition, of, single.name, old, new)
        return sql_over({of: rows.where(near) if near else rows, _OLD: old, _NEW: new}, sql)

    def out_of_reach(self) -> str:
        """Returns why not all rows that a change touches can be found along the joins; empty if they can."""
        for alias in self.block.aliases:
            if alias.relation not in self.changes:
                continue
            if alias.is_single:
                why = self._of_every_row(alias)
            else:
                why = next(filter(None, (self._of_absent_rows(*changed) for changed in self._changed(alias))), "")
            if why:
                return why
        return ""

    def _of_every_row(self, single: Alias) -> str:
        """Returns why a changed table of one row touches rows that cannot be found; empty if all can."""
        compared, both = self.block.compared_with(single), self.changes[single.relation].both
        if compared is None or any(rows.at_most != 1 for rows in both):
            return f"the row of {single.relation} changed, which every row of the block reads"
        for of, condition in compared:
            alias = self.lookups.alias(of)
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

    def traced(self, alias: Alias, rows: Sequence[RowSet]) -> Sequence[RowSet]:
        """Returns the anchors of rows of a table, found along the joins; maybe some more."""
        for child, parent in itertools.pairwise(self.block.steps(alias)):
            if not any(part.at_most for part in rows):
                return []
            rows = self._step(child, parent, rows)
        return rows

    def _step(self, child: Alias, parent: Alias, rows: Sequence[RowSet]) -> Sequence[RowSet]:
        """Returns the rows of the parent of a table that some rows of the table match; maybe some more."""
        names = {of: own for own, of in self.lookups.equal(child).items()}
        values = None
        if names:
            numbers = child.near.of_parents if child.near else ()
            values, names = self.lookups.values_by(rows, child.name, names, child.near, numbers)
        if values is None or values.at_most > self.read.limits.in_driver:
            parents = self._left_by_spark(parent, self.snapshot.rows(parent.relation))
            return [self.read.frames.cached(self._matching(child, parent, rows, parents), None)]
        matching = self._left(parent, self.snapshot.with_keys(parent.relation, values, names))
        if len(names) < len(child.path):  # there are conditions other than the equal columns
            matching = self.read.frames.cached(self._matching(child, parent, rows, matching.frame), None)
        return [matching]

    def _left(self, alias: Alias, rows: RowSet) -> RowSet:
        """Returns the rows of a table that WHERE leaves, as far as it asks of them alone; perhaps some more.

        The others are joined to nothing, whatever version of another table.
        """
        conditions = self.block.filters_of(alias)
        if not conditions:
            return rows
        if rows.local is None:
            return self.read.frames.planned(self._left_by_spark(alias, rows.frame), rows.at_most, cached=True)
        left, columns = rows.local, self.lookups.columns(alias.relation).values()
        dtypes = {name: left.schema.field(name).type for name, dtype in columns if is_compared_as_stored(dtype)}
        for condition in conditions:
            with suppress(LeftToSpark):
                left = left.filter(parsed(_over(condition, alias.name, ""), dtypes).mask(left))
        return rows if len(left) == len(rows.local) else self.snapshot.held(alias.relation, left)

    def _left_by_spark(self, alias: Alias, rows: DataFrame) -> DataFrame:
        """Returns the rows of a table that WHERE leaves (`_left`)."""
        conditions = " AND ".join(f"({condition})" for condition in self.block.filters_of(alias))
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

        both = reduce(DataFrame.unionByName, (part.frame for part in rows))
        return sql_over({child.name: both, parent.name: parents}, sql)


def _over(condition: str, name: str, other: str) -> str:
    """Returns a condition in which a table has another name; empty: none."""
    tree = expression_over(condition, {name})
    for column in tree.find_all(exp.Column):
        if column.table == name:
            column.set("table", named(other) if other else None)
    return tree.sql(DIALECT)
