"""Everything from Python, without Dagster: what a nightly job or a notebook would do.

    python examples/python/nightly.py FOLDER

FOLDER is a copy of `examples/orders`, or any folder with `orders.yaml` and its landing files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fk_pipeline as fk
from fk_pipeline.errors import FkPipelineError


def nightly(pipeline: fk.Pipeline) -> dict[int, dict[str, int]]:
    """Runs what is due, proves the result, and returns per batch what it changed there."""
    due = pipeline.discover().batches
    for run in pipeline.run():
        print(f"{run.stage:<18} batch {run.batches}")
    report = pipeline.verify()
    print(f"verified: {report.ok}")
    changed = {}
    for batch in sorted({*due}):
        kinds = pipeline.changes(batch).groupBy("_change_type").count().collect()
        changed[int(batch)] = {row["_change_type"]: row["count"] for row in sorted(kinds)}
        print(f"batch {batch} changed {changed[batch]}")
    refused = pipeline.quarantined().count()
    print(f"{refused} record(s) in the quarantine")
    return changed


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    try:
        orders = fk.load(folder / "orders.yaml")
        nightly(orders)
        print(f"{orders.export(folder / 'joined.parquet')} rows exported")
    except FkPipelineError as error:  # what, where, why and the command that mends it
        sys.exit(f"{type(error).__name__}: {error}")
