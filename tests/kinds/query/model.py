"""The rules of `kind: query` as a model: SQLite evaluates every piece of SQL, and no Spark is there.

A query is a list of blocks. A block is a tree of inner and left joins over tables or earlier blocks, a WHERE, and on
top nothing, a GROUP BY, or a ranking within partitions. Between two refreshes the inputs change in any way. A refresh
looks at nothing but the changes (old and new version of each changed row), the two snapshots by key, and its own
result. Schema `b` has the tables before, `a` those after. In the end the result must be what the query says over the
last snapshot.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RULES = {
    "old versions are traced": "an anchor that only the old version of a row meets keeps what it had of it",
    "groups before are touched": "a group that a row left keeps what the row gave it",
    "groups are compared by null-safe equality": "a group with a null is never computed again",
    "values that are not null are counted": "the sum of no values is 0 and not null",
    "rows are joined to rows that have none on the way": "a row filled with nulls by a LEFT JOIN keeps an old partner",
    "what the clock passed is an anchor": "a row that nobody changes stays in the result, or never comes",
}
"""Per rule that can be left out, the consequence of leaving it out."""
OLD, BEFORE, NULL_SAFE, COUNTS, ABSENT, CLOCK = RULES

Row = tuple[Any, ...]
Rows = Collection[Row]
Item = tuple[str, str]
"""SQL and a name."""
Changes = Mapping[str, tuple[Rows, Rows]]
"""Per relation the old and the new versions of changed rows."""


@dataclass(frozen=True)
class Relation:
    """An input or a block; `key` tells its rows apart."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


TABLES = [  # small domains, nulls, and keys that refer to nothing
    Relation("fact", ("id", "dim", "kind", "v"), ("id",)),
    Relation("dim", ("id", "region", "w"), ("id",)),
    Relation("region", ("id", "zone"), ("id",)),
    Relation("note", ("id", "dim", "u"), ("id",)),
]


@dataclass(frozen=True)
class ModelAlias:
    """A table of a block, and how it is joined to an earlier one: by equal columns and perhaps a further condition."""

    name: str
    relation: Relation
    how: str = ""
    parent: str = ""
    on: tuple[tuple[str, str], ...] = ()
    """Pairs of a column of the parent and an own one."""
    extra: str = ""
    instead: int | None = None
    """What a null of the parent is equal to; None: to nothing."""

    @property
    def condition(self) -> str:
        """SQL of ON."""
        theirs = [f"{self.parent}.{column}" for column, _ in self.on]
        if self.instead is not None:
            theirs = [f"COALESCE({one}, {self.instead})" for one in theirs]
        parts = [f"{one} = {self.name}.{own}" for one, (_, own) in zip(theirs, self.on, strict=True)]
        return " AND ".join([*parts, *([self.extra] if self.extra else [])])

    @property
    def keys(self) -> str:
        return ", ".join(f"{self.name}.{column}" for column in self.relation.key)

    def of(self, schema: str) -> str:
        """SQL: its table in a schema."""
        return f"{schema}{self.relation.name} AS {self.name}"

    def among(self, table: str) -> str:
        """SQL: its key is in a table; keys of blocks may have nulls."""
        same = " AND ".join(f"{self.name}.{column} IS {table}.{column}" for column in self.relation.key)
        return f"EXISTS (SELECT 1 FROM {table} WHERE {same})"


