"""The command `run`: runs what is due of one or more pipelines, and tells at the end what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fk_pipeline.cli import completion
from fk_pipeline.cli.options import Debug, FormatOption, Pipelines, project_of_command, share_session
from fk_pipeline.cli.several import Ended, each, end, print_values
from fk_pipeline.console import OutputFormat, Progress, print_lines, print_table, say, tell
from fk_pipeline.errors import FkPipelineError, UsageError
from fk_pipeline.identity import QUARANTINING
from fk_pipeline.spec.project import Project
from fk_pipeline.words import counted

if TYPE_CHECKING:
    from fk_pipeline.engine.runner import StageRun


def run(
    context: typer.Context,
    pipelines: Pipelines,
    batches: Annotated[
        str | None,
        typer.Option(metavar="BATCHES", help="exactly these: 3,7,9..12; default: all that is due"),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            metavar="STAGES", help="only these, comma-separated; default: all", autocompletion=completion.stages
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="check each pass before the next")] = False,
    waive: Annotated[
        str | None, typer.Option(metavar="REASON", help="go on with batches that failed a check; recorded")
    ] = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="take over tables whose landing files have moved")] = False,
    now: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="what clocks show, 2026-05-01 or 2026-05-01T13:00; default: the real time",
        ),
    ] = None,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Discovers batches and runs the stages."""
    project = project_of_command(pipelines, inline=not (batches or stages))
    several, as_text = len(project.files) > 1, format_ is OutputFormat.TEXT
    if several and (batches or stages):
        raise UsageError("--batches and --stages are of one pipeline", fix="name one pipeline file")
    if several and now is not None:
        refuse_without_clock(project)
    share_session(project)
    names = stages.split(",") if stages else None
    work = _Work(batches, names, waive, adopt, now, check=check, several=several, as_text=as_text)
    try:
        outcomes = each(project, work, context, waits=True, named=as_text)
    finally:
        if not several:
            _end_of_one(work.runs, as_text)
    if several and as_text:
        print_summary(outcomes, work.runs)
    elif several:
        values = {outcome.file: _as_json(outcome, work.runs.get(outcome.file, ())) for outcome in outcomes}
        print_values(format_, outcomes, values)
    end(outcomes)


@dataclass(frozen=True)
class _Work:
    """The work of the command for a pipeline file, called as `several.Work`; it keeps what ran.

    `batches`, `stages`, `waive`, `adopt` and `now` are arguments of `Pipeline.run`. Of several pipelines, only those
    with a clock get `now`.

    Attributes:
        check: whether every pass is checked before the next one runs.
        several: whether the command has several pipelines.
        as_text: whether people are told that nothing was due.
        runs: per file the passes that ended, also before an error.
    """

    batches: str | None
    stages: Sequence[str] | None
    waive: str | None
    adopt: bool
    now: str | None
    _: KW_ONLY
    check: bool
    several: bool
    as_text: bool
    runs: dict[Path, Sequence[StageRun]] = field(default_factory=dict)

    def __call__(self, file: Path, _: tuple[str, ...]) -> int:
        """Runs what is due of the pipeline; returns the exit status."""
        from fk_pipeline.pipeline import load

        loaded, shown = load(file), Progress()
        set_to = self.now if not self.several or loaded.spec.clocks else None
        if self.check:
            from fk_pipeline.cli.verify import Checking

            shown = Checking(loaded)
        self.runs[file] = shown.runs
        with shown as progress:
            given = self.batches, self.stages, progress, self.waive, self.adopt, lambda text: say(f"note: {text}")
            loaded.run(*given, inline=False, now=set_to)
        if self.as_text and not shown.runs:
            tell("Nothing is due.")
        return 0


def refuse_without_clock(project: Project) -> None:
    """Refuses `--now` for pipelines of which none has a clock.

    Raises:
        UsageError: none has one.
    """
    from fk_pipeline.passes import NO_CLOCK
    from fk_pipeline.spec import load_spec

    if not any(load_spec(file).clocks for file in project.files if file not in project.wrong):
        raise UsageError("no pipeline has a clock to set", fix=NO_CLOCK)


