"""`explain` and `impact`: why a row is as it is, and what a change of the right side would touch."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.blocks.keyed_in_process import typed_key
from fk_pipeline.cli.main import app
from fk_pipeline.errors import LeftToSpark, UsageError
from fk_pipeline.export import json_rows
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.story import SubscriptionStory
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import SideSpec, load_spec
from fk_pipeline.spec.keys import is_key, parse_key, shown, value_from_text
from fk_pipeline.store.settings import file_settings, settings
from fk_pipeline.store.sizes import MEASURED

TWO = SideSpec.model_validate({"path": "x", "schema": "A INT, b STRING, v INT", "key": ["A", "b"]})
ONE = SideSpec.model_validate({"path": "x", "schema": "k STRING", "key": "k"})
PLACED = SideSpec.model_validate({"path": "x", "schema": "v INT", "contents": "events"})


def test_a_key_is_said_in_one_text() -> None:
    assert parse_key("a=1, B=x=y", TWO) == {"A": "1", "b": "x=y"}
    assert parse_key("a=1,b=2", ONE) == {"k": "a=1,b=2"}
    assert parse_key("k=a,1", ONE) == {"k": "a,1"}
    assert parse_key("a=x,y,b=1,2", TWO) == {"A": "x,y", "b": "1,2"}
    assert parse_key("k=a,k=b", ONE) == {"k": "k=a,k=b"}
    assert parse_key("K=a", ONE) == {"k": "a"}
    with pytest.raises(UsageError, match=r"--key: '1' is no key of 2 columns"):
        parse_key("1", TWO)
    assert parse_key("7/landing/x/7.jsonl/1", PLACED) == {"event": "7/landing/x/7.jsonl/1"}
    with pytest.raises(UsageError, match="BATCH/FILE/LINE"):
        parse_key("7.jsonl:1", PLACED)
    assert is_key({"k": "it's"}, ONE) == "`k` = TRY_CAST('it\\'s' AS STRING)"
    assert is_key({"A": "1", "b": "x"}, TWO, k.pk).startswith("`_fk_pk_A` = TRY_CAST('1' AS INT) AND `_fk_pk_b` = ")
    assert (shown({"A": 1, "b": "x"}), shown({"k": "a"}), shown(None)) == ("A=1,b=x", "a", "-")


KINDS = {
    "INT": pa.int32(), "TINYINT": pa.int8(), "BIGINT": pa.int64(), "STRING": pa.string(), "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us"), "BOOLEAN": pa.bool_(),
    "DECIMAL(10,2)": pa.decimal128(10, 2),
}  # fmt: skip
SAID = [
    "17", " 17", "+17", "-007", "-0", "300", "9223372036854775808", "1.0", "1e3", "1L", "x", "", "null", "true", "NaN",
    "2020-02-30", "2020-02-29", "2020-2-9", "+2020-02-29", "0001-01-01", "0000-01-01", "2020-02-29T10:00:00.123456Z",
    "2020-02-29 10:00:00", "2020-02-29T24:00:00Z", "2020-02-29T10:00:00+01:00", "2020-02-29T10:00:00.1234567Z", "now",
    "it's $\\n", "\u0661",
]  # fmt: skip


def test_a_key_is_the_value_that_spark_makes_of_its_text(spark: SparkSession) -> None:
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(KINDS))
    side, certain = SideSpec.model_validate({"path": "x", "schema": columns, "key": "c0"}), 0
    casts = [f"{value_from_text(said, c)} AS {c.name}_{n}" for c in side.columns for n, said in enumerate(SAID)]
    [told] = json_rows(spark.range(1).selectExpr(*casts))
    for column, kind in zip(side.columns, KINDS.values(), strict=True):
        one = side.model_copy(update={"key": (column.name,)})
        for n, said in enumerate(SAID):
            try:
                _, key = typed_key({column.name: said}, one, pa.schema([(column.name, kind)]))
            except UsageError:
                key = {column.name: None}
            except LeftToSpark:
                continue
            assert key == {column.name: told[f"{column.name}_{n}"]}, (column, said)
            certain += 1
    assert certain > len(SAID) + 30


@pytest.fixture(scope="module")
def made(rows_pipeline: Callable[..., Any]) -> Any:
    """An inner join: 1 changes its right row, 2 is deleted, 3 refers to nothing, 4 to a right row that is deleted."""
    made = rows_pipeline("inner")
    made.land(
        0, [(1, "a", "v1"), (2, "a", "v2"), (3, None, "v3"), (4, "c", "v4")], [("a", "A"), ("b", "B"), ("c", "C")]
    )
    made.pipeline.run()
    made.land(1, [(1, "b", "w1"), (2,), (5, "gone", "v5")], [("c",)])
    made.pipeline.run()
    return made


@pytest.fixture(scope="module")
def story_of(made: Any) -> Callable[[str], Any]:
    """What `explain` says of a key without Spark."""
    return cache(partial(made.pipeline.explain, notify=pytest.fail))


@pytest.mark.spark
@pytest.mark.parametrize("key", ["1", *(pytest.param(key, marks=pytest.mark.slow) for key in "23456")])
def test_spark_says_the_same(made: Any, told_alike: Callable[..., Any], key: str) -> None:
    assert told_alike(made.pipeline, key).as_expected


@pytest.mark.spark
@pytest.mark.parametrize(
    ("key", "there", "why"),
    [
        ("1", "in", "the left row of batch 1 refers to right row b of batch 0."),
        ("2", "not in", "batch 1 deletes the left row, and nothing newer has come."),
        ("3", "not in", "the left row of batch 0 refers to no right row, and an inner join leaves it out."),
        ("4", "not in", "refers to right row c, which was deleted by batch 1: an inner join leaves the left row out."),
        ("5", "not in", "refers to right row gone, which has never come: an inner join leaves the left row out."),
        ("6", "not in", "no batch has brought this key."),
    ],
)
def test_the_conclusion_says_why_a_row_is_there_or_not(
    story_of: Callable[[str], Any], key: str, there: str, why: str
) -> None:
    story = story_of(key)
    assert story.conclusion.startswith(f"The row is {there} the result: ")
    assert story.conclusion.endswith(why)
    assert (story.as_expected, story.due) == (True, {})


@pytest.mark.spark
def test_the_story_has_every_version_and_every_answer(story_of: Callable[[str], Any]) -> None:
    story = story_of("1")
    assert [(v.batch, v.row and v.row["v"], v.refers_to, v.current) for v in story.left] == [
        (0, "v1", {"k": "a"}, False),
        (1, "w1", {"k": "b"}, True),
    ]
    assert [(v.key, v.row and v.row["name"]) for v in story.right] == [({"k": "a"}, "A"), ({"k": "b"}, "B")]
    told = [(a.batch, a.cause, a.refers_to, a.left_batch, a.right_batch, a.verdict) for a in story.responses]
    assert told == [(0, "left", {"k": "a"}, 0, 0, "joined"), (1, "left", {"k": "b"}, 1, 0, "joined")]
    assert story.responses[-1].left_hash == story.left[-1].hash
    assert story.responses[-1].right_hash == story.right[-1].hash
    assert story.result == story.expected == {"id": 1, "v": "w1", "name": "B"}
    assert (story.written_in, story.left[0].file) == (1, "landing/left/00000000.jsonl")
    assert story.subscription == SubscriptionStory(
        refers_to={"k": "b"}, before={"k": "a"}, batch=1, propagated_in=1, instruction=story.responses[-1].instruction
    )
    deleted = story_of("2")
    assert deleted.subscription is not None
    assert (deleted.subscription.refers_to, deleted.subscription.before) == (None, {"k": "a"})
    assert story_of("6").subscription is None


@pytest.mark.slow  # beside the story before
@pytest.mark.spark
def test_every_answer_is_told_with_the_versions_that_it_is_about(
    rows_pipeline: Callable[..., Any], told_alike: Callable[..., Any]
) -> None:
    made = rows_pipeline("left", left_extra="  sequence_by: note\n")

    def left(fk: str, v: str, note: int) -> str:
        return json.dumps({"op": "u", "id": 1, "fk": fk, "v": v, "note": str(note)})

    made.land(0, [left("b", "v0", 5)])
    made.pipeline.run()
    made.land(1, [left("b", "v1", 6)], [("b", "B")])
    made.land(2, [left("a", "v1", 7)], [("a", "A")])
    made.land(3, [left("c", "old", 1)])  # older than that of batch 0
    made.land(4, [left("a", "v1", 8)], [("a", "A4")])
    made.pipeline.discover()
    for batch in range(1, 5):  # the answers are resolved when all have been made
        for stage in [*Stage][:-1]:
            made.pipeline.runner.run(stage, BatchRange.of(batch))
    made.pipeline.run()
    story = told_alike(made.pipeline, "1")
    assert [(v.batch, v.late, v.current) for v in story.left] == [
        (3, True, False),
        (0, False, False),
        (1, False, False),
        (2, False, False),
        (4, False, True),
    ]
    assert [(a.batch, a.left_batch, a.right_batch, a.verdict) for a in story.responses] == [
        (0, 0, None, "half-joined"),
        (1, 1, 1, "stale left"),
        (2, 2, 2, "stale right"),
        (4, 4, 4, "joined"),
    ]
    shown = CliRunner().invoke(app, ["explain", str(made.file), "--key", "1", "--protocol"]).output
    for part in (
        "late: an older batch had brought a newer version",
        "note=8; no selected column differs",
        "refers to a",
        "left row of batch 0, and there is no right row b",
        "left row of batch 1 and right row b of batch 1",
        "stale left: dropped: by then the left row was another version",
        "because the right row changed: left row of batch 4 and right row a of batch 4",
        "Subscription: to right row a, before to b; asked PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE in batch 2",
        "Result: id=1, v=v1, name=A4 (since batch 4, written ",
        "The left row is of batch 4: landing/left/00000004.jsonl, line 1.",
        "Right row a is of batch 4: landing/right/00000004.jsonl, line 1.",
    ):
        assert part in shown
    in_words = CliRunner().invoke(app, ["explain", str(made.file), "--key", "1"]).output
    assert shown.startswith(in_words.split("\n\n")[0])
    assert "late: an older batch had brought a newer version" in in_words
    assert not [word for word in ("PROPAGATE", "response", "verdict", "Subscription", "stale") if word in in_words]


@pytest.mark.slow
@pytest.mark.spark
def test_what_the_quarantine_may_have_of_a_key_is_told(rows_pipeline: Callable[..., Any]) -> None:
    made = rows_pipeline("left", select="[id, v, '1 / CAST(v AS INT) AS x', name]")
    bad_left, bad_right = '{"op": "u", "id": 7, "fk": "a", "v": "1", "note', '{"op": "u", "k": "gone", "name"'
    made.land(0, [(1, "a", "0"), (2, None, "0"), (5, "gone", "1"), (17, "a", "1"), bad_left], [("a", "A"), bad_right])
    made.pipeline.run()
    never, unmatched, pair, alone, other = (made.pipeline.explain(key) for key in ("7", "5", "1", "2", "17"))
    for story, side, line, why in (
        (never, "left", 5, "no batch has brought this key. 1 line(s) in the quarantine may concern it."),
        (unmatched, "right", 2, "a left join keeps the left row. 1 line(s) in the quarantine may concern it."),
    ):
        assert [(one.side, one.line) for one in story.quarantined] == [(side, line)]
        assert story.quarantined[0].file == f"landing/{side}/00000000.jsonl"
        assert story.conclusion.endswith(why)
    for story, why in ((pair, "and right row a."), (alone, "and no right row.")):
        assert [(one.side, one.file) for one in story.quarantined] == [("join", None)]
        assert [one.verdict for one in story.responses] == ["quarantined"]
        assert story.conclusion.startswith(
            "The row is not in the result: an expression of select fails on the left row"
        )
        assert story.conclusion.endswith(why)
    assert other.quarantined == ()
    shown = CliRunner().invoke(app, ["explain", str(made.file), "--key", "1"]).output
    assert "quarantined pair" in shown
    assert "CAST(v AS INT) AS x fails on this row" in shown
    shown = CliRunner().invoke(app, ["explain", str(made.file), "--key", "7"]).output
    assert "landing/left/00000000.jsonl:5" in shown
    made.land(1, [], ['{"op": "t"}'])
    made.pipeline.run()
    emptied = CliRunner().invoke(app, ["explain", str(made.file), "--key", "17"]).output
    assert "right truncate *" in emptied
    assert "refers to right row a, which was deleted by batch 1: a left join keeps the left row." in emptied


@pytest.mark.spark
@pytest.mark.parametrize(
    "alike",
    [pytest.param(False, id="without"), pytest.param(True, id="and with Spark", marks=pytest.mark.slow)],
)
def test_lines_and_truncates_are_told_without_spark_too(
    rows_pipeline: Callable[..., Any], told_alike: Callable[..., Any], *, alike: bool
) -> None:
    def tell(key: str) -> Any:
        return told_alike(made.pipeline, key) if alike else made.pipeline.explain(key, pytest.fail)

    made = rows_pipeline("left", select="[id, name]")  # v is not selected: the content has a hash of its own
    lines = [
        '{"op": "u", "ID": 7, "note": "17"',
        '{"op": "u", "id": 17, "v": "ä7"',
        '"note": 7, "idle": 7',
        '"id": 99, Ж',
    ]
    made.land(0, [(7, "a.b", "v"), (17, "a.b", "ä"), (1, None, "v"), *lines], [("a.b", "A"), '{"k": "a.b"', '"axb"'])
    made.pipeline.run()
    made.land(1, [(7, "a.b", "w")], [("a.b", "B")])
    made.pipeline.run()
    numbers = {key: [one.line for one in tell(key).quarantined] for key in ("7", "17", "1")}
    assert numbers == {"7": [4, 6, 2], "17": [5, 2], "1": []}
    assert [v.hash is None for v in tell("7").left] == [False, False]
    made.land(2, ['{"op": "t"}', (1, "a.b", "v")], ['{"op": "t"}'])
    made.pipeline.run()
    stories = {key: tell(key) for key in ("7", "1")}
    assert [(v.key is None, v.current) for v in stories["7"].left][-1] == (True, True)
    assert stories["7"].conclusion.endswith(
        "truncates the left table, and nothing newer has come. 2 line(s) in the quarantine may concern it."
    )
    assert stories["1"].result == {"id": 1, "name": None}
    with pytest.raises(UsageError, match="'never' is no INT"):
        made.pipeline.explain("never", pytest.fail)
    told: list[str] = []
    assert [one.line for one in made.pipeline.explain("99", told.append).quarantined] == [7]
    assert told == ["a line in the quarantine has rare letters, which Spark tells apart"]


SEVERAL = """
name: several
join: outer
left:
  path: landing/left
  format: rows
  schema: >-
    day DATE, n SMALLINT, at TIMESTAMP, k STRING, price DECIMAL(12,3), tags ARRAY<STRING>,
    more STRUCT<x: DOUBLE, y: DECIMAL(30,2)>
  key: [day, n]
  foreign_key: [at, k]
  op_column: op
