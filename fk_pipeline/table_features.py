"""Decides what can be done with a Delta table that somebody has upgraded, by the features in its protocol.

Spark reads and writes a table of any feature that it knows. delta-rs, which opens every table and alone writes the
ledger, knows fewer, and each release others: so an empty table with the same features shows it (`_can`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from fk_pipeline.environment import storage
from fk_pipeline.errors import StateError

MARKED = "deletionVectors"
"""The feature of a table with deletion vectors: delta-rs does not write them, and an append leaves them as they are."""

_BY_ALL = frozenset(
    {MARKED, "appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}
)
"""Features with which every accepted version of delta-rs reads and writes as Spark does: most tables have no others.

Two of them only stand in lists of tables that had an older version before: constraints and generated columns.
"""

_READABLE = frozenset({MARKED})
"""Reader features of a table whose files are read without Delta."""

_LEGACY_WRITERS = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""The features for which a writer version stands that has no list of them, beside those of the versions below."""

_WITH_FEATURES = 7
"""The writer version with a list of features; 3 is that of readers."""

APPEND_ONLY, ROW_TRACKING = "delta.appendOnly", "delta.enableRowTracking"

ICEBERG = "delta.enableIcebergCompatV"
"""The beginning of properties of tables that Iceberg reads, too; the version of the rules follows."""

_DROPPED_AT_ONCE = ("rowTracking", "inCommitTimestamp", "domainMetadata", "materializePartitionColumns")
"""Features that Delta 4.4 drops without a trace, in this order: row tracking has the domain metadata. It keeps most
others, or leaves `checkpointProtection` in their place until the history is gone.
"""

_NO_NUMBERS = re.compile(r"Missing base_row_id value for file '(?:file:)?([^']+)/[^/']+'")
"""The message of Spark for a table with row tracking that has a row without a number; the group is the table."""

_COMMIT = re.compile(r"\d{20}\.json")

_DOWNGRADE = "spark.databricks.delta.restore.protocolDowngradeAllowed"

_DAMAGED = (OSError, ValueError, LookupError, TypeError, pa.ArrowException)
"""Errors of a log that is damaged."""


class Can(IntEnum):
    """What delta-rs can do with a table; each includes those before it."""

    NOTHING = 0
    OPEN = 1
    READ = 2
    COMMIT = 3


_DONE = {Can.OPEN: "opened", Can.READ: "read", Can.COMMIT: "written"}


@dataclass(frozen=True)
class Protocol:
    """The protocol of a table: the versions for readers and writers, and the features of each, if they have lists."""

    reader: int
    writer: int
    of_reader: frozenset[str] = frozenset()
    of_writer: frozenset[str] = frozenset()

    @classmethod
    def of(cls, table: DeltaTable) -> Protocol:
        """Returns the protocol of an opened table."""
        protocol = table.protocol()
        features = (protocol.reader_features, protocol.writer_features)
        return cls(
            protocol.min_reader_version, protocol.min_writer_version, *(frozenset(some or ()) for some in features)
        )

    @classmethod
    def in_action(cls, action: Mapping[str, Any]) -> Protocol:
        """Returns the protocol in an action of a log."""
        features = (frozenset(action.get(f"{who}Features") or ()) for who in ("reader", "writer"))
        return cls(action["minReaderVersion"], action["minWriterVersion"], *features)

    @property
    def as_action(self) -> dict[str, Any]:
        """The protocol as an action of a log."""
        action: dict[str, Any] = {"minReaderVersion": self.reader, "minWriterVersion": self.writer}
        if self.reader >= 3:
            action["readerFeatures"] = sorted(self.of_reader)
        if self.writer >= _WITH_FEATURES:
            action["writerFeatures"] = sorted(self.of_writer)
        return action

    @property
    def features(self) -> frozenset[str]:
        """The names of all features."""
        legacy = {name for version, names in _LEGACY_WRITERS.items() if version <= self.writer for name in names}
        return self.of_reader | self.of_writer if self.writer >= _WITH_FEATURES else frozenset(legacy)

    def with_only(self, feature: str) -> Protocol:
        """Returns the protocol of a table with one feature only."""
        of_reader = frozenset({feature} & {*self.of_reader, "columnMapping"})  # which is of both in older versions, too
        return Protocol(3 if of_reader else 1, _WITH_FEATURES, of_reader, frozenset({feature}))


