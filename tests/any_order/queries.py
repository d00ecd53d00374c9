"""The subject of `kind: query`: two tables that the machine lands, and queries over them, which SQLite runs, too."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store import schemas as s
from tests.any_order.histories import LEFT, RIGHT, Content, Histories, Key, Place
from tests.kinds.query.model import put

COLUMNS = {LEFT: ("id", "fk", "v", "unused"), RIGHT: ("k", "name")}
"""Per side, the columns of its table; the first is the key."""

INPUTS = {LEFT: "facts", RIGHT: "names"}
"""Per side, the name of its table in the queries."""

NULL = "0null"
"""The key under which the rows without a value are compared."""


def _of_left(key: int) -> str:
    return f"k={key}"


def _of_group(key: int) -> str:
    return f"k={key // 2}a"


@dataclass(frozen=True)
class Form:
    """A query; its first column `k` tells of which world a row is.

    Attributes:
        text: the query, which SQLite reads as Spark does.
        explained: function from a left key to a key that `explain` takes.
    """

    text: str
    explained: Callable[[int], str] = _of_left


_JOINED = "FROM facts l LEFT JOIN names r ON r.k = l.fk"

FORMS = {
    "rows": Form(
        f"SELECT l.id AS k, l.fk, l.v, r.name {_JOINED} AND (r.name = 'N' OR l.unused = 'p') "
        "WHERE l.v = 'x' OR r.name = 'N'"
    ),
    "itself": Form(
        "SELECT a.id AS k, b.id AS other, r.name FROM facts a JOIN facts b ON b.fk = a.fk "
        "LEFT JOIN names r ON r.k = b.fk WHERE a.id <> b.id OR a.v = 'x'"
    ),
    "groups": Form(
        f"SELECT l.fk AS k, MIN(l.v) AS low, COUNT(DISTINCT r.name) AS names, COUNT(*) AS n {_JOINED} "
        "GROUP BY l.fk HAVING MAX(l.unused) = 'q'",
        _of_group,
    ),
    "sums": Form(
        f"SELECT l.fk AS k, r.name, COUNT(*) AS n, SUM(CASE WHEN l.v = 'x' THEN l.id END) AS x {_JOINED} "
        "GROUP BY l.fk, r.name",
        _of_group,
    ),
    "totals": Form(f"SELECT r.name AS k, COUNT(*) AS n, SUM(l.id) AS ids {_JOINED} GROUP BY r.name", lambda _: "k=N"),
    "partitions": Form(
        "SELECT l.id AS k, r.name, RANK() OVER (PARTITION BY l.fk ORDER BY l.v, l.id) AS n, "
        f"COUNT(r.k) OVER (PARTITION BY l.fk) AS many {_JOINED}"
    ),
    "groups_ranked": Form(
        "WITH g AS (SELECT fk, MAX(v) AS m, COUNT(*) AS n FROM facts GROUP BY fk) SELECT k, m, name, n FROM ("
        "SELECT g.fk AS k, g.m, r.name, ROW_NUMBER() OVER (PARTITION BY r.name, g.n ORDER BY g.m, g.fk) AS n "
        "FROM g LEFT JOIN names r ON r.k = g.fk) AS x WHERE n <= 20",
        _of_group,
    ),
    "two": Form(
        "WITH g AS (SELECT fk, COUNT(*) AS n, SUM(id) AS ids FROM facts GROUP BY fk) "
        "SELECT l.id AS k, l.v, g.n, g.ids, r.name FROM facts l LEFT JOIN g ON g.fk = l.fk "
        "LEFT JOIN names r ON r.k = l.fk"
    ),
}
"""The queries: each unit of a block, groups anew and by arithmetic, few large groups, and two blocks."""


def files(_: Any, form: str, schemas: Mapping[str, str], order: str, _declared: Iterable[str]) -> dict[str, str]:
    """Returns the pipeline files: a table per side, and the query over both."""
    tables = {
        f"{INPUTS[side]}.yaml": f"name: {INPUTS[side]}\nkind: table\ninput:\n    path: landing/{side}\n"
        f'    format: rows\n    schema: "{schemas[side]}"\n    key: {COLUMNS[side][0]}\n    op_column: op\n{order}'
        for side in (LEFT, RIGHT)
    }
    text = FORMS[form].text
    read = "".join(f"    {name}: {{pipeline: {name}.yaml}}\n" for name in INPUTS.values() if f"{name} " in text)
    query = f"name: any_order\nkind: query\ninputs:\n{read}query: |\n    {text}\n"
    return tables | {"pipeline.yaml": query}


def _by_key(rows: Iterable[tuple[Any, ...]]) -> dict[Key, tuple[Any, ...]]:
    """Returns, per value of the first column, its rows in order."""
    found: dict[Key, list[tuple[Any, ...]]] = {}
    for first, *values in rows:
        # Groups of all worlds count as some of the first one.
        key = NULL if first is None else first if isinstance(first, int) or first[0].isdigit() else f"0{first.lower()}"
        found.setdefault(key, []).append(tuple(values))
    return {key: tuple(sorted(these, key=repr)) for key, these in found.items()}


def result(pipeline: Pipeline, _form: str, _declared: Iterable[str]) -> dict[Key, tuple[Any, ...]]:
    """Returns the rows of the result."""
    columns = [output.name for output in pipeline.spec.outputs]
    return _by_key(tuple(row) for row in pipeline.table("result").select(*columns).collect())


def expected(
    histories: Histories, landed: Mapping[Place, Content], form: str, _declared: Iterable[str]
) -> dict[Key, tuple[Any, ...]]:
    """Returns the rows that SQLite gives for the query."""
    db = sqlite3.connect(":memory:")
    for side, (_, *others) in COLUMNS.items():
        table = histories.table(landed, side).items()
        put(db, INPUTS[side], COLUMNS[side], [(value, *map(row.get, others)) for value, row in table])
    return _by_key(db.execute(FORMS[form].text).fetchall())


def stale(pipeline: Pipeline) -> list[Any]:
    """Returns the first column of rows, of any block, whose hash is not that of their values."""
    wrong = []
    for block in pipeline.spec.blocks.blocks:
        rows = pipeline.table(block.name)
        own = row_hash((field.name, field.dataType) for field in rows.select(*block.columns).schema.fields)
        broken = rows.where(~F.expr(own).eqNullSafe(F.col(s.HASH)))
        wrong += [NULL if row[0] is None else row[0] for row in broken.select(block.columns[0]).collect()]
    return wrong


def number(rows: Mapping[Key, tuple[Any, ...]]) -> int:
    """Returns the number of rows of the result."""
    return sum(map(len, rows.values()))
