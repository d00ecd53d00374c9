"""The blocks that a query is taken apart into, refreshed as the model refreshes its own: by SQLite, without Spark.

What is tried is what a block says of itself: its SQL, the way from a table to the anchor, what is found along it and
what is not, the conditions with a table of one row, and what tells rows apart.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fk_pipeline.blocks.select.block import Alias, Block, Unit
from fk_pipeline.blocks.select.query import Query
from tests.kinds.query.model import TABLES, Row, Rows, put, random_row, versions

KEY = "_k"
"""A column of the table of a block, which tells its rows apart."""


def database() -> sqlite3.Connection:
    """Returns a database with the functions of Spark that blocks are written with."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.create_function("RAISE_ERROR", 1, lambda _: None)  # IF computes all that it is given
    db.create_function("IF", 3, lambda condition, one, other: one if condition else other)
    db.create_function("NAMED_STRUCT", -1, lambda *parts: json.dumps(dict(zip(parts[::2], parts[1::2], strict=True))))
    db.create_function("ARRAY_SORT", 1, lambda text: json.dumps(sorted(json.loads(text), key=repr)))
    db.create_aggregate("COLLECT_SET", 1, _Set)  # type: ignore[arg-type]
    return db


class _Set:
    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def step(self, value: str | None) -> None:
        if value is not None:
            self.found[value] = json.loads(value)

    def finalize(self) -> str:
        return json.dumps([*self.found.values()])


def as_sqlite(sql: str) -> str:
    """Returns SQL with EXISTS over an array as EXISTS over its rows."""
    start = re.search(r"EXISTS\((`\w+`\.`\w+`), _row -> ", sql)
    if start is None:
        return sql
    end, depth = start.end(), 1
    while depth:
        depth += {"(": 1, ")": -1}.get(sql[end], 0)
        end += 1
    condition = re.sub(r"_row\.`(\w+)`", r"json_extract(_e.value, '$.\1')", sql[start.end() : end - 1])
    of_rows = f"EXISTS(SELECT 1 FROM json_each({start[1]}) AS _e WHERE {condition})"
    return as_sqlite(f"{sql[: start.start()]}{of_rows}{sql[end:]}")


