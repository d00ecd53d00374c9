"""Every expectation is green on what the engine leaves, red on what it must never leave, and silent on what is due."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from expectations.suites import suite_of, validate
from expectations.violations import SAMPLE, Violations, violations
from fk_pipeline.identity import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = pytest.mark.spark

STORE, RESULT = Stage.SUBSCRIPTION_STORE, Stage.RESOLVED_JOIN

PIPELINE_FILE = """
name: checked
join: inner
left: {path: left, format: rows, schema: "id INT, ref STRING, v STRING", key: id, op_column: op,
       foreign_key: UPPER(ref)}
right: {path: right, format: rows, schema: "k STRING, name STRING", key: k, op_column: op}
select: [id, v, name]
"""
FIRST_BATCH = {
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


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Pipeline:
    """An inner join with one batch done; a test leaves it as it found it."""
    folder = tmp_path_factory.mktemp("inner")
    (folder / "pipeline.yaml").write_text(PIPELINE_FILE)
    land(folder, FIRST_BATCH)
    pipeline = Pipeline(load_spec(folder / "pipeline.yaml"), spark)
    pipeline.run()
    return pipeline


@pytest.fixture
def own(inner: Pipeline, tmp_path: Path, spark: SparkSession) -> Pipeline:
    """A copy of it that a test may change."""
    folder = shutil.copytree(inner.spec.file.parent, tmp_path / "own")
    return Pipeline(load_spec(folder / "pipeline.yaml"), spark)


def place(pipeline: Pipeline, name: str) -> str:
    return f"delta.`{pipeline.runner.warehouse.path(name)}`"


def tamper(pipeline: Pipeline, statements: dict[str, list[str]]) -> None:
    """Another hand changes tables."""
    for name, changes in statements.items():
        for change in changes:
            pipeline.session.sql(change.format(table=place(pipeline, name)))


@contextmanager
def tampered(pipeline: Pipeline, statements: dict[str, list[str]]) -> Iterator[None]:
    """Another hand changes tables, and takes it back."""
    versions = {name: pipeline.runner.warehouse.version(name) for name in statements}
    try:
        tamper(pipeline, statements)
        yield
    finally:
        for name, version in versions.items():
            table = place(pipeline, name)
            pipeline.session.sql(f"INSERT OVERWRITE {table} SELECT * FROM {table} VERSION AS OF {version}")


def red(pipeline: Pipeline, stage: Stage, found: Violations | None = None) -> dict[str, list[int]]:
    """The expectations that fail, with the left keys of their samples."""
    found = found or violations(pipeline, stage)
    holds = validate(found.frame(), suite_of(pipeline.spec, stage))
    assert holds == {name: not count for name, count in found.counts.items()}
    return {name: [json.loads(row["key"])["id"] for row in found.samples[name]] for name in holds if not holds[name]}


def scan(pipeline: Pipeline) -> dict[Stage, Violations]:
    return {stage: violations(pipeline, stage) for stage in (STORE, RESULT)}


def test_all_is_green_after_a_run(inner: Pipeline) -> None:
    found = scan(inner)
    assert red(inner, STORE, found[STORE]) == red(inner, RESULT, found[RESULT]) == {}
    assert (found[STORE].rows, found[RESULT].rows) == (11, 8)
    assert not any(sum(one.pending.values()) for one in found.values())


def test_a_table_that_is_not_there_yet_breaks_nothing(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE_FILE)
    found = scan(Pipeline(load_spec(tmp_path / "pipeline.yaml"), spark))
    assert [one.rows for one in found.values()] == [0, 0]
    assert not any(sum(one.counts.values()) for one in found.values())


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (
            {
                "subscription_store": [
                    "UPDATE {table} SET _fk_hash = UNHEX(MD5('x')) WHERE _fk_pk_id = 3",
                    "UPDATE {table} SET _fk_owner = 7 WHERE _fk_pk_id = 22",
                    "UPDATE {table} SET _fk_fk_k = 'B' WHERE _fk_pk_id IN (4, 21)",
                    "INSERT INTO {table} SELECT * FROM {table} WHERE _fk_pk_id = 5",
                ],
                "left_changelog": ["UPDATE {table} SET v = 'x' WHERE id = 2"],
            },
            {
                STORE: {
                    "hash_is_that_of_the_changelog_row": [2, 3, 22],
                    "foreign_key_is_that_of_the_changelog_row": [4, 21],
                    "one_row_per_left_key": [5, 5],
                },
                RESULT: {"no_stale_row": [3, 4], "no_missing_row": [21]},
            },
        ),
        (
            {
                "resolved_join": [
                    "UPDATE {table} SET _fk_left_hash = UNHEX(MD5('x')) WHERE id = 2",
                    "UPDATE {table} SET _fk_right_hash = IF(id = 3, UNHEX(MD5('x')), NULL) WHERE id IN (3, 7)",
                    "DELETE FROM {table} WHERE id IN (6, 4)",
                    "INSERT INTO {table} SELECT t.* FROM {table} t, RANGE(30) WHERE t.id = 5",
                    "INSERT INTO {table} (_fk_pk_id) VALUES (22), (99), (20)",
                ]
            },
            {
                RESULT: {
                    "no_stale_row": [2, 3, 7],
                    "no_missing_row": [4, 6],
                    "one_row_per_left_key": [5] * SAMPLE,
                    "no_row_for_a_deleted_key": [22, 99],
                    "no_inner_row_without_match": [20],
                }
            },
        ),
    ],
    ids=["subscription_store", "resolved_join"],
)
def test_every_broken_key_is_in_the_sample_of_its_expectation_until_it_is_mended(
    inner: Pipeline, statements: dict[str, list[str]], expected: dict[Stage, dict[str, list[int]]]
) -> None:
    with tampered(inner, statements):
        found = {stage: violations(inner, stage) for stage in expected}
    assert {stage: red(inner, stage, found[stage]) for stage in expected} == expected
    rows = [row for one in found.values() for sample in one.samples.values() for row in sample]
    assert all(row["found"] != row["expected"] for row in rows)
    assert {stage: red(inner, stage) for stage in expected} == {stage: {} for stage in expected}


def test_half_a_batch_is_pending_and_breaks_nothing_and_excuses_no_other_key(own: Pipeline) -> None:
    land(own.spec.file.parent, SECOND_BATCH)
    own.run("1", ["left_changelog", "subscription_store"])
    found = scan(own)
    assert red(own, STORE, found[STORE]) == red(own, RESULT, found[RESULT]) == {}
    assert found[STORE].pending == dict.fromkeys(found[STORE].counts, 0)
    assert {name: n for name, n in found[RESULT].pending.items() if n} == {
        "no_stale_row": 1,  # 0 refers to another right row
        "no_missing_row": 1,  # 9 is new
        "no_row_for_a_deleted_key": 1,  # 1 is deleted
    }
    tamper(
        own,
        {
            "resolved_join": ["DELETE FROM {table} WHERE id = 2"],
            # Answers to it are still due, but they do not mend a subscription.
            "subscription_store": ["UPDATE {table} SET _fk_hash = UNHEX(MD5('x')) WHERE _fk_pk_id = 0"],
        },
    )
    assert red(own, RESULT) == {"no_missing_row": [2]}
    assert red(own, STORE) == {"hash_is_that_of_the_changelog_row": [0]}


def test_a_rewritten_batch_is_pending_until_its_subscriptions_are_made_anew(own: Pipeline) -> None:
    land(own.spec.file.parent, {"left/0.jsonl": [{"op": "u", "id": 0, "ref": "b", "v": "new"}]})
    own.run("0", ["left_changelog"])
    found = violations(own, STORE)
    assert sum(found.counts.values()) == 0
    assert found.pending["hash_is_that_of_the_changelog_row"] == 11
