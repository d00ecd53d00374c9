"""By which columns, and which values in them, rows of a table are looked up that are joined to rows of another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fk_pipeline.blocks.refresh.changes import local_rows
from fk_pipeline.blocks.refresh.relations import Snapshot
from fk_pipeline.blocks.refresh.tables import is_compared_as_stored
from fk_pipeline.blocks.select.block import ANCHOR, Alias, Block, NearMatch
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store.local import distinct


class Lookups:
    """What is looked up of the tables of a block."""

    def __init__(self, read: Reader, block: Block, now: Snapshot) -> None:
        """Takes the block, and what it reads at the newer versions."""
        self.read, self.block, self.snapshot = read, block, now

    def alias(self, name: str) -> Alias:
        """Returns a table of the FROM by its alias."""
        return next(alias for alias in self.block.aliases if alias.name == name)

    def columns(self, relation: str) -> dict[str, tuple[str, str]]:
        """Returns the name and type of each column of a relation, by its name in lower case."""
        return {name.lower(): (name, dtype.upper()) for name, dtype in self.snapshot.relations[relation].table.columns}

    def anchor_columns(self) -> dict[str, str]:
        """Returns, per key column of the anchor, its name among anchors."""
        return {
            name: ANCHOR.format(n) for n, name in enumerate(self.snapshot.relations[self.block.anchor.relation].keys)
        }

    def equal(self, alias: Alias) -> dict[str, str]:
        """Returns, per column of a table that is equal to one of its parent in matching rows, the name of that column.

        Columns whose values Spark compares otherwise than they are stored, or of two types, are left out.
        """
        own, its = (self.columns(table.relation) for table in (alias, self.alias(alias.parent)))
        pairs = ((own[column], its[other]) for column, other in alias.equal)
        return {name: of for (name, dtype), (of, other) in pairs if dtype == other and is_compared_as_stored(dtype)}

    def values_by(
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
        dtypes = [(field.name, field.dataType.simpleString()) for field in rows.frame.schema.fields]
        if rows.local is None:
            others = [quote(name) for name, _ in dtypes if name != column]
            added = (
                f"EXPLODE(ARRAY({', '.join(f'{quote(column)} + {number}L' for number in numbers)})) AS {quote(column)}"
            )
            near = rows.frame.where(f"{quote(column)} IS NOT NULL").selectExpr(*others, added)
            return self.read.frames.cached(near.distinct(), None)
        place = rows.local.column_names.index(column)
        local = rows.local.filter(pc.is_valid(rows.local[column]))
        near_rows = [
            local.set_column(place, column, pc.add(local[column], pa.scalar(number, pa.int64()))) for number in numbers
        ]
        return self.read.frames.held(distinct(near_rows, [*dict(dtypes)]), dtypes)

    def _distinct(self, some: Sequence[RowSet], of: str, names: list[str]) -> RowSet:
        """Returns the values of some columns of rows of an alias, each once."""
        names = [*dict.fromkeys(names)]
        local, dtypes = local_rows(some), dict(self.columns(self.alias(of).relation).values())
        if local is not None:
            return self.read.frames.held(distinct(local, names), [(name, dtypes[name]) for name in names])
        both = reduce(DataFrame.union, (rows.frame.select(*map(quote, names)) for rows in some))
        return self.read.frames.cached(both.distinct(), None)
