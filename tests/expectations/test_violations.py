"""What is legal and stays green, what only some joins have, and what a look at a batch finds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from fk_pipeline.store.sizes import MEASURED, Sizes
from tests.deaths import Killed
from tests.expectations.test_mutations import red, scan
from tests.expectations.world import land, left, make, mutated, right
from tests.mutations import Copy, Delete, Update

pytestmark = pytest.mark.spark

LOG, RIGHT, STORE, ANSWERS, RESULT = Stage


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Pipeline:
    """A left join in one range run; a test leaves it as it found it."""
    pipeline = make(tmp_path_factory.mktemp("done"), spark, "left")
    pipeline.run()
    return pipeline


@pytest.fixture
def own(done: Pipeline, tmp_path: Path, spark: SparkSession) -> Pipeline:
    """A copy of it that a test may change."""
    folder = shutil.copytree(done.spec.file.parent, tmp_path / "own")
    return Pipeline(load_spec(folder / "pipeline.yaml"), spark)


def pending(pipeline: Pipeline, stage: Stage) -> dict[str, int]:
    found = violations(pipeline, stage).findings
    return {name: finding.pending for name, finding in found.items() if finding.pending}


@pytest.mark.slow
def test_tables_that_are_not_there_yet_break_nothing(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = make(tmp_path, spark)
    pipeline.run("0", ["left_changelog"])
    found = scan(pipeline)
    assert red(found) == {}
    assert [one.rows for one in found.values()] == [2, 0, 0, 0, 0]


@pytest.mark.slow
def test_half_a_batch_is_pending_and_excuses_no_other_key(own: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    land(own.spec.file.parent, {"left/3.jsonl": [left(3, "a", "w"), left(4, op="d"), left(30, "b")]})
    own.run("3", ["left_changelog"])
    assert red(scan(own)) == {}
    assert pending(own, STORE) == {"version_is_the_last": 2, "no_missing_row": 1}
    own.run("3", ["subscription_store"])
    assert red(scan(own)) == {}
    assert pending(own, STORE) == {}
    assert pending(own, ANSWERS) == {"every_current_pair_has_a_response": 3}
    assert pending(own, RESULT) == {
        "no_stale_row": 1,
        "no_missing_row": 1,
        "no_row_for_a_deleted_key": 1,
        "rows_are_those_of_the_join": 3,
    }
    # Answers to 3 are still due, but they do not mend a subscription; and 2 has nothing to wait for.
    with mutated(
        monkeypatch,
        {"resolved_join": Delete("id = 2"), "subscription_store": Update("_fk_pk_id = 3", {"_fk_hash": "NULL"})},
    ):
        turned = red(scan(own))
    assert turned["subscription_store.hash_is_that_of_the_changelog_row"] == [{"id": 3}]
    assert turned["resolved_join.no_missing_row"] == [{"id": 2}]


@pytest.mark.slow
def test_half_a_right_batch_is_pending_too(own: Pipeline) -> None:
    land(own.spec.file.parent, {"right/3.jsonl": [right("A", "fourth"), right("B")]})
    own.run("3", ["right_table"])
    assert red(scan(own)) == {}
    assert pending(own, RESULT)["no_stale_row"] == 8
    own.run("3", ["responses"])
    assert red(scan(own)) == {}
    assert pending(own, ANSWERS) == {}
    assert pending(own, RESULT)["no_stale_row"] == 8


@pytest.mark.slow
def test_a_rewritten_and_a_withdrawn_batch_are_pending_until_they_have_run(own: Pipeline) -> None:
    land(own.spec.file.parent, {"left/1.jsonl": [left(0, "b", "new")]})
    own.run("1", ["left_changelog"])
    assert red(scan(own)) == {}
    assert pending(own, STORE)
    own.run()
    own.remove_batch(2)
    own.run(None, ["left_changelog", "right_table"])
    assert red(scan(own)) == {}
    own.run()
    assert red(scan(own)) == {}
    assert not any(pending(own, stage) for stage in Stage)


@pytest.mark.slow
def test_a_batch_that_lies_in_the_landing_folder_only_excuses_nothing(
    own: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(own.spec.file.parent, {"left/3.jsonl": [left(2, "b")]})
    own.discover()
    with mutated(monkeypatch, {"resolved_join": Delete("id = 2")}):
        found = violations(own, RESULT).findings
    assert (found["no_missing_row"].value, found["no_missing_row"].pending) == (1, 0)


BATCH_CASES = {
    "left_changelog": (LOG, Update("id = 9", {"_fk_hash": "NULL"}), "hash_is_that_of_the_row"),
    "right_changelog": (RIGHT, Delete("k = 'B' AND _fk_batch = 2"), "changelog_rows_are_those_counted"),
    "right_table": (RIGHT, Delete("k = 'B'"), "no_missing_row"),
    "subscription_store": (
        STORE,
        Update("_fk_pk_id = 9", {"_fk_fk_k": "'B'"}),
        "foreign_key_is_that_of_the_changelog_row",
    ),
    "subscription_store of a key not brought": (
        STORE,
        Update("_fk_pk_id = 7", {"_fk_owner": "2"}),
        "owner_has_its_row",
    ),
    "subscription_store without a key": (
        STORE,
        Copy("_fk_pk_id = 9", {"_fk_pk_id": "NULL"}),
        "owner_has_its_row",
    ),
    "responses": (ANSWERS, Delete("_fk_pk_id = 9"), "no_missing_answer"),
    "responses too many": (ANSWERS, Copy("_fk_pk_id = 9", {"_fk_pk_id": "7"}), "no_unexpected_answer"),
    "responses about another row": (
        ANSWERS,
        Update("_fk_pk_id = 9", {"_fk_right_hash": "NULL"}),
        "answer_is_about_the_rows_read",
    ),
    "resolved_join": (RESULT, Update("id = 9", {"_fk_right_hash": "NULL"}), "no_stale_row"),
    "resolved_join of a key not answered": (
        RESULT,
        Copy("id = 9", {"_fk_pk_id": "98", "id": "98"}),
        "no_row_for_a_deleted_key",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    ["tables joined", "rows looked up", "by Spark alone", "too many for the driver"],
)
def test_a_look_at_a_batch_finds_what_is_wrong_with_what_it_touched(
    done: Pipeline, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = MEASURED if way == "tables joined" else Sizes(small_rows=0)
    if way in ("by Spark alone", "too many for the driver"):
        sizes = replace(sizes, batch_rows=-1, driver_keys=-1)
    if way == "too many for the driver":
        sizes = replace(sizes, driver_rows=0)
    done = Pipeline(done.spec, done.session, sizes=sizes)
    for place, (stage, mutation, name) in BATCH_CASES.items():
        with mutated(monkeypatch, {place.split()[0]: mutation}):
            found = violations(done, stage, BatchRange.of(2)).findings
            other = violations(done, stage, BatchRange.of(0)).findings
        assert found[name].value == 1, place
        assert not other[name].value or place == "right_changelog", place
    for batches in (BatchRange.of(2), BatchRange.of(0, 1)):
        assert red(scan(done, batches)) == {}


@pytest.mark.slow  # a verdict that is wrong: test_mutations.py
def test_a_look_at_a_batch_counts_its_verdicts(own: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    land(own.spec.file.parent, {"left/3.jsonl": [left(2, op="d"), left(4, op="d")]})
    own.run("3")
    name = "every_response_has_its_verdict"
    with mutated(monkeypatch, {"verdicts": Update("_fk_pk_id = 2", {"_fk_verdict": "'joined'"})}):
        found = {b: violations(own, RESULT, BatchRange.of(b)).findings[name] for b in (1, 2, 3)}
    assert {batch: finding.value for batch, finding in found.items()} == {1: 0, 2: 0, 3: 1}
    counted = "verdicts that are not about written rows"
    assert [(row["found"], row["expected"]) for row in found[3].sample] == [(f"1 {counted}", f"2 {counted}")]


@pytest.mark.slow
def test_the_index_of_a_large_store_is_compared_with_it(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(tmp_path, spark, sizes=Sizes(indexed_rows=2))
    pipeline.run("0,1,2")
    assert red(scan(pipeline)) == {}
    pipeline = Pipeline(pipeline.spec, spark, sizes=Sizes(indexed_rows=2, small_rows=0))
    for batch in range(3):
        assert red(scan(pipeline, BatchRange.of(batch))) == {}
    with mutated(monkeypatch, {"subscribers": Delete("_fk_pk_id = 3")}):
        assert red({STORE: violations(pipeline, STORE)}) == {"subscription_store.subscribers_are_indexed": [{"id": 3}]}


def test_shares_come_from_what_the_ledger_counted(own: Pipeline) -> None:
    folder = own.spec.file.parent
    land(folder, {"left/3.jsonl": [left(40, "a")], "left/4.jsonl": [left(40, "b")]})
    with (folder / "left/3.jsonl").open("a") as file:
        file.write("not a row\n")
    own.run("4,3", [LOG, STORE])
    batch = violations(own, LOG, BatchRange.of(3)).findings["quarantined_share_is_low"]
    assert (batch.value, batch.sample) == (0.5, ())
    assert 0 < violations(own, LOG).findings["quarantined_share_is_low"].value < 0.1
    assert violations(own, STORE, BatchRange.of(3)).findings["late_share_is_low"].value == 1
    assert violations(own, STORE, BatchRange.of(4)).findings["late_share_is_low"].value == 0


@pytest.mark.slow
def test_a_batch_that_changed_nothing_is_looked_at_without_inferring_a_schema(
    own: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark Connect refuses to infer one from no rows."""
    land(own.spec.file.parent, {"left/7.jsonl": [left(70, "a")], "left/8.jsonl": [left(70, "a")]})
    own.run("8,7")
    own = Pipeline(own.spec, own.session, sizes=Sizes(small_rows=0))
    kind = type(own.session)
    create = kind.createDataFrame

    def strictly(session: SparkSession, data: Any, schema: Any = None, **more: Any) -> Any:
        assert schema is not None or len(data), "no rows and no schema"
        return create(session, data, schema, **more)

    monkeypatch.setattr(kind, "createDataFrame", strictly)
    for stage in Stage:
        assert not [one for one in violations(own, stage, BatchRange.of(7)).findings.values() if one.sample]


