"""`fk-pipeline demo`: runs the main job on the shipped data, step by step, and explains each step to the user."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from fk_pipeline.console import Progress, print_lines, print_table, print_verification, say, tell
from fk_pipeline.demo import files
from fk_pipeline.pipeline import Pipeline, load
from fk_pipeline.report.files import place_of_report
from fk_pipeline.result_rows import result_rows
from fk_pipeline.verify.report import VerifyReport

COLUMNS_SHOWN = ("id", "carrier", "flight", "tailnum", "manufacturer", "model", "seats", "built")


def run_demo(folder: Path, *, quiet: bool = False) -> dict[str, Any]:
    """Runs the snapshot with its backlog of changes, then one more batch; verifies; prints commands to try next.

    Args:
        folder: a folder of the user; it is created if it does not exist, and an earlier demo in it is replaced.
        quiet: prints nothing on stdout.

    Returns:
        Counts and seconds: the rows, the rows that the last batch touched, the verification.
    """
    started = time.monotonic()
    file = files.prepare_demo(folder)
    pipeline = load(file)
    *backlog, last = files.batches()

    say(f"A change stream of PostgreSQL lands in {folder / 'landing'}: a snapshot, batch {backlog[0]}, and the changes")
    say(f"of batches {backlog[1]} to {backlog[-1]}. A range of batches is one pass of each stage:")
    seconds: dict[str, float] = {"backlog": _run(pipeline, backlog, folder)}
    say()
    say(f"Then one more batch arrives, {last}: only what it touches is recomputed.")
    seconds["last batch"] = _run(pipeline, [last], folder)

    touched, rows = pipeline.changed_rows(last)
    verdicts = pipeline.ledger().state(pipeline.spec.definition.result_stage, last).counts
    report = pipeline.verify()
    result: dict[str, Any] = {
        "folder": str(folder),
        "rows": rows,
        "last_batch": {"batch": last, "rows_recomputed": touched, "verdicts": dict(verdicts)},
        "verify": report.counts(),
        "ok": report.ok,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }
    if not quiet:
        _tell(pipeline, file, result, report)
    result["seconds"]["total"] = round(time.monotonic() - started, 1)
    return result


def _run(pipeline: Pipeline, batches: list[int], folder: Path) -> float:
    for batch in batches:
        files.land(folder, batch)
    started = time.monotonic()
    with Progress() as progress:
        pipeline.run(progress=progress)
    return time.monotonic() - started


def _tell(pipeline: Pipeline, file: Path, result: dict[str, Any], report: VerifyReport) -> None:
    last = result["last_batch"]
    rows = (
        pipeline.table("resolved_join")
        .where(f"_fk_batch = {last['batch']}")
        .orderBy("id")
        .select(*COLUMNS_SHOWN)
        .limit(5)
    ).collect()
    tell()
    title = f"Flights that batch {last['batch']} touched"
    print_table(COLUMNS_SHOWN, [[row[name] for name in COLUMNS_SHOWN] for row in rows], title=title)
    verdicts = ", ".join(f"{number:,} {name}" for name, number in sorted(last["verdicts"].items()))
    tell()
    tell(f"Batch {last['batch']}: {last['rows_recomputed']:,} of {result['rows']:,} rows recomputed ({verdicts}).")
    counted = result_rows(pipeline.spec, pipeline.ledger())
    print_verification(report, file, pipeline.spec.definition, counted.in_words)
    page = place_of_report(pipeline.spec)
    pipeline.report(page)
    tell(f"A page of all of it: {page}")
    shown, tools = shlex.quote(str(file)), _tools()
    tell()
    print_lines(
        f"""Try next:
  {tools}fk-pipeline report {shown} --open
  {tools}fk-pipeline status {shown}
  {tools}fk-pipeline show {shown} verdicts --batch {last["batch"]}
  {tools}fk-pipeline export {shown} --to joined.csv
  {tools}fk-pipeline run {shown} --batches 2..4
      any batch again, in any order: the result stays right
  FK_PIPELINES={shown} {tools}dagster dev -m fk_pipeline.definitions
      the same five stages as assets, at http://127.0.0.1:3000""".split("\n")
    )


def _tools() -> str:
    """Returns the folder of the commands of this environment with a slash; empty if the shell finds them."""
    return "" if shutil.which("fk-pipeline") else f"{shlex.quote(os.path.relpath(Path(sys.executable).parent))}/"
