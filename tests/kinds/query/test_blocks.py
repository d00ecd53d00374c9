"""What a query is taken apart into, the SQL that its parts write, and what is refused. No Spark."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fk_pipeline.blocks.select.block import Block
from fk_pipeline.blocks.select.lineage import columns_in, plain_read, reads_of, sql_of
from fk_pipeline.blocks.select.parsing import parse_query
from fk_pipeline.blocks.select.query import Query
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.kinds.aggregate.layout import declared_layout as aggregate_layout
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.kinds.query.advice import advice
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.tables import declared_layout
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.sql import SqlTextError, parse_columns
from tests.kinds.query.model import TABLES, put, random_query, random_row, text_of

FACT = "id BIGINT, dim BIGINT, kind STRING, v BIGINT, day DATE, tags ARRAY<STRING>"
INPUTS = {"fact": parse_columns(FACT), "dim": parse_columns("id BIGINT, region BIGINT, w BIGINT")}
INPUTS |= {"region": parse_columns("id BIGINT, zone STRING"), "one": parse_columns("Id BIGINT")}

GROUPS = "SELECT dim, COUNT(*) AS n FROM fact GROUP BY dim"


def shown(block: Block) -> str:
    """Returns a block in one line: its tables with their parents, its unit with its values, what is kept of it."""
    tables = ", ".join(
        f"{one.name}={one.relation}" + (f" {one.how or 'inner'} {one.parent}" if one.parent else "")
        for one in block.aliases
    )
    by = f" by {', '.join(block.values)}" if block.values else ""
    keep = f" keep {block.keep.where}" if block.keep is not None else ""
    return f"{block.name}: {block.unit}{by} of {tables}{keep}".replace("`", "")


@pytest.mark.parametrize(
    ("query", "blocks"),
    {
        "SELECT F.id, d.w FROM FACT F LEFT JOIN Dim d ON d.id = f.dim AND d.w > 3 JOIN region r ON r.id = D.region": [
            "result: row of f=fact, d=dim LEFT f, r=region inner d"
        ],
        "SELECT f.id FROM fact f, dim d, region r WHERE d.id = f.dim AND (r.id = d.region AND f.v > 0)": [
            "result: row of f=fact, d=dim inner f, r=region inner d"
        ],
        "SELECT f.id FROM fact f JOIN fact g ON f.dim = g.id": ["result: row of f=fact, g=fact inner f"],
        "SELECT f.id FROM fact f JOIN dim d USING (id)": ["result: row of f=fact, d=dim inner f"],
        f"{GROUPS} HAVING COUNT(*) > 1 ORDER BY n": ["result: group by fact.dim of fact=fact"],
        "SELECT COUNT(*) AS n FROM fact": ["result: group of fact=fact"],
        f"SELECT n FROM ({GROUPS}) g WHERE n > 1": ["result: group by fact.dim of fact=fact keep g.n > 1"],
        "SELECT DISTINCT dim, kind FROM fact": ["result: group by fact.dim, fact.kind of fact=fact"],
        f"SELECT DISTINCT n FROM ({GROUPS}) g": ["g: group by fact.dim of fact=fact", "result: group by g.n of g=g"],
        "SELECT id, SUM(v) OVER (PARTITION BY dim) AS s FROM fact": ["result: partition by fact.dim of fact=fact"],
        "SELECT SUM(v) OVER (PARTITION BY dim) AS s, RANK() OVER (PARTITION BY kind, dim ORDER BY v) AS r FROM fact": [
            "result: partition by fact.dim of fact=fact"
        ],
        "SELECT id FROM fact QUALIFY ROW_NUMBER() OVER (PARTITION BY dim ORDER BY v) <= 2": [
            "result: partition by fact.dim of fact=fact keep _w <= 2"
        ],
        "SELECT id FROM fact ORDER BY v, id LIMIT 3": [
            "result_rows: row of fact=fact",
            "result: partition of _rows=result_rows keep _fk_rank <= 3",
        ],
        "WITH a AS (SELECT id, dim FROM fact WHERE v > 1) SELECT a.id FROM a JOIN dim d ON d.id = a.dim": [
            "result: row of fact=fact, d=dim inner fact"  # a CTE that is named once is no block
        ],
        "WITH a AS (SELECT id, dim FROM fact WHERE v > 1) SELECT x.id FROM a x JOIN a y ON x.id = y.dim": [
            "a: row of fact=fact",
            "result: row of x=a, y=a inner x",
        ],
        "WITH x AS (SELECT id, v FROM fact), fact AS (SELECT id, w AS v FROM dim) "
        "SELECT x.id, fact.v FROM x JOIN fact ON x.id = fact.id": [
            "result: row of fact_2=fact, dim=dim inner fact_2"  # a CTE reads the input of the name of a later one
        ],
        "SELECT f.id, x.one FROM fact f LEFT JOIN (SELECT y.id, y.one FROM (SELECT id, 1 AS one FROM dim) y) x "
        "ON x.id = f.dim": [
            "x: row of dim=dim",  # without a partner `one` is null
            "result: row of f=fact, x=x LEFT f",
        ],
        "SELECT f.id, x.w FROM fact f LEFT JOIN (SELECT id, w FROM dim) x ON x.id = f.dim": [
            "result: row of f=fact, dim=dim LEFT f"
        ],
        "SELECT 7 AS a, kind, COUNT(*) AS n FROM fact GROUP BY a, 2": [
            "result: group by CAST(7 AS INT), fact.kind of fact=fact"  # a number would be a position
        ],
        f"WITH a AS ({GROUPS}), b AS (SELECT a.dim, d.w FROM a LEFT JOIN dim d ON d.id = a.dim) "
        "SELECT b.w, f.id FROM b JOIN fact f ON f.dim = b.dim": [
            "a: group by fact.dim of fact=fact",
            "result: row of a=a, d=dim LEFT a, f=fact inner a",
        ],
        "SELECT f.id FROM fact f LEFT JOIN (SELECT id FROM dim WHERE w > 1) d ON d.id = f.dim": [
            "d: row of dim=dim",  # its WHERE must not become one of the joined rows
            "result: row of f=fact, d=d LEFT f",
        ],
        f"SELECT f.id FROM fact f LEFT JOIN ({GROUPS}) dim ON dim.dim <=> f.dim": [
            "dim_1: group by fact.dim of fact=fact",  # an input has its name
            "result: row of f=fact, dim=dim_1 LEFT f",
        ],
    }.items(),
)
def test_a_query_is_taken_apart(query: str, blocks: list[str]) -> None:
    assert [shown(block) for block in parse_query(query, INPUTS).blocks] == blocks


def test_the_columns_are_called_as_they_are_written() -> None:
    written = parse_query("SELECT f.ID, d.W AS `a b`, f.v Value FROM fact f JOIN dim d ON d.id = f.dim", INPUTS)
    assert written.columns == ("ID", "a b", "Value")
    assert parse_query("SELECT * FROM one", INPUTS).columns == ("Id",)
    assert parse_query("SELECT * FROM region ORDER BY zone", INPUTS).columns == ("id", "zone")


def test_what_a_column_is_made_of_is_known_through_all_blocks() -> None:
    text = (
        f"WITH a AS ({GROUPS}) SELECT d.w + x.n AS s, y.dim FROM a x JOIN a y ON x.n = y.n JOIN dim d ON d.id = x.dim"
    )
    query = parse_query(text, INPUTS)
    assert query.inputs == {"fact": {"dim"}, "dim": {"id", "w"}}
    assert {name: query.inputs_of(name) for name in query.columns} == {"s": {("dim", "w")}, "dim": {("fact", "dim")}}
    assert [plain_read(query.block("result"), name) for name in query.columns] == [None, ("a", "dim")]


# ------------------------------------------------------------------------------------------------ the SQL of blocks
COLUMNS = {table.name: parse_columns(", ".join(f"{c} BIGINT" for c in table.columns)) for table in TABLES}


def by_blocks(db: sqlite3.Connection, query: Query) -> Counter[tuple[object, ...]]:
    """Returns the rows of the last block, after the table of each was made by its SQL."""
    made, rows = {table.name: table.name for table in TABLES}, list[tuple[object, ...]]()
    for block in query.blocks:
        rows = db.execute(block.of({one.name: made[one.relation] for one in block.aliases})).fetchall()
        made[block.name] = f"made_{block.name}"
        put(db, made[block.name], [f"`{name}`" for name in block.columns], rows)
    return Counter(rows)


@pytest.mark.parametrize("hundred", [0, *(pytest.param(more, marks=pytest.mark.slow) for more in range(1, 4))])
def test_the_blocks_give_what_the_query_says(hundred: int) -> None:
    rows, units = 0, Counter[str]()
    for seed in range(100 * hundred, 100 * hundred + 100):
        rng, db = random.Random(f"{seed}"), sqlite3.connect(":memory:")
        text = text_of(random_query(rng))
        for table in TABLES:
            some = [random_row(rng, table.name, key) for key in range(12) if rng.random() < 0.8]
            put(db, table.name, table.columns, some)
        query, expected = parse_query(text, COLUMNS), Counter(db.execute(text).fetchall())
        assert by_blocks(db, query) == expected, f"{seed}: {text}"
        rows += expected.total()
        units.update(block.unit for block in query.blocks)
    assert rows > 200
    assert min(units.values()) > 20
    assert len(units) == 3


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM fact ORDER BY v DESC, id LIMIT 3",
        "SELECT dim, SUM(v) AS s FROM fact GROUP BY dim ORDER BY SUM(v), dim LIMIT 2",
        "SELECT DISTINCT kind, v FROM fact",
        "SELECT DISTINCT n FROM (SELECT dim, COUNT(*) AS n FROM fact GROUP BY dim) AS g",
        "SELECT COUNT(*) AS n, SUM(v) AS s, MIN(v) AS m FROM fact WHERE v > 100",
        "SELECT f.id, d.w FROM fact f LEFT JOIN (SELECT id, w FROM dim WHERE w > 0) AS d ON d.id = f.dim",
        "SELECT dim, n FROM (SELECT dim, COUNT(*) AS n FROM fact GROUP BY dim) AS g WHERE n > 1",
        # a merged subquery keeps its parentheses
        "SELECT x.id FROM (SELECT id, dim, v = 1 OR v = 2 AS a FROM fact) AS x WHERE x.a AND x.dim = 1",
        "SELECT x.id FROM (SELECT id, v = 1 OR v = 2 AS a FROM fact) AS x WHERE NOT x.a",
        "SELECT x.id, -x.b AS c FROM (SELECT id, v = 1 OR v = 2 AS a, v - 1 AS b FROM fact) AS x WHERE x.a IN (TRUE)",
        "SELECT x.id FROM (SELECT id, v = 1 AND dim = 2 AS a FROM fact) AS x WHERE x.a IS NULL",
        "SELECT x.a, COUNT(*) AS n FROM (SELECT id, v = 1 OR v = 2 AS a FROM fact) AS x GROUP BY x.a",
        # what is computed on the side of LEFT that may be null
        "SELECT f.id, x.w FROM fact f LEFT JOIN (SELECT id, COALESCE(w, 0) AS w FROM dim) x ON x.id = f.dim",
        "SELECT f.id, x.one FROM fact f LEFT JOIN (SELECT id, 1 AS one FROM dim) x ON x.id = f.dim WHERE f.v > 0",
        (
            "SELECT f.id FROM fact f LEFT JOIN (SELECT id, COALESCE(w, 0) AS w FROM dim) x ON x.id = f.dim "
            "WHERE x.w IS NULL"
        ),
        "WITH x AS (SELECT id, COALESCE(w, 0) AS w FROM dim) SELECT f.id, x.w FROM fact f LEFT JOIN x ON x.id = f.dim",
        (
            "SELECT f.id, x.q FROM fact f LEFT JOIN "
            "(SELECT y.id, y.q FROM (SELECT id, COALESCE(w, 0) AS q FROM dim) y) x ON x.id = f.dim"
        ),
        (
            "SELECT f.id, x.k FROM fact f JOIN (SELECT d.id, y.k FROM dim d LEFT JOIN (SELECT id, 1 AS k FROM region) "
            "y ON y.id = d.region) x ON x.id = f.dim"
        ),
        (
            "SELECT f.id, x.k FROM fact f LEFT JOIN (SELECT id, w IS NOT NULL AS k FROM dim WHERE w > 0) x "
            "ON x.id = f.dim WHERE x.k IS NULL"
        ),
        # CTEs that have the names of others
        (
            "WITH a AS (SELECT id, v FROM fact), b AS (WITH a AS (SELECT id, w AS v FROM dim) SELECT id, v FROM a) "
            "SELECT a.id, a.v, b.v AS w FROM a JOIN b ON a.id = b.id"
        ),
        (
            "WITH a AS (SELECT id, v FROM fact), b AS (SELECT id, v + 1 AS v FROM a) "
            "SELECT b.id, b.v FROM b JOIN a ON a.id = b.id"
        ),
        # whole numbers are no positions
        "SELECT DISTINCT 7 AS a, kind FROM fact",
        "SELECT kind, COUNT(*) AS n FROM fact GROUP BY 1",
        # a column of FROM in ORDER BY that is one of the SELECT
        "SELECT DISTINCT f.kind FROM fact f ORDER BY f.kind LIMIT 2",
        # windows with names
        "SELECT id, SUM(v) OVER w AS a, COUNT(*) OVER w AS b FROM fact WINDOW w AS (PARTITION BY kind ORDER BY id)",
    ],
)
def test_so_do_those_of_other_forms(text: str) -> None:
    rng, db = random.Random(1), sqlite3.connect(":memory:")
    for table in TABLES:
        put(db, table.name, table.columns, [random_row(rng, table.name, key) for key in range(12)])
    expected = Counter(db.execute(text).fetchall())
    assert expected
    assert by_blocks(db, parse_query(text, COLUMNS)) == expected


# ------------------------------------------------------------------------------------------------ rows that are made
ONE_NAME = (
    "SELECT t.id, t.w AS x FROM dim t UNION ALL SELECT id, size(x) FROM fact LATERAL VIEW explode(array(tags)) t AS x"
)
"""A UNION of which one name is a table in a part, and the rows that are made in the other."""


@pytest.mark.parametrize(
    ("query", "told"),
    {
        "SELECT f.id, x FROM fact f JOIN dim d ON d.id = f.dim LATERAL VIEW explode(tags) t AS x WHERE x > 'a'": (
            ["result: row of f=fact, d=dim inner f"],
            ["t._fk_position"],
        ),
        "SELECT id, explode(tags) AS tag FROM fact": (["result: row of fact=fact"], ["made._fk_position"]),
        "SELECT id, posexplode(tags) AS (n, tag) FROM fact": (["result: row of fact=fact"], ["made.n"]),
        "SELECT tag, COUNT(*) AS n FROM fact LATERAL VIEW explode(tags) t AS tag GROUP BY tag": (
            ["result: group by t.tag of fact=fact"],  # nothing tells the rows of a group apart
            [],
        ),
        "SELECT x.tag, d.w FROM (SELECT dim, explode(tags) AS tag FROM fact) x JOIN dim d ON d.id = x.dim": (
            ["x: row of fact=fact", "result: row of x=x, d=dim inner x"],
            [],
        ),
        "SELECT x.id, tag FROM (SELECT id, tags FROM fact WHERE v > 1) x LATERAL VIEW explode(tags) t AS tag": (
            ["result: row of fact=fact"],
            ["t._fk_position"],
        ),
        "SELECT a.k, x FROM (SELECT dim AS k, MAX(tags) AS m FROM fact GROUP BY dim) a LATERAL VIEW explode(m) AS x": (
            ["a: group by fact.dim of fact=fact", "result: row of a=a"],
            ["_0._fk_position"],
        ),
        "SELECT f.id FROM fact f LATERAL VIEW explode(tags) t AS x WHERE f.v > 1 AND f.dim IN (SELECT id FROM dim) "
        "AND x IN (SELECT zone FROM region)": (
            [
                "rows_1: row of f=fact",
                "in_2: group by region.zone of region=region",
                "result: row of rows_1=rows_1, dim=dim inner rows_1, in_2=in_2 inner rows_1",
            ],
            [],
        ),
        "SELECT d.id FROM dim d WHERE d.id IN (SELECT explode(array(f.v, f.dim)) FROM fact f)": (
            [  # of a computed array the type is not known, so the values are compared by a join
                "rows_1: row of f=fact",
                "asked_1: group by d.id of d=dim",
                "in_1: group by asked_1.k0 of rows_1=rows_1, asked_1=asked_1 inner rows_1",
                "result: row of d=dim, in_1=in_1 inner d",
            ],
            [],
        ),
        "SELECT r.id FROM region r WHERE r.zone IN (SELECT explode(tags) FROM fact f)": (
            ["in_1: group by made._col_0 of f=fact", "result: row of r=region, in_1=in_1 inner r"],
            [],
        ),
        ONE_NAME: (
            ["result: union of t=dim, fact=fact"],
            [],
        ),
    }.items(),
)
def test_rows_that_are_made_of_a_row_belong_to_it(query: str, told: tuple[list[str], list[str]]) -> None:
    blocks, positions = told
    found = parse_query(query, INPUTS, {"dim": ["id"]}).blocks
    assert [shown(block) for block in found] == blocks
    assert [sql.replace("`", "") for sql in found[-1].positions] == positions


def test_a_generated_column_is_made_of_what_the_function_reads() -> None:
    text = "SELECT id, a, b FROM fact LATERAL VIEW explode(tags) AS a LATERAL VIEW OUTER explode(array(a, kind)) AS b"
    found = parse_query(text, INPUTS)
    assert found.inputs_of("a") == {("fact", "tags")}
    assert found.inputs_of("b") == {("fact", "tags"), ("fact", "kind")}
    assert found.inputs == {"fact": {"id", "tags", "kind"}}
    assert [found.is_plain(column) for column in found.columns] == [True, False, False]


def test_rows_that_are_made_are_called_as_they_are_written() -> None:
    assert parse_query("SELECT * FROM one LATERAL VIEW explode(array(id)) t AS Item", INPUTS).columns == ("Id", "Item")
    assert parse_query("SELECT posexplode(tags) AS (Pos, Tag) FROM fact", INPUTS).columns == ("Pos", "Tag")


def test_a_union_tells_generated_columns_from_those_of_a_table_of_the_same_name() -> None:
    found = parse_query(ONE_NAME, INPUTS)
    assert found.inputs == {"dim": {"id", "w"}, "fact": {"id", "tags"}}
    assert found.inputs_of("x") == {("dim", "w"), ("fact", "tags")}


# ------------------------------------------------------------------------------------------------ what is refused
REFUSED = {
    "SELECT id FROM fact\nUNION ALL SELECT id, w FROM dim": (2, "2 columns", "the first has 1"),
    "SELECT id FROM fact\nEXCEPT SELECT id FROM dim": (1, "EXCEPT", "EXISTS or NOT EXISTS"),
    "SELECT f.id FROM fact f\nWHERE EXISTS (SELECT 1 FROM dim d WHERE d.id < f.dim)": (2, "EXISTS", "an equality"),
    "SELECT f.id FROM fact f\nWHERE f.v > ALL (SELECT id FROM dim)": (2, "ALL over a subquery", "MIN or MAX"),
    "SELECT f.id FROM fact f\nWHERE (f.v, f.id) NOT IN (SELECT id, w FROM dim)": (2, "NOT IN", "NOT EXISTS"),
    "SELECT f.id FROM fact f\nWHERE 1 IN (SELECT id FROM dim)": (2, "IN needs a column", "looked up by it"),
    "SELECT f.id,\n(SELECT d.w FROM dim d WHERE d.region = f.dim) AS m FROM fact f": (2, "several rows", "MIN or MAX"),
    "SELECT f.id,\n(SELECT d.id, d.w FROM dim d WHERE d.id = f.dim) AS m FROM fact f": (2, "a value", "has one column"),
    "SELECT f.id FROM fact f\nFULL JOIN dim d ON d.id < f.dim": (2, "FULL JOIN", "an equality"),
    "SELECT f.id FROM fact f\nLEFT SEMI JOIN dim d USING (id)": (2, "LEFT SEMI JOIN", "write it as EXISTS"),
    "SELECT f.id FROM fact f\nJOIN dim d ON d.id < f.dim": (2, "without an equality", "write ON f.column = d.column"),
    "SELECT f.id FROM fact f\nCROSS JOIN dim d": (2, "without an equality", "write ON f.column = d.column"),
    "SELECT f.id FROM fact f,\ndim d": (2, "without an equality", "write ON f.column = d.column"),
    "SELECT f.id FROM fact f\nJOIN dim d ON d.id = f.dim OR d.w = f.v": (2, "without an equality", "write ON"),
    "SELECT id,\nrand() AS r FROM fact": (2, "rand()", "not deterministic"),
    "SELECT id FROM fact\nWHERE day = current_date": (2, "current_date()", "knows the time"),
    "SELECT dim,\nfirst(v) AS f FROM fact GROUP BY dim": (2, "first", "write min(struct(at, x)).x"),
    "SELECT dim, COUNT(*) AS n FROM fact\nGROUP BY ROLLUP (dim)": (2, "ROLLUP", "write a query for each grouping"),
    "SELECT dim, COUNT(*) AS n FROM fact\nGROUP BY dim WITH CUBE": (2, "CUBE", "write a query for each grouping"),
    "SELECT dim, COUNT(*) AS n FROM fact\nGROUP BY ALL": (1, "GROUP BY ALL", "name the groups"),
    "SELECT id FROM fact\nLIMIT 3": (2, "LIMIT without ORDER BY", "left to chance"),
    "SELECT id FROM fact\nORDER BY id LIMIT 3 OFFSET 2": (2, "LIMIT", "without OFFSET"),
    "SELECT id FROM fact ORDER BY id LIMIT ALL": (1, "LIMIT", "takes a number"),
    "SELECT id FROM fact\nORDER BY id LIMIT 2 BY kind": (2, "LIMIT with BY", "write QUALIFY"),
    "SELECT id FROM fact\nORDER BY id FETCH FIRST 3 ROWS ONLY": (2, "FETCH", "write LIMIT and the number"),
    "SELECT DISTINCT kind FROM fact\nORDER BY v LIMIT 1": (2, "ORDER BY beside DISTINCT", "write the column there"),
    "SELECT kind, -SUM(v) AS v FROM fact GROUP BY kind\nORDER BY SUM(v) LIMIT 1": (2, "an aggregate of v", "rename it"),
    "SELECT id, SUM(v)\nOVER nowhere AS s FROM fact": (1, "WINDOW defines no nowhere", "SUM(v)"),
    "SELECT id,\nSUM(v) OVER (w ORDER BY id) AS s FROM fact WINDOW w AS (PARTITION BY dim)": (
        2,
        "adds to a window",
        "write the whole",
    ),
    "SELECT id\nFROM fact f JOIN dim AS d (a, b, c) ON d.a = f.dim": (2, "a list of column names", "with AS"),
    "SELECT f.id FROM fact f\nJOIN (dim d JOIN region r ON r.id = d.region) ON d.id = f.dim": (
        2,
        "a join in parentheses",
        "one after the other",
    ),
    "WITH RECURSIVE a AS (SELECT id FROM fact) SELECT id FROM a": (1, "WITH RECURSIVE", "without it"),
    "SELECT fact.kind,\nx.id AS o FROM fact JOIN (SELECT f.id, d.id FROM fact f JOIN dim d ON d.id = f.dim) x "
    "ON x.id = fact.id": (2, "x has two columns 'id'", "give one another name"),
    "SELECT\n* EXCEPT (nothing) FROM dim": (2, "nothing is no column to be left out", "there are id, region, w"),
    "SELECT id,\nidentifier('v') AS v FROM fact": (2, "identifier()", "write the name itself"),
    "SELECT id,\njson_tuple(kind, 'a') AS a FROM fact": (2, "json_tuple()", "write get_json_object"),
    "SELECT id, a FROM fact\nLATERAL VIEW inline(tags) t AS a": (2, "inline()", "read the fields as s.field"),
    "SELECT id,\nstack(2, 1, id) AS a FROM fact": (2, "stack()", "explode(array(struct("),
    "SELECT id, a FROM fact\nLATERAL VIEW variant_explode(tags) t AS a": (2, "variant_explode()", "cast the variant"),
    "SELECT id,\nto_json(struct(*)) AS a FROM fact": (2, "a star among arguments", "name the columns"),
    "SELECT TRANSFORM(id) USING 'cat' AS x\nFROM fact": (1, "TRANSFORM calls a program", "without it"),
    "SELECT id FROM fact\nWHERE unix_timestamp() > v": (2, "unix_timestamp()", "knows the time"),
    "SELECT id FROM fact\nWHERE day > 'now'": (2, "'now' may become the day", "write the day, DATE'2024-01-31'"),
    "SELECT f.id,\nd.id FROM fact f JOIN dim d ON d.id = f.dim": (2, "called 'id'", "another name with AS"),
    "SELECT id, v,\nv + 1 FROM fact": (2, "v + 1", "column 3 needs a name: v + 1 AS name"),
    "SELECT dim,\nCOUNT(*) FROM fact GROUP BY dim": (2, "COUNT(*)", "column 2 needs a name: COUNT(*) AS name"),
    "SELECT * FROM (SELECT id,\nv + 1 FROM fact) AS f": (2, "column 2 needs a name", "with AS in the subquery"),
    "SELECT id\nAS _fk_id FROM fact": (2, "'_fk_id'", "write AS and another"),
    "SELECT id\nFROM nowhere": (2, "nowhere is no input", "inputs are fact, dim, region, one"),
    "SELECT id\nFROM sales.fact": (2, "sales.fact is no input", "inputs are fact"),
    "SELECT id,\nnothing FROM fact": (2, "nothing is no column", "fact has id, dim, kind"),
    "SELECT f.id,\nf.nothing FROM fact f": (2, "nothing is no column", "f has id, dim, kind"),
    "SELECT f.id,\nx.id AS o FROM fact f": (2, "no table is called x here", "there are f"),
    "SELECT f.v,\nid FROM fact f JOIN dim d ON d.id = f.dim": (2, "a column of f and of d", "write f.id"),
    "SELECT id,\nexplode(tags) FROM fact": (2, "column 2 needs a name", "EXPLODE(tags) AS name"),
    "SELECT id,\nposexplode(tags) FROM fact": (2, "column 2 needs a name", "AS (position, name)"),
    "SELECT id,\nupper(explode(tags)) AS a FROM fact": (2, "explode() stands in an expression", "by LATERAL VIEW"),
    "SELECT id FROM fact\nWHERE explode(tags) > 'a'": (2, "explode() stands in an expression", "by LATERAL VIEW"),
    "SELECT id,\nexplode(tags) AS a, a || 'x' AS b FROM fact": (
        2,
        "explode() stands in an expression",
        "in a subquery",
    ),
    "SELECT explode(tags) AS a,\nexplode(tags) AS b FROM fact": (
        2,
        "a second function that makes rows",
        "LATERAL VIEW",
    ),
    "SELECT dim,\nexplode(array(dim)) AS a, COUNT(*) AS n FROM fact GROUP BY dim": (
        2,
        "beside an aggregate",
        "or a subquery",
    ),
    "SELECT id,\nexplode(tags) AS a, RANK() OVER (ORDER BY id) AS r FROM fact": (
        2,
        "a window function",
        "or a subquery",
    ),
    "SELECT id FROM fact f\nLATERAL VIEW explode(tags) t": (2, "need names", "explode(...) t AS x"),
    "SELECT id FROM fact f\nLATERAL VIEW explode(tags) f AS x": (2, "there is another f", "another name"),
    "SELECT id, x FROM fact\nLATERAL VIEW parts(tags) t AS x": (2, "LATERAL VIEW takes explode", "write it with one"),
    "SELECT id, x FROM fact\nLATERAL VIEW explode(nothing) t AS x": (2, "nothing is no column", "fact has id, dim"),
    "SELECT id,\nx FROM fact LATERAL VIEW explode(tags) t AS tag": (2, "x is no column", "t has tag"),
    "SELECT f.id FROM fact f,\nLATERAL (SELECT f.id AS a) AS x": (2, "LATERAL is not possible", "or a join"),
    "SELECT f.id FROM fact f\nLATERAL VIEW explode(tags) t AS x JOIN dim d ON d.id = x": (
        2,
        "stands after all joins",
        "make the rows in a subquery, and join that",
    ),
    "SELECT f.id FROM fact f,\ndim d LATERAL VIEW explode(tags) t AS x WHERE d.id = x": (
        2,
        "d is joined by what LATERAL VIEW makes",
        "make the rows in a subquery, and join that",
    ),
    "SELECT id FROM fact\nTABLESAMPLE (10 PERCENT)": (2, "TABLESAMPLE", "write the query without it"),
    "SELECT id FROM fact\nVERSION AS OF 3": (2, "VERSION", "write the query without it"),
    "SELECT id FROM fact\nWHERE v > :least": (2, "a query has no parameters", "write the value"),
    "SELECT dim, COUNT(*) AS n,\nROW_NUMBER() OVER (ORDER BY dim) AS r FROM fact GROUP BY dim": (
        2,
        "a window function beside GROUP BY",
        "group in a subquery, and rank its rows",
    ),
}
"""Per query that is refused: the line that is named, the construct, and what to write."""


@pytest.mark.parametrize("query", REFUSED)
def test_what_no_block_has_is_refused_with_its_line_and_what_to_write(query: str) -> None:
    line, construct, write = REFUSED[query]
    with pytest.raises(SqlTextError) as refused:
        parse_query(query, INPUTS)
    message = str(refused.value)
    assert message.startswith(f"line {line}: ")
    assert construct in message
    assert write in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("query", "message"),
    {
        "SELECT id FROM": "not SQL: ",
        "SELECT COUNT(*) AS n FROM fact\nGROUP BY window(day, '1 year')": "line 2: window.*'1 year' is no span",
        "SELECT window(d, '1 day') AS a, window(d, '2 days') AS b FROM fact": "line 1: a second window.. in one SELECT",
        "SELECT window(d, '1 day', '0 days') AS a FROM fact": "line 1: window..: a window is as long as",
        "SELECT window(d, '2 days', '3 days') AS a FROM fact": "line 1: window..: a window is as long as",
        "SELECT window(d, kind) AS a FROM fact": "line 1: window.. takes a time, and then spans of time as text",
        "SELECT window(d, '1 day').day AS a FROM fact": "line 1: a window of time has the fields start and end",
        "SELECT session_window(d, '1 day') AS a FROM fact": "line 1: session_window.. is not possible",
        "DELETE FROM fact": "not one SELECT: it is DELETE",
        "SELECT id FROM fact; SELECT id FROM dim": "not one SELECT: there are 2 statements",
        "SELECT '${x}' AS x FROM fact": "would be replaced by a variable",
        "SELECT id FROM fact WHERE day > 'today'": "write the day, DATE'2024-01-31'",
        "SELECT 1 AS one": "there is no FROM",
    }.items(),
)
def test_what_is_no_query_is_refused(query: str, message: str) -> None:
    with pytest.raises(SqlTextError, match=message.replace("$", r"\$").replace("{", r"\{")):
        parse_query(query, INPUTS)


# ------------------------------------------------------------------------------------------------ pipeline files
TABLE = """
name: orders
kind: table
input: {path: landing/orders, format: rows, schema: "id BIGINT, customer BIGINT, total BIGINT", key: id, op_column: op}
"""
FILE = """name: totals
kind: query
inputs:
  orders: {pipeline: orders.yaml}
  customer: {table: lake/customer, key: id}
