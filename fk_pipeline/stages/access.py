"""How one run of a stage gets at the tables: reads at fixed versions, look-ups by key, the choice of a way, commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.environment.storage import is_s3
from fk_pipeline.errors import BadRecordError
from fk_pipeline.identity import APPLIED, INSERTED, BatchId
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.sql import INTEGERS
from fk_pipeline.stages import materialised
from fk_pipeline.stages.layout import Layout
from fk_pipeline.stages.materialised import UNKNOWN, Materialised
from fk_pipeline.stages.strategy import Choice, choose
from fk_pipeline.store import schemas as s
from fk_pipeline.store.lease import lease
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import WHOLE, settings
from fk_pipeline.store.skipping import LISTED, Condition, Within, among
from fk_pipeline.store.warehouse import CommitInfo, Warehouse, clustered, empty

Counts = dict[int, dict[str, int]]
"""Per batch, numbers by name."""

LOOKED_UP = 200_000
"""Keys of which the driver finds the rows, where it looks at the tables itself."""

SENT_BYTES = 64_000_000
"""Memory for keys that are sent to where a table is read, so that only its rows with these keys go on from there."""


class StageTables:
    """The tables of a pipeline, as one run of a stage reads and commits them.

    `versions` are the Delta versions that it read and wrote, `choice` is how it goes about its work (None where there
    is nothing to do).
    """

    careful = False
    """Rows on which an expression of the pipeline file fails, and what cannot be read of a file, are quarantined."""

    def __init__(
        self,
        warehouse: Warehouse,
        ledger: Ledger,
        layout: Layout,
        spec: PipelineSpec,
        zone: LandingZone,
        stage: str,
        known: Sequence[BatchId],
        info: CommitInfo,
    ) -> None:
        self.warehouse, self.ledger, self.layout, self.spec, self.zone = warehouse, ledger, layout, spec, zone
        self.stage, self.known, self.batches, self.info = stage, known, info.batches, info
        self.versions: dict[str, int] = {}
        self.choice: Choice | None = None
        self.first_time = False
        """Nothing can have been committed for any of the batches."""
        self.vanished: list[int] = []
        """Batches of which a landing file is gone: what is stored of them stays."""
        self._frames: list[Materialised] = []
        self.pks = {name: name for name, _ in s.pk_columns(spec)}
        self.left_keys = {c.name: s.pk(c.name) for c in spec.left.key_columns}
        self.right_keys = {c.name: s.fk(c.name) for c in spec.right.key_columns}
        """By key column of a side, its name in the state tables."""
        self.subscription = [*self.pks, *self.right_keys.values(), s.HASH, s.OWNER, s.APPLIED_IN, s.INSTRUCTION]
        """What answers need of a subscription."""

    def _read(self, table: Table, where: Sequence[Condition] = ()) -> DataFrame:
        """A table at one version, the same however often the stage asks for it."""
        self._pin(table)
        return self.warehouse.read(table, self.versions.get(table.name), where)

    def _pin(self, table: Table) -> None:
        """Fixes the version of a table, where it exists."""
        if table.name not in self.versions and (version := self.warehouse.version(table.name)) is not None:
            self.versions[table.name] = version

    def _rows_of(
        self,
        table: Table,
        keys: Materialised,
        columns: Mapping[str, str],
        where: Sequence[Within] = (),
        needed: Sequence[str] = (),
    ) -> DataFrame:
        """The rows of a table with some keys; all rows where the keys are too many to be sent to it.

        Args:
            table: the table.
            keys: rows with the keys.
            columns: by key column of the table, its name in `keys`.
            where: what the rows meet besides.
            needed: the columns that are looked at besides its keys; all columns if there are none.
        """
        names = [*dict.fromkeys([*columns, *needed])] if needed else table.names
        found = self._looked_up(table, keys, columns, where, names)
        return found if found is not None else self._sought(table, keys, columns, where).select(*map(quote, names))

    def _sought(
        self, table: Table, keys: Materialised, columns: Mapping[str, str], where: Sequence[Within]
    ) -> DataFrame:
        """What `_rows_of` returns, found by Spark."""
        if keys.at_most > sendable(table, columns):
            return self._read(table, where)
        wanted = F.broadcast(keys_as(keys.frame, columns))
        if keys.local is None:
            return self._read(table, where).join(wanted, list(columns), "left_semi")
        rows = self._read(table, [*where, *self._among(table, keys.local, columns)])
        return F.broadcast(rows.join(wanted, list(columns), "left_semi"))

    def _looked_up(
        self,
        table: Table,
        keys: Materialised,
        columns: Mapping[str, str],
        where: Sequence[Within],
        names: Sequence[str],
    ) -> DataFrame | None:
        """What `_rows_of` returns, found in the driver; None where Spark is to find it."""
        self._pin(table)
        version = self.versions.get(table.name)
        if version is None or keys.at_most > LOOKED_UP or not self.warehouse.reads_in_the_driver:
            return None
        wanted = keys.values([*columns.values()])
        if wanted is None:
            return None
        named = {column: wanted[name] for column, name in columns.items()}
        rows = self.warehouse.look_up(table, version, named, names, where)
        if rows is None:
            return None
        session, kinds = self.warehouse.session, dict(table.columns)  # from no rows Connect infers no types
        frame = session.createDataFrame(rows) if len(rows) else empty(session, [(name, kinds[name]) for name in names])
        if len(columns) > 1:
            frame = frame.join(keys_as(keys.frame, columns), list(columns), "left_semi")
        return F.broadcast(frame) if len(rows) <= materialised.SMALL else frame

    def _among(self, table: Table, keys: pa.Table, columns: Mapping[str, str]) -> list[Condition]:
        """Conditions for the rows of a table with some keys; none that would name values of a sensitive column."""
        named = {column: name for column, name in columns.items() if column not in table.sensitive}
        return among(keys, named, self.warehouse.widths(table, named))

    def _choose(self, changes: int, table: Table) -> int:
        """Chooses how the stage goes about so many changed rows of a table.

        Returns:
            The number of rows up to which they are looked up by their keys; below 0 when none are.
        """
        rows, known = self.warehouse.rows([table]), None if changes >= UNKNOWN else changes
        stage = self.spec.definition.stage(self.stage)
        index = self.layout.table(stage.index)
        indexed = index is not None and bool(self.warehouse.rows([index]))
        wanted = self.spec.settings.strategy_of(self.stage)
        nameable = self.warehouse.nameable(table)
        self.choice = choose(stage, wanted, known, rows, indexed=indexed, careful=self.careful, nameable=nameable)
        if self.choice.full:
            return -1 if rows else materialised.SMALL
        return sendable(table, table.keys)

    def release(self) -> None:
        """Frees what is cached."""
        for kept in self._frames:
            kept.release()
        self._frames = []

    def _materialise(self, frame: DataFrame, at_most: int | None) -> Materialised:
        kept = Materialised(frame, at_most)
        self._frames.append(kept)
        return kept

    def _announced(self, stage: str) -> int:
        """At most so many rows of a state table were changed on behalf of the batches, if nobody died at it."""
        states = [self.ledger.state(stage, b) for b in self.known]
        if any(state.attempts != state.successes for state in states):
            return UNKNOWN
        return sum(state.totals.get(name, 0) for state in states for name in (INSERTED, APPLIED))

    def _subscribers_of(self, rights: Materialised, columns: Mapping[str, str]) -> tuple[DataFrame, int]:
        """The rows of an indexed subscription store that refer to some right rows, or more; and a bound of them.

        Args:
            rights: the right keys.
            columns: by column of the foreign key, its name in `rights`.
        """
        store, index = self.layout.subscription_store, self.layout.subscribers
        pairs = self._materialise(self._rows_of(index, rights, columns), None)
        if pairs.local is None:
            return self._rows_of(store, rights, columns, needed=self.subscription), UNKNOWN
        return self._rows_of(store, pairs, self.pks, needed=self.subscription), len(pairs.local)

    def _append(self, frame: DataFrame, table: Table, rows: int, local: pa.Table | None = None) -> None:
        """Adds rows to a table: so many at most, or those that are in the driver already."""
        here = self.warehouse.appends_locally(table)
        if here and local is None and rows <= materialised.SMALL:
            local = self._materialise(frame, rows).local
        if here and local is not None:
            self.warehouse.append_local(local, table, self.info)
        else:
            self.warehouse.append(frame, table, self.info)
        self._committed(table)

    def _replace_batches(
        self, frame: DataFrame, table: Table, rows: int, predicate: str = "", local: pa.Table | None = None
    ) -> None:
        """Replaces the batches in a log; a plain append where nothing of them can be there yet."""
        if rows <= materialised.SMALL:
            frame = frame.coalesce(1)
        if self.first_time:
            if rows:
                self._append(frame, table, rows, local)
        else:
            where = self.batches.predicate(s.BATCH) + predicate
            if self.vanished:
                where += f" AND {s.BATCH} NOT IN ({', '.join(map(str, self.vanished))})"
            self.warehouse.replace(frame, table, where, self.info)
            self._committed(table)

    def _merge(
        self,
        rows: Materialised,
        number: int,
        table: Table,
        delete_when: str | None = None,
        with_keys: DataFrame | None = None,
        once: bool = True,
    ) -> None:
        """Puts rows in place of those with their keys. Now that their number is known, the way is chosen by it.

        Args:
            rows: the rows.
            number: how many there are at most.
            table: the table.
            delete_when: SQL condition on them: the row is removed instead.
            with_keys: frame with their keys, if that is less to compute.
            once: there is one row per key; else any of them is taken.
        """
        sent = self._choose(number, table)
        if self.choice is not None and self.choice.full:
            kept = self._read_for_rewrite(rows, number, table, with_keys)
            frame = rows.frame if once else rows.frame.dropDuplicates([*table.keys])
            self.warehouse.rewrite(frame, kept, table, self.info, delete_when=delete_when)
            self._committed(table)
            return
        where: Sequence[Condition] = ()
        if rows.local is None and number <= min(sent, materialised.SMALL):
            rows = self._materialise(rows.frame, number)
        keys = rows.local
        if keys is not None:
            where = self._among(table, keys, {key: key for key in table.keys})
        elif number <= self.warehouse.nameable(table):
            keys = (rows.frame if with_keys is None else with_keys).select(*map(quote, table.keys)).toArrow()
            keys = keys if once else keys.group_by([*table.keys]).aggregate([])
        many = keys is not None and len(keys) > LISTED and rows.held
        whole = {name: value for name, value in WHOLE.items() if many and name not in self.spec.settings.spark}
        with settings(self.warehouse.session, whole, optional=True):
            self.warehouse.merge(rows.frame, table, self.info, where, keys=keys, delete_when=delete_when, once=once)
        self._committed(table)

    def _read_for_rewrite(
        self, rows: Materialised, number: int, table: Table, with_keys: DataFrame | None
    ) -> DataFrame | None:
        """The rows of a table that stay when others are put in place, in their order if these can be sent to them.

        None where no row stays.
        """
        stored = self.warehouse.rows([table])
        keys = (rows.frame if with_keys is None else with_keys).select(*map(quote, table.keys))
        if not stored:
            return None
        if number >= stored and self._read(table).join(keys, list(table.keys), "left_anti").isEmpty():
            return None
        if number <= sendable(table, table.keys):
            return self._read(table).join(F.broadcast(keys), list(table.keys), "left_anti")
        stays = self._read(table).join(keys, list(table.keys), "left_anti")
        return clustered(stays, table.keys, stored)

    def _truncated(self, log_stage: str, log: DataFrame, key: str) -> bool:
        """There may be truncates in a changelog. Only a run that nobody saw end makes it worth a look."""
        states = [self.ledger.state(log_stage, batch) for batch in self.ledger.batches]
        if any(state.totals.get("truncates") for state in states):
            return True
        if all(state.attempts == state.successes for state in states):
            return False
        return not log.where(F.col(quote(key)).isNull()).isEmpty()

    def _quarantine(self, bad: DataFrame | None, number: int, origin: str) -> None:
        """Stores the bad records of the batches in place of those of an earlier run.

        Args:
            bad: `_fk_batch`, `_fk_file`, `_fk_line`, `_fk_reason`, `_fk_raw`; not looked at when there are none.
            number: how many there are.
            origin: the side that they came in on, or `join`.
        """
        table, of_origin = self.layout.quarantine, f" AND {s.SIDE} = '{origin}'"
        if bad is not None and number:
            if self.spec.on_bad_record == "fail":
                first = bad.orderBy(s.FILE, s.LINE).first()
                assert first is not None
                raise BadRecordError(
                    f"{number} record(s) cannot be used; the first: {first[s.REASON]}",
                    where=f"{first[s.FILE]}:{first[s.LINE]}" if first[s.FILE] else f"batch {first[s.BATCH]}",
                    why="on_bad_record is 'fail': nothing of the batch was applied",
                    fix="correct the file, or set on_bad_record: quarantine",
                )
            with self._alone_in_quarantine():
                self._replace_batches(bad.withColumn(s.SIDE, F.lit(str(origin))), table, number, of_origin)
        elif not self.first_time and self.warehouse.version(table.name) is not None:
            here = self.warehouse.read(table).where(self.batches.predicate(s.BATCH) + of_origin)
            if not here.isEmpty():
                with self._alone_in_quarantine():
                    self._replace_batches(here.limit(0), table, 0, of_origin)

    @contextmanager
    def _alone_in_quarantine(self) -> Iterator[None]:
        """Three stages write this table. In S3, Spark commits without a condition: never two at once."""
        if not is_s3(self.warehouse.home):
            yield
            return
        with lease(self.warehouse.home, s.QUARANTINE):
            yield

    def _committed(self, table: Table) -> None:
        version = self.warehouse.version(table.name)
        if version is not None:
            self.versions[f"{table.name} written"] = version


def keys_as(keys: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Keys under the names that they have in a table; `columns` says, per column of it, the name in `keys`."""
    return keys.select(*[F.col(quote(name)).alias(column) for column, name in columns.items()])


def sendable(table: Table, columns: Iterable[str]) -> int:
    """How many keys of a table are at most sent to it: a number takes 16 bytes in memory, other values about 200."""
    kinds = dict(table.columns)
    width = sum(16 if kinds[column].upper() in INTEGERS else 200 for column in columns)
    return SENT_BYTES // width
