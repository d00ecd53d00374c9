"""What `init` knows of the tables of a query: what was given for each, as a sample, a Delta table or a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.sample import read_sample
from fk_pipeline.scaffold.sampled import Sample
from fk_pipeline.scaffold.text import word
from fk_pipeline.scaffold.write import reading_samples, seen_from
from fk_pipeline.spec.clock import Clock
from fk_pipeline.spec.results import schema_of
from fk_pipeline.spec.sql import parse_columns
from fk_pipeline.words import listed_for


@dataclass(frozen=True)
class QueryInput:
    """A table of the query.

    Attributes:
        name: its name in FROM.
        schema: its columns, as Spark DDL.
        key: the columns of its key.
        key_doubt: the evidence for a guessed key.
        sample: the sample of what lands; None for a Delta table.
        place: where it is read: the landing folder, as the pipeline file of the table writes it; of a Delta table its
            absolute path, or its URI.
        notes: notes for the user.
        clock: of a clock, which has none of these but a name, how long a step is.
    """

    name: str
    schema: str
    key: tuple[str, ...]
    key_doubt: str
    sample: Sample | None
    place: str
    notes: tuple[str, ...] = ()
    clock: str = ""


def inputs_of(
    names: Sequence[str],
    given: Mapping[str, str],
    keys: Mapping[str, str],
    steps: Mapping[str, str],
    folder: Path | None,
) -> list[QueryInput]:
    """Returns what is known of the tables of a query.

    Args:
        names: their names in FROM.
        given: per table that is no clock, a sample of what lands, or a Delta table.
        keys: per table whose key the user gave, its columns as the user wrote them.
        steps: per clock the length of a step.
        folder: the folder of the pipeline files, if the files are read where the samples lie.

    Raises:
        UsageError: what was given for a table cannot be read; the key of a table is not known; a clock has no such
            steps; or two tables would read each other's files.
        PipelineFileError: what was given for a Delta table is no Delta table.
    """
    inputs = [
        _clock(name, steps[name]) if name in steps else _input(name, given[name], keys.get(name, ""), folder)
        for name in names
    ]
    _refuse_shared([table for table in inputs if table.sample is not None])
    return inputs


def _clock(name: str, length: str) -> QueryInput:
    """Returns a clock.

    Raises:
        UsageError: it has no such steps.
    """
    try:
        Clock.of(length, "UTC")
    except ValueError as error:
        what = f"--clock {name}={length}: {error}"
        raise UsageError(what, why="nothing was written", fix=f"--clock {name}='1 day'") from None
    return QueryInput(name, "", (), "", None, "", clock=length)


def _input(name: str, path: str, key: str, folder: Path | None) -> QueryInput:
    """Returns what is known of a table.

    Args:
        name: its name in FROM.
        path: a sample of what lands, or a Delta table.
        key: the columns of its key, as the user wrote them; empty: they are guessed.
        folder: the folder of the pipeline files, if the files are read where the sample lies.

    Raises:
        UsageError: it cannot be read, or its key is not known.
        PipelineFileError: it is no Delta table, or a table of a pipeline.
    """
    option, is_uri = f"--from-sample {name}={path}", "://" in path
    place = path if is_uri else str(Path(path).absolute())
    is_table = is_uri or (Path(path) / "_delta_log").is_dir()
    with reading_samples():
        schema = schema_of(Path(), place, option) if is_table else ""
        sample = None if is_uri else _sample(option, name, Path(path), key)
    if sample is None:
        names = [column.name for column in parse_columns(schema)]
        if not key:
            raise _without_key(option, name, "init reads no rows of a table in an object store", names)
        return QueryInput(name, schema, key_of(name, key, names), "", None, place)
    if not sample.key:
        raise _without_key(option, name, sample.key_doubt, [column.name for column in sample.columns])
    if is_table:
        return QueryInput(name, schema, sample.key, sample.key_doubt, None, place, sample.notes)
    landing = word(Path(path).absolute().name.split(".")[0], "changes") if "table" in sample.options else name
    place = f"landing/{landing}" if folder is None else seen_from(folder, sample.folder)
    schema = ", ".join(column.ddl for column in sample.columns)
    return QueryInput(name, schema, sample.key, sample.key_doubt, sample, place, sample.notes)


def _sample(option: str, name: str, path: Path, key: str) -> Sample:
    """Returns the sample of a table with the given key; of a file with several tables, that of its name.

    Raises:
        UsageError: it cannot be read; its records are of several tables, and none has the name; or the key names a
            column that the table lacks.
    """
    try:
        tables = read_sample(path, name)
    except UsageError as error:
        raise UsageError(error.what, where=error.where or option, why="nothing was written", fix=error.fix) from None
    rows_of = [sample for sample in tables if len(tables) == 1 or sample.table.rsplit(".", 1)[-1].lower() == name]
    if len(rows_of) != 1:
        raise UsageError(
            f"{path} has lines of several tables: {', '.join(sample.table for sample in tables)}",
            where=option,
            why="nothing was written",
            fix=f"give a sample with lines of {name} alone",
        )
    [sample] = rows_of
    if not key:
        return sample
    chosen = key_of(name, key, [column.name for column in sample.columns])
    return replace(sample, key=chosen, key_doubt="", key_from="given to init")


def key_of(name: str, key: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of a given key, spelled as the table has them; none if none is given.

    Raises:
        UsageError: it has no such column.
    """
    spelled = {column.strip("`").lower(): column for column in columns}
    chosen = [column.strip().strip("`").lower() for column in key.split(",") if key]
    for column in chosen:
        if column not in spelled:
            raise UsageError(
                f"--key {name}={key}: {name} has no column {column!r}; it has {listed_for(column, spelled.values())}",
                why="nothing was written",
                fix=f"--key {name}=COLUMN, or COLUMN,COLUMN",
            )
    return tuple(spelled[column] for column in dict.fromkeys(chosen))


def _without_key(option: str, name: str, why: str, columns: Sequence[str]) -> UsageError:
    return UsageError(
        f"the key of {name} is not known: {why}",
        where=option,
        why=f"nothing was written; its columns are {', '.join(columns)}",
        fix=f"say which columns identify a row: --key {name}=COLUMN, or COLUMN,COLUMN",
    )


def _refuse_shared(landed: Sequence[QueryInput]) -> None:
    """Refuses tables that would read each other's files.

    Raises:
        UsageError: two have one folder, and their lines name no table.
    """
    for number, table in enumerate(landed):
        for other in landed[:number]:
            samples = (table.sample, other.sample)
            if table.place == other.place and not all(s is not None and "table" in s.options for s in samples):
                raise UsageError(
                    f"{other.name} and {table.name} would both read {table.place}, each the other's files too",
                    why="nothing was written",
                    fix="keep the files of each table in a folder of their own",
                )
