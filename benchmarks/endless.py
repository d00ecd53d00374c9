"""What a windowed join of two streams costs that never ends, with `retention` and upkeep: `make bench-endless`.

Each batch brings the events of one more hour, one in a hundred late by some hours, and some a day too late. Every so
many batches the pipeline is compacted. Prints, per compaction, the median seconds of the batches since the last one,
and the bytes of state (changelogs, stores, indexes, messages) that the current versions need; the result grows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from progress import say

from fk_pipeline.contract import Role
from fk_pipeline.identity import EXPIRED
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings, load_spec

FILE = """
name: endless
kind: window
join: left
within: {after: 30 minutes}
retention: 24 hours
left: {path: landing/left, format: parquet, contents: events, key: id, on: user, time: happened,
  schema: "id BIGINT, user BIGINT, happened TIMESTAMP, ad STRING"}
right: {path: landing/right, format: parquet, contents: events, key: id, on: user, time: happened,
  schema: "id BIGINT, user BIGINT, happened TIMESTAMP, page STRING"}
select: [left.id AS id, left.user AS user, ad, right.id AS click, page]
settings: {fold_after_hours: 0, retention_hours: 0}
"""
START = datetime(2020, 1, 1, tzinfo=UTC)


def land(folder: Path, batch: int, events: int, users: int) -> None:
    """Lands so many events on each side."""
    hour = int((START + timedelta(hours=batch)).timestamp())
    late = "CASE WHEN i % 100 = 0 THEN 3600 * (1 + i % 7) WHEN i % 1000 = 1 THEN 180000 ELSE 0 END"
    for side, value in (("left", "ad"), ("right", "page")):
        file = folder / "landing" / side / f"{batch:08d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        with duckdb.connect() as connection:
            connection.execute(
                f"COPY (SELECT {batch} * {events} + i AS id, "
                f"CAST(hash(i, {batch}, '{side}') % {users} AS BIGINT) AS user, "
                f"to_timestamp({hour} + i * 3600 / {events} - {late}) AS happened, 'value ' || i % 500 AS {value} "
                f"FROM range({events}) AS r(i)) TO '{file}' (FORMAT parquet)"
            )


def state_bytes(pipeline: Pipeline) -> int:
    """The bytes of the files that the current versions of all tables but result and quarantine need."""
    kept = pipeline.spec.definition.with_role(Role.LOG, Role.STATE, Role.INDEX, Role.MESSAGES)
    paths = [
        f"{pipeline.spec.home}/{name}" for name in kept if DeltaTable.is_deltatable(f"{pipeline.spec.home}/{name}")
    ]
    return sum(sum(DeltaTable(path).get_add_actions(flatten=True).column("size_bytes").to_pylist()) for path in paths)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-endless", description=__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--events", type=int, default=1000, help="per side and batch")
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--upkeep", type=int, default=25, help="batches between two compactions")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "endless.json")
    options = parser.parse_args()
    if options.batches < 20:
        parser.error("fewer than 20 batches tell nothing")
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    session = start_session(Settings(driver_memory="4g", spark={"spark.master": "local[2]"}))
    measured = []
    try:
        (folder / "endless.yaml").write_text(FILE)
        pipeline, seconds = Pipeline(load_spec(folder / "endless.yaml"), session), []
        for batch in range(options.batches):
            land(folder, batch, options.events, options.users)
            started = time.monotonic()
            pipeline.run(str(batch))
            seconds.append(time.monotonic() - started)
            if (batch + 1) % options.upkeep:
                continue
            before, started = state_bytes(pipeline), time.monotonic()
            pipeline.compact()
            taken, recent = time.monotonic() - started, seconds[-options.upkeep :]
            expired = sum(
                pipeline.ledger().state(stage, done).counts.get(EXPIRED, 0)
                for stage in pipeline.spec.definition.stage_names
                for done in range(batch + 1)
            )
            measured.append(
                {
                    "batches": batch + 1,
                    "median": statistics.median(recent),
                    "last": recent[-1],
                    "compaction": taken,
                    "state before": before,
                    "state": state_bytes(pipeline),
                    "result rows": pipeline.table("resolved_join").count(),
                    "expired": expired,
                }
            )
            say(", ".join(f"{name} {value:,.2f}".removesuffix(".00") for name, value in measured[-1].items()))
        report = pipeline.verify()
        say(f"verified: {report.ok}, {report.unproved:,} differences about removed events unproved")
        if not report.ok:
            raise SystemExit(f"the result is wrong: {report}")
        early = statistics.median(seconds[5:15])
        print(f"the last ten batches by the tenth: {statistics.median(seconds[-10:]) / early:.2f}")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"measured": measured, "seconds": seconds}, indent=1) + "\n")
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
