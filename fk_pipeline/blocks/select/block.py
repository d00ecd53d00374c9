"""The blocks of a query: a join of tables, a WHERE, and on top nothing, a GROUP BY, or window functions. No Spark.

Each block writes SQL over tables with names of one's choice: over the current tables, over older ones, of some anchors
or groups only. `docs/kinds/query.md` defines the words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import sqlglot
from sqlglot import exp

from fk_pipeline.blocks.select.generators import lateral_sql, position_of
from fk_pipeline.blocks.select.trees import conditions_in, laterals_of
from fk_pipeline.spec.sql import DIALECT, quote

ANCHOR, ROW, PART, GROUP_VALUE, KEY_PART = "_fk_anchor_{}", "_fk_row_key", "_fk_partition", "_fk_group_{}", "_fk_key_{}"
"""Columns: a column of the key of the anchor; a hash of all keys, or of the group; a hash of the partition; a value of
the group or partition; a column of a key."""

NEAR = "_fk_near"
"""The column of rows that were spread with a number that matching rows may have (`NearMatch`, `NearNumbers`)."""

BRANCH = "_fk_branch"
"""The number of a branch of a UNION ALL, from 0, as a part of the key of its rows."""

IS_NOW = "_fk_is_now"
"""The column of a table with rows of two versions: whether the newer one has the row. A row of both occurs twice."""


class Unit(StrEnum):
    """What of a block is computed again together when a joined row changes."""

    ROW = "row"
    GROUP = "group"
    PARTITION = "partition"
    UNION = "union"


@dataclass(frozen=True)
class NearMatch:
    """How far apart the numbers of matching rows are, in a BIGINT column that both tables have.

    Attributes:
        column: the column.
        first: the least number of a row of the table, less that of the row of its parent.
        last: the greatest.
    """

    column: str
    first: int
    last: int

    @property
    def of_rows(self) -> range:
        """What the number of a row of the table may be, less that of its parent."""
        return range(self.first, self.last + 1)

    @property
    def of_parents(self) -> range:
        """What the number of its parent may be, less that of a row of the table."""
        return range(-self.last, 1 - self.first)

    def spread(self, table: str, name: str) -> str:
        """SQL (subquery): the rows of a table, called by a name, each once per number that its parent may have."""
        own = f"{quote(name)}.{quote(self.column)}"
        numbers = f"SEQUENCE({own} - ({self.last}), {own} - ({self.first}))"
        return f"(SELECT *, EXPLODE({numbers}) AS {NEAR} FROM {table} AS {quote(name)})"

    def equal(self, name: str, parent: str) -> str:
        """SQL (BOOLEAN): a row of the parent has the number of a row that was `spread`."""
        return f"{quote(parent)}.{quote(self.column)} = {quote(name)}.{NEAR}"


@dataclass(frozen=True)
class Moving:
    """A condition on rows of the anchor that becomes another one though no row changes.

    Attributes:
        holds: the condition as it is now, SQL over the aliases.
        column: the column of the anchor by which those rows are found for which it was another one: a BIGINT, or a
            TIMESTAMP, which counts in microseconds.
        low: the least value of these rows; None: any.
        high: the least value above them; None: any.
    """

    holds: str
    column: str
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Alias:
    """One table of a FROM.

    Attributes:
        name: its name in the block.
        relation: the input, or the earlier block, that it is.
        how: empty for an inner join, `LEFT`, or `ANTI`: no row of it may match, and its columns are not read elsewhere.
        parent: the earlier alias that an equality joins it to; empty for the anchor.
        path: SQL conditions over these two alone that matching rows meet.
        equal: of those that compare two columns, the column of this table and that of the parent.
        may_match_none: whether the conditions may hold where the parent, or a table on the way to it, has no row
            (LEFT JOIN): such rows are not found from this table along the path.
        is_single: whether the relation always has one row, which every row is joined to, without a condition.
        near: a number that the rows of a match have near each other, so that they are looked up by it, too.
    """

    name: str
    relation: str
    how: str = ""
    parent: str = ""
    path: tuple[str, ...] = ()
    equal: tuple[tuple[str, str], ...] = ()
    may_match_none: bool = False
    is_single: bool = False
    near: NearMatch | None = None


@dataclass(frozen=True)
class Keep:
    """A choice among the rows of a block, and what becomes of their columns.

    Attributes:
        alias: what the rows of the block are called.
        columns: SQL of each column of the outcome, over those of the block.
        where: SQL condition over the columns of the block; empty: all rows.
    """

    alias: str
    columns: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class NearNumbers:
    """Where rows of the anchor lie whose groups are generated: a group has the rows with some numbers in a column.

    Attributes:
        column: the column of the anchor, a BIGINT.
        value: the number of the value of the group, also a BIGINT (`Block.by`).
        step: how far apart two of these numbers are; the first is the value of the group.
        count: how many there are.
    """

    column: str
    value: int
    step: int
    count: int


@dataclass(frozen=True, eq=False)
class Block:
    """One block.

    Attributes:
        name: its name, and that of its stage and table.
        unit: what is computed again together.
        aliases: the tables of its FROM; the first is the anchor: every joined row has exactly one row of it.
        tree: the SELECT over tables that are called as the aliases.
        by: the expressions of GROUP BY, or of PARTITION BY.
        columns: the names of its columns.
        keep: the choice among its rows, if there is one.
        branches: of a UNION ALL its parts, blocks of the unit row; aliases of one name are of one relation. `aliases`
            are those of all, and `tree` is that of the first.
        near: where the rows of a group lie, if that is known of a value that LATERAL VIEW makes.
        moving: a further condition on rows of the anchor.
    """

    name: str
    unit: Unit
    aliases: tuple[Alias, ...]
    tree: exp.Select
    by: tuple[exp.Expr, ...]
    columns: tuple[str, ...]
    keep: Keep | None = None
    branches: tuple[Block, ...] = ()
    near: NearNumbers | None = None
    moving: Moving | None = None

    @property
    def parts(self) -> tuple[Block, ...]:
        """The branches of a UNION ALL; of any other block itself."""
        return self.branches or (self,)

    @property
    def named(self) -> tuple[str, ...]:
        """The names of the columns of its SELECT, among which `keep` chooses."""
        return tuple(output.alias_or_name for output in self.tree.selects)

    @property
    def is_one_row(self) -> bool:
        """Whether it always has exactly one row."""
        chosen = self.having() or (self.keep is not None and self.keep.where)
        return self.unit is Unit.GROUP and not self.by and not chosen

    @property
    def anchor(self) -> Alias:
        """The table of which every joined row has exactly one row."""
        return self.aliases[0]

    @property
    def relations(self) -> tuple[str, ...]:
        """The inputs and blocks that it reads, each once."""
        return tuple(dict.fromkeys(alias.relation for alias in self.aliases))

    @property
    def values(self) -> list[str]:
        """SQL of each value of the group or partition, over the aliases."""
        return [value.sql(DIALECT) for value in self.by]

    @property
    def laterals(self) -> list[exp.Expr]:
        """Each LATERAL VIEW, in order: what makes several rows, or none, of one joined row."""
        return laterals_of(self.tree)

    @property
    def positions(self) -> list[str]:
        """SQL of the positions of generated rows, which tell those of one joined row apart."""
        columns = (position_of(lateral) for lateral in self.laterals)
        return [column.sql(DIALECT) for column in columns if column is not None]

    def grouped_by(self, alias: str) -> dict[int, str]:
        """Returns the values of a group or partition that are columns of one table: number, and name in lower case."""
        return {
            number: value.name.lower()
            for number, value in enumerate(self.by)
            if isinstance(value, exp.Column) and value.table == alias
        }

    def joined(self, tables: Mapping[str, str], columns: Iterable[str], both: Collection[str] = ()) -> str:
        """SQL: columns of the joined rows that pass WHERE.

        Args:
            tables: per alias, the name of the table that stands for it.
            columns: SQL, with names.
            both: the aliases whose tables have rows of two versions (`IS_NOW`); if there are any, the anchor is one.
                Rows of one version are joined.
        """
        same = {name: f"{quote(name)}.{IS_NOW} = {quote(self.anchor.name)}.{IS_NOW}" for name in both}
        inner = [same[alias.name] for alias in self.aliases[1:] if alias.name in same and not alias.how]
        left = {alias.name: same[alias.name] for alias in self.aliases[1:] if alias.name in same and alias.how}
        return f"SELECT {', '.join(columns)} {self._from(tables, on=left)}{self._where(' AND '.join(inner))}"

    def of(self, tables: Mapping[str, str], more: Mapping[str, str] = MappingProxyType({}), only: str = "") -> str:
        """SQL: the columns of the block, and more columns (name, SQL), of all rows or of those that meet a condition.

        The condition is met by anchors, or by whole groups or partitions.
        """
        if self.branches:
            return " UNION ALL ".join(branch.of(tables, more, only) for branch in self.branches)
        names = self.columns if self.keep is None else self.named
        own = {name: output.unalias().sql(DIALECT) for name, output in zip(names, self.tree.selects, strict=True)}
        selected = ", ".join(f"{sql} AS {quote(name)}" for name, sql in (own | dict(more)).items())
        group, having = (self.tree.args.get(clause) for clause in ("group", "having"))
        on_top = "".join(f" {clause.sql(DIALECT)}" for clause in (group, having) if clause is not None)
        sql = f"SELECT {selected} {self._from(tables)}{self._where(only)}{on_top}"
        if self.keep is None:
            return sql
        chosen = [f"{sql_} AS {quote(name)}" for sql_, name in zip(self.keep.columns, self.columns, strict=True)]
        where = f" WHERE {self.keep.where}" if self.keep.where else ""
        return f"SELECT {', '.join([*chosen, *map(quote, more)])} FROM ({sql}) AS {quote(self.keep.alias)}{where}"

    def first(self, tables: Mapping[str, str], number: int, conditions: Sequence[str]) -> str:
        """SQL: the number 1 for every row of the first tables of the FROM, joined, that meets some conditions.

        `number` counts the tables, and after them each LATERAL VIEW.
        """
        where = f" WHERE {' AND '.join(f'({condition})' for condition in conditions)}" if conditions else ""
        return f"SELECT 1 AS one {self._from(tables, number)}{where}"

    def compared_with(self, single: Alias) -> list[tuple[str, str]] | None:
        """Returns the conditions of WHERE that read a table of one row, each with the only other table in it.

        None if its columns are read elsewhere, too, or beside those of several tables, or generated ones, or of one
        that hangs on it, or has one row, too: then it matters to every row.
        """
        compared, inside = list[tuple[str, str]](), set[int]()
        for condition in conditions_in(self.tree):
            columns = [*condition.find_all(exp.Column)]
            others = {column.table for column in columns} - {single.name}
            if len(others) < len({column.table for column in columns}):
                other = next((alias for alias in self.aliases if {alias.name} == others), None)
                if other is None or other.is_single or single in self.steps(other):
                    return None
                compared.append((other.name, condition.sql(DIALECT)))
                inside |= {id(column) for column in columns}
        everywhere = [column for column in self.tree.find_all(exp.Column) if column.table == single.name]
        return compared if all(id(column) in inside for column in everywhere) else None

    def conditions_of(self, alias: str) -> list[str]:
        """Returns the conditions of WHERE that read one table alone, as SQL."""
        parts = conditions_in(self.tree)
        return [
            part.sql(DIALECT) for part in parts if {column.table for column in part.find_all(exp.Column)} == {alias}
        ]

    def filters_of(self, alias: Alias) -> list[str]:
        """Returns what a row of a table must meet to be joined, whatever rows of other tables are, as SQL.

        Nothing for a table of a LEFT JOIN: without a row of it there is one of nulls, which WHERE may leave.
        """
        return [] if alias.how else self.conditions_of(alias.name)

    def having(self) -> str:
        """Returns the condition of HAVING, as SQL; empty without one."""
        having = self.tree.args.get("having")
        return "" if having is None else having.this.sql(DIALECT)

    def _from(
        self, tables: Mapping[str, str], number: int | None = None, on: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """SQL: the FROM; `on` are further conditions of joins."""
        parts = [self.tree.args["from_"].copy(), *(join.copy() for join in self.tree.args.get("joins") or ())]
        laterals = [
            lateral_sql(lateral) for lateral in self.laterals[: None if number is None else max(0, number - len(parts))]
        ]
        for part in parts[:number]:
            name = part.this.alias_or_name
            if name in on:
                part.set("on", exp.and_(part.args["on"], sqlglot.parse_one(on[name], dialect=DIALECT)))
            table = part.this.find(exp.Table)  # none in a row of constants
            if table is not None:
                table.set("this", exp.to_identifier(tables[name], quoted=True))
        return " ".join([*(part.sql(DIALECT).lstrip(", ") for part in parts[:number]), *laterals])

    def _where(self, only: str) -> str:
        where = self.tree.args.get("where")
        parts = [f"({where.this.sql(DIALECT)})"] if where is not None else []
        parts += [
            f"({condition})" for condition in (self.moving.holds if self.moving is not None else "", only) if condition
        ]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def steps(self, alias: Alias) -> list[Alias]:
        """Returns the tables from one to the anchor, both included."""
        tables, path = {table.name: table for table in self.aliases}, [alias]
        while path[-1].parent:
            path.append(tables[path[-1].parent])
        return path


def is_same(block: Block, other: Block) -> bool:
    """Returns whether two blocks have the same rows, under the same names."""
    if (block.unit, block.columns, block.keep) != (other.unit, other.columns, other.keep):
        return False
    if len(block.branches) != len(other.branches):
        return False
    if block.branches:
        return all(is_same(*pair) for pair in zip(block.branches, other.branches, strict=True))
    return block.aliases == other.aliases and block.tree == other.tree
