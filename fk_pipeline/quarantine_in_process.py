"""The records of the quarantine as `quarantine.quarantined_records` returns them, read without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fk_pipeline.conditions import AnyTest, ConstantTest, RowTest, between
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.project import results_read
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger.corrections import digest_of
from fk_pipeline.store.row_order import ordered
from fk_pipeline.store.rows_in_process import Relation, RowRequest, leaving_errors

EDITED_ENDINGS = (".csv", ".jsonl")
"""Endings of the files that people edit."""

_ORDER = ("side", "batch", "file", "line", "raw")


def quarantined_records(
    rows: Relation, spec: PipelineSpec, batches: Sequence[BatchRange], side: str | None
) -> pa.Table:
    """Returns records of the quarantine.

    Args:
        rows: the rows of its table.
        spec: the pipeline.
        batches: the batches whose records are returned; none: all.
        side: the origin whose records are returned; None: all.

    Raises:
        LeftToSpark: only Spark can read them, for example because a text of theirs is not UTF-8.
    """
    where: list[RowTest] = []
    if batches:
        dtype = rows.schema.field(s.BATCH).type
        parts = [part for some in batches for part in some.parts]
        where.append(AnyTest(tuple(between(s.BATCH, int(part.first), int(part.last), dtype) for part in parts)))
    if side is not None:
        where.append(ConstantTest(s.SIDE, "equal", pa.scalar(str(side)), str(side)))
    columns = [s.BATCH, s.SIDE, s.FILE, s.LINE, s.REASON, s.RAW]
    with leaving_errors():
        records = rows.read(RowRequest(columns, where)).rename_columns(
            ["batch", "side", "file", "line", "reason", "raw"]
        )
        folder = spec.location("") + "/"
        files = [None if file is None else file.removeprefix(folder) for file in records["file"].to_pylist()]
        digests = [None if raw is None else digest_of(raw) for raw in records["raw"].to_pylist()]
    place = records.column_names.index("file")
    records = records.set_column(place, "file", pa.array(files, pa.string()))
    records = records.append_column("digest", pa.array(digests, pa.string()))
    return ordered(records, [(name, False) for name in _ORDER])


def refuse_no_origin(spec: PipelineSpec, side: str | None) -> None:
    """Refuses a side that no record of the quarantine can come from.

    Raises:
        UsageError: it is no input, and not `join`; or the pipeline has no quarantine.
    """
    origins = spec.definition.rejecting
    if not origins:
        read = [f"fk-pipeline quarantine {file}" for file in results_read(spec)]
        raise UsageError(
            f"pipeline {spec.name} has no quarantine",
            where=str(spec.file),
            why="it reads tables where they lie, and no landing files",
            fix=f"those of the pipelines that it reads: {', '.join(read)}" if read else "look into its sources",
        )
    if side is not None and side not in origins:
        raise UsageError(f"{side!r} is no input of pipeline {spec.name}", fix=f"--side {', '.join(origins)}")


def reasons_of(records: pa.Table) -> list[dict[str, Any]]:
    """Returns the number of records per side and reason, the most frequent ones first."""
    counted = Counter(zip(records["side"].to_pylist(), records["reason"].to_pylist(), strict=True))

    def place(entry: tuple[tuple[str, str], int]) -> tuple[int, bytes, bytes]:
        (side, reason), number = entry
        return -number, side.encode(), reason.encode()

    return [
        {"side": side, "reason": reason, "records": number}
        for (side, reason), number in sorted(counted.items(), key=place)
    ]


@dataclass(frozen=True)
class QuarantineListing:
    """Records of the quarantine, as the command lists them.

    Attributes:
        records: the number of all records.
        reasons: the most frequent reasons: `side`, `reason` and `records`, the number.
        rows: the first records: `side`, `batch`, `file`, `line`, `reason`, `raw`, ...
    """

    records: int
    reasons: list[dict[str, Any]]
    rows: list[dict[str, Any]]


def listing(records: pa.Table, limit: int) -> QuarantineListing:
    """Returns the first records, and the most frequent reasons: at most `limit` of each."""
    return QuarantineListing(len(records), reasons_of(records)[:limit], records.slice(0, limit).to_pylist())
