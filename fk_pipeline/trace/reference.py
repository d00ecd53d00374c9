"""Runs a case through the reference: every message, response, result, timestamp and dropped record, as in Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fk_pipeline.kinds.foreign_key.kafka.keys import CombinedKey, hash_as_longs, kafka_row_hash
from fk_pipeline.kinds.foreign_key.kafka.reference import (
    ENGINE,
    KAFKA,
    ForeignKeyJoin,
    ReferenceStep,
    ResponseMessage,
    Result,
    Rules,
    SubscriptionMessage,
)
from fk_pipeline.kinds.foreign_key.kafka.stores import PlainStore, Row, TableStore, VersionedStore
from fk_pipeline.kinds.foreign_key.kafka.stream_join import Emitted, HistoryStore, KafkaDiedError, StreamJoin
from fk_pipeline.kinds.foreign_key.kafka.table_join import TableJoin
from fk_pipeline.kinds.window.kafka.window_join import (
    Pair,
    SelfJoin,
    SingleStoreSelfJoin,
    Window,
    WindowJoin,
)
from fk_pipeline.trace.cases import (
    AnyCase,
    AnyStreamCase,
    AnyWindowCase,
    Arrival,
    Case,
    Delivery,
    Event,
    GlobalCase,
    LagCase,
    SelfJoinCase,
    StreamCase,
    TableCase,
    TableEvent,
    serialise,
)

Json = dict[str, Any]

RULES = {"kafka": KAFKA, "engine": ENGINE}
"""The rules of a foreign-key join, by the value of `--rules`."""


def foreign_key(_: bytes | None, value: bytes) -> bytes | None:
    """Returns the field `fk` of a left value."""
    key = json.loads(value)["fk"]
    return None if key is None else key.encode()


def trace(case: AnyCase, rules: Rules = KAFKA) -> Json:
    """Returns the trace of a case, in the form of the case files.

    Args:
        case: events that are processed one by one, or operations between which messages wait.
        rules: the rules of Kafka, or of the engine, for a foreign-key join. A case delivers as many messages as Kafka
            sent; the further messages of other rules are delivered in its last step.

    Returns:
        `steps` (one per event or operation) and, except of a join of two streams, `final` (the stores; for a case with
        waiting messages the result and the true join); of a self-join `stores`, their number; of a foreign-key join
        also `hashes` (text to its two longs). If Kafka itself dies on an event, there are the steps before it and
        `error` in place of `final`.
    """
    if isinstance(case, TableCase):
        return _join_by_key(case)
    if isinstance(case, AnyWindowCase):
        return _join_of_two_streams(case)
    return _join_of_a_stream(case) if isinstance(case, AnyStreamCase) else _join_by_foreign_key(case, rules)


def _join_by_key(case: TableCase) -> Json:
    join = TableJoin(
        keeps_left=case.join != "inner",
        keeps_right=case.join == "outer",
        left_table=_store(case, case.left_versioned),
        right_table=_store(case, case.right_versioned),
    )
    steps = [join.process(e.side, _bytes(e.key), _bytes(serialise(e.value)), e.ts) for e in case.events]
    tables = {"left": join.left_table.rows, "right": join.right_table.rows}
    return {
        "steps": [{"emits": [_result(r) for r in step.results], "dropped": step.dropped} for step in steps],
        "final": {"result": _as_table(join.result), **{side: _rows(rows) for side, rows in tables.items()}},
    }


def _join_of_a_stream(case: StreamCase | GlobalCase) -> Json:
    if isinstance(case, GlobalCase):
        join = StreamJoin(case.join == "left", foreign_key, PlainStore())
    else:
        table = HistoryStore(case.history_retention_ms) if case.right_versioned else PlainStore()
        join = StreamJoin(case.join == "left", lambda key, _: key, table, case.grace_ms)
    steps: list[Json] = []
    events: Sequence[Event | TableEvent] = case.events
    for number, event in enumerate(events):
        try:
            step = join.process(event.side, _bytes(event.key), _bytes(serialise(event.value)), event.ts)
        except KafkaDiedError as error:
            return {"steps": steps, "error": {"at_event": number, "exception": str(error)}}
        steps.append({"emits": [_emitted(result) for result in step.results], "dropped": step.dropped})
    return {"steps": steps, "final": {"right": _rows(join.table.rows)}}


def _join_of_two_streams(case: AnyWindowCase) -> Json:
    window = Window(case.before_ms, case.after_ms, case.grace_ms)
    if isinstance(case, SelfJoinCase) and case.optimized:
        join: WindowJoin | SelfJoin | SingleStoreSelfJoin = SingleStoreSelfJoin(window)
    else:
        join = WindowJoin({"inner": (), "left": ("left",), "outer": ("left", "right")}[case.join], window, case.eager)
        if isinstance(case, SelfJoinCase):
            join = SelfJoin(join)
    steps = [join.process(e.side, _bytes(e.key), _bytes(serialise(e.value)), e.ts) for e in case.events]
    # A third store has the records that wait.
    number = 1 if isinstance(join, SingleStoreSelfJoin) else 2 if case.join == "inner" or case.eager else 3
    stores = {"stores": number} if isinstance(case, SelfJoinCase) else {}
    return {"steps": [{"emits": [_emitted(p) for p in s.results], "dropped": s.dropped} for s in steps], **stores}


def _emitted(record: Emitted | Pair) -> Json:
    key = None if record.key is None else record.key.decode()
    return {"key": key, "value": {"left": _value(record.left), "right": _value(record.right)}, "ts": record.timestamp}


def _join_by_foreign_key(case: Case | LagCase, rules: Rules) -> Json:
    join = ForeignKeyJoin(
        inner=case.join == "inner",
        extract=foreign_key,
        left=_store(case, case.left_versioned),
        right=_store(case, case.right_versioned),
        rules=rules,
    )
    if isinstance(case, Case):
        rows = [(e.side, e.value) for e in case.events]
    else:
        rows = [(op.side, op.value) for op in case.ops if isinstance(op, Arrival)]
    texts = {serialise(value) for side, value in rows if side == "left"} - {None}
    as_json = _AsJson({kafka_row_hash(_bytes(text)): text for text in texts}, case.wire)
    if isinstance(case, Case):
        steps = [join.process(e.side, _bytes(e.key), _bytes(serialise(e.value)), e.ts) for e in case.events]
    else:
        steps = [_operate(join, op) for op in case.ops]
        if rules != KAFKA and steps:
            steps[-1].add(join.deliver_all())
    hashes = {text: list(hash_as_longs(h)) for h, text in as_json.texts.items() if h is not None}
    final = as_json.stores(join) if isinstance(case, Case) else as_json.outcome(join)
    return {"steps": [as_json.step(step) for step in steps], "hashes": hashes, "final": final}


def _operate(join: ForeignKeyJoin, op: Arrival | Delivery) -> ReferenceStep:
    if isinstance(op, Delivery):
        return join.deliver(op.from_) if (op.from_, 0) in join.waiting() else ReferenceStep()
    arrive = join.left if op.side == "left" else join.right
    return arrive(_bytes(op.key), _bytes(serialise(op.value)), op.ts)


def _store(case: Case | LagCase | TableCase, versioned: bool) -> TableStore:
    return VersionedStore(case.history_retention_ms) if versioned else PlainStore()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _value(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


def _result(result: Result) -> Json:
    joined = None if result.is_tombstone else {"left": _value(result.left), "right": _value(result.right)}
    return {"key": result.key.decode(), "value": joined, "ts": result.timestamp}


def _as_table(result: Mapping[bytes, Result]) -> list[Json]:
    return [_result(row) for _, row in sorted(result.items())]


def _rows(rows: Mapping[bytes, Row]) -> list[Json]:
    return [{"key": key.decode(), "value": _value(row.value), "ts": row.timestamp} for key, row in sorted(rows.items())]


class _AsJson:
    """Converts the messages and stores of a foreign-key join to the form of the case files."""

    def __init__(self, texts: dict[bytes | None, str | None], wire: bool) -> None:
        self.texts, self.wire = texts, wire

    def step(self, step: ReferenceStep) -> Json:
        return {
            "emits": [_result(r) for r in step.results],
            "subscriptions": [self.subscription(m) for m in step.subscriptions],
            "responses": [self.response(m) for m in step.responses],
            "dropped": step.dropped,
        }

    def subscription(self, message: SubscriptionMessage) -> Json:
        sent = message.subscription
        return {
            "fk": None if message.foreign_key is None else message.foreign_key.decode(),
            "instruction": sent.instruction,
            "pk": sent.primary_key.decode(),
            "hash_of": self.texts.get(sent.hash),
            "partition": sent.partition,
            "ts": message.timestamp,
        } | self._wire(message.foreign_key, sent.to_bytes())

    def response(self, message: ResponseMessage) -> Json:
        sent = message.response
        return {
            "key": message.primary_key.decode(),
            "hash_of": self.texts.get(sent.hash),
            "right": _value(sent.value),
            "ts": message.timestamp,
        } | self._wire(message.primary_key, sent.to_bytes())

    def _wire(self, key: bytes | None, value: bytes) -> Json:
        return {"wire": {"key": None if key is None else key.hex(), "value": value.hex()}} if self.wire else {}

    def stores(self, join: ForeignKeyJoin) -> Json:
        """Returns the content of every store at the end."""
        tables = {"left": join.left_table.rows, "right": join.right_table.rows}
        return {
            "result": _as_table(join.result),
            "subscriptions": [
                {
                    "fk": CombinedKey.from_bytes(key).foreign_key.decode(),
                    "pk": sent.primary_key.decode(),
                    "instruction": sent.instruction,
                    "hash_of": self.texts.get(sent.hash),
                    "partition": sent.partition,
                    "ts": timestamp,
                }
                | ({"store_key": key.hex()} if self.wire else {})
                for key, (sent, timestamp) in sorted(join.subscriptions.items())
            ],
            **{side: _rows(rows) for side, rows in tables.items()},
            "result_equals_batch_join": join.result_as_table() == join.batch_join(),
        }

    def outcome(self, join: ForeignKeyJoin) -> Json:
        """Returns the result at the end, and the true join that it should equal."""
        true = join.batch_join()
        return {
            "undelivered": sum(map(len, join.waiting_subscriptions)) + sum(map(len, join.waiting_responses)),
            "result": _as_table(join.result),
            "batch_join": [
                {"key": key.decode(), "value": {"left": _value(left), "right": _value(right)}}
                for key, (left, right) in sorted(true.items())
            ],
            "result_equals_batch_join": join.result_as_table() == true,
        }
