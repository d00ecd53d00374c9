"""The blocks of a query compute what Spark computes of its text: what SQLite cannot tell, over temporary views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.blocks.select.parsing import parse_query
from fk_pipeline.spec.sql import parse_columns

FACT = "id BIGINT, dim BIGINT, kind BIGINT, v BIGINT, s STRING, n DECIMAL(10,2), dt DATE"
FACT += ", st STRUCT<Aa: INT>, arr ARRAY<INT>"
ROWS = {
    "fact": (
        FACT,
        "(1, 1, 1, 5, 'a', 1.50, '2024-01-31', struct(1), array(1, 2))",
        "(2, 2, 1, 6, 'it''s', 2.25, '2024-02-29', struct(2), array(4))",
        "(3, 2, 2, NULL, 'b1,c2', NULL, NULL, NULL, NULL)",
        "(4, 9, 1, 2, '01', 3.33, '2023-12-31', struct(NULL), array())",
        "(5, NULL, 2, 2, NULL, 0.00, '2024-05-05', struct(1), array(7, 8))",
        "(6, 3, 3, -3, 'a%b', -7.77, '2024-07-01', struct(9), array(9))",
    ),
    "dim": ("id BIGINT, region BIGINT, w BIGINT", "(1, 1, 10)", "(2, NULL, 20)", "(3, 2, NULL)", "(7, 2, 70)"),
    "region": ("id INT, zone BIGINT", "(1, 100)", "(2, 200)", "(0, 900)"),
    "visit": (
        "id BIGINT, dim BIGINT, at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, s STRING",
        "(1, 1, '2024-03-31 00:59:59.999999', '2024-03-31 02:30:00', '2024-03-31', '2024-03-31 10:20:30')",
        "(2, 1, '2024-03-31 01:00:00', '2024-03-31 03:00:00', '2024-03-30', '1969-12-31')",
        "(3, 2, '1969-12-31 23:47:00.5', '1969-12-31 23:59:59', '1969-12-31', NULL)",
        "(4, 2, NULL, NULL, NULL, '2024-03-31 10:29:59')",
        "(5, 3, '2024-03-31 01:29:00', '0001-01-01 00:00:00', '9999-12-30', '2024-03-31 10:30')",
    ),
}
BLOCK = "block_of_"
TEXTS = [
    # a merged subquery keeps its parentheses
    (
        "SELECT x.id, NOT x.m AS m, x.a[0] AS a, x.b BETWEEN 1 AND 9 AS b, -x.b AS c, x.b::STRING AS t, "
        "x.b || 'z' AS z "
        "FROM (SELECT id, s RLIKE 'a' AS m, arr || arr AS a, v - 1 AS b FROM fact WHERE size(arr) > 0) x"
    ),
    # names of outputs in ORDER BY
    "SELECT id, -v AS v FROM fact ORDER BY v + 0, id LIMIT 2",
    "SELECT id, -v AS v FROM fact ORDER BY 10 * kind + v, id LIMIT 2",
    "SELECT id, -v AS v FROM fact f ORDER BY f.v + 0, id LIMIT 2",
    "SELECT DISTINCT kind % 2 AS kind FROM fact ORDER BY kind + 1 LIMIT 1",
    "SELECT kind, SUM(v) AS v FROM fact GROUP BY kind ORDER BY -v LIMIT 1",
    "SELECT kind, SUM(v) AS s FROM fact GROUP BY kind ORDER BY s - COUNT(*), kind LIMIT 1",
    "SELECT id, 7 AS a FROM fact ORDER BY 2, 1 LIMIT 2",
    # functions are those that are written
    (
        "SELECT id, to_char(n, '999.99') AS a, log10(id) AS b, date_sub(dt, 3) AS c, unix_date(dt) AS e, "
        "nvl(v, 2) AS g, shiftleft(v, 2) AS j, v << 2 AS k, mod(v, 2) AS l, array_size(arr) AS m, char_length(s) AS n, "
        "space(2) AS p, levenshtein(s, 'abc', 2) AS q, parse_json('{\"a\": 1}')::STRING AS r, datediff(DAY, "
        "dt, dt) AS o, "
        "timestampadd(DAY, 1, dt) AS t, substr(s, 2) AS u, position('a' IN s) AS w, trim(LEADING 'a' FROM s) AS x, "
        "exists(arr, i -> i > 1) AS y, decode(v, 5, 'five', 'other') AS z FROM fact"
    ),
    (
        "SELECT kind, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS a, any(v > 1) AS c, some(v > 5) AS e, "
        "mean(v) AS f, percentile_disc(0.5) WITHIN GROUP (ORDER BY v DESC) AS b, std(v) AS g, try_sum(v) AS h "
        "FROM fact GROUP BY kind"
    ),
    "SELECT x.s, r.zone FROM (SELECT kind, try_sum(v) AS s FROM fact GROUP BY kind) x JOIN region r ON r.id = x.kind",
    (
        "SELECT id, CAST(s AS TIMESTAMP WITHOUT TIME ZONE) AS a, try_cast(s AS timestamp  without time zone) AS b, "
        "CAST(at AS TIMESTAMP WITH LOCAL TIME ZONE) AS c, CAST(array(s) AS ARRAY<TIMESTAMP WITHOUT TIME ZONE>) AS e "
        "FROM visit WHERE s::timestamp without time zone > '2000-01-01'"
    ),
    "SELECT id FROM fact WHERE s LIKE ANY ('a', 'it%') OR s LIKE ALL ('b1%', '%c2')",
    r"SELECT '\%\_x\d' AS a, 'a' 'b' AS c, r'\d' AS e, 'q\'' AS q, id FROM dim",
    # fields are called as they are written
    "SELECT to_json(STRUCT(V AS Big, V)) AS j, st.aA AS f, to_json(CAST(struct(v) AS STRUCT<Aa: INT>)) AS c FROM fact",
    (
        "SELECT to_json(struct(x.a)) AS j, to_json(struct(x.q, x.a AS B)) AS k "
        "FROM (SELECT v + 1 AS a, v AS q FROM fact) x"
    ),
    # parameters of functions have any case, and hide columns
    (
        "SELECT id, transform(arr, V -> v * 10 + kind) AS a, "
        "aggregate(arr, 0, (Acc, ID) -> acc + Id, acc -> ACC * 2) AS s, "
        "filter(arr, x -> exists(arr, Y -> y > X)) AS f, transform(array(st), ST -> st.aA + fact.st.AA) AS t, "
        "transform(arr, ID -> id + fact.id) AS i, transform(arr, e -> struct(E)) AS e FROM fact"
    ),
    # a CTE with the name of an input
    (
        "WITH x AS (SELECT id, v FROM fact), fact AS (SELECT id, w AS v FROM dim) "
        "SELECT x.id, x.v, fact.v AS w FROM x JOIN fact ON x.id = fact.id"
    ),
    # windows with names
    (
        "SELECT id, SUM(v) OVER w AS a, COUNT(*) OVER (u) AS b, FIRST_VALUE(v) IGNORE NULLS OVER w AS c FROM fact "
        "WINDOW w AS (PARTITION BY kind ORDER BY id), u AS w"
    ),
    # conditions with the row around that are no equalities
    (
        "SELECT f.id FROM fact f WHERE EXISTS (SELECT 1 FROM dim d WHERE d.id = f.dim AND d.w <> f.v AND d.region "
        "> f.kind)"
    ),
    "SELECT f.id FROM fact f WHERE NOT EXISTS (SELECT 1 FROM fact g WHERE g.kind = f.kind AND g.s <> f.s)",
    "SELECT f.id FROM fact f WHERE NOT EXISTS (SELECT 1 FROM fact g WHERE g.kind = f.kind AND f.n < g.n)",
    (
        "SELECT f.id, f.s FROM fact f WHERE f.v IS NULL OR NOT EXISTS "
        "(SELECT 1 FROM fact g WHERE g.kind = f.kind AND g.dt > f.dt AND g.id <> f.id)"
    ),
    "SELECT f.id, (SELECT SUM(g.n) FROM fact g WHERE g.kind = f.kind AND g.dt <= f.dt) AS so_far FROM fact f",
    "SELECT f.id, (SELECT COUNT(*) FROM fact g WHERE g.kind <=> f.dim AND g.v < f.v) AS n FROM fact f",
    # values of no rows, and of one
    (
        "SELECT f.id, (SELECT COUNT(*) + COALESCE(SUM(d.w), 0) FROM dim d WHERE d.id = f.dim AND d.w > 10) AS a, "
        "(SELECT array_sort(collect_set(d.w)) FROM dim d WHERE d.id = f.v) AS b, (SELECT d.w FROM dim d "
        "WHERE d.id = 3) AS c FROM fact f"
    ),
    "SELECT f.kind, SUM(f.n) AS n FROM fact f GROUP BY f.kind HAVING SUM(f.n) > (SELECT AVG(n) FROM fact)",
    (
        "SELECT f.id, f.v IN (SELECT w FROM dim) AS a, NOT EXISTS (SELECT 1 FROM dim d WHERE d.id = f.dim) AS b "
        "FROM fact f"
    ),
    (
        "SELECT f.id FROM fact f WHERE f.v NOT IN (SELECT w FROM dim WHERE w IS NOT NULL) AND f.n > (SELECT "
        "MIN(n) FROM fact)"
    ),
    "SELECT f.id, f.v NOT IN (SELECT w FROM dim) AS a, NOT (f.id = 2 OR f.v IN (SELECT w FROM dim)) AS b FROM fact f",
    (
        "SELECT f.id FROM fact f WHERE (f.v IN (SELECT w FROM dim)) IS NULL OR NOT (f.v IN (SELECT w FROM "
        "dim) AND f.id > 1)"
    ),
    "SELECT f.id FROM fact f WHERE (f.v IN (SELECT w FROM dim)) = FALSE OR (f.v IN (SELECT w FROM dim)) <> TRUE",
    (
        "SELECT f.id, f.v NOT IN (SELECT MAX(w) FROM dim) AS a, f.v IN (SELECT MAX(w) FROM dim WHERE id > 99) AS "
        "b FROM fact f"
    ),
    "SELECT f.id, (SELECT (COUNT(*) - 30) * 86400000 FROM dim d WHERE d.id = f.v) AS c FROM fact f",
    # both sides of an equality have two types
    "SELECT r.id FROM region r WHERE EXISTS (SELECT 1 FROM fact f WHERE CAST(f.kind AS STRING) = r.id)",
    (
        "SELECT d.id, (SELECT COUNT(*) FROM fact f WHERE CAST(f.kind AS STRING) || '.0' = CAST(d.id AS DOUBLE)) "
        "AS c FROM dim d"
    ),
    "SELECT d.id FROM dim d WHERE d.id NOT IN (SELECT CAST(kind AS STRING) FROM fact)",
    "SELECT d.id FROM dim d WHERE EXISTS (SELECT 1 FROM fact f WHERE f.kind = d.id AND CAST(f.id AS STRING) < d.w)",
    # types of a union are those that hold both
    "SELECT id, v AS a, n AS b FROM fact UNION ALL SELECT id, zone, id FROM region",
    "SELECT id, NULL AS x FROM region UNION SELECT dim, s FROM fact UNION ALL SELECT id, 'w' FROM dim",
    "SELECT u.a, COUNT(*) AS n FROM (SELECT id AS a FROM region UNION ALL SELECT n FROM fact) u GROUP BY u.a",
    # outer joins
    "SELECT f.id, d.w, f.s, r.zone FROM fact f FULL JOIN dim d ON d.id = f.dim RIGHT JOIN region r ON r.id = d.region",
    "SELECT f.s, d.id AS d FROM dim d FULL JOIN fact f ON f.dim = d.id AND f.kind = 1 WHERE d.w > 5 OR f.n > 1",
    # whole numbers are no positions
    "SELECT DISTINCT 7 AS a, -2 AS b, kind FROM fact",
    "SELECT DISTINCT 1 AS one FROM fact WHERE id > 100",
    "SELECT 7 AS a, kind + 1 AS k, COUNT(*) AS n FROM fact GROUP BY a, 2",
    "SELECT x.kind, COUNT(*) AS n FROM (SELECT 7 AS one, kind FROM fact) x GROUP BY x.one, x.kind",
    # QUALIFY reads columns of FROM, and comes before DISTINCT, ORDER BY and LIMIT
    "SELECT id, -v AS v FROM fact QUALIFY ROW_NUMBER() OVER (PARTITION BY kind ORDER BY v) = 1 AND v > 1",
    "SELECT DISTINCT kind FROM fact QUALIFY ROW_NUMBER() OVER (PARTITION BY kind ORDER BY id) < 3",
    "SELECT id FROM fact QUALIFY ROW_NUMBER() OVER (PARTITION BY kind ORDER BY id) < 3 ORDER BY v + id, id LIMIT 2",
    (
        "SELECT x.id, x.r FROM (SELECT id, RANK() OVER (ORDER BY id) AS r FROM fact) x "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY x.r ORDER BY x.id) = 1"
    ),
    # USING has the column of the first table
    "SELECT * FROM region r LEFT JOIN dim d USING (id)",
    # rows that functions make of one
    "SELECT id, explode(arr) AS arr FROM fact WHERE size(arr) > 0",
    "SELECT id, posexplode_outer(arr) AS (P, item) FROM fact ORDER BY item DESC, id LIMIT 4",
    "SELECT * FROM region LATERAL VIEW explode(map('a', id, 'b', zone)) AS K, Val",
    "SELECT DISTINCT explode(arr || array(7)) AS x FROM fact",
    (
        "SELECT f.id, d.w, x, y FROM fact f LEFT JOIN dim d ON d.id = f.dim LATERAL VIEW OUTER explode(f.arr) t AS x "
        "LATERAL VIEW posexplode(array(x, d.w)) u AS p, y WHERE y > 1 OR p = 1"
    ),
    "SELECT x, COUNT(*) AS n, MAX(id) AS m FROM fact LATERAL VIEW explode_outer(arr) t AS x GROUP BY x",
    "SELECT id, x, RANK() OVER (PARTITION BY x % 2 ORDER BY id, x) AS r FROM fact LATERAL VIEW explode(arr) t AS x",
    "SELECT id, q.B AS b FROM fact LATERAL VIEW explode(transform(arr, i -> struct(i AS A, i + 1 AS B))) t AS q",
    "SELECT x.item, d.w FROM (SELECT kind, explode(arr) AS item FROM fact) x LEFT JOIN dim d ON d.id = x.item",
    "SELECT f.id, x FROM fact f LATERAL VIEW explode(arr) t AS x WHERE v > 2 AND x IN (SELECT id FROM dim)",
    "SELECT id, x, (SELECT MAX(w) FROM dim WHERE dim.id = x) AS m FROM fact LATERAL VIEW explode(arr) t AS x",
    "SELECT id FROM dim d WHERE NOT EXISTS (SELECT 1 FROM fact f LATERAL VIEW explode(f.arr) t AS x WHERE x = d.id)",
    (
        "SELECT id, x FROM fact LATERAL VIEW explode(arr) t AS x UNION ALL "
        "SELECT t.id, x FROM region t LATERAL VIEW explode(array(CAST(t.zone AS INT))) u AS x"
    ),
    "SELECT id FROM dim WHERE id IN (SELECT explode(array(v, kind)) FROM fact)",
    "SELECT id FROM region r WHERE id NOT IN (SELECT x FROM fact LATERAL VIEW explode(map(kind, id)) AS k, x)",
    (
        "SELECT id, w FROM dim d WHERE NOT EXISTS "
        "(SELECT 1 FROM fact f LATERAL VIEW explode(map('3', id)) t AS k, x WHERE t.k = d.id AND x < d.w)"
    ),
    "SELECT f.id, x FROM fact f FULL JOIN dim d ON d.id = f.dim LATERAL VIEW OUTER explode(f.arr) t AS x",
    "SELECT x FROM (SELECT array_sort(collect_set(v)) AS a FROM fact GROUP BY kind) y LATERAL VIEW explode(a) AS x",
    "SELECT x.id, y FROM (SELECT id, arr FROM fact WHERE v > 2) x LATERAL VIEW explode(x.arr) t AS y WHERE y < 5",
    # windows of time
    "SELECT window.start, COUNT(*) AS n, MAX(id) AS m FROM visit GROUP BY window(at, '1 hour')",
    "SELECT window, COUNT(*) AS n FROM visit GROUP BY window(at, '1 week', '1 week', '36 hours') HAVING COUNT(*) > 0",
    (
        "SELECT window(wall, '1 day') AS w, d.w AS of, COUNT(*) AS n FROM visit v LEFT JOIN dim d ON d.id = v.dim "
        "GROUP BY window(wall, '1 day'), d.w"
    ),
    (
        "SELECT dim, window.start AS a, window.end AS z, COUNT(*) AS n FROM visit WHERE id <> 9 "
        "GROUP BY dim, window(at, '1 hour', '20 minutes') ORDER BY z, a, n, dim LIMIT 7"
    ),
    "SELECT d.w, v.id, window(v.at, '1 hour', '25 minutes').start AS b FROM visit v JOIN dim d ON d.id = v.dim",
    "SELECT id, window(day, '1 day', '6 hours', '1 hour') AS w, window.end AS z FROM visit",
    "SELECT id, window(s, '10 minutes') AS w FROM visit WHERE window(s, '10 minutes').start > '2000-01-01'",
    (
        "SELECT q.window.start AS s, SUM(n) AS n FROM (SELECT window(at, '30 minutes'), COUNT(*) AS n FROM visit "
        "GROUP BY window(at, '30 minutes')) q GROUP BY q.window.start"
    ),
    (
        "SELECT window(s.b, '1 day').end AS e, COUNT(*) AS n "
        "FROM (SELECT window(at, '1 hour').start AS b FROM visit) s GROUP BY window(s.b, '1 day').end"
    ),
    "SELECT id, RANK() OVER w AS r FROM visit WINDOW w AS (PARTITION BY dim ORDER BY id)",
]


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[None]:
    """Makes the tables, as temporary views; drops all such views in the end."""
    for name, (ddl, *rows) in ROWS.items():
        columns = parse_columns(ddl)
        cast = ", ".join(f"CAST({one.name} AS {one.type}) AS {one.name}" for one in columns)
        called = ", ".join(one.name for one in columns)
        spark.sql(f"SELECT {cast} FROM VALUES {', '.join(rows)} AS t({called})").createOrReplaceTempView(name)
    yield
    for row in spark.sql("SHOW VIEWS").collect():
        if row["viewName"] in ROWS or row["viewName"].startswith(BLOCK):
            spark.catalog.dropTempView(row["viewName"])


def by_blocks(spark: SparkSession, text: str) -> tuple[DataFrame, tuple[str, ...]]:
    """Returns the rows of the last block of a query, and the names of its columns."""
    query = parse_query(text, {name: parse_columns(ddl) for name, (ddl, *_) in ROWS.items()})
    made = {name: name for name in ROWS}
    for block in query.blocks:
        made[block.name] = f"{BLOCK}{block.name}"
        frame = spark.sql(block.of({one.name: made[one.relation] for one in block.aliases}))
        frame.createOrReplaceTempView(made[block.name])
    return frame, query.columns


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_the_blocks_compute_what_spark_computes(spark: SparkSession, every: int) -> None:
    differ = {}
    for text in TEXTS[::every]:
        expected, (found, names) = spark.sql(text), by_blocks(spark, text)
        types = [[field.dataType for field in frame.schema.fields] for frame in (found, expected)]
        rows = [Counter(map(repr, frame.collect())) for frame in (found.toDF(*names), expected)]
        if rows[0] != rows[1] or types[0] != types[1] or [*names] != expected.columns:
            differ[text] = (rows, types, names)
    assert differ == {}
