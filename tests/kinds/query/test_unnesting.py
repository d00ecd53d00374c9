"""A query with subqueries, outer joins and unions, and the blocks that it is taken apart into, have the same rows.

SQLite runs both, over small tables with nulls. What only Spark can run is in `test_as_spark.py`.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections import Counter

import pytest
import sqlglot

from fk_pipeline.blocks.select.block import Unit
from fk_pipeline.blocks.select.parsing import parse_query
from fk_pipeline.blocks.select.query import Query
from fk_pipeline.spec.sql import Column
from tests.kinds.query.model import TABLES, Row, put, random_row

INPUTS = {table.name: [Column(column, "BIGINT") for column in table.columns] for table in TABLES}
KEYS = {table.name: [table.key] for table in TABLES}
WORLDS = 25
"""In how many random contents of the tables each query is run."""

TEXTS = [
    # RIGHT and FULL JOIN
    "SELECT f.id, d.w FROM fact f RIGHT JOIN dim d ON d.id = f.dim",
    "SELECT f.id, d.w, r.zone FROM fact f JOIN dim d ON d.id = f.dim RIGHT JOIN region r ON r.id = d.region",
    "SELECT f.id, d.id AS d, d.w FROM fact f FULL JOIN dim d ON d.id = f.dim",
    "SELECT f.id, d.w FROM fact f FULL JOIN dim d ON d.id = f.dim WHERE d.w > 0 OR f.kind IS NULL",
    "SELECT f.id, d.w, n.u FROM fact f FULL JOIN dim d ON d.id = f.dim FULL JOIN note n ON n.dim = d.id",
    "SELECT COUNT(*) AS n FROM fact f FULL JOIN dim d ON d.id = f.dim",
    "SELECT dim, f.kind, n.u FROM fact f FULL JOIN note n USING (dim)",
    "SELECT id, w FROM fact f RIGHT JOIN dim d USING (id)",
    "SELECT a.id, b.id AS b FROM fact a FULL JOIN (SELECT id, dim FROM note WHERE u > 0) b ON b.dim = a.dim",
    # EXISTS
    "SELECT f.id FROM fact f WHERE EXISTS (SELECT 1 FROM note n WHERE n.dim = f.dim)",
    "SELECT f.id FROM fact f WHERE NOT EXISTS (SELECT 1 FROM note n WHERE n.dim = f.dim AND n.u > 0)",
    "SELECT f.id FROM fact f WHERE f.v = 1 OR EXISTS (SELECT 1 FROM note n WHERE n.dim = f.dim AND f.v > 0)",
    "SELECT f.id FROM fact f WHERE EXISTS (SELECT 1 FROM note WHERE u > 1)",
    "SELECT f.id FROM fact f WHERE NOT EXISTS (SELECT 1 FROM note WHERE u > 2 AND dim = 1)",
    (
        "SELECT f.id FROM fact f WHERE EXISTS (SELECT n.u FROM note n WHERE n.dim = f.dim GROUP BY n.u HAVING "
        "COUNT(*) > 1)"
    ),
    (
        "SELECT f.id FROM fact f WHERE EXISTS (SELECT 1 FROM note n WHERE n.dim = f.dim AND NOT EXISTS "
        "(SELECT 1 FROM dim d WHERE d.id = n.u))"
    ),
    "SELECT f.id, d.w FROM fact f JOIN dim d ON d.id = f.dim AND EXISTS (SELECT 1 FROM note n WHERE n.dim = d.region)",
    "SELECT f.id FROM fact f WHERE EXISTS (SELECT u FROM note UNION ALL SELECT w FROM dim)",
    # IN
    "SELECT f.id FROM fact f WHERE f.v IN (SELECT u FROM note)",
    "SELECT f.id FROM fact f WHERE f.v NOT IN (SELECT u FROM note)",
    "SELECT f.id FROM fact f WHERE f.v NOT IN (SELECT u FROM note WHERE u IS NOT NULL)",
    "SELECT f.id FROM fact f WHERE f.v NOT IN (SELECT u FROM note WHERE id > 100)",
    "SELECT f.id FROM fact f WHERE f.v NOT IN (SELECT n.u FROM note n WHERE n.dim = f.dim)",
    "SELECT f.id FROM fact f WHERE NOT (f.v IN (SELECT n.u FROM note n WHERE n.dim = f.dim) OR f.kind = 1)",
    "SELECT f.id FROM fact f WHERE (f.v, f.kind) IN (SELECT u, dim FROM note)",
    "SELECT f.id FROM fact f WHERE f.dim IN (SELECT id FROM dim WHERE w > 0) AND f.kind IN (SELECT id FROM dim)",
    "SELECT f.id FROM fact f WHERE f.dim IN (SELECT dim FROM note GROUP BY dim HAVING COUNT(*) > 1)",
    "SELECT f.id FROM fact f WHERE f.dim IN (SELECT MAX(dim) FROM note GROUP BY u)",
    "SELECT f.id FROM fact f WHERE f.dim IN (SELECT MAX(dim) FROM note)",
    "SELECT f.id FROM fact f WHERE f.dim NOT IN (SELECT MAX(dim) FROM note)",
    "SELECT f.id FROM fact f WHERE f.dim NOT IN (SELECT dim FROM note GROUP BY dim)",
    "SELECT f.id FROM fact f WHERE f.v NOT IN (SELECT u FROM note UNION ALL SELECT w FROM dim)",
    "SELECT f.id FROM fact f WHERE CASE WHEN f.v IN (SELECT u FROM note) THEN TRUE ELSE f.kind = 1 END",
    (
        "SELECT f.id FROM fact f WHERE f.dim IN (SELECT n.dim FROM note n WHERE n.u IN "
        "(SELECT d.w FROM dim d WHERE d.region = n.dim))"
    ),
    # a value
    "SELECT f.id, (SELECT MAX(n.u) FROM note n WHERE n.dim = f.dim) AS m FROM fact f",
    "SELECT f.id, (SELECT COUNT(*) FROM note n WHERE n.dim = f.dim) AS m FROM fact f",
    "SELECT f.id, (SELECT COUNT(n.u) + 1 FROM note n WHERE n.dim = f.dim) AS m FROM fact f",
    "SELECT f.id, (SELECT COALESCE(SUM(n.u), 7) FROM note n WHERE n.dim = f.dim) AS m FROM fact f",
    "SELECT f.id, (SELECT COUNT(*) FROM note n WHERE n.dim = f.dim GROUP BY n.dim) AS m FROM fact f",
    "SELECT f.id, (SELECT COUNT(*) FROM note n WHERE n.dim = f.dim AND n.u < f.v) AS m FROM fact f",
    (
        "SELECT f.id, (SELECT SUM(n.u) FROM note n JOIN dim d ON d.id = n.dim WHERE n.dim = f.dim AND d.w <> f.v) AS m "
        "FROM fact f"
    ),
    "SELECT f.id, (SELECT d.w FROM dim d WHERE d.id = f.dim) AS m FROM fact f",
    "SELECT f.id FROM fact f WHERE f.v > (SELECT AVG(u) FROM note)",
    "SELECT f.id, f.v - (SELECT MIN(u) FROM note) AS x FROM fact f",
    "SELECT f.id FROM fact f WHERE f.v > (SELECT AVG(g.v) FROM fact g WHERE g.kind = f.kind)",
    "SELECT f.kind, SUM(f.v) AS s FROM fact f GROUP BY f.kind HAVING SUM(f.v) > (SELECT AVG(u) FROM note)",
    "SELECT f.kind, SUM(f.v) AS s, (SELECT COUNT(*) FROM note n WHERE n.dim = f.kind) AS c FROM fact f GROUP BY f.kind",
    (
        "SELECT f.kind, SUM(CASE WHEN EXISTS (SELECT 1 FROM note n WHERE n.dim = f.dim) THEN 1 ELSE 0 END) AS s "
        "FROM fact f GROUP BY f.kind"
    ),
    (
        "SELECT f.kind + 1 AS k, SUM(f.v) * 2 AS s FROM fact f GROUP BY f.kind + 1 "
        "HAVING f.kind + 1 IN (SELECT dim FROM note) AND COUNT(*) > 0"
    ),
    "SELECT COUNT(*) AS n, (SELECT MAX(u) FROM note) AS m FROM fact",
    "SELECT f.id FROM fact f ORDER BY (SELECT COUNT(*) FROM note n WHERE n.dim = f.dim), f.id LIMIT 2",
    # tables of one row
    "SELECT f.id, m.x FROM fact f CROSS JOIN (SELECT MAX(u) AS x FROM note) m",
    "SELECT f.id, m.x FROM fact f, (SELECT MAX(u) AS x FROM note) m WHERE f.v < m.x",
    # UNION
    "SELECT id FROM fact UNION ALL SELECT id FROM dim",
    "SELECT id FROM fact UNION SELECT dim FROM note",
    "SELECT id, v FROM fact UNION SELECT id, w FROM dim UNION ALL SELECT id, u FROM note",
    "SELECT x.a, COUNT(*) AS n FROM (SELECT id AS a FROM fact UNION ALL SELECT dim FROM note) x GROUP BY x.a",
    (
        "WITH u AS (SELECT id AS a, v AS b FROM fact UNION ALL SELECT d.id, n.u FROM dim d JOIN note n ON "
        "n.dim = d.id) "
        "SELECT u.a, u.b, r.zone FROM u LEFT JOIN region r ON r.id = u.a"
    ),
    (
        "WITH u AS (SELECT id AS a FROM fact UNION SELECT id FROM dim) "
        "SELECT x.a, y.a AS b FROM u x JOIN u y ON y.a = x.a"
    ),
]


def read(text: str) -> dict[str, list[Column]]:
    """Returns the inputs that a query names."""
    return {name: columns for name, columns in INPUTS.items() if re.search(rf"\b(FROM|JOIN) {name}\b|, {name} ", text)}


def parsed(text: str) -> Query:
    return parse_query(text, read(text), KEYS)


@pytest.mark.parametrize("text", TEXTS)
def test_the_blocks_of_a_query_have_its_rows(text: str) -> None:
    query, rng = parsed(text), random.Random(7)
    for _ in range(WORLDS):
        db = sqlite3.connect(":memory:")
        for table in TABLES:
            keys = [key for key in range(6) if rng.random() < 0.8]
            put(db, table.name, table.columns, [random_row(rng, table.name, key) for key in keys])
        wanted = Counter(map(tuple, db.execute(_in_sqlite(text))))
        assert _rows_of(db, query) == wanted


def _rows_of(db: sqlite3.Connection, query: Query) -> Counter[Row]:
    """Returns the rows of the last block, after all have been computed."""
    for block in query.blocks:
        sql = block.of({one.name: one.relation for one in block.aliases})
        db.execute(f"CREATE TABLE {block.name} AS {_in_sqlite(sql)}")
    return Counter(map(tuple, db.execute(f"SELECT * FROM {query.blocks[-1].name}")))


def _in_sqlite(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="sqlite")[0]


def _blocks(text: str) -> list[tuple[str, Unit]]:
    return [(one.name, one.unit) for one in parsed(text).blocks]


def test_a_subquery_is_a_join_without_a_block_where_its_key_is_looked_up() -> None:
    text = "SELECT f.id FROM fact f WHERE f.dim IN (SELECT id FROM dim WHERE w > 0)"
    assert _blocks(text) == [("result", Unit.ROW)]
    [block] = parsed(text).blocks
    assert [one.relation for one in block.aliases] == ["fact", "dim"]


def test_equal_subqueries_are_one_block() -> None:
    there = "EXISTS (SELECT 1 FROM note n WHERE n.dim = f.dim)"
    text = f"SELECT f.id FROM fact f WHERE {there} UNION ALL SELECT f.v FROM fact f WHERE f.kind = 1 AND {there}"
    assert [name for name, unit in _blocks(text) if unit is Unit.GROUP] == ["exists_1"]


def test_parts_of_union_all_are_branches_of_one_block() -> None:
    text = (
        "SELECT id FROM fact UNION ALL SELECT f.id FROM fact f JOIN dim d ON d.id = f.dim UNION ALL SELECT id FROM dim"
    )
    [block] = parsed(text).blocks
    assert block.unit is Unit.UNION
    assert [[one.name for one in part.aliases] for part in block.parts] == [["fact"], ["f", "d"], ["dim"]]


def test_a_table_of_one_row_is_joined_without_a_condition() -> None:
    *_, block = parsed("SELECT f.id FROM fact f WHERE f.v > (SELECT AVG(u) FROM note)").blocks
    single = block.aliases[-1]
    assert single.is_single
    assert block.compared_with(single) == [("f", "`f`.`v` > `value_1`.`value`")]
    *_, block = parsed("SELECT f.id, (SELECT AVG(u) FROM note) AS a FROM fact f").blocks
    assert block.compared_with(block.aliases[-1]) is None
