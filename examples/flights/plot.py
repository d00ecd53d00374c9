"""What each batch did to the turnarounds, as a plot: matched, unmatched, taken back, expired.

`python examples/flights/plot.py FOLDER turnarounds.svg` puts the demo's data into a new folder. It needs matplotlib.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import fk_pipeline as fk
from fk_pipeline.demo import files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN = {
    "matched": ("resolved_join", "paired"),
    "unmatched": ("resolved_join", "left alone"),
    "unmatched row taken back": ("resolved_join", "taken back"),
    "pair taken back": ("resolved_join", "parted"),
    "expired": ("left_table", "expired"),
}
"""The bars of a batch: the stage that counts, and the name of its count."""


def load(folder: Path, spark: SparkSession | None = None) -> fk.Pipeline:
    """Lands, runs and compacts the demo's batches one by one, as days would bring them."""
    files.prepare_demo(folder)
    file = shutil.copy(Path(__file__).parent / "recent.yaml", folder)
    pipeline = fk.Pipeline(fk.load(file).spec, spark)
    for batch in files.batches():
        files.land(folder, batch)
        pipeline.run()
        pipeline.compact()
    return pipeline


def counts(pipeline: fk.Pipeline) -> dict[int, dict[str, int]]:
    """Per batch, in rows of the result and in flights that expired, what it did."""
    ledger = pipeline.ledger()
    return {
        int(batch): {name: ledger.state(stage, batch).counts.get(what, 0) for name, (stage, what) in SHOWN.items()}
        for batch in ledger.batches
    }


def draw(found: dict[int, dict[str, int]], file: Path) -> None:
    """Writes one group of bars per batch, but of the first, which loads everything."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "turnarounds"
    from matplotlib import pyplot as plt

    batches = sorted(found)[1:]
    figure, axes = plt.subplots(figsize=(8, 3.6))
    width = 0.8 / len(SHOWN)
    for place, name in enumerate(SHOWN):
        at = [number + (place - len(SHOWN) / 2 + 0.5) * width for number in range(len(batches))]
        axes.bar(at, [found[batch][name] for batch in batches], width, label=name)
    axes.set_xticks(range(len(batches)), [f"batch {batch}" for batch in batches])
    axes.set_yscale("symlog", linthresh=10)
    axes.set_yticks([0, 5, 10, 50, 100, 500], ["0", "5", "10", "50", "100", "500"])
    axes.set_ylabel("rows")
    axes.legend(frameon=False, ncols=3, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 1.25))
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


if __name__ == "__main__":
    told = counts(load(Path(sys.argv[1])))
    for number, of_batch in told.items():
        print(f"batch {number}: " + ", ".join(f"{rows:,} {what}" for what, rows in of_batch.items() if rows))
    draw(told, Path(sys.argv[2]))
