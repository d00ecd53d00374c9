"""How cost grows with the tables: reads results of `make bench` for several sizes, prints a table, draws a plot.

    python benchmarks/growth.py OUT.svg RESULT.json ...

Per size and case, our seconds and those of the recomputes by the seconds of the same at the smallest size, and the
slope: 1 is proportional to the table, 0 does not depend on it. Sizes that were measured in different sessions are
compared by what a recompute took in each.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

LOAD, OURS, SPARK, DUCKDB = "initial load", "ours", "Spark recompute", "DuckDB recompute"


def medians(found: dict[str, Any]) -> dict[str, float]:
    """Median seconds of one result: per case ours, and of the recomputes over all cases."""
    out = {m["case"]: statistics.median(m["seconds"][OURS]) for m in found["measured"]}
    for engine in (SPARK, DUCKDB):
        out[engine] = statistics.median(s for m in found["measured"] for s in m["seconds"].get(engine, []))
    return out


def slope(sizes: list[int], seconds: list[float]) -> float:
    """Of the straight line through the logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(one) for one in seconds]
    return statistics.linear_regression(xs, ys).slope


def main(out: Path, files: list[Path]) -> None:
    """Prints the table and writes the plot."""
    results = sorted((json.loads(file.read_text()) for file in files), key=lambda one: one["options"]["left"])
    sizes = [int(one["options"]["left"]) for one in results]
    taken = [medians(one) for one in results]
    names = [name for name in taken[0] if all(name in one for one in taken)]
    print(f"{'by the smallest':24}" + "".join(f"{size:>14,}" for size in sizes) + f"{'slope':>8}")
    for name in names:
        seconds = [one[name] for one in taken]
        row = "".join(f"{one / seconds[0]:>14.2f}" for one in seconds)
        print(f"{name:24}{row}{slope(sizes, seconds):>8.2f}")
    for name in [n for n in names if n not in (SPARK, DUCKDB)]:
        for engine in (SPARK, DUCKDB):
            print(f"{f'{name} by {engine}':48}" + "".join(f"{one[name] / one[engine]:>10.2f}" for one in taken))
    plot(out, sizes, {name: [one[name] for one in taken] for name in names})


def plot(out: Path, sizes: list[int], taken: dict[str, list[float]]) -> None:
    """Seconds by those of the Spark recompute of the smallest tables, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    unit = taken[SPARK][0]
    for name, seconds in taken.items():
        axes.plot(sizes, [one / unit for one in seconds], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("left rows; a tenth as many right rows")
    axes.set_ylabel(f"seconds by those of a\nSpark recompute of {sizes[0] // 1_000_000} million rows")
    axes.grid(visible=True, which="both", linewidth=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
