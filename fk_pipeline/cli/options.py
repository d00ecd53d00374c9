"""The arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fk_pipeline.cli import completion
from fk_pipeline.console import OutputFormat

PIPELINE = "fk_pipeline.file"
"""The key in the context of a command under which its pipeline file is stored."""


def _remember(context: typer.Context, file: Path) -> Path:
    context.meta[PIPELINE] = file
    return file


PipelineFile = Annotated[
    Path,
    typer.Argument(
        metavar="PIPELINE.yaml",
        help="the pipeline file",
        autocompletion=completion.completed_files,
        callback=_remember,
    ),
]
FormatOption = Annotated[OutputFormat, typer.Option("--format", help="text for people, json for machines")]
Debug = Annotated[bool, typer.Option("--debug", help="show the whole trace of an error")]
