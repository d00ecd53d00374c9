"""Backfills, the sensor and crashes, with a real webserver, daemon and Spark Connect server (`make test-ui`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fk_pipeline.environment.spark_address import check_remote
from fk_pipeline.environment.spark_token import token_at
from fk_pipeline.errors import EnvironmentNotFit
from fk_pipeline.identity import BatchId
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.dagster.graphql import wait
from tests.dagster.servers import ASSETS, JOB, PIPELINE, RESULT, SENSOR, Served

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.spark]

ENDED = ("SUCCESS", "FAILURE", "CANCELED")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    made.land(0, 1, 2, 3)
    made.up()
    yield made
    made.down()


def backfilled(served: Served, assets: list[list[str]], *batches: int) -> list[dict[str, object]]:
    """Launches a backfill and waits for its end; its runs."""
    known = {run["runId"] for run in served.dagster.runs()}
    backfill = served.dagster.backfill(assets, [BatchId(batch).key for batch in batches])
    wait(lambda: served.dagster.backfill_status(backfill).startswith("COMPLETED"), 400)
    assert served.dagster.backfill_status(backfill) == "COMPLETED_SUCCESS"
    return [run for run in served.dagster.runs() if run["runId"] not in known]


def test_a_backfill_of_all_history_is_one_run(served: Served) -> None:
    for batch in range(4):
        served.dagster.add_partition(PIPELINE, BatchId(batch).key)
    runs = backfilled(served, ASSETS, 0, 1, 2, 3)
    assert [run["status"] for run in runs] == ["SUCCESS"]
    assert served.nothing_due()
    assert served.proved()["missing"] == 0


def test_the_spark_of_up_takes_its_user_alone_and_the_token_stands_nowhere_else(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = token_at(served.ports[1], served.home)
    assert token is not None
    assert served.sql("SELECT 1") == [[1]]
    files = [file for file in served.home.parent.rglob("*") if file.is_file()]
    assert {file.suffix for file in files if token.encode() in file.read_bytes()} == {".token"}
    assert (served.home / "servers.json") in files
    for process in psutil.process_iter(["cmdline"]):
        assert token not in " ".join(process.info["cmdline"] or ())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # as another user, who cannot read the file
    with pytest.raises(EnvironmentNotFit, match="refuses this client: No authentication token provided"):
        check_remote(served.spark)


def test_a_backfill_with_a_gap_and_one_of_a_single_stage_end_in_the_right_table(served: Served) -> None:
    runs = backfilled(served, ASSETS, 0, 2, 3)
    assert sorted(run["status"] for run in runs) == ["SUCCESS", "SUCCESS"], "one run per side of the gap"
    backfilled(served, [RESULT], 0, 1, 2, 3)
    assert served.nothing_due()
    assert served.proved()["stale"] == 0


def test_a_run_whose_process_is_killed_in_a_backfill_is_retried_by_itself(served: Served) -> None:
    served.land(4, 5)
    served.dagster.add_partition(PIPELINE, BatchId(4).key)
    served.dagster.add_partition(PIPELINE, BatchId(5).key)
    known = {run["runId"] for run in served.dagster.runs()}
    backfill = served.dagster.backfill(ASSETS, [BatchId(batch).key for batch in (3, 4, 5)])

    def at_work() -> str | None:
        """The run of the backfill, as soon as a stage has begun with batch 5."""
        new = [run for run in served.dagster.runs() if run["runId"] not in known]
        begun = served.pipeline().ledger().state(Stage.SUBSCRIPTION_STORE, 5).last_event == "started"
        return new[0]["runId"] if new and begun else None

    run_id = wait(at_work, 200, 0.05)
    served.kill_worker(run_id)
    wait(lambda: served.dagster.backfill_status(backfill).startswith("COMPLETED"), 400)
    assert served.dagster.run(run_id)["status"] == "FAILURE"
    wait(served.nothing_due, 200)
    proof = served.proved()
    assert (proof["missing"], proof["stale"], proof["unexpected"], proof["due"]) == (0, 0, 0, 0)


def test_after_everything_was_killed_up_finds_the_dead_run_and_it_is_retried(served: Served) -> None:
    served.land(6)
    served.dagster.add_partition(PIPELINE, BatchId(6).key)
    run_id = served.dagster.launch(
        JOB, **{"dagster/asset_partition_range_start": "b00000006", "dagster/asset_partition_range_end": "b00000006"}
    )
    wait(lambda: served.pipeline().ledger().state(Stage.RIGHT_TABLE, 6).last_event == "started", 200, 0.05)
    served.kill_everything()
    served.up()
    assert served.dagster.run(run_id)["status"] == "FAILURE"
    wait(served.nothing_due, 300)
    wait(lambda: all(run["status"] in ENDED for run in served.dagster.runs()), 200)
    retries = [run for run in served.dagster.runs() if run["tags"].get("dagster/parent_run_id") == run_id]
    assert [run["status"] for run in retries] == ["SUCCESS"]
    proof = served.proved()
    assert (proof["missing"], proof["stale"], proof["unexpected"], proof["due"]) == (0, 0, 0, 0)


def test_from_a_file_to_its_rows_through_the_sensor(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.dagster.sensor(SENSOR, running=True)
    served.land(7)
    started = time.monotonic()
    wait(lambda: BatchId(7).key in served.dagster.partitions(ASSETS[0]), 60, 0.1)
    wait(lambda: not served.pipeline().ledger().due.has(Stage.RESOLVED_JOIN, 7), 200, 0.1)
    seconds = time.monotonic() - started
    wait(lambda: all(run["status"] in ENDED for run in served.dagster.runs()), 100)
    served.dagster.sensor(SENSOR, running=False)
    with capsys.disabled():
        print(f"\nfrom a file to its rows: {seconds:.1f} s")  # noqa: T201 - the figure is wanted, not judged
    assert served.nothing_due()


def test_down_leaves_nothing(served: Served) -> None:
    served.down()
    assert served.command("recover", "--home", str(served.home)) == []
    assert not (Path(served.home) / "servers.json").read_text().strip("{} \n")
