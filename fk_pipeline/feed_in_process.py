"""The changes of a batch to the result as `feed.changes` returns them, read without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import types as T

from fk_pipeline.arrow_text import as_numbers
from fk_pipeline.cdc.table_versions import FeedPart, PlainFeed, are_kept, plain_feed
from fk_pipeline.contract import loaded
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.feed import CHANGE, DELETE, INSERT, TIME, UPDATE, VERSION
from fk_pipeline.identity import BatchRange
from fk_pipeline.parquet_files import rows_at
from fk_pipeline.period import Period, commits_in, refuse_gone
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import Commit, commits
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.rows_in_process import HeldRows, InProcessTable, leaving_errors
from fk_pipeline.store.sizes import Sizes

_NEW, _OLD = ("insert", "update_postimage"), ("delete", "update_preimage")


def changes(spec: PipelineSpec, ledger: Ledger, sizes: Sizes, batch: int) -> HeldRows:
    """Returns the rows of the result that the runs for a batch changed.

    Raises:
        LeftToSpark: only Spark can read them.
        StateError: the change feed of these commits is no longer available.
    """
    name = spec.definition.result.name
    path, stage = f"{spec.home}/{name}", spec.definition.result_stage
    _refuse_elsewhere(path)
    newest = ledger.logs.version(path)
    of_batch = [
        commit
        for commit in commits(path, range(0 if newest is None else newest + 1))
        if commit.stage == stage and batch in BatchRange.parse(commit.batches)
    ]
    written = ledger.state(stage, batch).versions.get(f"{name} written")
    versions = {commit.version for commit in of_batch} | ({written} if written is not None else set())
    gone = [v for v in versions if not are_kept(f"{path}@{v}..{v}")]
    refuse_gone(f"the changes of batch {batch}", gone, name, path)
    return _together(spec, ledger.logs, sizes, of_batch, batch)


def changes_in(spec: PipelineSpec, ledger: Ledger, sizes: Sizes, period: Period) -> HeldRows:
    """Returns the rows of the result that runs changed in a period, as `feed.changes_in` does.

    Raises:
        LeftToSpark: only Spark can read them.
        StateError: the change feed of these commits is no longer available.
    """
    _refuse_elsewhere(f"{spec.home}/{spec.definition.result.name}")
    return _together(spec, ledger.logs, sizes, commits_in(spec, ledger, period), None)


def _refuse_elsewhere(path: str) -> None:
    if "://" in path:
        raise LeftToSpark("the result is not on a disk")


def _together(spec: PipelineSpec, logs: DeltaLogs, sizes: Sizes, made: Sequence[Commit], batch: int | None) -> HeldRows:
    """Returns the changes of some commits of the result: for a batch, or for all batches of each.

    Raises:
        LeftToSpark: only Spark can read them.
    """
    kind = spec.definition
    name = kind.result.name
    path, layout = f"{spec.home}/{name}", loaded(kind.declared_layout)(spec)
    table = InProcessTable.of(logs, path, sizes)
    if table is None:
        raise LeftToSpark("there is no result yet")
    schema = schema_of_changes(table, layout[name].names)
    parts = [schema.empty_table()]
    with leaving_errors():
        for commit in made:
            parts.append(of_commit(path, layout, name, commit, batch, schema, sizes))
            if sum(map(len, parts)) > sizes.batch_rows:
                raise LeftToSpark(f"more than {sizes.batch_rows:,} rows changed")
    return HeldRows(pa.concat_tables(parts))


def schema_of_changes(table: InProcessTable, names: Sequence[str]) -> pa.Schema:
    """Returns the columns of the changes of a table: three about the change, then some columns of the table."""
    of_change = [(CHANGE, pa.string()), (VERSION, pa.int64()), (TIME, pa.timestamp("us", "UTC"))]
    return pa.schema([*of_change, *(table.schema.field(name) for name in names)])


def of_commit(
    path: str, layout: Layout, name: str, commit: Commit, batch: int | None, schema: pa.Schema, sizes: Sizes
) -> pa.Table:
    """Returns the changes of one commit for a batch; None: for all its batches, of which a removed row has no own.

    Raises:
        LeftToSpark: only Spark can read them, or tell which batch removed a row.
    """
    feed = plain_feed(f"{path}@{commit.version}..{commit.version}")
    if feed is None:
        raise LeftToSpark(f"the changes of version {commit.version} are read by Delta only")
    rows, change_types = _rows(feed, schema.names[3:], sizes)
    table = layout[name]
    identity = table.identity or table.keys
    if any(pa.types.is_floating(rows.schema.field(key).type) for key in identity):
        raise LeftToSpark("keys with floating-point numbers are compared by Spark")
    own_columns = [column for column in table.names if column.startswith("_fk_") and column not in identity]
    pairs: dict[Any, list[int | None]] = {}
    for i, (key, change_type) in enumerate(zip(_values(rows, identity), change_types, strict=True)):
        pair = pairs.setdefault(key, [None, None])
        place = 0 if change_type in _NEW else 1
        if change_type in (*_NEW, *_OLD) and pair[place] is None:
            pair[place] = i
    marks = _values(rows, own_columns)
    batches = rows[s.BATCH].to_pylist()
    chosen: list[tuple[int, str]] = []
    for new, old in pairs.values():
        if new is not None and old is not None and marks[new] == marks[old]:
            continue
        if new is None and old is not None:
            if batch is not None and not BatchRange.parse(commit.batches).is_single:
                raise LeftToSpark("a run of several batches removed rows")
            chosen.append((old, DELETE))
        elif new is not None and batch in (None, batches[new]):
            chosen.append((new, INSERT if old is None else UPDATE))
    at = _committed_at(path, commit.version)
    picked = rows.take(pa.array([i for i, _ in chosen], pa.int64()))
    columns = [
        pa.array([change_type for _, change_type in chosen], pa.string()),
        pa.repeat(pa.scalar(commit.version, pa.int64()), len(chosen)),
        pa.repeat(pa.scalar(at, pa.int64()), len(chosen)).cast(schema.field(TIME).type),
        *picked.columns,
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _rows(feed: PlainFeed, names: Sequence[str], sizes: Sizes) -> tuple[pa.Table, list[str]]:
    """Returns the rows of a feed with some columns, and the kind of change of each."""
    stored = T.StructType.fromJson(dict(feed.schema))
    fields = [stored[name] for name in names]
    parts: list[pa.Table] = []
    change_types: list[str] = []
    number = 0
    for part in feed.parts:
        indices = _indices(part)
        number += len(indices)
        if number > sizes.batch_rows:
            raise LeftToSpark(f"the runs changed {number:,} rows")
        schema = T.StructType([*fields, *([] if part.kind else [T.StructField(CHANGE, T.StringType())])])
        rows = rows_at(part.file, indices, schema)
        if rows is None:
            raise LeftToSpark("a file of changes is read by Spark only")
        change_types += [part.kind] * len(rows) if part.kind else rows[CHANGE].to_pylist()
        parts.append(rows.select([*names]))
    return pa.concat_tables(parts).combine_chunks(), change_types


def _indices(part: FeedPart) -> BitMap64:
    if part.only is not None:
        return part.only - part.but
    with pq.ParquetFile(part.file) as file:
        return BitMap64(range(file.metadata.num_rows)) - part.but


def _values(rows: pa.Table, names: Sequence[str]) -> list[Any]:
    """Returns the values of some columns of each row, to compare."""
    columns = [part.to_pylist() for part in as_numbers(rows.select([*names])).columns]
    return [tuple(map(_hashable, values)) for values in zip(*columns, strict=True)]


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(_hashable, value.values()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _committed_at(path: str, version: int) -> int:
    """Returns the time of a commit as the change feed has it, in microseconds since 1970."""
    return Path(path, "_delta_log", f"{version:020d}.json").stat().st_mtime_ns // 1_000_000 * 1_000
