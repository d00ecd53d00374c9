"""Not twice: a run of what is due looks again once it has the stage, and leaves what another run has done meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.passes import Pass
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = pytest.mark.spark

FIRST = [Stage.LEFT_CHANGELOG.value]


def attempts(pipeline: Pipeline) -> dict[int, int]:
    ledger = pipeline.ledger()
    return {int(batch): ledger.state(Stage.LEFT_CHANGELOG, batch).attempts for batch in ledger.batches}


def test_what_another_run_has_done_meanwhile_is_left(rows_pipeline: Any) -> None:
    made, told = rows_pipeline("left"), list[str]()
    for batch in range(4):
        made.land(batch, [(batch, "a", "v")])
    other = Pipeline(load_spec(made.file), made.pipeline.session)

    def run(meanwhile: str | None) -> list[str]:
        """Runs what is due; another run does some batches before this one has the stage."""
        rest = [meanwhile]

        def starts(_: Pass, result: Any) -> None:
            if result is None and rest:
                other.run(rest.pop(), FIRST)

        return [str(one.batches) for one in made.pipeline.run(stages=FIRST, progress=starts, tell=told.append)]

    assert run("0..1") == ["2..3"], "a part of it was done"
    assert attempts(made.pipeline) == {0: 1, 1: 1, 2: 1, 3: 1}
    made.land(2, [(2, "a", "w")])
    assert run(None) == [], "all of it was done"
    assert attempts(made.pipeline) == {0: 1, 1: 1, 2: 2, 3: 1}
    assert told[-2:] == [
        "left_changelog of batch 0..3: another run has done this meanwhile, or a part of it",
        "left_changelog of batch 2: another run has done this meanwhile, or a part of it",
    ]
    made.pipeline.run("2", FIRST)
    assert attempts(made.pipeline)[2] == 3, "who names a batch gets it computed"
