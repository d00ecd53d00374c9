"""A case through the reference: every message, response, result, timestamp and dropped record, as Kafka has them."""

from __future__ import annotations

import json
from typing import Any

from fk_pipeline.protocol.keys import CombinedKey, hash_as_longs, row_hash
from fk_pipeline.protocol.reference import ForeignKeyJoin, ResponseMessage, Result, Step, SubscriptionMessage
from fk_pipeline.protocol.stores import PlainStore, TableStore, VersionedStore
from fk_pipeline.trace.cases import Case, serialise

Json = dict[str, Any]


def foreign_key(_: bytes, value: bytes) -> bytes | None:
    """The field `fk` of a left value."""
    found = json.loads(value)["fk"]
    return None if found is None else found.encode()


def trace(case: Case) -> Json:
    """`steps` (one per event), `hashes` (text to its two longs) and `final` (the stores), as case files have them."""
    join = ForeignKeyJoin(
        inner=case.join == "inner",
        extract=foreign_key,
        left=_store(case, case.left_versioned),
        right=_store(case, case.right_versioned),
    )
    texts = {serialise(e.value) for e in case.events if e.side == "left"} - {None}
    as_json = _AsJson({row_hash(_bytes(text)): text for text in texts}, case.wire)
    steps = [as_json.step(join.process(e.side, _bytes(e.key), _bytes(serialise(e.value)), e.ts)) for e in case.events]
    hashes = {text: list(hash_as_longs(h)) for h, text in as_json.texts.items() if h is not None}
    return {"steps": steps, "hashes": hashes, "final": as_json.final(join)}


def _store(case: Case, versioned: bool) -> TableStore:
    return VersionedStore(case.history_retention_ms) if versioned else PlainStore()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _value(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


class _AsJson:
    """Messages, results and stores in the form of the case files."""

    def __init__(self, texts: dict[bytes | None, str | None], wire: bool) -> None:
        self.texts, self.wire = texts, wire

    def step(self, step: Step) -> Json:
        return {
            "emits": [self.result(r) for r in step.results],
            "subscriptions": [self.subscription(m) for m in step.subscriptions],
            "responses": [self.response(m) for m in step.responses],
            "dropped": step.dropped,
        }

    def result(self, result: Result) -> Json:
        joined = None if result.left is None else {"left": _value(result.left), "right": _value(result.right)}
        return {"key": result.key.decode(), "value": joined, "ts": result.timestamp}

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

    def final(self, join: ForeignKeyJoin) -> Json:
        left, right = join.left_table.rows, join.right_table.rows
        batch_join = {}
        for key, row in left.items():
            ref = join.extract(key, row.value)
            match = right.get(ref) if ref is not None else None
            if match or not join.inner:
                batch_join[key] = (row.value, match.value if match else None)
        return {
            "result": [self.result(r) for _, r in sorted(join.result.items())],
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
            **{
                side: [
                    {"key": key.decode(), "value": _value(row.value), "ts": row.timestamp}
                    for key, row in sorted(rows.items())
                ]
                for side, rows in (("left", left), ("right", right))
            },
            "result_equals_batch_join": {k: (r.left, r.right) for k, r in join.result.items()} == batch_join,
        }
