"""What the benchmark joins: two tables, and batches of changes to them, as Parquet landing files.

Left is an order (id, customer, price, status, priority, day, comment; about 85 bytes), right a customer (id, name,
balance, segment). Tables come from TPC-H (`tpchgen-cli`), or are made up with skewed customers. With `as_of` an order
also has the time at which it came, and a customer has ten versions with a time each (`dated.py`).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import duckdb

JOINS = {"outer": "FULL OUTER"}
"""Per `join` of a pipeline file, the join of SQL where that has another name."""
DUCKDB = {"threads": 2, "memory_limit": "4GB"}
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
    """Tables and batches in a folder. Batch 0 is the initial load.

    The types of the columns, the key of each table, and the lines of the pipeline file about times are of the class:
    another one may join other tables.
    """

    LEFT: ClassVar = {
        "id": "BIGINT",
        "customer": "BIGINT",
        "price": "DECIMAL(15,2)",
        "status": "STRING",
        "priority": "STRING",
        "day": "DATE",
        "comment": "STRING",
    }
    RIGHT: ClassVar = {"id": "BIGINT", "name": "STRING", "balance": "DECIMAL(15,2)", "segment": "STRING"}
    KEYS: ClassVar = {"left": ["id"], "right": ["id"]}
    SIDES: ClassVar[tuple[str, ...]] = ("left", "right")
    AS_OF: ClassVar = ""
    VALID_FROM: ClassVar = ""
    WRITES: ClassVar[tuple[str, ...]] = ()
    """The counts of rows of the result that a run changes, where the kind of join has others than the foreign key."""

    folder: Path
    left: int
    right: int
    skewed: bool = False
    batches: int = 0
    inserted: int = 0
    connection: duckdb.DuckDBPyConnection = field(default_factory=lambda: duckdb.connect(config=DUCKDB))

    def __post_init__(self) -> None:
        for side in self.SIDES:
            (self.folder / "landing" / side).mkdir(parents=True, exist_ok=True)

    @property
    def result(self) -> list[str]:
        """The columns of the result: those of the left row, and the values of the right one."""
        return [*self.LEFT, *[name for name in self.RIGHT if name not in self.KEYS["right"]]]

    @property
    def columns(self) -> str:
        """SQL: the columns of the result, in a join of `l` and `r`."""
        return ", ".join(f"l.{name}" if name in self.LEFT else f"r.{name}" for name in self.result)

    def pipeline_file(self, name: str, kind: str, settings: str) -> str:
        """The pipeline file of the join."""
        left, right = (", ".join(f"{c} {of}" for c, of in side.items()) for side in (self.LEFT, self.RIGHT))
        return (
            f"name: {name}\njoin: {kind}\n{self.AS_OF}"
            f'left: {{path: landing/left, format: parquet, schema: "{left}", key: id, op_column: op,\n'
            "    foreign_key: customer}\n"
            f'right: {{path: landing/right, format: parquet, schema: "{right}", key: id, op_column: op'
            f"{self.VALID_FROM}}}\n"
            f"select: [left.{', '.join(self.result)}]\n"
            f"settings: {settings}\n"
        )

    def spark_query(self, left: str, right: str, kind: str) -> str:
        """The join of both tables as they are, for Spark."""
        return f"SELECT {self.columns} FROM {left} AS l {JOINS.get(kind, kind)} JOIN {right} AS r ON l.customer = r.id"

    def duckdb_query(self, left: str, right: str, kind: str) -> str:
        """The same for DuckDB."""
        return self.spark_query(left, right, kind)

    def landing(self, side: str, batch: int) -> Path:
        """The file of a batch."""
        return self.folder / "landing" / side / f"{batch:08d}.parquet"

    def generate(self) -> None:
        """The initial load, in a folder without one."""
        if self.landing("left", 0).exists():
            raise SystemExit(f"{self.folder} has tables already: name an empty folder")
        orders, customers = self._skewed() if self.skewed else self._tpch()
        orders = f"SELECT 'c' AS op, * FROM ({orders}) ORDER BY id LIMIT {self.left}"
        customers = f"SELECT 'c' AS op, * FROM ({customers}) ORDER BY id LIMIT {self.right}"
        self._copy(self.first_left(orders), self.landing("left", 0))
        self._copy(self.first_right(customers), self.landing("right", 0))
        self.connection.execute(
            f"CREATE OR REPLACE TABLE newest AS SELECT MAX(id) AS id, QUANTILE_DISC(id, 0.99) AS from_id "
            f"FROM '{self.landing('left', 0)}'"
        )

    def first_left(self, orders: str) -> str:
        """The left rows of the initial load, of a query for orders with their `op`."""
        return orders

    def first_right(self, customers: str) -> str:
        """The right rows of the initial load, of a query for customers with their `op`."""
        return customers

    def inserted_left(self, rows: str) -> str:
        """The left rows that a batch inserts, of a query for orders."""
        return rows

    def changed_right(self, batch: int, number: int) -> str:
        """So many right rows that a batch changes."""
        return f"""SELECT * REPLACE ('u' AS op, CAST(balance + {batch} AS DECIMAL(15,2)) AS balance)
            FROM '{self.landing("right", 0)}' ORDER BY hash(id, {batch}) LIMIT {number}"""

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
            new = f"""SELECT 'c' AS op, newest.id + {self.inserted} + i AS id,
                    1 + CAST(hash(i, {batch}) % {self.right} AS BIGINT) AS customer,
                    CAST(i / 100.0 AS DECIMAL(15,2)) AS price, 'O' AS status, '5-LOW' AS priority,
                    DATE '2026-01-01' AS day, 'a new one of batch {batch}' AS comment
                FROM newest, range(1, {inserts} + 1) AS r(i)"""
            self._copy(
                f"""WITH chosen AS (
                    SELECT *, ROW_NUMBER() OVER (ORDER BY hash(id, {batch})) AS n FROM '{left}' {some}
                    QUALIFY n <= {updates + deletes}
                )
                SELECT * EXCLUDE (n) REPLACE (
                    IF(n <= {deletes}, 'd', 'u') AS op,
                    IF(n % 2 = 0, customer, 1 + CAST(hash(id, {batch}, 1) % {self.right} AS BIGINT)) AS customer,
                    CAST(price + {batch} AS DECIMAL(15,2)) AS price
                ) FROM chosen
                UNION ALL BY NAME
                {self.inserted_left(new)}
                ORDER BY id""",
                self.landing("left", batch),
            )
            self.inserted += inserts
        if what.right:
            self._copy(self.changed_right(batch, what.right), self.landing("right", batch))
        return batch

    def events(self, batch: int) -> int:
        """How many changes a batch has."""
        sides = (self.landing(side, batch) for side in self.SIDES)
        return sum(self.connection.execute(f"SELECT COUNT(*) FROM '{f}'").fetchall()[0][0] for f in sides if f.exists())

    def rows(self, side: str, batches: int) -> str:
        """A query for the table of a side as it is after so many batches."""
        names, keys = ", ".join(self.LEFT if side == "left" else self.RIGHT), ", ".join(self.KEYS[side])
        return f"""SELECT {names} FROM (
                SELECT *, CAST(regexp_extract(filename, '([0-9]+).parquet', 1) AS INT) AS batch
                FROM read_parquet('{self.folder}/landing/{side}/*.parquet', filename = true)
                WHERE batch <= {batches}
                QUALIFY ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY batch DESC) = 1
            ) WHERE op <> 'd'"""

    def current(self, side: str, file: Path) -> None:
        """Writes the table of a side as it is after all batches."""
        self._copy(f"{self.rows(side, self.batches)} ORDER BY {', '.join(self.KEYS[side])}", file)

    def feeds(self, batch: int, folder: Path) -> list[Path]:
        """Writes the files of a batch for Kafka Streams, in the order in which it reads them."""
        files = []
        for side in ("right", "left"):
            if self.landing(side, batch).exists():
                files.append(folder / f"{side}-{batch}.tsv")
                self._feed(side, batch, files[-1])
        return files

    def _feed(self, side: str, batch: int, file: Path) -> None:
        """Writes a file for Kafka Streams: side, key, value as text; no value for a delete."""
        names = [*(self.LEFT if side == "left" else self.RIGHT)][1:]
        value = " || '|' || ".join(f"{name}::VARCHAR" for name in names)
        self.connection.execute(
            f"COPY (SELECT '{side[0]}', id, IF(op = 'd', NULL, {value}) FROM '{self.landing(side, batch)}') "
            f"TO '{file}' (FORMAT csv, DELIMITER '\t', HEADER false, QUOTE '', ESCAPE '', NULL '')"
        )

    def _copy(self, query: str, file: Path) -> None:
        """Writes the rows of a query to one file, put into place when it is complete."""
        unfinished = file.with_name(f".{file.name}")
        self.connection.execute(f"COPY ({query}) TO '{unfinished}' (FORMAT parquet, ROW_GROUP_SIZE 250000)")
        unfinished.rename(file)
