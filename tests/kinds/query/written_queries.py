"""Random queries as people write them: every join, subqueries wherever they may stand, unions, groups, all at once.

A text means the same to SQLite and to Spark: all columns are whole numbers, and nothing is divided, cut off or ordered.
A subquery depends on no other query than the one that it stands in, and on that by an equality at least. Conditions are
read by AND, OR, NOT and CASE only: beside these Spark does not tell an IN that is unknown from one that is false.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.kinds.query.model import TABLES, put


@dataclass(frozen=True)
class Source:
    """What may stand in FROM: a table, a CTE or a subquery, whose text is empty if it is called by its name."""

    name: str
    columns: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True)
class Named:
    """A table of a FROM."""

    name: str
    columns: tuple[str, ...]


@dataclass
class Scope:
    """One SELECT: its FROM so far, and how deep it stands in subqueries."""

    depth: int
    text: str = ""
    tables: list[Named] = field(default_factory=list)
    singles: list[Named] = field(default_factory=list)
    where: list[str] = field(default_factory=list)

    @property
    def joined(self) -> str:
        """SQL of FROM and WHERE."""
        return self.text + (f" WHERE {' AND '.join(self.where)}" if self.where else "")


def tables_of(text: str) -> list[str]:
    """Returns the tables that a query reads."""
    return [table.name for table in TABLES if re.search(rf"(FROM|JOIN) {table.name}\b", text)]


def random_text(rng: random.Random) -> str:
    """Returns a query over the tables of the model; columns of a table and of the result are BIGINT or INT."""
    db = sqlite3.connect(":memory:")
    for table in TABLES:
        put(db, table.name, table.columns, ())
    while True:
        text = _Text(rng).query()
        try:
            db.execute(text)
        except sqlite3.OperationalError:  # SQLite 3.40 takes some FULL JOIN in a subquery of FROM for another
            continue
        return text


class _Text:
    def __init__(self, rng: random.Random) -> None:
        self.rng, self.number = rng, 0
        self.subqueries = rng.choice([0, 1, 2, 3, 5])
        """How many more there may be."""
        self.sources = [Source(table.name, table.columns) for table in TABLES]
        self.singles: list[Source] = []

    def query(self) -> str:
        """Returns a whole query; a CTE that it does not read is left out."""
        ctes: list[tuple[str, str]] = []
        rng = self.rng
        for number in range(rng.choice([0, 0, 1, 1, 2])):
            name = f"c{number}"
            if rng.random() < 0.4:
                text = self._aggregates(depth=1)
                self.singles += [Source(name, ("x0", "x1"))] * 2
            else:
                text = self._rows_of_any_form(2, depth=1)
                self.sources += [Source(name, ("x0", "x1"))] * 3
            ctes.append((name, text))
        self.subqueries = max(self.subqueries, rng.choice([0, 1, 2]))
        text = self._rows_of_any_form(rng.choice([2, 3]), depth=0)
        read: list[str] = []
        for name, of in reversed(ctes):
            if re.search(rf"(FROM|JOIN) {name}\b", " ".join([text, *read])):
                read.insert(0, f"{name} AS ({of})")
        return (f"WITH {', '.join(read)} " if read else "") + text

    # ---------------------------------------------------------------------------------------------------- SELECTs
    def _rows_of_any_form(self, width: int, depth: int) -> str:
        forms = [self._rows] * 5 + [self._groups] * 4 + [self._distinct, self._unions, self._unions]
        return self.rng.choice(forms)(width, depth)

    def _unions(self, width: int, depth: int) -> str:
        forms = [self._rows, self._rows, self._groups]
        parts = [self.rng.choice(forms)(width, max(depth, 1)) for _ in range(self.rng.choice([2, 2, 3]))]
        words = [self.rng.choice(["UNION ALL", "UNION ALL", "UNION"]) for _ in parts]
        return "".join(f" {word} {part}" for word, part in zip(words, parts, strict=True)).removeprefix(f" {words[0]} ")

    def _rows(self, width: int, depth: int) -> str:
        scope = self._scope(depth)
        items = [self._column(scope), *(self._item(scope) for _ in range(width - 1))]
        return f"SELECT {_named(items)}{scope.joined}"

    def _distinct(self, width: int, depth: int) -> str:
        return self._rows(width, depth).replace("SELECT", "SELECT DISTINCT", 1)

    def _groups(self, width: int, depth: int) -> str:
        scope = self._scope(depth)
        group = [self._column(scope) for _ in range(1 if width == 2 else self.rng.choice([1, 1, 2]))]
        items = [*group, *(self._aggregate(scope) for _ in range(width - len(group)))]
        having = f" HAVING {self._having(scope, group[0])}" if self.rng.random() < 0.4 else ""
        return f"SELECT {_named(items)}{scope.joined} GROUP BY {', '.join(group)}{having}"

    def _aggregates(self, depth: int) -> str:
        """Returns a SELECT of one row."""
        scope = self._scope(depth)
        return f"SELECT {_named([self._aggregate(scope), self._aggregate(scope)])}{scope.joined}"

    def _ranked(self) -> str:
        """Returns a SELECT of the first rows of each partition."""
        scope = self._scope(1, most=2)
        x, y, part, order = (self._column(scope) for _ in range(4))
        rank = f"RANK() OVER (PARTITION BY {part} ORDER BY {order})"
        return f"SELECT r.x0, r.x1 FROM (SELECT {_named([x, y])}, {rank} AS n{scope.joined}) AS r WHERE r.n <= 1"

    # --------------------------------------------------------------------------------------------- columns of SELECT
    def _item(self, scope: Scope) -> str:
        rng = self.rng
        if rng.random() < 0.25 and self._may_nest(scope):
            return rng.choice([self._scalar, self._case])(scope)
        column = self._column(scope)
        plain = [column] * 3 + [f"{column} + 1", f"COALESCE({column}, 0)"]
        if scope.singles and rng.random() < 0.5:
            plain = [self._of_single(scope), f"{column} - {self._of_single(scope)}"]
        return rng.choice(plain)

    def _case(self, scope: Scope) -> str:
        said = self._predicate(scope)
        return self.rng.choice(
            [f"CASE WHEN {said} THEN 1 ELSE 0 END", f"CASE WHEN {said} THEN {self._column(scope)} END"]
        )

    def _aggregate(self, scope: Scope) -> str:
        forms = ["COUNT(*)", "COUNT({})", "SUM({})", "SUM({})", "MIN({})", "MAX({})", "COUNT(DISTINCT {})"]
        case = f"CASE WHEN {self._simple(scope)} THEN {self._column(scope)} END"
        of = case if self.rng.random() < 0.15 else self._column(scope)
        return self.rng.choice(forms).format(of)

    def _having(self, scope: Scope, group: str) -> str:
        rng, counted = self.rng, self._aggregate(scope)
        if not self._may_nest(scope) or rng.random() < 0.4:
            return rng.choice(["COUNT(*) > 1", f"MAX({self._column(scope)}) > 1"])
        forms = [f"{counted} >= {self._uncorrelated(scope)}", f"COUNT(*) > {self._uncorrelated(scope)}"]
        inner = self._inner(scope, avoid={group.split(".", maxsplit=1)[0]})
        own = self._column(inner)
        forms.append(f"{group} {self._not()}IN (SELECT {own} AS v{inner.joined})")
        inner.where.append(f"{self._column(inner)} = {group}")
        forms += [f"{self._not()}EXISTS (SELECT 1{inner.joined})", f"COUNT(*) > (SELECT COUNT(*) AS v{inner.joined})"]
        return rng.choice(forms)

    # ---------------------------------------------------------------------------------------------- FROM and WHERE
    def _scope(self, depth: int, most: int = 4, avoid: frozenset[str] | set[str] = frozenset()) -> Scope:
        """Returns a FROM with a WHERE; `avoid`: names that it must not hide."""
        rng, scope = self.rng, Scope(depth)
        numbers = [[1, 2, 2, 2, 3, 3, 4], [1, 1, 1, 2, 2, 3], [1, 1, 1, 2]][min(depth, 2)]
        taken = {*avoid}
        for number in range(min(most, rng.choice(numbers))):
            source = self._source(depth)
            name = self._name(source, taken)
            taken.add(name)
            listed = f"{source.text or source.name}{'' if name == source.name else f' AS {name}'}"
            table = Named(name, source.columns)
            if not number:
                scope.text = f" FROM {listed}"
            else:
                self._join(scope, table, listed)
            scope.tables.append(table)
            if self.singles and not scope.singles and rng.random() < 0.25:
                single = rng.choice(self.singles)
                self.number += 1
                scope.singles.append(Named(f"o{self.number}", single.columns))
                scope.text += f" CROSS JOIN {single.name} AS o{self.number}"
        if rng.random() < (0.4, 0.3, 0.2, 0.2)[depth]:
            scope.where.append(self._condition(scope))
        for _ in range(2 if depth == 0 else 1):
            if self._may_nest(scope) and rng.random() < 0.5:
                scope.where.append(self._predicate(scope))
        return scope

    def _source(self, depth: int) -> Source:
        rng = self.rng
        if depth < 2 and rng.random() < 0.12:
            text = rng.choice([self._unions, self._groups, self._rows, lambda *_: self._ranked()])(2, depth + 1)
            return Source("", ("x0", "x1"), f"({text})")
        return rng.choice(self.sources)

    def _name(self, source: Source, taken: set[str]) -> str:
        """Returns a name in FROM; now and then that of the table itself, which may hide one outside."""
        if source.name and source.name not in taken and self.rng.random() < 0.3:
            return source.name
        self.number += 1
        return f"t{self.number}"

    def _join(self, scope: Scope, table: Named, listed: str) -> None:
        rng, parent = self.rng, self.rng.choice(scope.tables)
        key = table.columns[0] if rng.random() < 0.6 else rng.choice(table.columns)
        left, right = f"{parent.name}.{rng.choice(parent.columns)}", f"{table.name}.{key}"
        if rng.random() < 0.1:
            left = f"COALESCE({left}, 1)"
        on = f"{left} = {right}" if rng.random() < 0.5 else f"{right} = {left}"
        own = f"{table.name}.{rng.choice(table.columns)}"
        theirs = f"{parent.name}.{rng.choice(parent.columns)}"
        if rng.random() < 0.3:
            on += rng.choice([f" AND {own} > 0", f" AND {theirs} <= {own}", f" AND {theirs} < 2"])
        how = rng.choice(["JOIN"] * 4 + ["LEFT JOIN"] * 4 + ["RIGHT JOIN"] * 2 + ["FULL JOIN"] * 2)
        scope.text += f" {how} {listed} ON {on}"

    def _column(self, scope: Scope, avoid: Sequence[Named] = ()) -> str:
        hidden = {one.name for one in avoid}
        table = self.rng.choice([one for one in scope.tables if one.name not in hidden])
        return f"{table.name}.{self.rng.choice(table.columns)}"

    def _of_single(self, scope: Scope) -> str:
        table = self.rng.choice(scope.singles)
        return f"{table.name}.{self.rng.choice(table.columns)}"

    def _simple(self, scope: Scope) -> str:
        one, other = self._column(scope), self._column(scope)
        forms = ["{} > 0", "{} < 3", "{} IS NULL", "{} IS NOT NULL", "{} = {}", "{} <= {}", "{} IN (0, 1)"]
        return self.rng.choice(forms).format(one, other)

    def _condition(self, scope: Scope) -> str:
        """Returns a condition of WHERE without a subquery."""
        rng, column = self.rng, self._column(scope)
        if scope.singles and rng.random() < 0.7:
            single, other = self._of_single(scope), self._of_single(scope)
            return rng.choice([
                f"{column} >= {single} - 2", f"{single} <= COALESCE({column}, 1)", f"({column} < 2 OR {single} > 2)",
                f"({column} IS NULL OR {single} = 1)", f"{single} > 1", f"{column} + {other} <> {single}",
            ])  # fmt: skip
        forms = ["{}", "{}", "({} OR {})", "NOT ({} AND {})"]
        return rng.choice(forms).format(self._simple(scope), self._simple(scope))

    # -------------------------------------------------------------------------------------------------- subqueries
    def _may_nest(self, scope: Scope) -> bool:
        return scope.depth < 3 and self.subqueries > 0

    def _not(self) -> str:
        return self.rng.choice(["", "NOT "])

    def _predicate(self, scope: Scope) -> str:
        """Returns a condition with a subquery: alone, in OR, under NOT; an IN of several columns alone."""
        if self.rng.random() < 0.1:
            return self._in_pair(scope)
        said = self.rng.choice([self._exists, self._exists, self._in, self._in, self._compared])(scope)
        around = ["{}"] * 5 + [f"({{}} OR {self._simple(scope)})", f"({self._simple(scope)} OR {{}})", "NOT ({})"]
        return self.rng.choice([*around, f"NOT ({{}} AND {self._simple(scope)})"]).format(said)

    def _inner(self, scope: Scope, avoid: frozenset[str] | set[str] = frozenset()) -> Scope:
        self.subqueries -= 1
        return self._scope(max(scope.depth + 1, 1), most=2, avoid=avoid)

    def _correlated(self, scope: Scope) -> tuple[Scope, Named]:
        """Returns a FROM with a WHERE that depends on a table of a query, and that table."""
        outer = self.rng.choice(scope.tables)
        inner = self._inner(scope, avoid={one.name for one in scope.tables})
        own, theirs = self._column(inner), f"{outer.name}.{self.rng.choice(outer.columns)}"
        if self.rng.random() < 0.1:
            theirs = self.rng.choice([f"COALESCE({theirs}, 1)", f"{theirs} + 1"])
        equal = f"{own} = {theirs}" if self.rng.random() < 0.5 else f"{theirs} = {own}"
        inner.where.insert(self.rng.choice([0, len(inner.where)]), equal)
        if self.rng.random() < 0.1:
            inner.where.append(f"{self._column(inner)} = {self._column(scope)}")
        return inner, outer

    def _exists(self, scope: Scope) -> str:
        if self.rng.random() < 0.1:
            return f"{self._not()}EXISTS (SELECT 1{self._inner(scope).joined})"
        inner, _ = self._correlated(scope)
        if self.rng.random() < 0.3:
            compare = self.rng.choice(["<=", "<", "<>", ">"])
            inner.where.append(f"{self._column(inner)} {compare} {self._column(scope)}")
        selected = self.rng.choice(["1", "1", self._column(inner)])
        return f"{self._not()}EXISTS (SELECT {selected}{inner.joined})"

    def _in(self, scope: Scope) -> str:
        tested = self.rng.choice([self._column(scope)] * 5 + [f"COALESCE({self._column(scope)}, 1)"])
        if self.rng.random() < 0.25:
            return f"{tested} {self._not()}IN ({self._listed(scope)})"
        inner = self._inner(scope) if self.rng.random() < 0.5 else self._correlated(scope)[0]
        return f"{tested} {self._not()}IN (SELECT {self._column(inner)}{inner.joined})"

    def _listed(self, scope: Scope) -> str:
        """Returns a SELECT of one column: of groups, or a union."""
        rng, inner = self.rng, self._inner(scope)
        column = self._column(inner)
        grouped = f"SELECT {column}{inner.joined} GROUP BY {column} HAVING COUNT(*) > 1"
        if rng.random() < 0.6:
            return grouped
        other = self._inner(scope)
        union = f"SELECT {column}{inner.joined} UNION ALL SELECT {self._column(other)}{other.joined}"
        return rng.choice([union, f"SELECT DISTINCT {column}{inner.joined}"])

    def _in_pair(self, scope: Scope) -> str:
        inner = self._inner(scope) if self.rng.random() < 0.7 else self._correlated(scope)[0]
        pair = f"({self._column(scope)}, {self._column(scope)})"
        return f"{pair} IN (SELECT {self._column(inner)}, {self._column(inner)}{inner.joined})"

    def _compared(self, scope: Scope) -> str:
        compare = self.rng.choice(["<=", "=", ">", "<>"])
        return f"{self._column(scope)} {compare} {self._scalar(scope)}"

    def _scalar(self, scope: Scope) -> str:
        if self.rng.random() < 0.35:
            return self._uncorrelated(scope)
        inner, _ = self._correlated(scope)
        of = self._aggregate(inner)
        more = ["{}"] * 6 + ["COALESCE({}, 0)", "{} + 1"]
        return f"(SELECT {self.rng.choice(more).format(of)}{inner.joined})"

    def _uncorrelated(self, scope: Scope) -> str:
        """Returns a value that depends on no outer row."""
        rng = self.rng
        if self.singles and rng.random() < 0.3:
            single = rng.choice(self.singles)
            return f"(SELECT {single.name}.{rng.choice(single.columns)} FROM {single.name})"
        inner = self._inner(scope)
        if rng.random() < 0.2:
            column = self._column(inner)
            return f"(SELECT MAX(q.n) FROM (SELECT {column}, COUNT(*) AS n{inner.joined} GROUP BY {column}) AS q)"
        return f"(SELECT {self._aggregate(inner)}{inner.joined})"


def _named(items: Sequence[str]) -> str:
    return ", ".join(f"{sql} AS x{number}" for number, sql in enumerate(items))
