"""The rules of `kind: query` as a model: SQLite evaluates every piece of SQL, and no Spark is there.

A query is a list of blocks. A block is a tree of inner and left joins over tables or earlier blocks, a WHERE, and on
top nothing, a GROUP BY, or a ranking within partitions; or it is a union of such. A table of one row may be joined
without a condition. Subqueries, RIGHT and FULL JOIN are made of these (`Writer`). Between two refreshes the inputs
change in any way. A refresh looks at nothing but the changes (old and new version of each changed row), the two
snapshots by key, and its own result. Schema `b` has the tables before, `a` those after. In the end the result must be
what the query, as it was written, says over the last snapshot.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

RULES = {
    "old versions are traced": "an anchor that only the old version of a row meets keeps what it had of it",
    "groups before are touched": "a group that a row left keeps what the row gave it",
    "groups are compared by null-safe equality": "a group with a null is never computed again",
    "values that are not null are counted": "the sum of no values is 0 and not null",
    "rows are joined to rows that have none on the way": "a row filled with nulls by a LEFT JOIN keeps an old partner",
    "what a moved value passed is an anchor": "a row that nobody changes stays in the result, or never comes",
    "a moved value passes rows that are not there": "a row filled with nulls by a LEFT JOIN stays, or never comes",
    "a moved value that is read elsewhere touches all": "rows keep what they had of the old value",
    "a row of a union is known by its branch": "rows of two branches replace each other",
    "an IN over a null is unknown": "NOT IN keeps a row that may be equal to the null",
    "an IN over no rows is false": "NOT IN loses a null that is in nothing",
    "COUNT of nothing is 0": "a row without any in a subquery that counts them gets a null",
}
"""Per rule that can be left out, the consequence of leaving it out."""
(OLD, BEFORE, NULL_SAFE, COUNTS, ABSENT, PASSED, PASSED_ABSENT, ELSEWHERE, BRANCH, UNKNOWN, NOTHING, ZERO) = RULES

Row = tuple[Any, ...]
Rows = Collection[Row]
Item = tuple[str, str]
"""SQL and a name."""
Changes = Mapping[str, tuple[Rows, Rows]]
"""Per relation the old and the new versions of changed rows."""


@dataclass(frozen=True)
class Relation:
    """An input or a block.

    Attributes:
        name: its name.
        columns: those that a query may name.
        key: a column that tells its rows apart; that of a block, `_k`, is not seen by queries.
        single: whether it always has exactly one row.
    """

    name: str
    columns: tuple[str, ...]
    key: str = "_k"
    single: bool = False

    @property
    def stored(self) -> tuple[str, ...]:
        """All columns."""
        return tuple(dict.fromkeys([self.key, *self.columns]))


TABLES = [  # small domains, nulls, and keys that refer to nothing
    Relation("fact", ("id", "dim", "kind", "v"), "id"),
    Relation("dim", ("id", "region", "w"), "id"),
    Relation("region", ("id", "zone"), "id"),
    Relation("note", ("id", "dim", "u"), "id"),
]
CLOCK = Relation("now", ("at",), single=True)


@dataclass(frozen=True)
class ModelAlias:
    """A table of a block, and how it is joined to an earlier one.

    Attributes:
        name: its name in the block.
        relation: what it is.
        how: empty for an inner join, `LEFT`.
        parent: the earlier table that `path` is about; empty for the anchor, and for a table of one row.
        path: SQL condition over these two.
        aside: SQL of a further condition of ON, which reads others; it is no part of the way to the anchor.
    """

    name: str
    relation: Relation
    how: str = ""
    parent: str = ""
    path: str = ""
    aside: str = ""

    @property
    def key(self) -> str:
        return f"{self.name}.{self.relation.key}"

    @property
    def on(self) -> str:
        """SQL: the condition of its join, if it has one."""
        return " AND ".join(f"({one})" for one in (self.path, self.aside) if one)

    def of(self, schema: str) -> str:
        """SQL: its table in a schema."""
        return f"{schema}{self.relation.name} AS {self.name}"

    def nulls(self) -> str:
        """SQL: the table of the one row that a LEFT JOIN puts where there is none."""
        return f"(SELECT {', '.join(f'NULL AS {column}' for column in self.relation.stored)}) AS {self.name}"

    def read_in(self, *parts: str) -> bool:
        """Returns whether pieces of SQL read it."""
        return any(re.search(rf"\b{self.name}\.", part) for part in parts)


@dataclass
class ModelBlock:
    """A block. Every joined row has exactly one row of its first alias, the anchor."""

    name: str
    aliases: Sequence[ModelAlias]
    where: Sequence[str] = ()
    """The conditions that all must hold."""
    select: Sequence[Item] = ()
    group: Sequence[Item] = ()
    """Of a block of groups, whose `select` has aggregates."""
    having: str = ""
    sums: Sequence[str] = ()
    """Of a block of groups: the columns whose sums are kept by arithmetic; `select` has these and COUNT(*)."""
    single: bool = False
    """Whether all rows are one group: `select` has aggregates, and there is no GROUP BY."""
    partition: Sequence[Item] = ()
    """Of a ranking, of which the rows with the first `top` ranks of each partition stay, by `order`."""
    order: str = ""
    top: int = 1
    branch: int | None = None
    """Of a branch of a union, its number."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for _, name in [*self.group, *self.select])

    @property
    def branches(self) -> list[ModelBlock]:
        return [self]

    @property
    def relation(self) -> Relation:
        """What later blocks read."""
        return Relation(self.name, self.columns, single=self.single)

    @property
    def key(self) -> str:
        """SQL: what tells the rows of the block apart."""
        parts = [] if self.single else [sql for sql, _ in self.group] or [alias.key for alias in self.aliases]
        return f"json_array({', '.join([*([] if self.branch is None else [str(self.branch)]), *parts])})"

    def joined(self, schema: str, only: str = "") -> str:
        """SQL of FROM and WHERE; `only` is a table with the keys of the anchors that it is about."""
        anchor, *rest = self.aliases
        where = [*self.where, *([f"{anchor.key} IN (SELECT k FROM {only})"] if only else [])]
        return written_from(anchor.of(schema), *(joined(one, schema) for one in rest)) + written_where(where)

    def shaped(self, items: Sequence[Item], joined: str) -> str:
        """SQL: a SELECT of items of joined rows, with what is on top of the block."""
        listed = ", ".join(f"{sql} AS {name}" for sql, name in items)
        if self.group:
            having = f" HAVING {self.having}" if self.having else ""
            return f"SELECT {listed}{joined} GROUP BY {', '.join(sql for sql, _ in self.group)}{having}"
        if self.partition:
            parts, names = (", ".join(one) for one in zip(*self.partition, strict=True))
            rank = f"RANK() OVER (PARTITION BY {parts} ORDER BY {self.order}) AS _n"
            names = ", ".join(name for _, name in items)
            return f"SELECT {names} FROM (SELECT {listed}, {rank}{joined}) AS _r WHERE _n <= {self.top}"
        return f"SELECT {listed}{joined}"

    def sql(self, schema: str, only: str = "") -> str:
        """SQL of the block: its key and its columns."""
        return self.shaped([(self.key, "_k"), *self.group, *self.select], self.joined(schema, only))


