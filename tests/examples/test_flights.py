"""examples/flights: the demo's folder, and what its script reads in the result."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import fk_pipeline as fk
from fk_pipeline.demo import files

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights"
LOOK, PLOT = FLIGHTS / "look.py", FLIGHTS / "plot.py"

pytestmark = pytest.mark.spark


def last_rows(folder: Path, key: str, until: int | None = None) -> dict[Any, dict[str, Any]]:
    """The table that the change events of a side leave, in plain Python: Debezium writes them in order of commit.

    Each row has, as `batch`, the batch of its last event; `until` is the last batch that counts.
    """
    found: dict[Any, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.jsonl.gz")):
        batch = int(file.name.split(".")[0])
        for line in gzip.decompress(file.read_bytes()).splitlines() if until is None or batch <= until else ():
            event = json.loads(line)["value"]
            if event is not None:
                found.pop((event["before"] or event["after"])[key], None)
                if event["after"] is not None:
                    found[event["after"][key]] = event["after"] | {"batch": batch}
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


@pytest.mark.slow  # the demo's data; of as_of: batch kinds/foreign_key/test_as_of.py
def test_a_flight_sees_its_plane_as_it_was_when_the_flight_was_reported(tmp_path: Path, spark: Any) -> None:
    folder = files.prepare_demo(tmp_path / "demo").parent
    file = Path(shutil.copy(FLIGHTS / "then.yaml", folder))
    pipeline = fk.Pipeline(fk.load(file).spec, spark)
    for batches in (files.batches()[:4], files.batches()[4:]):
        for batch in batches:
            files.land(folder, batch)
        pipeline.run()
    register = {batch: last_rows(folder / "landing/planes", "tailnum", batch) for batch in files.batches()}
    flights = last_rows(folder / "landing/flights", "id").values()

    def joined(batch_of: Callable[[dict[str, Any]], int]) -> set[tuple[Any, ...]]:
        planes = ((row, register[batch_of(row)].get(row["tailnum"], {})) for row in flights)
        values = ("manufacturer", "model", "seats", "year")
        return {(row["id"], row["tailnum"], *map(plane.get, values)) for row, plane in planes}

    then = joined(itemgetter("batch"))
    assert len(then - joined(lambda _: 7)) == 1_008, "of these the register of today says something else"
    for again in (None, "2..5"):
        if again:
            pipeline.run(again)
        rows = pipeline.table("resolved_join").select("id", "tailnum", "manufacturer", "model", "seats", "built")
        assert {tuple(row) for row in rows.collect()} == then


@pytest.mark.slow  # the demo's data; of kind: window kinds/window/test_window.py
def test_each_flight_has_the_later_departures_of_its_plane(tmp_path: Path, spark: Any) -> None:
    folder = files.prepare_demo(tmp_path / "demo").parent
    pipeline = fk.Pipeline(fk.load(Path(shutil.copy(FLIGHTS / "turnarounds.yaml", folder))).spec, spark)
    moved = 0
    for batches in (files.batches()[:4], files.batches()[4:]):
        for batch in batches:
            files.land(folder, batch)
        pipeline.run()
        flights = {
            row["id"]: (
                row["tailnum"],
                datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=row["minute"] or 0),
            )
            for row in last_rows(folder / "landing/flights", "id").values()
        }
        of_plane: dict[str, list[tuple[datetime, int]]] = {}
        for flight, (plane, at) in flights.items():
            of_plane.setdefault(plane, []).append((at, flight))
        clock, day = max(at for _, at in flights.values()), timedelta(hours=8)
        expected = set()
        for flight, (plane, at) in flights.items():
            later = [(t, n) for t, n in of_plane[plane] if plane and timedelta(minutes=1) <= t - at <= day]
            expected |= {(flight, plane, number) for _, number in later}
            if not later and clock > at + day:
                expected.add((flight, plane, None))
        rows = pipeline.table("resolved_join").select("id", "tailnum", "next_id").collect()
        assert len(rows) == len(expected)
        assert {tuple(row) for row in rows} == expected
        counts = [pipeline.ledger().state("resolved_join", batch).counts for batch in batches[1:]]
        moved += sum(found.get("parted", 0) + found.get("taken back", 0) for found in counts)
    assert moved > 0
    assert pipeline.table("right_table").count() == 0
    assert pipeline.verify().ok


@pytest.mark.slow  # the demo's data; of kind: query kinds/query
def test_the_delays_follow_flights_and_planes(tmp_path: Path, spark: Any) -> None:
    folder = files.prepare_demo(tmp_path / "demo").parent
    names = ("flown", "register", "delays")
    pipelines = [fk.Pipeline(fk.load(Path(shutil.copy(FLIGHTS / f"{one}.yaml", folder))).spec, spark) for one in names]
    for batches in (files.batches()[:1], files.batches()[1:5], files.batches()[5:]):
        for batch in batches:
            files.land(folder, batch)
        notes = [note for pipeline in pipelines for done in pipeline.run() for note in done.notes]
        assert any(("whole" if batches == files.batches()[:1] else "what changed") in note for note in notes), notes
        planes = last_rows(folder / "landing/planes", "tailnum")
        late: dict[tuple[str, str | None], list[int | None]] = {}
        for row in last_rows(folder / "landing/flights", "id").values():
            group = (row["carrier"], planes.get(row["tailnum"], {}).get("manufacturer"))
            late.setdefault(group, []).append(row["dep_delay"])
        expected = set()
        for group, minutes in late.items():
            known = [one for one in minutes if one is not None]
            expected.add((*group, len(minutes), len(known), sum(known) if known else None))
        columns = ("carrier", "manufacturer", "flights", "departed", "minutes_late")
        rows = pipelines[-1].table("result").select(*columns).collect()
        assert len(rows) == len(expected)
        assert {tuple(row) for row in rows} == expected
    assert pipelines[-1].verify().ok


@pytest.mark.slow  # the demo's data, compacted after every batch; of retention kinds/window/test_retention.py
def test_the_plot_counts_what_each_batch_did(loaded: Any, tmp_path: Path, spark: Any) -> None:
    plot = loaded(PLOT)
    pipeline = plot.load(tmp_path / "demo", spark)
    told = plot.counts(pipeline)
    assert sum(of_batch["matched"] - of_batch["pair taken back"] for of_batch in told.values()) == (
        pipeline.table("resolved_join").where("next_id IS NOT NULL").count()
    )
    assert told[0]["unmatched"] == 15_924
    assert all(of_batch["unmatched row taken back"] for batch, of_batch in told.items() if batch), "by late reports"
    kept: dict[int, datetime] = {}
    horizon: datetime | None = None
    for batch in files.batches():
        rows = last_rows(tmp_path / "demo/landing/flights", "id", batch)
        now = {
            row["id"]: datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=row["minute"] or 0)
            for row in rows.values()
            if row["batch"] == batch
        }
        too_old = {key for key, at in now.items() if key not in kept and horizon is not None and at < horizon}
        assert told[batch]["expired"] == len(too_old), batch
        kept = {key: at for key, at in kept.items() if key in rows and key not in now}
        kept |= {key: at for key, at in now.items() if key not in too_old}
        horizon = max(kept.values()) - timedelta(days=3)
        kept = {key: at for key, at in kept.items() if at >= horizon - timedelta(hours=8)}