def open_table(path: str, version: int | None = None, *, ledger: bool = False) -> DeltaTable:
    """Opens a table with delta-rs.

    Args:
        path: its folder or URI.
        version: its version; None: the current one.
        ledger: whether it is a table of the ledger.

    Raises:
        StateError: the table has a feature that delta-rs does not know; the error has the command that takes it off.
        DeltaError: its log cannot be read.
    """
    try:
        return DeltaTable(path, version=version, storage_options=storage.delta_options(path))
    except DeltaError as error:
        with suppress(*_DAMAGED):
            protocol = next((stored for _, stored in _protocols(path)), None)
            refused = None if protocol is None else refusal(path, protocol, Can.OPEN, ledger=ledger)
            if refused is not None:
                raise refused from error
        raise


def is_plain(table: DeltaTable) -> bool:
    """Returns whether the files of a table have its columns under their names, and deletion vectors tell the rest."""
    protocol = Protocol.of(table)
    if table.metadata().partition_columns:
        return False
    return protocol.reader <= 1 or (protocol.reader == 3 and protocol.of_reader <= _READABLE)


def may_be_written_in_process(table: DeltaTable, *, marked: bool) -> bool:
    """Returns whether the driver may commit to a data table; if not, Spark does.

    Args:
        table: the table.
        marked: whether it may have deletion vectors.
    """
    protocol, settings = Protocol.of(table), table.metadata().configuration
    if is_append_only(table) or any(name.startswith("delta.constraints.") for name in settings):
        return False
    if "delta.generationExpression" in table.schema().to_json():
        return False
    written = _BY_ALL if marked else _BY_ALL - {MARKED}
    return protocol.writer <= _WITH_FEATURES and protocol.features <= written


def is_append_only(table: DeltaTable) -> bool:
    """Returns whether no row of a table may be removed or replaced."""
    return table.metadata().configuration.get(APPEND_ONLY, "").lower() == "true"


def may_be_replaced(table: DeltaTable) -> bool:
    """Returns whether Spark can replace a table as a whole: never one with rules of Iceberg that cannot be ended."""
    return table.metadata().configuration.get(f"{ICEBERG}3", "").lower() != "true"


def may_have_vectors(table: DeltaTable) -> bool:
    """Returns whether deletion vectors may be turned on: not while Iceberg reads the table."""
    return not any(
        name.startswith(ICEBERG) and value.lower() == "true" for name, value in table.metadata().configuration.items()
    )


def reads_vectors(table: DeltaTable) -> bool:
    """Returns whether delta-rs reads the deletion vectors of a table."""
    return not beyond(Protocol.of(table), Can.READ)


def refuse_changes(path: str, table: DeltaTable) -> None:
    """Refuses a data table in which no row may be replaced.

    Raises:
        StateError: its property says so; the error has the command that takes it off.
    """
    if is_append_only(table):
        what = f"has the property {APPEND_ONLY}, and the stage replaces rows"
        raise _unfit(path, what, f"UNSET TBLPROPERTIES ('{APPEND_ONLY}')")


def without_row_numbers(error: Exception) -> StateError | None:
    """Returns the error for a table whose rows Spark cannot replace because they lack the numbers of row tracking.

    Delta 4.4 gives them to the rows of a table that gets row tracking, but not if it gets it with `icebergCompatV3`.

    Args:
        error: of Spark.
    """
    match = _NO_NUMBERS.search(str(error))
    if match is None:
        return None
    what = "has the feature icebergCompatV3, or another one with row tracking, and its rows have no numbers"
    return _unfit(match[1], what, f"SET TBLPROPERTIES ('{ROW_TRACKING}' = 'true')")


def _unfit(path: str, what: str, change: str) -> StateError:
    return StateError(
        f"table {path.rsplit('/', 1)[1]} {what}",
        where=path,
        why="somebody else changed the table, or a default of the platform did; the batches stay due",
        fix=f"in Spark: ALTER TABLE {_in_sql(path)} {change}",
    )


def beyond(protocol: Protocol, what: Can) -> list[str]:
    """Returns the features of a table because of which delta-rs cannot do something with it; none if it can."""
    if protocol.features <= _BY_ALL or _can(protocol) >= what:
        return []
    each = sorted(protocol.features)
    return [name for name in each if _can(protocol.with_only(name)) < what] or each


