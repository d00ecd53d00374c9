"""What there is to see in the result of the demo, read with Python.

After `fk-pipeline demo`: `python examples/flights/look.py fk-pipeline-demo`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fk_pipeline as fk


def verdicts(pipeline: fk.Pipeline) -> dict[int, dict[str, int]]:
    """Per batch what became of its answers."""
    rows = pipeline.table("verdicts").groupBy("_fk_batch", "_fk_verdict").count().collect()
    found: dict[int, dict[str, int]] = {}
    for row in sorted(rows):
        found.setdefault(row["_fk_batch"], {})[row["_fk_verdict"]] = row["count"]
    return found


def alone(pipeline: fk.Pipeline) -> dict[str, int]:
    """How many flights stand without a plane: those that name none, and those whose plane is not known (yet)."""
    half = pipeline.table("resolved_join").where("_fk_right_hash IS NULL")
    named = half.where("tailnum IS NOT NULL").count()
    return {"name no plane": half.count() - named, "name a plane that is not known": named}


def busiest(pipeline: fk.Pipeline) -> tuple[str, int]:
    """The plane whose change would touch most rows."""
    flown = pipeline.table("resolved_join").where("_fk_right_hash IS NOT NULL").groupBy("tailnum").count()
    row = flown.orderBy("count", "tailnum", ascending=[False, True]).first()
    return row["tailnum"], row["count"]


if __name__ == "__main__":
    demo = fk.load(Path(sys.argv[1]) / "flight_planes.yaml")
    for batch, counts in verdicts(demo).items():
        print(f"batch {batch}: " + ", ".join(f"{number:,} {verdict}" for verdict, number in counts.items()))
    for why, number in alone(demo).items():
        print(f"{number:,} flights {why}")
    plane, flights = busiest(demo)
    print(f"{plane} has {flights} flights: fk-pipeline impact {demo.spec.file} --right-key {plane}")
