"""What a pipeline costs that has run many small batches, with upkeep on a schedule: `make bench-age`.

An old pipeline runs all batches, one or a few at a time, and is compacted every so often. Then a young one loads what
is live as its first batch, and both run the same further batches in turn. Prints the ratio of their medians, and what
the old warehouse takes beyond the young one, per key that was deleted. Both must have the rows that they should have.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from progress import say
from pyspark.sql import SparkSession

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings, load_spec
from fk_pipeline.store import LEDGER_TABLES

LEFT = pa.schema(
    [("op", pa.string()), ("at", pa.int64()), ("id", pa.int64()), ("fk", pa.int64()), ("note", pa.string())]
)
RIGHT = pa.schema([("op", pa.string()), ("at", pa.int64()), ("id", pa.int64()), ("name", pa.string())])


class Source:
    """Two tables that change, and the files that say so: `updates` left rows, as many deletes as inserts per batch."""

    def __init__(self, left: int, right: int, churn: int, updates: int) -> None:
        self.random = random.Random(7)
        self.churn, self.updates = churn, updates
        self.left = {i: self._row(right) for i in range(left)}
        self.right = {i: f"name {i}" for i in range(right)}
        self.next_id, self.at, self.dead = left, 0, 0

    def _row(self, right: int) -> tuple[int, str]:
        return self.random.randrange(right), f"{self.random.getrandbits(160):040x}"

    def all_rows(self) -> tuple[pa.Table, pa.Table]:
        """A batch that brings every live row."""
        left = [("c", self.at, i, *row) for i, row in sorted(self.left.items())]
        return self._tables(left, [("c", self.at, i, name) for i, name in sorted(self.right.items())])

    def change(self) -> tuple[pa.Table, pa.Table]:
        """The next small batch."""
        self.at += 1
        gone = self.random.sample(sorted(self.left), self.churn)
        for one in gone:
            del self.left[one]
        self.dead += len(gone)
        changed = self.random.sample(sorted(self.left), self.updates)
        changed += range(self.next_id, self.next_id + self.churn)
        self.next_id += self.churn
        for one in changed:
            self.left[one] = self._row(len(self.right))
        renamed = self.random.sample(sorted(self.right), 2)
        for one in renamed:
            self.right[one] = f"name {one} at {self.at}"
        left = [("u", self.at, one, *self.left[one]) for one in changed]
        left += [("d", self.at, one, None, None) for one in gone]
        return self._tables(left, [("u", self.at, one, self.right[one]) for one in renamed])

    def joined(self) -> dict[int, tuple[str, str]]:
        """What the result must be."""
        return {i: (note, self.right[fk]) for i, (fk, note) in self.left.items()}

    @staticmethod
    def _tables(left: list[tuple[object, ...]], right: list[tuple[object, ...]]) -> tuple[pa.Table, pa.Table]:
        def table(rows: list[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
            return pa.table(dict(zip(schema.names, zip(*rows, strict=True), strict=True)), schema=schema)

        return table(left, LEFT), table(right, RIGHT)


class Aged:
    """A pipeline over what a source says, in a folder."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder = folder
        for side in ("left", "right"):
            (folder / "landing" / side).mkdir(parents=True)
        file = folder / "pipeline.yaml"
        common = "format: parquet, key: id, op_column: op, sequence_by: at"
        file.write_text(
            f"name: aged\njoin: inner\n"
            f'left: {{path: landing/left, {common}, schema: "at BIGINT, id BIGINT, fk BIGINT, note STRING",'
            f" foreign_key: fk}}\n"
            f'right: {{path: landing/right, {common}, schema: "at BIGINT, id BIGINT, name STRING"}}\n'
            f"select: [left.id, note, name]\nsettings: {{fold_after_hours: 0, retention_hours: 0}}\n"
        )
        self.pipeline = Pipeline(load_spec(file), session)
        self.batch = 0

    def land(self, tables: tuple[pa.Table, pa.Table]) -> None:
        """Lands a batch."""
        self.batch += 1
        for side, table in zip(("left", "right"), tables, strict=True):
            file = self.folder / "landing" / side / f"{self.batch:08d}.parquet"
            pq.write_table(table, file.with_name(f".{file.name}"))
            file.with_name(f".{file.name}").rename(file)

    def run(self, *batches: tuple[pa.Table, pa.Table]) -> float:
        """Lands batches and runs what is due; returns the seconds of the run."""
        for tables in batches:
            self.land(tables)
        started = time.monotonic()
        self.pipeline.run()
        return time.monotonic() - started

    def compact(self) -> float:
        """Upkeep; returns its seconds."""
        started = time.monotonic()
        self.pipeline.compact()
        return time.monotonic() - started

    def bytes(self) -> dict[str, dict[str, int]]:
        """By table what its current version takes, and what it takes on disk, older versions and its log included."""
        found = {}
        for table in sorted(Path(self.pipeline.spec.home).iterdir()):
            if DeltaTable.is_deltatable(str(table)):
                sizes = DeltaTable(table).get_add_actions(flatten=True).column("size_bytes").to_pylist()
                disk = sum(f.stat().st_size for f in table.rglob("*") if f.is_file())
                log = sum(f.stat().st_size for f in (table / "_delta_log").rglob("*") if f.is_file())
                found[table.name] = {"files": len(sizes), "current": sum(sizes), "disk": disk, "log": log}
        return found

    def check(self, source: Source) -> None:
        """Ends the program if the result is not what it must be."""
        rows = self.pipeline.table("resolved_join").collect()
        found = {row["id"]: (row["note"], row["name"]) for row in rows}
        if len(found) != len(rows) or found != source.joined():
            raise SystemExit(f"the result of {self.folder} is wrong: {len(rows)} rows, {len(source.left)} expected")
        if not self.pipeline.verify().ok:
            raise SystemExit(f"the result of {self.folder} is not the join of its changelogs")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-age", description=__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--left", type=int, default=20_000, help="live left rows; they stay as many")
    parser.add_argument("--right", type=int, default=2_000)
    parser.add_argument("--churn", type=int, default=40, help="left rows that every batch deletes, and inserts")
    parser.add_argument("--updates", type=int, default=20, help="left rows that every batch updates")
    parser.add_argument("--per-run", type=int, default=1, help="batches that land before each run")
    parser.add_argument("--every", type=int, default=100, help="batches between two runs of compact")
    parser.add_argument("--repeat", type=int, default=9, help="batches that both pipelines run in the end")
    parser.add_argument("--memory", default="2g", help="of the Spark driver")
    parser.add_argument("--folder", type=Path, help="where the tables are made, and stay; default: a temporary one")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "age.json")
    options = parser.parse_args()
    session = start_session(Settings(driver_memory=options.memory, spark={"spark.master": "local[2]"}))
    folder = options.folder or Path(tempfile.mkdtemp(prefix="age-"))
    try:
        found = measure(options, session, folder)
    finally:
        session.stop()
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"a batch after {options.batches} others by one of the first: {found['ratio']:.2f}")
    print(f"bytes per deleted key: {found['bytes_per_dead_key']:.0f} ({found['dead']:,} keys)")
    say(f"wrote {options.out}")


