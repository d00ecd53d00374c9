"""What `plan` tells of a query: how each block is kept up to date, and why; what is not as it may seem. No Spark."""
# ruff: noqa: E501 - a query and what is told of it are one line

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app

TABLES = {
    "line": "order_id BIGINT, number INT, part BIGINT, price DECIMAL(15,2), weight DOUBLE",
    "orders": "order_id BIGINT, customer BIGINT, day DATE",
}
KEYS = {"line": "[order_id, number]", "orders": "order_id"}
JOINED = "FROM line l JOIN orders o ON o.order_id = l.order_id"
RANKED = "SELECT l.part, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) AS r " + JOINED


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, schema in TABLES.items():
        (tmp_path / "landing" / name).mkdir(parents=True)
        (tmp_path / f"{name}.yaml").write_text(
            f'name: {name}\nkind: table\ninput: {{path: landing/{name}, format: rows, schema: "{schema}", '
            f"key: {KEYS[name]}, op_column: op}}\n"
        )
    return tmp_path


def planned(folder: Path, query: str, more: str = "", *args: str) -> str:
    inputs = "".join(f"  {one}: {{pipeline: {one}.yaml}}\n" for one in TABLES if f" {one}" in query)
    file = folder / "q.yaml"
    file.write_text(f"name: q\nkind: query\ninputs:\n{inputs}query: |\n  {query}\n{more}")
    ended = CliRunner().invoke(app, ["plan", str(file), *args])
    assert ended.exit_code == 0, ended.output + repr(ended.exception)
    return ended.stdout


@pytest.mark.parametrize(
    ("query", "how"),
    {
        f"SELECT l.part, o.day {JOINED}": "by row: of l the rows that a change is joined to are joined again",
        "SELECT part FROM line": "by row: a changed row of line is computed again, and no other",
        "SELECT part, SUM(price) AS s FROM line GROUP BY part": "by arithmetic, in groups of line.part: what changed rows",
        "SELECT SUM(price * 2) AS s FROM line": "by arithmetic, in one group of all rows: what changed rows",
        "SELECT SUM(price / 2) AS s FROM line": "need no other row of the group     line: the anchor",
        "SELECT SUM(BROUND(price)) AS s FROM line": "; by group if a sum turns out to be of DOUBLE or FLOAT",
        "SELECT AVG(price * 2) AS s FROM line": "; by group if a sum turns out to be of DOUBLE or FLOAT, or an average of",
        "SELECT part, SUM(CAST(part AS DOUBLE)) AS s FROM line GROUP BY part": "because of a sum of DOUBLE or FLOAT",
        "SELECT part, SUM(part / 2) AS s FROM line GROUP BY part": "because of a sum of DOUBLE or FLOAT",
        "SELECT part, SUM(CAST(weight AS DECIMAL(9,2))) AS s FROM line GROUP BY part": "by arithmetic, in groups of",
        "SELECT part, AVG(CAST(price AS DECIMAL(30,2))) AS s FROM line GROUP BY part": "or an average of too many digits",
        "SELECT SUM(weight) AS s FROM line": "whole: all rows are one group, which is computed from all of them with every "
        "change, because of a sum of DOUBLE or FLOAT",
        "SELECT part, MAX(price) AS m FROM line GROUP BY part": "from all its rows, because of MAX(line.price)",
        "SELECT part FROM line GROUP BY part HAVING COUNT(*) > 1": "from all its rows, because of HAVING",
        "SELECT RANK() OVER (PARTITION BY part ORDER BY price) AS r FROM line": "by partition of line.part: where a row",
        "SELECT RANK() OVER (ORDER BY price) AS r FROM line": "whole: there is no PARTITION BY that all window functions",
        "SELECT order_id, explode(array(customer)) AS c FROM orders": "made: rows that explode(ARRAY(orders.customer)) "
        "makes of each joined row",
        "SELECT c, COUNT(*) AS n FROM orders LATERAL VIEW explode(array(customer)) t AS c GROUP BY c": "by arithmetic, in "
        "groups of t.c",
        "SELECT order_id FROM orders ORDER BY order_id LIMIT 3": "whole: LIMIT chooses among all rows",
    }.items(),
)
def test_each_block_says_its_way_and_why(folder: Path, query: str, how: str) -> None:
    assert how in planned(folder, query).replace("\n", " ")


