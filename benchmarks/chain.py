"""What one changed row costs three pipelines in a row, beside the first of them alone: `make bench-chain`.

The three pipelines of `examples/service_log` over generated lines of three weeks. Each batch brings one line. Prints,
per batch, the seconds of each pipeline, and all by those of the first; verifies every result in the end.
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
from progress import say

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings, load_spec

EXAMPLE = Path(__file__).parent.parent / "examples" / "service_log"
NAMES = ("errors", "week_over_week", "anomalies")
START = datetime(2026, 5, 1, tzinfo=UTC)
WEEKS = 3


def land(folder: Path, batch: int, lines: str) -> None:
    """Lands the rows of a query: `logged_at`, `service`, `level`."""
    file = folder / "landing" / "log" / f"{batch}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY ({lines}) TO '{file}' (FORMAT parquet)")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-chain", description=__doc__)
    parser.add_argument("--lines", type=int, default=300_000)
    parser.add_argument("--services", type=int, default=30)
    parser.add_argument("--batches", type=int, default=11, help="of one line; the first warms up and does not count")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "chain.json")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    session = start_session(Settings(driver_memory="4g", spark={"spark.master": "local[2]"}))

    def run(what: str) -> list[float]:
        taken = []
        for name in NAMES:
            pipeline, started = Pipeline(load_spec(folder / f"{name}.yaml"), session), time.monotonic()
            pipeline.run()
            taken.append(time.monotonic() - started)
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in zip(NAMES, taken, strict=True))
        say(f"{what}: {told}; all by the first {sum(taken) / taken[0]:.2f}")
        return taken

    try:
        for name in NAMES:
            text = (EXAMPLE / f"{name}.yaml").read_text().replace("format: rows", "format: parquet")
            (folder / f"{name}.yaml").write_text(text)
        first, span = int(START.timestamp()), timedelta(weeks=WEEKS) // timedelta(seconds=1)
        land(
            folder,
            0,
            f"SELECT to_timestamp({first} + i * {span} / {options.lines}) AS logged_at, "
            f"'s' || hash(i, 1) % {options.services} AS service, "
            f"CASE WHEN hash(i, 2) % 5 = 0 THEN 'ERROR' ELSE 'INFO' END AS level FROM range({options.lines}) AS r(i)",
        )
        measured = [run("load")]
        for batch in range(1, options.batches + 1):
            at = first + span // 2 + 60 * batch
            land(folder, batch, f"SELECT to_timestamp({at}) AS logged_at, 's3' AS service, 'ERROR' AS level")
            measured.append(run(f"batch {batch}"))
        ratios = [sum(taken) / taken[0] for taken in measured[2:]]
        for name in NAMES:
            report = Pipeline(load_spec(folder / f"{name}.yaml"), session).verify()
            if not report.ok:
                raise SystemExit(f"the result of {name} is wrong: {report}")
        print(f"all by the first: median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}; all results right")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"seconds": measured, "ratios": ratios}, indent=1) + "\n")
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
