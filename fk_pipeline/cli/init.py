"""The command `init`: a new pipeline folder, from samples of the user's own data if there are any."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fk_pipeline.cli.options import Debug, FormatOption
from fk_pipeline.console import OutputFormat, print_json, print_lines
from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.meanings import Meant

if TYPE_CHECKING:
    from fk_pipeline.scaffold.meant import Intent
    from fk_pipeline.scaffold.write import Made


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="the folder, whose name the pipeline gets")],
    from_sample: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="a sample of a table, the left one first; with --query, of NAME in FROM",
        ),
    ] = None,
    kind: Annotated[Meant | None, typer.Option("--kind", help="what to make of them; default: inferred")] = None,
    query: Annotated[str | None, typer.Option(metavar="QUERY", help="a SELECT, or FILE.sql with one")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMNS",
            help="the key of a table, comma-separated; default: inferred",
        ),
    ] = None,
    clock: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LENGTH", help="with --query: NAME in FROM is a clock with steps of `1 day`"),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="read the samples' folders, not landing folders")
    ] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Makes a folder with a commented pipeline file, landing folders, Dagster's settings, a README."""
    ask = format_ is OutputFormat.TEXT and sys.stdin.isatty() and sys.stdout.isatty()
    samples, keys = from_sample or [], key or []
    if query is not None:
        made = _of_query(directory, query, kind, samples, keys, clock or [], in_place=in_place)
    elif clock:
        raise UsageError("--clock goes with --query", fix="leave it out, and write it into the pipeline file")
    else:
        from fk_pipeline.scaffold.make import make_folder

        paths = [Path(sample) for sample in samples]
        made = make_folder(directory, paths, kind=kind, keys=keys, in_place=in_place, choose=_ask if ask else None)
    if format_ is OutputFormat.JSON:
        print_json(_as_json(made))
    else:
        _print(directory, made)


def _of_query(
    directory: Path,
    query: str,
    kind: Meant | None,
    samples: list[str],
    keys: list[str],
    clocks: list[str],
    *,
    in_place: bool,
) -> Made:
    from fk_pipeline.scaffold.queries import make_query, query_text

    if kind not in (None, Meant.QUERY):
        raise UsageError(f"--query makes a query, and --kind says {kind}", fix="leave one of the two out")
    return make_query(directory, query_text(query), samples, keys, clocks, in_place=in_place)


def _ask(intents: Sequence[Intent]) -> Intent:
    """Asks which of several pipelines is meant; the first is that of an empty answer."""
    choices = [f"  {number}  {intent.says} (--kind {intent.meant})" for number, intent in enumerate(intents, 1)]
    print_lines(["What is meant?", *choices])
    number = 0
    while not 1 <= number <= len(intents):
        number = typer.prompt("Number", type=int, default=1)
    return intents[number - 1]


def _as_json(made: Made) -> dict[str, Any]:
    return {
        "pipeline": str(made.file),
        "kind": str(made.kind),
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
        texts = [path for path in made.written if path.suffix == ".yaml" and path.name != "dagster.yaml"]
        files = ", ".join(str(path) for path in texts if not path.name.endswith(".tests.yaml"))
        print_lines(["", f"Guessed, and marked so in {files}:", *(f"  {sentence}" for sentence in made.doubts)])
    landing = [directory / path for path in made.paths]
    steps = [f"  {step}" for step in made.to_do]
    for sample, path, folder in zip(made.samples, made.paths, landing, strict=False):
        if sample.records and path.startswith("landing/"):
            what = f"{shlex.quote(str(sample.path))}/*" if sample.path.is_dir() else shlex.quote(str(sample.path))
            steps.append(f"  cp {what} {shlex.quote(f'{folder}/{_first_name(sample.path)}')}")
    if not made.samples and made.paths:
        steps.append(f"  edit {file}; then land change files in {' and '.join(map(str, landing))}")
    print_lines(["", "Next:", *dict.fromkeys(steps)])
    argument = shlex.quote(str(made.commands_for))
    print_lines([f"  fk-pipeline {command} {argument}" for command in ("plan", "run", "verify")])
    if any(path.name.endswith(".tests.yaml") for path in made.written):
        print_lines([f"  fk-pipeline test {shlex.quote(str(file))}"])
    print_lines([f"  fk-pipeline up {argument}"])


def _first_name(sample: Path) -> str:
    """Returns the name under which a sample lands as the first batch; empty if it is a folder or has a number."""
    return "" if sample.is_dir() or re.search(r"\d", sample.name) else f"00000001{''.join(sample.suffixes)}"


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    example = (
        "Example: fk-pipeline init shop --from-sample orders/00000001.jsonl --from-sample customers/00000001.jsonl"
    )
    app.command(epilog=example, short_help="A new pipeline folder, from samples of your own data.")(init)
