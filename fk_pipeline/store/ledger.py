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

The newest row wins.

`started` is written before a stage commits data and `succeeded` after, so a crash between the two leaves the stage due;
and a batch without any `started` was never committed, so that its first commit may be a plain append.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from fk_pipeline.contract import Kind
from fk_pipeline.identity import BatchId, Side
from fk_pipeline.store.checks import AGREEMENT, REBUILD, SOURCE, CheckLog, FailedCheck, FoldedBatch
from fk_pipeline.store.commits import CommitLog
from fk_pipeline.store.corrections import Correction, CorrectionLog
from fk_pipeline.store.entries import Entries
from fk_pipeline.store.fields import FieldLog
from fk_pipeline.store.logs import DeltaLogs

LACKING = "another batch has values that it lacks"

PIPELINE_FILE = "pipeline file"
"""The part of the fingerprints that names the file which ran last; nothing depends on it."""


def claimed(side: Side) -> str:
    """The part of the fingerprints that has where the files of a side land, as it resolves."""
    return f"{side}.landing"


def claimed_from_tables(side: Side) -> str:
    """The part that has how this place is reached from the tables; empty where it is in another store."""
    return f"{side}.landing from the tables"


CLAIM = frozenset({PIPELINE_FILE, *map(claimed, Side), *map(claimed_from_tables, Side)})


@dataclass(frozen=True)
class LandedFile:
    """A landing file as the ledger knows it; `modified` is the storage's own text for time or etag.

    `path` is relative to the pipeline file where the file lies below its folder.
    """

    path: str
    side: Side
    batch: BatchId
    size: int
    modified: str
    digest: str