@cache
def _can(protocol: Protocol) -> Can:
    """Returns what delta-rs can do with a table of a protocol: it tries with an empty one."""
    schema = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
    about = {"id": "0", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {}}
    about["schemaString"] = json.dumps(schema)
    with TemporaryDirectory() as folder:
        log = Path(folder, "_delta_log")
        log.mkdir()
        actions = [{"protocol": protocol.as_action}, {"metaData": about}]
        (log / f"{0:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        can = Can.NOTHING
        try:
            table = DeltaTable(folder)
            can = Can.OPEN
            pa.RecordBatchReader.from_stream(QueryBuilder().register("t", table).execute("SELECT * FROM t")).read_all()
            list(table.deletion_vectors())
            can = Can.READ
            write_deltalake(table, pa.table({"n": pa.array([1], pa.int64())}), mode="append")
        except DeltaError:
            return can
    return Can.COMMIT


def refusal(path: str, protocol: Protocol, what: Can, *, ledger: bool) -> StateError | None:
    """Returns the error for a table that delta-rs cannot use as it must: its features, and what takes them off.

    Args:
        path: the folder or URI of the table.
        protocol: its protocol.
        what: what has to be done with it.
        ledger: whether it is a table of the ledger: only delta-rs writes to it.

    Returns:
        None if delta-rs can do it.
    """
    lacking = beyond(protocol, what)
    if not lacking:
        return None
    names = beyond(protocol, Can.COMMIT) if ledger else lacking
    named = f"the feature{'s' if len(names) > 1 else ''} {', '.join(names)}"
    return StateError(
        f"table {path.rsplit('/', 1)[1]} has {named}: it cannot be {_DONE[what]} without Spark",
        where=path,
        why="somebody else upgraded the table, or a default of the platform did; nothing was changed",
        fix=f"in Spark: {_taking_off(path, names, ledger=ledger)}",
    )


def _taking_off(path: str, features: list[str], *, ledger: bool) -> str:
    """Returns SQL that takes features off a table; for a table of the ledger, so that delta-rs can commit again."""
    table = _in_sql(path)
    if not ledger or {*features} <= {*_DROPPED_AT_ONCE}:
        order = sorted(features, key=lambda name: (*_DROPPED_AT_ONCE, name).index(name))
        return "; ".join(f"ALTER TABLE {table} DROP FEATURE '{name}'" for name in order)
    before = None
    with suppress(*_DAMAGED):
        before = _before(path, features)
    if before is not None:
        return f"SET {_DOWNGRADE} = true; RESTORE TABLE {table} TO VERSION AS OF {before}"
    copy = _in_sql(f"{path}-copy")
    return f"CREATE TABLE {copy} USING delta AS SELECT * FROM {table}; then put that folder in its place"


def _in_sql(path: str) -> str:
    """Returns a table as SQL names it."""
    return f"delta.`{path.replace('`', '``')}`"


def _before(path: str, features: Iterable[str]) -> int | None:
    """Returns the last version of a table without some features; None if it had other rows, or is not known."""
    unwanted, since = {*features}, None
    for version, protocol in _protocols(path):
        if not protocol.features & unwanted:
            break
        since = version
    else:
        return None
    if since is None or any(_changes_rows(action) for _, actions in _commits(path, since) for action in actions):
        return None
    return since - 1


def _changes_rows(action: Mapping[str, Any]) -> bool:
    return any(action[name]["dataChange"] for name in ("add", "remove") if name in action)


def _protocols(path: str) -> Iterator[tuple[int, Protocol]]:
    """Yields versions with the protocol of a table since then, the newest first; the last one may be a checkpoint's."""
    first = None
    for version, actions in _commits(path):
        first = version
        yield from ((version, Protocol.in_action(action["protocol"])) for action in actions if "protocol" in action)
    if first != 0:
        yield from _protocol_of_checkpoint(path)


def _commits(path: str, since: int = 0) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yields the versions of a table that its log still has, with their actions, the newest first."""
    fs, log = storage.filesystem(f"{path}/_delta_log")
    names = [file.rsplit("/", 1)[1] for file in fs.ls(log, detail=False)]
    versions = sorted(int(name.removesuffix(".json")) for name in names if _COMMIT.fullmatch(name))
    for version in reversed(versions):
        if version >= since:
            lines = fs.cat_file(f"{log}/{version:020d}.json").splitlines()
            yield version, [json.loads(line) for line in lines if line.strip()]


def _protocol_of_checkpoint(path: str) -> Iterator[tuple[int, Protocol]]:
    import pyarrow.parquet as pq  # takes a while to load, and is needed for tables that others upgraded only

    fs, log = storage.filesystem(f"{path}/_delta_log")
    for file in sorted(fs.glob(f"{log}/*.checkpoint.parquet"), reverse=True)[:1]:
        with fs.open(file) as opened:
            actions = pq.read_table(opened, columns=["protocol"])["protocol"].drop_null().to_pylist()
        yield from ((int(file.rsplit("/", 1)[1][:20]), Protocol.in_action(action)) for action in actions)
