"""One run of a stage that reads landing files: from the files to the changelog of an input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import changelog, evaluate, key_of_record, mark_last, mark_only, with_records
from fk_pipeline.blocks.drift import DRIFT, Watch
from fk_pipeline.blocks.holes import packed
from fk_pipeline.cdc.names import linked, real, strange
from fk_pipeline.cdc.reader import format_of, line_numbers, read_records, shape_of
from fk_pipeline.cdc.records import BAD, EVENT, IGNORED, SNAPSHOT, TRUNCATE
from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.cdc.unreadable import LINES, Looked, look_into, misunderstood, needs_look, remove_copies
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.effects import Effect, Reject, ReplaceBatches, Report
from fk_pipeline.engine import landing_refusals as refusals
from fk_pipeline.engine.filling import filled_rows
from fk_pipeline.engine.landed_counts import (
    RecordGroup,
    RecordGroups,
    any_drifted,
    by_lacking,
    count_failing,
    count_records,
    written,
)
from fk_pipeline.engine.landed_rows import LandedRows
from fk_pipeline.engine.stage_reader import StageReader
from fk_pipeline.errors import LandingError, StageError
from fk_pipeline.identity import APPLIED, EXPIRED, INSERTED, LATE, SILENT, BatchId, LandedFile, Side, ranges_sql
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.places import landing_path, relative
from fk_pipeline.spec.sql import text
from fk_pipeline.stage_input import Counts, RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger.fields import NOT_COMPARED
from fk_pipeline.store.sizes import UNKNOWN, Sizes

_LOOKED_AT = 100
"""The number of rows that are looked at for the names of their fields."""

_COMPRESSED = ("parquet", "delta")
"""Formats in which a megabyte may have more rows than the driver takes."""

Files = Mapping[int, Sequence[LandedFile]]
"""Per batch, its files in the order in which they are read."""


class Landing:
    """Reads the landing files of the batches of one run.

    Attributes:
        retained: batches whose stored rows stay, because one of their files is gone or they were folded.
    """

    def __init__(self, read: StageReader, zone: LandingZone, side: Side) -> None:
        """Prepares to read the landing files of a side.

        Args:
            read: reads the changelog.
            zone: lists the landing folder.
            side: the side.
        """
        self.read, self.zone, self.side = read, zone, side
        self.spec, self.ledger, self.stage = read.spec, read.history.ledger, read.history.stage
        self.declared, self.log = read.spec.side(side), read.spec.definition.input(side).log
        self.counts: Counts = {int(b): {"read": 0, "rows": 0} for b in read.history.known}
        self.retained: list[int] = []
        self._files: Files = {}
        self._looked: dict[str, Looked] = {}
        self._notes: list[str] = []
        self._warnings: list[str] = []

    def keep_stored(self) -> list[int]:
        """Finds the batches whose stored rows stay, excludes them from reading, and returns them.

        A vanished file changes nothing: the stored partition of its batch stays and serves backfills. So does the
        partition of a folded batch if only the reader has changed: a row that it would lose now may have superseded
        rows that are gone.

        Raises:
            LandingError: a file that was not read before is gone.
        """
        for batch in map(int, self.read.history.known):
            if self.ledger.folds.keeps_stored(self.stage, batch):
                self._keep(batch, "batch {batch} was folded; the stored partition was kept")
        retained = {*self.retained}
        batch_of = {
            f.path: int(b)
            for b in self.read.history.known
            if b not in retained
            for f in self.ledger.files.of(b, self.side)
        }
        if not batch_of:
            return self.retained
        delta = self.declared.format == "delta"
        listed = [] if delta else self.zone.list(landing_path(self.spec, self.side))
        present = {relative(self.spec, file.path) for file in listed}
        for path, batch in sorted(batch_of.items()):
            was_read = self.ledger.state(self.stage, batch).was_read
            # Versions of a table that were never read are read now: Spark reports which are gone.
            if path in present or (delta and (not was_read or are_kept(self.spec.location(path)))):
                continue
            if not was_read:
                instead = "; or, if its rows are not wanted, put an empty file in its place"
                instead = "" if self.declared.is_snapshot else instead  # empty, that would be a table without rows
                raise LandingError(
                    "the landing file is gone, and its batch was not read with it before",
                    where=path,
                    why=f"batch {batch} cannot be read without it; nothing was changed",
                    fix=f"restore the file and run again{instead}",
                )
            if batch not in self.retained:
                what = f"versions {path} are not kept any more" if delta else f"{path} is gone"
                self._keep(batch, f"batch {{batch}}: {what}; the stored partition was kept")
        return self.retained

    def effects(self) -> list[Effect]:
        """Returns the effects of the batches on the changelog and the quarantine; called after `keep_stored`.

        Raises:
            UnreadableFileError: a snapshot cannot be read to its end.
        """
        read = self.read
        files = {int(b): self.ledger.files.of(b, self.side) for b in read.history.known if b not in self.retained}
        self._files = {batch: group for batch, group in files.items() if group}
        if not self._files:
            effects: list[Effect] = []
            if not read.history.never_any and len(self.retained) < len(read.history.known):
                nothing = read.frames.planned(read.read(self.log).limit(0), 0)
                effects = [ReplaceBatches(self.log, nothing, retained=self.retained), Reject(None, 0, self.side)]
            return [*effects, Report(self.counts, self._notes)]
        leaves = bool(self._strange())
        if (
            read.evaluator.isolating or leaves or not read.history.first_time
        ):  # a run that was killed may have left some
            remove_copies(self._readable)
        read.frames.on_release(lambda: remove_copies(self._readable) if self._looked or leaves else None)
        self._look()
        return self._bring()

    @property
    def _readable(self) -> str:
        """The folder for links to files, and for the complete lines of truncated files, while the stage reads them."""
        return f"{self.read.warehouse.home}/readable/{self.stage}"

    def _bring(self) -> list[Effect]:
        """Returns the effects that replace the stored rows of the batches with the rows of the files."""
        landed = self._counted()
        counts = self.counts
        refusals.refuse_truncates(self.spec, self.side, landed, counts)
        refusals.refuse_cut_off(self.spec, self.side, landed, counts)
        self._notes += refusals.about_other_tables(self.spec, self.side, counts)
        self._notes += refusals.about_rounded(self.spec, self.side, counts)
        self._notes += refusals.about_keys_that_may_change(self.spec, self.side, counts)
        self._warnings += self._second_snapshots()
        rows, failing = self._rows(landed)
        bad, rejected = sum(c.get("quarantined", 0) for c in counts.values()), None
        if bad:
            records = landed.records.where(f"kind = '{BAD}'")
            rejected = self._bad(landed.lines, records if failing is None else records.unionByName(failing))
        return [
            Reject(rejected, bad, self.side),
            ReplaceBatches(self.log, rows, retained=self.retained),
            Report(counts, self._notes, self._warnings),
        ]

    def _rows(self, landed: LandedRows) -> tuple[RowSet, DataFrame | None]:
        """Returns the rows of the changelog, and the records that fail once their unavailable values are filled."""
        counts, folded = self.counts, self._folded()
        has_holes, failing = format_of(self.declared).has_holes, None
        holes = has_holes and any(c.get("holes") for c in counts.values())
        if landed.log is not None and not holes and not folded:
            return landed.log.bounded(sum(c["rows"] for c in counts.values())), None
        records = landed.records
        log = changelog(records, self.spec, self.side, self.read.generations)
        if holes:
            filled = filled_rows(self.read, self.side, log, records, counts, self.retained)
            log = filled.rows
            for batch, number in filled.unresolved.items():
                counts[batch]["unresolved"] = number
            if any(filled.failing.values()):
                count_failing(counts, filled.failing)
                failing = self._failed_once_filled(records, filled.failed)
        log = packed(log) if has_holes else log
        rows = self._as_folded(log, folded) if folded else log
        return self.read.frames.planned(rows, sum(c["rows"] for c in counts.values())), failing

    @property
    def _precedes(self) -> str | None:
        """SQL (BOOLEAN) over a record: `Format.precedes`; None also where a column decides the order."""
        return None if self.declared.sequence_by else getattr(format_of(self.declared), "precedes", None)

    def _second_snapshots(self) -> list[str]:
        """Returns warnings about snapshots that have come after changes and lose against them."""
        if self._precedes is None:
            return []
        known = {int(b): self.ledger.state(self.stage, b).counts for b in self.ledger.batches}
        return refusals.about_second_snapshots(self.side, {**known, **self.counts}, self.counts)

    def _failed_once_filled(self, records: DataFrame, failed: DataFrame) -> DataFrame:
        """Returns the records whose rows are `Filled.failed`, with the reason."""
        keys = {name: f"_fk_of_{i}" for i, name in enumerate(key_of_record(self.declared))}
        failed_keys = failed.withColumnsRenamed(keys | {s.BATCH: "_fk_of_batch"})
        same = [f"{sql} = {keys[name]}" for name, sql in key_of_record(self.declared).items()]
        matches = records.where(f"last AND kind = '{EVENT}'").join(
            F.broadcast(failed_keys), F.expr(" AND ".join(["batch = _fk_of_batch", *same]))
        )
        return matches.withColumn("reason", F.col("_fk_failed")).select(*map(quote, records.columns))

    def _bad(self, lines: DataFrame, records: DataFrame) -> DataFrame:
        """Returns bad records with the columns of the quarantine, except the side."""
        line = "NULL" if self.declared.format == "delta" else "line"
        return line_numbers(lines, records).selectExpr(
            f"batch AS {s.BATCH}",
            f"file AS {s.FILE}",
            f"CAST({line} AS BIGINT) AS {s.LINE}",
            f"reason AS {s.REASON}",
            f"COALESCE(value, '') AS {s.RAW}",
        )

    def _counted(self) -> LandedRows:
        """Returns the records, with a mark on the last one of each key, after they were counted."""
        read, side, files, counts = self.read, self.side, self._files, self.counts
        unreadable = {
            path: finding.unreadable for path, finding in self._looked.items() if finding.unreadable is not None
        }
        paths = [file.path for group in files.values() for file in group]
        texts = {path: read_as for path in paths if (read_as := self.ledger.corrections.texts(side, path))}
        links = linked(self._strange(), self._readable)
        lines_read = read_records(read.warehouse.session, files, self.spec, side, unreadable, texts, links)
        if lines_read.corrected is not None:
            for row in lines_read.corrected.groupBy("batch").count().collect():
                counts[row["batch"]]["corrected"] = row["count"]
        watch = Watch(self.spec, self.ledger, self.stage)
        of_files = [file for group in files.values() for file in group]
        many = are_many(self.spec, side, of_files, read.limits.sizes, self._looked)
        if many:
            watch.learn(lines_read.parsed)
        parsed = watch.marked(lines_read.parsed)
        records, by_batch = self._records(parsed), None
        if many and not unreadable:
            if self.declared.format in _COMPRESSED:  # reads the columns that it counts, and no other
                surveyed = self._records(parsed.withColumn("value", F.lit(None).cast("string")))
            else:  # to parse a line costs more than to cache its record (ADR 0059)
                records = surveyed = read.frames.cached(records, UNKNOWN).frame
            by_batch = self._survey(surveyed)
        if by_batch is not None:
            once = read.frames.planned(mark_only(records), UNKNOWN)
            landed = LandedRows(lines_read.lines, once, with_rows=False)
        else:
            last = mark_last(records, self.spec, side)
            computed = read.frames.cached(last, UNKNOWN) if many else read.frames.cached(self._with_rows(last), None)
            landed = LandedRows(lines_read.lines, computed, with_rows=not many)
            counted = landed.counts("batch", *RecordGroup._fields)
            by_batch = {batch: {RecordGroup(*by): n for by, n in groups.items()} for batch, groups in counted.items()}
        if None in by_batch:
            raise StageError("lines of a landing file could not be assigned to a batch", where=str(read.batches))
        for batch, groups in by_batch.items():
            count_records(counts[batch], groups)
        drifts = any(map(any_drifted, by_batch.values()))
        differences = watch.differences(_drifted(landed.records) if drifts else None)
        rows = {batch: written(groups) for batch, groups in by_batch.items()}
        lacks = {batch: by_lacking(groups) for batch, groups in by_batch.items()}
        lost = watch.lost(lacks, differences, rows, lambda *of: _names_in(lines_read.parsed, *of))
        self._notes += watch.report(differences, rows, {batch: counts[batch] for batch in by_batch})
        self._warnings += [*watch.warnings(), *lost]
        return landed

    def _with_rows(self, records: DataFrame) -> DataFrame:
        """Returns records with their rows of the changelog, as it stores them if no value is unavailable."""
        rows = with_records(records, self.spec, self.side, self.read.generations)
        return packed(rows) if format_of(self.declared).has_holes else rows

    def _folded(self) -> list[BatchId]:
        """Returns the batches of the run that stay folded."""
        return [batch for batch in self.read.history.known if self.ledger.folds.stays_folded(self.stage, batch)]

    def _as_folded(self, log: DataFrame, folded: Sequence[BatchId]) -> DataFrame:
        """Returns the rows of a changelog without those that folding removed: a folded batch stays folded."""
        keys, old = self.declared.stored_key, ranges_sql(s.BATCH, folded)
        stored = self.read.read(self.log).where(old).select(s.BATCH, *map(quote, keys))
        remaining = log.where(old).join(stored, [s.BATCH, *keys], "left_semi")
        truncates = f"{quote(keys[0])} IS NULL"
        return remaining.select(*map(quote, log.columns)).unionByName(log.where(f"NOT {old} OR {truncates}"))

    def _strange(self) -> list[str]:
        """Returns the files that Spark reads through links; none for a Delta table, which has versions instead."""
        if self.declared.format == "delta":
            return []
        return strange(real(self.spec.location(file.path)) for group in self._files.values() for file in group)

    def _look(self) -> None:
        """Examines files that may have a line that is too long; all files after Spark failed on one.

        Raises:
            UnreadableFileError: an unreadable file is a snapshot; the rows that are not read would be deleted.
        """
        limit = self.spec.settings.max_line_bytes
        for file in (file for group in self._files.values() for file in group):
            path = real(self.spec.location(file.path))
            shape = shape_of(path, self.declared)
            looks = shape is not None and (needs_look(path, file.size, limit) or misunderstood(path, shape) is not None)
            if not looks and not self.read.evaluator.isolating:
                continue
            looked = look_into(path, self._readable, limit=limit if shape else None, shape=shape or LINES)
            self._looked[path] = looked
            if looked.unreadable is not None and looked.unreadable.loses and self.declared.is_snapshot:
                raise refusals.unreadable_snapshot(looked.unreadable, self.spec.location(file.path))

    def _records(self, parsed: DataFrame) -> DataFrame:
        """Returns records with the expressions of the pipeline evaluated, and with `why` they are ignored."""
        records = evaluate(parsed, self.spec, self.side, self.read.evaluator)
        holed = F.col("holes").isNotNull() if format_of(self.declared).has_holes else F.lit(False)
        return records.withColumns(
            {
                "why": F.when(F.col("kind").isin(IGNORED, TRUNCATE), F.col("reason")),
                "holed": holed,
                "drifted": F.col(DRIFT).isNotNull(),
                "rounded": F.col("rounded") if "rounded" in parsed.columns else F.lit(None).cast("string"),
                "precedes": F.lit(False) if self._precedes is None else F.expr(self._precedes),
                "blind": F.col("blind") if "blind" in parsed.columns else F.lit(None).cast("boolean"),
                "derived": F.col("derived") if "derived" in records.columns else F.lit(None).cast("boolean"),
            }
        )

    def _survey(self, records: DataFrame) -> dict[int, RecordGroups] | None:
        """Returns the groups of records per batch if keys are unique, and no row need be sorted; otherwise None."""
        reads = format_of(self.declared)
        groups = records.groupBy("batch", *(name for name in RecordGroup._fields if name != "last")).count().collect()
        if any(row["holed"] or (row["kind"] == TRUNCATE and row["why"] != SNAPSHOT) for row in groups):
            return None
        if not self.declared.keyed_by_place and not all(
            len(group) == 1 and reads.has_keys_once(real(self.spec.location(group[0].path)), self.declared)
            for group in self._files.values()
        ):
            # Two keys with the same hash count as one duplicate key, which only costs time.
            keys = map(F.expr, key_of_record(self.declared).values())
            events = records.where(F.col("kind") == EVENT).select(F.xxhash64("batch", *keys).alias("key"))
            if not events.groupBy("key").count().where("count > 1").isEmpty():
                return None
        by_batch: dict[int, dict[RecordGroup, int]] = {}
        for row in groups:
            last = True if row["kind"] in (EVENT, TRUNCATE) else None
            of = RecordGroup._make(last if name == "last" else row[name] for name in RecordGroup._fields)
            by_batch.setdefault(row["batch"], {})[of] = row["count"]
        return {**by_batch}

    def _keep(self, batch: int, note: str) -> None:
        self.retained.append(batch)
        self.counts[batch] = dict(self.ledger.state(self.stage, batch).counts)
        self._notes.append(note.replace("{batch}", str(batch)))


def as_stored(read: StageReader, side: Side) -> list[Effect]:
    """Returns the effects of a stage that reads landing files if only its state is rebuilt: its changelog stays."""
    ledger, stage = read.history.ledger, read.history.stage
    outcomes = (INSERTED, APPLIED, SILENT, LATE, EXPIRED)
    looked = ledger.fields.looked_since(side)
    counts: Counts = {}
    for batch in map(int, read.history.known):
        state = ledger.state(stage, batch)
        counts[batch] = {"rows": 0} | {k: n for k, n in state.counts.items() if k not in outcomes}
        if looked is None or (state.succeeded or 0) < looked:  # the rows are not examined now either
            counts[batch][NOT_COMPARED] = state.counts.get("events", 0)
    return [Report(counts)]


def are_many(
    spec: PipelineSpec, side: Side, files: Iterable[LandedFile], sizes: Sizes, looked: Mapping[str, Looked]
) -> bool:
    """Returns whether landing files have more rows than are brought to the driver, by their size or their text size.

    Args:
        spec: the pipeline.
        side: the side of the files.
        files: the files.
        sizes: the limits.
        looked: per path, the findings about an examined file.
    """
    most = sizes.compressed_bytes if spec.side(side).format in _COMPRESSED else sizes.small_bytes
    texts = {path: finding.size for path, finding in looked.items()}
    return sum(max(file.size, texts.get(real(spec.location(file.path)), 0)) for file in files) > most


def _drifted(records: DataFrame) -> DataFrame:
    """Returns the events that write a row whose fields differ from the schema, as `Watch.differences` takes them."""
    return records.where(f"drifted AND kind = '{EVENT}' AND NOT deleted").select("batch", DRIFT)


def _names_in(parsed: DataFrame, batch: int, column: str, has_it: bool) -> set[str]:
    """Returns the names of fields in some rows of a batch that have a column, or lack it."""
    has = "" if has_it else "NOT "
    rows = parsed.where(f"batch = {batch} AND {has}ARRAY_CONTAINS(fields, {text(column)})").select("fields")
    return {name for row in rows.limit(_LOOKED_AT).collect() for name in row["fields"]}