query: |
  SELECT c.name, SUM(o.total) AS total
  FROM orders o JOIN customer c ON c.id = o.customer
  GROUP BY c.name
key: name
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders.yaml").write_text(TABLE)
    write_deltalake(str(tmp_path / "lake/customer"), pa.table({"id": pa.array([1], pa.int64()), "name": ["ada"]}))
    return tmp_path


def test_a_pipeline_file_has_the_inputs_and_the_columns_of_its_query(folder: Path) -> None:
    file = folder / "totals.yaml"
    file.write_text(FILE)
    spec = load_spec(file)
    assert [*spec.definition.stage_names] == ["result"]
    assert {side: [c.name for c in spec.side(side).columns] for side in spec.sides} == {
        "orders": ["id", "customer", "total"],
        "customer": ["id", "name"],
    }
    assert [(one.name, spec.reads(one)[0][0]) for one in spec.outputs] == [("name", "customer"), ("total", "orders")]


def test_a_cast_to_a_time_without_a_zone_is_one_and_a_column_may_be_declared_so(folder: Path) -> None:
    kind = "TIMESTAMP WITHOUT TIME ZONE"
    (folder / "orders.yaml").write_text(TABLE.replace("total BIGINT", f"total {kind}"))
    file = folder / "totals.yaml"
    file.write_text(FILE.replace("SUM(o.total)", f"MAX(COALESCE(o.total, CAST(c.name AS {kind})))"))
    spec = load_spec(file)
    assert isinstance(spec, QuerySpec)
    assert sql_of(spec.blocks.block("result"), "total") == (
        "MAX(COALESCE(`o`.`total`, CAST(`c`.`name` AS TIMESTAMP_NTZ)))"
    )
    assert [one.type for one in spec.inputs["orders"].columns] == ["BIGINT", "BIGINT", "TIMESTAMP_NTZ"]


