"""Runs cases of streams through the Spark stages: event i of each case in batch i, `as_of` its batch or its time.

A stream is events without a key, whose rows stay; a record without a value, which Kafka drops, is not landed. The row
of a record is looked up by the key of the record, or by the field `fk` of its value. A table without versions is seen
as of the batch, a versioned one as of the time of the record: then versions that come late correct rows that Kafka has
sent.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fk_pipeline.identity import Side
from fk_pipeline.trace import reference
from fk_pipeline.trace.cases import AnyStreamCase, Event, StreamCase, TableEvent, serialise
from fk_pipeline.trace.runs import BatchStarted, CaseRun, Json, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORRECTED = "Kafka did not correct it: the version came after the record"
WAITED = "Kafka sends it later: it waits for the grace period"
EARLY = "Kafka sent it when the grace period had passed; the table has it since its event"
LATE = "Kafka dropped it as late"
DIED = "Kafka died on this case"
"""Reasons of differences from Kafka."""


def trace(
    cases: Sequence[AnyStreamCase], session: SparkSession, progress: BatchStarted | None = None
) -> dict[str, Json]:
    """Returns per case its `steps` and its `final` result.

    Args:
        cases: any number of cases; their names are unique.
        session: a Spark session.
        progress: called with join type, batch and number of batches before every batch.

    Returns:
        The trace per name of a case. A step has `emits`: key and value of every row that came or changed with the
        event, in the order of the events that the rows are of. Of a case with a versioned table also `differs`: the
        reason of every difference from what Kafka emits at this event.
    """
    traces: dict[str, Json] = {}
    for join in ("inner", "left"):
        for versioned in (False, True):
            chosen = [case for case in cases if case.join == join and _is_versioned(case) is versioned]
            if chosen:
                with tempfile.TemporaryDirectory(prefix="fk-trace-") as folder:
                    traces |= _Run(join, versioned, chosen, Path(folder), session).steps(progress)
    return traces


def _is_versioned(case: AnyStreamCase) -> bool:
    return isinstance(case, StreamCase) and case.right_versioned


class _Run(CaseRun[AnyStreamCase]):
    """One pipeline over the cases of one join type."""

    def __init__(
        self, join: str, versioned: bool, cases: Sequence[AnyStreamCase], folder: Path, session: SparkSession
    ) -> None:
        self.versioned = versioned
        left = {"schema": "k STRING, fk STRING, value STRING, ts BIGINT", "contents": "events", "foreign_key": "fk"}
        right: Json = {"schema": "k STRING, value STRING, ts BIGINT", "key": "k", "op_column": "op"}
        if versioned:
            right["valid_from"] = "ts"
        parts = {
            "join": join,
            "as_of": "ts" if versioned else "batch",
            "left": {"path": "left", "format": "rows", **left},
            "right": {"path": "right", "format": "rows", **right},
        }
        super().__init__(cases, folder, session, parts, ["event", "left.k AS k"])

    def steps(self, progress: BatchStarted | None) -> dict[str, Json]:
        """Lands every event, runs batch after batch, and returns the trace of each case by name."""
        out: dict[str, Json] = {case.name: {"steps": [{"emits": []} for _ in case.events]} for case in self.cases}
        stored: dict[tuple[int, int], Json] = {}
        for batch in self.each_batch(progress):
            before, stored = stored, self._result()
            for place in sorted(before.keys() | stored.keys()):
                if before.get(place) != stored.get(place):
                    event, number = place
                    row = stored.get(place, {"key": before.get(place, {}).get("key"), "value": None})
                    step = out[self.cases[number].name]["steps"][batch]
                    step["emits"].append(row)
                    if self.versioned and event != batch:
                        step.setdefault("differs", []).append(CORRECTED)
        if self.versioned:
            for case in self.cases:
                _explain(case, out[case.name])
        for number, case in enumerate(self.cases):
            rows = [stored[place] for place in sorted(stored) if place[1] == number]
            out[case.name]["final"] = {"result": rows}
        return out

    def lines(self, side: Side, batch: int) -> list[str] | None:
        """Returns the events of a batch on a side; the file of the stream is there, even if it is empty."""
        lines = []
        for number, case in enumerate(self.cases):
            event = case.events[batch] if batch < len(case.events) else None
            if event is None or event.side != side or (side == Side.LEFT and event.value is None):
                continue
            of = _key_of(event, by_key=isinstance(case, StreamCase) or side == Side.RIGHT)
            row: Json = {"ts": event.ts, "value": serialise(event.value)}
            if side == Side.LEFT:
                row |= {"k": f"{number}|{json.dumps(event.key)}", "fk": None if of is None else f"{number}|{of}"}
            else:
                row |= {"k": None if of is None else f"{number}|{of}", "op": "d" if event.value is None else "u"}
            lines.append(json.dumps(row) + "\n")
        return lines if lines or side == Side.LEFT else None

    def _result(self) -> dict[tuple[int, int], Json]:
        """Returns the rows of the result: per event and number of the case, key and value."""
        rows = {}
        for row in self.pipeline.table("resolved_join").select("event", "k", "left_value", "right_value").collect():
            number, _, key = row["k"].partition("|")
            place = int(row["event"].split("/")[0]), int(number)
            rows[place] = {"key": json.loads(key), "value": values_of(row)}
        return rows


def _key_of(event: Event | TableEvent, *, by_key: bool) -> str | None:
    """Returns the key of the table's row that an event is about: its own, or the field `fk` of its value."""
    if by_key:
        return event.key
    return event.value["fk"] if isinstance(event.value, dict) else None


def _explain(case: AnyStreamCase, traced: Json) -> None:
    """Adds to the steps of a case with a versioned table why they differ from what Kafka emits."""
    kafka = reference.trace(case)
    for number, step in enumerate(traced["steps"]):
        reasons = step.get("differs", [])
        if number >= len(kafka["steps"]):
            step["differs"] = [DIED]
            continue
        emitted = kafka["steps"][number]
        sent = [{"key": row["key"], "value": row["value"]} for row in emitted["emits"]]
        if sent != step["emits"]:
            has_grace = isinstance(case, StreamCase) and case.grace_ms is not None
            new = len(step["emits"]) > len(reasons)
            if has_grace and new and not any(row in sent for row in step["emits"]):
                reasons.append(WAITED)
            if has_grace and any(row not in step["emits"] for row in sent):
                reasons.append(EARLY)
            if emitted["dropped"] and case.events[number].side == "right":
                reasons.append(LATE)
        if reasons:
            step["differs"] = list(dict.fromkeys(reasons))