@dataclass
class ModelBlock:
    """A block. Every joined row has exactly one row of its first alias, the anchor."""

    name: str
    aliases: list[ModelAlias]
    where: str
    select: list[Item]
    key: tuple[str, ...]
    group: Sequence[Item] = ()
    """Of a block of groups, whose `select` has aggregates."""
    having: str = ""
    sums: Sequence[str] = ()
    """Of a block of groups: the columns whose sums are kept by arithmetic; `select` has these and COUNT(*)."""
    partition: Sequence[Item] = ()
    """Of a ranking, whose first `top` rows of each partition stay, by `order`."""
    order: str = ""
    top: int = 1
    temporal: tuple[str, str, int] | None = None
    """(alias, column, distance): also WHERE alias.column >= now - distance, where now is the only row of an input."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for _, name in [*self.group, *self.select])

    def tables(self, schema: str) -> str:
        """SQL of FROM."""
        first, *rest = self.aliases
        return first.of(schema) + "".join(f" {one.how} JOIN {one.of(schema)} ON {one.condition}" for one in rest)

    def recent(self, schema: str) -> str:
        """SQL: the temporal condition, by the clock of a schema."""
        assert self.temporal is not None
        alias, column, distance = self.temporal
        return f"{alias}.{column} >= (SELECT at FROM {schema}now) - {distance}"

    def filter(self, schema: str, only: str = "") -> str:
        """SQL of WHERE; `only` is a table with the keys of the anchors that it is about."""
        parts = [self.where, self.recent(schema) if self.temporal else "", self.aliases[0].among(only) if only else ""]
        return " AND ".join(f"({part})" for part in parts if part)

    def sql(self, schema: str, only: str = "") -> str:
        """SQL of the block."""
        where = self.filter(schema, only)
        from_ = f"FROM {self.tables(schema)}" + (f" WHERE {where}" if where else "")
        items = ", ".join(f"{sql} AS {name}" for sql, name in [*self.group, *self.select])
        if self.group:
            having = f" HAVING {self.having}" if self.having else ""
            return f"SELECT {items} {from_} GROUP BY {', '.join(sql for sql, _ in self.group)}{having}"
        if self.partition:
            parts = ", ".join(sql for sql, _ in self.partition)
            rank = f"ROW_NUMBER() OVER (PARTITION BY {parts} ORDER BY {self.order}) AS _n"
            return f"SELECT {', '.join(self.columns)} FROM (SELECT {items}, {rank} {from_}) WHERE _n <= {self.top}"
        return f"SELECT {items} {from_}"


class Maintained:
    """A query that is kept up to date, perhaps without one of the rules."""

    def __init__(self, db: sqlite3.Connection, blocks: Sequence[ModelBlock], without: str = "") -> None:
        self.db, self.blocks, self.without = db, blocks, without
        self.stored: dict[str, Counter[Row]] = {block.name: Counter() for block in blocks}
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

    def _block(self, block: ModelBlock, changes: Changes) -> tuple[Rows, Rows]:
        """Returns the rows that went, and those that came."""
        self.put("anchors", block.aliases[0].relation.key, self._anchors(block, changes))
        if block.sums:
            before, after = self._by_arithmetic(block)
        elif block.group or block.partition:
            before, after = self._by_group(block)
        else:
            before, after = self.rows(block.sql("b_", "anchors")), self.rows(block.sql("a_", "anchors"))
        stored = self.stored[block.name] = self.stored[block.name] - Counter(before) + Counter(after)
        self.put(f"a_{block.name}", block.columns, stored.elements())
        gone, come = Counter(before) - Counter(after), Counter(after) - Counter(before)
        return [*gone.elements()], [*come.elements()]

    def _anchors(self, block: ModelBlock, changes: Changes) -> set[Row]:
        """Returns the keys of the anchors whose joined rows may differ.

        Old and new versions are traced in the last snapshot: of all changed rows on a path, the one that is nearest to
        the anchor has an unchanged rest of the way. Where a row may be joined to rows that have none on the way, all
        anchors are found.
        """
        found: set[Row] = set()
        first = block.aliases[0]
        for alias in block.aliases:
            old, new = changes.get(alias.relation.name, ((), ()))
            if self.without == OLD and alias is not block.aliases[0]:
                old = ()
            for versions in (old, new, self._passed(block, alias)):
                if versions:
                    self.put("delta", alias.relation.columns, versions)
                    found |= {*self.rows(self._traced(block, alias))}
                    if self.without != ABSENT and any(self.rows(sql) for sql in self._to_none(block, alias)):
                        for schema in ("b_", "a_"):
                            found |= {*self.rows(f"SELECT {first.keys} FROM {first.of(schema)}")}
        return found

    def _passed(self, block: ModelBlock, alias: ModelAlias) -> Rows:
        """Returns the rows that the clock passed in either direction: a range of the column."""
        if block.temporal is None or block.temporal[0] != alias.name or self.without == CLOCK:
            return ()
        passed = f"({block.recent('b_')}) <> ({block.recent('a_')})"
        return self.rows(f"SELECT {alias.name}.* FROM a_{alias.relation.name} AS {alias.name} WHERE {passed}")

    @staticmethod
    def _to_none(block: ModelBlock, alias: ModelAlias) -> list[str]:
        """SQL, per step from an alias to the anchor: the rows of table `delta` which match a parent of nulls there."""
        by_name = {one.name: one for one in block.aliases}
        path, here, found = f"delta AS {alias.name}", alias, list[str]()
        while here.parent:
            parent = by_name[here.parent]
            nulls = ", ".join(f"NULL AS {column}" for column in parent.relation.columns)
            found.append(f"SELECT 1 FROM {path} JOIN (SELECT {nulls}) AS {parent.name} ON {here.condition}")
            path, here = f"{path} JOIN {parent.of('a_')} ON {here.condition}", parent
        return found

    @staticmethod
    def _traced(block: ModelBlock, alias: ModelAlias) -> str:
        """SQL: the keys of the anchors of table `delta`, by the joins from an alias to the anchor."""
        by_name = {one.name: one for one in block.aliases}
        path, here = f"delta AS {alias.name}", alias
        while here.parent:
            parent = by_name[here.parent]
            path += f" JOIN {parent.of('a_')} ON {here.condition}"
            here = parent
        return f"SELECT {here.keys} FROM {path}"

    def _by_group(self, block: ModelBlock) -> tuple[Rows, Rows]:
        """Returns the rows, before and after, of the groups or partitions in which anchors stood and stand."""
        cells = [*block.group, *block.partition]
        values, touched = ", ".join(sql for sql, _ in cells), set[Row]()
        for schema in ("a_",) if self.without == BEFORE else ("b_", "a_"):
            joined = f"FROM {block.tables(schema)} WHERE {block.filter(schema, 'anchors')}"
            touched |= {*self.rows(f"SELECT {values} {joined}")}
        self.put("touched", [name for _, name in cells], touched)
        equal = "=" if self.without == NULL_SAFE else "IS"
        same = " AND ".join(f"_q.{name} {equal} touched.{name}" for _, name in cells)
        among = f"EXISTS (SELECT 1 FROM touched WHERE {same})"
        before, after = (self.rows(f"SELECT _q.* FROM ({block.sql(s)}) AS _q WHERE {among}") for s in ("b_", "a_"))
        return before, after

    def _by_arithmetic(self, block: ModelBlock) -> tuple[Rows, Rows]:
        """Returns the same by numbers: what anchors gave before is taken off, what they give now is added."""
        width, kept, touched = len(block.group), self.kept[block.name], set[Row]()
        numbers = ", ".join(["COUNT(*)", *(f"COUNT({of}), COALESCE(SUM({of}), 0)" for of in block.sums)])
        groups = ", ".join(sql for sql, _ in block.group)
        for schema, sign in (("b_", -1), ("a_", 1)):
            joined = f"FROM {block.tables(schema)} WHERE {block.filter(schema, 'anchors')}"
            for row in self.rows(f"SELECT {groups}, {numbers} {joined} GROUP BY {groups}"):
                group, given = row[:width], row[width:]
                touched.add(group)
                before = kept.get(group, (0,) * len(given))
                kept[group] = tuple(one + sign * more for one, more in zip(before, given, strict=True))
        stood = [row for row in self.stored[block.name].elements() if row[:width] in touched]
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


def random_query(rng: random.Random) -> list[ModelBlock]:
    """Returns blocks, of which the later ones are likely to read the earlier ones."""
    sources, blocks = [*TABLES], list[ModelBlock]()
    for number in range(rng.choice([1, 1, 2, 3])):
        block = _random_block(rng, f"block{number}", sources)
        blocks.append(block)
        sources += [Relation(block.name, block.columns, block.key)] * 2
    return blocks


def text_of(blocks: Sequence[ModelBlock]) -> str:
    """Returns the query as people write it."""
    last = blocks[-1]
    with_ = ", ".join(f"{block.name} AS ({block.sql('')})" for block in blocks)
    return f"WITH {with_} SELECT {', '.join(last.columns)} FROM {last.name}"


def _random_aliases(rng: random.Random, sources: Sequence[Relation]) -> list[ModelAlias]:
    found = [ModelAlias("t0", rng.choice(sources))]
    for number in range(1, rng.choice([1, 2, 2, 3, 3, 4])):
        alias, relation, parent = f"t{number}", rng.choice(sources), rng.choice(found)
        own = rng.choice([relation.key[0], rng.choice(relation.columns)])
        less = f"{parent.name}.{rng.choice(parent.relation.columns)} <= {alias}.{rng.choice(relation.columns)}"
        on = ((rng.choice(parent.relation.columns), own),)
        extra, instead = rng.choice(["", "", "", less]), rng.choice([None, None, 0, 1])
        found.append(ModelAlias(alias, relation, rng.choice(["", "LEFT"]), parent.name, on, extra, instead))
    return found


def _random_block(rng: random.Random, name: str, sources: Sequence[Relation]) -> ModelBlock:
    aliases = _random_aliases(rng, sources)

    def some() -> str:
        alias = rng.choice(aliases)
        return f"{alias.name}.{rng.choice(alias.relation.columns)}"

    either, there = f"{some()} = {some()} OR {some()} < 2", f"{some()} IS NOT NULL AND {some()} <> 1"
    where = rng.choice(["", "", f"{some()} > 0", f"{some()} IS NULL", either, there])
    shape = rng.choice(["rows", "rows", "group", "group", "partition"])
    if shape == "group":
        return _random_groups(rng, name, aliases, where, [some() for _ in range(5)])
    keys = [(f"{a.name}.{column}", f"k{n}_{column}") for n, a in enumerate(aliases) for column in a.relation.key]
    block = ModelBlock(name, aliases, where, [*keys, (some(), "x"), (some(), "y")], tuple(name for _, name in keys))
    if shape == "partition":
        block.partition, block.top = [(some(), "p")], rng.choice([1, 2])
        block.order = ", ".join([some(), *(sql for sql, _ in keys)])
        block.select += block.partition
    return block


def _random_groups(
    rng: random.Random, name: str, aliases: list[ModelAlias], where: str, some: Sequence[str]
) -> ModelBlock:
    group = [(sql, f"g{number}") for number, sql in enumerate(some[: rng.choice([1, 1, 2])])]
    function = rng.choice(["SUM({})", "MIN({})", "MAX({})", "COUNT(DISTINCT {})"])
    select, having = [("COUNT(*)", "n"), (function.format(some[2]), "x")], rng.choice(["", "", "COUNT(*) > 1"])
    sums = some[3 : 3 + rng.choice([0, 0, 1, 2])]
    if sums:
        select, having = [("COUNT(*)", "n"), *((f"SUM({of})", f"s{n}") for n, of in enumerate(sums))], ""
    return ModelBlock(name, aliases, where, select, tuple(name for _, name in group), group, having, sums)


def random_row(rng: random.Random, table: str, key: int) -> Row:
    """Returns a row of a table."""
    domains = {"fact": (4, 3, 3), "dim": (3, 3), "region": (2,), "note": (4, 3)}[table]
    return (key, *(rng.choice([*range(size), None]) for size in domains))


def is_right(seed: int, without: str = "", *, clock: bool = False) -> bool:
    """Returns whether a random query, in a random history of its inputs, is what it says after every refresh."""
    rng, db = random.Random(f"{seed}"), sqlite3.connect(":memory:")
    blocks = random_query(rng)
    for block in blocks if clock else ():
        alias = rng.choice(block.aliases)
        block.temporal = rng.choice([None, (alias.name, rng.choice(alias.relation.columns), rng.randrange(3))])
    query = Maintained(db, blocks, without)
    for relation in [*TABLES, *blocks]:
        put(db, f"b_{relation.name}", relation.columns, ())
        put(db, f"a_{relation.name}", relation.columns, ())
    put(db, "a_now", ("at",), [(0,)])
    state: dict[str, dict[int, Row]] = {table.name: {} for table in TABLES}
    for _ in range(rng.choice([2, 3, 4])):
        changes = {table.name: _changed(rng, db, table, state[table.name]) for table in TABLES}
        for block in blocks:
            put(db, f"b_{block.name}", block.columns, query.stored[block.name].elements())
        put(db, "b_now", ("at",), query.rows("SELECT at FROM a_now"))
        put(db, "a_now", ("at",), [(rng.randrange(5) if clock else 0,)])
        query.refresh(changes)
        if any(Counter(query.rows(block.sql("a_"))) != query.stored[block.name] for block in blocks):
            return False
    return True


def _changed(rng: random.Random, db: sqlite3.Connection, table: Relation, rows: dict[int, Row]) -> tuple[Rows, Rows]:
    """Changes rows of a table, by key; returns their old and new versions."""
    old = dict(rows)
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        key = rng.randrange(5)
        if rng.random() < 0.25:
            rows.pop(key, None)
        else:
            rows[key] = random_row(rng, table.name, key)
    put(db, f"b_{table.name}", table.columns, old.values())
    put(db, f"a_{table.name}", table.columns, rows.values())
    differ = [key for key in {*old, *rows} if old.get(key) != rows.get(key)]
    return [old[key] for key in differ if key in old], [rows[key] for key in differ if key in rows]