STRUCTS = """
  SELECT x.name, x.most.name AS whose, x.most.total AS most
  FROM (SELECT c.name, MAX(struct(o.total, o.customer AS name)) AS most, COUNT(*) AS total
        FROM orders o JOIN customer c ON c.id = o.customer GROUP BY c.name) x WHERE x.total > 1
"""


def test_fields_of_structs_are_not_taken_for_columns_of_their_name(folder: Path) -> None:
    (folder / "orders.yaml").write_text(TABLE.replace("key: id", "key: id, sensitive: [total]"))
    file = folder / "totals.yaml"
    file.write_text(FILE[: FILE.index("query:")] + f"query: |{STRUCTS}key: name\n")
    spec = load_spec(file)
    assert isinstance(spec, QuerySpec)
    block = spec.blocks.block("result")
    assert [plain_read(block, column) for column in block.columns] == [("customer", "name"), None, None]
    both = {("orders", "total"), ("orders", "customer")}
    assert [reads_of(block, column) for column in block.columns] == [{("customer", "name")}, both, both]
    table = declared_layout(spec)["result"]
    assert {*table.sensitive} == {"whose", "most"}
    assert dict(table.columns)["whose"] == "expression"
    assert {one.table for one in columns_in(block, "`o`.`place`.`c`.`total` > 1")} == {"o"}


