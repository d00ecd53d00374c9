"""The state of a pipeline, read from its ledger alone, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fk_pipeline.blocks.unsent import never_sent
from fk_pipeline.cli.plan import forecast_as_json, notices_as_json
from fk_pipeline.console import print_lines, print_table, tell
from fk_pipeline.contract import loaded
from fk_pipeline.identity import QUARANTINING
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.checks import AGREEMENT, LANDING
from fk_pipeline.store.ledger.commits import READ, row_metadata
from fk_pipeline.store.neighbours import never_run
from fk_pipeline.words import counted, counts_of

VERDICTS_SHOWN = 12
"""The number of batches that the table for people shows; the JSON has all."""


def status_of(pipeline: Pipeline) -> dict[str, Any]:
    """Returns per batch and stage the state (done, due, rewritten since, started, failed), and totals."""
    ledger, kind = pipeline.ledger(), pipeline.spec.definition
    new = pipeline.look()
    finished = [t for st in ledger.runs.stages.values() if (t := st.finished_at) is not None]
    verdicts: dict[str, int] = {}
    for (stage, _), state in ledger.runs.stages.items():
        if stage == kind.result_stage:
            for name, number in state.counts.items():
                verdicts[name] = verdicts.get(name, 0) + number
    quarantined = sum(st.counts.get(name, 0) for st in ledger.runs.stages.values() for name in QUARANTINING)
    errors = {f"{stage} {batch}": st.error for (stage, batch), st in sorted(ledger.runs.stages.items()) if st.error}
    refused = pipeline.refusal()
    restated = [failure for stage in ledger.inputs for failure in ledger.folds.restated(stage)]
    return {
        "pipeline": pipeline.spec.name,
        "batches": [
            {"batch": int(b), "stages": {stage: _state(ledger, stage, b) for stage in kind.stage_names}}
            for b in ledger.batches
        ],
        "refused": None if refused is None else {"text": refused.what, "mended_by": refused.fix},
        "removed": sorted(ledger.files.removed),
        "due": sum(len(ledger.due.of(stage)) for stage in kind.stage_names),
        "new_files": len(new.discovered),
        "changed_files": len(new.changed),
        "vanished_files": len(new.vanished),
        "notices": notices_as_json(new.notices),
        "verdicts": verdicts,
        **_stands_for(pipeline.spec, ledger),
        **_last_runs(pipeline.spec, ledger),
        "quarantined": quarantined,
        "errors": errors,
        "never_sent": [
            {"side": unsent.side, "column": unsent.column, "batches": list(unsent.batches), "text": str(unsent)}
            for unsent in never_sent(pipeline.spec, ledger)
        ],
        "failed_checks": [
            {"batch": failure.batch, "stage": failure.stage, "check": failure.name, "mended_by": failure.remedy}
            for failure in [*ledger.checks.failed(), *restated]
        ],
        **({} if ledger.runs.stages else {"never_run": never_run(pipeline.spec)}),
        "behind": [
            {"table": lag.table, "stage": lag.stage, "what": lag.what, "mended_by": lag.fix(pipeline.spec)}
            for lag in pipeline.behind(new)
        ],
        "last_run": max(finished).isoformat() if finished else None,
        "seconds_since_last_run": round((datetime.now(UTC) - max(finished)).total_seconds()) if finished else None,
    }


def _stands_for(spec: PipelineSpec, ledger: Ledger) -> dict[str, dict[str, str]]:
    """Returns what the result stands for, besides its batches: a clock for example; empty if there is nothing."""
    kind = spec.definition
    if not kind.stands_for:
        return {}
    path = f"{spec.home}/{kind.result.name}"
    version = ledger.logs.version(path)
    return {"stands_for": {} if version is None else loaded(kind.stands_for)(row_metadata(path, version))}


def _last_runs(spec: PipelineSpec, ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Returns, per stage, what its last run was to take beside what it took; empty if the kind makes no forecasts."""
    kind, runs = spec.definition, dict[str, Any]()
    if not kind.forecast_of:
        return {}
    for stage in kind.stage_names:
        path = f"{spec.home}/{stage}"
        version, last = ledger.logs.version(path), ledger.runs.last_of(stage)
        facts = {} if version is None else row_metadata(path, version)
        made = loaded(kind.forecast_of)(facts)
        if made is None or last is None or last.versions.get(stage, -1) != facts[READ]:
            continue
        forecast = {name: value for name, value in forecast_as_json(made).items() if name != "why"}
        runs[stage] = forecast | {"predicted_seconds": forecast.pop("seconds"), "seconds": round(last.seconds, 3)}
    return {"last_runs": runs}