def test_a_value_that_debezium_did_not_send_is_a_hole(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "name: holes\njoin: left\n"
        'left: {path: left, schema: "id INT, ref STRING, v STRING", key: id, foreign_key: ref}\n'
        'right: {path: right, format: rows, schema: "k STRING", key: k}\n'
    )
    after = {"id": 1, "ref": "a", "v": "__debezium_unavailable_value"}
    for name, rows in {"left/0.jsonl": [{"op": "u", "before": None, "after": after}], "right/0.jsonl": []}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    pipeline = Pipeline(load_spec(tmp_path / "pipeline.yaml"), spark)
    pipeline.run(None, [LOG])
    finding = violations(pipeline, LOG).findings["holes_are_filled"]
    place = {"batch": 0, "id": 1}
    assert (finding.value, [json.loads(row["key"]) for row in finding.sample]) == (1, [place])


@pytest.mark.slow
def test_a_row_on_which_the_foreign_key_fails_is_told_and_not_met(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(tmp_path, spark)
    file = pipeline.spec.file
    file.write_text(file.read_text().replace("UPPER(ref)", "UPPER(ref || CAST(1 / LENGTH(note) AS INT))"))
    pipeline = Pipeline(load_spec(file), spark)
    pipeline.run(None, [LOG, STORE])
    with mutated(monkeypatch, {"left_changelog": Update("id = 2", {"note": "''"})}):
        assert red({LOG: violations(pipeline, LOG), STORE: violations(pipeline, STORE)}) == {
            "left_changelog.hash_is_that_of_the_row": [{"batch": 1, "id": 2}],
            "subscription_store.foreign_key_is_that_of_the_changelog_row": [{"id": 2}],
            "subscription_store.hash_is_that_of_the_changelog_row": [{"id": 2}],
        }


@pytest.mark.slow
def test_a_pair_in_the_quarantine_is_not_missing(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = make(tmp_path, spark)
    file = pipeline.spec.file
    file.write_text(file.read_text().replace("[id, v, name]", "[id, '1 / (id - 3) AS v', name]"))
    pipeline = Pipeline(load_spec(file), spark)
    pipeline.run("0,1,2")
    assert red(scan(pipeline)) == {}
    assert red(scan(pipeline, BatchRange.of(2))) == {}
    assert violations(pipeline, RESULT).rows == 7


@pytest.mark.slow
def test_the_checks_open_the_tables_between_two_looks_at_what_is_due(
    own: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends while the tables are opened explains what they show."""
    land(own.spec.file.parent, {"left/3.jsonl": [left(3, "a", "w")]})
    pin = CheckReader.pin
    other = Pipeline(own.spec, own.session)

    def pinned(self: CheckReader, name: str) -> None:
        if name == "responses":
            other.run("3", ["left_changelog", "subscription_store"])
        pin(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(CheckReader, "pin", pinned)
        found = violations(own, RESULT)
    assert red({RESULT: found}) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage", [LOG, pytest.param(RIGHT, marks=pytest.mark.slow), pytest.param(ANSWERS, marks=pytest.mark.slow)]
)
def test_a_first_run_that_died_after_its_commit_is_pending(own: Pipeline, stage: Stage) -> None:
    land(own.spec.file.parent, {"left/3.jsonl": [left(3, "a", "w")], "right/3.jsonl": [right("A", "fourth")]})
    for before in list(Stage)[: list(Stage).index(stage)]:
        own.run("3", [before])

    def die(point: str) -> None:
        if point == f"after commit of {'right_changelog' if stage is RIGHT else stage}":
            raise Killed

    with faults.listening(die), pytest.raises(Killed):
        own.run("3", [stage])
    assert stage in {one for one, batches in own.due().items() if 3 in batches}
    assert red(scan(own)) == {}
    own.run()
    assert red(scan(own)) == {}


@pytest.mark.slow
def test_a_batch_that_ran_before_a_table_was_there_is_looked_at_without_it(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = make(tmp_path, spark)
    for file in tmp_path.glob("*/*.jsonl"):
        file.unlink()
    land(tmp_path, {"right/0.jsonl": [right("A", "first")]})
    pipeline.run()
    land(tmp_path, {"left/1.jsonl": [left(1, "a")]})
    pipeline.run()
    assert red(scan(pipeline, BatchRange.of(0))) == {}
    assert red(scan(pipeline, BatchRange.of(0, 1))) == {}