@dataclass
class ModelUnion:
    """A block of the rows of several, each of joined rows with nothing on top."""

    name: str
    branches: list[ModelBlock]

    @property
    def relation(self) -> Relation:
        """What later blocks read."""
        return Relation(self.name, self.branches[0].columns)


def joined(alias: ModelAlias, schema: str) -> str:
    """SQL: a join, as a part of FROM."""
    if not alias.on:
        return f"CROSS JOIN {alias.of(schema)}"
    return f"{alias.how} JOIN {alias.of(schema)} ON {alias.on}".strip()


def swapped_sides(first: ModelAlias, second: ModelAlias) -> list[ModelAlias]:
    """Returns the first two tables of a FROM the other way round, as a LEFT JOIN."""
    return [
        replace(second, how="", parent="", path=""),
        replace(first, how="LEFT", parent=second.name, path=second.path),
    ]


def written_from(*parts: str) -> str:
    """SQL of FROM."""
    return f" FROM {' '.join(parts)}"


def written_where(conditions: Iterable[str]) -> str:
    """SQL of WHERE, of conditions that all must hold."""
    all_ = " AND ".join(f"({one})" for one in conditions)
    return f" WHERE {all_}" if all_ else ""


class Maintained:
    """A query that is kept up to date, perhaps without one of the rules."""

    def __init__(self, db: sqlite3.Connection, blocks: Sequence[ModelBlock | ModelUnion], without: str = "") -> None:
        self.db, self.blocks, self.without = db, blocks, without
        self.stored: dict[str, dict[Any, Row]] = {block.name: {} for block in blocks}
        self.kept: dict[str, dict[Row, Row]] = {block.name: {} for block in blocks}
        """Per block that is kept by arithmetic, the numbers of each group."""

    def rows(self, sql: str) -> list[Row]:
        return [tuple(row) for row in self.db.execute(sql)]

    def put(self, name: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Makes a table."""
        put(self.db, name, columns, rows)

    def refresh(self, changes: Changes) -> None:
        """Brings every block from schema `b` to schema `a` of the inputs."""
        told = dict(changes)
        for block in self.blocks:
            told[block.name] = self._block(block, told)

    def _block(self, block: ModelBlock | ModelUnion, changes: Changes) -> tuple[Rows, Rows]:
        """Returns the old and the new versions of the rows that changed."""
        old, new = self.stored[block.name], dict(self.stored[block.name])
        for branch in block.branches:
            before, after = self._branch(branch, changes)
            for row in before:
                new.pop(row[0], None)
            new |= {row[0]: row for row in after}
        self.stored[block.name] = new
        self.put(f"a_{block.name}", block.relation.stored, new.values())
        return versions(old, new)

    def _branch(self, block: ModelBlock, changes: Changes) -> tuple[Rows, Rows]:
        """Returns the rows that go, and those that come in their place."""
        self.put("anchors", ["k"], self._anchors(block, changes))
        if block.single:
            return list(self.stored[block.name].values()), self.rows(block.sql("a_"))
        if block.sums:
            return self._by_arithmetic(block)
        if block.group or block.partition:
            return self._by_group(block)
        return self.rows(block.sql("b_", "anchors")), self.rows(block.sql("a_", "anchors"))

    def _anchors(self, block: ModelBlock, changes: Changes) -> set[Row]:
        """Returns the keys of the anchors whose joined rows may differ.

        Old and new versions are traced in the last snapshot: of all changed rows on a path, the one that is nearest to
        the anchor has an unchanged rest of the way. Where a row may be joined to rows that have none on the way, all
        anchors are found.
        """
        found: set[Row] = set()
        for alias in block.aliases:
            old, new = changes.get(alias.relation.name, ((), ()))
            if not alias.parent and alias is not block.aliases[0]:
                found |= self._moved(block, alias, old, new) if old or new else set()
                continue
            if self.without == OLD and alias.parent:
                old = ()
            found |= self._touched(block, alias, [*old, *new])
        return found

    def _touched(self, block: ModelBlock, alias: ModelAlias, rows: Rows) -> set[Row]:
        """Returns the keys of the anchors that rows of an alias are joined to."""
        self.put("delta", alias.relation.stored, rows)
        if self.without != ABSENT and any(self.rows(sql) for sql in self._to_none(block, alias)):
            return self._all(block)
        return {*self.rows(self._traced(block, alias))}

    def _all(self, block: ModelBlock) -> set[Row]:
        anchor = block.aliases[0]
        return {row for schema in ("b_", "a_") for row in self.rows(f"SELECT {anchor.key} FROM {anchor.of(schema)}")}

    @staticmethod
    def _to_none(block: ModelBlock, alias: ModelAlias) -> list[str]:
        """SQL, per step from an alias to the anchor: the rows of table `delta` which match a parent of nulls there."""
        by_name = {one.name: one for one in block.aliases}
        path, here, found = f"delta AS {alias.name}", alias, list[str]()
        while here.parent:
            parent = by_name[here.parent]
            found.append(f"SELECT 1 FROM {path} JOIN {parent.nulls()} ON {here.path}")
            path, here = f"{path} JOIN {parent.of('a_')} ON {here.path}", parent
        return found

    @staticmethod
    def _traced(block: ModelBlock, alias: ModelAlias) -> str:
        """SQL: the keys of the anchors of table `delta`, by the joins from an alias to the anchor.

        A table that is joined to one of one row is joined to every anchor.
        """
        by_name = {one.name: one for one in block.aliases}
        path, here = f"delta AS {alias.name}", alias
        while here.parent:
            parent = by_name[here.parent]
            path += f" JOIN {parent.of('a_')} ON {here.path}"
            here = parent
        anchor = block.aliases[0]
        path += "" if here is anchor else f" CROSS JOIN {anchor.of('a_')}"
        return f"SELECT {anchor.key} FROM {path}"

    def _moved(self, block: ModelBlock, single: ModelAlias, old: Rows, new: Rows) -> set[Row]:
        """Returns the keys of the anchors that the change of the only row of an alias touches.

        A condition of WHERE that reads one other alias besides is the same for all of its rows but those that the value
        passed. Anything else that reads the value may differ for every anchor.
        """
        items = [sql for sql, _ in [*block.select, *block.group, *block.partition]]
        elsewhere = [*items, block.having, block.order, *(one.on for one in block.aliases)]
        conditions = [one for one in block.where if single.read_in(one)]
        others = [[one for one in block.aliases if one is not single and one.read_in(sql)] for sql in conditions]
        if not old or not new or single.read_in(*elsewhere) or any(len(some) != 1 for some in others):
            return set() if self.without == ELSEWHERE else self._all(block)
        self.put("moved_from", single.relation.stored, old)
        self.put("moved_to", single.relation.stored, new)
        found: set[Row] = set()
        for condition, (other,) in zip(conditions, others, strict=True):
            was, now = (re.sub(rf"\b{single.name}\.", f"{table}.", condition) for table in ("moved_from", "moved_to"))
            passed = f"moved_from, moved_to WHERE ({was}) IS NOT ({now})"
            if self.without != PASSED_ABSENT and self.rows(f"SELECT 1 FROM {other.nulls()}, {passed}"):
                return self._all(block)
            if self.without != PASSED:
                passing = self.rows(f"SELECT {other.name}.* FROM {other.of('a_')}, {passed}")
                found |= self._touched(block, other, passing)
        return found

    def _by_group(self, block: ModelBlock) -> tuple[Rows, Rows]:
        """Returns the rows, before and after, of the groups or partitions in which anchors stood and stand."""
        cells = [*block.group, *block.partition]
        values, touched = ", ".join(sql for sql, _ in cells), set[Row]()
        for schema in ("a_",) if self.without == BEFORE else ("b_", "a_"):
            touched |= {*self.rows(f"SELECT {values}{block.joined(schema, 'anchors')}")}
        self.put("touched", [name for _, name in cells], touched)
        equal = "=" if self.without == NULL_SAFE else "IS"
        same = " AND ".join(f"_q.{name} {equal} touched.{name}" for _, name in cells)
        among = f"EXISTS (SELECT 1 FROM touched WHERE {same})"
        before, after = (self.rows(f"SELECT _q.* FROM ({block.sql(s)}) AS _q WHERE {among}") for s in ("b_", "a_"))
        return before, after

    def _by_arithmetic(self, block: ModelBlock) -> tuple[Rows, Rows]:
        """Returns the same by numbers: what anchors gave before is taken off, what they give now is added."""
        width, kept, touched = 1 + len(block.group), self.kept[block.name], set[Row]()
        numbers = ", ".join(["COUNT(*)", *(f"COUNT({of}), COALESCE(SUM({of}), 0)" for of in block.sums)])
        groups = ", ".join(sql for sql, _ in block.group)
        for schema, sign in (("b_", -1), ("a_", 1)):
            given = f"SELECT {block.key}, {groups}, {numbers}{block.joined(schema, 'anchors')} GROUP BY {groups}"
            for row in self.rows(given):
                group, more = row[:width], row[width:]
                touched.add(group)
                before = kept.get(group, (0,) * len(more))
                kept[group] = tuple(one + sign * other for one, other in zip(before, more, strict=True))
        stood = [row for row in self.stored[block.name].values() if row[:width] in touched]
        stands = [(*group, *self._shown(kept[group])) for group in touched if kept[group][0]]
        for group in touched:
            if not kept[group][0]:
                del kept[group]
        return stood, stands

    def _shown(self, numbers: Row) -> Row:
        """Returns the number of rows, and each sum: null if there are no values."""
        pairs = zip(numbers[1::2], numbers[2::2], strict=True)
        return (numbers[0], *(total if count or self.without == COUNTS else None for count, total in pairs))


def put(db: sqlite3.Connection, name: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Makes a table."""
    db.execute(f"DROP TABLE IF EXISTS {name}")
    db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", [*rows])


def versions(old: Mapping[Any, Row], new: Mapping[Any, Row]) -> tuple[Rows, Rows]:
    """Returns the old and the new versions of rows, by key, that differ."""
    differ = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [old[key] for key in differ if key in old], [new[key] for key in differ if key in new]


# ------------------------------------------------------------------------------- queries, and the blocks that they are
SCHEMA = "{schema}"
"""In a text, what stands before the name of a table."""


@dataclass
class Level:
    """The FROM and WHERE of one SELECT.

    Attributes:
        aliases: the tables of the block: those that are written, and those that stand for subqueries.
        depth: in how many subqueries it stands.
        text: FROM as it is written.
        written: the conditions of WHERE as they are written.
        where: the conditions of the block.
        named: the written tables, without those of one row.
        singles: the written tables of one row.
        full: whether the first join is a FULL JOIN; the aliases are those of its LEFT JOIN.
    """

    aliases: list[ModelAlias]
    depth: int
    text: str = ""
    written: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    singles: list[ModelAlias] = field(default_factory=list)
    full: bool = False

    def __post_init__(self) -> None:
        self.named = [*self.aliases]

    @property
    def joined(self) -> str:
        """SQL of FROM and WHERE, as they are written."""
        return self.text + written_where(self.written)

    def join(self, alias: ModelAlias, how: str) -> None:
        """Writes one more table; of a RIGHT JOIN the sides are swapped in the block."""
        self.text += f" {how} JOIN {alias.of(SCHEMA)}" + (f" ON {alias.on}" if alias.on else "")
        self.full = self.full or how == "FULL"
        (self.singles if how == "CROSS" else self.named).append(alias)
        if how == "RIGHT":
            (first,) = self.aliases
            self.aliases = swapped_sides(first, alias)
        else:
            self.aliases.append(replace(alias, how="LEFT" if how in {"LEFT", "FULL"} else ""))

    def hold(self, written: str, meant: str) -> None:
        """Adds a condition to WHERE, as it is written, and as the block has it."""
        self.written += [written] if written else []
        self.where += [meant] if meant else []

    def add(self, relation: Relation, how: str = "", parent: str = "", path: str = "", aside: str = "") -> str:
        """Joins a block that stands for a subquery; `{}` in its conditions is its name, which is returned."""
        name = f"s_{relation.name}"
        self.aliases.append(ModelAlias(name, relation, how, parent, path.format(name), aside.format(name)))
        return name


class Writer:
    """Writes a random query, and beside it the blocks that it is made of.

    Attributes:
        texts: per name, SELECTs as people write them; each may read the earlier ones.
        blocks: those of all SELECTs.
    """

    def __init__(self, rng: random.Random, without: str = "", *, subqueries: bool = True) -> None:
        """Begins; `subqueries`: whether there are any, and the other things that are made of blocks."""
        self.rng, self.without, self.subqueries = rng, without, subqueries
        self.sources, self.singles = [*TABLES], [CLOCK] if subqueries else list[Relation]()
        self.texts: dict[str, str] = {}
        self.blocks: list[ModelBlock | ModelUnion] = []
        self.number = 0

    def write(self) -> None:
        """Writes one more SELECT, which is likely to read the earlier ones."""
        name = f"block{len(self.texts)}"
        shapes = [self._rows, self._rows, self._group, self._group, self._partition]
        more = [self._rows, self._rows, self._single, self._union, self._distinct_union]
        self.texts[name] = self.rng.choice([*shapes, *(more if self.subqueries else [])])(name)
        relation = self.blocks[-1].relation
        self.sources += [relation] * 2
        self.singles += [relation] * 2 if relation.single else []

    # ---------------------------------------------------------------------------------------------------- SELECTs
    def _rows(self, name: str) -> str:
        text, branches = self._select(name)
        self.blocks.append(self._union_of(name, branches) if len(branches) > 1 else branches[0])
        return text

    def _select(self, name: str) -> tuple[str, list[ModelBlock]]:
        """Returns a SELECT of joined rows, and its blocks: two of a FULL JOIN, the right rows without a left one apart.

        These are a LEFT JOIN of the other side of which only the rows without a partner stay.
        """
        level = self._level(full=self.subqueries)
        said, meant = self._item(level)
        plain = [(self._some(level), "x"), (self._some(level), "y")]
        written = f"SELECT {', '.join(f'{sql} AS {name}' for sql, name in [*plain, (said, 'z')])}{level.joined}"
        left = ModelBlock(name, level.aliases, level.where, [*plain, (meant, "z")])
        if not level.full:
            return written, [left]
        first, second, *rest = level.aliases
        swapped = swapped_sides(first, second)
        return written, [left, replace(left, aliases=[*swapped, *rest], where=[*left.where, f"{first.key} IS NULL"])]

    def _union_of(self, name: str, branches: Sequence[ModelBlock]) -> ModelUnion:
        numbered = [replace(one, branch=number) for number, one in enumerate(branches)]
        return ModelUnion(name, [*branches] if self.without == BRANCH else numbered)

    def _union(self, name: str, of: str = "") -> str:
        """UNION ALL: a branch per SELECT, and two per FULL JOIN."""
        selects = [self._select(of or name) for _ in range(self.rng.choice([2, 2, 3]))]
        self.blocks.append(self._union_of(of or name, [one for _, branches in selects for one in branches]))
        return " UNION ALL ".join(text for text, _ in selects)

    def _distinct_union(self, name: str) -> str:
        """UNION: the same, grouped by all columns."""
        text = self._union(name, f"{name}_all").replace("UNION ALL", "UNION")
        relation = self.blocks[-1].relation
        group = [(f"u.{column}", column) for column in relation.columns]
        self.blocks.append(ModelBlock(name, [ModelAlias("u", relation)], group=group))
        return text

    def _group(self, name: str) -> str:
        rng, level = self.rng, self._level()
        group = [(self._some(level), f"g{number}") for number in range(rng.choice([1, 1, 2]))]
        sums = [self._some(level) for _ in range(rng.choice([0, 0, 1, 2]))]
        function = rng.choice(["SUM({})", "MIN({})", "MAX({})", "COUNT(DISTINCT {})"])
        select, having = [("COUNT(*)", "n"), (function.format(self._some(level)), "x")], "COUNT(*) > 1"
        if sums:
            select = [("COUNT(*)", "n"), *((f"SUM({of})", f"s{number}") for number, of in enumerate(sums))]
        having = "" if sums else rng.choice(["", "", having])
        return self._plain(level, ModelBlock(name, level.aliases, level.where, select, group, having, sums))

    def _single(self, name: str) -> str:
        level = self._level()
        select = [(f"MAX({self._some(level)})", "x"), ("COUNT(*)", "n")]
        return self._plain(level, ModelBlock(name, level.aliases, level.where, select, single=True))

    def _partition(self, name: str) -> str:
        level = self._level()
        select = [(self._some(level), column) for column in ("x", "y", "p")]
        block = ModelBlock(name, level.aliases, level.where, select, partition=select[2:], order=self._some(level))
        block.top = self.rng.choice([1, 2])
        return self._plain(level, block)

    def _plain(self, level: Level, block: ModelBlock) -> str:
        """Adds a block, whose SELECT is written as it is; returns the text."""
        self.blocks.append(block)
        return block.shaped([*block.group, *block.select], level.joined)

    def _item(self, level: Level) -> tuple[str, str]:
        """Returns a column as it is written, and as the block has it."""
        if level.singles and self.rng.random() < 0.3:
            return (self._of_single(level),) * 2
        if self.subqueries and self.rng.random() < 0.4:
            return self.rng.choice([self._value, self._condition])(level)
        return (self._some(level),) * 2

    # ---------------------------------------------------------------------------------------------- FROM and WHERE
    def _some(self, level: Level) -> str:
        alias = self.rng.choice(level.named)
        return f"{alias.name}.{self.rng.choice(alias.relation.columns)}"

    def _of_single(self, level: Level) -> str:
        alias = self.rng.choice(level.singles)
        return f"{alias.name}.{self.rng.choice(alias.relation.columns)}"

    def _alias(self, relation: Relation) -> ModelAlias:
        self.number += 1
        return ModelAlias(f"t{self.number}", relation)

    def _level(self, depth: int = 0, *, full: bool = False) -> Level:
        """Returns a FROM and a WHERE; `depth`: in how many subqueries it stands."""
        rng = self.rng
        level = Level([self._alias(rng.choice(self.sources))], depth=depth)
        level.text = f" FROM {level.aliases[0].of(SCHEMA)}"
        for number in range(rng.choice([0, 0, 1] if depth else [0, 1, 1, 2, 2, 3])):
            sides = ["RIGHT", *(["FULL", "FULL"] if full else [])] if self.subqueries and not number else []
            level.join(self._joined(level), rng.choice(["", "", "LEFT", "LEFT", *sides]))
            if self.singles and rng.random() < 0.3:
                level.join(self._alias(rng.choice(self.singles)), "CROSS")
        either, there = "{} = {} OR {} < 2", "{} IS NOT NULL AND {} <> 1"
        simple = rng.choice(["", "", "", "", "{} > 0", "{} IS NULL", either, there])
        level.hold(*[simple.format(*(self._some(level) for _ in range(3)))] * 2)
        for _ in level.singles:
            conditions = ["{} >= {} - 1", "COALESCE({}, 1) <= {}", "{} < 2 OR {} > 1", "{} IS NULL OR {} = 1"]
            level.hold(*[rng.choice(["", "", "", *conditions]).format(self._some(level), self._of_single(level))] * 2)
        while self.subqueries and rng.random() < (0.4, 0.2, 0)[depth]:
            self._hold_subquery(level)
        return level

    def _joined(self, level: Level) -> ModelAlias:
        """Returns a table that is joined to an earlier one by an equality, and perhaps a further condition."""
        rng, alias = self.rng, self._alias(self.rng.choice(self.sources))
        parent = rng.choice([*level.named * 2, *level.singles])
        own, theirs = ([*one.relation.columns] for one in (alias, parent))
        left, right = f"{parent.name}.{rng.choice(theirs)}", f"{alias.name}.{rng.choice([own[0], *own])}"
        less = f" AND {parent.name}.{rng.choice(theirs)} <= {alias.name}.{rng.choice(own)}"
        instead = rng.choice(["{}", "{}", "COALESCE({}, 0)", "COALESCE({}, 1)"])
        path = f"{instead.format(left)} = {right}{rng.choice(['', '', '', less])}"
        beside = level.singles and rng.random() < 0.2
        aside = f"{right} <= {self._of_single(level)}" if beside else ""
        return replace(alias, parent=parent.name, path=path, aside=aside)

    # -------------------------------------------------------------------------------------------------- subqueries
    def _hold_subquery(self, level: Level) -> None:
        """Adds a condition with a subquery to WHERE."""
        if self.rng.random() < 0.5:
            level.hold(*self._condition(level, plain=True))
            return
        said, meant = self._condition(level)
        around = self.rng.choice(["NOT ({})", f"{{}} OR {self._some(level)} = 1", "({}) IS NULL"])
        level.hold(around.format(said), around.format(meant))

    def _inner(self, level: Level, *, correlated: bool) -> tuple[Level, list[Item], str, str]:
        """Returns what a subquery reads.

        That is: its FROM and WHERE, the columns by which it is grouped to stand in a join, the table that it depends
        on, and the column of that.
        """
        inner = self._level(level.depth + 1)
        outer = self.rng.choice(level.named)
        theirs = f"{outer.name}.{self.rng.choice(outer.relation.columns)}"
        if not correlated:
            return inner, [], "", ""
        own = self._some(inner)
        inner.written.append(f"{own} = {theirs}")
        return inner, [(own, "g")], outer.name, theirs

    def _helper(self, inner: Level, group: Sequence[Item], select: Sequence[Item] = ()) -> Relation:
        """Makes the block that stands for a subquery."""
        self.number += 1
        block = ModelBlock(f"h{self.number}", inner.aliases, inner.where, select, group, single=not group)
        self.blocks.append(block)
        return block.relation

    def _condition(self, level: Level, *, plain: bool = False) -> tuple[str, str]:
        """Returns a condition with a subquery as it is written, and as the block has it; `plain`: it must hold."""
        return self.rng.choice([self._exists, self._exists, self._further, self._in, self._in, self._less])(
            level, plain
        )

    def _exists(self, level: Level, plain: bool) -> tuple[str, str]:
        inner, group, outer, theirs = self._inner(level, correlated=self.rng.random() < 0.8)
        no = self.rng.choice(["", "NOT "])
        said = f"{no}EXISTS (SELECT 1{inner.joined})"
        if not group:
            one = level.add(self._helper(inner, [], [("COUNT(*) > 0", "x")]))
            return said, f"{no}{one}.x"
        joins = plain and not no
        one = level.add(self._helper(inner, group), "" if joins else "LEFT", outer, f"{{}}.g = {theirs}")
        return said, "" if joins else f"{no}({one}.g IS NOT NULL)"

    def _further(self, level: Level, _plain: bool) -> tuple[str, str]:
        """EXISTS with a further condition on both: the block has the set of what the condition reads."""
        inner, group, outer, theirs = self._inner(level, correlated=True)
        low, high, no = self._some(inner), self._some(level), self.rng.choice(["", "NOT "])
        said = f"{no}EXISTS (SELECT 1{inner.joined} AND {low} <= {high})"
        values = self._helper(inner, group, [(f"json_group_array(DISTINCT {low})", "x")])
        one = level.add(values, "LEFT", outer, f"{{}}.g = {theirs}")
        return said, f"{no}EXISTS (SELECT 1 FROM json_each({one}.x) AS e WHERE e.value <= {high})"

    def _in(self, level: Level, plain: bool) -> tuple[str, str]:
        """IN: the values that there are, and beside them whether there are rows, and whether one is null."""
        inner, group, outer, theirs = self._inner(level, correlated=self.rng.random() < 0.5)
        tested, value, no = self._some(level), self._some(inner), self.rng.choice(["", "NOT "])
        said = f"{tested} {no}IN (SELECT {value}{inner.joined})"
        joins, equal = plain and not no, f"{{}}.v = {tested}"
        on = (outer, f"{{}}.g = {theirs}", equal) if group else (tested.split(".")[0], equal, "")
        hit = level.add(self._helper(inner, [*group, (value, "v")]), "" if joins else "LEFT", *on)
        if joins:
            return said, ""
        flags = self._helper(inner, group, [("COUNT(*) > 0", "any"), (f"COUNT(*) > COUNT({value})", "gap")])
        flag = level.add(flags, *(("LEFT", outer, f"{{}}.g = {theirs}") if group else ()))
        nothing = "" if self.without == NOTHING else f" WHEN NOT COALESCE({flag}.any, FALSE) THEN FALSE"
        unknown = "" if self.without == UNKNOWN else f" WHEN {tested} IS NULL OR {flag}.gap THEN NULL"
        return said, f"{no}(CASE WHEN {hit}.v IS NOT NULL THEN TRUE{nothing}{unknown} ELSE FALSE END)"

    def _less(self, level: Level, _plain: bool) -> tuple[str, str]:
        said, meant = self._value(level)
        least = self._some(level)
        return f"{least} <= {said}", f"{least} <= {meant}"

    def _value(self, level: Level) -> tuple[str, str]:
        """Returns a subquery as a value, as it is written, and as the block has it."""
        inner, group, outer, theirs = self._inner(level, correlated=self.rng.random() < 0.7)
        function = self.rng.choice(["COUNT(*)", "COUNT({})", "SUM({})", "MAX({})"]).format(self._some(inner))
        values = self._helper(inner, group, [(function, "x")])
        one = level.add(values, *(("LEFT", outer, f"{{}}.g = {theirs}") if group else ()))
        is_zero = function.startswith("COUNT") and self.without != ZERO
        return f"(SELECT {function}{inner.joined})", f"COALESCE({one}.x, 0)" if is_zero else f"{one}.x"


def random_query(rng: random.Random, without: str = "", *, subqueries: bool = False) -> Writer:
    """Returns a query, of which the later SELECTs are likely to read the earlier ones."""
    writer = Writer(rng, without, subqueries=subqueries)
    for _ in range(rng.choice([1, 1, 2, 3])):
        writer.write()
    return writer


def text_of(query: Writer) -> str:
    """Returns the query as people write it."""
    name, last = [*query.texts][-1], query.blocks[-1]
    with_ = ", ".join(f"{name} AS ({text})" for name, text in query.texts.items()).replace(SCHEMA, "")
    return f"WITH {with_} SELECT {', '.join(last.relation.columns)} FROM {name}"


def random_row(rng: random.Random, table: str, key: int) -> Row:
    """Returns a row of a table."""
    domains = {"fact": (4, 3, 3), "dim": (3, 3), "region": (2,), "note": (4, 3)}[table]
    return (key, *(rng.choice([*range(size), None]) for size in domains))


def is_right(seed: int, without: str = "") -> bool:
    """Returns whether a random query, in a random history of its inputs, is what it says after every refresh."""
    rng, db = random.Random(f"{seed}"), sqlite3.connect(":memory:")
    written = random_query(rng, without, subqueries=True)
    query = Maintained(db, written.blocks, without)
    for relation in [*TABLES, CLOCK, *(block.relation for block in written.blocks)]:
        put(db, f"b_{relation.name}", relation.stored, ())
        put(db, f"a_{relation.name}", relation.stored, ())
    state: dict[str, dict[int, Row]] = {relation.name: {} for relation in [*TABLES, CLOCK]}
    for _ in range(rng.choice([2, 3, 4])):
        changes = {table.name: _changed(rng, db, table, state[table.name]) for table in [CLOCK, *TABLES]}
        for block in written.blocks:
            put(db, f"b_{block.name}", block.relation.stored, query.stored[block.name].values())
        query.refresh(changes)
        for name, text in written.texts.items():
            if Counter(query.rows(text.replace(SCHEMA, "a_"))) != Counter(
                row[1:] for row in query.stored[name].values()
            ):
                return False
    return True


def _changed(rng: random.Random, db: sqlite3.Connection, table: Relation, rows: dict[int, Row]) -> tuple[Rows, Rows]:
    """Changes rows of a table, by key; returns their old and new versions."""
    old = dict(rows)
    if table is CLOCK:
        rows[0] = (0, rng.randrange(5))
    for _ in range(0 if table is CLOCK else rng.choice([0, 0, 1, 2, 5] if old else [5, 8])):
        key = rng.randrange(5)
        if rng.random() < 0.25:
            rows.pop(key, None)
        else:
            rows[key] = random_row(rng, table.name, key)
    put(db, f"b_{table.name}", table.stored, old.values())
    put(db, f"a_{table.name}", table.stored, rows.values())
    return versions(old, rows)