def _end_of_one(runs: dict[Path, Sequence[StageRun]], as_text: bool) -> None:
    """Prints what a run of a single pipeline did, also before an error that ended it."""
    for file, passes in runs.items():
        if not as_text:
            print_values(OutputFormat.JSON, [Ended(file, "")], {file: list(map(_run_as_json, passes))})
        number = quarantined(passes)
        if number:
            (tell if as_text else say)(_where_they_are(number, "", file))


def quarantined(runs: Sequence[StageRun]) -> int:
    """Returns the number of records that runs wrote to the quarantine; of a batch that ran twice, the last time."""
    last = {(run.stage, batch): counts for run in runs for batch, counts in run.counts.items()}
    return sum(counts.get(name, 0) for counts in last.values() for name in QUARANTINING)


def print_summary(outcomes: Sequence[Ended], runs: dict[Path, Sequence[StageRun]]) -> None:
    """Prints what became of several pipelines: what ran, failed and waits, and what went to the quarantine."""
    words = [_word(outcome) for outcome in outcomes]
    shown = {"ran": "ran", "failed": "failed", "waits": "waiting"}
    title = ", ".join(f"{words.count(word)} {text}" for word, text in shown.items() if word in words)
    rows, lines = [], []
    for outcome in outcomes:
        passes = runs.get(outcome.file, ())
        number = quarantined(passes)
        rows.append([outcome.name, _what(outcome, passes), str(len(passes)), f"{number:,}"])
        lines += [_why(outcome)] if outcome.error is not None else []
        lines += [_where_they_are(number, f" of {outcome.name}", outcome.file)] if number else []
    tell()
    print_table(["pipeline", "outcome", "passes", "to quarantine"], rows, f"{len(outcomes)} pipelines: {title}")
    print_lines(lines)


def _word(outcome: Ended) -> str:
    """Returns the outcome as one word, which the JSON has, too."""
    return "waits" if outcome.waits_for else "failed" if outcome.status else "ran"


def _what(outcome: Ended, passes: Sequence[StageRun]) -> str:
    """Returns the outcome for people."""
    if outcome.waits_for:
        return f"waits for {', '.join(outcome.waits_for)}"
    return _word(outcome) if passes or outcome.status else "nothing was due"


def _why(outcome: Ended) -> str:
    """Returns the error of a pipeline as one line."""
    error = outcome.error
    if not isinstance(error, FkPipelineError):
        return f"{outcome.name} failed: {error}"
    return f"{outcome.name} failed: {error.what}" + (f". Fix: {error.fix}" if error.fix else "")


def _where_they_are(number: int, whose: str, file: Path) -> str:
    records = counted(number, "record")
    return f"{records}{whose} went to the quarantine: 'fk-pipeline quarantine {file}' shows them, and why"


def _as_json(outcome: Ended, passes: Sequence[StageRun]) -> dict[str, Any]:
    """Returns the JSON of one of several pipelines."""
    return {
        "file": str(outcome.file),
        "outcome": _word(outcome),
        "status": outcome.status,
        "runs": list(map(_run_as_json, passes)),
        "quarantined": quarantined(passes),
    }


def _run_as_json(result: StageRun) -> dict[str, Any]:
    return {
        "stage": result.stage,
        "batches": [int(result.batches.first), int(result.batches.last)],
        "run_id": result.run_id,
        "seconds": round(result.seconds, 3),
        "counts": {str(batch): counts for batch, counts in sorted(result.counts.items())},
        "versions": result.versions,
        "strategy": result.choice.strategy if result.choice else None,
        "reason": result.choice.reason if result.choice else None,
        "notes": list(result.notes),
        "warnings": list(result.warnings),
    }


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Example: fk-pipeline run pipeline.yaml --batches 3,7,9..12 --stages responses,resolved_join",
        short_help="Discovers batches and runs the stages.",
    )(run)
