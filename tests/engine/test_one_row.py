"""An expression that does not give one value per row is refused by what Spark makes of it, wherever it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.blocks.input_types import are_of_one_row
from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.frames import empty
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = [pytest.mark.spark, pytest.mark.connect]

COLUMNS = [
    ("id", "INT"), ("at", "TIMESTAMP"), ("list", "ARRAY<INT>"), ("of", "MAP<STRING, INT>"), ("text", "STRING"),
    ("part", "STRUCT<x: INT, y: STRING>"), ("parts", "ARRAY<STRUCT<q: INT>>"), ("price", "DECIMAL(10, 2)"),
]  # fmt: skip

SLIDING = "WINDOW(at, '1 hour', '5 minutes').start"

OTHER_ROWS = (
    "explode(list)", "explode_outer(of)", "posexplode(list)", "inline(parts)", "stack(2, id, 3)",
    "json_tuple(text, 'a', 'b')", SLIDING, "WINDOW(at, '1 hour', '5 minutes')", "WINDOW(at, '1 hour').start",
    "SESSION_WINDOW(at, '1 hour').end", "WINDOW_TIME(WINDOW(at, '1 hour'))", "sum(id)", "count(*) + 1",
    "histogram_numeric(id, 3)", "bitmap_construct_agg(id)", "row_number() OVER (ORDER BY id)", "rand()", "part.*",
    "lag(id) OVER (ORDER BY at)", f"CASE WHEN id > 0 THEN {SLIDING} END",
)  # fmt: skip

OF_ONE_ROW = (
    "id + 1 AS x", "list[0]", "of['a']", "part.x", "transform(list, x -> x + id)", "from_json(text, 'a INT')",
    "aggregate(list, 0, (a, b) -> a + b)", "map_filter(of, (k, v) -> v > id)", "CASE WHEN id > 0 THEN text END",
    "to_json(part)", "try_cast(text AS INT)", "price * price", "CAST(text AS BINARY)", "named_struct('a', of)",
    "date_trunc('hour', at) - INTERVAL 1 DAY", "collate(text, 'UTF8_LCASE')", "1 / id", "raise_error(text)",
    "array_sort(list)", "sequence(1, id)", "split(text, ',')", "id IN (1, 2)", "text LIKE 'a%'",
    "try_variant_get(parse_json(text), '$.a', 'int')",
)  # fmt: skip


def written(folder: Path, text: str, parts: dict[str, str]) -> Path:
    """Writes a pipeline file with some of its texts replaced."""
    for old, new in parts.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = folder / "pipeline.yaml"
    file.write_text(text)
    return file


def test_spark_tells_what_is_not_of_one_row(spark: SparkSession) -> None:
    rows = empty(spark, COLUMNS)
    assert are_of_one_row(rows, *OF_ONE_ROW)
    assert [text for text in OTHER_ROWS if are_of_one_row(rows, "id + 1", text)] == []


FOREIGN_KEY = """\
name: joined
join: left
as_of: at
result_key:
  - 'left.id AS id'
left:
  path: left
  format: rows
  schema: "id INT, fk STRING, at TIMESTAMP"
  key: id
  sequence_by: 'at'
  delete_when: 'id = 0'
  foreign_key:
    - 'fk'
right: {path: right, format: rows, schema: "k STRING, since TIMESTAMP, name STRING", key: k,
  valid_from: 'since'}
select:
  - 'id'
  - 'name AS title'
"""
WINDOWED = """\
name: near
kind: window
join: inner
within: {after: 1 hour}
left:
  path: left
  format: rows
  schema: "user STRING, at TIMESTAMP"
  contents: events
  'on': ['user']
  time: 'at'
right: {path: right, format: rows, schema: "user STRING, at TIMESTAMP", contents: events, 'on': user,
  time: 'at + INTERVAL 1 HOUR'}
select:
  - 'left.at AS l'
"""
AGGREGATE = """\
name: grouped
kind: aggregate
input: {path: landing, format: rows, schema: "id INT, user STRING, at TIMESTAMP", key: id, op_column: op}
group_by:
  - 'user'
window: {size: 1 hour,
  time: 'at'}
aggregates:
  - 'count(*) AS n'
  - 'max(at) AS last'
