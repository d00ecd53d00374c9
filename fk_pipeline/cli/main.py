"""The command `fk-pipeline`. Contract: `docs/reference/command.md`. Heavy imports happen inside the commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from fk_pipeline import __version__
from fk_pipeline.cli import completion, explain, init, quarantine, report, run, servers, status, test, tools
from fk_pipeline.cli.options import (
    PIPELINE,
    Debug,
    FormatOption,
    PipelineFile,
    Pipelines,
    project_of_command,
    share_session,
)
from fk_pipeline.cli.several import each, end, failed, print_values, telling_damage_of
from fk_pipeline.console import (
    OutputFormat,
    Progress,
    print_due,
    print_json,
    print_table,
    print_verification,
    say,
    say_by_spark,
    tell,
)
from fk_pipeline.errors import escaped
from fk_pipeline.identity import MAX_BATCH
from fk_pipeline.words import counted


class CommandGroup(typer.core.TyperGroup):
    """The command group, the last place that errors of Spark, delta-rs and Arrow pass: it reports damaged tables."""

    def make_context(self, *args: Any, **named: Any) -> Any:
        """Reads the arguments before the command."""
        with _escaping():
            return super().make_context(*args, **named)

    def invoke(self, ctx: Any) -> Any:
        """Calls the command and returns its result.

        Raises:
            StateError: a table of its pipeline is damaged.
        """
        try:
            with _escaping():
                return super().invoke(ctx)
        except Exception:
            file = ctx.meta.get(PIPELINE)
            if file is None:
                raise
            with telling_damage_of(file):
                raise


@contextmanager
def _escaping() -> Iterator[None]:
    """Escapes what typer is about to print about wrong usage: a shell makes file names of a pattern such as `*`."""
    try:
        yield
    except Exception as error:
        shown: Any = error
        if hasattr(shown, "format_message"):  # typer does not name its class
            shown.message = escaped(shown.message, keep="\n")
        raise


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Keeps joins and aggregates of changing tables and streams up to date on Spark and Delta.",
)


def app_main() -> None:
    """Entry point: exit status 0 done, 1 data wrong, 2 usage or configuration, 3 environment."""
    try:
        app()
    except Exception as raised:  # noqa: BLE001 - the last place: a trace is shown only on request
        status, _ = failed(raised)
        sys.exit(status)


def _print_version(requested: bool) -> None:
    if requested:
        tell(f"fk-pipeline {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="show the version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Holds the options that come before a command."""


init.add_to(app)
run.add_to(app)
test.add_to(app)


@app.command(
    epilog="Example: fk-pipeline plan pipeline.yaml", short_help="What a run would do, and why; does nothing itself."
)
def plan(
    context: typer.Context,
    pipelines: Pipelines,
    sql: Annotated[bool, typer.Option("--sql", help="print only the SQL of a query's blocks")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="also Kafka's rules and operators of a windowed join"),
    ] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """What a run would do, and why: batches, files, estimated rows."""
    from fk_pipeline.cli.plan import as_json, print_plan, print_sql
    from fk_pipeline.pipeline import load

    values: dict[Path, Any] = {}

    def work(file: Path, waits_for: tuple[str, ...]) -> int:
        loaded = load(file)
        made = loaded.plan()
        values[file] = as_json(loaded.spec.name, made)
        if format_ is OutputFormat.TEXT and sql:
            print_sql(made, str(file))
        elif format_ is OutputFormat.TEXT:
            print_plan(made, verbose=verbose)
            if waits_for:
                tell(f"A run leaves it out: it waits for {' and '.join(waits_for)}.")
        return int(bool(made.stale))

    outcomes = each(project_of_command(pipelines), work, context, waits=False, named=format_ is OutputFormat.TEXT)
    print_values(format_, outcomes, values)
    end(outcomes)


@app.command(
    epilog="Example: fk-pipeline verify pipeline.yaml --docs report --format json",
    short_help="Proves the result row by row and checks every table.",
)
def verify(
    context: typer.Context,
    pipelines: Pipelines,
    docs: Annotated[Path | None, typer.Option(metavar="DIR", help="write Data Docs (HTML) there")] = None,
    share: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="the share of left keys to join, with --inputs of batches",
        ),
    ] = None,
    inputs: Annotated[
        bool, typer.Option("--inputs", help="also compare the landing files with the changelogs")
    ] = False,
    checks: Annotated[bool, typer.Option(help="also check every table")] = True,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Proves the result row by row, and checks every table."""
    from fk_pipeline.cli.verify import as_json, print_checks, print_inputs
    from fk_pipeline.environment.storage import refuse_remote
    from fk_pipeline.expectations.checking import CheckedStages
    from fk_pipeline.expectations.validation import import_early
    from fk_pipeline.pipeline import load
    from fk_pipeline.result_rows import result_rows

    if docs is not None:
        refuse_remote(docs)
    if checks:
        import_early()
    project = project_of_command(pipelines)
    several = len(project.files) > 1
    share_session(project)
    values: dict[Path, Any] = {}

    def work(file: Path, _: tuple[str, ...]) -> int:
        loaded = load(file)
        report = loaded.verify(1.0 if share is None else share)
        landed = loaded.verify_inputs(share) if inputs else None
        within = docs / loaded.spec.name if several and docs is not None else docs
        checked = loaded.check(report, within) if checks else CheckedStages(())
        entry = as_json(loaded, report, checked, landed)
        values[file] = {"report": entry} if several else entry
        if format_ is OutputFormat.TEXT:
            matches = result_rows(loaded.spec, loaded.ledger()).in_words
            print_verification(report, loaded.spec.file, loaded.spec.definition, matches)
            if landed is not None:
                print_inputs(landed, loaded.spec.file)
            print_checks(loaded, report, checked)
        differs = landed is not None and not landed.ok
        return int(not (report.ok and checked.ok) or differs)

    outcomes = each(project, work, context, waits=False, named=format_ is OutputFormat.TEXT)
    print_values(format_, outcomes, values)
    end(outcomes)


@app.command(epilog="Example: fk-pipeline export pipeline.yaml --to joined.csv")
def export(
    pipeline: PipelineFile,
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FILE", help="ends in .csv, .jsonl, .parquet, or .delta for a Delta table"),
    ],
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Writes the result, sorted by key, to a file or Delta table."""
    from fk_pipeline.pipeline import load

    rows = load(pipeline).export(to, say_by_spark)
    if format_ is OutputFormat.JSON:
        print_json({"rows": rows, "file": str(to)})
    else:
        tell(f"{counted(rows, 'row')} written to {to}")


