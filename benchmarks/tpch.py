"""What refreshes of the 22 queries of TPC-H cost, beside Spark and DuckDB: `make bench-tpch`.

The tables are Delta tables that Spark wrote, with a change feed; each query is a pipeline of kind `query` over them. A
round changes 0.1% of the orders with all their lines, a few parts with all their offers, and a few customers and
suppliers: a third of each is updated, a third inserted, a third deleted, whatever refers to them. Then each query is
refreshed, and computed again by Spark into a Delta table and by DuckDB into a Parquet file, in an order that changes
from round to round. Prints medians of the rounds, the worst ratio first; compares every result with Spark's in the end.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from engines import seconds
from progress import say
from pyspark.sql import SparkSession
from tpch_queries import KEYS, queries, tables_of

from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings, load_spec

ROWS_PER_FILE = 1_500_000
FEW = 3
"""The smallest number of rows of a table that a round changes."""

FOLLOWERS = {
    "orders": ("lineitem", "l_orderkey"),
    "part": ("partsupp", "ps_partkey"),
    "customer": None,
    "supplier": None,
}
"""The tables whose rows a round chooses, each with the table whose rows follow, and their column."""

UPDATES = {
    "orders": {"o_orderpriority": "'1-URGENT'", "o_orderdate": "o_orderdate + INTERVAL 30 DAY"},
    "lineitem": {"l_quantity": "l_quantity % 50 + 1", "l_discount": "0.06", "l_receiptdate": "l_receiptdate + 5"},
    "part": {"p_brand": "'Brand#23'", "p_size": "p_size % 50 + 1"},
    "partsupp": {"ps_supplycost": "ps_supplycost * 0.9", "ps_availqty": "ps_availqty + 10"},
    "customer": {"c_mktsegment": "'BUILDING'", "c_acctbal": "c_acctbal + 100", "c_nationkey": "(c_nationkey + 1) % 25"},
    "supplier": {"s_acctbal": "s_acctbal + 100", "s_nationkey": "(s_nationkey + 1) % 25"},
}
"""What an update does to a row."""

_WAY = re.compile(r"\s*(\w+): (by row|by group|by partition|by arithmetic|whole)\b")
"""A block in what `plan` tells, and how it is kept up to date."""


@dataclass
class Measured:
    """One query: the ways of its blocks, and seconds.

    Attributes:
        ways: per block, first to last, what `plan` says; with the reason if a refresh computed it whole nevertheless.
        load: of the first load.
        refresh: of the refresh of each round; the first round warms up, and is not among them.
        stages: the part of each block of these.
        predicted: what `plan` said before each that its blocks should take.
        spark: of Spark's recomputes.
        duckdb: of DuckDB's.
    """

    ways: dict[str, str] = field(default_factory=dict)
    load: float = 0
    refresh: list[float] = field(default_factory=list)
    stages: list[dict[str, float]] = field(default_factory=list)
    predicted: list[dict[str, float]] = field(default_factory=list)
    spark: list[float] = field(default_factory=list)
    duckdb: list[float] = field(default_factory=list)

    def errors(self) -> list[float]:
        """Returns, per refresh, how wrong the seconds were that `plan` said, as a share of those it took."""
        both = zip(self.predicted, self.stages, strict=True)
        totals = [(sum(said.values()), sum(took[one] for one in said if one in took)) for said, took in both]
        return [abs(said - took) / took for said, took in totals if took]

    def medians(self) -> tuple[float, float, float]:
        """Returns the medians of refresh, Spark and DuckDB."""
        return statistics.median(self.refresh), statistics.median(self.spark), statistics.median(self.duckdb)


class Bench:
    """The tables, and the queries over them."""

    def __init__(self, folder: Path, scale: float, chosen: Iterable[int]) -> None:
        self.folder = folder
        self.session: SparkSession = start_session(Settings(driver_memory="8g", spark={"spark.master": "local[2]"}))
        self.queries = {number: query for number, query in queries(scale).items() if number in chosen}
        self._tables(scale)
        self.pipelines: dict[int, Pipeline] = {}
        self.refused: dict[int, str] = {}
        self.found: dict[int, Measured] = {}
        self.runs: list[StageRun] = []
        for number in self.queries:
            try:
                self.pipelines[number] = self._pipeline(number)
            except PipelineFileError as error:
                self.refused[number] = str(error)

    def _tables(self, scale: float) -> None:
        tool, made = Path(sys.executable).parent / "tpchgen-cli", self.folder / "plain"
        subprocess.run(
            [str(tool), "parquet", "-s", f"{scale:g}", f"--output-dir={made}"], check=True, capture_output=True
        )
        for table, keys in KEYS.items():
            number = pq.read_metadata(self._plain(table)).num_rows
            rows = self.session.read.parquet(str(self._plain(table)))
            ordered = rows.repartitionByRange(max(1, number // ROWS_PER_FILE), keys[0]).sortWithinPartitions(*keys)
            settings = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
            ordered.write.format("delta").options(**settings).save(str(self.folder / table))
            say(f"{table}: {number:,} rows")

    def _plain(self, table: str) -> Path:
        """Returns a Parquet file with the rows of a table as they are, for DuckDB."""
        return self.folder / "plain" / f"{table}.parquet"

    def _pipeline(self, number: int) -> Pipeline:
        query, name = self.queries[number], f"q{number}"
        inputs = "".join(f"  {one}: {{table: {one}, key: [{', '.join(KEYS[one])}]}}\n" for one in tables_of(query))
        file = self.folder / f"{name}.yaml"
        file.write_text(f"name: {name}\nkind: query\ninputs:\n{inputs}query: |{query}\n")
        return Pipeline(load_spec(file), self.session)

    def load(self, number: int) -> None:
        """Loads a query; Spark runs it before, as the first run of a query in a session compiles it."""
        pipeline, found = self.pipelines[number], self.found.setdefault(number, Measured())
        blocks = pipeline.plan().blocks
        assert blocks is not None
        ways = dict(told.groups() for told in map(_WAY.match, blocks.lines) if told)
        found.ways = {block: ways.get(block, "") for block in pipeline.spec.definition.stage_names}
        self.spark(number)
        found.load = seconds(pipeline.run)

    # ------------------------------------------------------------------------------------------------ what changes
    def change(self, number: int, share: float) -> None:
        """Changes a share of the orders, and a tenth of this share of parts, customers and suppliers."""
        with duckdb.connect(config={"threads": 2}) as connection:
            for table in KEYS:
                connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{self._plain(table)}'")
            for table, follower in FOLLOWERS.items():
                key, number_of = KEYS[table][0], connection.table(table).count("*").fetchall()[0][0]
                chosen = max(FEW, round(number_of * (share if table == "orders" else share / 10)))
                some = f"SELECT *, HASH({key}, {number}) AS h FROM {table} ORDER BY h LIMIT {chosen}"
                what = "['update', 'insert', 'delete'][1 + ROW_NUMBER() OVER (ORDER BY h) % 3]"
                connection.execute(f"CREATE TABLE chosen_{table} AS SELECT * EXCLUDE (h), {what} AS op FROM ({some})")
                self._change(connection, table, key, f"chosen_{table}", number)
                if follower:
                    name, of = follower
                    rows = f"SELECT f.*, op FROM {name} f JOIN chosen_{table} ON {key} = {of}"
                    self._change(connection, name, of, f"({rows})", number)

    def _change(self, connection: duckdb.DuckDBPyConnection, table: str, key: str, chosen: str, number: int) -> None:
        """Changes chosen rows of a table, according to their column `op`."""
        new = {key: f"IF(op = 'insert', {key} + {1_000_000_000 * (number + 1)}, {key})"}
        new |= {column: f"IF(op = 'update', {sql}, {column})" for column, sql in UPDATES[table].items()}
        kinds = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE {table}").fetchall()}
        columns = ", ".join(f"CAST({new.get(one, one)} AS {kind}) AS {one}" for one, kind in kinds.items())
        changes = self.folder / "changes.parquet"
        connection.execute(f"COPY (SELECT op, {columns} FROM {chosen}) TO '{changes}'")
        on = " AND ".join(f"t.{one} = c.{one}" for one in KEYS[table])
        self.session.read.parquet(str(changes)).createOrReplaceTempView("changes")
        self.session.sql(
            f"MERGE INTO delta.`{self.folder / table}` t USING changes c ON {on} WHEN MATCHED AND c.op = 'delete' "
            "THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        same = f"SELECT t.* FROM {table} t ANTI JOIN '{changes}' c ON {on}"
        changed = f"SELECT * EXCLUDE (op) FROM '{changes}' WHERE op <> 'delete'"
        rows = f"{same} UNION ALL {changed} ORDER BY {', '.join(KEYS[table])}"
        connection.execute(f"COPY ({rows}) TO '{self._plain(table)}' (ROW_GROUP_SIZE 250000)")

    # ------------------------------------------------------------------------------------------------ what is timed
    def refresh(self, number: int) -> None:
        """Runs the pipeline of a query; leaves in `runs` what it did."""
        self.runs = self.pipelines[number].run()
        for run in self.runs:
            whole = [note.partition("whole, ")[2].partition(";")[0] for note in run.notes if "whole, " in note]
            if whole:
                ways = self.found[number].ways
                ways[run.stage] = f"{ways[run.stage].partition(',')[0]}, whole: {whole[0]}"

    def spark(self, number: int) -> None:
        """Computes a query by Spark, and writes its rows as a Delta table."""
        for table in tables_of(self.queries[number]):
            self.session.read.format("delta").load(str(self.folder / table)).createOrReplaceTempView(table)
        found = self.session.sql(self.queries[number]).write.format("delta").mode("overwrite")
        found.save(str(self.folder / "recomputed" / f"q{number}"))

    def duckdb(self, number: int) -> None:
        """Computes a query by DuckDB, and writes its rows as a Parquet file."""
        with duckdb.connect(config={"threads": 2}) as connection:
            for table in tables_of(self.queries[number]):
                connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{self._plain(table)}'")
            connection.execute(f"COPY ({self.queries[number]}) TO '{self.folder / f'q{number}.parquet'}'")

    def round(self, turn: int, counts: bool) -> None:
        """Refreshes and recomputes every query; `turn` decides in which order."""
        order = [*self.pipelines]
        for number in order if turn % 2 else reversed(order):
            found = self.found[number]
            ahead = {one.stage: one.forecast for one in self.pipelines[number].plan().stages}
            work = [(one.__name__, partial(one, number)) for one in (self.refresh, self.spark, self.duckdb)]
            taken = {name: seconds(one) for name, one in [*work[turn % 3 :], *work[: turn % 3]]}
            if counts:
                for name, one in taken.items():
                    getattr(found, name).append(one)
                found.stages.append({run.stage: run.seconds for run in self.runs})
                found.predicted.append(
                    {stage: one.seconds for stage, one in ahead.items() if one is not None and one.seconds is not None}
                )
            say(f"round {turn}, query {number}: " + ", ".join(f"{name} {one:.2f} s" for name, one in taken.items()))

    def check(self) -> None:
        """Compares every result with the rows that Spark computed last, and their number with DuckDB's.

        Raises:
            SystemExit: a result is wrong.
        """
        for number, pipeline in self.pipelines.items():
            theirs = self.session.read.format("delta").load(str(self.folder / "recomputed" / f"q{number}"))
            ours = pipeline.table(pipeline.spec.definition.result.name).select(*theirs.columns)
            differing = ours.exceptAll(theirs).unionAll(theirs.exceptAll(ours)).count()
            rows, others = ours.count(), pq.read_metadata(self.folder / f"q{number}.parquet").num_rows
            if differing or rows != others:
                raise SystemExit(
                    f"query {number}: {differing} rows differ from Spark's; {rows} rows, of DuckDB {others}"
                )


def report(found: dict[int, Measured], refused: dict[int, str]) -> list[str]:
    """Returns a table of the queries, the greatest ratio of refresh by Spark first, and totals."""
    rows = sorted(found, key=lambda number: -found[number].medians()[0] / found[number].medians()[1])
    lines = [
        "| query | refresh | Spark | DuckDB | refresh by Spark | refresh by DuckDB | first load by Spark | blocks |",
        "|" + "---|" * 8,
    ]
    for number in rows:
        ours, spark, other = found[number].medians()
        ways = "; ".join(dict.fromkeys(found[number].ways.values()))
        ratios = f"{ours / spark:.2f} | {ours / other:.1f} | {found[number].load / spark:.2f}"
        lines.append(f"| {number} | {ours:.2f} s | {spark:.2f} s | {other:.2f} s | {ratios} | {ways} |")
    medians = [one.medians() for one in found.values()]
    ours, spark, other = (sum(one) for one in zip(*medians, strict=True))
    loads = sum(one.load for one in found.values())
    ratios = f"{ours / spark:.2f} | {ours / other:.1f} | {loads / spark:.2f}"
    lines.append(f"| sum of {len(found)} | {ours:.2f} s | {spark:.2f} s | {other:.2f} s | {ratios} | |")
    by_spark, by_other = (statistics.median(one[0] / one[side] for one in medians) for side in (1, 2))
    by_load = statistics.median(one.load / one.medians()[1] for one in found.values())
    lines.append(f"| median ratio | | | | {by_spark:.2f} | {by_other:.1f} | {by_load:.2f} | |")
    errors = [error for one in found.values() for error in one.errors()]
    if errors:
        within = sum(error <= 0.3 for error in errors)
        told = (
            f"of {len(errors)} refreshes {within} within 30% of what plan said, median {statistics.median(errors):.0%}"
        )
        lines.append(told)
    return [*lines, *(f"query {number} is refused: {why}" for number, why in refused.items())]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-tpch", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H; 1 has 6 million lines")
    parser.add_argument("--queries", default=",".join(map(str, queries(1))), help="their numbers, separated by commas")
    parser.add_argument("--share", type=float, default=0.001, help="of the orders, that a round changes")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count; one before them warms up")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "tpch.json")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    bench = Bench(folder, options.scale, [int(one) for one in options.queries.split(",")])
    for number in bench.pipelines:
        bench.load(number)
        say(f"query {number}: loaded in {bench.found[number].load:.2f} s")
    for turn in range(options.rounds + 1):
        bench.change(turn, options.share)
        bench.round(turn, counts=turn > 0)
    print("\n".join(report(bench.found, bench.refused)), flush=True)
    told = {number: asdict(one) for number, one in bench.found.items()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    facts = {"scale": options.scale, "share": options.share, "queries": told, "refused": bench.refused}
    options.out.write_text(json.dumps(facts, indent=1) + "\n")
    bench.check()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