def test_what_an_aggregate_selects_is_found_in_any_case_and_fields_have_no_type_of_their_column(tmp_path: Path) -> None:
    own = (
        'input: {path: in, format: rows, schema: "id INT, at STRUCT<day: DATE, n: INT>, n INT", key: id, op_column: op}'
    )
    more = "group_by: [at.day]\naggregates: ['max(struct(n, id)) AS Best']\nselect: [day, BEST.n AS most]"
    (tmp_path / "most.yaml").write_text(f"name: most\nkind: aggregate\n{own}\n{more}\n")
    spec = load_spec(tmp_path / "most.yaml")
    assert isinstance(spec, AggregateSpec)
    layout = aggregate_layout(spec)
    assert dict(layout["table"].columns)["_fk_by_day"] == "expression"
    block = spec.block_of("aggregated", lambda name: layout[name])
    assert reads_of(block, "most") == {("table", "n"), ("table", "id")}


def test_a_parameter_of_a_function_is_no_column_whatever_its_case(folder: Path) -> None:
    file = folder / "totals.yaml"
    file.write_text(FILE.replace("SUM(o.total)", "MAX(transform(array(o.total), ID -> id + 1)[0])"))
    spec = load_spec(file)
    assert isinstance(spec, QuerySpec)
    assert sql_of(spec.blocks.block("result"), "total") == "MAX(TRANSFORM(ARRAY(`o`.`total`), `id` -> `id` + 1)[0])"
    own = 'input: {path: in, format: rows, schema: "n BIGINT, xs ARRAY<INT>, x INT", key: n, op_column: op}'
    more = "group_by: [n]\naggregates: ['max(transform(xs, X -> x + 1)) AS most']"
    file.write_text(f"name: grouped\nkind: aggregate\n{own}\n{more}\n")
    assert [column.name for _, column in load_spec(file).reads(load_spec(file).outputs[1])] == ["xs"]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("o.total)", "CAST(c.name AS TIME))", 6, "line 1: the type TIME is not possible"),
        ("key: name", "key: nobody", 10, "key column 'nobody' is no column of the result; it has name, total"),
        ("o.total)", "o.nothing)", 6, "line 1: nothing is no column; o has id, customer, total"),
        ("FROM orders o JOIN", "FROM orders o NATURAL JOIN", 6, "line 2: NATURAL JOIN"),
        ("FROM orders o JOIN customer c ON c.id = o.customer", "FROM customer c", 6, "o.total"),
        ("lake/customer, key: id", "lake/customer", 5, "key"),
        ("lake/customer, key: id", "lake/nowhere, key: id", 5, "there is no Delta table lake/nowhere"),
        ("lake/customer, key: id", "lake/customer, key: nobody", 5, "nobody"),
        ("key: id}", "key: id, format: csv}", 5, "'format' is given by the table"),
        ("{pipeline: orders.yaml}", "{pipeline: orders.yaml, key: id}", 4, "'key' is given by the result"),
        ("  orders:", "  Orders:", 4, "must start with a letter a-z"),
        ("name: totals", "name: totals\nrefresh: sometimes", 2, "refresh"),
    ],
)
def test_a_pipeline_file_is_refused_with_its_line(folder: Path, old: str, new: str, line: int, message: str) -> None:
    file = folder / "totals.yaml"
    assert FILE.count(old) == 1
    file.write_text(FILE.replace(old, new))
    with pytest.raises(PipelineFileError) as refused:
        load_spec(file)
    assert message in str(refused.value)
    assert f"{file}:{line}" in f"{refused.value.where} {refused.value}"


def test_an_input_that_the_query_does_not_read_is_left_out(folder: Path) -> None:
    file = folder / "totals.yaml"
    joined = "SELECT c.name, SUM(o.total) AS total\n  FROM orders o JOIN customer c ON c.id = o.customer"
    assert joined in FILE
    file.write_text(FILE.replace(joined, "SELECT c.name FROM customer c"))
    spec = load_spec(file)
    assert isinstance(spec, QuerySpec)
    assert ([*spec.inputs], spec.unread) == (["customer"], ("orders",))
    assert any("does not read the input orders" in text for text in advice(spec))
