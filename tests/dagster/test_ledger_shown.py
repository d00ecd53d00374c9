"""The pages of Dagster show what the ledger has, with a real webserver, daemon and Spark (`make test-ui`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fk_pipeline.identity import BatchId
from tests.dagster.graphql import wait
from tests.dagster.servers import ASSETS, RESULT, SENSOR, Served

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.spark]

LEFT = [RESULT[0], "left_changelog"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    made.land(1, 2)
    yield made
    made.down()


def keys(*batches: int) -> list[str]:
    return [BatchId(batch).key for batch in batches]


def test_pages_show_what_the_ledger_has(served: Served) -> None:
    dagster = served.dagster
    served.command("run", str(served.file))
    served.up()
    dagster.sensor(SENSOR, running=True)
    wait(lambda: all(dagster.green(asset) for asset in ASSETS) and dagster.partitions(RESULT) == keys(1, 2))
    assert not dagster.runs(), "the command did the work"

    for batch in (5, 3, 4):
        served.land(batch)
        wait(served.nothing_due, 200)
    wait(lambda: all(dagster.green(asset) for asset in ASSETS) and dagster.partitions(RESULT) == keys(1, 2, 3, 4, 5))
    ledger = served.pipeline().ledger()
    told = {tuple(asset): dagster.figures(asset) for asset in ASSETS}
    for batch in (1, 2, 3, 4, 5):
        counts = ledger.state("resolved_join", batch).counts
        shown = told[tuple(RESULT)][BatchId(batch).key]
        assert {name: shown[name] for name in counts} == dict(counts)

    wait(lambda: {run["status"] for run in dagster.runs()} <= {"SUCCESS"})
    backfill = dagster.backfill(ASSETS, keys(1, 2, 3, 4, 5))
    wait(lambda: dagster.backfill_status(backfill) == "COMPLETED_SUCCESS", 400)
    assert {tuple(asset): dagster.figures(asset) for asset in ASSETS} == told, "plots are what they were"

    dagster.sensor(SENSOR, running=False)
    [file] = (served.demo / "landing" / "flights").glob("*3.jsonl*")
    kept = file.read_bytes()
    shutil.copyfile(next((served.demo / "landing" / "flights").glob("*4.jsonl*")), file)  # batch 3 as batch 4 was
    served.command("dagster", "sync", str(served.file), "--home", str(served.home))
    assert dagster.stale(LEFT, *keys(2, 3)) == keys(3)
    file.write_bytes(kept)
    served.command("run", str(served.file))
    served.command("dagster", "sync", str(served.file), "--home", str(served.home))
    assert dagster.stale(LEFT, *keys(2, 3)) == []

    served.command("remove-batch", str(served.file), "3")
    served.command("run", str(served.file))
    served.command("dagster", "sync", str(served.file), "--home", str(served.home))
    assert dagster.partitions(RESULT) == keys(1, 2, 4, 5)

    before = {tuple(asset): dagster.figures(asset) for asset in ASSETS}
    served.down()
    shutil.rmtree(served.home)
    served.up()
    dagster.sensor(SENSOR, running=True)
    wait(lambda: dagster.partitions(RESULT) == keys(1, 2, 4, 5) and all(dagster.green(asset) for asset in ASSETS))
    for asset in ASSETS:
        assert dagster.figures(asset) == {k: v for k, v in before[tuple(asset)].items() if k != keys(3)[0]}
