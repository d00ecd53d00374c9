"""The tables on Sail: it computes what is to be written, and delta-rs commits it.

Of Sail's own writer: it knows no change feed and no `ALTER TABLE`, and takes rows into a replaced part of a table that
do not belong there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from fk_pipeline.tables.schemas import MERGED, Table
from fk_pipeline.tables.skipping import Condition
from fk_pipeline.tables.warehouse import CommitInfo, Warehouse, committing, empty, typed

PACKED_BYTES = 64 << 20
"""Into files of this size small ones are packed."""


class SailWarehouse(Warehouse):
    """Reads on Sail, commits by delta-rs."""

    knows_places = False
    names_keys = False
    reads_in_the_driver = False

    def append(self, frame: DataFrame, table: Table, info: CommitInfo) -> None:
        """Adds rows; creates the table if need be."""
        self._write(frame, table, info, mode="append")

    def replace(self, frame: DataFrame, table: Table, predicate: str, info: CommitInfo) -> None:
        """Replaces the rows that match a predicate by others that match it, in one commit."""
        if self.version(table.name) is None:
            self.append(frame, table, info)
        else:
            self._write(frame, table, info, mode="overwrite", predicate=predicate)

    def replace_all(self, frame: DataFrame, table: Table, info: CommitInfo) -> None:
        """Replaces rows and columns of a table in one commit; its history stays."""
        self._write(frame, table, info, mode="overwrite", schema_mode="overwrite")

    def delete(self, predicate: str, table: Table, info: CommitInfo) -> None:
        """Removes the rows that match a predicate, in one commit, or none where there are none."""
        with committing(table, info):
            DeltaTable(self.path(table.name)).delete(predicate, commit_properties=_said(info))

    def history(self, name: str) -> list[tuple[int, str]]:
        """The commits that the log of a table still has: version and user metadata, where there is some."""
        found = DeltaTable(self.path(name)).history()
        return [(int(one["version"]), one["userMetadata"]) for one in found if one.get("userMetadata")]

    def pack(self, name: str, retention_hours: float) -> None:
        """Packs the small files of a table, and removes those that versions of the last hours do not need."""
        table = DeltaTable(self.path(name))
        table.optimize.compact(target_size=PACKED_BYTES)
        table.vacuum(retention_hours=ceil(retention_hours), enforce_retention_duration=False, dry_run=False)

    def feed(self, table: Table, version: int) -> DataFrame:
        """What a commit changed, as the table's change feed has it."""
        stored = DeltaTable(self.path(table.name))
        found = pa.RecordBatchReader.from_stream(stored.load_cdf(starting_version=version, ending_version=version))
        columns = [*table.columns, ("_change_type", "STRING"), ("_commit_version", "BIGINT")]
        kinds = empty(self.session, [*columns, ("_commit_timestamp", "TIMESTAMP")]).schema
        rows = found.read_all().select(kinds.names).cast(to_arrow_schema(kinds.toNullable(), timezone="UTC"))
        return self.session.createDataFrame(rows, kinds)

    def _overwrite(self, frame: DataFrame, table: Table, info: CommitInfo) -> None:
        self._write(frame, table, info, mode="overwrite")

    def _add_columns(self, table: Table, added: Sequence[str], info: CommitInfo) -> None:  # noqa: ARG002 - by name
        """Writes the table anew: delta-rs puts columns at the end only."""
        self.replace_all(self.read(table), table, info)

    def remove(self, rows: DataFrame, table: Table, info: CommitInfo) -> None:
        """Removes the rows that have the values of others in all columns of these, in one commit."""
        on = " AND ".join(f"t.{_name(name)} = s.{_name(name)}" for name in rows.columns)
        with committing(table, info):
            self._merging(rows, table, info, on).when_matched_delete().execute()

    def _merge(
        self,
        source: DataFrame,
        table: Table,
        info: CommitInfo,
        where: Sequence[Condition],  # noqa: ARG002 - delta-rs finds the files by the bounds of the source
        delete_when: str | None,
    ) -> None:
        on = " AND ".join(f"t.{_name(key)} = s.{_name(key)}" for key in table.keys)
        values = {_name(name): f"s.{_name(name)}" for name in table.names}
        with committing(table, info):
            merge = self._merging(source, table, info, on)
            if delete_when:
                merge = merge.when_matched_delete(f"s.{_name(delete_when)}")
            merge = merge.when_matched_update(values)
            merge.when_not_matched_insert(values, f"NOT s.{_name(delete_when)}" if delete_when else None).execute()

    def _merging(self, source: DataFrame, table: Table, info: CommitInfo, on: str) -> Any:
        return DeltaTable(self.path(table.name)).merge(
            streamed(source), on, "s", "t", streamed_exec=False, commit_properties=_said(info)
        )

    def _write(self, frame: DataFrame, table: Table, info: CommitInfo, **how: Any) -> None:
        properties = {k: v for k, v in table.delta_properties.items() if k not in MERGED}
        with committing(table, info):
            write_deltalake(
                self.path(table.name),
                streamed(typed(frame, table)),
                partition_by=list(table.partition_by) or None,
                configuration=properties,
                commit_properties=_said(info),
                **how,
            )


def streamed(frame: DataFrame) -> pa.RecordBatchReader:
    """The rows of a frame as they are computed."""
    schema = to_arrow_schema(frame.schema.toNullable(), timezone="UTC")
    client: Any = frame.sparkSession.client
    connected: Any = frame
    plan = connected._plan.to_proto(client)  # noqa: SLF001 - `toArrow` would hold all of them

    def batches() -> Iterator[pa.RecordBatch]:
        for part in client.to_table_as_iterator(plan, {}):
            if isinstance(part, pa.Table):
                yield from part.cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _said(info: CommitInfo) -> CommitProperties:
    return CommitProperties(custom_metadata={"userMetadata": info.as_json()})


def _name(column: str) -> str:
    """A column for DataFusion."""
    return '"' + column.replace('"', '""') + '"'
