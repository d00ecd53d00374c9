"""Commands that only look answer without Spark; where Spark must, they say so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from fk_pipeline.errors import LeftToSpark


@pytest.fixture(scope="module")
def made(rows_pipeline: Any) -> Any:
    """A pipeline that was run twice, with records in the quarantine."""
    made = rows_pipeline("left")
    made.land(0, [(2, "a", "x"), (10, "b", ""), (1, "a", "v"), "no json", '{"id": "no number"}'], [("a", "A"), "none"])
    made.pipeline.run()
    made.land(1, [(3, "c", "w"), (1,)], [("b", "B")])
    made.pipeline.run()
    return made


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no session start."""

    def fail(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("fk_pipeline.session.start_session", fail)


@pytest.mark.usefixtures("alone")
def test_they_answer_without_spark(made: Any, command: Callable[..., Any], tmp_path: Path) -> None:
    def rows(*args: Any) -> list[dict[str, Any]]:
        said = command("show", made.file, *args, "--format", "json")
        assert (said.status, said.err) == (0, "")
        found: list[dict[str, Any]] = json.loads(said.out)
        return found

    result = [{"id": 2, "v": "x", "name": "A"}, {"id": 3, "v": "w", "name": None}, {"id": 10, "v": "", "name": "B"}]
    assert rows("resolved_join", "--order-by", "id") == result
    assert rows("resolved_join", "--order-by", "name DESC, ID", "--limit", 2) == [result[2], result[0]]
    assert rows("resolved_join", "--where", "name IS NULL AND id > 2", "--columns", "V,_fk_batch") == [
        {"v": "w", "_fk_batch": 1}
    ]
    every = rows("resolved_join", "--all", "--batch", 1, "--where", "id = 10")
    assert [list(row)[:4] for row in every] == [["id", "v", "name", "_fk_pk_id"]]
    assert {(row["_fk_pk_id"], row["_fk_verdict"]) for row in rows("verdicts", "--batch", 1)} == {
        (1, "retracted"), (3, "half-joined"), (10, "joined")
    }  # fmt: skip
    assert rows("verdicts", "--where", "_fk_verdict LIKE 'half%' AND _fk_batch = 0", "--columns", "_fk_pk_id") == [
        {"_fk_pk_id": 10}
    ]
    assert len(rows("runs", "--where", "event = 'succeeded' AND batch = 1")) == 5
    assert rows("corrections") == []
    assert rows("verdicts", "--batch", 10**12) == []
    assert rows("resolved_join", "--columns", "id,ID", "--where", "id = 3") == [{"id": 3}]
    listed = json.loads(command("quarantine", made.file, "--format", "json").out)
    assert listed["records"] == 3
    assert [row["raw"] for row in listed["rows"]] == ["no json", '{"id": "no number"}', "none"]
    assert command("quarantine", made.file, "--batch", "1", "--side", "left").out == "Nothing is in the quarantine.\n"
    assert command("quarantine", made.file, "--export", tmp_path / "bad.csv").out.startswith("3 records written")
    for name in ("o.csv", "o.delta"):
        assert command("export", made.file, "--to", tmp_path / name).out.startswith("3 rows written")
    assert DeltaTable(tmp_path / "o.delta").to_pyarrow_table().to_pylist() == result
    wrong = command("export", made.file, "--to", tmp_path / "o.txt")
    assert "use a file that ends in .csv, .jsonl, .parquet or .delta" in wrong.err
    story = command("explain", made.file, "--key", 10)
    assert (story.status, story.err) == (0, "")
    lines = story.out.splitlines()
    assert lines[:2] == ["Left row 10", lines[1]]
    assert lines[1].endswith("the left row of batch 0 refers to right row b of batch 1.")
    assert any(line.startswith("The left row is of batch 0: landing/left/") and ", line " in line for line in lines)
    assert "Subscription: " not in story.out
    assert "Subscription: to right row b" in command("explain", made.file, "--key", 10, "--protocol").out
    impact = command("impact", made.file, "--right-key", "a", "--format", "json")
    assert (json.loads(impact.out)["fan_out"], impact.err) == (1, "")
    assert command("explain", made.file, "--key", "x").err == "UsageError: key column id: 'x' is no INT\n"
    assert (tmp_path / "o.csv").read_text() == 'id,v,name\n2,x,A\n3,w,\n10,"",B\n'


@pytest.mark.parametrize(
    ("args", "last"),
    [
        (["show", "resolved_join", "--where", "v <> 'x' AND id > 1", "--order-by", "id"], "10 |   | B"),
        pytest.param(
            ["explain", "--key", "2"],
            "* the version that counts",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["impact", "--right-key", "b"],
            "1 row of the result would be written or taken out.",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_they_start_quickly(made: Any, args: list[str], last: str) -> None:
    args = [args[0], str(made.file), *args[1:]]
    code = (
        f"import sys; from fk_pipeline.cli.main import app; app({args}, standalone_mode=False); "
        "print([name for name in ('pandas', 'dagster', 'great_expectations') if name in sys.modules]); "
        "from pyspark import SparkContext; print(SparkContext._gateway)"  # the process of Spark
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [last, "[]", "None"]


def test_what_they_print_is_what_spark_prints(
    made: Any, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[Any]] = [
        ["show", made.file, "resolved_join", "--order-by", "id DESC", "--all", "--limit", 2],
        ["show", made.file, "verdicts", "--batch", 0, "--order-by", "_fk_pk_id", "--columns", "_fk_verdict,_fk_pk_id"],
        ["show", made.file, "left_changelog", "--where", "id = 2", "--format", "json"],
        ["quarantine", made.file, "--side", "left", "--format", "json"],
        ["quarantine", made.file, "--limit", "2"],
    ]
    here = [command(*args) for args in commands]
    exported = [tmp_path / f"{name}{ending}" for ending in (".csv", ".jsonl") for name in ("here", "there")]
    for file in exported[::2]:
        made.pipeline.export_quarantine(file)

    def left(*_: object, **__: object) -> None:
        raise LeftToSpark("it is asked for")

    monkeypatch.setattr("fk_pipeline.readable.ReadablePipeline._relation", left)
    for args, said in zip(commands, here, strict=True):
        by_spark = command(*args)
        assert (by_spark.status, by_spark.out) == (0, said.out)
        assert by_spark.err.splitlines()[0] == "Spark reads it: it is asked for."
    told: list[str] = []
    for there, file in zip(exported[1::2], exported[::2], strict=True):
        made.pipeline.export_quarantine(there, notify=told.append)
        assert there.read_bytes() == file.read_bytes()
        assert there.stat().st_mode == file.stat().st_mode
    assert told == ["it is asked for"] * 2


def test_a_condition_with_a_function_is_answered_by_spark_and_says_so(made: Any, command: Callable[..., Any]) -> None:
    said = command("show", made.file, "resolved_join", "--where", "length(v) = 0", "--format", "json")
    assert json.loads(said.out) == [{"id": 10, "v": "", "name": "B"}]
    assert said.err.splitlines()[0].startswith("Spark reads it: 'LENGTH(v) = 0'")


@pytest.mark.parametrize("args", [["explain", "--key", "2"], ["impact", "--right-key", "a"]])
def test_what_spark_has_to_tell_is_told_by_spark_and_says_so(
    made: Any, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    here = command(args[0], made.file, *args[1:])

    def left(*_: object, **__: object) -> None:
        raise LeftToSpark("it is asked for")

    monkeypatch.setattr("fk_pipeline.readable.answer_in_process", left)
    by_spark = command(args[0], made.file, *args[1:])
    assert (by_spark.status, by_spark.out) == (here.status, here.out)
    assert by_spark.err.splitlines()[0] == "Spark reads it: it is asked for."


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--columns", "id,nope"], "there is no column 'nope'"),
        (["--order-by", "id down"], "'id down' is no order"),
        (["--order-by", "nope"], "there is no column 'nope'"),
    ],
)
def test_a_column_that_the_table_has_not_got_is_refused(
    made: Any, command: Callable[..., Any], args: list[str], told: str
) -> None:
    said = command("show", made.file, "resolved_join", *args)
    assert said.status == 2
    assert told in said.err


def test_records_are_counted_by_side_and_reason(made: Any) -> None:
    listing = made.pipeline.quarantine(limit=2)
    assert (len(listing.rows), listing.records) == (2, 3)
    assert sum(reason["records"] for reason in listing.reasons) in (2, 3)
