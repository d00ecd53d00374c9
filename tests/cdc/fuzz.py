"""Mutated lines and files of every format: never a crash, never a silent loss. `make fuzz-formats`.

python -m tests.cdc.fuzz [--records 6000] [--batches 6] [--formats rows,csv] [--seed N]

Valid records are damaged, put into files, some of which are damaged too, and run batch by batch through a pipeline.
What must hold is in `check`. Prints one JSON object per format: what became of the records.
"""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import io
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings, load_spec

SCHEMA = (
    "id INT, fk STRING, n BIGINT, x DOUBLE, d DATE, t TIMESTAMP, p DECIMAL(9,2), b BINARY, a ARRAY<INT>, ok BOOLEAN"
)
NAMES = [part.split()[0] for part in SCHEMA.split(", ")]
PIPELINE = """
name: fuzzed
join: left
left: {{path: left, format: {format}, schema: "{schema}", key: id, foreign_key: fk, {options}}}
right: {{path: right, format: rows, schema: "k STRING, name STRING", key: k}}
select: [id, n, x, d, t, p, ok, name]
"""
OPTIONS = {
    "rows": "op_column: op, logical_types: {t: epoch_millis, p: decimal_bytes}",
    "csv": "op_column: op",
    "parquet": "op_column: op",
    "dms": "csv: {null_text: 'NULL'}",
}
FORMATS = ("debezium", "maxwell", "rows", "csv", "dms", "parquet")
ODD: tuple[Any, ...] = (
    None, "", " ", "null", "NaN", "Infinity", "-0", "0x10", "1e400", 1e308, 10**30, -(10**19), 2**31, 2**63, True,
    False, [], {}, [[]], {"a": {"b": [1, None]}}, "\u2028", "\ud83d\ude00", "\x00", "\x1b[31m", "é", "'", '"', "\\",
    "${x}", "a,b", "a\nb", "9999-12-31", "294247-01-10", "-290308-12-21", "2024-02-30", "2024-05-01T25:00:00",
    "1970-01-01T00:00:00Z", 253402300800000, "__debezium_unavailable_value", "x" * 5000, 1.5, "1.5", "d", "t",
)  # fmt: skip


def row_of(random: Random) -> dict[str, Any]:
    """A valid row."""
    return {
        "id": random.randrange(60),
        "fk": random.choice([None, "", "a", "b", "c", "é"]),
        "n": random.choice([None, random.randrange(-(2**63), 2**63)]),
        "x": random.choice([None, 0.5, -1e300, "NaN"]),
        "d": random.choice([None, "2024-02-29", 19000]),
        "t": random.choice([None, "2024-05-01T10:00:00.000001Z"]),
        "p": random.choice([None, 12.34]),
        "b": random.choice([None, base64.b64encode(random.randbytes(3)).decode()]),
        "a": random.choice([None, [], [1, 2]]),
        "ok": random.choice([None, True, False]),
    }


def odd_row(random: Random) -> dict[str, Any]:
    """A row of which some values may be anything."""
    row = row_of(random)
    for name in random.sample(NAMES, random.choice([0] * 12 + [1, 1, 2, 5])):
        row[name] = random.choice(ODD)
    if random.random() < 0.05:
        row.pop(random.choice(NAMES))
    return row


