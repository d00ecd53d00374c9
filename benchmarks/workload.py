"""What the benchmark joins: two tables, and batches of changes to them, as Parquet landing files.

Left is an order (id, customer, price, status, priority, day, comment; about 85 bytes), right a customer (id, name,
balance, segment). Tables come from TPC-H (`tpchgen-cli`), or are made up with skewed customers.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

LEFT_SCHEMA = (
    "id BIGINT, customer BIGINT, price DECIMAL(15,2), status STRING, priority STRING, day DATE, comment STRING"
)
RIGHT_SCHEMA = "id BIGINT, name STRING, balance DECIMAL(15,2), segment STRING"
LEFT = ("id", "customer", "price", "status", "priority", "day", "comment")
RIGHT = ("id", "name", "balance", "segment")
RESULT = (*LEFT, *RIGHT[1:])
JOIN = (
    f"SELECT {', '.join(f'l.{name}' for name in LEFT)}, {', '.join(f'r.{name}' for name in RIGHT[1:])} "
    "FROM {left} AS l {kind} JOIN {right} AS r ON l.customer = r.id"
)
JOINS = {"outer": "FULL OUTER"}
"""Per `join` of a pipeline file, the join of SQL where that has another name."""
TPCH_ORDERS, TPCH_CUSTOMERS = 1_500_000, 150_000
"""Rows at scale factor 1."""


@dataclass(frozen=True)
class Change:
    """One batch of changes.

    Attributes:
        left: left rows that change: nine of ten are updates, half of them to another customer; then as many deletes as
            inserts.
        right: right rows that change.
        recent: left rows are among the newest hundredth of all, not anywhere.
    """

    left: int
    right: int
    recent: bool = False


@dataclass
class Workload:
    """Tables and batches in a folder. Batch 0 is the initial load."""

    folder: Path
    left: int
    right: int
    skewed: bool = False
    batches: int = 0
    inserted: int = 0
    connection: duckdb.DuckDBPyConnection = field(default_factory=lambda: duckdb.connect(config={"threads": 2}))

    def __post_init__(self) -> None:
        for side in ("left", "right"):
            (self.folder / "landing" / side).mkdir(parents=True, exist_ok=True)

    def landing(self, side: str, batch: int) -> Path:
        """The file of a batch."""
        return self.folder / "landing" / side / f"{batch:08d}.parquet"

    def generate(self) -> None:
        """The initial load, in a folder without one."""
        if self.landing("left", 0).exists():
            raise SystemExit(f"{self.folder} has tables already: name an empty folder")
        orders, customers = self._skewed() if self.skewed else self._tpch()
        self._copy(f"SELECT 'c' AS op, * FROM ({orders}) ORDER BY id LIMIT {self.left}", self.landing("left", 0))
        self._copy(f"SELECT 'c' AS op, * FROM ({customers}) ORDER BY id LIMIT {self.right}", self.landing("right", 0))
        self.connection.execute(
            f"CREATE OR REPLACE TABLE newest AS SELECT MAX(id) AS id, QUANTILE_DISC(id, 0.99) AS from_id "
            f"FROM '{self.landing('left', 0)}'"
        )

    def _tpch(self) -> tuple[str, str]:
        scale = max(self.left / TPCH_ORDERS, self.right / TPCH_CUSTOMERS) + 0.001
        made = self.folder / "tpch"
        tool = Path(sys.executable).parent / "tpchgen-cli"
        command = [tool, "parquet", "-s", f"{scale:.4f}", "--tables=orders,customer", f"--output-dir={made}"]
        subprocess.run(command, check=True)
        orders = f"""SELECT o_orderkey AS id, o_custkey % {self.right} + 1 AS customer, o_totalprice AS price,
            o_orderstatus AS status, o_orderpriority AS priority, o_orderdate AS day, o_comment AS comment
            FROM '{made}/orders.parquet'"""
        customers = f"""SELECT c_custkey AS id, c_name AS name, c_acctbal AS balance, c_mktsegment AS segment
            FROM '{made}/customer.parquet'"""
        return orders, customers

    def _skewed(self) -> tuple[str, str]:
        """A few customers have most of the orders: the first of a million has a hundredth of all."""
        orders = f"""SELECT i AS id,
            1 + CAST(FLOOR({self.right} * POW((hash(i) % 1000003) / 1000003.0, 3)) AS BIGINT) AS customer,
            CAST(hash(i + 1) % 100000 / 100.0 AS DECIMAL(15,2)) AS price,
            ['O', 'F', 'P'][CAST(hash(i) % 3 AS INT) + 1] AS status,
            ['1-URGENT', '3-MEDIUM', '5-LOW'][CAST(hash(i) % 3 AS INT) + 1] AS priority,
            DATE '2020-01-01' + CAST(i % 2000 AS INT) AS day, md5(i::VARCHAR) AS comment
            FROM range(1, {self.left} + 1) AS r(i)"""
        customers = f"""SELECT i AS id, 'Customer#' || i AS name,
            CAST(hash(i) % 100000 / 100.0 AS DECIMAL(15,2)) AS balance,
            ['BUILDING', 'MACHINERY'][CAST(hash(i) % 2 AS INT) + 1] AS segment
            FROM range(1, {self.right} + 1) AS r(i)"""
        return orders, customers

    def change(self, what: Change) -> int:
        """Lands the next batch; returns its number."""
        self.batches += 1
        batch, left = self.batches, self.landing("left", 0)
        some = f"WHERE id >= (SELECT from_id FROM newest) {'' if what.recent else 'OR TRUE'}"
        updates, deletes = what.left - what.left // 10, what.left // 20
        inserts = what.left - updates - deletes
        if what.left:
            self._copy(
                f"""WITH chosen AS (
                    SELECT *, ROW_NUMBER() OVER (ORDER BY hash(id, {batch})) AS n FROM '{left}' {some}
                    QUALIFY n <= {updates + deletes}
                )
                SELECT IF(n <= {deletes}, 'd', 'u') AS op, id,
                    IF(n % 2 = 0, customer, 1 + CAST(hash(id, {batch}, 1) % {self.right} AS BIGINT)) AS customer,
                    CAST(price + {batch} AS DECIMAL(15,2)) AS price, status, priority, day, comment FROM chosen
                UNION ALL
                SELECT 'c', newest.id + {self.inserted} + i, 1 + CAST(hash(i, {batch}) % {self.right} AS BIGINT),
                    CAST(i / 100.0 AS DECIMAL(15,2)), 'O', '5-LOW', DATE '2026-01-01', 'a new one of batch {batch}'
                FROM newest, range(1, {inserts} + 1) AS r(i)
                ORDER BY id""",
                self.landing("left", batch),
            )
            self.inserted += inserts
        if what.right:
            self._copy(
                f"""SELECT 'u' AS op, id, name, CAST(balance + {batch} AS DECIMAL(15,2)) AS balance, segment
                FROM '{self.landing("right", 0)}' ORDER BY hash(id, {batch}) LIMIT {what.right}""",
                self.landing("right", batch),
            )
        return batch

    def events(self, batch: int) -> int:
        """How many changes a batch has."""
        sides = (self.landing(side, batch) for side in ("left", "right"))
        return sum(self.connection.execute(f"SELECT COUNT(*) FROM '{f}'").fetchall()[0][0] for f in sides if f.exists())

    def current(self, side: str, file: Path) -> None:
        """Writes the table of a side as it is after all batches."""
        names = ", ".join(LEFT if side == "left" else RIGHT)
        self._copy(
            f"""SELECT {names} FROM (
                SELECT *, CAST(regexp_extract(filename, '([0-9]+).parquet', 1) AS INT) AS batch
                FROM read_parquet('{self.folder}/landing/{side}/*.parquet', filename = true)
                QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY batch DESC) = 1
            ) WHERE op <> 'd' ORDER BY id""",
            file,
        )

    def feed(self, side: str, batch: int, file: Path) -> None:
        """Writes a batch for Kafka Streams: side, key, value as text; no value for a delete."""
        names = LEFT[1:] if side == "left" else RIGHT[1:]
        value = " || '|' || ".join(f"{name}::VARCHAR" for name in names)
        self.connection.execute(
            f"COPY (SELECT '{side[0]}', id, IF(op = 'd', NULL, {value}) FROM '{self.landing(side, batch)}') "
            f"TO '{file}' (FORMAT csv, DELIMITER '\t', HEADER false, QUOTE '', ESCAPE '', NULL '')"
        )

    def _copy(self, query: str, file: Path) -> None:
        """In one file, put into place when it is complete."""
        unfinished = file.with_name(f".{file.name}")
        self.connection.execute(f"COPY ({query}) TO '{unfinished}' (FORMAT parquet, ROW_GROUP_SIZE 250000)")
        unfinished.rename(file)
