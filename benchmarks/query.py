"""What a refresh of a query costs, beside the same query by Spark and by DuckDB: `make bench-query`.

The tables are Delta tables that Spark wrote, from TPC-H: lineitem, orders, customer, part, supplier, nation. The
queries are a star of all six with a GROUP BY, its rows without one, and a GROUP BY over two of the tables. The changes
are updates by Spark: of about a thousand lines, anywhere; of ten customers, who come with all their lines. Prints
seconds and ratios, medians of the repetitions; verifies every result in the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
from progress import say
from pyspark.sql import SparkSession

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings, load_spec

KEYS = {
    "lineitem": "[l_orderkey, l_linenumber]",
    "orders": "o_orderkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "supplier": "s_suppkey",
    "nation": "n_nationkey",
}
STAR = (
    "FROM lineitem l JOIN orders o ON o.o_orderkey = l.l_orderkey JOIN customer c ON c.c_custkey = o.o_custkey "
    "JOIN part p ON p.p_partkey = l.l_partkey JOIN supplier s ON s.s_suppkey = l.l_suppkey "
    "JOIN nation n ON n.n_nationkey = c.c_nationkey"
)
REVENUE = "l.l_extendedprice * (1 - l.l_discount)"
QUERIES = {
    "star, grouped": (
        f"SELECT n.n_name, p.p_brand, COUNT(*) AS n, SUM({REVENUE}) AS revenue {STAR} GROUP BY n.n_name, p.p_brand"
    ),
    "star, rows": (
        "SELECT l.l_orderkey, l.l_linenumber, l.l_quantity, o.o_orderdate, c.c_name, p.p_name, s.s_name, n.n_name, "
        f"{REVENUE} AS revenue {STAR}"
    ),
    "two tables, grouped": (
        f"SELECT o.o_orderpriority, COUNT(*) AS n, SUM({REVENUE}) AS revenue "
        "FROM lineitem l JOIN orders o ON o.o_orderkey = l.l_orderkey GROUP BY o.o_orderpriority"
    ),
}
ROWS_PER_FILE = 1_500_000


class Bench:
    """The tables, and the queries over them."""

    def __init__(self, folder: Path, scale: float, queries: list[str]) -> None:
        self.folder = folder
        self.session: SparkSession = start_session(Settings(driver_memory="8g", spark={"spark.master": "local[2]"}))
        self._tables(scale)
        self.pipelines = {name: self._pipeline(name) for name in queries}

    def _tables(self, scale: float) -> None:
        tool, made = Path(sys.executable).parent / "tpchgen-cli", self.folder / "tpch"
        named = ["--tables", ",".join(KEYS), f"--output-dir={made}"]
        subprocess.run([str(tool), "parquet", "-s", f"{scale:g}", *named], check=True, capture_output=True)
        for table, keys in KEYS.items():
            first, rows = keys.strip("[]").split(",")[0], self.session.read.parquet(str(made / f"{table}.parquet"))
            files = max(1, rows.count() // ROWS_PER_FILE)
            ordered = rows.repartitionByRange(files, first).sortWithinPartitions(first)
            settings = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
            ordered.write.format("delta").options(**settings).save(str(self.folder / table))
            say(f"{table}: {rows.count():,} rows")

    def _pipeline(self, name: str, prefix: str = "") -> Pipeline:
        query = QUERIES[name]
        read = [table for table in KEYS if f" {table} " in query]
        inputs = "".join(f"  {table}: {{table: {table}, key: {KEYS[table]}}}\n" for table in read)
        called = prefix + name.replace(", ", "_").replace(" ", "_")
        file = self.folder / f"{called}.yaml"
        file.write_text(f"name: {called}\nkind: query\ninputs:\n{inputs}query: {query}\n")
        return Pipeline(load_spec(file), self.session)

    def warm_up(self, name: str) -> None:
        """Loads a query whose result is not used: the first load of a JVM compiles what the next ones run."""
        pipeline = self._pipeline(name, "first_")
        pipeline.run()
        shutil.rmtree(pipeline.spec.home)

    def spark(self, name: str) -> None:
        """Runs a query by Spark, and writes its rows as a Delta table."""
        for table in KEYS:
            rows = self.session.read.format("delta").load(str(self.folder / table))
            rows.createOrReplaceTempView(table)
        found = self.session.sql(QUERIES[name]).write.format("delta").mode("overwrite")
        found.save(str(self.folder / "recomputed" / name.replace(", ", "_").replace(" ", "_")))

    def change_lines(self, number: int) -> None:
        """Changes about a thousand lines anywhere."""
        last = self.session.read.format("delta").load(str(self.folder / "orders")).selectExpr("MAX(o_orderkey)").first()
        chosen = sorted({32 * ((number * 7919 + i * 6007) % (last[0] // 32)) + 1 for i in range(250)})
        self._update("lineitem", "l_quantity = l_quantity + 1, l_discount = 0.05", "l_orderkey", chosen)

    def change_customers(self, number: int) -> None:
        """Moves ten customers to another nation."""
        customers = self.session.read.format("delta").load(str(self.folder / "customer")).count()
        chosen = [1 + (number * 7919 + i * 6007) % customers for i in range(10)]
        self._update("customer", "c_nationkey = (c_nationkey + 1) % 25", "c_custkey", chosen)

    def _update(self, table: str, what: str, key: str, chosen: list[int]) -> None:
        keys = ", ".join(map(str, chosen))
        self.session.sql(f"UPDATE delta.`{self.folder / table}` SET {what} WHERE {key} IN ({keys})")

    def duckdb(self, name: str) -> float:
        """Returns the seconds of a query by DuckDB over the Parquet files of the beginning."""
        with duckdb.connect(config={"threads": 2}) as connection:
            for table in KEYS:
                file = self.folder / "tpch" / f"{table}.parquet"
                connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{file}'")
            return timed(lambda: connection.execute(f"CREATE TABLE found AS {QUERIES[name]}"))


def timed(work: Callable[[], object]) -> float:
    """Returns the seconds of some work."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-query", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H; 1 has 6 million lines")
    parser.add_argument(
        "--repeat", type=int, default=4, help="changes of a kind; the first warms up, and does not count"
    )
    parser.add_argument("--queries", default="; ".join(QUERIES), help="some of these, separated by semicolons")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "query.json")
    options = parser.parse_args()
    folder, names = Path(tempfile.mkdtemp(prefix="bench-")), [one.strip() for one in options.queries.split(";")]
    bench = Bench(folder, options.scale, names)
    found: dict[str, dict[str, float]] = {}
    for name, pipeline in bench.pipelines.items():
        bench.warm_up(name)
        bench.spark(name)
        found[name] = {"load": timed(pipeline.run)}
        found[name]["Spark"] = statistics.median(timed(lambda name=name: bench.spark(name)) for _ in range(3))
        found[name]["DuckDB"] = bench.duckdb(name)
        say(f"{name}: {found[name]}")
    for what, change in (("1,000 lines", bench.change_lines), ("10 customers", bench.change_customers)):
        taken: dict[str, list[float]] = {}
        for number in range(options.repeat):
            change(number)
            for name, pipeline in bench.pipelines.items():
                taken.setdefault(name, []).append(timed(pipeline.run))
            say(f"{what}, {number}: " + ", ".join(f"{name} {taken[name][-1]:.2f} s" for name in taken))
        for name, seconds in taken.items():
            found[name][what] = statistics.median(seconds[1:] or seconds)
    for name, pipeline in bench.pipelines.items():
        assert pipeline.verify().ok, name
        told = found[name]
        ratios = ", ".join(f"{of} / Spark {told[of] / told['Spark']:.2f}" for of in told if of != "Spark")
        print(f"{name}: {ratios}; Spark {told['Spark']:.2f} s")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"scale": options.scale, "seconds": found}, indent=1) + "\n")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
