"""`plan` says what a run then does, and why; and what an edited pipeline file needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fk_pipeline.cli.plan import as_json, print_plan
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.passes import Pass
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = pytest.mark.spark


def passes(made: Any) -> list[tuple[Stage, str]]:
    return [(stage.stage, str(part)) for stage in made.pipeline.plan().stages for part in stage.passes]


def run(made: Any) -> list[tuple[Stage, str]]:
    return [(done.stage, str(done.batches)) for done in made.pipeline.run()]


def numbers(made: Any, *args: Any, **options: Any) -> list[tuple[int, int]]:
    """Of each pass that a run begins: which it is, of how many."""
    begun: list[tuple[int, int]] = []

    def progress(work: Pass, result: object) -> None:
        if result is None:
            begun.append((work.number, work.of))

    made.pipeline.run(*args, progress=progress, **options)
    return begun


@pytest.mark.slow
def test_a_run_knows_from_its_first_pass_how_many_it_makes(rows_pipeline: Callable[..., Any]) -> None:
    made = rows_pipeline("left", settings="{max_batches_per_pass: 1}")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.land(1, [(2, "a", "v")])
    assert numbers(made, stages=["left_changelog"]) == [(1, 2), (2, 2)]
    assert numbers(made) == [(i, 8) for i in range(1, 9)]
    assert numbers(made) == []
    assert numbers(made, "0,1", stages=["responses", "resolved_join"]) == [(i, 4) for i in range(1, 5)]
    rebuilt: list[tuple[int, int]] = []
    made.pipeline.rebuild(progress=lambda work, _: rebuilt.append((work.number, work.of)))
    assert rebuilt[::2] == rebuilt[1::2] == [(i, len(rebuilt) // 2) for i in range(1, len(rebuilt) // 2 + 1)]


def test_a_plan_is_what_the_run_does(rows_pipeline: Callable[..., Any]) -> None:
    made = rows_pipeline("left")
    assert made.pipeline.plan().due == 0
    made.land(0, [(i, "a", "v") for i in range(6)], [("a", "A"), ("b", "B")])
    made.land(3, [(1, "b", "v")])
    plan = made.pipeline.plan()
    assert [(stage.strategy, stage.estimated_rows) for stage in plan.stages] == [
        ("incremental", None),
        *[("full", None)] * 4,
    ]
    said = [stage.strategy for stage in plan.stages]
    assert plan.stages[0].why == {0: "a new batch", 3: "a new batch"}
    assert passes(made) == run(made)
    assert [
        row["strategy"]
        for row in made.pipeline.ledger().entries.rows("runs")
        if row["event"] == "succeeded" and row["batch"] == 0
    ] == said
    assert made.pipeline.plan().due == 0
    made.land(0, [(i, "a", "w") for i in range(6)], [("a", "A"), ("b", "B")])
    made.land(5, [], [("a", "A5")])
    plan = made.pipeline.plan()
    why = {stage.stage: {int(batch): reason for batch, reason in stage.why.items()} for stage in plan.stages}
    assert why == {
        Stage.LEFT_CHANGELOG: {0: "its files changed", 5: "a new batch"},
        Stage.RIGHT_TABLE: {5: "a new batch"},
        Stage.SUBSCRIPTION_STORE: {0: "left_changelog will have run", 5: "a new batch"},
        Stage.RESPONSES: {0: "subscription_store will have run", 5: "a new batch"},
        Stage.RESOLVED_JOIN: {0: "responses will have run", 5: "a new batch"},
    }
    (log, table, *_) = plan.stages
    assert [(f.side, f.batch) for f in log.files] == [(Side.LEFT, 0)]
    assert (log.estimated_rows, log.strategy) == (6, "incremental")
    assert table.estimated_rows == 1
    print_plan(plan)
    printed = as_json("tested", plan)
    assert printed["due"] == 9
    assert printed["changed_files"][0]["batch"] == 0
    assert printed["stages"][0]["why"] == {"0": "its files changed", "5": "a new batch"}
    # Batch 3 between them stays as it is; batch 0 has nothing new for the right side.
    both = [(stage, "5" if stage is Stage.RIGHT_TABLE else "0,5") for stage in Stage]
    assert passes(made) == run(made) == both
    assert made.result() == {1: ("v", "B")} | dict.fromkeys((0, 2, 3, 4, 5), ("w", "A5"))


@pytest.mark.slow
def test_what_ran_again_or_was_withdrawn_makes_the_stages_after_it_due(rows_pipeline: Callable[..., Any]) -> None:
    made = rows_pipeline("inner")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.land(1, [(2, "a", "v")], [])
    made.pipeline.run()
    made.pipeline.run("0", ["right_table"])
    plan = made.pipeline.plan()
    assert [(s.stage, dict(s.why)) for s in plan.stages if s.why] == [
        (Stage.RESPONSES, {0: "right_table ran again"}),
        (Stage.RESOLVED_JOIN, {0: "responses will have run"}),
    ]
    made.pipeline.remove_batch(1)
    assert made.pipeline.plan().stages[0].why == {1: "withdrawn"}
    assert passes(made) == run(made)
    assert made.result() == {1: ("v", "A")}


@pytest.mark.slow  # a refused run, with the same rebuild: kinds/table/test_table.py, dagster/test_assets.py
def test_an_edited_file_is_explained_with_the_rebuild_that_mends_it(
    rows_pipeline: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.pipeline.run()
    made.file.write_text(made.file.read_text().replace("join: left", "join: inner"))
    plan = Pipeline(load_spec(made.file)).plan()
    assert plan.stale == {"join": ("left", "inner")}
    stages = "subscription_store,responses,resolved_join"
    assert plan.fix == f"fk-pipeline rebuild {made.file} --from changelog --stages {stages}"
    print_plan(plan)
    assert plan.fix in capsys.readouterr().out.replace("\n", "")
