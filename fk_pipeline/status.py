"""The state of a pipeline, read from its ledger and the names of its landing files, without Spark."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NotRequired, TypedDict

from deltalake import DeltaTable

from fk_pipeline.blocks.unsent import never_sent
from fk_pipeline.contract import loaded
from fk_pipeline.environment import storage
from fk_pipeline.identity import QUARANTINING
from fk_pipeline.opened import OpenPipeline
from fk_pipeline.result_rows import UpTo, result_rows, up_to
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store import LEDGER_TABLES
from fk_pipeline.store.disk_use import Size, size_of
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import READ, row_metadata
from fk_pipeline.store.neighbours import never_run


class Status(TypedDict):
    """The state of a pipeline, as JSON has it.

    Attributes:
        pipeline: its name.
        result: the rows of the result (`ResultCounts`), with `up_to_batch`, the last of the batches that it has, and
            `written_at`, when it was last brought up to date, in ISO 8601.
        due_batches: the batches for which work is due.
        sizes: if asked for, the size of every table and of all together, `tables` and `total` (`disk_use.Size`).
        batches: per batch `batch`, its number, and `stages`: the state of each stage, which is `done`, `due`,
            `rewritten since`, `started` or `failed`.
        refused: why nothing runs: `text` and `mended_by`; None if nothing is refused.
        removed: the batches that were withdrawn.
        due: the number of stage runs that are due.
        new_files, changed_files, vanished_files: what the next run would find in the landing folders.
        notices: about landing files: `side`, `kind`, `files`, `first`, `text`.
        verdicts: responses per verdict, by the last run of every batch.
        stands_for: what the result stands for besides its batches, in words: a clock, for example.
        last_runs: per stage what its last run was to take, and took.
        quarantined: records in the quarantine, by the last run of every batch.
        errors: messages of failed runs by `stage batch`.
        never_sent: columns that no row ever had: `side`, `column`, `batches`, `text`.
        failed_checks: critical checks that count against a batch or table: `batch`, `stage`, `check`, `mended_by`.
        never_run: if nothing was ever run, a sentence that says it.
        behind: tables that differ from the ledger: `table`, `stage`, `what`, `mended_by`.
        last_run: the end of the newest stage run that ended, in ISO 8601; None before the first.
        seconds_since_last_run: how long ago that is.
    """

    pipeline: str
    result: dict[str, Any]
    due_batches: list[int]
    sizes: NotRequired[dict[str, Any]]
    batches: list[dict[str, Any]]
    refused: dict[str, str] | None
    removed: list[int]
    due: int
    new_files: int
    changed_files: int
    vanished_files: int
    notices: list[dict[str, Any]]
    verdicts: dict[str, int]
    stands_for: NotRequired[dict[str, str]]
    last_runs: NotRequired[dict[str, dict[str, Any]]]
    quarantined: int
    errors: dict[str, str]
    never_sent: list[dict[str, Any]]
    failed_checks: list[dict[str, Any]]
    never_run: NotRequired[str]
    behind: list[dict[str, str]]
    last_run: str | None
    seconds_since_last_run: int | None


def status_of(pipeline: OpenPipeline, *, sizes: bool = False) -> Status:
    """Returns what the result has, per batch and stage the state, and totals; with `sizes` those of the tables.

    Raises:
        StateError: the ledger is damaged, or another pipeline's.
        PipelineFileError, LandingError: as with `OpenPipeline.look`.
    """
    ledger, spec, kind = pipeline.ledger(), pipeline.spec, pipeline.spec.definition
    new, refused, stages = pipeline.look(), pipeline.refusal(), ledger.runs.stages
    finished = max((ended for state in stages.values() if (ended := state.finished_at) is not None), default=None)
    since = up_to(spec, ledger)
    status: Status = {
        "pipeline": spec.name,
        "result": _of_result(spec, ledger, since),
        "due_batches": [*since.due],
        "batches": [
            {"batch": int(b), "stages": {stage: _state(ledger, stage, b) for stage in kind.stage_names}}
            for b in ledger.batches
        ],
        "refused": None if refused is None else {"text": refused.what, "mended_by": refused.fix},
        "removed": sorted(map(int, ledger.files.removed)),
        "due": sum(len(ledger.due.of(stage)) for stage in kind.stage_names),
        "new_files": len(new.discovered),
        "changed_files": len(new.changed),
        "vanished_files": len(new.vanished),
        "notices": [asdict(notice) for notice in new.notices],
        "verdicts": _verdicts(ledger, kind.result_stage),
        "quarantined": sum(state.counts.get(name, 0) for state in stages.values() for name in QUARANTINING),
        "errors": {f"{stage} {batch}": state.error for (stage, batch), state in sorted(stages.items()) if state.error},
        "never_sent": [
            {"side": unsent.side, "column": unsent.column, "batches": list(unsent.batches), "text": str(unsent)}
            for unsent in never_sent(spec, ledger)
        ],
        "failed_checks": _failed_checks(ledger),
        "behind": [
            {"table": lag.table, "stage": lag.stage, "what": lag.what, "mended_by": lag.fix(spec)}
            for lag in pipeline.behind(new)
        ],
        "last_run": None if finished is None else finished.isoformat(),
        "seconds_since_last_run": None if finished is None else round((datetime.now(UTC) - finished).total_seconds()),
    }
    if sizes:
        status["sizes"] = sizes_of(spec)
    if kind.stands_for:
        status["stands_for"] = _stands_for(spec, ledger)
    if kind.forecast_of:
        status["last_runs"] = _last_runs(spec, ledger)
    if not stages:
        status["never_run"] = never_run(spec)
    return status


def _of_result(spec: PipelineSpec, ledger: Ledger, since: UpTo) -> dict[str, Any]:
    """Returns the rows of the result, with the batches that it has."""
    written = None if since.written_at is None else since.written_at.isoformat()
    return asdict(result_rows(spec, ledger)) | {"up_to_batch": since.batch, "written_at": written}


def sizes_of(spec: PipelineSpec) -> dict[str, Any]:
    """Returns the size of every table of a pipeline and of its ledger, and of all together (`disk_use.Size`)."""
    names = [*(table.name for table in spec.definition.tables), *LEDGER_TABLES]
    paths = {name: f"{spec.home}/{name}" for name in names}
    sizes = {
        name: size_of(path)
        for name, path in paths.items()
        if DeltaTable.is_deltatable(path, storage.delta_options(path))
    }
    tables = [{"table": name, **asdict(size)} for name, size in sizes.items()]
    return {"tables": tables, "total": asdict(sum(sizes.values(), Size(0, 0, 0)))}


def _verdicts(ledger: Ledger, result_stage: str) -> dict[str, int]:
    """Returns the number of responses per verdict."""
    verdicts: dict[str, int] = {}
    for (stage, _), state in ledger.runs.stages.items():
        if stage == result_stage:
            for name, number in state.counts.items():
                verdicts[name] = verdicts.get(name, 0) + number
    return verdicts


def _failed_checks(ledger: Ledger) -> list[dict[str, Any]]:
    """Returns the critical checks that count against a batch or a table; of folded batches those that landed anew."""
    restated = [failure for stage in ledger.inputs for failure in ledger.folds.restated(stage)]
    return [
        {"batch": failure.batch, "stage": failure.stage, "check": failure.name, "mended_by": failure.remedy}
        for failure in [*ledger.checks.failed(), *restated]
    ]


def _stands_for(spec: PipelineSpec, ledger: Ledger) -> dict[str, str]:
    """Returns what the result stands for, besides its batches: a clock for example."""
    kind = spec.definition
    path = f"{spec.home}/{kind.result.name}"
    version = ledger.logs.version(path)
    if version is None:
        return {}
    facts: dict[str, str] = loaded(kind.stands_for)(row_metadata(path, version))
    return facts


def _last_runs(spec: PipelineSpec, ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Returns, per stage, what its last run was to take beside what it took."""
    kind, runs = spec.definition, dict[str, dict[str, Any]]()
    for stage in kind.stage_names:
        path = f"{spec.home}/{stage}"
        version, last = ledger.logs.version(path), ledger.runs.last_of(stage)
        facts = {} if version is None else row_metadata(path, version)
        made = loaded(kind.forecast_of)(facts)
        if made is None or last is None or last.versions.get(stage, -1) != facts[READ]:
            continue
        forecast = {name: value for name, value in made.as_json().items() if name != "why"}
        runs[stage] = forecast | {"predicted_seconds": forecast.pop("seconds"), "seconds": round(last.seconds, 3)}
    return runs


def _state(ledger: Ledger, stage: str, batch: int) -> str:
    state = ledger.state(stage, batch)
    if not ledger.due.has(stage, batch):
        return "done"
    if state.last_event in ("started", "failed"):
        return state.last_event
    return "rewritten since" if state.succeeded is not None else "due"
