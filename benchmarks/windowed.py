"""The workload of case `window`: impressions and clicks of one day, paired by user within half an hour.

Users are spread evenly. A batch brings recent impressions and clicks; one in a hundred is late by some hours.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from workload import Change, Workload

_DAY = 86_400
_START = 1_767_225_600
"""Unix time of the beginning of 2026."""


class Windowed(Workload):
    """Events of both sides have a key, a user and a time; `right` of the workload is the number of users."""

    LEFT: ClassVar = {"id": "BIGINT", "user": "BIGINT", "happened": "TIMESTAMP", "ad": "STRING"}
    RIGHT: ClassVar = {"id": "BIGINT", "user": "BIGINT", "happened": "TIMESTAMP", "page": "STRING"}
    WRITES: ClassVar = ("paired", "parted", "left alone", "taken back")

    @property
    def result(self) -> list[str]:
        """The columns of the result."""
        return ["id", "user", "happened", "ad", "click", "clicked_at", "page"]

    @property
    def columns(self) -> str:
        """SQL: the columns of the result, in a join of `l` and `r`."""
        left = "l.id AS id, l.user AS user, l.happened AS happened, l.ad AS ad"
        return f"{left}, r.id AS click, r.happened AS clicked_at, r.page AS page"

    def pipeline_file(self, name: str, kind: str, settings: str) -> str:
        """The pipeline file of the join."""
        left, right = (", ".join(f"{c} {of}" for c, of in side.items()) for side in (self.LEFT, self.RIGHT))
        side = "format: parquet, contents: events, key: id, on: user, time: happened"
        return (
            f"name: {name}\nkind: window\njoin: {kind}\nwithin: {{after: 30 minutes}}\n"
            f'left: {{path: landing/left, schema: "{left}", {side}}}\n'
            f'right: {{path: landing/right, schema: "{right}", {side}}}\n'
            "select: [left.id AS id, left.user AS user, left.happened AS happened, ad, right.id AS click,\n"
            f"  right.happened AS clicked_at, page]\nsettings: {settings}\n"
        )

    def spark_query(self, left: str, right: str, kind: str) -> str:
        """The pairs, and in a left join the impressions without a click whose window has closed."""
        near = "r.happened >= l.happened AND r.happened <= l.happened + INTERVAL 30 MINUTES"
        rows = f"SELECT {self.columns} FROM {left} AS l {kind} JOIN {right} AS r ON l.user = r.user AND {near}"
        if kind == "inner":
            return rows
        clock = (
            f"(SELECT MAX(happened) FROM (SELECT happened FROM {left} UNION ALL SELECT happened FROM {right}) AS times)"
        )
        return f"{rows} WHERE r.id IS NOT NULL OR l.happened + INTERVAL 30 MINUTES < {clock}"

    def generate(self) -> None:
        """The initial load, in a folder without one."""
        if self.landing("left", 0).exists():
            raise SystemExit(f"{self.folder} has tables already: name an empty folder")
        for side in ("left", "right"):
            at = f"to_timestamp({_START} + {_DAY} * (i / {self.left}))"
            self._copy(self._events(side, f"range(1, {self.left} + 1) AS r(i)", "i", at), self.landing(side, 0))

    def _events(self, side: str, numbers: str, key: str, at: str) -> str:
        value = "'ad ' || i % 5000 AS ad" if side == "left" else "'/page/' || i % 20000 AS page"
        user = f"CAST(hash({key}, '{side}') % {self.right} AS BIGINT)"
        return f"SELECT 'c' AS op, {key} AS id, {user} AS user, {at} AS happened, {value} FROM {numbers}"

    def change(self, what: Change) -> int:
        """Lands so many new events on each side; returns the number of the batch."""
        self.batches += 1
        batch = self.batches
        late = "IF(i % 100 = 0, 3600 * (1 + i % 7), 0)"
        at = f"to_timestamp({_START + _DAY} + {batch} * 5 + i / {max(1, what.left)} * 5 - {late})"
        for side in ("left", "right"):
            key = f"{self.left} + {self.inserted} + i"
            rows = self._events(side, f"range(1, {what.left} + 1) AS r(i)", key, at)
            self._copy(f"SELECT * FROM ({rows}) ORDER BY happened", self.landing(side, batch))
        self.inserted += what.left
        return batch

    def feeds(self, batch: int, folder: Path) -> list[Path]:
        """Writes a batch for Kafka Streams: side, user, `milliseconds|id|value`; both sides in the order of arrival."""
        file, rows = folder / f"both-{batch}.tsv", []
        for side, value in (("left", "ad"), ("right", "page")):
            text = f"epoch_ms(happened)::VARCHAR || '|' || id::VARCHAR || '|' || {value}"
            rows.append(f"SELECT '{side[0]}' AS side, user, {text} AS value, i FROM ({self._arriving(side, batch)})")
        self.connection.execute(
            f"COPY (SELECT side, user, value FROM ({' UNION ALL '.join(rows)}) ORDER BY i, side) "
            f"TO '{file}' (FORMAT csv, DELIMITER '\t', HEADER false, QUOTE '', ESCAPE '', NULL '')"
        )
        return [file]

    def _arriving(self, side: str, batch: int) -> str:
        """SQL: the events of a batch and `i`, the order in which they arrive: late ones among the present ones."""
        return f"SELECT *, ROW_NUMBER() OVER (ORDER BY id) AS i FROM '{self.landing(side, batch)}'"

    def differing(self, kind: str) -> int:
        """How many rows of the result the last batch changes, as DuckDB computes it from what landed."""
        for name, batches in (("before", self.batches - 1), ("after", self.batches)):
            query = self.duckdb_query(f"({self.rows('left', batches)})", f"({self.rows('right', batches)})", kind)
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
        pairs = (("before", "after"), ("after", "before"))
        gone, new = (f"(SELECT COUNT(*) FROM (FROM {one} EXCEPT FROM {other}))" for one, other in pairs)
        return int(self.connection.execute(f"SELECT {gone} + {new}").fetchall()[0][0])
