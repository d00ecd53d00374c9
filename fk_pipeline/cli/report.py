"""The command `report`: how pipelines stand and why rows are as they are, as one page, or as JSON; starts no Spark."""

from __future__ import annotations

import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fk_pipeline.cli.options import Debug, FormatOption, Pipelines, project_of_command
from fk_pipeline.cli.several import each, end
from fk_pipeline.console import OutputFormat, print_json, tell
from fk_pipeline.environment.storage import refuse_remote
from fk_pipeline.errors import UsageError

if TYPE_CHECKING:
    from fk_pipeline.report.document import PipelineFacts


def report(
    context: typer.Context,
    pipelines: Pipelines,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="the page; default: report.html beside the tables, of several pipelines here",
        ),
    ] = None,
    opens: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """One page: state, lineage, batches, checks, and why the rows that changed last are so."""
    from fk_pipeline.pipeline import load
    from fk_pipeline.report.document import document_of
    from fk_pipeline.report.files import NAME, place_of_report, write_page
    from fk_pipeline.report.page import page_of

    as_json = format_ is OutputFormat.JSON
    _refuse(output, opens=opens, as_json=as_json)
    begun, facts, place = time.monotonic(), list["PipelineFacts"](), NAME if output is None else str(output)
    project = project_of_command(pipelines)

    def work(file: Path, _: tuple[str, ...]) -> int:
        nonlocal place
        pipeline = load(file)
        facts.extend(pipeline.report()["pipelines"])
        if output is None and len(project.files) == 1:
            place = place_of_report(pipeline.spec)
        return 0

    outcomes = each(project, work, context, waits=False, named=False)
    errors = {outcome.name: str(outcome.error) for outcome in outcomes if outcome.error is not None}
    document = document_of(facts, begun, errors)
    if as_json:
        print_json(document)
    if output is not None or (facts and not as_json):
        write_page(page_of(document), place)
        if not as_json:
            tell(f"{place}: {len(facts)} of {len(outcomes)} pipelines, in {time.monotonic() - begun:.1f} s")
        if opens:
            _open(place)
    end(outcomes)


def _refuse(output: Path | None, *, opens: bool, as_json: bool) -> None:
    """Refuses options that name no page, before anything is read.

    Raises:
        UsageError: the page is to be a folder; or it is to be opened, and none is written.
    """
    if output is not None:
        refuse_remote(output)
    if output is not None and output.is_dir():
        raise UsageError(
            f"--output {output}: a page cannot be written there",
            where=str(output.resolve()),
            why="it is a folder",
            fix=f"name a file in it: --output {output / 'report.html'}",
        )
    if opens and as_json and output is None:
        raise UsageError(
            "--open: there is no page to open",
            where="fk-pipeline report",
            why="with --format json the facts are printed, and no page is written",
            fix="name a file for the page, too: --format json --output report.html --open; or leave out --format",
        )


def _open(place: str) -> None:
    """Opens a page in the browser.

    Raises:
        UsageError: it is in an object store.
    """
    if "://" in place:
        raise UsageError(f"{place} is no file that a browser opens", fix="name a local file: --output FILE --open")
    webbrowser.open(Path(place).resolve().as_uri())


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Example: fk-pipeline report pipeline.yaml --open",
        short_help="One page of a pipeline: batches, seconds, rows and why.",
    )(report)
