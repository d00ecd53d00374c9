"""Commits a merge of few rows to a large table from the driver: the old rows get into deletion vectors (ADR 0042).

delta-rs cannot do this, and Spark takes a second for it. A commit is what the Delta protocol asks for: a Parquet file
with the new rows, a file with deletion vectors, and the actions in the log. Readers of the change feed find the deleted
rows by the deletion vectors.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyroaring import BitMap64

from fk_pipeline.environment import storage
from fk_pipeline.parquet_files import write_rows
from fk_pipeline.store.deletion_vectors import AT, IN
from fk_pipeline.store.file_bounds import bounds
from fk_pipeline.store.log_files import Action, added_files
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.vector_files import write_vectors

CHECKPOINT_INTERVAL = "delta.checkpointInterval"


@dataclass(frozen=True)
class Merge:
    """What a merge changes.

    Attributes:
        places: the places (`IN`, `AT`) of the rows that are updated or deleted, one row each.
        added: the rows that are written: updated and inserted ones.
        counts: the number of inserted, updated and deleted rows, as Delta's history names them.
    """

    places: pa.Table
    added: pa.Table
    counts: Mapping[str, int]


def nothing() -> Merge:
    """Returns a merge of no rows, for the facts that its commit carries."""
    return Merge(pa.table({IN: pa.array([], pa.string()), AT: pa.array([], pa.int64())}), pa.table({}), {})


def merge_of(rows: pa.Table, stored: pa.Table, table: Table, columns: pa.Schema, *, delete_when: str | None) -> Merge:
    """Returns what a merge changes.

    Args:
        rows: the columns of the table and `delete_when`; one row per key.
        stored: the keys and places of the rows of the table with these keys, and maybe others.
        table: the table; its keys identify a row, and a null in a key equals null.
        columns: the columns of the table as Arrow's.
        delete_when: a BOOLEAN column of `rows`, never null; a row in which it is true is removed from the table.
    """
    old, new = _same_key(stored, rows, table.keys)
    gone = pa.repeat(False, len(rows)) if delete_when is None else rows[delete_when]
    added = rows.filter(pc.invert(gone)).select(table.names).cast(columns)
    deleted = pc.sum(gone.take(new)).as_py() or 0
    updated = len(new) - deleted
    counts = {"Inserted": len(added) - updated, "Updated": updated, "Deleted": deleted}
    places = stored.take(old).select([IN, AT])
    return Merge(places, added, {f"numTargetRows{name}": number for name, number in counts.items()})


def _same_key(stored: pa.Table, rows: pa.Table, keys: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Returns the pairs of a stored row and a row with the same key: the indices of both."""
    old, new = "_fk_old", "_fk_new"
    schema = stored.select(keys).schema

    def numbered(table: pa.Table, name: str, other: str) -> pa.Table:
        numbers, absent = pa.array(range(len(table)), pa.int64()), pa.nulls(len(table), pa.int64())
        return table.select(keys).cast(schema).append_column(name, numbers).append_column(other, absent)

    # A join would not take null as equal to null; a group does. A row that the table has twice is in two pairs.
    both = pa.concat_tables([numbered(stored, old, new), numbered(rows, new, old).select([*keys, old, new])])
    per_key = both.group_by([*keys], use_threads=False).aggregate([(old, "list"), (new, "max")])
    per_key = per_key.filter(pc.is_valid(per_key[f"{new}_max"])).combine_chunks()
    lists, new_places = per_key[f"{old}_list"].combine_chunks(), per_key[f"{new}_max"].combine_chunks()
    pairs = pa.table({old: pc.list_flatten(lists), new: new_places.take(pc.list_parent_indices(lists))})
    pairs = pairs.filter(pc.is_valid(pairs[old]))
    return pairs[old].combine_chunks(), pairs[new].combine_chunks()