def test_a_change_far_from_the_anchor_says_its_way_and_full_is_whole(folder: Path) -> None:
    found = planned(folder, f"SELECT l.part, o.day {JOINED}", "refresh: full\n")
    assert "result: whole: all rows are computed with every change, as refresh is full" in found
    assert "orders as o: joined on o.order_id = l.order_id; a change of it is traced to l" in found
    assert "line as l: the anchor: each joined row has exactly one row of it" in found


@pytest.mark.parametrize(
    ("query", "note"),
    {
        RANKED.format("l.part", "o.day"): "ROW_NUMBER by o.day: .*Add to ORDER BY what tells them apart: "
        "l.order_id, l.number$",
        RANKED.format("l.part", "l.price, o.order_id, l.number"): None,  # o.order_id is l.order_id
        RANKED.format("l.order_id", "l.number DESC"): None,
        "SELECT LAG(price) OVER (PARTITION BY part ORDER BY price) AS p FROM line": "LAG by line.price",
        "SELECT SUM(price) OVER (ORDER BY part) AS p FROM line": None,  # equal rows have the same sum
        "SELECT SUM(price) OVER (ORDER BY part ROWS UNBOUNDED PRECEDING) AS p FROM line": "SUM by line.part",
        "SELECT customer FROM orders ORDER BY day LIMIT 3": "ORDER BY with LIMIT by orders.day: .*apart: orders.order_id$",
        "SELECT customer FROM orders ORDER BY day, order_id LIMIT 3": None,
        "SELECT part, COUNT(*) AS n FROM line GROUP BY part ORDER BY n LIMIT 3": "by n: .*apart: part$",
        "SELECT part, COUNT(*) AS n FROM line GROUP BY part ORDER BY n, part LIMIT 3": None,
        f"SELECT o.order_id, o.day, SUM(l.price) AS s {JOINED} GROUP BY o.order_id, o.day ORDER BY s, o.order_id LIMIT 3": None,
        "SELECT part FROM line QUALIFY ROW_NUMBER() OVER (PARTITION BY order_id ORDER BY price) = 1": "ROW_NUMBER by line",
        "SELECT customer FROM orders ORDER BY day": "ORDER BY without LIMIT at the end has no effect",
        "SELECT RANK() OVER (PARTITION BY part ORDER BY price) AS a, RANK() OVER (PARTITION BY order_id ORDER BY price) AS b "
        "FROM line": r"different PARTITION BY \(line.part and line.order_id\), .* of all rows: right, but dear",
        "SELECT RANK() OVER (PARTITION BY part ORDER BY price) AS a, SUM(price) OVER (PARTITION BY part, order_id) AS b "
        "FROM line": None,  # the first needs all rows of a part anyway
        "SELECT explode(array(customer)) AS c FROM orders ORDER BY c LIMIT 3": "apart: orders.order_id, the position, by "
        "posexplode$",
        "SELECT order_id, RANK() OVER (ORDER BY p) AS a, ROW_NUMBER() OVER (ORDER BY order_id) AS b FROM orders "
        "LATERAL VIEW posexplode(array(customer)) t AS p, c": "apart: t.p$",
        "SELECT order_id, posexplode(array(customer)) AS (p, c) FROM orders ORDER BY order_id, p LIMIT 3": None,
    }.items(),
)
def test_what_is_not_as_it_may_seem_is_a_note(folder: Path, query: str, note: str | None) -> None:
    found: dict[str, Any] = json.loads(planned(folder, query, "", "--format", "json"))
    notes = found["blocks"]["notes"]
    assert len(notes) == (note is not None), notes
    if note is not None:
        assert re.search(note, notes[0])
        assert notes[0][:40] in planned(folder, query).replace("\n", " ")
