"""What every kind must do, whatever it means: a corrupted row turns a check of its own stage red."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fk_pipeline.contract import Role, loaded
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import LeftToSpark, UsageError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.export import export
from fk_pipeline.kinds.registry import KINDS
from fk_pipeline.kinds.window.kind import WINDOW
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.readable import answer_in_process
from fk_pipeline.shown_rows import BATCH_COLUMNS, ShowOptions, read_by_spark, read_in_process
from fk_pipeline.spec import load_spec, quote
from fk_pipeline.store import LEDGER_TABLES
from fk_pipeline.store import schemas as s
from fk_pipeline.store.sizes import MEASURED, Sizes
from fk_pipeline.verify.report import VerifyReport
from tests.any_order.histories import LEFT
from tests.any_order.subjects import SEMI, SUBJECTS, WAYS, Subject, registered
from tests.expectations.world import mutated
from tests.mutations import Copy, Delete, Mutation, Update

pytestmark = pytest.mark.spark


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name != SEMI.name else ()) for name in SUBJECTS],
)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with registered():
        yield SUBJECTS[request.param]


def run(files: list[Path], spark: SparkSession, sizes: Sizes = MEASURED) -> tuple[Pipeline, list[StageRun]]:
    """Runs pipelines; returns the last, which has the result, and its runs."""
    for file in files:
        made = Pipeline(load_spec(file), spark, sizes=sizes)
        runs = made.run()
    return made, runs


@pytest.fixture(scope="module")
def files(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Returns the pipeline files of the kind."""
    return subject.write(tmp_path_factory.mktemp("kind"), subject.joins[-1])


@pytest.fixture(scope="module")
def pipeline(subject: Subject, spark: SparkSession, files: list[Path]) -> Pipeline:
    """Returns a pipeline of the kind with three batches that ran, the second of them written anew."""
    folder, join = files[-1].parent, subject.joins[-1]
    histories = subject.histories(Random(7), 20, sequenced=False)
    landed = {}

    def land(batch: int) -> None:
        for side in subject.sides:
            landed[batch, side] = histories.content(side, 0.7)
            path = folder / "landing" / side / f"{batch}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(landed[batch, side].text(side))

    for batch in range(3):
        land(batch)
    run(files, spark)
    land(1)
    made, _ = run(files, spark)
    expected = subject.expected(histories, landed, join, ())
    assert expected
    assert subject.result(made, join, ()) == expected
    assert subject.stale(made) == []
    return made


