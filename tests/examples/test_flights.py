"""examples/flights: the demo's folder, and what its script reads in the result."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import fk_pipeline as fk
from fk_pipeline.demo import files

LOOK = Path(__file__).parents[2] / "examples" / "flights" / "look.py"

pytestmark = pytest.mark.spark


def last_rows(folder: Path, key: str) -> dict[Any, dict[str, Any]]:
    """The table that the change events of a side leave, in plain Python: Debezium writes them in order of commit."""
    found: dict[Any, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            event = json.loads(line)["value"]
            if event is not None:
                found.pop((event["before"] or event["after"])[key], None)
                if event["after"] is not None:
                    found[event["after"][key]] = event["after"]
    return found


@pytest.mark.slow  # the demo's data: scaffold/test_init.py and make test-docs
def test_the_script_reads_the_result_of_the_demo(loaded: Any, tmp_path: Path, spark: Any) -> None:
    file = files.prepare_demo(tmp_path / "demo")
    for batch in files.batches():
        files.land(file.parent, batch)
    pipeline = fk.Pipeline(fk.load(file).spec, spark)
    pipeline.run()
    flights, planes = (
        last_rows(file.parent / "landing/flights", "id"),
        last_rows(file.parent / "landing/planes", "tailnum"),
    )
    expected = {
        (
            row["id"],
            row["tailnum"],
            planes.get(row["tailnum"], {}).get("model"),
            planes.get(row["tailnum"], {}).get("seats"),
        )
        for row in flights.values()
    }
    rows = pipeline.table("resolved_join").select("id", "tailnum", "model", "seats").collect()
    assert len(rows) == len(expected) == 20_376
    assert {tuple(row) for row in rows} == expected

    look = loaded(LOOK)
    told = look.verdicts(pipeline)
    assert sorted(told) == files.batches()
    assert sum(told[0].values()) > 19_000
    named = [row["tailnum"] for row in flights.values()]
    unknown = sum(name is not None and name not in planes for name in named)
    assert look.alone(pipeline) == {"name no plane": named.count(None), "name a plane that is not known": unknown}
    flown = Counter(name for name in named if name in planes)
    most = max(flown.values())
    assert look.busiest(pipeline) == (min(name for name, number in flown.items() if number == most), most)
