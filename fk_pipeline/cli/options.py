"""The arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fk_pipeline.cli import completion
from fk_pipeline.console import OutputFormat, print_json
from fk_pipeline.errors import UsageError

PIPELINE = "fk_pipeline.file"
"""The key in the context of a command under which its pipeline file is stored."""


def _remember(context: typer.Context, file: Path) -> Path:
    context.meta[PIPELINE] = file
    return file


@contextmanager
def telling(format_: OutputFormat, several: bool) -> Iterator[list[Any]]:
    """Gives a list, and prints its values as JSON at the end, also if a pipeline failed: of one pipeline, its value."""
    told: list[Any] = []
    try:
        yield told
    finally:
        if told and format_ is OutputFormat.JSON:
            print_json(told if several else told[0])


def ordered(named: Sequence[Path]) -> list[Path]:
    """Returns pipeline files, those whose results others read first."""
    from fk_pipeline.spec.load import feeding_order, pipeline_files

    files = pipeline_files(named)
    if not files:
        raise UsageError(f"there is no pipeline file in {', '.join(map(str, named))}", fix="name a .yaml file")
    return files if len(files) == 1 else feeding_order(files)


def each(files: Sequence[Path], context: typer.Context) -> Iterator[Path]:
    """Yields pipeline files, and remembers each for the message of an error."""
    for file in files:
        yield _remember(context, file)


def share_session(files: Sequence[Path]) -> None:
    """Starts Spark with the settings of several pipelines together; each starts its own if it is alone."""
    from fk_pipeline.spec import load_spec
    from fk_pipeline.spec.load import merged

    if len(files) > 1:
        from fk_pipeline.session import start_session

        start_session(merged([load_spec(file) for file in files]))


PipelineFile = Annotated[
    Path,
    typer.Argument(
        metavar="PIPELINE.yaml",
        help="the pipeline file",
        autocompletion=completion.completed_files,
        callback=_remember,
    ),
]
Pipelines = Annotated[
    list[Path],
    typer.Argument(
        metavar="PIPELINE.yaml...",
        help="pipeline files, or folders of them",
        autocompletion=completion.completed_files,
    ),
]
FormatOption = Annotated[OutputFormat, typer.Option("--format", help="text for people, json for machines")]
Debug = Annotated[bool, typer.Option("--debug", help="show the whole trace of an error")]
