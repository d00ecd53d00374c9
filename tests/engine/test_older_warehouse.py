"""A warehouse that an older version wrote is refused with the one rebuild that mends it, and is whole after it."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.errors import StateError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = pytest.mark.spark

ARCHIVE = Path(__file__).parent.parent / "data" / "older" / "orders.tgz"


@pytest.fixture
def older(tmp_path: Path, spark: Any) -> Pipeline:
    """The pipeline of the archive, in another folder than where it was written, after the rebuild that it asked for."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.0 to 3.11.3
        archive.extractall(tmp_path)
    pipeline = Pipeline(load_spec(tmp_path / "orders.yaml"), spark)
    with pytest.raises(StateError, match="state version was '4', is '5'") as refused:
        pipeline.run()
    stages = ",".join(Stage)
    assert f"fk-pipeline rebuild {pipeline.spec.file} --from changelog --stages {stages}" in refused.value.fix
    pipeline.rebuild("changelog", list(Stage))
    return pipeline


def result(pipeline: Pipeline) -> dict[int, tuple[Any, ...]]:
    rows = pipeline.table("resolved_join").collect()
    return {row["id"]: (row["customer"], str(row["amount"]), row["note"], row["name"]) for row in rows}


def land_the_next(pipeline: Pipeline) -> None:
    folder = Path(pipeline.spec.file).parent
    for side in ("orders", "customers"):
        shutil.move(folder / f"next_{side}.jsonl", folder / "landing" / side / "0003.jsonl")


@pytest.mark.slow
def test_an_older_warehouse_runs_on_after_its_rebuild(older: Pipeline) -> None:
    assert not any(older.due().values())
    land_the_next(older)
    older.run()
    assert result(older) == {
        1: ("b", "10.50", "first", "Bobby"),
        2: ("c", "22.00", "second", "Clea"),
        5: ("a", "55.00", "moved", "Anna"),
        6: ("c", "61.00", "long", "Clea"),
        7: ("b", "70.00", "seventh", "Bobby"),
    }
    assert older.verify().ok
    for stage in Stage:
        red = {name for name, found in violations(older, stage).findings.items() if found.value}
        assert red <= {"quarantined_share_is_low"}, (stage, red)  # one record of a few


@pytest.mark.slow  # the ledger of a folded batch: engine/test_upkeep.py
def test_folded_batches_of_an_older_warehouse_run_again_as_they_were(older: Pipeline) -> None:
    older.run()
    before = result(older)
    for stage in Stage:
        older.runner.run(stage, BatchRange(0, 1))
    assert result(older) == before
    assert older.verify().ok
