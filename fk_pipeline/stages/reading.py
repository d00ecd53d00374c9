"""What the two changelog stages do in one run: from landing files to the changelog of a side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.cdc.names import linked, real, strange
from fk_pipeline.cdc.reader import format_of, line_numbers, read_records, shape_of
from fk_pipeline.cdc.records import BAD, EVENT, IGNORED, OTHER_TABLE, SNAPSHOT, TRUNCATE
from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.cdc.unreadable import LINES, Looked, forget, look_into, needs_look
from fk_pipeline.errors import LandingError, StageError, UnreadableFileError, UnsupportedEventError
from fk_pipeline.failures import is_from_spark
from fk_pipeline.identity import APPLIED, INSERTED, LATE, SILENT, Side, ranges_sql
from fk_pipeline.spec import quote
from fk_pipeline.stages.access import Counts, StageTables
from fk_pipeline.stages.changelog import anew, changelog, evaluate, mark_last, mark_only
from fk_pipeline.stages.drift import DRIFT, Watch
from fk_pipeline.stages.holes import AT, changed, filled, filled_within, packed, stored_at, unpacked
from fk_pipeline.stages.materialised import UNKNOWN, Materialised
from fk_pipeline.store import schemas as s
from fk_pipeline.store.fields import NOT_COMPARED
from fk_pipeline.store.ledger import LandedFile
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import FEW_BYTES, SMALL_BYTES

_COUNTED_BY = ("kind", "why", "last", "deleted", "holed", "drifted", "rounded")
"""What records of a batch are counted by."""

TOO_LONG_FIX = "write its rows on lines of their own, or raise settings.max_line_bytes in the pipeline file"

ROUNDED = "rounded"
"""Count of rows with a value that is the nearest that its type has; with `: COLUMN`, of one column."""

_COMPRESSED = ("parquet", "delta")
"""Formats of which a megabyte may be more rows than the driver takes."""


def _count_records(counts: dict[str, int], groups: dict[tuple[Any, ...], int]) -> None:
    """Adds up the records of a batch: what was read is events, ignored, quarantined and truncates.

    The truncate that stands before a snapshot was not read.
    """
    names = {BAD: "quarantined", EVENT: "events", TRUNCATE: "truncates"}
    for (kind, why, last, deleted, holed, _, rounded), number in groups.items():
        name = f"ignored: {why}" if kind == IGNORED else names[kind]
        added = {"read": number, name: number}
        if kind in (EVENT, TRUNCATE):
            added |= {"rows": number} if last else {"superseded": number}
        if kind == EVENT and last and deleted:
            added["tombstones"] = number
        if last and holed:
            added["holes"] = number
        if kind == EVENT and not deleted and rounded:
            added |= {ROUNDED: number} | {f"{ROUNDED}: {column}": number for column in rounded.split(",")}
        if why == SNAPSHOT:
            added = {"truncates": number, "rows" if last else "superseded": number, "snapshots": number}
        for key, value in added.items():
            counts[key] = counts.get(key, 0) + value


class ChangelogWork(StageTables):
    """Brings what landed into a changelog; `StageWork` is made of it."""

    never_any: bool
    """No run of the stage for any of the batches can have stored a row."""
    generations: dict[int, int]
    """Per batch the generation of its partition."""
    looked: dict[str, Looked]
    """What a look into files has found, by path."""
    notes: list[str]
    """What a person should know."""
    warnings: list[str]
    """What is probably wrong in the pipeline file."""

    @property
    def _readable(self) -> str:
        """Where links to files, and the whole lines of files that break off, lie while the stage reads them."""
        return f"{self.warehouse.home}/readable/{self.stage}"

    def _changelog(self, side: Side) -> Counts:
        if not self.ledger.reads_landing:
            outcomes = (INSERTED, APPLIED, SILENT, LATE)
            looked = self.ledger.fields.looked_since(side)
            counts: Counts = {}
            for batch in map(int, self.known):
                state = self.ledger.state(self.stage, batch)
                counts[batch] = {"rows": 0} | {k: n for k, n in state.counts.items() if k not in outcomes}
                if looked is None or (state.succeeded or 0) < looked:  # nobody looks at the rows now either
                    counts[batch][NOT_COMPARED] = state.counts.get("events", 0)
            return counts
        counts = {int(b): {"read": 0, "rows": 0} for b in self.known}
        table = self.layout.changelog(side)
        self._keep_vanished(side, counts)
        files = {int(b): self.ledger.files_of(b, side) for b in self.known if b not in self.vanished}
        files = {batch: group for batch, group in files.items() if group}
        if not files:
            if not self.never_any and len(self.vanished) < len(self.known):
                self._replace_batches(self.warehouse.read(table).limit(0), table, 0)
                self._quarantine(None, 0, side)
                self._reopen(side)
            return counts
        leaves = bool(self._strange(files, side))
        if self.careful or leaves or not self.first_time:  # a run that was killed may have left some
            forget(self._readable)
        try:
            self._look(files, side)
            self._bring(files, side, counts)
        except Exception as error:
            self._refuse_gone_versions(files, side, error)
            raise
        finally:
            if self.looked or leaves:
                forget(self._readable)
        return counts

    def _bring(self, files: Mapping[int, Sequence[LandedFile]], side: Side, counts: Counts) -> None:
        """Puts what is in the files into the changelog, in place of what the batches brought before."""
        side_spec, table = self.spec.side(side), self.layout.changelog(side)
        lines, records = self._counted(files, side, counts)
        self._refuse_truncates(records, counts, side)
        self._refuse_cut_off(records, counts, side)
        self._note_other_tables(counts, side)
        self._note_rounded(counts, side)
        bad = line_numbers(lines, records.where(F.col("kind") == BAD)).select(
            F.col("batch").alias(s.BATCH),
            F.col("file").alias(s.FILE),
            (F.lit(None) if side_spec.format == "delta" else F.col("line")).cast("bigint").alias(s.LINE),
            F.col("reason").alias(s.REASON),
            F.coalesce("value", F.lit("")).alias(s.RAW),
        )
        self._quarantine(bad, sum(c.get("quarantined", 0) for c in counts.values()), side)
        log = changelog(records, self.spec, side, self.generations)
        if format_of(side_spec).has_holes:
            if sum(c.get("holes", 0) for c in counts.values()):
                log = self._filled(log, records, side, counts)
            log = packed(log)
        log = self._as_folded(log, table, side)
        self._replace_batches(log, table, sum(c["rows"] for c in counts.values()))
        self.versions.pop(table.name, None)  # what was just written counts
        self._reopen(side)

    def _counted(
        self, files: Mapping[int, Sequence[LandedFile]], side: Side, counts: Counts
    ) -> tuple[DataFrame, DataFrame]:
        """The lines of the files with their place, and the records, of which the last of each key is marked."""
        unreadable = {path: found.unreadable for path, found in self.looked.items() if found.unreadable is not None}
        paths = [file.path for group in files.values() for file in group]
        texts = {path: read_as for path in paths if (read_as := self.ledger.corrections.texts(side, path))}
        links = linked(self._strange(files, side), self._readable)
        read = read_records(self.warehouse.session, files, self.spec, side, unreadable, texts, links)
        if read.corrected is not None:
            for row in read.corrected.groupBy("batch").count().collect():
                counts[row["batch"]]["corrected"] = row["count"]
        watch = Watch(self.spec, self.ledger, self.stage)
        many = self._are_many([file for group in files.values() for file in group], side)
        if many:
            watch.learn(read.parsed)
        parsed = watch.marked(read.parsed)
        records = self._records(parsed, side)
        found = self._survey(parsed, files, side) if many and not unreadable else None
        if found is not None:
            records = mark_only(records)
        else:
            kept = self._materialise(mark_last(records, self.spec, side), UNKNOWN if many else None)
            records, found = kept.frame, kept.counts("batch", *_COUNTED_BY)
        if None in found:
            raise StageError("lines of a landing file could not be assigned to a batch", where=str(self.batches))
        for batch, groups in found.items():
            _count_records(counts[batch], groups)
        drifts = any(drifted for groups in found.values() for *_, drifted, _ in groups)
        drifted = records.where("drifted").select("batch", DRIFT) if drifts else None
        self.notes += watch.report(drifted, {batch: counts[batch] for batch in found})
        self.warnings += watch.warnings()
        return read.lines, records

    def _are_many(self, files: Iterable[LandedFile], side: Side) -> bool:
        """Whether landing files have more rows than are brought to the driver, by their size, or that of their text."""
        most = FEW_BYTES if self.spec.side(side).format in _COMPRESSED else SMALL_BYTES
        texts = {path: found.size for path, found in self.looked.items()}
        return sum(max(file.size, texts.get(real(self.spec.location(file.path)), 0)) for file in files) > most

    def _as_folded(self, log: DataFrame, table: Table, side: Side) -> DataFrame:
        """The rows of a changelog without those that folding removed: a folded batch that runs again stays folded."""
        folded = [batch for batch in self.known if self.ledger.stays_folded(self.stage, batch)]
        if not folded:
            return log
        keys, old = [c.name for c in self.spec.side(side).key_columns], ranges_sql(s.BATCH, folded)
        stored = self._read(table).where(old).select(s.BATCH, *map(quote, keys))
        kept = log.where(old).join(stored, [s.BATCH, *keys], "left_semi")
        truncates = f"{quote(keys[0])} IS NULL"
        return kept.select(*map(quote, log.columns)).unionByName(log.where(f"NOT {old} OR {truncates}"))

    def _filled(self, log: DataFrame, records: DataFrame, side: Side, counts: Counts) -> DataFrame:
        """The rows of a changelog, those with holes filled (rule 9); what stays unknown is counted."""
        side_spec, whole = self.spec.side(side), log.where(f"{s.HOLES} IS NULL")
        number = sum(c.get("holes", 0) for c in counts.values())
        holed = self._materialise(log.where(f"{s.HOLES} IS NOT NULL"), number)
        within = self._materialise(filled_within(holed.frame, records, side_spec, self._compute), number)
        stored = self._read(self.layout.changelog(side))
        truncated = self._truncated(self.stage, stored, side_spec.key_columns[0].name)
        known = self._search(within.frame, side, truncated, whole.unionByName(within.frame))
        rows = anew(known, self.spec, side, self.careful)
        unresolved = F.expr(f"EXISTS({s.HOLES}, _hole -> _hole.batch IS NULL)")
        kept = self._materialise(rows.withColumn("_fk_unresolved", unresolved), number)
        for batch, groups in kept.counts(s.BATCH, "_fk_unresolved").items():
            counts[batch]["unresolved"] = groups.get((True,), 0)
        return whole.unionByName(kept.frame.select(*map(quote, log.columns)))

    def _compute(self, frame: DataFrame) -> Materialised:
        return self._materialise(frame, None)

    def _search(self, holed: DataFrame, side: Side, truncated: bool, brought: DataFrame | None = None) -> DataFrame:
        """Rows with holes filled from what is stored, and from what the batches at hand bring in its place."""
        side_spec, table = self.spec.side(side), self.layout.changelog(side)
        columns = {c.name: c.name for c in side_spec.key_columns}
        first = side_spec.key_columns[0]

        def log(asked: DataFrame) -> DataFrame:
            keys = self._materialise(asked.select(*map(quote, columns)).distinct(), None)
            stored = self._rows_of(table, keys, columns)
            if truncated:
                stored = stored.unionByName(self._read(table).where(f"{first.quoted} IS NULL"))
            if brought is None:
                return unpacked(stored, side_spec)
            replaced = F.expr(self.batches.predicate(s.BATCH)) & ~F.col(s.BATCH).isin(self.vanished)
            placed = brought.withColumn(AT, F.expr(stored_at(side_spec)))
            return unpacked(stored.where(~replaced), side_spec).unionByName(placed)

        return filled(holed, log, side_spec, self._compute)

    def _reopen(self, side: Side) -> None:
        """Makes the stage due for the other batches whose holes are filled by something else now (rule 9).

        What the batches brought before is not known any more when they ran before, or may have: then all holes are
        looked at, otherwise those of the keys at hand.
        """
        if not format_of(self.spec.side(side)).has_holes:
            return
        others = [
            int(batch)
            for batch in self.ledger.batches
            if (batch not in self.known or int(batch) in self.vanished)
            and self.ledger.state(self.stage, batch).totals.get("holes")
        ]
        if not others:
            return
        side_spec, table = self.spec.side(side), self.layout.changelog(side)
        log = self._read(table)
        holed = unpacked(log.where(F.col(s.BATCH).isin(others) & F.col(s.HOLES).isNotNull()), side_spec)
        truncated = self._truncated(self.stage, log, side_spec.key_columns[0].name)
        if self.first_time and not truncated:
            keys = [c.name for c in side_spec.key_columns]
            key = F.struct(*map(quote, keys))
            here = log.where(self.batches.predicate(s.BATCH)).select(key.alias("_fk_key"))
            same = [holed.join(here, one == here["_fk_key"], "left_semi") for one in (key, F.col(s.OLD_KEY)["key"])]
            holed = same[0].unionByName(same[1]).dropDuplicates([s.BATCH, *keys])
        kept = self._materialise(holed, None)
        if kept.frame.isEmpty():
            return
        again = changed(kept.frame, self._search(kept.frame, side, truncated), side_spec)
        self.ledger.reopen(self.stage, sorted(int(row[0]) for row in again.collect()), self.info.run_id)

    def _strange(self, files: Mapping[int, Sequence[LandedFile]], side: Side) -> list[str]:
        """The files that Spark reads through links; a Delta table has versions, no files."""
        if self.spec.side(side).format == "delta":
            return []
        return strange(real(self.spec.location(file.path)) for group in files.values() for file in group)

    def _look(self, files: Mapping[int, Sequence[LandedFile]], side: Side) -> None:
        """Looks into files that may have a line which is too long; into all of them where Spark failed on one.

        Raises:
            UnreadableFileError: one is of a snapshot, of which what is not read would be deleted.
        """
        side_spec, limit = self.spec.side(side), self.spec.settings.max_line_bytes
        for file in (file for group in files.values() for file in group):
            path = real(self.spec.location(file.path))
            shape = shape_of(path, side_spec)
            if not self.careful and (shape is None or not needs_look(path, file.size, limit)):
                continue
            looked = look_into(path, self._readable, limit=limit if shape else None, shape=shape or LINES)
            self.looked[path] = looked
            found = looked.unreadable
            if found is not None and side_spec.is_snapshot:
                raise UnreadableFileError(
                    f"the snapshot is {found.reason}" if found.problem else f"the snapshot has a line {found.reason}",
                    where=self.spec.location(file.path),
                    why="rows that are not read would be deleted; nothing of the batch was applied",
                    fix="replace the file by a whole one" if found.problem else TOO_LONG_FIX,
                )

    def _records(self, parsed: DataFrame, side: Side) -> DataFrame:
        """Records with the expressions of the pipeline evaluated, and `why` they are ignored."""
        records = evaluate(parsed, self.spec, side, self.careful)
        holed = F.col("holes").isNotNull() if format_of(self.spec.side(side)).has_holes else F.lit(False)
        return records.withColumns(
            {
                "why": F.when(F.col("kind").isin(IGNORED, TRUNCATE), F.col("reason")),
                "holed": holed,
                "drifted": F.col(DRIFT).isNotNull(),
                "rounded": F.col("rounded") if "rounded" in parsed.columns else F.lit(None).cast("string"),
            }
        )

    def _survey(
        self, parsed: DataFrame, files: Mapping[int, Sequence[LandedFile]], side: Side
    ) -> dict[int, dict[tuple[Any, ...], int]] | None:
        """Per batch what `Materialised.counts` counts, from the key columns alone; None unless every key is there once.

        So the rows of a large load are neither sorted nor kept to find the last event of every key.
        """
        side_spec = self.spec.side(side)
        reads = format_of(side_spec)
        records = self._records(parsed.withColumn("value", F.lit(None).cast("string")), side)
        groups = records.groupBy("batch", *(name for name in _COUNTED_BY if name != "last")).count().collect()
        if any(row["holed"] or (row["kind"] == TRUNCATE and row["why"] != SNAPSHOT) for row in groups):
            return None
        if not all(
            len(group) == 1 and reads.has_keys_once(real(self.spec.location(group[0].path)), side_spec)
            for group in files.values()
        ):
            # Two keys with one hash are taken for one that is there twice, which costs time and nothing else.
            keys = [F.col("row")[c.name] for c in side_spec.key_columns]
            events = records.where(F.col("kind") == EVENT).select(F.xxhash64("batch", *keys).alias("key"))
            if not events.groupBy("key").count().where("count > 1").isEmpty():
                return None
        found: dict[int, dict[tuple[Any, ...], int]] = {}
        for row in groups:
            last = True if row["kind"] in (EVENT, TRUNCATE) else None
            by = (row["kind"], row["why"], last, row["deleted"], False, row["drifted"], row["rounded"])
            found.setdefault(row["batch"], {})[by] = row["count"]
        return found

    def _keep_vanished(self, side: Side, counts: Counts) -> None:
        """A vanished file changes nothing: the stored partition of its batch stays and serves backfills.

        So does that of a folded batch when only the reader is new: what it would lose now may be what others lost to.
        """
        for batch in map(int, self.known):
            if self.ledger.keeps_stored(self.stage, batch):
                self.vanished.append(batch)
                counts[batch] = dict(self.ledger.state(self.stage, batch).counts)
                self.notes.append(f"batch {batch} was folded; the stored partition was kept")
        kept = {*self.vanished}
        wanted = {f.path: int(b) for b in self.known if b not in kept for f in self.ledger.files_of(b, side)}
        if not wanted:
            return
        delta = self.spec.side(side).format == "delta"
        there = set() if delta else {self.spec.relative(f.path) for f in self.zone.list(self.spec.landing(side))}
        for path, batch in sorted(wanted.items()):
            state = self.ledger.state(self.stage, batch)
            was_read = state.succeeded is not None and not state.uncertain and state.input == state.started_input
            # Versions of a table that were never read are read: Spark says what is gone.
            if path in there or (delta and (not was_read or are_kept(self.spec.location(path)))):
                continue
            if not was_read:
                raise LandingError(
                    "the landing file is gone, and its batch was not read with it before",
                    where=path,
                    why=f"batch {batch} cannot be read without it; nothing was changed",
                    fix="restore the file and run again",
                )
            if batch not in self.vanished:
                self.vanished.append(batch)
                counts[batch] = dict(state.counts)
                what = f"versions {path} are not kept any more" if delta else f"{path} is gone"
                self.notes.append(f"batch {batch}: {what}; the stored partition was kept")

    def _refuse_gone_versions(self, files: Mapping[int, Sequence[LandedFile]], side: Side, error: Exception) -> None:
        """Says of an error that it comes from versions of a table that are not there any more, if it does."""
        if self.spec.side(side).format != "delta" or not is_from_spark(error):
            return
        gone = [f for group in files.values() for f in group if not are_kept(self.spec.location(f.path))]
        if not gone:
            return
        batch = gone[0].batch
        other = Side.RIGHT if side is Side.LEFT else Side.LEFT
        besides = [f.path for f in self.ledger.files_of(batch, other) if self.spec.side(other).format != "delta"]
        again = f". Land {', '.join(besides)} under another name: it is withdrawn with the batch" if besides else ""
        raise LandingError(
            f"versions {gone[0].path} are not kept any more, and were not read before",
            where=f"pipeline {self.spec.name}, batch {batch}",
            why="which changes they were is not known; the batches stay due, and nothing was changed",
            fix=f"fk-pipeline remove-batch {self.spec.file} {batch}; the next run takes the whole table{again}",
        ) from error

    def _note_other_tables(self, counts: Counts, side: Side) -> None:
        """A name of a table that no line has is more likely a slip than meant."""
        for batch, found in counts.items():
            if found["read"] and found["read"] == found.get(f"ignored: {OTHER_TABLE}"):
                self.notes.append(f"batch {batch}: no line is about table {self.spec.side(side).table}")

    def _note_rounded(self, counts: Counts, side: Side) -> None:
        """Values that are the nearest that the type of their column has: told with what keeps the digits."""
        types = {c.name: c.type for c in self.spec.side(side).columns}
        for batch, found in counts.items():
            for name, number in found.items():
                column = name.removeprefix(f"{ROUNDED}: ")
                if column != name:
                    self.notes.append(
                        f"batch {batch}: {number} {side} value(s) of {column} are not exact as {types[column]}; "
                        "another type (DECIMAL, STRING) keeps what was sent"
                    )

    def _refuse_cut_off(self, records: DataFrame, counts: Counts, side: Side) -> None:
        """A snapshot whose last record is bad is taken to be cut off: what is not read of it would be deleted."""
        if not self.spec.side(side).is_snapshot or not any(c.get("quarantined") for c in counts.values()):
            return
        lines, place = records.where(F.col("kind") != TRUNCATE), F.struct("block", "position")
        last = lines.groupBy("file").agg(*[F.max_by(name, place).alias(name) for name in ("kind", "reason")])
        found = last.where(F.col("kind") == BAD).first()
        if found is not None:
            raise UnreadableFileError(
                f"the last record of the snapshot is bad: {found['reason']}",
                where=found["file"],
                why="the file may be cut off, and rows that are not in it would be deleted; nothing of it was applied",
                fix="replace the file by a whole one, or take that record out of it",
            )

    def _refuse_truncates(self, records: DataFrame, counts: Counts, side: Side) -> None:
        """A truncate has no row: with `sequence_by` nobody can say which rows it comes after."""
        if self.spec.side(side).sequence_by is None or not any(c.get("truncates") for c in counts.values()):
            return
        truncates = records.where((F.col("kind") == TRUNCATE) & F.col("sequence.value").isNull())
        found = truncates.select("batch").first()
        if found is not None:
            raise UnsupportedEventError(
                f"the {side} source was truncated, and sequence_by is null on the truncate",
                where=f"pipeline {self.spec.name}, batch {found['batch']}",
                why="leaving the event out would keep rows that the source no longer has",
                fix="leave out sequence_by, so that the source's own order counts; or let the source send deletes",
            )