@dataclass
class StageState:
    """What the ledger knows of one stage and batch."""

    last_event: str = ""
    last_entry: int = 0
    started: int = 0
    """Entry of the last start."""
    reopened: int = 0
    """Entry at which it was made due, though it reads what it read before."""
    reopened_because: str = LACKING
    attempts: int = 0
    successes: int = 0
    failures: int = 0
    """Since the last success."""
    failed_at: datetime | None = None
    generation: int = 0
    started_input: str | None = None
    uncertain: bool = False
    """A run with another input than that of the last success was started since, and may have committed."""
    succeeded: int | None = None
    """Entry of the last success."""
    input: str | None = None
    upstream: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of the last success."""
    totals: dict[str, int] = field(default_factory=dict)
    """Over all successes."""
    versions: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    finished_at: datetime | None = None
    error: str | None = None


class Ledger:
    """The ledger of one pipeline, read when it is made and after `refresh`.

    Args:
        home: the folder or URI of the pipeline's tables.
        kind: the kind of join: which stages make which due, which read landing files, and what they write.
        reader: the version of what reads them.
        kept: older versions whose rows stay until something else landed, or somebody rebuilds.
        limits: by the name of a check with which a stage asks before it commits, up to where it does not ask.
    """

    def __init__(
        self,
        home: str,
        kind: Kind,
        reader: str = "",
        limits: Mapping[str, int] | None = None,
        kept: Sequence[str] = (),
    ) -> None:
        self.home = home.rstrip("/")
        self.kind = kind
        self.upstream = {stage.name: stage.upstream for stage in kind.stages}
        self.inputs = {one.stage: one.name for one in kind.inputs}
        self.reader = reader
        self.kept = kept
        self.limits = limits or {}
        self.entries = Entries(home)
        self.reads_landing = True
        """False: changelog stages read what they had read before, not what has landed since (a rebuild)."""
        self._started: dict[int, dict[str, Any]] = {}
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
        self.files: dict[tuple[Side, str], LandedFile] = {}
        self.lists: dict[tuple[int, Side], dict[str, Any]] = {}
        self.stages: dict[tuple[str, int], StageState] = {}
        self.commits = CommitLog(self.kind)
        rows = self.entries.rows
        for row in rows("batches"):  # before the files: whoever discovers writes the files of a list first
            self.lists[row["batch"], Side(row["side"])] = row
        for row in rows("files"):
            side = Side(row["side"])
            self.files[side, row["path"]] = LandedFile(
                row["path"], side, BatchId(row["batch"]), row["size"], row["modified"], row["digest"]
            )
        for row in rows("runs"):
            self._fold(row)
        parts = {row["part"]: row["value"] for row in rows("fingerprints")}
        self.fingerprints = {part: value for part, value in parts.items() if part not in CLAIM}
        self.claim = {part: value for part, value in parts.items() if part in CLAIM}
        """Whose tables these are (`stages/claim.py`)."""
        self.rebuilds = rows("rebuilds")
        for row in self.rebuilds:
            self.commits.fold_rebuild(row)
        self._checks = CheckLog()
        for row in rows("checks"):
            self._checks.fold(row, self.batches)
        self.corrections = CorrectionLog()
        for row in rows("corrections"):
            self.corrections.fold(row)
        self._folds = rows("folds")
        self.fields = FieldLog()
        for row in rows("fields"):
            self.fields.fold(row)

    def copy(self, home: str, without: Iterable[str]) -> Ledger:
        """A ledger elsewhere that knows what this one knows, but no run of some stages; no stage asks by it."""
        dropped = set(without)
        entries = Entries(home)
        for table in ("batches", "files", "runs", "corrections", "fields"):  # in the order of `_load`
            entries.add(table, [r for r in self.entries.rows(table) if r.get("stage") not in dropped])
        return Ledger(home, self.kind, self.reader, kept=self.kept)

    def adopt(self, other: Ledger, stages: Iterable[str]) -> None:
        """Takes over what a copy has recorded of some stages since it was made. Idempotent.

        Not the runs of a changelog stage that had read what was stored only, for a batch that was not done: it is due.
        Nor the versions of the copy's tables.
        """
        wanted, known = set(stages), {row["entry"] for row in self.entries.rows("runs")}
        rows = [
            row | {"versions": []}
            for row in other.entries.rows("runs")
            if row["stage"] in wanted and row["entry"] not in known and self._may_adopt(row, other)
        ]
        self.entries.add("runs", rows)
        for row in rows:
            self._fold(row)
        seen = {row["entry"] for row in self.entries.rows("fields")}
        news = [row for row in other.entries.rows("fields") if row["entry"] not in seen]
        self.entries.add("fields", news)
        for row in news:
            self.fields.fold(row)

    def _may_adopt(self, row: dict[str, Any], other: Ledger) -> bool:
        state = self.state(row["stage"], row["batch"])
        done = state.last_event == "succeeded" and state.reopened < state.started
        return row["stage"] not in self.inputs or other.reads_landing or done

    def record_rebuild(self, event: str, **what: Any) -> None:
        """Records that a rebuild is ready to be swapped in, or is finished."""
        [row] = self.entries.append("rebuilds", [{"event": event, **what}])
        self.rebuilds.append(row)
        self.commits.fold_rebuild(row)

    @property
    def open_rebuild(self) -> dict[str, Any] | None:
        """The rebuild whose tables were being swapped in when its process died, as its row says."""
        return self.rebuilds[-1] if self.rebuilds and self.rebuilds[-1]["event"] == "ready" else None

    def record_fingerprints(self, parts: Mapping[str, str]) -> None:
        """Records what the state that is about to be written depends on."""
        self.entries.append("fingerprints", ({"part": part, "value": value} for part, value in parts.items()))
        self.fingerprints |= parts

    def record_claim(self, parts: Mapping[str, str]) -> None:
        """Records whose tables these are, as far as that is new."""
        new = {part: value for part, value in parts.items() if self.claim.get(part) != value}
        self.entries.append("fingerprints", ({"part": part, "value": value} for part, value in new.items()))
        self.claim |= new

    def _fold(self, row: dict[str, Any]) -> None:
        self.commits.fold(row)
        state = self.stages.setdefault((row["stage"], row["batch"]), StageState())
        if row["event"] == "reopened":
            state.reopened, state.reopened_because = row["entry"], row.get("reason") or LACKING
            return
        state.last_event, state.last_entry = row["event"], row["entry"]
        state.error = row["error"]
        if row["event"] == "failed":
            state.failures += 1
            state.failed_at = row["recorded_at"]
        if row["event"] == "started":
            state.attempts += 1
            state.started = row["entry"]
            state.uncertain |= state.succeeded is not None and row["input"] != state.input
            state.generation, state.started_input = row["generation"], row["input"]
        if row["event"] == "succeeded":
            state.succeeded, state.input = row["entry"], row["input"]
            state.upstream, state.counts = dict(row["upstream"] or ()), dict(row["counts"] or ())
            state.versions = dict(row["versions"] or ())
            state.seconds, state.finished_at = row["seconds"], row["recorded_at"]
            state.successes += 1
            state.uncertain = False
            state.failures = 0
            for name, value in state.counts.items():
                state.totals[name] = state.totals.get(name, 0) + value

    # ---- batches and files

    @property
    def batches(self) -> list[BatchId]:
        """Every known batch, in order."""
        return [BatchId(b) for b in sorted({batch for batch, _ in self.lists})]

    def files_of(self, batch: int, side: Side) -> list[LandedFile]:
        """The files of a batch, in the order in which they are read."""
        row = self.lists.get((batch, side))
        return [self.files[side, path] for path in row["files"]] if row else []

    def input_of(self, batch: int, side: Side) -> str:
        """What a changelog stage reads for a batch, as a digest; empty when there is nothing to read."""
        row = self.lists.get((batch, side))
        return row["input"] if row and row["files"] else ""

    def record_files(self, files: Sequence[tuple[str, LandedFile]]) -> list[BatchId]:
        """Records discovered and changed files, and the new file lists of their batches, which become due.

        Args:
            files: pairs of event (`discovered` or `changed`) and file.

        Returns:
            The batches whose list has a new version.
        """
        if not files:
            return []
        self.entries.append(
            "files",
            (
                {
                    "event": event,
                    "side": f.side.value,
                    "batch": int(f.batch),
                    "path": f.path,
                    "size": f.size,
                    "modified": f.modified,
                    "digest": f.digest,
                }
                for event, f in files
            ),
        )
        for _, f in files:
            self.files[f.side, f.path] = f
        removed = self.removed
        touched = {(int(f.batch), f.side) for _, f in files if f.batch not in removed}
        self._list(touched, "listed")
        return [BatchId(batch) for batch in sorted({b for b, _ in touched})]

    @property
    def removed(self) -> set[int]:
        """The batches that were withdrawn on purpose. Their files stay known, and are not read."""
        return {batch for (batch, _), row in self.lists.items() if row.get("event") == "removed"}

    def remove(self, batch: int) -> None:
        """Withdraws a batch: both its lists are empty from now on, and its changelog stages are due."""
        self._list({(batch, side) for number, side in self.lists if number == batch}, "removed")

    def restore(self, batch: int) -> None:
        """Lists all files of a withdrawn batch again."""
        self._list({(batch, f.side) for f in self.files.values() if f.batch == batch}, "listed")

    def record_corrections(self, corrections: Iterable[Correction], replay_id: str) -> int:
        """Records what lines are to be read as, in one commit; their batches are due by that.

        Returns:
            How many of the corrections were not in force already.
        """
        unknown = self.corrections.unknown(corrections)
        for row in self.entries.append("corrections", [{"replay_id": replay_id, **asdict(one)} for one in unknown]):
            self.corrections.fold(row)
        return len(unknown)

    def folded(self, stage: str) -> frozenset[int]:
        """The batches of whose rows in the changelog of a stage only the winner per key is kept.

        A rebuild from the landing files brings the others back.
        """
        side, since = self.inputs[stage], self._rebuilt(stage, ("landing",))
        found = (row["batches"] for row in self._folds if row["side"] == side.value and row["entry"] > since)
        return frozenset().union(*found)

    @property
    def fully_folded(self) -> frozenset[int]:
        """The batches that are folded on both sides; what they answered may be gone as well."""
        return frozenset.intersection(*map(self.folded, self.inputs))

    def restated_folds(self, stage: str) -> list[FoldedBatch]:
        """The folded batches of which something else landed than the stage has read: they can no longer be restated."""
        if stage not in self.inputs or not self.reads_landing:
            return []
        return [FoldedBatch.of(stage, b) for b in sorted(self.folded(stage)) if self._is_restated(stage, b)]

    def _is_restated(self, stage: str, batch: int) -> bool:
        """Other files or corrections than the stage has read; where it had read nothing, nothing was folded."""
        read = self.state(stage, batch).input
        return read not in (None, "") and _without_reader(read) != _without_reader(self._reading(stage, batch))

    def keeps_stored(self, stage: str, batch: int) -> bool:
        """The batch was folded, and all that is new is how its files are read: its stored partition stays."""
        read = self.state(stage, batch).input
        new = bool(read) and not self._is_kept(read, self._reading(stage, batch))
        return new and batch in self.folded(stage) and not self._is_restated(stage, batch)

    def stays_folded(self, stage: str, batch: int) -> bool:
        """The batch was folded, and runs again: it brings what is stored of it. Not so a first file of its side."""
        return batch in self.folded(stage) and self.state(stage, batch).input not in (None, "")

    def record_folds(self, batches: Iterable[int]) -> None:
        """Records, before a row is removed, that batches are folded on both sides."""
        rows = []
        for stage, side in self.inputs.items():
            new = sorted({int(batch) for batch in batches} - self.folded(stage))
            rows += [{"side": side.value, "batches": new}] if new else []
        self._folds += self.entries.append("folds", rows)

    def record_fields(self, side: Side, names: Iterable[str], *, always: bool = False) -> None:
        """Records undeclared fields of a side that were not known, and that the side is looked at.

        Args:
            side: the side.
            names: the fields.
            always: any batch may have them; otherwise those that are read from now on.
        """
        new = names if always else self.fields.new(side, names)
        rows: list[dict[str, Any]] = [{"side": side.value, "name": name, "always": always} for name in new]
        if not rows and not always and self.fields.looked_since(side) is None:
            rows = [{"side": side.value, "name": None, "always": False}]
        for row in self.entries.append("fields", rows):
            self.fields.fold(row)

    def unlisted(self) -> list[tuple[str, LandedFile]]:
        """Files that were recorded by a discovery that crashed before it recorded the lists of their batches."""
        found, removed = [], self.removed
        for (batch, side), row in self._lists_of_all_files().items():
            stored = self.lists.get((batch, side))
            if batch not in removed and (stored is None or stored["input"] != row["input"]):
                found += [("discovered", self.files[side, path]) for path in row["files"]]
        return found

    def _list(self, places: Iterable[tuple[int, Side]], event: str) -> None:
        """Records new versions of lists: all files that are known of a batch and side, or none."""
        listed = self._lists_of_all_files() if event == "listed" else {}
        rows = []
        for batch, side in sorted(places):
            old = self.lists.get((batch, side))
            content = listed.get((batch, side)) or {"files": [], "input": ""}
            version = old["version"] + 1 if old else 1
            rows.append({"event": event, "batch": batch, "side": side.value, "version": version, **content})
        for row in self.entries.append("batches", rows):
            self.lists[row["batch"], Side(row["side"])] = row

    def _lists_of_all_files(self) -> dict[tuple[int, Side], dict[str, Any]]:
        """Per batch and side the paths of its files in the order in which they are read, and a digest of all."""
        groups: dict[tuple[int, Side], list[LandedFile]] = {}
        for file in sorted(self.files.values(), key=_name_order):
            groups.setdefault((int(file.batch), file.side), []).append(file)
        return {
            place: {
                "files": [f.path for f in mine],
                "input": hashlib.sha256("".join(f"{f.path}\0{f.digest}\n" for f in mine).encode()).hexdigest(),
            }
            for place, mine in groups.items()
        }

    # ---- stages

    def state(self, stage: str, batch: int) -> StageState:
        """What is known of a stage and batch."""
        return self.stages.get((stage, batch)) or StageState()

    def why_due(self, stage: str, batch: int) -> str | None:
        """Why the stage must run (again) for a batch of the ledger; None when it need not."""
        state = self.state(stage, batch)
        if not state.last_event:
            return "never ran"
        if state.last_event == "failed":
            return f"failed: {state.error}"
        if state.last_event == "started":
            return "a run was killed, or goes on"
        reading = self._reading(stage, batch)
        if not self._is_kept(state.input, reading):
            if batch in self.removed:
                return "withdrawn"
            return "lines of it were corrected" if _files_in(state.input) == _files_in(reading) else "its files changed"
        if state.reopened > state.started:
            return state.reopened_because
        now = self._upstream_now(stage, batch)
        again = [up for up, entry in now.items() if state.upstream.get(up) != entry]
        return f"{' and '.join(again)} ran again" if again else None

    def is_due(self, stage: str, batch: int) -> bool:
        """Whether the stage must run (again) for a batch of the ledger."""
        return self.why_due(stage, batch) is not None

    def due(self, stage: str) -> list[BatchId]:
        """The batches that a stage must run for, in order."""
        return [batch for batch in self.batches if self.is_due(stage, batch)]

    def _upstream_now(self, stage: str, batch: int) -> dict[str, int]:
        states = ((up, self.state(up, batch).succeeded) for up in self.upstream[stage])
        return {up: entry for up, entry in states if entry is not None}

    def _reading(self, stage: str, batch: int) -> str:
        """The input of a changelog partition: its files, the version of the reader, the last correction of a line."""
        side = self.inputs.get(stage)
        if side is None:
            return ""
        if not self.reads_landing:
            return self.state(stage, batch).started_input or ""
        files = self.input_of(batch, side)
        if not files:
            return ""
        corrected = self.corrections.newest(batch, side)
        return f"{files}:{self.reader}" + (f":{corrected}" if corrected is not None else "")

    def _is_kept(self, read: str | None, reading: str) -> bool:
        """What was read is what would be read now, or all that is new is the reader, and its rows may stay."""
        return read == reading or (_reader_of(read) in self.kept and _without_reader(read) == _without_reader(reading))

    def read_by_kept(self, stage: str) -> list[BatchId]:
        """The batches whose rows an older reader made, and that stay as they are."""
        return [batch for batch in self.batches if _reader_of(self.state(stage, batch).input) in self.kept]

    def never_started(self, stage: str, batches: Iterable[int]) -> bool:
        """Whether the stage cannot have committed anything for any of the batches."""
        return all(self.state(stage, batch).attempts == 0 for batch in batches)

    def never_did(self, stage: str, batches: Iterable[int], *counts: str) -> bool:
        """Whether no run of the stage for any of the batches, finished or not, can have counted any of these."""
        states = [self.state(stage, batch) for batch in batches]
        return all(st.attempts == st.successes and not any(st.totals.get(name) for name in counts) for st in states)

    def unchanged_since(self, stages: Iterable[str], entry: int) -> bool:
        """Whether every run of some stages, for whatever batch, had ended before an entry."""
        wanted = set(stages)
        return all(
            state.last_event in ("succeeded", "failed") and state.last_entry < entry
            for (stage, _), state in self.stages.items()
            if stage in wanted
        )

    def generations(self, stage: str) -> dict[int, int]:
        """The batches whose partition was ever rewritten, with their generation."""
        return {b: s.generation for (name, b), s in self.stages.items() if name == stage and s.generation > 0}

    # ---- checks

    def record_checks(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Records what a check found: `stage`, `name`, `severity`, `depth`, `first`, `last`, `passed`, `value`, ..."""
        for row in self.entries.append("checks", [{"event": "checked", **row} for row in rows]):
            self._checks.fold(row, self.batches)

    def failed_checks(self) -> list[FailedCheck]:
        """The batches that failed a critical check, and have neither been mended nor waived since."""
        counting = [one for one in self._checks.failed() if one.entry > self._mended(one) and self._is_asked(one)]
        kept = {one.place for one in counting} | {one.place for one in self._checks.waived}

        def lifted(one: FailedCheck) -> bool:
            """It was found with something upstream that is in order by now."""
            upstream = self.all_upstream(one.stage)
            return any(o.stage in upstream and o.place not in kept for o in self._checks.found_with(one))

        return [one for one in counting if not lifted(one)]

    def refusing(self, stage: str, batches: Iterable[int]) -> list[FailedCheck]:
        """The failed checks for which a stage does not run for some batches: those upstream, and what it asked itself.

        One that lies at no batch stops all of them, unless it is about what landed: then no batch is known to be wrong.
        """
        upstream, wanted = self.all_upstream(stage), set(batches)
        concerned = [
            one
            for one in self.failed_checks()
            if one.stage in upstream or (one.stage == stage and one.cure == AGREEMENT)
        ]
        concerned += self.restated_folds(stage)
        return [o for o in concerned if o.batch in wanted or (o.batch is None and o.cure != SOURCE and wanted)]

    def not_refused(self, stage: str, batches: Sequence[BatchId]) -> tuple[list[BatchId], list[FailedCheck]]:
        """The batches that a stage may run for, and the failed checks that stop the others."""
        refusing = self.refusing(stage, batches)
        left_out = {one.batch for one in refusing}
        return [] if None in left_out else [batch for batch in batches if batch not in left_out], refusing

    def waive(self, failed: Iterable[FailedCheck], reason: str) -> None:
        """Records that somebody takes failed checks upon himself, and why."""
        rows = [
            {"event": "waived", "stage": one.stage, "name": one.name, "reason": reason, "batches": one.batches}
            for one in failed
        ]
        for row in self.entries.append("checks", rows):
            self._checks.fold(row, self.batches)

    def agreed(self, stage: str, name: str) -> set[int]:
        """The batches with which somebody agreed, for what their landing files say now, when a stage asked."""
        places = [one for one in self._checks.waived if (one.stage, one.name) == (stage, name)]
        return {one.batch for one in places if one.batch is not None and one.entry > self._listed(one)}

    def _is_asked(self, failed: FailedCheck) -> bool:
        """It is no question, or one that would be asked today."""
        limit = self.limits.get(failed.name)
        return failed.cure != AGREEMENT or (limit is not None and failed.value > limit)

    def _listed(self, failed: FailedCheck) -> int:
        """Entry of the last change of what the stage of a check reads for its batch: files, or corrections of lines."""
        batch, side = failed.batch or 0, self.inputs[failed.stage]
        row = self.lists.get((batch, side))
        return max(row["entry"] if row else 0, self.corrections.newest(batch, side) or 0)

    def _mended(self, failed: FailedCheck) -> int:
        """Entry of the last rebuild of the stage; or of its last run for the batch, where that mends as well.

        What is wrong with a changelog is mended by reading its landing files again, and by nothing else. A question is
        asked again when others have landed.
        """
        if failed.cure == AGREEMENT:
            return max(self._listed(failed), self.state(failed.stage, failed.batch or 0).succeeded or 0)
        reads, ran = failed.stage in self.inputs and failed.cure != REBUILD, 0
        if failed.cure != REBUILD and failed.batch is not None:
            state = self.state(failed.stage, failed.batch)
            ran = 0 if reads and not state.versions else state.succeeded or 0  # an adopted run has no versions
        return max(ran, self._rebuilt(failed.stage, ("landing",) if reads else ("landing", "changelog")))

    def _rebuilt(self, stage: str, sources: Collection[str]) -> int:
        """Entry of the last rebuild of a stage from one of these sources; 0 when there was none."""
        finished = (row for row in self.rebuilds if row["event"] == "finished" and stage in (row["stages"] or ()))
        return max((int(row["entry"]) for row in finished if row["source"] in sources), default=0)

    def all_upstream(self, stage: str) -> set[str]:
        """Every stage that a stage depends on."""
        found = set(self.upstream[stage])
        return found.union(*(self.all_upstream(up) for up in found))

    def start(self, stage: str, batches: Sequence[int], run_id: str) -> dict[int, int]:
        """Records, before anything is committed, that a stage runs for these batches.

        Returns:
            The generation of each batch's partition; it grows when the stage reads other files than before, or other
            values that these lack.
        """
        rows: list[dict[str, Any]] = []
        for batch in batches:
            state = self.state(stage, batch)
            reading = self._reading(stage, batch)
            changed = state.attempts > 0 and (state.started_input != reading or state.reopened > state.started)
            rows.append(
                {
                    "event": "started",
                    "run_id": run_id,
                    "stage": stage,
                    "batch": int(batch),
                    "first": int(batches[0]),
                    "last": int(batches[-1]),
                    "generation": state.generation + changed,
                    "input": reading,
                    "upstream": list(self._upstream_now(stage, batch).items()),
                }
            )
        for row in self.entries.append("runs", rows):
            self._fold({**row, "error": None})
        self._started = {row["batch"]: row for row in rows}
        return {row["batch"]: row["generation"] for row in rows}

    def since(self, stage: str, entry: int) -> list[BatchId]:
        """The batches for which a stage was started since an entry."""
        return [batch for batch in self.batches if self.state(stage, batch).started > entry]

    def folded_since(self, entry: int) -> bool:
        """Whether old batches were folded since an entry."""
        return any(row["entry"] > entry for row in self._folds)

    def assume_started(self, stage: str, batches: Iterable[int], run_id: str) -> None:
        """Records a run of which only its commits are known: for all that is known it was killed."""
        rows = [
            {
                "event": "started",
                "run_id": run_id,
                "stage": stage,
                "batch": int(batch),
                "generation": self.state(stage, batch).generation,
                "input": None,
                "error": None,
            }
            for batch in batches
        ]
        for row in self.entries.append("runs", rows):
            self._fold(row)

    def reopen(
        self,
        stage: str,
        batches: Iterable[int],
        run_id: str,
        because: str = LACKING,
        versions: Mapping[str, int] | None = None,
    ) -> None:
        """Records that a stage is due for some batches, though they read what they read before.

        Args:
            stage: the stage.
            batches: the batches.
            run_id: of whoever found out.
            because: why.
            versions: by table the version up to which that accounts for its commits.
        """
        rows = [
            {
                "event": "reopened",
                "run_id": run_id,
                "stage": stage,
                "batch": int(batch),
                "reason": because,
                "error": None,
                "versions": [*(versions or {}).items()],
            }
            for batch in batches
        ]
        for row in self.entries.append("runs", rows):
            self._fold(row)

    def succeed(
        self,
        counts: Mapping[int, Mapping[str, int]],
        versions: Mapping[str, int],
        seconds: float,
        strategy: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Records, after everything is committed, what the started run did per batch, and how it went about it."""
        self._finish("succeeded", counts, versions, seconds, strategy=strategy, reason=reason)

    def fail(self, seconds: float, error: str) -> None:
        """Records that the started run failed; its batches stay due."""
        self._finish("failed", {}, {}, seconds, error=error)

    def _finish(
        self,
        event: str,
        counts: Mapping[int, Mapping[str, int]],
        versions: Mapping[str, int],
        seconds: float,
        **said: str | None,
    ) -> None:
        rows = [
            {
                **started,
                "event": event,
                "counts": [(k, int(v)) for k, v in counts.get(batch, {}).items()],
                "versions": [(k, int(v)) for k, v in versions.items()],
                "seconds": seconds,
                "error": None,
                **said,
            }
            for batch, started in self._started.items()
        ]
        for row in self.entries.append("runs", rows):
            self._fold(row)
        self._started = {}


def _files_in(reading: str | None) -> list[str]:
    """The part of an input that is about the files and how they are read, not about corrections."""
    return (reading or "").split(":")[:2]


def _reader_of(reading: str | None) -> str:
    """The version of the reader; empty where nothing was read."""
    return next(iter((reading or "").split(":")[1:2]), "")


def _without_reader(reading: str | None) -> list[str]:
    """The parts of an input that are about the files and about corrections."""
    files, *rest = (reading or "").split(":")
    return [files, *rest[1:]]


def _name_order(file: LandedFile) -> tuple[str, str]:
    return file.path.rsplit("/", 1)[-1], file.path