right:
  path: landing/right
  format: rows
  schema: "t TIMESTAMP, k STRING, rate FLOAT, no BINARY"
  key: [t, k]
  op_column: op
select: [left.day AS day, n, price, more, right.k AS right_k, rate]
"""


@pytest.mark.slow
@pytest.mark.spark
def test_keys_of_several_columns_and_values_of_all_kinds_are_told_alike(
    tmp_path: Path, spark: SparkSession, told_alike: Callable[..., Any]
) -> None:
    (tmp_path / "several.yaml").write_text(SEVERAL)
    noon, one = "2020-01-01T12:00:00.123456Z", {"op": "u", "day": "2020-02-29", "n": 1}
    lefts: list[dict[str, Any]] = [
        one | {"at": noon, "k": "a,b", "price": 1.5, "tags": ["x", None], "more": {"x": -0.0, "y": 12}},
        one | {"n": 2, "at": noon, "k": None, "price": -0.001},
        one | {"n": -3, "at": noon, "k": "ä", "more": {"x": 1e15}},
    ]
    rights: list[dict[str, Any]] = [{"op": "u", "t": noon, "k": key, "rate": 0.1} for key in ("a,b", "ä", "alone")]
    gone: list[dict[str, Any]] = [{"op": "d", "day": "2020-02-29", "n": -3}]
    made = Pipeline(load_spec(tmp_path / "several.yaml"), spark)
    for batch, rows in (
        (0, {"left": lefts, "right": rights}),
        (1, {"left": gone, "right": [rights[0] | {"no": "eHh4"}]}),
    ):
        for side, of_side in rows.items():
            (tmp_path / "landing" / side).mkdir(parents=True, exist_ok=True)
            lines = (json.dumps(row) + "\n" for row in of_side)
            (tmp_path / "landing" / side / f"{batch}.jsonl").write_text("".join(lines))
        made.run()
    results = [told_alike(made, f"day=2020-02-29,n={n}").result for n in (1, 2, -3, 4)]
    assert [row and row["right_k"] for row in results] == ["a,b", None, None, None]
    alone = [told_alike(made, f"right.t={noon},k={key}").result for key in ("a,b", "ä", "alone", "never")]
    assert [row and row["right_k"] for row in alone] == [None, "ä", "alone", None]
    assert told_alike(made, f"t={noon},k=a,b", "impact").fan_out == 1


@pytest.mark.slow
@pytest.mark.spark
def test_work_that_is_due_is_told_and_a_wrong_row_is_called_wrong(
    rows_pipeline: Callable[..., Any], told_alike: Callable[..., Any]
) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v1"), (2, None, "v2")], [("a", "A")])
    made.pipeline.run()
    made.land(1, [(1, "a", "w1"), (3, "a", "v3")], [("a", "A1")])
    made.pipeline.discover()
    for stage in (Stage.LEFT_CHANGELOG, Stage.SUBSCRIPTION_STORE, Stage.RESPONSES):
        made.pipeline.runner.run(stage, BatchRange.of(1))
    story = told_alike(made.pipeline, "1")
    assert story.conclusion.startswith("The row in the result is another one than the join has it, and work is due")
    assert [(a.verdict, a.why) for a in story.responses if a.batch == 1] == [(None, "not resolved yet")]
    assert story.due["resolved_join"] == [1]
    gone = CliRunner().invoke(app, ["explain", str(made.file), "--key", "3"])
    assert gone.exit_code == 0
    assert "The row is not in the result, though the join has it, and work is due that may explain it: " in gone.output
    assert "Due: right_table 1; resolved_join 1" in gone.output
    made.pipeline.run()
    assert [(a.cause, a.verdict) for a in made.pipeline.explain("1").responses if a.batch == 1] == [("left", "joined")]
    result = f"{made.pipeline.spec.home}/resolved_join"
    with settings(made.pipeline.session, file_settings(MEASURED)):
        made.pipeline.session.sql(f"UPDATE delta.`{result}` SET name = 'wrong' WHERE id = 1")
        made.pipeline.session.sql(f"DELETE FROM delta.`{result}` WHERE id = 2")
    assert told_alike(made.pipeline, "1").conclusion.startswith("WRONG: the row in the result is another one.")
    assert told_alike(made.pipeline, "2").conclusion.startswith("WRONG: the row is not in the result.")
    shown = CliRunner().invoke(app, ["explain", str(made.file), "--key", "1", "--protocol"])
    assert shown.exit_code == 1
    for part in ("Left row 1", "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE", "name=wrong", "name=A1", "WRONG"):
        assert part in shown.output
    told = json.loads(CliRunner().invoke(app, ["explain", str(made.file), "--key", "1", "--format", "json"]).stdout)
    assert (told["as_expected"], told["result"]["name"], told["expected"]["name"]) == (False, "wrong", "A1")
    refused = CliRunner().invoke(app, ["explain", str(made.file), "--key", "x"])
    assert isinstance(refused.exception, UsageError)
    assert "'x' is no INT" in str(refused.exception)


@pytest.mark.spark
def test_the_impact_of_a_right_change_is_known_before_it_is_made(
    rows_pipeline: Callable[..., Any], told_alike: Callable[..., Any]
) -> None:
    made = rows_pipeline("left")
    left = [(n, "abc"[n % 3], "v") for n in range(9)] + [(9, "new", "v"), (10, None, "v")]
    made.land(0, left, [("a", "A"), ("b", "B"), ("c", "C")])
    made.land(1, [(0,)])
    made.pipeline.run()
    one = told_alike(made.pipeline, "a", "impact")
    assert (one.fan_out, one.right_rows) == (2, {"changed or removed": 1})
    assert told_alike(made.pipeline, "new", "impact").keys == ({"key": "new", "subscribers": 1, "effect": "added"},)
    assert told_alike(made.pipeline, "never", "impact").fan_out == 0
    file = made.folder / "7.jsonl"
    lines = [{"op": "u", "k": "a", "name": "A"}, {"op": "u", "k": "b", "name": "B2"}, {"op": "d", "k": "c"}]
    lines += [{"op": "u", "k": "new", "name": "N"}, {"op": "d", "k": "never"}, {"op": "u", "k": "nobody", "name": "X"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no json\n")
    before = made.result()
    found = made.pipeline.impact(changes=file)
    assert found.fan_out == 3 + 3 + 1
    assert found.right_rows == {"added": 2, "changed": 1, "removed": 1, "nothing: no selected column differs": 2}
    assert found.quarantined == 1
    assert [row["key"] for row in found.keys[:4]] == ["b", "c", "new", "nobody"]
    assert made.result() == before
    made.pipeline.run()  # nothing of it was recorded
    assert made.result() == before
    (made.folder / "landing" / "right" / "7.jsonl").write_text(file.read_text())
    counts = {run.stage: run.counts for run in made.pipeline.run()}
    assert sum(counts[Stage.RESPONSES][7].values()) == found.fan_out
    shown = CliRunner().invoke(app, ["impact", str(made.file), "--changes", str(file)])
    assert "0 rows of the result" in shown.output
    file.write_text('{"op": "t"}\n{"op": "u", "k": "a", "name": "A"}\n')
    emptied = made.pipeline.impact(changes=file)
    assert emptied.right_rows == {"nothing: no selected column differs": 1, "removed": 3}
    assert emptied.fan_out == 3 + 1  # b and new have subscribers, nobody has none
    with pytest.raises(UsageError, match="no such file"):
        made.pipeline.impact(changes=made.folder / "none.jsonl")
    for args in ([], ["--right-key", "a", "--changes", str(file)], ["--changes", "none.jsonl"]):
        assert isinstance(CliRunner().invoke(app, ["impact", str(made.file), *args]).exception, UsageError)
