"""Measures our batches beside full recomputes and Kafka Streams, in one session on one machine: `make bench`.

Prints ratios; `<out>.json` has every measurement, `<out>.png` a plot. All engines must have the same result.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dated import Dated
from engines import KafkaStreams, Ours, Recompute, digest
from grouped import Grouped
from progress import say
from pyspark.sql import SparkSession
from streaming import StreamingCounts, StreamingJoin, StructuredStreaming
from windowed import Windowed
from workload import Change, Workload

from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings

OURS, SPARK, DUCKDB, KAFKA = "ours", "Spark recompute", "DuckDB recompute", "Kafka Streams"
STREAMING = "structured streaming"
AS_OF, LATE, WINDOW, AGGREGATE = "as-of", "late", "window", "aggregate"
CHECKS, PROOF = "checks of the batch", "full checks"
WARM_UP = 500_000, 50_000
"""Left and right rows."""


@dataclass
class Measured:
    """One case: seconds of every repetition by engine, and of our stages; changes per batch."""

    case: str
    events: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    stages: list[dict[str, float]] = field(default_factory=list)

    def add(self, engine: str, seconds: float) -> None:
        """One repetition."""
        self.seconds.setdefault(engine, []).append(seconds)

    def median(self, engine: str) -> float | None:
        """Of all repetitions; None without any."""
        return statistics.median(self.seconds[engine]) if self.seconds.get(engine) else None

    def ratio(self, engine: str) -> float | None:
        """Our seconds by those of an engine."""
        mine, other = self.median(OURS), self.median(engine)
        return None if mine is None or other is None else mine / other


def rounded(taken: dict[str, float]) -> dict[str, float]:
    """Seconds by stage, for people."""
    return {str(stage): round(one, 2) for stage, one in taken.items()}


def cases(left: int, right: int, wanted: list[str]) -> dict[str, Change]:
    """The cases by name: `recent`, `right` and `<percent>%` of all left rows, with right rows in proportion.

    `as-of` is `recent` over other tables, and `late` only its right rows. `window` is so many new events on each side,
    `aggregate` so many and a tenth as many late ones.
    """
    found = {}
    for name in wanted:
        if name == LATE:
            found[name] = Change(0, 10)
        elif name in ("recent", AS_OF, WINDOW, AGGREGATE):
            found[name] = Change(1000, 10, recent=True)
        elif name == "right":
            found[name] = Change(0, right)
        else:
            share = float(name.removesuffix("%")) / 100
            found[name] = Change(max(1, round(left * share)), max(1, round(left * share / 100)))
    return found


class Bench:
    """One workload, and what was measured on it."""

    def __init__(self, options: argparse.Namespace, session: SparkSession, folder: Path) -> None:
        self.options, self.session = options, session
        self.kafka = KafkaStreams(folder) if options.kafka_limit else None
        self.fed: dict[str, dict[str, float]] = {}
        wanted = {*options.cases}
        own = {AS_OF: Dated, LATE: Dated, WINDOW: Windowed, AGGREGATE: Grouped}
        made = next((own[name] for name in own if name in wanted), Workload)
        self.workload = made(folder, options.left, options.right, options.skewed)
        say(f"generating {options.left:,} left and {options.right:,} right rows in {folder}")
        self.workload.generate()
        self.ours = Ours(self.workload, session, options.join, options.settings)
        self.measured: list[Measured] = []
        self.recompute: Recompute | None = None
        self.streaming: StructuredStreaming | None = None
        if options.streaming and isinstance(self.workload, Windowed):
            self.streaming = StreamingJoin(self.workload, session, options.join)
        elif options.streaming and isinstance(self.workload, Grouped):
            self.streaming = StreamingCounts(self.workload, session)

    def run(self) -> None:
        """Every case, one after the other; then the results are compared."""
        if self.options.warm:
            self._warm_up()
        load = self._measure("initial load", "0", self.workload.events(0))
        self._stream(load)
        say("tables for the recomputes")
        self.recompute = Recompute(self.workload, self.session, self.options.join)
        self.recompute.spark()  # the first of a JVM is up to four times slower
        for _ in range(self.options.recomputes):
            self._recompute(load)
        for _ in range(self.options.warm):
            self._run_untimed(Change(100, 5, recent=True))
        for name, change in cases(self.options.left, self.options.right, self.options.cases).items():
            measured = None
            if self.options.warm:  # the first batch of a size compiles what the next ones run
                self._run_untimed(change)
            self._stream(None)
            for done in range(self.options.repeat):
                batch = self.workload.change(change)
                measured = self._measure(name, str(batch), self.workload.events(batch), measured)
                if isinstance(self.workload, Dated | Windowed | Grouped):
                    self._count(self.workload)
                self._stream(measured)
                if done < self.options.recomputes:
                    self._recompute(measured)
        backlog = self._backlog() if self.options.backlog else []
        if self.options.checks:
            load.add(PROOF, self.ours.check_all())
            say(f"full checks: {load.seconds[PROOF][-1]:.2f} s {rounded(self.ours.stages_checked)}")
        if self.kafka is not None:
            others = [batch for batch in range(1, self.workload.batches + 1) if batch not in backlog]
            phases = [("initial load", [0]), ("others", others), ("backlog", backlog)]
            self._kafka(self.kafka, [(name, batches) for name, batches in phases if batches])
        self.compare()

    def _stream(self, measured: Measured | None) -> None:
        """Lets structured streaming read what has landed; not timed without a case."""
        if self.streaming is not None:
            taken = self.streaming.run()
            say(f"  structured streaming: {taken:.2f} s")
            if measured is not None:
                measured.add(STREAMING, taken)

    def _count(self, workload: Dated | Windowed | Grouped) -> None:
        """The batch wrote the rows of the result that it changes, and no other.

        Raises:
            SystemExit: it did not.
        """
        wanted = workload.differing(self.options.join)
        if self.ours.written != wanted:
            raise SystemExit(f"the batch wrote {self.ours.written:,} rows of the result and changes {wanted:,}")
        say(f"  rows of the result that changed, and no other was written: {wanted:,}")

    def _warm_up(self) -> None:
        """Loads small tables: the first load of a JVM compiles what the next ones run."""
        workload = type(self.workload)(self.workload.folder / "warm-up", *WARM_UP)
        workload.generate()
        taken = Ours(workload, self.session, self.options.join, self.options.settings, "warm_up").run("0")
        say(f"a load of {WARM_UP[0]:,} rows to warm up: {taken:.2f} s")
        shutil.rmtree(workload.folder)

    def _run_untimed(self, change: Change) -> None:
        batch = str(self.workload.change(change))
        say(f"warm-up batch {batch}: {self.ours.run(batch, self.options.checks):.2f} s")

    def _backlog(self) -> list[int]:
        size = self.options.backlog // 10
        batches = [self.workload.change(Change(size, 0)) for _ in range(10)]
        events = sum(self.workload.events(batch) for batch in batches)
        measured = self._measure("backlog", f"{batches[0]}..{batches[-1]}", events)
        self._recompute(measured)
        return batches

    def _measure(self, case: str, batches: str, events: int, into: Measured | None = None) -> Measured:
        measured = into or Measured(case, events)
        if into is None:
            self.measured.append(measured)
        checked = self.options.checks and case != "initial load"
        taken = self.ours.run(batches, checked)
        measured.add(OURS, taken)
        if checked:
            checks = self.ours.stages_checked
            measured.add(CHECKS, sum(checks.values()))
            say(f"  its checks: {measured.seconds[CHECKS][-1]:.2f} s {rounded(checks)}")
        measured.stages.append(dict(self.ours.stages))
        say(f"{case}: batch {batches}, {events:,} changes: {taken:.2f} s {rounded(self.ours.stages)}")
        return measured

    def _recompute(self, measured: Measured) -> None:
        assert self.recompute is not None
        measured.add(SPARK, self.recompute.spark())
        measured.add(DUCKDB, self.recompute.duckdb())
        say(f"  recompute: Spark {measured.seconds[SPARK][-1]:.2f} s, DuckDB {measured.seconds[DUCKDB][-1]:.2f} s")

    def _kafka(self, kafka: KafkaStreams, phases: list[tuple[str, list[int]]]) -> None:
        feeds, folder = [], self.workload.folder / "feed"
        folder.mkdir(exist_ok=True)
        for name, batches in phases:
            feeds.append((name, [file for batch in batches for file in self.workload.feeds(batch, folder)]))
        topology = f"window-{self.options.join}" if isinstance(self.workload, Windowed) else self.options.join
        self.fed = kafka.run(topology, feeds, self.options.kafka_limit)
        shutil.rmtree(folder)
        for measured in self.measured:
            if measured.case in self.fed:
                phase = self.fed[measured.case]
                measured.add(KAFKA, phase["seconds"])

    def compare(self) -> None:
        """All engines have the same rows."""
        say("comparing the results")
        final = Recompute(self.workload, self.session, self.options.join, "final")
        final.spark()
        final.duckdb()
        found = {OURS: digest(self.ours.result()), SPARK: digest(final.result()), DUCKDB: digest(final.duckdb_result())}
        kafka = self.fed.get("result")
        if kafka:
            found[KAFKA] = (kafka["rows"], kafka["digest"])
        if len(set(found.values())) > 1:
            raise SystemExit(f"the results differ: {found}")
        say(f"{', '.join(found)}: the same {found[OURS][0]:,} rows")


def report(bench: Bench, out: Path) -> None:
    """Ratios on standard output, everything as JSON, and a plot."""
    others = (SPARK, DUCKDB, KAFKA, STREAMING)
    print(f"{'our seconds by those of':24}" + "".join(f"{name:>22}" for name in others))
    for measured in bench.measured:
        ratios = [measured.ratio(other) for other in others]
        print(f"{measured.case:24}" + "".join(f"{'' if r is None else f'{r:.2f}':>22}" for r in ratios))
    for measured in bench.measured:
        for name in (CHECKS, PROOF):
            mine, checks = measured.median(OURS), measured.median(name)
            if mine is not None and checks is not None:
                print(f"{name} by our seconds, {measured.case}: {checks / mine:.2f}")
    options = {k: v for k, v in vars(bench.options).items() if k not in ("out", "folder")}
    out.parent.mkdir(parents=True, exist_ok=True)
    found = {"options": options, "measured": [asdict(m) for m in bench.measured]}
    out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    plot(bench, out.with_suffix(".png"))
    say(f"wrote {out}.json and {out}.png")


def plot(bench: Bench, file: Path) -> None:
    """Our seconds by those of a Spark recompute, per case."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [(m.case, m.ratio(SPARK)) for m in bench.measured if m.ratio(SPARK) is not None]
    figure, axes = plt.subplots(figsize=(8, 0.6 * len(shown) + 1.5))
    axes.barh([name for name, _ in shown][::-1], [ratio for _, ratio in shown][::-1])
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel(f"seconds of our batch / seconds of a full recompute with Spark, {bench.options.left:,} left rows")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--left", type=int, default=1_000_000)
    parser.add_argument("--right", type=int, help="default: a tenth of the left rows")
    parser.add_argument("--join", choices=["inner", "left", "outer"], default="inner")
    parser.add_argument("--skewed", action="store_true", help="made-up tables, few customers with most orders")
    parser.add_argument(
        "--cases", default="recent,0.1%,1%,10%", type=lambda text: [c for c in text.split(",") if c], metavar="LIST"
    )
    parser.add_argument("--backlog", type=int, default=0, help="left changes of ten batches that run as one range")
    parser.add_argument("--kafka-limit", type=int, default=0, help="seconds per phase of Kafka Streams; 0: without it")
    parser.add_argument("--streaming", action="store_true", help="cases window, aggregate: also structured streaming")
    parser.add_argument("--checks", action="store_true", help="also time the checks of every batch, and full ones")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--recomputes", type=int, help="per case; default: as many as there are batches of a case")
    parser.add_argument(
        "--warm", type=int, default=2, help="small batches before the timed ones, a small load, and a batch per case"
    )
    parser.add_argument("--memory", default="4g", help="of the Spark driver")
    parser.add_argument("--settings", default="{}", help="of the pipeline file, as YAML")
    parser.add_argument("--folder", type=Path, help="where the tables are made, and stay; default: a temporary one")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "latest")
    options = parser.parse_args()
    dated = {AS_OF, LATE} & {*options.cases}
    if dated and {*options.cases} - dated:
        parser.error(f"cases {AS_OF} and {LATE} have tables of their own: measure others in another run")
    if dated and (options.join == "outer" or options.kafka_limit or options.backlog):
        parser.error(f"cases {AS_OF} and {LATE} have no outer join, Kafka Streams or backlog")
    options.right = options.right or max(1, options.left // 10)
    options.recomputes = options.recomputes or options.repeat
    session = start_session(Settings(driver_memory=options.memory, spark={"spark.master": "local[2]"}))
    folder = options.folder or Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        bench = Bench(options, session, folder)
        try:
            bench.run()
        finally:
            report(bench, options.out)
    finally:
        session.stop()
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
