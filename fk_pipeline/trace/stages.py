"""Runs cases through the Spark stages: all cases of one join type in one pipeline, with event i of each in batch i.

A join by key is a foreign-key join in which every left row refers to its own key. Keys are prefixed by the number of
the case, so that cases do not share keys. The order of a table is `sequence_by`: the timestamp if the case's table is
versioned, else the number of the event. The engine stores no record timestamps.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fk_pipeline.contract import loaded
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kafka.instructions import DELETE_KEY_AND_PROPAGATE, DELETE_KEY_NO_PROPAGATE
from fk_pipeline.store import schemas as s
from fk_pipeline.trace.cases import Case, Event, TableCase, TableEvent, serialise
from fk_pipeline.trace.runs import BatchStarted, CaseRun, Json, values_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

PK, FK, PREVIOUS_FK = k.pk("k"), k.fk("k"), k.previous_fk("k")


def trace(
    cases: Sequence[Case | TableCase], session: SparkSession, progress: BatchStarted | None = None
) -> dict[str, Json]:
    """Returns per case its `steps` and its `final` result.

    Args:
        cases: any number of cases; their names are unique.
        session: a Spark session.
        progress: called with join type, batch and number of batches before every batch.

    Returns:
        The trace per name of a case. A step has `emits` (key, value), `subscriptions` (fk, instruction, pk) and
        `responses` (key, cause, instruction, verdict), each in the order of the keys; no timestamps.
    """
    traces: dict[str, Json] = {}
    for join in ("inner", "left", "outer"):
        chosen = [case for case in cases if case.join == join]
        if chosen:
            with tempfile.TemporaryDirectory(prefix="fk-trace-") as folder:
                traces |= _Run(join, chosen, Path(folder), session).steps(progress)
    return traces


class _Run(CaseRun[Case | TableCase]):
    """One pipeline over the cases of one join type."""

    def __init__(self, join: str, cases: Sequence[Case | TableCase], folder: Path, session: SparkSession) -> None:
        common = {"format": "rows", "op_column": "op", "key": "k", "sequence_by": "seq"}
        left = {"path": "left", "schema": "k STRING, fk STRING, value STRING, seq BIGINT", "foreign_key": "fk"}
        right = {"path": "right", "schema": "k STRING, value STRING, seq BIGINT"}
        super().__init__(cases, folder, session, {"join": join, "left": common | left, "right": common | right})

    def steps(self, progress: BatchStarted | None) -> dict[str, Json]:
        """Lands every event, runs batch after batch, and returns the trace of each case by name."""
        out: dict[str, Json] = {
            case.name: {"steps": [{"emits": [], "subscriptions": [], "responses": []} for _ in case.events]}
            for case in self.cases
        }
        table: dict[tuple[str, str], Json] = {}
        for batch in self.each_batch(progress):
            before, table = table, self._result()
            for name, step in self._messages(batch).items():
                out[name]["steps"][batch] |= step
            for place in sorted(before.keys() | table.keys()):
                if before.get(place) != table.get(place):
                    emitted = {"key": place[1], "value": table.get(place)}
                    out[place[0]]["steps"][batch]["emits"].append(emitted)
        for traced in out.values():
            traced["final"] = {"result": []}
        for (name, key), value in sorted(table.items()):
            out[name]["final"]["result"].append({"key": key, "value": value})
        return out

    def lines(self, side: Side, batch: int) -> list[str] | None:
        """Returns the events of a batch on a side; None if there are none."""
        lines = [
            json.dumps(self._row(number, case, case.events[batch], batch)) + "\n"
            for number, case in enumerate(self.cases)
            if batch < len(case.events) and case.events[batch].side == side
        ]
        return lines or None

    def _row(self, number: int, case: Case | TableCase, event: Event | TableEvent, batch: int) -> Json:
        versioned = case.left_versioned if event.side == "left" else case.right_versioned
        row: Json = {"op": "u", "seq": event.ts if versioned else batch, "value": serialise(event.value)}
        row["k"] = None if event.key is None else f"{number}|{event.key}"
        foreign_key = event.key if isinstance(event, TableEvent) else (event.value or {}).get("fk")
        if event.value is None:
            row["op"] = "d"
        elif event.side == "left" and foreign_key is not None:
            row["fk"] = f"{number}|{foreign_key}"
        return row

    def _result(self) -> dict[tuple[str, str], Json]:
        """Returns the rows of the result table: per case and key, the values of both sides.

        The key of a right row alone is its own.
        """
        spec = self.pipeline.spec
        key = f"COALESCE({', '.join(loaded(spec.definition.keys)(spec, k.RESOLVED_JOIN).keys)}) AS key"
        rows = self.pipeline.table("resolved_join").selectExpr(key, "left_value", "right_value").collect()
        return {self._of(row.key): values_of(row) for row in rows}

    def _messages(self, batch: int) -> dict[str, Json]:
        """Returns the subscriptions and responses of a batch, per case."""
        steps: dict[str, Json] = defaultdict(lambda: {"subscriptions": [], "responses": []})
        table = self.pipeline.table
        sent = table("subscription_store").where((F.col(s.APPLIED_IN) == batch) & F.col(k.INSTRUCTION).isNotNull())
        for row in sent.orderBy(PK).collect():
            name, key = self._of(row[PK])
            for foreign_key, instruction in messages(row):
                fk = None if foreign_key is None else self._of(foreign_key)[1]
                steps[name]["subscriptions"].append({"fk": fk, "instruction": instruction, "pk": key})
        for row in table("verdicts").where(F.col(s.BATCH) == batch).orderBy(PK, s.CAUSE).collect():
            name, key = self._of(row[PK])
            decided = {"cause": row[s.CAUSE], "instruction": row[k.INSTRUCTION], "verdict": row[k.VERDICT]}
            steps[name]["responses"].append({"key": key, **decided})
        return steps

    def _of(self, key: str) -> tuple[str, str]:
        """Returns the name of the case that a stored key belongs to, and the key in that case."""
        number, _, rest = key.partition("|")
        return self.cases[int(number)].name, rest


def messages(row: Row) -> list[tuple[str | None, str]]:
    """Returns the messages of a row of the subscription store: (foreign key, instruction), in Kafka's order.

    The old foreign key gets one message: `DELETE_KEY_AND_PROPAGATE`, else an implied `DELETE_KEY_NO_PROPAGATE`.
    """
    old, new, instruction = row[PREVIOUS_FK], row[FK], row[k.INSTRUCTION]
    if instruction == DELETE_KEY_AND_PROPAGATE:
        return [(old, instruction)]
    unsubscribe = [(old, DELETE_KEY_NO_PROPAGATE)] if old is not None and old != new else []
    return [*unsubscribe, (new, instruction)]
