"""Decides which stage must run for which batch, and why. No Spark."""

from __future__ import annotations

from typing import Protocol

from fk_pipeline.contract import Kind
from fk_pipeline.identity import BatchId
from fk_pipeline.store.ledger.corrections import CorrectionLog
from fk_pipeline.store.ledger.files import FileLog
from fk_pipeline.store.ledger.runs import RunLog


class Reading(Protocol):
    """Returns the input of a stage for a batch, without the stages upstream, as a text; another text makes it due.

    Attributes:
        landing: whether the input is the current landing files.
    """

    landing: bool

    def __call__(self, stage: str, batch: int) -> str:
        """Returns the text; empty where there is nothing to read."""
        ...


class LandingReading:
    """The landing input: the files of a batch, the version of the reader, and the last correction of a line.

    Of a stage that reads tables where they lie: their versions.
    """

    landing = True

    def __init__(self, kind: Kind, files: FileLog, corrections: CorrectionLog, reader: str) -> None:
        self._sides = {logged.stage: logged.name for logged in kind.logged}
        self._tables = {stage.name: stage.inputs for stage in kind.stages if stage.inputs}
        self._files, self._corrections, self._reader = files, corrections, reader

    def __call__(self, stage: str, batch: int) -> str:
        """Returns `FILES:READER`, `FILES:READER:CORRECTION`, or `VERSIONS`; empty if there is nothing to read."""
        if stage in self._tables:
            return "+".join(filter(None, (self._files.digest(batch, side) for side in self._tables[stage])))
        side = self._sides.get(stage)
        files = self._files.digest(batch, side) if side is not None else ""
        if side is None or not files:
            return ""
        corrected = self._corrections.newest(batch, side)
        return f"{files}:{self._reader}" + (f":{corrected}" if corrected is not None else "")


class StoredReading:
    """The input that a stage has read before, regardless of later files; for a rebuild that reads changelogs.

    Of tables that are read where they lie nothing is stored: `landing` tells of them.
    """

    landing = False

    def __init__(self, kind: Kind, runs: RunLog, landing: LandingReading) -> None:
        self._stages, self._runs, self._landing = {logged.stage for logged in kind.logged}, runs, landing

    def __call__(self, stage: str, batch: int) -> str:
        """Returns the input of the last start of the stage; empty if it reads no landing files."""
        if stage not in self._stages:
            return self._landing(stage, batch)
        return self._runs.state(stage, batch).started_input or ""


class Due:
    """Decides which stage must run for which batch, from its input, its runs and the runs of the stages upstream."""

    def __init__(self, kind: Kind, files: FileLog, runs: RunLog, reading: Reading) -> None:
        """Takes the input that each stage would read now, and the input that it has read.

        Args:
            kind: which stages are upstream of which.
            files: the batches.
            runs: the inputs that were read.
            reading: the input that would be read now.
        """
        self._upstream = {stage.name: stage.upstream for stage in kind.stages}
        self._files, self._runs, self.reading = files, runs, reading

    def why(self, stage: str, batch: int) -> str | None:
        """Returns why the stage must run (again) for a batch of the ledger; None if it need not."""
        state = self._runs.state(stage, batch)
        if not state.last_event:
            return "never ran"
        if state.last_event == "failed":
            return f"failed: {state.error}"
        if state.last_event == "started":
            return "a run was killed, or goes on"
        reading = self.reading(stage, batch)
        if state.input != reading:
            if batch in self._files.removed:
                return "withdrawn"
            return "lines of it were corrected" if _files_in(state.input) == _files_in(reading) else "its files changed"
        if state.reopened > state.started:
            return state.reopened_because
        now = self.upstream_now(stage, batch)
        again = [up for up, entry in now.items() if state.upstream.get(up) != entry]
        return f"{' and '.join(again)} ran again" if again else None

    def has(self, stage: str, batch: int) -> bool:
        """Returns whether the stage must run (again) for a batch of the ledger."""
        return self.why(stage, batch) is not None

    def of(self, stage: str) -> list[BatchId]:
        """Returns the batches that a stage must run for, in order."""
        return [batch for batch in self._files.batches if self.has(stage, batch)]

    def by_stage(self) -> dict[str, list[int]]:
        """Returns the due batches of each stage that has any, stages in running order."""
        return {stage: [*map(int, batches)] for stage in self._upstream if (batches := self.of(stage))}

    def upstream_now(self, stage: str, batch: int) -> dict[str, int]:
        """Returns, per stage directly upstream that has succeeded for a batch, the entry of its last success."""
        states = ((up, self._runs.state(up, batch).succeeded) for up in self._upstream[stage])
        return {up: entry for up, entry in states if entry is not None}

    def all_upstream(self, stage: str) -> set[str]:
        """Returns every stage that a stage depends on, directly or not."""
        direct = set(self._upstream[stage])
        return direct.union(*(self.all_upstream(up) for up in direct))


def without_reader(reading: str | None) -> list[str]:
    """Returns the parts of an input text about files and corrections, without the version of the reader."""
    files, *rest = (reading or "").split(":")
    return [files, *rest[1:]]


def _files_in(reading: str | None) -> list[str]:
    """Returns the parts of an input text about files and the version of the reader, without corrections."""
    return (reading or "").split(":")[:2]
