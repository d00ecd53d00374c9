"""The workload of case `aggregate`: events of many services in 30 days, counted by service and hour.

Services are spread evenly. A batch brings a thousand recent events and a hundred that are late by some hours.
"""

from __future__ import annotations

from typing import ClassVar

from workload import Change, Workload

_DAYS, _DAY = 30, 86_400
_START = 1_767_225_600
"""Unix time of the beginning of 2026."""


class Grouped(Workload):
    """One input of events; `right` of the workload is the number of services."""

    LEFT: ClassVar = {
        "event": "BIGINT",
        "service": "BIGINT",
        "happened": "TIMESTAMP",
        "millis": "INT",
        "line": "STRING",
    }
    KEYS: ClassVar = {"left": ["event"]}
    SIDES: ClassVar = ("left",)
    WRITES: ClassVar = ("added", "written", "removed")

    @property
    def result(self) -> list[str]:
        """The columns of the result."""
        return ["id", "window_start", "window_end", "n", "total", "slowest"]

    def pipeline_file(self, name: str, _kind: str, settings: str) -> str:
        """The pipeline file of the aggregate, which is no join."""
        columns = ", ".join(f"{column} {of}" for column, of in self.LEFT.items())
        return (
            f"name: {name}\nkind: aggregate\n"
            f'input: {{path: landing/left, schema: "{columns}", format: parquet, contents: events, key: event}}\n'
            "group_by: [service AS id]\nwindow: {time: happened, size: 1 hour}\n"
            f"aggregates: [count(*) AS n, sum(millis) AS total, max(millis) AS slowest]\nsettings: {settings}\n"
        )

    def spark_query(self, left: str, **_: str) -> str:
        """The events by service and hour."""
        hour = "date_trunc('hour', happened)"
        return (
            f"SELECT service AS id, {hour} AS window_start, {hour} + INTERVAL 1 HOUR AS window_end, COUNT(*) AS n, "
            f"CAST(SUM(millis) AS BIGINT) AS total, MAX(millis) AS slowest FROM {left} AS l GROUP BY service, {hour}"
        )

    def duckdb_query(self, left: str, **_: str) -> str:
        """The same for DuckDB."""
        return self.spark_query(left)

    def generate(self) -> None:
        """The initial load, in a folder without one."""
        if self.landing("left", 0).exists():
            raise SystemExit(f"{self.folder} has tables already: name an empty folder")
        at = f"to_timestamp({_START} + {_DAYS * _DAY} * (i / {self.left}))"
        self._copy(self._events(f"range(1, {self.left} + 1) AS r(i)", "i", at), self.landing("left", 0))

    def _events(self, numbers: str, key: str, at: str) -> str:
        service, millis = f"CAST(hash({key}) % {self.right} AS BIGINT)", f"CAST(hash({key}, 1) % 5000 AS INT)"
        line = "'GET /items/' || i % 20000 AS line"
        columns = f"{key} AS event, {service} AS service, {at} AS happened, {millis} AS millis, {line}"
        return f"SELECT 'c' AS op, {columns} FROM {numbers}"

    def change(self, what: Change) -> int:
        """Lands so many new events, and a tenth as many late ones; returns the number of the batch."""
        self.batches += 1
        number = what.left + what.left // 10
        late = f"IF(i > {what.left}, 3600 * (1 + i % 7), 0)"
        at = f"to_timestamp({_START + _DAYS * _DAY} + {self.batches} * 5 + i / {max(1, number)} * 5 - {late})"
        rows = self._events(f"range(1, {number} + 1) AS r(i)", f"{self.left} + {self.inserted} + i", at)
        self._copy(f"SELECT * FROM ({rows}) ORDER BY event", self.landing("left", self.batches))
        self.inserted += number
        return self.batches

    def differing(self, _kind: str) -> int:
        """How many rows of the result the last batch changes, as DuckDB computes it from what landed."""
        for name, batches in (("before", self.batches - 1), ("after", self.batches)):
            query = self.spark_query(f"({self.rows('left', batches)})")
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
        changed = "SELECT COUNT(*) FROM (SELECT id, window_start FROM (FROM after EXCEPT FROM before))"
        return int(self.connection.execute(changed).fetchall()[0][0])
