"""Runs cases of two streams through the Spark stages: event i of a case in batch i, and one pipeline per case.

Cases cannot share a pipeline: the clock of a join is that of all its rows. Records without a key or a value, which
Kafka drops, are not landed. The result is a table with keys: where Kafka drops a late record, or cannot take back a row
that it has sent without a match, the table is corrected, and the step has the reason.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fk_pipeline.identity import Side
from fk_pipeline.trace import reference
from fk_pipeline.trace.cases import AnyWindowCase, SelfJoinCase, serialise
from fk_pipeline.trace.runs import BatchStarted, CaseRun, Json, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DROPPED = "Kafka dropped it as late"
TOO_EARLY = "Kafka told an unmatched row too early"
LATER = "Kafka told an unmatched row later"
NOT_CORRECTED = "Kafka did not correct it"
"""Reasons of differences from Kafka."""


def trace(
    cases: Sequence[AnyWindowCase], session: SparkSession, progress: BatchStarted | None = None
) -> dict[str, Json]:
    """Returns per case its `steps` and its `final` result.

    Args:
        cases: any number of cases; their names are unique.
        session: a Spark session.
        progress: called with join type, batch and number of batches before every batch.

    Returns:
        The trace per name of a case. A step has `emits`: key and value of every row that came with the event, and of
        every row that went, with the value null; and `differs`: the reasons why these are others than Kafka's.
    """
    traces = {}
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="fk-trace-") as folder:
            traces[case.name] = _Run(case, Path(folder), session).steps(progress)
    return traces


class _Run(CaseRun[AnyWindowCase]):
    """One pipeline over one case."""

    def __init__(self, case: AnyWindowCase, folder: Path, session: SparkSession) -> None:
        schema = "k STRING, value STRING, ts BIGINT"
        side = {"format": "rows", "schema": schema, "contents": "events", "on": "k", "time": "ts"}
        self.to_itself = isinstance(case, SelfJoinCase)
        parts: Json = {
            "kind": "window",
            "join": case.join,
            "within": {"before": f"{case.before_ms} milliseconds", "after": f"{case.after_ms} milliseconds"},
            "grace": f"{case.grace_ms} milliseconds",
            "unmatched": "at_once" if case.eager else "when_closed",
            "left": {"path": "left", **side},
            "right": {"path": "left" if self.to_itself else "right", **side},
        }
        keys = ["COALESCE(left.k, right.k) AS k", "left.event AS left_event", "right.event AS right_event"]
        super().__init__([case], folder, session, parts, keys)

    def steps(self, progress: BatchStarted | None) -> Json:
        """Lands every event, runs batch after batch, and returns the trace of the case."""
        [case] = self.cases
        kafka = reference.trace(case)["steps"]
        steps: list[Json] = []
        stored: dict[tuple[str, str], Json] = {}
        differences = _Differences()
        for batch in self.each_batch(progress):
            before, stored = stored, self._result()
            gone = [{"key": before[at]["key"], "value": None} for at in sorted(before.keys() - stored.keys())]
            came = [stored[at] for at in sorted(stored.keys() - before.keys())]
            step: Json = {"emits": [*gone, *came]}
            reasons = differences.of(came, gone, kafka[batch])
            steps.append(step | ({"differs": reasons} if reasons else {}))
        return {"steps": steps, "final": {"result": [stored[at] for at in sorted(stored)]}}

    def lines(self, side: Side, batch: int) -> list[str] | None:
        """Returns the event of a batch on a side; the file of a stream is there, even if it is empty."""
        [case] = self.cases
        event = case.events[batch]
        if self.to_itself and side == Side.RIGHT:
            return None
        if event.side != side or event.key is None or event.value is None:
            return []
        return [json.dumps({"k": event.key, "value": serialise(event.value), "ts": event.ts}) + "\n"]

    def _result(self) -> dict[tuple[str, str], Json]:
        """Returns the rows of the result: per pair of events, key and value."""
        names = ["k", "left_event", "right_event", "left_value", "right_value"]
        rows = {}
        for row in self.pipeline.table("resolved_join").select(*names).collect():
            rows[row["left_event"] or "", row["right_event"] or ""] = {"key": row["k"], "value": values_of(row)}
        return rows


class _Differences:
    """Compares the rows of every step with those that Kafka sent, and counts the unmatched rows of both so far."""

    def __init__(self) -> None:
        self._unmatched: Counter[str] = Counter()
        self._unmatched_in_kafka: Counter[str] = Counter()

    def of(self, came: list[Json], gone: list[Json], kafka: Json) -> list[str]:
        """Returns why the rows that came and went with an event are others than those that Kafka sent."""
        sent = [{"key": row["key"], "value": row["value"]} for row in kafka["emits"]]
        joined, expected = _counted(came), _counted(sent)
        self._unmatched += _counted(filter(_is_unmatched, came))
        self._unmatched_in_kafka += _counted(filter(_is_unmatched, sent))
        # An unmatched row of one join only: the other has had it as often before, or has had it less often so far. A
        # pair that Kafka lacks has a record that Kafka dropped, now or before.
        behind = {
            row
            for row in (joined - expected).keys() & self._unmatched.keys()
            if self._unmatched[row] > self._unmatched_in_kafka[row]
        }
        ahead = {
            row
            for row in (expected - joined).keys() & self._unmatched_in_kafka.keys()
            if self._unmatched_in_kafka[row] > self._unmatched[row]
        }
        caught_up = (joined - expected).keys() & self._unmatched.keys() - behind
        followed = (expected - joined).keys() & self._unmatched_in_kafka.keys() - ahead
        reasons = {
            DROPPED: bool(
                (joined - expected).keys() - self._unmatched.keys() or (kafka["dropped"] and joined - expected)
            ),
            NOT_CORRECTED: bool(gone),
            TOO_EARLY: bool(ahead or caught_up),
            LATER: bool(behind or followed),
        }
        return [reason for reason, applies in reasons.items() if applies]


def _is_unmatched(row: Json) -> bool:
    return None in row["value"].values()


def _counted(rows: Iterable[Json]) -> Counter[str]:
    return Counter(_text(row) for row in rows)


def _text(row: Json) -> str:
    return json.dumps([row["key"], row["value"]], sort_keys=True)