class MarkedWriter:
    """Commits merges of few rows to the large tables of a warehouse on a local disk or in S3."""

    def __init__(self, logs: DeltaLogs, sizes: Sizes) -> None:
        """Takes the cached logs of the tables, and the sizes of files."""
        self._logs, self._sizes = logs, sizes

    def commit(
        self, path: str, stored: DeltaTable, version: int, merge: Merge, table: Table, user_metadata: str
    ) -> bool:
        """Commits a merge right after the version that was read; returns whether it did.

        Args:
            path: the path or URI of the table.
            stored: the table, with deletion vectors and no features that the driver does not write.
            version: the version in which the rows were found.
            merge: what changes.
            table: the table.
            user_metadata: of the commit.

        Returns:
            False if the log does not tell all about the files of the table: nothing is committed then.

        Raises:
            CommitFailedError: the table got another version meanwhile.
        """
        files, marked = added_files(path, version), _by_file(merge.places)
        vectors = None if files is None else self._vectors(path, files, marked)
        if files is None or vectors is None:
            return False
        now = time.time_ns() // 1_000_000
        actions: list[Action] = []
        vectors_at = write_vectors(path, vectors)
        for name in marked:
            actions.append({"remove": _removed(files[name], now)})
            if name in vectors_at:
                file = files[name] | {"dataChange": True, "deletionVector": vectors_at[name]}
                actions.append({"add": file | {"stats": _with_loose_bounds(files[name]["stats"])}})
        size = 0
        if len(merge.added):
            name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
            added = self._write(path, name, merge.added) | {"modificationTime": now, "dataChange": True}
            size = added["size"]
            actions.append({"add": added | {"stats": _as_json(bounds(merge.added, table.skip_by))}})
        about = {"commitInfo": _about(merge, size, version, user_metadata, now)}
        _commit(path, version + 1, [about, *actions])
        stored.update_incremental()
        if stored.version() % int(stored.metadata().configuration.get(CHECKPOINT_INTERVAL, 10)) == 0:
            with suppress(DeltaError, OSError):  # the commit is made, and a later one has a checkpoint again
                stored.create_checkpoint()
                stored.cleanup_metadata()
        return True

    def _vectors(
        self, path: str, files: Mapping[str, Action], marked: Mapping[str, BitMap64]
    ) -> dict[str, BitMap64] | None:
        """Returns, per file that gets a deletion vector, all its deleted rows; not of a file that has no row left.

        Returns None if the log does not tell the number of rows of a file, which a deletion vector needs.
        """
        deleted, vectors = self._logs.deleted(path), {}
        for name, rows in marked.items():
            number, known = _rows(files.get(name, {})), deleted.get(name)
            if number is None:
                return None
            every = rows if known is None else rows | BitMap64(known.to_pylist())
            if len(every) < number:
                vectors[name] = every
        return vectors

    def _write(self, path: str, name: str, rows: pa.Table) -> Action:
        """Writes rows to a Parquet file; returns the fields of its action."""
        data = pa.BufferOutputStream()
        write_rows(rows, data, self._sizes.rows_per_group)
        content = data.getvalue().to_pybytes()
        storage.write_named(f"{path}/{name}", content)
        return {"path": name, "partitionValues": {}, "size": len(content)}


def _by_file(places: pa.Table) -> dict[str, BitMap64]:
    """Returns, per file, the indices of the rows in it."""
    per_file = places.group_by(IN, use_threads=False).aggregate([(AT, "list")])
    return {row[IN]: BitMap64(row[f"{AT}_list"]) for row in per_file.to_pylist()}


def _removed(file: Action, now: int) -> Action:
    """Returns the `remove` action of a file, with the deletion vector that it had: the two identify it."""
    fields = {
        name: file[name] for name in ("path", "partitionValues", "size", "tags", "deletionVector") if name in file
    }
    return fields | {"deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}


def _rows(file: Action) -> int | None:
    """Returns the number of rows of a file, deleted ones included; None if the log does not tell it."""
    number = json.loads(file.get("stats") or "{}").get("numRecords")
    return number if isinstance(number, int) else None


def _with_loose_bounds(stats: str) -> str:
    """Returns the statistics of a file that gets a deletion vector: its bounds may be those of a deleted row.

    The rest stays as it is, digit by digit.
    """
    rest = re.sub(r',?\s*"tightBounds"\s*:\s*(true|false)', "", stats).strip().removeprefix("{").lstrip(" ,")
    return f'{{"tightBounds":false,{rest}'


def _about(merge: Merge, size: int, version: int, user_metadata: str, now: int) -> Action:
    return {
        "timestamp": now,
        "operation": "MERGE",
        "operationParameters": {},
        "readVersion": version,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {
            **{name: str(number) for name, number in merge.counts.items()},
            "numTargetBytesAdded": str(size),
        },
        "engineInfo": "fk-pipeline",
        "txnId": str(uuid.uuid4()),
        "userMetadata": user_metadata,
    }


def _commit(path: str, version: int, actions: Sequence[Action]) -> None:
    """Makes a version of a table, if no other writer has made it.

    Raises:
        CommitFailedError: another writer has.
    """
    lines = "".join(f"{_as_json(action)}\n" for action in actions)
    if not storage.write_new(f"{path}/_delta_log/{version:020d}.json", lines.encode()):
        raise CommitFailedError(f"another writer has made version {version} of {path.rsplit('/', 1)[1]}")


def _as_json(value: Action) -> str:
    return json.dumps(value, separators=(",", ":"))
