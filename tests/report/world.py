"""Pipelines that were never run, with a ledger and tables as runs would leave them; made without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from fk_pipeline.engine.claim import claim
from fk_pipeline.identity import BatchId, LandedFile, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.table.kind import TableStage
from fk_pipeline.pipeline import Pipeline, load
from fk_pipeline.store.ledger import Ledger

JOINED = """\
name: joined
join: left
description: "Orders & <b>customers</b>"
left: {path: landing/left, format: rows, schema: "id INT, fk STRING, v STRING", key: id, foreign_key: fk}
right: {path: landing/right, format: rows, schema: "k STRING, name STRING", key: k}
select: [id, v, name]
"""

PEOPLE = """\
name: people
kind: table
input: {path: landing/people, format: rows, schema: "id STRING, name STRING, iban STRING", key: id, sensitive: %s}
"""

HOSTILE = "<script>alert('x')</script>"
SECRET = "DE02120300000000202051"

NOW = datetime(2026, 5, 1, 13, tzinfo=UTC)

_HASH = pa.binary()
_SEQUENCE = pa.struct([("arrival", pa.int32())])
_CHANGELOG = {
    "_fk_batch": pa.int32(), "id": pa.string(), "_fk_generation": pa.int32(), "_fk_op": pa.string(),
    "_fk_deleted": pa.bool_(), "_fk_hash": _HASH, "_fk_events": pa.int64(), "_fk_file": pa.string(),
    "_fk_sequence": _SEQUENCE, "name": pa.string(), "iban": pa.string(),
}  # fmt: skip
_TABLE = {
    "id": pa.string(), "_fk_hash": _HASH, "_fk_batch": pa.int32(), "_fk_changed_at": pa.timestamp("us", "UTC"),
    "name": pa.string(), "iban": pa.string(),
}  # fmt: skip
_RESULT = {
    "_fk_pk_id": pa.int32(), "_fk_fk_k": pa.string(), "_fk_left_hash": _HASH, "_fk_right_hash": _HASH,
    "_fk_batch": pa.int32(), "_fk_changed_at": pa.timestamp("us", "UTC"), "id": pa.int32(), "v": pa.string(),
    "name": pa.string(),
}  # fmt: skip
_QUARANTINE = {
    "_fk_side": pa.string(), "_fk_batch": pa.int32(), "_fk_file": pa.string(), "_fk_line": pa.int64(),
    "_fk_reason": pa.string(), "_fk_raw": pa.string(),
}  # fmt: skip


def opened(folder: Path, text: str) -> Pipeline:
    """A pipeline of a file with this text, and empty landing folders."""
    for side in ("left", "right", "people"):
        (folder / "landing" / side).mkdir(parents=True, exist_ok=True)
    file = folder / f"{text.split()[1]}.yaml"
    file.write_text(text)
    return load(file)


def land(made: Pipeline, side: Side, batches: Sequence[int]) -> None:
    """Records one landing file for each batch."""
    ledger = made.ledger()
    ledger.record_claim(claim(made.spec, ledger, [side]))
    files = [LandedFile(f"landing/{side}/{b}.jsonl", side, BatchId(b), 1000 + b, "now", f"d{b}") for b in batches]
    ledger.files.record([("discovered", file) for file in files])


def ran(ledger: Ledger, stage: str, counts: Mapping[int, Mapping[str, int]], seconds: float) -> None:
    """Records a run of a stage for some batches."""
    ledger.start(stage, [BatchId(batch) for batch in counts], f"{stage[:5]}{min(counts)}", {})
    ledger.runs.succeed(counts, {}, seconds, "incremental", "few rows")


def write(pipeline: Pipeline, table: str, types: Mapping[str, pa.DataType], columns: Mapping[str, Any]) -> None:
    """Writes a table; its commit says that the stage of the same name made it, for the batches of its rows."""
    from deltalake import CommitProperties

    rows = pa.table({name: pa.array(columns[name], kind) for name, kind in types.items()})
    batches = sorted({*columns["_fk_batch"]})
    told = f'{{"pipeline": "p", "stage": "{table}", "batches": "{batches[0]}..{batches[-1]}", "run_id": "r"}}'
    properties = CommitProperties(custom_metadata={"userMetadata": told})
    write_deltalake(f"{pipeline.spec.home}/{table}", rows, commit_properties=properties, mode="append")


def joined(folder: Path, batches: int, rows: int = 30, size: int = 10) -> Pipeline:
    """A left join of so many batches: of each 10 rows two have no match; one check is red; the last batch is due.

    A run has `size` batches.
    """
    made = opened(folder, JOINED)
    ledger = made.ledger()
    every = range(1, batches + 1)
    land(made, Side.LEFT, every)
    land(made, Side.RIGHT, every)
    counts: dict[str, dict[str, int]] = {
        Stage.LEFT_CHANGELOG: {"read": 12, "rows": 10, "quarantined": 2},
        Stage.RIGHT_TABLE: {"read": 4, "rows": 4, "inserted": 3, "late": 1},
        Stage.SUBSCRIPTION_STORE: {"inserted": 10},
        Stage.RESPONSES: {"left-driven": 10, "right-driven": 1},
        Stage.RESOLVED_JOIN: {"joined": 8, "half-joined": 2, "stale left": 1, "expired": 1},
    }
    seconds = {stage: 0.5 + i for i, stage in enumerate(counts)}
    done = {stage: every if stage != Stage.RESOLVED_JOIN else every[:-1] for stage in counts}
    for stage, own in counts.items():
        for start in range(0, len(done[stage]), size):
            ran(ledger, stage, dict.fromkeys(done[stage][start : start + size], own), seconds[stage])
    check = {"stage": "responses", "depth": "batch", "first": 1, "last": 1, "pending": 0, "seconds": 0.1}
    red = {"name": "one_response", "severity": "critical", "passed": False, "value": 3.0, "batches": [1], "cure": "run"}
    ledger.checks.record([check | red, check | red | {"name": "", "severity": "summary", "value": 5.0, "batches": []}])
    write(made, "resolved_join", _RESULT, {
        "_fk_pk_id": [*range(rows)], "_fk_fk_k": ["k"] * rows, "_fk_left_hash": [b"1" * 16] * rows,
        "_fk_right_hash": [None if i % 5 == 0 else b"2" * 16 for i in range(rows)],
        "_fk_batch": [1 + i % (batches - 1) for i in range(rows)], "_fk_changed_at": [NOW] * rows,
        "id": [*range(rows)], "v": [HOSTILE] * rows, "name": ["\u202eA"] * rows,
    })  # fmt: skip
    bad = {"_fk_side": ["left"] * 2, "_fk_batch": [1, 2], "_fk_file": ["landing/left/1.jsonl"] * 2, "_fk_line": [3, 4]}
    write(made, "quarantine", _QUARANTINE, bad | {"_fk_reason": ["no JSON"] * 2, "_fk_raw": [HOSTILE] * 2})
    return made


def changed(folder: Path, *days: int) -> Pipeline:
    """A left join whose batches 1, 2, ... were each joined on a day in May 2020, at noon; each has one row."""
    made = opened(folder, JOINED)
    ledger = made.ledger()
    land(made, Side.LEFT, range(1, len(days) + 1))
    result = f"{made.spec.home}/resolved_join"
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(result, pa.schema([*_RESULT.items()]).empty_table(), configuration=feed)
    for batch, day in enumerate(days, 1):
        columns: dict[str, Any] = {name: [None] for name in _RESULT}
        columns |= {"_fk_pk_id": [batch], "_fk_batch": [batch], "id": [batch], "v": ["v"]}
        write(made, "resolved_join", _RESULT, columns)
        log = Path(result, "_delta_log", f"{batch:020d}.json")
        noon = int(datetime(2020, 5, day, 12, tzinfo=UTC).timestamp() * 1000)
        log.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{noon}', log.read_text()))
        ran(ledger, Stage.RESOLVED_JOIN, {batch: {"half-joined": 1}}, 1.0)
    return made


def people(folder: Path, sensitive: str = "[]", rows: int = 3) -> Pipeline:
    """A table of one batch whose first key is hostile, and whose last column may be sensitive."""
    made = opened(folder, PEOPLE % sensitive)
    ledger = made.ledger()
    land(made, Side.INPUT, [1])
    ran(ledger, TableStage.CHANGELOG, {1: {"read": rows, "rows": rows}}, 1.0)
    ran(ledger, TableStage.TABLE, {1: {"inserted": rows}}, 2.0)
    ids = [HOSTILE, *(f"p{i}" for i in range(1, rows))]
    same = {"_fk_batch": [1] * rows, "id": ids, "_fk_hash": [b"1" * 16] * rows, "name": ["Ada"] * rows}
    same |= {"iban": [SECRET] * rows, "_fk_changed_at": [NOW] * rows}
    write(made, TableStage.CHANGELOG, _CHANGELOG, same | {
        "_fk_generation": [0] * rows, "_fk_op": ["c"] * rows, "_fk_deleted": [False] * rows, "_fk_events": [1] * rows,
        "_fk_file": ["landing/people/1.jsonl"] * rows, "_fk_sequence": [{"arrival": 1}] * rows,
    })  # fmt: skip
    write(made, TableStage.TABLE, _TABLE, same)
    return made
