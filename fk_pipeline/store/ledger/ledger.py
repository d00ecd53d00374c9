"""The ledger: which files are which batch, what every stage did with it, and what is due.

Append-only Delta tables beside the data, written and read without Spark (ADR 0001):

* `files`: one row per file and event (discovered, changed);
* `batches`: one row per batch, side and version of its list of files (listed; removed: the batch was withdrawn);
* `runs`: one row per stage, batch and event (started, succeeded, failed; reopened: something else made it due);
* `fingerprints`: one row per part of the pipeline file that the stored state depends on;
* `rebuilds`: one row per rebuild and event (ready, finished);
* `checks`: one row per expectation and check (checked), and per check that a user waived (waived);
* `corrections`: one row per line that is read as another text;
* `folds`: one row per side and maintenance that folded batches;
* `fields`: one row per side and undeclared field that its source sent, and one when the side was first examined.

The newest row wins. Each module of this package reads its tables and appends to them: `files` (files and batches),
`runs` and `due` (runs and what is due), `stops` (checks and what lifts them), corrections, folds and rebuilds.
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
from fk_pipeline.store.ledger.names import LandingPlace, is_claim
from fk_pipeline.store.ledger.runs import RunLog, StageState
from fk_pipeline.store.ledger.stops import Checks
from fk_pipeline.store.logs import DeltaLogs


class Ledger:
    """The ledger of one pipeline; it reads its tables when it is created and on every `refresh`.

    Attributes:
        files: which files belong to which batch.
        runs: what every stage did with every batch.
        due: which stage must run for which batch, and why.
        checks: which batches a failed check stops.
        corrections: lines whose text is replaced when they are read.
        folds: batches for which only the last version of each key is kept.
        fields: undeclared fields of the sources.
        rebuilds: every event of every rebuild.
        fingerprints: per part of the pipeline file, the value that the stored state depends on.
        claim: which pipeline the tables belong to (`engine/claim.py`).
    """

    def __init__(
        self,
        home: str,
        kind: Kind,
        reader: str = "",
        limits: Mapping[str, int] | None = None,
        source: Source = Source.LANDING,
        places: Mapping[Side, LandingPlace] | None = None,
    ) -> None:
        """Reads the ledger.

        Args:
            home: the folder or URI of the pipeline's tables.
            kind: the kind of join: which stages make which due, which read landing files, and which tables they write.
            reader: the version of the reader of landing files.
            limits: per approval check, the largest value that needs no approval.
            source: the input of the stages that read landing files: the landing files, or the stored changelogs.
            places: where the files of each side land now; default: their paths are as the ledger has them.
        """
        self.home, self.kind, self.entries = home.rstrip("/"), kind, Entries(home)
        self.upstream = {stage.name: stage.upstream for stage in kind.stages}
        self.inputs = {logged.stage: logged.name for logged in kind.logged}
        self._reader, self._limits, self._source = reader, limits or {}, source
        self._places = places or {}
        self.refresh()

    @property
    def logs(self) -> DeltaLogs:
        """The Delta logs of the ledger tables and of the data tables."""
        return self.entries.logs

    @property
    def identity(self) -> str:
        """The random id of the ledger table `files`, unique to this ledger; empty until that table exists."""
        table = self.logs.table(f"{self.home}/files")
        return "" if table is None else str(table.metadata().id)

    @property
    def batches(self) -> list[BatchId]:
        """Every known batch, in order."""
        return self.files.batches

    def state(self, stage: str, batch: int) -> StageState:
        """Returns what the ledger knows of a stage and batch."""
        return self.runs.state(stage, batch)

    def refresh(self) -> None:
        """Reads the tables again if another process has written to one since the last read."""
        if not self.entries.changed():
            return
        try:
            self._load()
        except BaseException:
            self.entries.forget()
            raise

    def _load(self) -> None:
        entries, kind = self.entries, self.kind
        parts = {row["part"]: row["value"] for row in entries.rows("fingerprints")}
        self.fingerprints = {part: value for part, value in parts.items() if not is_claim(part)}
        self.claim = {part: value for part, value in parts.items() if is_claim(part)}
        self.files = FileLog(entries, self._places, self.claim)
        self.runs = RunLog(entries, kind)
        self.rebuilds = RebuildLog(entries, self.runs)
        self.corrections = CorrectionLog(entries, self.files.names)
        landing = LandingReading(kind, self.files, self.corrections, self._reader)
        reading = landing if self._source is Source.LANDING else StoredReading(kind, self.runs, landing)
        self.due = Due(kind, self.files, self.runs, reading)
        self.folds = FoldLog(entries, kind, self.runs, self.due, self.rebuilds)
        parts_of_checks = (self.files, self.runs, self.due, self.corrections, self.rebuilds, self.folds)
        self.checks = Checks(entries, kind, *parts_of_checks, self._limits)
        self.fields = FieldLog(entries)

    def start(self, stage: str, batches: Sequence[BatchId], run_id: str, versions: Mapping[str, int]) -> dict[int, int]:
        """Records that a stage runs for some batches, before its first commit, and the table versions at its start.

        Returns their generations.
        """
        reading = {b: (self.due.reading(stage, b), self.due.upstream_now(stage, b)) for b in batches}
        return self.runs.start(stage, reading, run_id, versions)

    def record_fingerprints(self, parts: Mapping[str, str]) -> None:
        """Records the parts of the pipeline file that the state about to be written depends on."""
        self.entries.append("fingerprints", ({"part": part, "value": value} for part, value in parts.items()))
        self.fingerprints |= parts

    def record_claim(self, parts: Mapping[str, str]) -> None:
        """Records the changed parts of the claim: which pipeline the tables belong to."""
        new = {part: value for part, value in parts.items() if self.claim.get(part) != value}
        self.entries.append("fingerprints", ({"part": part, "value": value} for part, value in new.items()))
        self.claim |= new

    def copy(self, home: str, without: Iterable[str], source: Source) -> Ledger:
        """Returns a copy of this ledger in another place, without the runs of some stages; it requires no approvals.

        Args:
            home: the folder or URI of the copy.
            without: the stages whose runs are left out.
            source: the input of the stages that read landing files.
        """
        dropped = set(without)
        entries = Entries(home)
        for table in ("batches", "files", "runs", "corrections", "fields"):  # in the order of `_load`
            entries.add(table, [r for r in self.entries.rows(table) if r.get("stage") not in dropped])
        entries.add("fingerprints", [r for r in self.entries.rows("fingerprints") if is_claim(r["part"])])
        copy = self.at(home, source)
        for stage, side in self.inputs.items():
            horizon = self.folds.horizon(stage)
            if horizon is not None and not (source is Source.LANDING and stage in dropped):  # else all versions return
                copy.folds.close([side], horizon)
        return copy

    def at(self, home: str, source: Source) -> Ledger:
        """Returns the ledger in another place, with the same kind and reader as this one; it requires no approvals."""
        return Ledger(home, self.kind, self._reader, source=source, places=self._places)

    def adopt(self, other: Ledger, stages: Iterable[str], source: Source) -> None:
        """Takes over the runs of some stages, and the fields, that a copy has recorded since it was made. Idempotent.

        Does not take over the runs of a changelog stage that read stored data only, for a batch that was not done
        here: that batch stays due. Does not take over the versions of the copy's tables.
        """
        requested, known = set(stages), {row["entry"] for row in self.entries.rows("runs")}
        self.runs.add(
            [
                row | {"versions": []}
                for row in other.entries.rows("runs")
                if row["stage"] in requested and row["entry"] not in known and self._may_adopt(row, source)
            ]
        )
        seen = {row["entry"] for row in self.entries.rows("fields")}
        self.fields.add([row for row in other.entries.rows("fields") if row["entry"] not in seen])

    def _may_adopt(self, row: Mapping[str, Any], source: Source) -> bool:
        state = self.state(row["stage"], row["batch"])
        done = state.last_event == "succeeded" and state.reopened < state.started
        return row["stage"] not in self.inputs or source is Source.LANDING or done
