"""For every rule a row is corrupted: the stated checks turn red, the one of the rule with that key, none upstream.

The corruption is put into what is read, at full depth; `test_cures.py` does the same to stored tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.rules.scan import Scan
from tests.expectations.world import mutated
from tests.mutations import Copy, Delete, Mutation, Several, Update

pytestmark = pytest.mark.spark

LOG, RIGHT, STORE, ANSWERS, RESULT = Stage
PROOF = "resolved_join.rows_are_those_of_the_join"
UNANSWERED = "responses.every_current_pair_has_a_response"
UNDECIDED = "resolved_join.every_response_has_its_verdict"
WRONG_HASH = "UNHEX(MD5('another row'))"
OF_BATCH_1 = "NAMED_STRUCT('arrival', 1)"


@dataclass(frozen=True)
class Case:
    """A corrupted row: where, how, which key; the check of the rule, and those downstream that turn red with it."""

    table: str
    mutation: Mutation
    key: Any
    check: str
    others: frozenset[str] = frozenset()


def case(table: str, mutation: Mutation, key: Any, check: str, *others: str) -> Case:
    return Case(table, mutation, key, check, frozenset(others))


CASES: dict[str, Case] = {
    # ---- left changelog
    "a left row is there twice": case(
        "left_changelog",
        Copy("id = 2"),
        {"batch": 1, "id": 2},
        "left_changelog.one_row_per_key_and_batch",
        "left_changelog.rows_are_those_counted",
    ),
    "a left row loses its key": case(
        "left_changelog",
        Update("id = 3", {"id": "NULL"}),
        {"batch": 1, "id": None},
        "left_changelog.no_null_key",
        "left_changelog.hash_is_that_of_the_row",
        "subscription_store.owner_has_its_row",
        PROOF,
    ),
    "a left row loses its sequence": case(
        "left_changelog",
        Update("id = 9", {"_fk_sequence": "NULL"}),
        {"batch": 2, "id": 9},
        "left_changelog.sequence_is_present",
        "subscription_store.version_is_the_last",
        PROOF,
    ),
    "the hash of a left row is flipped": case(
        "left_changelog",
        Update("id = 2", {"_fk_hash": WRONG_HASH}),
        {"batch": 1, "id": 2},
        "left_changelog.hash_is_that_of_the_row",
    ),
    "a selected value of a left row is changed": case(
        "left_changelog",
        Update("id = 5", {"v": "'x'"}),
        {"batch": 1, "id": 5},
        "left_changelog.hash_is_that_of_the_row",
        "subscription_store.hash_is_that_of_the_changelog_row",
        PROOF,
    ),
    "a deleted left row has values": case(
        "left_changelog",
        Update("id = 1 AND _fk_deleted", {"v": "'x'"}),
        {"batch": 2, "id": 1},
        "left_changelog.no_payload_in_a_tombstone",
    ),
    "a left row does not say whether it is deleted": case(
        "left_changelog",
        Update("id = 9", {"_fk_deleted": "NULL"}),
        {"batch": 2, "id": 9},
        "left_changelog.no_payload_in_a_tombstone",
        "subscription_store.hash_is_that_of_the_changelog_row",
        "subscription_store.foreign_key_is_that_of_the_changelog_row",
        PROOF,
    ),
    "a value of a left row that is not selected is changed": case(
        "left_changelog",
        Update("id = 2", {"note": "'x'"}),
        {"batch": 1, "id": 2},
        "left_changelog.hash_is_that_of_the_row",
    ),
    "the column of the foreign key is changed": case(
        "left_changelog",
        Update("id = 2", {"ref": "'b'"}),
        {"batch": 1, "id": 2},
        "left_changelog.hash_is_that_of_the_row",
        "subscription_store.hash_is_that_of_the_changelog_row",
        "subscription_store.foreign_key_is_that_of_the_changelog_row",
        PROOF,
    ),
    "a left row is gone": case(
        "left_changelog",
        Delete("id = 4"),
        {"batch": 1},
        "left_changelog.rows_are_those_counted",
        "subscription_store.owner_has_its_row",
        PROOF,
    ),
    "a left row loses its batch": case(
        "left_changelog",
        Update("id = 2", {"_fk_batch": "NULL"}),
        {"batch": 1},
        "left_changelog.rows_are_those_counted",
        "subscription_store.owner_has_its_row",
        PROOF,
    ),
    "a left row that a later one replaced is gone": case(
        "left_changelog",
        Delete("id = 0 AND _fk_batch = 1"),
        {"batch": 1},
        "left_changelog.rows_are_those_counted",
    ),
    "a truncate is gone": case(
        "left_changelog",
        Delete("id IS NULL"),
        {"batch": 1},
        "left_changelog.rows_are_those_counted",
        "subscription_store.owner_has_its_row",
        "subscription_store.version_is_the_last",
        PROOF,
    ),
    "a row that nobody sent": case(
        "left_changelog",
        Copy("id = 2", {"id": "99"}),
        {"batch": 1},
        "left_changelog.rows_are_those_counted",
        "left_changelog.hash_is_that_of_the_row",
        "subscription_store.no_missing_row",
        PROOF,
    ),
    # ---- right changelog and right table
    "the hash of a right change is flipped": case(
        "right_changelog",
        Update("k = 'A' AND _fk_batch = 1", {"_fk_hash": WRONG_HASH}),
        {"batch": 1, "k": "A"},
        "right_table.changelog_hash_is_that_of_the_row",
    ),
    "a right change is gone": case(
        "right_changelog",
        Delete("k = 'B' AND _fk_batch = 2"),
        {"batch": 2},
        "right_table.changelog_rows_are_those_counted",
        "right_table.owner_has_its_row",
        "right_table.version_is_the_last",
        PROOF,
    ),
    "a right change is there twice": case(
        "right_changelog",
        Copy("k = 'C' AND _fk_batch = 1"),
        {"batch": 1, "k": "C"},
        "right_table.changelog_one_row_per_key_and_batch",
        "right_table.changelog_rows_are_those_counted",
    ),
    "the hash of a right row is flipped": case(
        "right_table",
        Update("k = 'A'", {"_fk_hash": WRONG_HASH}),
        {"k": "A"},
        "right_table.hash_is_that_of_the_row",
        UNANSWERED,
        "resolved_join.no_stale_row",
    ),
    "a right row keeps an old value": case(
        "right_table",
        Update("k = 'B'", {"name": "'second'"}),
        {"k": "B"},
        "right_table.row_is_that_of_the_changelog",
        "right_table.hash_is_that_of_the_row",
    ),
    "a right row keeps an old value that is not selected": case(
        "right_table",
        Update("k = 'B'", {"note": "'old'"}),
        {"k": "B"},
        "right_table.row_is_that_of_the_changelog",
    ),
    "a right row is there twice": case("right_table", Copy("k = 'A'"), {"k": "A"}, "right_table.one_row_per_right_key"),
    "a right row is gone": case(
        "right_table",
        Delete("k = 'B'"),
        {"k": "B"},
        "right_table.no_missing_row",
        UNANSWERED,
        "resolved_join.no_inner_row_without_match",
    ),
    "a deleted right row has values": case(
        "right_table",
        Update("k = 'C'", {"name": "'third'"}),
        {"k": "C"},
        "right_table.no_payload_in_a_tombstone",
        "right_table.row_is_that_of_the_changelog",
    ),
    "a deleted right row comes back": case(
        "right_table",
        Update(
            "k = 'C'",
            {"name": "'third'", "note": "'n'", "_fk_owner": "1", "_fk_sequence": OF_BATCH_1, "_fk_hash": "{C_HASH}"},
        ),
        {"k": "C"},
        "right_table.version_is_the_last",
        "resolved_join.no_missing_row",
    ),
    "a right row goes back to its version before": case(
        "right_table",
        Update("k = 'B'", {"name": "'second'", "_fk_owner": "1", "_fk_sequence": OF_BATCH_1, "_fk_hash": "{B_HASH}"}),
        {"k": "B"},
        "right_table.version_is_the_last",
        UNANSWERED,
        "resolved_join.no_stale_row",
    ),
    # ---- subscription store
    "the hash of a subscription is flipped": case(
        "subscription_store",
        Update("_fk_pk_id = 2", {"_fk_hash": WRONG_HASH}),
        {"id": 2},
        "subscription_store.hash_is_that_of_the_changelog_row",
        UNANSWERED,
        "resolved_join.no_stale_row",
    ),
    "a subscription is to another right key": case(
        "subscription_store",
        Update("_fk_pk_id = 4", {"_fk_fk_k": "'B'"}),
        {"id": 4},
        "subscription_store.foreign_key_is_that_of_the_changelog_row",
        UNANSWERED,
        "resolved_join.no_stale_row",
    ),
    "a subscription is there twice": case(
        "subscription_store", Copy("_fk_pk_id = 6"), {"id": 6}, "subscription_store.one_row_per_left_key"
    ),
    "a subscription is gone": case(
        "subscription_store",
        Delete("_fk_pk_id = 3"),
        {"id": 3},
        "subscription_store.no_missing_row",
        "resolved_join.no_row_for_a_deleted_key",
    ),
    "a subscription is of a batch that never was": case(
        "subscription_store",
        Update("_fk_pk_id = 2", {"_fk_owner": "7"}),
        {"id": 2},
        "subscription_store.owner_has_its_row",
        "subscription_store.version_is_the_last",
    ),
    "a deleted left row comes back": case(
        "subscription_store",
        Update(
            "_fk_pk_id = 1",
            {"_fk_owner": "1", "_fk_sequence": OF_BATCH_1, "_fk_fk_k": "'B'", "_fk_hash": "{1_HASH}"},
        ),
        {"id": 1},
        "subscription_store.version_is_the_last",
        "subscription_store.instruction_is_that_of_the_change",
        UNANSWERED,
        "resolved_join.no_missing_row",
    ),
    "a subscription asks for less than its change": case(
        "subscription_store",
        Update("_fk_pk_id = 0", {"_fk_instruction": "'PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE'"}),
        {"id": 0},
        "subscription_store.instruction_is_that_of_the_change",
    ),
    "a subscription is of an older generation": case(
        "subscription_store",
        Update("_fk_pk_id = 0", {"_fk_generation": "4"}),
        {"id": 0},
        "subscription_store.version_is_the_last",
    ),
    "a subscription of a key that nobody sent": case(
        "subscription_store",
        Copy("_fk_pk_id = 2", {"_fk_pk_id": "99"}),
        {"id": 99},
        "subscription_store.owner_has_its_row",
        UNANSWERED,
        "resolved_join.no_missing_row",
    ),
    # ---- responses
    "the only response to a pair is dropped": case(
        "responses",
        Delete("_fk_pk_id = 9"),
        {"id": 9},
        UNANSWERED,
        "responses.rows_are_those_counted",
        UNDECIDED,
    ),
    "a response to an older pair is dropped": case(
        "responses",
        Delete("_fk_pk_id = 0 AND _fk_batch = 1"),
        {"batch": 1},
        "responses.rows_are_those_counted",
        UNDECIDED,
    ),
    "a response is there twice": case(
        "responses",
        Copy("_fk_pk_id = 2"),
        {"id": 2, "batch": 1, "cause": "left"},
        "responses.one_answer_per_key_and_cause",
        "responses.rows_are_those_counted",
        UNDECIDED,
    ),
    "a response is about another left row": case(
        "responses", Update("_fk_pk_id = 9", {"_fk_left_hash": WRONG_HASH}), {"id": 9}, UNANSWERED
    ),
    "a response is about another right row": case(
        "responses",
        Update("_fk_pk_id = 3 AND _fk_batch = 2", {"_fk_right_hash": WRONG_HASH}),
        {"id": 3},
        UNANSWERED,
    ),
    # ---- the result
    "a result row is of an older left row": case(
        "resolved_join",
        Update("id = 2", {"_fk_left_hash": WRONG_HASH}),
        {"id": 2},
        "resolved_join.no_stale_row",
    ),
    "a result row is of an older right row": case(
        "resolved_join",
        Update("id = 3", {"_fk_right_hash": WRONG_HASH, "name": "'second'"}),
        {"id": 3},
        "resolved_join.no_stale_row",
        PROOF,
    ),
    "a result row keeps an old right value": case(
        "resolved_join", Update("id = 3", {"name": "'second'"}), {"id": 3}, PROOF
    ),
    "a result row has another foreign key": case(
        "resolved_join",
        Update("id = 7", {"_fk_fk_k": "'A'"}),
        {"id": 7},
        "resolved_join.foreign_key_is_the_current_one",
    ),
    "a result row is there twice": case(
        "resolved_join", Copy("id = 5"), {"id": 5}, "resolved_join.one_row_per_left_key", PROOF
    ),
    "a result row is gone": case("resolved_join", Delete("id = 2"), {"id": 2}, "resolved_join.no_missing_row", PROOF),
    "a result row of a deleted key": case(
        "resolved_join",
        Copy("id = 3", {"id": "1", "_fk_pk_id": "1"}),
        {"id": 1},
        "resolved_join.no_row_for_a_deleted_key",
        PROOF,
    ),
    "an inner row without a match": case(
        "resolved_join",
        Copy("id = 3", {"id": "23", "_fk_pk_id": "23", "_fk_fk_k": "'C'", "name": "'third'"}),
        {"id": 23},
        "resolved_join.no_inner_row_without_match",
        PROOF,
    ),
    "a verdict is gone": case("verdicts", Delete("_fk_pk_id = 1"), {"id": 1, "batch": 2, "cause": "left"}, UNDECIDED),
    "a verdict is no verdict": case(
        "verdicts",
        Update("_fk_pk_id = 1", {"_fk_verdict": "'perhaps'"}),
        {"id": 1, "batch": 2, "cause": "left"},
        UNDECIDED,
    ),
    "a verdict says that a row was written": case(
        "verdicts", Update("_fk_pk_id = 1", {"_fk_verdict": "'joined'"}), {"batch": 2}, UNDECIDED
    ),
    "a verdict is about another answer": case(
        "verdicts",
        Update("_fk_pk_id = 1", {"_fk_pk_id": "9"}),
        {"id": 9, "batch": 2, "cause": "left"},
        UNDECIDED,
    ),
    "a verdict is there twice": case(
        "verdicts", Copy("_fk_pk_id = 1"), {"id": 1, "batch": 2, "cause": "left"}, UNDECIDED
    ),
}


READS: dict[Stage, set[str]] = {
    LOG: {"left_changelog"},
    RIGHT: {"right_changelog", "right_table"},
    STORE: {"left_changelog", "subscription_store", "subscribers"},
    ANSWERS: {"subscription_store", "subscribers", "right_table", "responses"},
    RESULT: {
        *("left_changelog", "right_changelog", "right_table", "subscription_store"),
        *("responses", "resolved_join", "verdicts"),
    },
}
"""The tables that the checks of a stage look at where nothing is due: its own, and some upstream of it."""


def scan(pipeline: Pipeline, batches: BatchRange | None = None, stages: Iterable[Stage] = Stage) -> dict[Stage, Scan]:
    return {stage: violations(pipeline, stage, batches) for stage in stages}


def red(found: Mapping[Stage, Scan]) -> dict[str, list[Any]]:
    """The checks of rows that fail, with the keys of their samples."""
    return {
        f"{stage}.{name}": [json.loads(r["key"]) if isinstance(r["key"], str) else r["key"] for r in finding.sample]
        for stage, one in found.items()
        for name, finding in one.findings.items()
        if finding.value and not name.endswith("share_is_low")
    }


@pytest.fixture(scope="module")
def hashes(whole: Pipeline) -> dict[str, str]:
    """Returns SQL of the hashes of the content that rows had in batch 1, by what stands for them in a mutation."""
    found = {}
    for side, table, key in ((Side.LEFT, "left_changelog", "id"), (Side.RIGHT, "right_changelog", "k")):
        log = with_content(whole.table(table), whole.spec, side)
        for row in log.where("_fk_batch = 1 AND _fk_hash IS NOT NULL").collect():
            found[f"{{{row[key]}_HASH}}"] = f"UNHEX('{bytes(row['_fk_hash']).hex()}')"
    return found


def with_hashes(mutation: Mutation, hashes: Mapping[str, str]) -> Mutation:
    """Returns a mutation with the hashes put in."""
    if not isinstance(mutation, Update):
        return mutation
    return Update(mutation.where, {column: hashes.get(sql, sql) for column, sql in mutation.values.items()})


@dataclass(frozen=True)
class Look:
    """What the checks of a stage found in the pipeline as it is, and the tables that they read."""

    scan: Scan
    read: set[str]


DEPTHS = [None, BatchRange.of(1)]
"""The batches that checks look at: all of the tables, and those of one."""


@pytest.fixture(scope="module")
def looks(whole: Pipeline) -> dict[tuple[BatchRange | None, Stage], Look]:
    """Returns what the checks of each stage find where nothing is wrong, by batches and stage."""
    found = {}
    for batches in DEPTHS:
        for stage in Stage:
            read: set[str] = set()
            with pytest.MonkeyPatch.context() as patch, mutated(patch, {}, read):
                found[batches, stage] = Look(violations(whole, stage, batches), read)
    return found


def test_all_is_green_after_a_run(looks: dict[tuple[BatchRange | None, Stage], Look]) -> None:
    for batches in DEPTHS:
        assert red({stage: looks[batches, stage].scan for stage in Stage}) == {}
    found = [looks[None, stage].scan for stage in Stage]
    assert [one.rows for one in found] == [18, 4, 15, 19, 8]
    assert not any(finding.pending for one in found for finding in one.findings.values())


@pytest.mark.slow
def test_all_is_green_in_a_range_of_batches(whole: Pipeline) -> None:
    assert red(scan(whole, BatchRange.of(0, 2))) == {}


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("batches", DEPTHS, ids=["full", "batch"])
def test_a_check_reads_no_table_downstream_of_its_stage(
    looks: dict[tuple[BatchRange | None, Stage], Look], stage: Stage, batches: BatchRange | None
) -> None:
    read = looks[batches, stage].read
    assert stage.value in read
    assert read <= READS[stage]


TOGETHER = (
    (
        "a left row is there twice",
        "a left row loses its key",
        "a left row loses its sequence",
        "a selected value of a left row is changed",
        "a deleted left row has values",
    ),
    (
        "the hash of a right change is flipped",
        "a right change is gone",
        "a right change is there twice",
        "the only response to a pair is dropped",
        "a response is there twice",
    ),
    (
        "the hash of a right row is flipped",
        "a right row keeps an old value",
        "a deleted right row has values",
        "the hash of a subscription is flipped",
        "a subscription is there twice",
        "a subscription is gone",
        "a subscription asks for less than its change",
        "a subscription is to another right key",
    ),
    (
        "a right row is gone",
        "a right row is there twice",
        "a deleted right row comes back",
        "a subscription is of a batch that never was",
        "a deleted left row comes back",
    ),
    (
        "a result row is of an older right row",
        "a result row has another foreign key",
        "a result row is there twice",
        "an inner row without a match",
        "a verdict is gone",
    ),
    (
        "a result row keeps an old right value",
        "a result row is gone",
        "a result row of a deleted key",
        "a verdict says that a row was written",
    ),
)
"""Cases about different rows that are looked at together, so that each of these rules is shown quickly."""


def looked_at(
    pipeline: Pipeline, cases: Sequence[Case], hashes: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corrupts rows and compares the checks that turn red, and the keys of their samples."""
    corrupted: dict[str, list[Mutation]] = {}
    for case in cases:
        corrupted.setdefault(case.table, []).append(with_hashes(case.mutation, hashes))
    with mutated(monkeypatch, {table: Several(mutations) for table, mutations in corrupted.items()}):
        # The others do not read the tables: see the test before.
        found = scan(pipeline, stages=[stage for stage in Stage if corrupted.keys() & READS[stage]])
    turned = red(found)
    assert set(turned) == set[str]().union(*({case.check, *case.others} for case in cases))
    for case in cases:
        assert case.key in turned[case.check]
    rows = [row for one in found.values() for finding in one.findings.values() for row in finding.sample]
    assert all(row["found"] != row["expected"] for row in rows)


@pytest.mark.parametrize("names", TOGETHER, ids=[f"{CASES[names[0]].table} {names[0]}" for names in TOGETHER])
def test_corrupted_rows_turn_the_stated_checks_red(
    whole: Pipeline, hashes: dict[str, str], names: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at(whole, [CASES[name] for name in names], hashes, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_corrupted_row_turns_these_checks_red_and_no_other(
    whole: Pipeline, hashes: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at(whole, [CASES[name]], hashes, monkeypatch)
