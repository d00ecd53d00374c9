"""Stored tables are corrupted, the checks say so, and what they say mends it does mend it."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.errors import CheckFailedError
from fk_pipeline.expectations.checking import check
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.settings import settings, suiting
from tests.expectations.test_mutations import CASES, with_hashes

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CHOSEN = (
    "a left row is there twice",
    "a selected value of a left row is changed",
    "a truncate is gone",
    "a right change is gone",
    "the hash of a right row is flipped",
    "a right row is there twice",
    "a deleted right row comes back",
    "a subscription is to another right key",
    "a subscription is gone",
    "a deleted left row comes back",
    "a subscription of a key that nobody sent",
    "the only response to a pair is dropped",
    "a response is there twice",
    "a response is about another left row",
    "a result row is of an older left row",
    "a result row keeps an old right value",
    "a result row is there twice",
    "a result row of a deleted key",
    "a verdict is gone",
)
"""Of every table, those that differ in what mends them or in how it gets there."""


def red(pipeline: Pipeline) -> set[str]:
    """Checks everything, and records it; the critical expectations that do not hold."""
    check_id = uuid.uuid4().hex
    return {f"{stage}.{one.name}" for stage in Stage for one in check(pipeline, stage, check_id=check_id).failed}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_a_failed_check_names_mends_it(whole: Pipeline, tmp_path: Path, name: str) -> None:
    wanted = CASES[name]
    folder = shutil.copytree(whole.spec.file.parent, tmp_path / "own")
    pipeline = Pipeline(load_spec(folder / "pipeline.yaml"), whole.session)
    table = f"delta.`{pipeline.runner.warehouse.path(wanted.table)}`"
    with settings(pipeline.session, suiting(0)):
        pipeline.session.sql(with_hashes(wanted.mutation, pipeline).sql(table))
    assert red(pipeline) == {wanted.check, *wanted.others}
    tried: list[str] = []
    while failed := pipeline.ledger().checks.failed():
        # The most upstream one first, as an operator would.
        first = min(failed, key=lambda one: list(Stage).index(Stage(one.stage)))
        told = str(check_failed([first], pipeline.spec, pipeline.ledger()))
        tried.append(told)
        assert len(tried) < 6, "\n".join(tried)
        try:
            if f"fk-pipeline run {pipeline.spec.file} --batches {first.batch}" in told:
                pipeline.run(str(first.batch))
            else:
                assert f"fk-pipeline rebuild {pipeline.spec.file} --stages {first.stage}" in told
                pipeline.rebuild("changelog", [first.stage])
            pipeline.run()
        except CheckFailedError:
            continue
        assert not red(pipeline), "\n".join(tried)
    assert not red(pipeline)
    assert pipeline.verify().ok