class Refreshed:
    """A query over the tables of the model, whose blocks are brought from schema `b` to schema `a`."""

    def __init__(self, db: sqlite3.Connection, query: Query) -> None:
        self.db, self.query = db, query
        self.columns: dict[str, Sequence[str]] = {table.name: table.columns for table in TABLES}
        self.columns |= {block.name: [*block.columns, KEY] for block in query.blocks}
        self.stored: dict[str, dict[Any, Row]] = {block.name: {} for block in query.blocks}
        self.whole = Counter[bool]()
        """How often all anchors were taken, and how often not."""
        for name, columns in self.columns.items():
            for schema in ("a_", "b_"):
                self.put(f"{schema}{name}", columns, ())

    def put(self, name: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Makes a table."""
        put(self.db, f"`{name}`", [f"`{column}`" for column in columns], rows)

    def rows(self, sql: str) -> list[Row]:
        return [tuple(row) for row in self.db.execute(as_sqlite(sql))]

    def result(self) -> Counter[Row]:
        """Returns the rows of the result."""
        return Counter(row[:-1] for row in self.stored[self.query.blocks[-1].name].values())

    def refresh(self, changes: Mapping[str, tuple[Rows, Rows]]) -> None:
        """Brings every block to the tables in schema `a`."""
        told = dict(changes)
        for block in self.query.blocks:
            old, new = self.stored[block.name], dict(self.stored[block.name])
            self.put(f"b_{block.name}", self.columns[block.name], old.values())
            for number, part in enumerate(block.parts):
                before, after = self._part(part, number, told, old)
                for row in before:
                    new.pop(row[-1], None)
                twice = [key for key, times in Counter(row[-1] for row in after).items() if times > 1 or key in new]
                assert not twice, f"{block.name}: rows of one key, {twice[:3]}"
                new |= {row[-1]: row for row in after}
            self.stored[block.name] = new
            self.put(f"a_{block.name}", self.columns[block.name], new.values())
            told[block.name] = versions(old, new)

    def _key(self, alias: Alias) -> str:
        return f"`{alias.name}`.`{KEY if KEY in self.columns[alias.relation] else 'id'}`"

    def _rows(self, part: Block, number: int, schema: str, only: str = "") -> list[Row]:
        """Returns rows of a part of a block: its columns, values of the partition, its key."""
        keys = part.values if part.unit is Unit.GROUP else [f"{number}", *map(self._key, part.aliases)]
        values = {f"_p{place}": value for place, value in enumerate(part.values)}
        tables = {one.name: f"{schema}{one.relation}" for one in part.aliases}
        return self.rows(part.of(tables, {**values, KEY: f"json_array({', '.join(keys)})"}, only))

    def _part(self, part: Block, number: int, changes: Mapping[str, tuple[Rows, Rows]], old: Mapping[Any, Row]) -> Any:
        """Returns the rows that go, and those that come in their place."""
        self.put("anchors", ["k"], self._anchors(part, changes))
        among = f"{self._key(part.anchor)} IN (SELECT k FROM anchors)"
        if part.unit is Unit.ROW:
            return [self._rows(part, number, schema, among) for schema in ("b_", "a_")]
        if not part.values:
            return [*old.values()], self._rows(part, number, "a_")
        touched = set[Row]()
        for schema in ("b_", "a_"):
            tables = {one.name: f"{schema}{one.relation}" for one in part.aliases}
            touched |= {*self.rows(f"SELECT {', '.join(part.values)} {part._from(tables)}{part._where(among)}")}
        width = len(part.columns)
        sides = [self._rows(part, number, schema) for schema in ("b_", "a_")]
        return [[(*row[:width], row[-1]) for row in rows if row[width:-1] in touched] for rows in sides]

    # ------------------------------------------------------------------------------------------------------ anchors
    def _anchors(self, part: Block, changes: Mapping[str, tuple[Rows, Rows]]) -> set[Row]:
        found, whole = set[Row](), False
        for alias in part.aliases:
            old, new = changes.get(alias.relation, ((), ()))
            if not old and not new:
                continue
            if alias.is_single:
                found_in_process = self._moved(part, alias, old, new)
            else:
                found_in_process = self._traced(part, alias, [*old, *new])
            whole = whole or found_in_process is None
            found |= found_in_process or set()
        self.whole[whole] += 1
        if not whole:
            return found
        key, name = self._key(part.anchor), part.anchor.name
        of = [f"SELECT {key} FROM `{schema}{part.anchor.relation}` AS `{name}`" for schema in ("a_", "b_")]
        return {row for sql in of for row in self.rows(sql)}

    def _traced(self, part: Block, alias: Alias, rows: Sequence[Row]) -> set[Row] | None:
        """Returns the keys of the anchors of some rows; None if they are joined to rows that have none on the way."""
        self.put("delta", self.columns[alias.relation], rows)
        steps, path, left = part.steps(alias), f"`delta` AS `{alias.name}`", self._left(part, alias)
        for here, parent in itertools.pairwise(steps):
            on = " AND ".join(f"({one})" for one in here.path) or "TRUE"  # a table of one row
            none = f"SELECT 1 FROM {path} JOIN {self._none(parent)} ON {on} WHERE {left}"
            if here.may_match_none and self.rows(none):
                return None
            path += f" JOIN `a_{parent.relation}` AS `{parent.name}` ON {on}"
            left += f" AND {self._left(part, parent)}"
        return {*self.rows(f"SELECT {self._key(steps[-1])} FROM {path} WHERE {left}")}

    @staticmethod
    def _left(part: Block, alias: Alias) -> str:
        """SQL: what WHERE asks of a table alone that is not joined by LEFT JOIN."""
        conditions = [] if alias.how else part.conditions_of(alias.name)
        return " AND ".join(f"({one})" for one in conditions) or "TRUE"

    def _none(self, alias: Alias) -> str:
        nulls = ", ".join(f"NULL AS `{column}`" for column in self.columns[alias.relation])
        return f"(SELECT {nulls}) AS `{alias.name}`"

    def _moved(self, part: Block, single: Alias, old: Rows, new: Rows) -> set[Row] | None:
        """Returns the keys of the anchors for which a table of one row matters otherwise than before; None: all."""
        compared = part.compared_with(single)
        if compared is None or not old or not new:
            return None
        self.put("was", self.columns[single.relation], old)
        self.put("is_", self.columns[single.relation], new)
        found = set[Row]()
        for name, condition in compared:
            of = next(one for one in part.aliases if one.name == name)
            was, is_ = (condition.replace(f"`{single.name}`.", f"`{table}`.") for table in ("was", "is_"))
            own = "".join(f"({one}) AND " for one in part.conditions_of(name))
            passed = f"`was`, `is_` WHERE {own}(({was}) IS NOT ({is_}))"
            if any(step.how for step in part.steps(of)) and self.rows(f"SELECT 1 FROM {self._none(of)}, {passed}"):
                return None
            rows = self.rows(f"SELECT `{name}`.* FROM `a_{of.relation}` AS `{name}`, {passed}")
            traced = self._traced(part, of, rows)
            if traced is None:
                return None
            found |= traced
        return found


def first_wrong(text: str, query: Query, seed: int, steps: int = 4) -> str:
    """Returns how the blocks of a query differ from it in a random history of its tables; empty if they never do."""
    rng, db = random.Random(f"{seed}"), database()
    refreshed = Refreshed(db, query)
    state: dict[str, dict[int, Row]] = {table.name: {} for table in TABLES}
    for step in range(steps):
        changes = dict[str, tuple[Rows, Rows]]()
        for table in TABLES:
            old, rows = dict(state[table.name]), state[table.name]
            for _ in range(rng.choice([0, 0, 1, 2]) if step else 8):
                key = rng.randrange(9)
                rows.pop(key, None)
                if rng.random() < 0.8:
                    rows[key] = random_row(rng, table.name, key)
            for schema, some in (("b_", old), ("a_", rows), ("", rows)):
                put(db, f"{schema}{table.name}", table.columns, some.values())
            changes[table.name] = versions(old, rows)
        refreshed.refresh(changes)
        found, expected = refreshed.result(), Counter(refreshed.rows(text))
        if found != expected:
            missing, more = [*(expected - found).elements()][:3], [*(found - expected).elements()][:3]
            return f"step {step}: missing {missing}, too many {more}"
    return ""
