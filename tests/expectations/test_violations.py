"""Every expectation is green on what the engine leaves, red on what it must never leave, and silent on what is due."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from expectations.suites import ExpectationNotRunError, TableExpectation, suite_of, validate
from expectations.violations import SAMPLE, Violations, violations
from fk_pipeline.identity import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = pytest.mark.spark

STORE, RESULT = Stage.SUBSCRIPTION_STORE, Stage.RESOLVED_JOIN

PIPELINE_FILE = """
name: checked
join: {join}
left: {{path: left, format: rows, schema: "id INT, ref STRING, v STRING", key: id, op_column: op,
       foreign_key: UPPER(ref)}}
right: {{path: right, format: rows, schema: "k STRING, name STRING", key: k, op_column: op}}
select: [id, v, name]
"""
BATCHES = {
    "left/0.jsonl": [
        *({"op": "u", "id": i, "ref": "ab"[i % 2], "v": "v"} for i in range(8)),
        {"op": "u", "id": 20, "ref": "nowhere", "v": "v"},
        {"op": "u", "id": 21, "ref": None, "v": "v"},
        {"op": "d", "id": 22},
    ],
    "right/0.jsonl": [{"op": "u", "k": "A", "name": "first"}, {"op": "u", "k": "B", "name": "second"}],
}
SECOND_BATCH = {
    "left/1.jsonl": [
        {"op": "u", "id": 0, "ref": "b", "v": "w"},
        {"op": "d", "id": 1},
        {"op": "u", "id": 9, "ref": "a"},
    ],
    "right/1.jsonl": [{"op": "u", "k": "B", "name": "third"}],
}


def land(folder: Path, files: dict[str, list[dict[str, object]]]) -> None:
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_once(folder: Path, spark: SparkSession, join: str) -> Pipeline:
    (folder / "pipeline.yaml").write_text(PIPELINE_FILE.format(join=join))
    land(folder, BATCHES)
    pipeline = Pipeline(load_spec(folder / "pipeline.yaml"), spark)
    pipeline.run()
    return pipeline


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Pipeline:
    """An inner join with one batch done; a test leaves it as it found it."""
    return run_once(tmp_path_factory.mktemp("inner"), spark, "inner")


@pytest.fixture
def own(inner: Pipeline, tmp_path: Path, spark: SparkSession) -> Pipeline:
    """A copy of it that a test may change."""
    folder = shutil.copytree(inner.spec.file.parent, tmp_path / "own")
    return Pipeline(load_spec(folder / "pipeline.yaml"), spark)


@contextmanager
def tampered(pipeline: Pipeline, table: str, statement: str) -> Iterator[None]:
    """Another hand changes a table, and takes it back."""
    version = pipeline.runner.warehouse.version(table)
    place = f"delta.`{pipeline.runner.warehouse.path(table)}`"
    pipeline.session.sql(statement.format(table=place))
    try:
        yield
    finally:
        pipeline.session.sql(f"RESTORE TABLE {place} TO VERSION AS OF {version}").collect()


def red(pipeline: Pipeline, stage: Stage) -> dict[str, list[int]]:
    """The expectations that fail, with the left keys of their samples."""
    found = violations(pipeline, stage)
    holds = validate(found.frame(), suite_of(pipeline.spec, stage))
    assert holds == {name: not count for name, count in found.counts.items()}
    return {name: [json.loads(row["key"])["id"] for row in found.samples[name]] for name in holds if not holds[name]}


def scan(pipeline: Pipeline) -> dict[Stage, Violations]:
    return {stage: violations(pipeline, stage) for stage in (STORE, RESULT)}


def test_all_is_green_after_a_run(inner: Pipeline) -> None:
    found = scan(inner)
    assert red(inner, STORE) == red(inner, RESULT) == {}
    assert (found[STORE].rows, found[RESULT].rows) == (11, 8)
    assert not any(sum(one.pending.values()) for one in found.values())


def test_a_left_join_keeps_its_unmatched_rows_and_misses_none(tmp_path: Path, spark: SparkSession) -> None:
    left = run_once(tmp_path, spark, "left")
    assert violations(left, RESULT).rows == 10
    assert red(left, STORE) == red(left, RESULT) == {}
    with tampered(left, "resolved_join", "DELETE FROM {table} WHERE id = 21"):
        assert red(left, RESULT) == {"no_missing_row": [21]}


def test_a_table_that_is_not_there_yet_breaks_nothing(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE_FILE.format(join="inner"))
    found = scan(Pipeline(load_spec(tmp_path / "pipeline.yaml"), spark))
    assert [one.rows for one in found.values()] == [0, 0]
    assert not any(sum(one.counts.values()) for one in found.values())


@pytest.mark.parametrize(
    ("table", "statement", "stage", "expected"),
    [
        (
            "subscription_store",
            "UPDATE {table} SET _fk_hash = UNHEX(MD5('x')) WHERE _fk_pk_id = 3",
            STORE,
            {"hash_is_that_of_the_changelog_row": [3]},
        ),
        (
            "subscription_store",
            "UPDATE {table} SET _fk_owner = 7 WHERE _fk_pk_id = 22",
            STORE,
            {"hash_is_that_of_the_changelog_row": [22]},
        ),
        (
            "subscription_store",
            "UPDATE {table} SET _fk_fk_k = 'B' WHERE _fk_pk_id = 4",
            STORE,
            {"foreign_key_is_that_of_the_changelog_row": [4]},
        ),
        (
            "left_changelog",
            "UPDATE {table} SET v = 'x' WHERE id = 2",
            STORE,
            {"hash_is_that_of_the_changelog_row": [2]},
        ),
        (
            "subscription_store",
            "INSERT INTO {table} SELECT * FROM {table} WHERE _fk_pk_id = 5",
            STORE,
            {"one_row_per_left_key": [5, 5]},
        ),
        (
            "resolved_join",
            "UPDATE {table} SET _fk_right_hash = UNHEX(MD5('x')) WHERE id = 3",
            RESULT,
            {"no_stale_row": [3]},
        ),
        ("resolved_join", "DELETE FROM {table} WHERE id IN (6, 4)", RESULT, {"no_missing_row": [4, 6]}),
        (
            "resolved_join",
            "INSERT INTO {table} SELECT * REPLACE (22 AS _fk_pk_id) FROM {table} WHERE id = 1",
            RESULT,
            {"no_row_for_a_deleted_key": [22]},
        ),
        (
            "resolved_join",
            "INSERT INTO {table} SELECT * REPLACE (20 AS _fk_pk_id) FROM {table} WHERE id = 1",
            RESULT,
            {"no_inner_row_without_match": [20]},
        ),
        (
            "resolved_join",
            "INSERT INTO {table} SELECT * FROM {table} WHERE id = 5",
            RESULT,
            {"one_row_per_left_key": [5, 5]},
        ),
    ],
)
def test_only_the_expectation_that_is_broken_is_red_until_it_is_undone(
    inner: Pipeline, table: str, statement: str, stage: Stage, expected: dict[str, list[int]]
) -> None:
    with tampered(inner, table, statement):
        assert red(inner, stage) == expected
    assert sum(violations(inner, stage).counts.values()) == 0


def test_a_sample_shows_what_was_found_and_what_was_expected_and_stays_small(inner: Pipeline) -> None:
    with tampered(inner, "resolved_join", "INSERT INTO {table} SELECT t.* FROM {table} t, RANGE(5)"):
        found = violations(inner, RESULT)
    assert found.counts["one_row_per_left_key"] == found.rows == 48
    sample = found.samples["one_row_per_left_key"]
    assert len(sample) == SAMPLE
    assert sample[0] == {"key": '{"id":0}', "found": "6 rows", "expected": "1 row"}


def test_half_a_batch_is_pending_and_breaks_nothing(own: Pipeline) -> None:
    land(own.spec.file.parent, SECOND_BATCH)
    own.run("1", ["left_changelog", "subscription_store"])
    found = scan(own)
    assert red(own, STORE) == red(own, RESULT) == {}
    assert found[STORE].pending == dict.fromkeys(found[STORE].counts, 0)
    assert {name: n for name, n in found[RESULT].pending.items() if n} == {
        "no_stale_row": 1,  # 0 refers to another right row
        "no_missing_row": 1,  # 9 is new
        "no_row_for_a_deleted_key": 1,  # 1 is deleted
    }
    own.run("1", ["right_table"])
    assert violations(own, RESULT).pending["no_stale_row"] > 1
    with tampered(own, "resolved_join", "DELETE FROM {table} WHERE id = 2"):
        assert red(own, RESULT) == {"no_missing_row": [2]}, (
            "the due batch does not explain a key that it does not touch"
        )
    with tampered(own, "subscription_store", "UPDATE {table} SET _fk_hash = UNHEX(MD5('x')) WHERE _fk_pk_id = 0"):
        assert red(own, STORE) == {"hash_is_that_of_the_changelog_row": [0]}, "only downstream work is due for it"
    own.run()
    assert not any(sum(one.counts.values()) + sum(one.pending.values()) for one in scan(own).values())


def test_a_rewritten_batch_is_pending_until_its_subscriptions_are_made_anew(own: Pipeline) -> None:
    land(own.spec.file.parent, {"left/0.jsonl": [{"op": "u", "id": 0, "ref": "b", "v": "new"}]})
    own.run("0", ["left_changelog"])
    found = violations(own, STORE)
    assert sum(found.counts.values()) == 0
    assert found.pending["hash_is_that_of_the_changelog_row"] == 11
    own.run()
    assert not any(sum(one.counts.values()) + sum(one.pending.values()) for one in scan(own).values())


def test_an_expectation_that_could_not_be_evaluated_is_an_error_and_not_a_failure() -> None:
    unheard = TableExpectation("no_such_rule", "Nobody counts it.")
    with pytest.raises(ExpectationNotRunError, match="'no_such_rule' could not be evaluated"):
        validate(pd.DataFrame([{"no_stale_row": 0}]), [unheard], where="pipeline checked, table resolved_join")