QUICK = ("aggregate", "query")
"""A kind with a changelog and a state, and the one without."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in (*KINDS, SEMI.name)]
)
def test_the_result_exists_when_its_stage_has_run_without_rows(name: str, spark: SparkSession, tmp_path: Path) -> None:
    with registered():
        subject = SUBJECTS[name]
        written = subject.write(tmp_path, subject.joins[0])
        for side in subject.sides:
            (tmp_path / "landing" / side).mkdir(parents=True)
            (tmp_path / "landing" / side / "0.jsonl").touch()
        made, runs = run(written, spark)
        stages = made.spec.definition.stage_names
        assert [one.stage for one in runs] == [*stages]
        result = made.runner.layout[made.spec.definition.result.name]
        stored = DeltaTable(f"{made.spec.home}/{result.name}")
        assert [one.name for one in stored.schema().fields] == result.names
        assert stored.metadata().configuration in (result.small_properties, result.delta_properties)  # by its writer
        assert made.ledger().state(stages[-1], 0).versions[f"{result.name} written"] == 0
        assert made.changes(0).count() == 0
        assert made.verify().ok
        assert made.run() == []


def red(pipeline: Pipeline, stage: str, proof: VerifyReport | None = None) -> set[str]:
    """Returns the failing checks of rows of a stage."""
    found = violations(pipeline, stage, proof=proof).findings.items()
    return {name for name, finding in found if finding.value and not name.endswith("share_is_low")}


def test_nothing_is_red_after_a_run(pipeline: Pipeline) -> None:
    assert not any(red(pipeline, stage) for stage in pipeline.spec.definition.stage_names)


def mutations(pipeline: Pipeline, table: str, keys: list[str]) -> dict[str, Mutation]:
    """Returns changes of one living row of a table: it is there twice, it is gone, its hash is another."""
    rows = pipeline.table(table)
    (hash_,) = [name for name in (s.HASH, "_fk_left_hash") if name in rows.columns][:1]
    row = rows.where(f"{hash_} IS NOT NULL").orderBy(*map(quote, keys)).first()
    assert row is not None
    where = " AND ".join(f"{quote(key)} <=> {_literal(row[key])}" for key in keys)
    return {
        "is there twice": Copy(where),
        "is gone": Delete(where),
        "has another hash": Update(where, {hash_: "UNHEX(MD5('another row'))"}),
    }


def _literal(value: Any) -> str:
    """SQL: a value."""
    return f"X'{value.hex()}'" if isinstance(value, bytes) else json.dumps(value)


@pytest.mark.slow  # of each kind: expectations/test_mutations.py, test_aggregate.py, query/test_checks.py
def test_a_corrupted_row_turns_a_check_of_its_stage_red(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = pipeline.spec.definition
    # The proof is of good rows: other checks find the bad ones, too, unless no log is kept to compare them with.
    proof = pipeline.verify() if kind.logged else None
    assert proof is None or proof.ok
    for table in kind.tables:
        if table.role not in (Role.LOG, Role.STATE, Role.RESULT, Role.BLOCK):
            continue
        keys = [*loaded(kind.keys)(pipeline.spec, table.name).keys]
        if table.role is Role.LOG:
            assert table.of is not None
            keys = [s.BATCH, *(c.name for c in pipeline.spec.side(table.of).key_columns)]
        for what, mutation in mutations(pipeline, table.name, keys).items():
            if table.role is Role.BLOCK and isinstance(mutation, Delete):
                continue  # it is found by the proof, once the result is made of the block
            with mutated(monkeypatch, {table.name: mutation}):
                assert red(pipeline, str(table.stage), proof), f"{table.name}: a row {what}, and no check is red"


@pytest.mark.slow
def test_a_batch_without_a_match_runs_on_whole_tables(
    pipeline: Pipeline, files: list[Path], spark: SparkSession
) -> None:
    spec = pipeline.spec
    before = pipeline.table(spec.definition.result.name).count()
    (spec.file.parent / "landing" / LEFT / "3.jsonl").write_text('{"op": "u", "id": 999, "fk": "nobody", "at": 1}\n')
    made, _ = run(files, spark, WAYS["whole tables"])
    more = made.table(spec.definition.result.name).count() - before
    assert (more > 0) == (getattr(spec, "join", None) != "inner")
    assert made.verify().ok


def test_this_process_tells_every_story_as_spark_does(
    pipeline: Pipeline, subject: Subject, told_alike: Callable[..., Any]
) -> None:
    chooses = any(pipeline.spec.side(side).where is not None for side in pipeline.spec.sides)
    if chooses or not subject.kind.explain_in_process:
        with pytest.raises(LeftToSpark, match=r"(told|evaluated) by Spark"):
            answer_in_process(pipeline, "", "1")
        return
    keys = [subject.explained(subject.joins[-1], key) for key in range(5)]
    if subject.kind is WINDOW or getattr(pipeline.spec, "outer", False):
        keys += [f"right.{row['k']}" for row in pipeline.table("right_table").orderBy("k").limit(3).collect()]
    stories = [told_alike(pipeline, key) for key in keys]
    assert all(story.as_expected for story in stories)
    assert len({str(story.sentences()) for story in stories}) > 2


def test_this_process_reads_every_table_as_spark_does(pipeline: Pipeline, tmp_path: Path) -> None:
    tables = [*(one.name for one in pipeline.spec.definition.tables), *LEDGER_TABLES]
    rows = 0
    for name in tables:
        choice = ShowOptions(name, everything=True, limit=1_000_000)
        stored, by_spark = read_in_process(pipeline, choice), read_by_spark(pipeline, choice)
        columns, found = stored.columns, stored.rows
        assert columns == by_spark.columns or not (found or by_spark.rows), name
        assert sorted(map(repr, found)) == sorted(map(repr, by_spark.rows)), name
        rows += len(found)
        batch = next((column for column in BATCH_COLUMNS if column in columns), None)
        if batch is not None:
            of_batch = [repr(row) for row in found if row[columns.index(batch)] == 1]
            assert sorted(map(repr, read_in_process(pipeline, replace(choice, batch=1)).rows)) == sorted(of_batch), name
    assert rows > 50
    changes = [ShowOptions("changes", batch, everything=True, limit=1_000_000) for batch in range(3)]
    changes.append(ShowOptions("changes", since="2020-01-01", everything=True, limit=1_000_000))
    for choice in changes:
        with suppress(LeftToSpark):
            stored, by_spark = read_in_process(pipeline, choice), read_by_spark(pipeline, choice)
            assert stored.columns == by_spark.columns
            assert sorted(map(repr, stored.rows)) == sorted(map(repr, by_spark.rows))
    shown = pipeline.show(limit=3, notify=pytest.fail).columns
    assert shown == pipeline.result().columns == [output.name for output in pipeline.spec.outputs]
    for ending in (".jsonl", ".csv", ".parquet", ".delta"):
        here, there = tmp_path / f"here{ending}", tmp_path / f"there{ending}"
        pipeline.export(here, pytest.fail)
        export(pipeline.table(pipeline.spec.definition.result.name), pipeline.spec, there)
        if ending == ".parquet":
            assert pq.read_table(here).equals(pq.read_table(there))
        elif ending == ".delta":
            assert DeltaTable(here).schema() == DeltaTable(there).schema()
            assert DeltaTable(here).to_pyarrow_table().equals(DeltaTable(there).to_pyarrow_table())
        else:
            assert here.read_bytes() == there.read_bytes()
            assert here.stat().st_size
    if pipeline.spec.definition.rejecting:
        spoiled = pipeline.quarantined().limit(1000).collect()
        assert pipeline.quarantined_in_process().to_pylist() == [row.asDict() for row in spoiled]
    else:
        with pytest.raises(UsageError, match="has no quarantine"):
            pipeline.quarantined_in_process()
