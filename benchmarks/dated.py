"""The workload of case `as-of`: an order sees the version of its customer that held when the order came.

Orders come from 2016 to 2025, in the order of their keys. A customer has ten versions, one in each of these years. The
versions that a batch brings are late by a year or more: they hold since some day of the second half of 2024.
"""

from __future__ import annotations

from typing import ClassVar

from workload import Workload

VERSIONS = 10
"""Of each customer, in the initial load."""
_YEAR = 31_557_600
"""Seconds."""
_START = 1_451_606_400
"""Unix time of the beginning of 2016."""
_END = _START + VERSIONS * _YEAR


class Dated(Workload):
    """The tables of `Workload`, with times: `came` of an order, `since` of a version."""

    LEFT: ClassVar = {**Workload.LEFT, "came": "TIMESTAMP"}
    RIGHT: ClassVar = {**Workload.RIGHT, "since": "TIMESTAMP"}
    KEYS: ClassVar = {"left": ["id"], "right": ["id", "since"]}
    AS_OF, VALID_FROM = "as_of: came\n", ", valid_from: since"

    def spark_query(self, left: str, right: str, kind: str) -> str:
        """The join of both tables as they are, for Spark, which has no as-of join.

        The end of each version is known when the versions are sorted once; then each order meets the versions of its
        customer in one join that keeps the version of its time.
        """
        versions = f"SELECT *, LEAD(since) OVER (PARTITION BY id ORDER BY since) AS until FROM {right}"
        return (
            f"SELECT {self.columns} FROM {left} AS l {kind} JOIN ({versions}) AS r "
            "ON l.customer = r.id AND l.came >= r.since AND (r.until IS NULL OR l.came < r.until)"
        )

    def duckdb_query(self, left: str, right: str, kind: str) -> str:
        """The same for DuckDB."""
        on = "l.customer = r.id AND l.came >= r.since"
        return f"SELECT {self.columns} FROM {left} AS l ASOF {kind} JOIN {right} AS r ON {on}"

    def first_left(self, orders: str) -> str:
        """Orders in the order of their keys, evenly spread over the years."""
        span = VERSIONS * _YEAR
        return f"SELECT *, to_timestamp({_START} + {span} * (id / MAX(id) OVER ())) AS came FROM ({orders})"

    def first_right(self, customers: str) -> str:
        """One version of each customer in each year, at some second of it."""
        since = f"to_timestamp({_START} + v * {_YEAR} + CAST(hash(id, v) % {_YEAR} AS BIGINT))"
        return (
            f"SELECT * REPLACE (CAST(balance + v AS DECIMAL(15,2)) AS balance), {since} AS since "
            f"FROM ({customers}), range({VERSIONS}) AS r(v) ORDER BY id, since"
        )

    def inserted_left(self, rows: str) -> str:
        """New orders come at the end."""
        return f"SELECT *, to_timestamp({_END}) AS came FROM ({rows})"

    def changed_right(self, batch: int, number: int) -> str:
        """New versions of so many customers, late by a year or more; no version of a customer has their times."""
        late = f"to_timestamp({_END - 3 * _YEAR // 2} + CAST(hash(id, {batch}) % {_YEAR // 2} AS BIGINT) + 0.5)"
        balance = f"CAST(balance + {1000 + batch} AS DECIMAL(15,2))"
        first = "QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY since) = 1"
        return f"""SELECT * REPLACE ('c' AS op, {balance} AS balance, {late} AS since)
            FROM (SELECT * FROM '{self.landing("right", 0)}' {first}) ORDER BY hash(id, {batch}) LIMIT {number}"""

    def differing(self, kind: str) -> int:
        """How many rows of the result the last batch changes, as DuckDB computes it from what landed."""
        for name, batches in (("before", self.batches - 1), ("after", self.batches)):
            query = self.duckdb_query(f"({self.rows('left', batches)})", f"({self.rows('right', batches)})", kind)
            self.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT id, hash(found) AS content FROM ({query}) AS found"
            )
        changed = "before.content IS DISTINCT FROM after.content"
        found = self.connection.execute(f"SELECT COUNT(*) FROM before FULL JOIN after USING (id) WHERE {changed}")
        return int(found.fetchall()[0][0])