having: 'n > 0'
select:
  - 'user'
  - 'window_start AS since'
"""

PLACES = [
    (FOREIGN_KEY, "as_of", "as_of: at", f"as_of: {SLIDING}"),
    (FOREIGN_KEY, "result_key", "'left.id AS id'", f'"{SLIDING.replace("at", "TIMESTAMP_SECONDS(id)")} AS id"'),
    (FOREIGN_KEY, "left.sequence_by", "'at'", f'"{SLIDING}"'),
    (FOREIGN_KEY, "left.delete_when", "'id = 0'", f'"{SLIDING} = at"'),
    (FOREIGN_KEY, "left.foreign_key", "'fk'", f'"STRING({SLIDING})"'),
    (FOREIGN_KEY, "right.valid_from", "'since'}", "\"WINDOW(since, '1 hour').start\"}"),
    (FOREIGN_KEY, "select", "'name AS title'", "\"json_tuple(name, 'a') AS title\""),
    (WINDOWED, "left.on", "['user']", f'["STRING({SLIDING})"]'),
    (WINDOWED, "left.time", "'at'", f'"{SLIDING}"'),
    (WINDOWED, "right.time", "'at + INTERVAL 1 HOUR'}", "\"SESSION_WINDOW(at, '1 hour').end\"}"),
    (WINDOWED, "select", "'left.at AS l'", f'"{SLIDING.replace("at", "left.at")} AS l"'),
    (AGGREGATE, "group_by", "- 'user'\nwindow", f'- "STRING({SLIDING}) AS user"\nwindow'),
    (AGGREGATE, "window.time", "'at'}", f'"{SLIDING}"}}'),
    (AGGREGATE, "aggregates", "'max(at) AS last'", f'"max({SLIDING}) AS last"'),
    (AGGREGATE, "having", "'n > 0'", f'"{SLIDING.replace("at", "last")} IS NOT NULL"'),
    (AGGREGATE, "select", "'window_start AS since'", f'"{SLIDING.replace("at", "window_start")} AS since"'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "old", "new"), PLACES, ids=[f"{text[6:10]} {key}" for text, key, *_ in PLACES])
def test_it_is_refused_in_every_place_with_its_line(
    spark: SparkSession, tmp_path: Path, text: str, key: str, old: str, new: str
) -> None:
    file, line = written(tmp_path, text, {old: new}), 1 + text.count("\n", 0, text.index(old))
    with pytest.raises(PipelineFileError, match="does not give one value per row") as refused:
        _ = Pipeline(load_spec(file), spark).runner
    assert str(refused.value).startswith(f"{file}:{line}: {key}: ")


def test_what_spark_does_not_know_is_told_with_its_line(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, FOREIGN_KEY, {"'name AS title'": "'no_such_function(name) AS title'"})
    with pytest.raises(PipelineFileError, match="UNRESOLVED_ROUTINE") as refused:
        _ = Pipeline(load_spec(file), spark).runner
    line = 1 + file.read_text().split("\n").index("  - 'no_such_function(name) AS title'")
    assert str(refused.value).startswith(f"{file}:{line}: select: 'no_such_function(name) AS title': ")


def test_an_aggregate_that_makes_rows_of_a_group_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, AGGREGATE, {"'max(at) AS last'": "'explode(array_sort(collect_set(id))) AS last'"})
    with pytest.raises(PipelineFileError, match="aggregates, having or select: "):
        _ = Pipeline(load_spec(file), spark).runner


def test_a_run_refuses_it_before_a_table_is_made(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, AGGREGATE, {"'user'\nwindow": "\"SESSION_WINDOW(at, '1 hour').end AS user\"\nwindow"})
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "0.jsonl").write_text(json.dumps({"op": "u", "id": 1, "at": "2026-05-01T10:00:00Z"}) + "\n")
    ended: Any = CliRunner().invoke(app, ["run", str(file)])
    assert isinstance(ended.exception, PipelineFileError)
    assert ended.exception.exit_code == 2
    assert "kind: aggregate" in str(ended.exception)
    made = {path.name for path in (tmp_path / "warehouse" / "grouped").iterdir()}
    assert not made & {table.name for table in load_spec(file).definition.tables}