@app.command(epilog="Example: fk-pipeline show pipeline.yaml verdicts --batch 7 --where \"_fk_verdict = 'joined'\"")
def show(
    pipeline: PipelineFile,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]",
            help="verdicts, quarantine, runs, changes, ...; default: the result",
            autocompletion=completion.tables,
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="only rows of this batch")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="changes from 2026-05-01 or 2026-05-01T13:00 on, UTC"),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="with --since: before this")] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="only rows on which it is true")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="at most so many rows")] = 20,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="these columns, in this order")] = None,
    order_by: Annotated[
        str | None, typer.Option("--order-by", metavar="A,B", help="sort by these, each may have DESC")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="also our own columns: keys, hashes, batch")] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Shows rows of the result, or of any other table."""
    from fk_pipeline.pipeline import load

    loaded, as_json = load(pipeline), format_ is OutputFormat.JSON
    of_result = table in (None, loaded.spec.definition.result.name)
    shown = loaded.show(
        table,
        batch,
        where,
        columns,
        order_by,
        limit,
        everything=everything or (as_json and not of_result),
        since=since,
        until=until,
        notify=say_by_spark,
    )
    if as_json:
        print_json(shown.as_json())
    else:
        print_table(shown.columns, shown.rows)


status.add_to(app)


@app.command(
    "remove-batch",
    epilog="Example: fk-pipeline remove-batch pipeline.yaml 7",
    short_help="Withdraws a batch; the next run takes it out.",
)
def remove_batch(
    pipeline: PipelineFile,
    batch: Annotated[int, typer.Argument(metavar="N", min=0, max=MAX_BATCH, help="the batch")],
    forget: Annotated[bool, typer.Option("--forget", help="its landing files are gone: rows may be lost")] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Withdraws a batch: the next run takes it out of the result."""
    from fk_pipeline.pipeline import load

    notes: list[str] = []  # why it was not withdrawn
    by_stage = load(pipeline).remove_batch(batch, notes.append, forget)
    due = {stage: list(map(int, batches)) for stage, batches in by_stage.items()}
    for text in notes:
        say(f"note: {text}")
    if format_ is OutputFormat.JSON:
        print_json({"removed": None if notes else batch, "due": due})
    else:
        tell("No batch was withdrawn. Due now:" if notes else f"Batch {batch} is withdrawn. Due now:")
        print_due(due)


@app.command(
    epilog="Example: fk-pipeline rebuild pipeline.yaml --from landing",
    short_help="Makes state and result anew, swaps them in at once.",
)
def rebuild(
    pipeline: PipelineFile,
    source: Annotated[
        str,
        typer.Option("--from", metavar="SOURCE", help="changelog or landing", autocompletion=completion.sources),
    ] = "changelog",
    stages: Annotated[
        str | None,
        typer.Option(
            metavar="STAGES",
            help="these and all after them; default: state and result, or what is needed",
            autocompletion=completion.stages,
        ),
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="with history or retention: closed times may lose rows")
    ] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Makes state and result anew, and swaps them in at once."""
    from fk_pipeline.pipeline import load

    with Progress() as progress:
        done = load(pipeline).rebuild(source, stages.split(",") if stages else None, progress, forget)
    if format_ is OutputFormat.JSON:
        print_json([{"stage": d.stage, "rows": d.rows, "seconds": d.seconds} for d in done])
    else:
        tables = [[d.stage, name, f"{rows:,}", f"{d.seconds:.1f}"] for d in done for name, rows in d.rows.items()]
        print_table(["stage", "table", "rows", "seconds of the stage"], tables)


@app.command(epilog="Example: fk-pipeline compact pipeline.yaml", short_help="Folds old batches, packs files.")
def compact(pipeline: PipelineFile, format_: FormatOption = OutputFormat.TEXT, debug: Debug = False) -> None:
    """Folds old batches to the last version per key, packs small files, removes old ones."""
    from fk_pipeline.cli.compact import print_compaction
    from fk_pipeline.pipeline import load

    loaded = load(pipeline)
    done = loaded.compact(lambda name: say(f"{name} ..."))
    if format_ is OutputFormat.JSON:
        print_json([upkeep.as_json() for upkeep in done])
    else:
        print_compaction(done, loaded.spec)


tools.add_to(app)
explain.add_to(app)
report.add_to(app)
quarantine.add_to(app)
servers.add_to(app)

if __name__ == "__main__":
    app_main()