def _debezium(random: Random, number: int) -> Any:
    row, op = odd_row(random), random.choice("ccuuurdd" * 9 + "tmmx")
    source = {"sequence": json.dumps([str(number // 3), str(number - random.randrange(5))]), "lsn": number}
    before = row if op in "du" else None
    value: Any = {"before": before, "after": None if op in "dt" else row, "op": op, "source": source}
    shape = random.randrange(6)
    if shape == 0:
        return {**row, "__op": op, "__deleted": str(op == "d").lower(), "__source_lsn": number}
    if shape == 1:
        value = {"schema": {"type": "struct"}, "payload": value}
    if shape == 2:
        return value
    key = random.choice([{"id": row.get("id")}, {"schema": {}, "payload": {"id": row.get("id")}}, None, "k"])
    headers = random.choice([{}, [], None, {"__debezium.oldkey": {"id": random.randrange(60)}}])
    return {"topic": "t", "key": key, "value": random.choice([value, value, value, None]), "headers": headers}


def _maxwell(random: Random, number: int) -> Any:
    row = odd_row(random)
    kind = random.choice(
        ["insert", "update", "update", "delete", "bootstrap-insert"] * 4 + ["table-alter", "odd", None]
    )
    old = random.choice([None, {}, {"id": random.randrange(60)}, {"n": 5}] * 5 + [[], "x"])
    place = random.choice([{"position": f"bin.000001:{number}", "xoffset": number % 7}, {"gtid": f"a-b:{number}"}, {}])
    return {"type": kind, "data": random.choice([row] * 20 + [None, [], "x"]), "old": old, **place}


def _rows(random: Random, _number: int) -> Any:
    return {
        "op": random.choice(["u", "insert", "D", "delete", "r"] * 4 + ["", None, "?", "x" * 300]),
        **odd_row(random),
    }


def _fields(random: Random, _number: int) -> list[str | None]:
    values = list(odd_row(random).values())
    texts = [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]
    return [random.choice(["u", "I", "d", "u"] * 4 + ["", "?", "delete"]), *texts]


ODD_BYTES = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0", b"\r", b'"', b"{", b"[" * 1200)


def damaged(random: Random, line: bytes) -> bytes:
    """A line of which bytes were lost, added, doubled or changed."""
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(len(line) + 1)
        end = at + random.randrange(1, 9)
        line = random.choice(
            [
                line[:at] + line[end:],
                line[:at] + random.randbytes(3).replace(b"\n", b" ") + line[at:],
                line[:at] + line[:end] + line[at:],
                line[:at],
                line[:at] + random.choice(ODD_BYTES) + line[at:],
                line.replace(random.choice([b'"', b":", b",", b"}"]), b"", 1),
            ]
        )
    return line


def lines_of(format_: str, random: Random, first: int, number: int) -> list[bytes]:
    """So many lines of JSON, a part of them damaged."""
    make: Callable[[Random, int], Any] = {"debezium": _debezium, "maxwell": _maxwell, "rows": _rows}[format_]
    found = []
    for n in range(first, first + number):
        line = json.dumps(make(random, n), ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
        line = line.replace(b"\n", b" ")
        chance = random.random()
        if chance < 0.3:
            line = damaged(random, line)
        elif chance < 0.33:
            line = random.choice(
                [b"", b"  ", b"null", b"[]", b"7", b'"x"', b"{}", b"\xef\xbb\xbf" + line, line + b"\r"]
            )
        found.append(line)
    return found


def text_file(format_: str, random: Random, first: int, number: int) -> tuple[bytes, int | None]:
    """A file of lines or CSV rows, and how many records it has, where that is sure."""
    if format_ in ("csv", "dms"):
        out = io.StringIO()
        writer = csv.writer(out, lineterminator=random.choice(["\n", "\r\n"]))
        if format_ == "csv":
            writer.writerow(["op", *NAMES])
        for n in range(number):
            fields = _fields(random, n)[: random.choice([99, 99, 99, 99, 3, 11])]
            if format_ == "dms":
                fields[0] = random.choice([*"IUD"] * 6 + ["?", ""]) if n else "I"
            writer.writerow(fields)
        content = out.getvalue().encode("utf-8", "surrogatepass")
        if random.random() < 0.7:
            return content, number
        rows = content.split(b"\n")
        return b"\n".join(damaged(random, row) if random.random() < 0.05 else row for row in rows), None
    lines = lines_of(format_, random, first, number)
    end = random.choice([b"\n", b""]) if lines[-1] else b"\n"
    return b"\n".join(lines) + end, number


def parquet_file(random: Random, number: int) -> bytes:
    """A Parquet file, whose columns have one of several types."""
    rows = [row_of(random) for _ in range(number)]
    columns: dict[str, Any] = {"op": [random.choice(["u", "d", "insert"] * 5 + ["?", None]) for _ in rows]}
    for name in NAMES:
        values = [row.get(name) for row in rows]
        wanted = random.random()
        if name in ("id", "n") and wanted < 0.7:
            columns[name] = pa.array(values, pa.int64())
        elif wanted < 0.95:
            columns[name] = [
                None if v is None else random.choice([str(v)] * 30 + [repr(random.choice(ODD))]) for v in values
            ]
    columns = {name: pa.array(v, pa.string()) if isinstance(v, list) else v for name, v in columns.items()}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=max(1, number // 3))
    return out.getvalue()


def land(format_: str, random: Random, folder: Path, batch: int, first: int, number: int) -> int | None:
    """Writes the files of a batch; returns how many records lie in them, where that is sure."""
    sure: int | None = 0
    parts = random.choice([1, 2, 3])
    for part in range(parts):
        share = number // parts
        name = f"{part}-{batch:04d}"
        if format_ == "dms":
            name = f"2024050{1 + batch % 9}-1000{part}{batch:04d}"
        if format_ == "parquet":
            content, ending, records = parquet_file(random, share), ".parquet", share
        else:
            content, known = text_file(format_, random, first + part * share, share)
            records, ending = known, ".csv" if format_ in ("csv", "dms") else ".jsonl"
        if ending != ".parquet" and random.random() < 0.5:
            content, ending = gzip.compress(content), ending + ".gz"
        if part and random.random() < 0.3:
            cut = random.randrange(len(content))
            content = random.choice(
                [content[:cut], content[:cut] + b"\xff\x00" + content[cut + 2 :], b"", b"no such file"]
            )
            records = None
        sure = None if sure is None or records is None else sure + records
        (folder / (name + ending)).write_bytes(content)
    return sure


def check(pipeline: Pipeline, batch: int, sure: int | None) -> Counter[str]:
    """What must hold of a batch that has run; returns what became of its records.

    Every record that was read is an event, ignored or quarantined; every event is the last of its key, a truncate, or
    superseded; the state took notice of every row; every quarantined record is stored; and the second reader of
    the files finds in the tables what it reads.
    """
    log = pipeline.ledger().state(Stage.LEFT_CHANGELOG, batch).counts
    state = pipeline.ledger().state(Stage.SUBSCRIPTION_STORE, batch).counts
    ignored = sum(n for name, n in log.items() if name.startswith("ignored: "))
    quarantined, truncates = log.get("quarantined", 0), log.get("truncates", 0)
    assert log["read"] == log.get("events", 0) + truncates + ignored + quarantined, log
    assert log.get("events", 0) + truncates == log["rows"] + log.get("superseded", 0), log
    if sure is not None and pipeline.spec.left.format != "maxwell":  # a changed key is one line and two records
        assert log["read"] == sure, (log, sure)
    rows = pipeline.table("left_changelog").where(f"_fk_batch = {batch}")
    assert (rows.count(), rows.where("id IS NULL").count()) == (log["rows"], min(truncates, 1)), log
    outcomes = {name: state.get(name, 0) for name in ("inserted", "applied", "silent", "late")}
    if not truncates:
        assert sum(outcomes.values()) == log["rows"], (log, state)
    bad = pipeline.table("quarantine").where(f"_fk_batch = {batch} AND _fk_side = 'left'")
    assert bad.where("_fk_reason IS NOT NULL AND _fk_raw IS NOT NULL AND _fk_line > 0").count() == quarantined, log
    inputs = pipeline.verify_inputs(share=1)
    assert inputs.ok, [one.as_json() for one in inputs.sample]
    found = Counter(outcomes) + Counter({"superseded": log.get("superseded", 0), "quarantined": quarantined})
    return found + Counter(read=log["read"], ignored=ignored, truncates=truncates)


def fuzz(session: SparkSession, folder: Path, format_: str, records: int, batches: int, seed: int) -> Counter[str]:
    """Runs mutated batches of a format; returns what became of their records."""
    random = Random(f"{seed} {format_}")
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.format(format=format_, schema=SCHEMA, options=OPTIONS.get(format_, "")))
    pipeline = Pipeline(load_spec(file), session)
    for side in ("left", "right"):
        (folder / side).mkdir()
    (folder / "right" / "0.jsonl").write_text('{"k": "a", "name": "A"}\n{"k": "é", "name": "E"}\n')
    total: Counter[str] = Counter()
    for batch in range(batches):
        share = records // batches
        sure = land(format_, random, folder / "left", batch, batch * share, share)
        pipeline.run()
        total += check(pipeline, max(pipeline.ledger().batches), sure)
    report = pipeline.verify()
    assert (report.ok, report.due) == (True, 0), report
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutated lines and files of every format.")
    parser.add_argument("--records", type=int, default=6000, help="per format")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    wanted = parser.parse_args()
    os.environ.setdefault("FK_SPARK_REMOTE", "none")  # a warm Spark of the developer is for other things
    session = start_session(Settings(shuffle_partitions=2))
    for format_ in wanted.formats.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found = fuzz(session, Path(folder), format_, wanted.records, wanted.batches, wanted.seed)
        print(json.dumps({"format": format_, "seed": wanted.seed, **found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
