"""The arguments and options that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fk_pipeline.cli import completion
from fk_pipeline.console import OutputFormat
from fk_pipeline.errors import UsageError

if TYPE_CHECKING:
    from fk_pipeline.spec.project import Project

PIPELINE = "fk_pipeline.file"
"""The key in the context of a command under which its pipeline file is stored."""


def remember(context: typer.Context, file: Path) -> Path:
    """Remembers the pipeline file that is at work, for the message of an error; returns it."""
    context.meta[PIPELINE] = file
    return file


def debugging() -> bool:
    """Returns whether the whole trace of an error is shown: `--debug`, or FK_DEBUG."""
    return "--debug" in sys.argv or bool(os.environ.get("FK_DEBUG"))


def only_one(context: typer.Context, file: Path | None) -> Path | None:
    """Refuses the only pipeline file of a command if another beside it has its tables; remembers it.

    Raises:
        PipelineFileError: there is such a file.
    """
    if file is not None and not context.resilient_parsing:
        from fk_pipeline.spec.project import refuse_same_tables

        refuse_same_tables([remember(context, file)])
    return file


def project_of_command(named: Sequence[Path], *, inline: bool = True) -> Project:
    """Returns the pipelines in files and folders that a command was given.

    Args:
        named: the files and folders.
        inline: whether the pipelines of inline inputs are among them.

    Raises:
        UsageError: there is none.
        PipelineFileError: two have one name, or a file beside one of them has its tables; or the only file that was
            named is wrong, also in one of its inline inputs.
    """
    from fk_pipeline.errors import PipelineFileError
    from fk_pipeline.spec.project import Project, pipeline_files, project_of, refuse_same_tables

    files = pipeline_files(named, inline=inline)
    if not files:
        raise UsageError(f"there is no pipeline file in {', '.join(map(str, named))}", fix="name a .yaml file")
    if len(files) > 1:
        project = project_of(files)
        problem = project.wrong.get(named[0]) if len(named) == 1 else None
        if isinstance(problem, PipelineFileError):
            raise problem
        return project
    refuse_same_tables(files)
    return Project((files[0],), {files[0]: str(files[0])}, {}, {})


def share_session(project: Project) -> None:
    """Starts Spark with the settings of several pipelines together; each starts its own if it is alone."""
    from fk_pipeline.spec import load_spec
    from fk_pipeline.spec.project import merged

    files = [file for file in project.files if file not in project.wrong]
    if len(project.files) > 1 and files:
        from fk_pipeline.session import start_session

        start_session(merged([load_spec(file) for file in files]))


PipelineFile = Annotated[
    Path,
    typer.Argument(
        metavar="PIPELINE.yaml",
        help="the pipeline file",
        autocompletion=completion.completed_files,
        callback=only_one,
    ),
]
Pipelines = Annotated[
    list[Path],
    typer.Argument(
        metavar="PIPELINE.yaml...",
        help="files or folders",
        autocompletion=completion.completed_files,
    ),
]
FormatOption = Annotated[OutputFormat, typer.Option("--format", help="text for people, json for machines")]
Debug = Annotated[bool, typer.Option("--debug", help="show the whole trace of an error")]