def _mending(remedy: str) -> str:
    """Returns a remedy in words."""
    return {LANDING: "a rebuild from the landing files", AGREEMENT: "your agreement"}.get(remedy, f"a {remedy}")


def _state(ledger: Ledger, stage: str, batch: int) -> str:
    state = ledger.state(stage, batch)
    if not ledger.due.has(stage, batch):
        return "done"
    if state.last_event in ("started", "failed"):
        return state.last_event
    return "rewritten since" if state.succeeded is not None else "due"


def _line_of_run(last: tuple[str, dict[str, Any]]) -> str:
    """Returns what the last run of a stage took, and was to take."""
    stage, run = last
    predicted, taken = (f"{run[name]:.1f} s" for name in ("predicted_seconds", "seconds"))
    rows = counted(run["changed_rows"], "changed row")
    return f"{stage}: last run {run['way']}, {rows}, {taken} (predicted {predicted})"


def print_status(status: dict[str, Any], file: Path) -> None:
    """Prints the status of a pipeline file for people: the batches that are not done, or the newest ones."""
    batches = status["batches"]
    open_batches = [b for b in batches if set(b["stages"].values()) != {"done"}]
    shown = (open_batches or batches)[-VERDICTS_SHOWN:]
    number = counted(len(batches), "batch", "batches")
    tell(f"{status['pipeline']}: {number}, {len(open_batches):,} of them with work due")
    if status["refused"]:
        tell(f"nothing runs: {status['refused']['text']}")
        tell(f"fix: {status['refused']['mended_by']}")
    if shown:
        print_table(["batch", *shown[0]["stages"]], [[str(b["batch"]), *b["stages"].values()] for b in shown])
    if status["removed"]:
        tell(f"withdrawn batches: {', '.join(map(str, status['removed']))}")
    for what in ("new_files", "changed_files"):
        if status[what]:
            tell(f"{what.replace('_', ' ')}: {status[what]:,}")
    print_lines(f"note: {notice['text']}" for notice in status["notices"])
    print_lines(f"warning: {warning['text']}" for warning in status["never_sent"])
    if status["quarantined"]:
        tell(f"quarantined: {status['quarantined']:,}; 'fk-pipeline quarantine {file}' lists them")
    if any(status["verdicts"].values()):
        tell(f"verdicts: {', '.join(counts_of(dict(sorted(status['verdicts'].items()))))}")
    print_lines(f"{name}: {text}" for name, text in status.get("stands_for", {}).items())
    print_lines(map(_line_of_run, status.get("last_runs", {}).items()))
    for where, error in status["errors"].items():
        tell(f"failed: {where}: {error}")
    for failure in status["failed_checks"]:
        where = "the whole table" if failure["batch"] is None else f"batch {failure['batch']}"
        check = f"{failure['check']} of {failure['stage']}, {where}"
        tell(f"failed check: {check}; mended by {_mending(failure['mended_by'])}")
    if "never_run" in status:
        tell(status["never_run"])
    for lag in status["behind"]:
        tell(f"behind the ledger: {lag['what']}; mended by: {lag['mended_by']}")
    tell(f"last run: {status['last_run'] or 'never'}")
