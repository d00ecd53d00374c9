"""How a pipeline stands, in one sentence and in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from fk_pipeline.contract import loaded
from fk_pipeline.errors import FkPipelineError
from fk_pipeline.identity import QUARANTINING
from fk_pipeline.readable import ReadablePipeline
from fk_pipeline.report.batches import BatchFacts
from fk_pipeline.result_rows import result_rows
from fk_pipeline.store.ledger.commits import row_metadata
from fk_pipeline.store.neighbours import never_run
from fk_pipeline.words import counted


class State(TypedDict):
    """How a pipeline stands.

    Attributes:
        sentence: the whole in a sentence.
        tone: `good`: nothing is to be done; `due`: work is due; `bad`: somebody must look.
        due: stage runs that are due.
        due_batches: batches with work due.
        red_checks: critical checks that count against a batch or a table.
        failed: stage runs of batches that failed, and have not run since, the newest last: `stage`, `batch`, `error`.
        refused: why nothing runs, and what mends it; None if nothing is refused.
        landed: new and changed files that no run has read; None: not looked for.
    """

    sentence: str
    tone: str
    due: int
    due_batches: int
    red_checks: int
    failed: list[dict[str, str | int]]
    refused: str | None
    landed: int | None


class Totals(TypedDict):
    """Numbers of now.

    Attributes:
        rows: rows of the result.
        matched, unmatched: of these, rows with a match and without; None: the kind has no matches, or not counted.
        quarantined: records in the quarantine, by the last run of each batch.
        batches: known batches; `withdrawn`: of these, withdrawn ones.
        last_run: when the last stage run ended.
        stands_for: what the result stands for, by name, such as the clock of a windowed join.
    """

    rows: int | None
    matched: int | None
    unmatched: int | None
    quarantined: int
    batches: int
    withdrawn: int
    last_run: str | None
    stands_for: dict[str, str]


FAILURES = 20
"""The most failures that are listed."""

ERROR_CHARACTERS = 500
"""The most characters of the message of one."""


def state_of(pipeline: ReadablePipeline, *, looks: bool) -> State:
    """Returns how a pipeline stands, by its ledger; with `looks` also whether files have landed that it lacks."""
    ledger, kind = pipeline.ledger(), pipeline.spec.definition
    due = {stage: ledger.due.of(stage) for stage in kind.stage_names}
    red, refusal = len(ledger.checks.failed()), pipeline.refusal()
    failed: list[dict[str, str | int]] = [
        {"stage": stage, "batch": batch, "error": (state.error or "")[:ERROR_CHARACTERS]}
        for (stage, batch), state in sorted(ledger.runs.stages.items(), key=lambda item: item[1].last_entry)
        if state.last_event == "failed"
    ]
    refused = None if refusal is None else f"{refusal.what}; {refusal.fix}" if refusal.fix else refusal.what
    state: State = {
        "sentence": "",
        "tone": "good",
        "due": sum(map(len, due.values())),
        "due_batches": len({batch for batches in due.values() for batch in batches}),
        "red_checks": red,
        "failed": failed[-FAILURES:],
        "refused": refused,
        "landed": _landed(pipeline) if looks else None,
    }
    never = "" if ledger.runs.stages else never_run(pipeline.spec)
    bad, open_ = _bad(state, len(failed)), _open(state)
    state["tone"] = "bad" if bad or never else "due" if open_ else "good"
    state["sentence"] = _capital("; ".join([*([never] if never else []), *bad, *open_]) or "up to date")
    return state


def _bad(state: State, failed: int) -> list[str]:
    parts = [f"nothing runs: {state['refused']}"] if state["refused"] else []
    parts += [f"{counted(state['red_checks'], 'check')} red"] if state["red_checks"] else []
    return parts + ([f"{counted(failed, 'stage run')} failed"] if failed else [])


def _open(state: State) -> list[str]:
    parts = [f"{counted(state['due_batches'], 'batch', 'batches')} due"] if state["due"] else []
    return parts + ([f"{counted(state['landed'], 'landed file')} not read yet"] if state["landed"] else [])


def _capital(sentence: str) -> str:
    return f"{sentence[0].upper()}{sentence[1:]}."


def _landed(pipeline: ReadablePipeline) -> int | None:
    try:
        landed = pipeline.look()
    except (FkPipelineError, OSError):
        return None
    return len(landed.discovered) + len(landed.changed)


def totals_of(pipeline: ReadablePipeline, batches: Sequence[BatchFacts], until: float, left_out: list[str]) -> Totals:
    """Returns the numbers of now.

    Args:
        pipeline: the pipeline.
        batches: its batches.
        until: when to count rows without a match no more (`time.monotonic`).
        left_out: takes a sentence if they are not counted.
    """
    ledger, kind = pipeline.ledger(), pipeline.spec.definition
    path = f"{pipeline.spec.home}/{kind.result.name}"
    result, version = result_rows(pipeline.spec, ledger, until), ledger.logs.version(path)
    if result.not_counted:
        left_out.append(f"Rows without a match are not counted: {result.not_counted}.")
    ended = [state.finished_at for state in ledger.runs.stages.values() if state.finished_at is not None]
    stands_for = loaded(kind.stands_for) if kind.stands_for else None
    return {
        "rows": result.rows,
        "matched": result.matched,
        "unmatched": result.unmatched,
        "quarantined": sum(st.counts.get(name, 0) for st in ledger.runs.stages.values() for name in QUARANTINING),
        "batches": len(batches),
        "withdrawn": len(ledger.files.removed),
        "last_run": max(ended).isoformat(timespec="seconds") if ended else None,
        "stands_for": {} if stands_for is None or version is None else stands_for(row_metadata(path, version)),
    }
