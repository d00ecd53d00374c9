"""The ledger: which files are which batch, what every stage did with it, and what is due.

Append-only Delta tables beside the data, written and read without Spark (ADR 0001):

* `files`: one row per file and event (discovered, changed);
* `batches`: one row per batch, side and version of its list of files (listed; removed: the batch was withdrawn);
* `runs`: one row per stage, batch and event (started, succeeded, failed; reopened: something else made it due);
* `fingerprints`: one row per part of the pipeline file that the stored state depends on;
* `rebuilds`: one row per rebuild and event (ready, finished);
* `checks`: one row per expectation and check (checked), and per check that somebody waived (waived);
* `corrections`: one row per line that is read as another text;
* `folds`: one row per side and maintenance that folded batches;
* `fields`: one row per side and field that its source sent undeclared, and one when the side was first looked at.

The newest row wins. Every part of the ledger reads its tables and adds to them: files and batches (`files`), runs and
what is due (`runs`, `due`), checks and what lifts them (`stops`), corrections, folds and rebuilds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fk_pipeline.contract import Kind, Source
from fk_pipeline.identity import BatchId, Side
from fk_pipeline.store.ledger.corrections import CorrectionLog
from fk_pipeline.store.ledger.due import Due, LandingReading, StoredReading
from fk_pipeline.store.ledger.entries import Entries
from fk_pipeline.store.ledger.fields import FieldLog
from fk_pipeline.store.ledger.files import FileLog
from fk_pipeline.store.ledger.folds import FoldLog, RebuildLog
from fk_pipeline.store.ledger.runs import RunLog, StageState
from fk_pipeline.store.ledger.stops import Checks
from fk_pipeline.store.logs import DeltaLogs

FILE_THAT_RAN = "pipeline file"
"""The part of the fingerprints that names the file which ran last; nothing depends on it."""


def claimed(side: Side) -> str:
    """The part of the fingerprints that has where the files of a side land, as it resolves."""
    return f"{side}.landing"


def claimed_from_tables(side: Side) -> str:
    """The part that has how this place is reached from the tables; empty where it is in another store."""
    return f"{side}.landing from the tables"


CLAIM = frozenset({FILE_THAT_RAN, *map(claimed, Side), *map(claimed_from_tables, Side)})


class Ledger:
    """The ledger of one pipeline, read when it is made and after `refresh`.

    Attributes:
        files: which files are which batch.
        runs: what every stage did with every batch.
        due: which stage must run for which batch, and why.
        checks: which batches a failed check stops.
        corrections: lines that are read as other texts.
        folds: batches of which only the last versions are kept.
        fields: undeclared fields of the sources.
        rebuilds: what was made anew.
        fingerprints: by part of the pipeline file, what the stored state depends on.
        claim: whose tables these are (`stages/claim.py`).
    """

    def __init__(
        self,
        home: str,
        kind: Kind,
        reader: str = "",
        limits: Mapping[str, int] | None = None,
        kept: Sequence[str] = (),
        source: Source = Source.LANDING,
    ) -> None:
        """Reads the ledger.

        Args:
            home: the folder or URI of the pipeline's tables.
            kind: the kind of join: which stages make which due, which read landing files, and what they write.
            reader: the version of what reads these.
            limits: per check with which a stage asks for approval before it commits, the largest value that needs none.
            kept: older versions of the reader whose rows stay until something else landed, or somebody rebuilds.
            source: what the stages read that read landing files: what has landed, or what is stored of it.
        """
        self.home, self.kind, self.entries = home.rstrip("/"), kind, Entries(home)
        self.upstream = {stage.name: stage.upstream for stage in kind.stages}
        self.inputs = {one.stage: one.name for one in kind.inputs}
        self._reader, self._limits, self._kept, self._source = reader, limits or {}, kept, source
        self.refresh()

    @property
    def logs(self) -> DeltaLogs:
        """The logs of the ledger's own and of other tables."""
        return self.entries.logs

    @property
    def identity(self) -> str:
        """What tells this ledger from every other, a random text; it is there as soon as anything has landed."""
        table = self.logs.table(f"{self.home}/files")
        return "" if table is None else str(table.metadata().id)

    @property
    def batches(self) -> list[BatchId]:
        """Every known batch, in order."""
        return self.files.batches

    def state(self, stage: str, batch: int) -> StageState:
        """What is known of a stage and batch."""
        return self.runs.state(stage, batch)

    def refresh(self) -> None:
        """Reads what other processes have written, if they have."""
        if not self.entries.changed():
            return
        try:
            self._load()
        except BaseException:
            self.entries.forget()
            raise

    def _load(self) -> None:
        entries, kind = self.entries, self.kind
        self.files = FileLog(entries)
        self.runs = RunLog(entries, kind)
        parts = {row["part"]: row["value"] for row in entries.rows("fingerprints")}
        self.fingerprints = {part: value for part, value in parts.items() if part not in CLAIM}
        self.claim = {part: value for part, value in parts.items() if part in CLAIM}
        self.rebuilds = RebuildLog(entries, self.runs)
        self.corrections = CorrectionLog(entries)
        landing = LandingReading(kind, self.files, self.corrections, self._reader)
        reading = landing if self._source is Source.LANDING else StoredReading(kind, self.runs)
        self.due = Due(kind, self.files, self.runs, reading, self._kept)
        self.folds = FoldLog(entries, kind, self.runs, self.due, self.rebuilds)
        parts_of_checks = (self.files, self.runs, self.due, self.corrections, self.rebuilds, self.folds)
        self.checks = Checks(entries, kind, *parts_of_checks, self._limits)
        self.fields = FieldLog(entries)

    def start(self, stage: str, batches: Sequence[BatchId], run_id: str) -> dict[int, int]:
        """Records, before anything is committed, that a stage runs for some batches; returns their generations."""
        reading = {b: (self.due.reading(stage, b), self.due.upstream_now(stage, b)) for b in batches}
        return self.runs.start(stage, reading, run_id)

    def record_fingerprints(self, parts: Mapping[str, str]) -> None:
        """Records what the state that is about to be written depends on."""
        self.entries.append("fingerprints", ({"part": part, "value": value} for part, value in parts.items()))
        self.fingerprints |= parts

    def record_claim(self, parts: Mapping[str, str]) -> None:
        """Records whose tables these are, as far as that is new."""
        new = {part: value for part, value in parts.items() if self.claim.get(part) != value}
        self.entries.append("fingerprints", ({"part": part, "value": value} for part, value in new.items()))
        self.claim |= new

    def copy(self, home: str, without: Iterable[str], source: Source) -> Ledger:
        """A ledger elsewhere that knows what this one knows, but no run of some stages; no stage asks by it.

        Args:
            home: of the copy.
            without: the stages.
            source: what the stages read that read landing files.
        """
        dropped = set(without)
        entries = Entries(home)
        for table in ("batches", "files", "runs", "corrections", "fields"):  # in the order of `_load`
            entries.add(table, [r for r in self.entries.rows(table) if r.get("stage") not in dropped])
        return self.at(home, source)

    def at(self, home: str, source: Source) -> Ledger:
        """The ledger that lies elsewhere, read as this one is; no stage asks by it."""
        return Ledger(home, self.kind, self._reader, kept=self._kept, source=source)

    def adopt(self, other: Ledger, stages: Iterable[str], source: Source) -> None:
        """Takes over what a copy has recorded of some stages since it was made. Idempotent.

        Not the runs of a changelog stage that had read what was stored only, for a batch that was not done: it is due.
        Nor the versions of the copy's tables.
        """
        wanted, known = set(stages), {row["entry"] for row in self.entries.rows("runs")}
        self.runs.add(
            [
                row | {"versions": []}
                for row in other.entries.rows("runs")
                if row["stage"] in wanted and row["entry"] not in known and self._may_adopt(row, source)
            ]
        )
        seen = {row["entry"] for row in self.entries.rows("fields")}
        self.fields.add([row for row in other.entries.rows("fields") if row["entry"] not in seen])

    def _may_adopt(self, row: Mapping[str, Any], source: Source) -> bool:
        state = self.state(row["stage"], row["batch"])
        done = state.last_event == "succeeded" and state.reopened < state.started
        return row["stage"] not in self.inputs or source is Source.LANDING or done
