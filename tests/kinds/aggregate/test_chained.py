"""Pipelines that read the results of others: keys that may be null, the order in which they run, and circles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError, StateError
from fk_pipeline.identity import Side
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.project import project_of
from tests.kinds.aggregate.grouped import Grouped, groups, random_rows

SIZE = 10
COMPARED = """
name: compared
join: {join}
left:
  pipeline: pipeline.yaml
  foreign_key: [user, window_start - 10]
right:
  pipeline: pipeline.yaml
select: [left.user AS user, left.window_start AS start, left.n AS n, right.n AS before]
"""


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


@pytest.mark.slow
@pytest.mark.spark
def test_windows_are_joined_to_those_before_them(grouped: Callable[..., Grouped], spark: SparkSession) -> None:
    made, random = grouped(window=f"window: {{time: at, size: {SIZE} milliseconds}}"), Random(4)
    file = written(made.folder, "compared.yaml", COMPARED.format(join="left"))
    assert {load_spec(file).side(side).not_run for side in load_spec(file).sides} == {str(made.file)}
    assert Pipeline(load_spec(file), spark).run() == []  # the other has not run
    for batches in ((0, 1), (2,)):
        for batch in batches:
            made.land(batch, random_rows(random, 10))
        made.pipeline.run()
        compared = Pipeline(load_spec(file), spark)
        compared.run()
        counts = {key: len(rows) for key, rows in groups(made.rows(), SIZE, SIZE).items()}
        wanted = {
            (user, start, n, None if user is None else counts.get((user, start - SIZE, start)))
            for (user, start, _), n in counts.items()
        }
        rows = compared.table("resolved_join").select("user", "start", "n", "before").collect()
        assert len(rows) == len(wanted)
        assert {tuple(row) for row in rows} == wanted
    assert compared.verify().ok
    key = json.dumps({"user": rows[0]["user"], "window_start": rows[0]["start"]}, separators=(",", ":"))
    assert compared.explain(key).as_expected


OUTER = """
name: both
join: outer
left: {pipeline: pipeline.yaml, foreign_key: [user, window_start]}
right: {pipeline: others/pipeline.yaml}
select: [left.user AS user, left.n AS n, right.user AS other, right.n AS others]
"""


@pytest.mark.slow
@pytest.mark.spark
def test_an_outer_join_keeps_the_groups_without_a_value_of_both_sides(
    grouped: Callable[..., Grouped], spark: SparkSession, tmp_path: Path
) -> None:
    window = "window: {time: at, size: 10 milliseconds}"
    made = grouped(window=window)
    (tmp_path / "others").mkdir()
    others, random = Grouped(tmp_path / "others", spark, window=window), Random(7)
    file = written(made.folder, "both.yaml", OUTER)
    for batch in range(3):
        for side in (made, others):
            side.land(batch, random_rows(random, 8))
            side.pipeline.run()
        both = Pipeline(load_spec(file), spark)
        both.run()
        left, right = (
            {(user, start): len(rows) for (user, start, _), rows in groups(side.rows(), SIZE, SIZE).items()}
            for side in (made, others)
        )
        pairs = {key for key in left.keys() & right.keys() if key[0] is not None}
        wanted = [(key[0], left[key], key[0], right[key]) for key in pairs]
        wanted += [(key[0], left[key], None, None) for key in left.keys() - pairs]
        wanted += [(None, None, key[0], right[key]) for key in right.keys() - pairs]
        rows = both.table("resolved_join").select("user", "n", "other", "others").collect()
        assert sorted(map(tuple, rows), key=str) == sorted(wanted, key=str)
        assert both.verify().ok
    [(_, start), *_] = [key for key in right if key[0] is None]
    assert both.explain(f"right.user=null,window_start={start}").as_expected
    for user, start in left:
        story = both.explain(f"user={'null' if user is None else user},window_start={start}")
        assert story.as_expected
        assert story == both.explain(json.dumps({"user": user, "window_start": start}, separators=(",", ":")))


@pytest.mark.slow
@pytest.mark.spark
def test_a_join_with_rows_of_its_own_waits_for_the_types_of_the_other(
    grouped: Callable[..., Grouped], spark: SparkSession
) -> None:
    made = grouped()
    orders = "left: {path: orders, format: rows, schema: 'id BIGINT, user STRING', key: id, foreign_key: user}"
    text = f"name: orders\njoin: inner\n{orders}\nright: {{pipeline: pipeline.yaml}}\nselect: [id, total]\n"
    file = written(made.folder, "orders.yaml", text)
    (made.folder / "orders").mkdir()
    written(made.folder / "orders", "0.jsonl", '{"id": 1, "user": "a"}\n')
    with pytest.raises(StateError, match=r"has no result yet.*\n.*\n.*fk-pipeline run .*pipeline.yaml .*orders.yaml"):
        Pipeline(load_spec(file), spark).run()
    made.land(0, [{"op": "u", "id": 1, "user": "a", "at": 1, "v": 5, "note": "x"}])
    made.pipeline.run()
    pipeline = Pipeline(load_spec(file), spark)
    pipeline.run()
    assert [tuple(row) for row in pipeline.table("resolved_join").select("id", "total").collect()] == [(1, 5)]
    made.edit(options="select: [user, n, total, total / n AS mean]")
    written(made.folder, "orders.yaml", text.replace("[id, total]", "[id, total, mean]"))
    with pytest.raises(
        StateError, match=r"not all of its columns.*\n.*\n.*fk-pipeline run .*pipeline.yaml .*orders.yaml"
    ):
        Pipeline(load_spec(file), spark).run()
    made.pipeline.rebuild("changelog")
    pipeline = Pipeline(load_spec(file), spark)
    pipeline.rebuild("landing")
    pipeline.run()
    assert [tuple(row) for row in pipeline.table("resolved_join").select("id", "mean").collect()] == [(1, 5.0)]


STANDING = """
name: standing
join: outer
left: {pipeline: pipeline.yaml, foreign_key: user}
right: {path: users, format: rows, schema: "user STRING, city STRING", key: user}
select: [left.user AS user, n, right.user AS known, city]
"""


def said(*args: object) -> str:
    """What the command says."""
    ended = CliRunner().invoke(app, [*map(str, args)])
    assert ended.exit_code == 0, ended.output + repr(ended.exception)
    return ended.stdout


@pytest.fixture
def standing(grouped: Callable[..., Grouped]) -> tuple[Grouped, Path]:
    """A pipeline whose result has no rows, and the file of one that joins it with rows of its own."""
    made = grouped(aggregates="[count(*) AS n]")
    (made.folder / "users").mkdir()
    written(made.folder / "users", "0.jsonl", '{"user": "a", "city": "Rome"}\n')
    made.land(0, [{"op": "d", "id": 1}])
    return made, written(made.folder, "standing.yaml", STANDING)


def stands(file: Path, session: SparkSession) -> list[tuple[object, ...]]:
    rows = Pipeline(load_spec(file), session).table("resolved_join").select("user", "n", "known", "city").collect()
    return sorted(map(tuple, rows), key=str)


@pytest.mark.slow
@pytest.mark.spark
def test_a_result_without_rows_is_read_and_its_first_rows_come_once(
    standing: tuple[Grouped, Path], spark: SparkSession, tmp_path: Path
) -> None:
    made, file = standing
    for _ in range(2):
        said("run", made.file, file)
        assert stands(file, spark) == [(None, None, "a", "Rome")]
    assert json.loads(said("show", made.file, "changes", "--batch", 0, "--format", "json")) == []
    assert json.loads(said("show", made.file, "aggregated", "--format", "json")) == []
    said("export", made.file, "--to", tmp_path / "result.csv")
    assert (tmp_path / "result.csv").read_text() == "user,n\n"
    assert "0 result rows: equal" in said("verify", made.file, "--no-checks")
    row = {"op": "u", "user": "a", "at": 1, "v": 1, "note": "x"}
    made.land(1, [{**row, "id": 1}, {**row, "id": 2, "user": "b"}])
    said("run", made.file, file)
    assert stands(file, spark) == [("a", 1, "a", "Rome"), ("b", 1, None, None)]
    changes = made.pipeline.changes(1).select("_change_type", "user").collect()
    assert sorted(map(tuple, changes)) == [("insert", "a"), ("insert", "b")]
    heard = Pipeline(load_spec(file), spark).table("left_changelog").where("user IS NOT NULL")
    assert [tuple(one) for one in heard.groupBy("user").count().orderBy("user").collect()] == [("a", 1), ("b", 1)]


RESULT = "name: {}\nkind: aggregate\ninput: {{pipeline: {}}}\ngroup_by: [n]\naggregates: [count(*) AS {}]\n"
FIRST = (
    "name: first\nkind: aggregate\ninput: {path: x, format: rows, schema: 'id BIGINT, m BIGINT', key: id}\n"
    "group_by: [m AS n]\naggregates: [count(*) AS k]\n"
)


def test_pipelines_come_after_those_whose_results_they_read(tmp_path: Path) -> None:
    last = written(tmp_path, "a.yaml", RESULT.format("last", "b.yaml", "c"))
    middle = written(tmp_path, "b.yaml", RESULT.format("middle", "c.yaml", "m"))
    first = written(tmp_path, "c.yaml", FIRST)
    assert project_of([last, first, middle]).files == (first, middle, last)
    assert {*project_of([last, first]).files} == {first, last}


def test_what_is_sensitive_in_a_result_is_so_where_it_is_read_and_so_is_its_key(tmp_path: Path) -> None:
    written(tmp_path, "first.yaml", FIRST.replace("key: id}", "key: id, sensitive: m}"))
    own = RESULT.format("a", "first.yaml, sensitive: k", "c")
    [side] = [load_spec(written(tmp_path, "a.yaml", own)).side(side) for side in (Side.INPUT,)]
    assert {*side.sensitive} == {"n", "k", "result_key"}
    assert side.key == ("result_key",)


def test_a_group_may_have_the_name_of_a_window_and_is_null_like_any_other(tmp_path: Path) -> None:
    written(tmp_path, "first.yaml", FIRST.replace("m AS n", "m AS window_start"))
    text = RESULT.format("a", "first.yaml", "c").replace("[n]", "[window_start]")
    assert load_spec(written(tmp_path, "a.yaml", text)).side(Side.INPUT).key == ("result_key",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RESULT.format("a", "b.yaml", "k"), r"each other's results: a.yaml -> b.yaml -> a.yaml"),
        (RESULT.format("a", "a.yaml", "k"), r"each other's results: a.yaml -> a.yaml"),
        (RESULT.format("a", "none.yaml", "k"), "there is no such pipeline file"),
        (RESULT.format("a", "unkeyed.yaml", "k"), "select leaves out 'n', which is part of the key"),
        (RESULT.format("a", "again.yaml", "k"), "a column of its result is called 'result_key'"),
        (RESULT.format("a", "first.yaml, schema: 'n BIGINT'", "k"), "'schema' is given by the result of first.yaml"),
    ],
)
def test_what_cannot_be_an_input_is_refused(tmp_path: Path, text: str, message: str) -> None:
    written(tmp_path, "b.yaml", RESULT.format("b", "a.yaml", "m"))
    written(tmp_path, "first.yaml", FIRST)
    written(tmp_path, "again.yaml", FIRST.replace("AS k", "AS result_key"))
    written(tmp_path, "unkeyed.yaml", f"{FIRST}select: [k]\n")
    with pytest.raises(PipelineFileError, match=message):
        load_spec(written(tmp_path, "a.yaml", text))