def measure(options: argparse.Namespace, session: SparkSession, folder: Path) -> dict[str, object]:
    """Everything that is measured, as the JSON has it; seconds."""
    source = Source(options.left, options.right, options.churn, options.updates)
    old = Aged(folder / "old", session)
    say(f"first load: {old.run(source.all_rows()):.1f} s")
    runs, compacts = [], []
    for number in range(options.per_run, options.batches + 1, options.per_run):
        runs.append(old.run(*[source.change() for _ in range(options.per_run)]))
        if len(runs) % 10 == 0:
            say(f"batch {number}: median of the last ten runs {statistics.median(runs[-10:]):.2f} s")
        if number % options.every < options.per_run:
            compacts.append(old.compact())
            say(f"compact: {compacts[-1]:.1f} s")
            options.out.with_suffix(".part").write_text(json.dumps({"runs": runs, "compacts": compacts}))
    old.check(source)
    young = Aged(folder / "young", session)
    young.run(source.all_rows())
    young.compact()
    sizes = {"old": old.bytes(), "young": young.bytes()}
    dead = source.dead
    pairs = []
    for number in range(options.repeat + 2):
        tables = source.change()
        pairs.append((old.run(tables), young.run(tables)))
        say(f"pair {number}: old {pairs[-1][0]:.2f} s, young {pairs[-1][1]:.2f} s")
    old.check(source)
    young.check(source)
    timed = pairs[2:]  # the young one's first batches after its load are slower

    def kept(which: str) -> int:
        return sum(s["current"] for name, s in sizes[which].items() if name not in LEDGER_TABLES)

    return {
        "options": {k: v for k, v in vars(options).items() if k not in ("out", "folder")},
        "ratio": statistics.median(one for one, _ in timed) / statistics.median(other for _, other in timed),
        "pairs": pairs,
        "runs": runs,
        "compacts": compacts,
        "dead": dead,
        "bytes_per_dead_key": (kept("old") - kept("young")) / max(1, dead),
        "sizes": sizes,
    }


if __name__ == "__main__":
    main()
