"""The command `init`: a new pipeline folder, from samples of the user's own data if there are any."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fk_pipeline.cli.options import Debug, FormatOption
from fk_pipeline.console import OutputFormat, print_json, print_lines
from fk_pipeline.errors import UsageError

if TYPE_CHECKING:
    from fk_pipeline.scaffold.write import Made


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="the folder; its name is that of the pipeline")],
    from_sample: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="a change file or folder, or a Delta table, of the left side; named again: of the right side; with "
            "--query, of the table NAME in FROM",
        ),
    ] = None,
    query: Annotated[
        Path | None,
        typer.Option(metavar="FILE.sql", help="a SELECT to be kept up to date, in place of a join"),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMNS",
            help="with --query, the columns that identify a row of a table, separated by commas; default: what its "
            "sample tells",
        ),
    ] = None,
    clock: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LENGTH", help="with --query, a table NAME in FROM that is a clock, with steps of `1 day`"
        ),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="read the folders of the samples, instead of landing folders in DIR")
    ] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Makes a pipeline folder: a commented pipeline file, landing folders, settings for Dagster, a README."""
    made = _made(directory, from_sample or [], query, key or [], clock or [], in_place=in_place)
    if format_ is OutputFormat.JSON:
        print_json(_as_json(made))
    else:
        _print(directory, made)


def _made(
    directory: Path, samples: list[str], query: Path | None, keys: list[str], clocks: list[str], *, in_place: bool
) -> Made:
    if query is not None:
        from fk_pipeline.scaffold.queries import make_query

        return make_query(directory, query, samples, keys, clocks, in_place=in_place)
    if keys or clocks:
        option = "--key" if keys else "--clock"
        raise UsageError(f"{option} goes with --query", fix="leave it out, and write it into the pipeline file")
    from fk_pipeline.scaffold.write import make_folder

    return make_folder(directory, [Path(sample) for sample in samples], in_place=in_place)


def _as_json(made: Made) -> dict[str, Any]:
    return {
        "pipeline": str(made.file),
        "files": [str(file) for file in made.written],
        "found": list(made.facts),
        "guessed": list(made.doubts),
        "to_do": list(made.to_do),
    }


def _print(directory: Path, made: Made) -> None:
    file = made.file
    print_lines([str(path) for path in made.written])
    if made.facts:
        print_lines(["", "Found:", *(f"  {sentence}" for sentence in made.facts)])
    if made.doubts:
        files = ", ".join(str(path) for path in made.written if path.suffix == ".yaml" and path.name != "dagster.yaml")
        print_lines(["", f"Guessed, and marked so in {files}:", *(f"  {sentence}" for sentence in made.doubts)])
    landing = [directory / path for path in made.paths]
    steps = [f"  {step}" for step in made.to_do]
    for sample, path, folder in zip(made.samples, made.paths, landing, strict=False):
        if sample.records and path.startswith("landing/"):
            what = f"{shlex.quote(str(sample.path))}/*" if sample.path.is_dir() else shlex.quote(str(sample.path))
            steps.append(f"  cp {what} {shlex.quote(str(folder))}/")
    if made.commands_for == file and not made.samples:
        steps.append(f"  edit {file}; then land change files in {landing[0]} and {landing[1]}")
    print_lines(["", "Next:", *dict.fromkeys(steps)])
    argument = shlex.quote(str(made.commands_for))
    print_lines([f"  fk-pipeline {command} {argument}" for command in ("plan", "run", "verify", "up")])


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    example = (
        "Example: fk-pipeline init shop --from-sample orders/00000001.jsonl --from-sample customers/00000001.jsonl"
    )
    app.command(epilog=example, short_help="A new pipeline folder, from samples of your own data.")(init)
