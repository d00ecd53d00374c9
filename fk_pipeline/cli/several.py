"""A command for several pipelines: one that fails stops those that read its result, and no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from fk_pipeline.cli.options import debugging, remember
from fk_pipeline.console import OutputFormat, print_json, say, say_error, tell
from fk_pipeline.environment.refusals import refusal
from fk_pipeline.errors import ConcealedError, FkPipelineError
from fk_pipeline.spec.project import Project


@dataclass(frozen=True)
class Ended:
    """What became of one pipeline.

    Attributes:
        file: its file.
        name: its name, as in `Project.names`.
        status: the exit status of the command for it alone.
        error: the error that ended its work; None without one.
        waits_for: the pipelines whose results it reads and that failed, or wait themselves.
    """

    file: Path
    name: str
    status: int = 0
    error: Exception | None = None
    waits_for: tuple[str, ...] = ()


Work = Callable[[Path, tuple[str, ...]], int]
"""The work of a command for one pipeline file: gets also the names of `Ended.waits_for`, returns the exit status."""


def each(project: Project, work: Work, context: typer.Context, *, waits: bool, named: bool) -> list[Ended]:
    """Does the work of a command for every pipeline of a project, in the order in which they feed each other.

    Of several pipelines an error is printed, and ends the work of one. That of the only one is raised.

    Args:
        project: the pipelines.
        work: the work for one.
        context: the context of the command; it remembers the file that is at work.
        waits: whether pipelines that read the result of one that failed are left out.
        named: whether to print the name of each of several pipelines before its work.
    """
    if len(project.files) == 1:
        [file] = project.files
        return [Ended(file, project.names[file], work(remember(context, file), ()))]
    stopped: dict[Path, str] = {}
    outcomes = []
    for file in project.files:
        name = project.names[file]
        before = tuple(stopped[other] for other in project.reads[file] if other in stopped)
        if named:
            tell(f"Pipeline {name}")
            sys.stdout.flush()
        if before and (waits or file in project.wrong):
            outcome = Ended(file, name, waits_for=before)
            say(f"{name} waits for {' and '.join(before)}")
        else:
            outcome = _done(remember(context, file), name, project, work, before)
        outcomes.append(outcome)
        if outcome.status or before:
            stopped[file] = name
    return outcomes


def _done(file: Path, name: str, project: Project, work: Work, before: tuple[str, ...]) -> Ended:
    """Does the work for one of several pipelines, and prints the error that ends it."""
    if file in project.wrong:
        return Ended(file, name, *failed(project.wrong[file]), before)
    try:
        with telling_damage_of(file):
            return Ended(file, name, work(file, before), waits_for=before)
    except Exception as raised:  # noqa: BLE001 - whatever ends the work of one pipeline, the others go on
        return Ended(file, name, *failed(raised), before)


def failed(raised: Exception) -> tuple[int, Exception]:
    """Prints the error that ended a command, or its work for a pipeline; returns the exit status, and that error."""
    error = raised if isinstance(raised, FkPipelineError) else refusal(raised, "") or raised
    say_error(error, raised if debugging() else None)
    return error.exit_code if isinstance(error, FkPipelineError) else 1, error


@contextmanager
def telling_damage_of(file: Path) -> Iterator[None]:
    """Replaces errors of Spark, delta-rs and Arrow that a damaged table of a pipeline caused; others pass unchanged.

    Raises:
        StateError: a table of the pipeline is damaged.
    """
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if isinstance(error, FkPipelineError) and not isinstance(error, ConcealedError):
            raise
        from fk_pipeline.engine.damage import telling_damage
        from fk_pipeline.spec import load_spec

        with telling_damage(load_spec(file)):
            raise


def print_values(format_: OutputFormat, outcomes: Sequence[Ended], values: Mapping[Path, Any]) -> None:
    """Prints the values of pipelines with `--format json`: of a single pipeline its value, else a list."""
    if format_ is OutputFormat.JSON:
        print_json(
            [_as_json(outcome, values) for outcome in outcomes] if len(outcomes) > 1 else values[outcomes[0].file]
        )


def _as_json(outcome: Ended, values: Mapping[Path, Any]) -> dict[str, Any]:
    """Returns the value of one of several pipelines, with the error that ended it, and what it waits for."""
    error = {} if outcome.error is None else {"error": str(outcome.error), "status": outcome.status}
    waits = {"waits_for": list(outcome.waits_for)} if outcome.waits_for else {}
    return {"pipeline": outcome.name, **values.get(outcome.file, {}), **error, **waits}


def end(outcomes: Sequence[Ended]) -> None:
    """Ends the command, with several pipelines with the worst status of one.

    Raises:
        typer.Exit: that status is not 0.
    """
    worst = max(outcome.status for outcome in outcomes)
    if worst:
        raise typer.Exit(worst)
