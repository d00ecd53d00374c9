"""The files of a new folder for a query: a pipeline for each table that lands, and the query over them.

Everything is looked at before a file is written: the query, what was given for its tables, and their keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fk_pipeline.contract import loaded
from fk_pipeline.errors import UsageError
from fk_pipeline.kinds.registry import kind_named
from fk_pipeline.scaffold.cases import first_cases, tests_file
from fk_pipeline.scaffold.query_inputs import QueryInput, inputs_of
from fk_pipeline.scaffold.text import GUESSED, PATHS, key_line, table_text, warehouse_line, yaml_of
from fk_pipeline.scaffold.write import (
    Made,
    facts_of,
    load_before_writing,
    name_of,
    refuse_place,
    seen_from,
    write_folder,
)
from fk_pipeline.spec.paths import path_meant
from fk_pipeline.spec.sql import SqlTextError
from fk_pipeline.spec.yaml_text import literal_block
from fk_pipeline.words import listed_for


@dataclass(frozen=True)
class QueryText:
    """A query, as `init` was given it.

    Attributes:
        text: the SELECT.
        place: the file with it, for messages; empty: there is none.
        about: a comment that says what it is.
        key: the columns that identify a row of the result, if that is known.
        key_doubt: the evidence for a guessed key.
        doubts: what is guessed in it, one sentence each.
    """

    text: str
    place: str
    about: str
    key: tuple[str, ...] = ()
    key_doubt: str = ""
    doubts: tuple[str, ...] = ()

    def at(self, line: int | str) -> str:
        """Returns the place of a line of it, for a message."""
        return f"{self.place}:{line}" if self.place else f"--query, line {line}"


def query_text(given: str) -> QueryText:
    """Returns the query that `--query` gives: a SELECT, or the file with it.

    Raises:
        UsageError: the file cannot be read.
    """
    if re.match(r"\s*((SELECT|WITH)\b|--|/\*|\()", given, re.IGNORECASE):
        return QueryText(given, "", "# A query, kept up to date from what changed.")
    file = Path(given)
    about = f"# The query of {file.name}, kept up to date from what changed."
    try:
        return QueryText(file.read_text(encoding="utf-8-sig"), given, about)
    except (OSError, UnicodeDecodeError) as error:
        why = f"the query cannot be read: {error}{path_meant(file)}"
        raise UsageError(why, where=given, fix='--query FILE.sql, or --query "SELECT ..."') from None


def make_query(
    folder: Path,
    query: QueryText,
    samples: Sequence[str],
    keys: Sequence[str] = (),
    clocks: Sequence[str] = (),
    *,
    in_place: bool = False,
) -> Made:
    """Makes the folder of a query with the pipelines of its tables and returns what was written; overwrites no file.

    Args:
        folder: the folder; its name is the name of the query.
        query: the query.
        samples: for each table in FROM `name=PATH`: a sample of what lands, or a Delta table.
        keys: for tables whose key is not known or guessed wrong, `name=column,column`.
        clocks: for tables that are clocks, `name=LENGTH`, the length of a step.
        in_place: the pipelines read the folders of the samples instead of landing folders of their own.

    Raises:
        UsageError: the query cannot be kept up to date; nothing, or something that cannot be read, was given for a
            table; the key of a table is not known; or a file exists already.
        PipelineFileError: what was given for a Delta table is no Delta table.
    """
    name, text = name_of(folder), query.text
    spec = loaded(kind_named("query").spec)
    try:
        lines: dict[str, int] = spec.inputs_named(text)
    except SqlTextError as error:
        raise _not_taken(query, error) from None
    if name in lines:
        raise UsageError(f"the folder is called as a table of the query, {name!r}", fix="name another folder")
    refuse_place(folder, [*(f"{table}.yaml" for table in (name, *lines)), tests_file(name)])
    given, keys_given = by_name("--from-sample", samples, "PATH"), by_name("--key", keys, "COLUMN,COLUMN")
    steps = by_name("--clock", clocks, "LENGTH")
    _refuse_names(query, lines, given, keys_given, steps)
    inputs = inputs_of([*lines], given, keys_given, steps, folder if in_place else None)
    try:
        columns = spec.columns_of(text, {table.name: table.schema for table in inputs if not table.clock}, [*steps])
    except SqlTextError as error:
        raise _not_taken(query, error) from None
    tables = {
        table.name: table_text(table.name, table.sample, table.place, table.name)
        for table in inputs
        if table.sample is not None
    }
    texts = {f"{table}.yaml": of_table for table, (of_table, _) in tables.items()}
    by_hand = "write the files by hand: the page `Keep a query up to date`"
    written = partial(_query_text, name, query, inputs, query.key or columns[:1])
    specs = load_before_writing({**texts, f"{name}.yaml": written(str)}, by_hand)
    texts[f"{name}.yaml"] = written(partial(_seen, folder))
    texts[tests_file(name)] = first_cases(specs[-1])
    landing = [folder / path for path in dict.fromkeys(table.place for table in inputs) if path.startswith("landing/")]
    write_folder(folder, landing, {**texts, "README.md": _readme(name, inputs)})
    doubts = [*query.doubts, *(doubt for _, doubts in tables.values() for doubt in doubts)]
    return _made(folder, name, inputs, doubts, landing)


def _made(folder: Path, name: str, inputs: Sequence[QueryInput], doubts: list[str], landing: Sequence[Path]) -> Made:
    landed = [(table.place, table.sample) for table in inputs if table.sample is not None]
    of_tables = [table for table in inputs if table.sample is None and not table.clock]
    facts = [f"kind  query, of {', '.join(table.name for table in inputs)}"]
    facts += [f"{table.name}: {facts_of(table.sample)}" for table in inputs if table.sample is not None]
    facts += [f"{table.name}: a Delta table, key {', '.join(table.key)}{_mark(table)}" for table in of_tables]
    facts += [f"{table.name}: a clock with steps of {table.clock}" for table in inputs if table.clock]
    facts += [f"{table.name}: {note}" for table in inputs for note in table.notes]
    doubts += [f"{table.name}.key: {', '.join(table.key)}; {table.key_doubt}" for table in of_tables if table.key_doubt]
    files = [folder / f"{table.name}.yaml" for table in inputs if table.sample is not None]
    return Made(
        file=folder / f"{name}.yaml",
        paths=tuple(place for place, _ in landed),
        written=(
            *files,
            folder / f"{name}.yaml",
            folder / tests_file(name),
            *landing,
            folder / "dagster.yaml",
            folder / "README.md",
        ),
        facts=tuple(facts),
        doubts=tuple(doubts),
        samples=tuple(sample for _, sample in landed),
        to_do=(),
        commands_for=folder,
        kind="query",
    )


def _mark(table: QueryInput) -> str:
    return f" ({GUESSED})" if table.key_doubt else ""


def _not_taken(query: QueryText, error: SqlTextError) -> UsageError:
    """Returns the error for a query that cannot be kept up to date, with its line."""
    match = re.fullmatch(r"line (\d+): (.*)", str(error), re.DOTALL)
    line, what = match.groups() if match else ("1", str(error))
    why = "nothing was written; what a query may have in it: the page `Queries` of the documentation"
    return UsageError(what, where=query.at(line), why=why)


def by_name(option: str, given: Sequence[str], what: str) -> dict[str, str]:
    """Returns values by name, of options that are given as `name=value`.

    Raises:
        UsageError: an option is not of this form, or a name comes twice.
    """
    values: dict[str, str] = {}
    for argument in given:
        name, is_named, value = argument.partition("=")
        name = name.strip().lower()
        if not is_named or not name or not value.strip():
            why = "it says which table it is of"
            raise UsageError(f"{option} {argument!r} names no table", why=why, fix=f"{option} NAME={what}")
        if name in values:
            raise UsageError(f"{option} names {name!r} twice", fix=f"give one {option} {name}={what}")
        values[name] = value.strip()
    return values


def _refuse_names(
    query: QueryText,
    lines: Mapping[str, int],
    given: Mapping[str, str],
    keys: Mapping[str, str],
    steps: Mapping[str, str],
) -> None:
    """Refuses tables for which nothing was given, or two things, and what was given for no table.

    Raises:
        UsageError: it names all such tables, or the first that the query does not read.
    """
    missing = [name for name in lines if name not in given and name not in steps]
    if missing:
        raise UsageError(
            f"nothing was given for {', '.join(f'{name} (line {lines[name]})' for name in missing)}",
            where=query.at(lines[missing[0]]),
            why="nothing was written",
            fix=" ".join(f"--from-sample {name}=PATH" for name in missing) + ": a sample, or a Delta table; or "
            f"--clock {missing[-1]}='1 day', if it is what time it is",
        )
    for name in steps:
        if name in given or name in keys:
            raise UsageError(f"{name} is a clock, and has a sample or a key", fix="leave one of the options out")
    for option, named in (("--from-sample", given), ("--key", keys), ("--clock", steps)):
        for name in named:
            if name not in lines:
                reads = f"it reads {listed_for(name, lines)}"
                raise UsageError(
                    f"{option} {name}={named[name]}: the query does not read {name!r}; {reads}",
                    where=query.place,
                    why="nothing was written",
                    fix="leave it out, or write the name as the query has it",
                )


def _seen(folder: Path, path: str) -> str:
    return path if "://" in path else seen_from(folder, Path(path))


def _query_text(
    name: str, query: QueryText, inputs: Sequence[QueryInput], key: Sequence[str], shown: Callable[[str], str]
) -> str:
    """Returns the text of the pipeline file of the query.

    Args:
        name: its name.
        query: the query.
        inputs: its tables.
        key: the columns that identify a row of the result, or may do so.
        shown: returns the place of a Delta table as the file has it.
    """
    entries: list[str] = []
    for table in inputs:
        if table.sample is not None:
            entries.append(f"  {table.name}: {{pipeline: {table.name}.yaml}}")
        elif table.clock:
            clock = f"  {table.name}: {{clock: {yaml_of(table.clock)}, zone: UTC}}"
            entries.append(f"{clock:<34} # the zone in which a day begins at midnight")
        else:
            entries += [f"  {table.name}:", f"    table: {yaml_of(shown(table.place))}"]
            entries.append(key_line(table.key, table.key_doubt, 4))
    known = f"{'' if query.key else '# '}key: {yaml_of(key[0] if len(key) == 1 else [*key])}"
    guess = f"{GUESSED}: {query.key_doubt}; " if query.key_doubt else ""
    lines = [
        query.about,
        PATHS,
        f"name: {name}",
        "kind: query",
        "",
        "inputs:                            # the tables in FROM",
        *entries,
        "",
        f"query: {literal_block(query.text)}",
        "",
        "refresh: auto                      # or incremental: refuse to compute the whole; full: always the whole",
        f"{known:<34} # {guess}what identifies a row of the result, for pipelines that read it",
        "",
        warehouse_line(name, "warehouse"),
        "",
        "# settings:",
        "#   driver_memory: 4g          # heap of a local Spark",
        "#   sensor_seconds: 15         # how often Dagster looks for new versions",
    ]
    return "\n".join(lines) + "\n"


def _readme(name: str, inputs: Sequence[QueryInput]) -> str:
    landed = [table for table in inputs if table.sample is not None]
    tables = "\n".join(
        f"* `{table.name}.yaml`: the table {table.name}; its files land in `{table.place}/`." for table in landed
    )
    return f"""# {name}

A query that fk-pipeline keeps up to date.

* `{name}.yaml`: the query. Lines marked `{GUESSED}` were not said by a sample: look at them before the first run.
* `{tests_file(name)}`: cases, rows that are given and rows that the result must then have: write your own beside them.
{tables}
* `dagster.yaml`: settings of Dagster; `fk-pipeline up .` puts them into its home, `.dagster`.
* `warehouse/`: the tables, once something was run.

A number in the name of a file that lands is its batch (`00000001.csv`); a file must be complete when it gets its name:
write it under a name that begins with `.`, then rename it.

In this folder:

```sh
fk-pipeline plan .             # what would be done, and why
fk-pipeline run .              # do it: the tables, then the query
fk-pipeline verify .           # prove the results, row by row
fk-pipeline test {name}.yaml   # run the cases of the query
fk-pipeline export {name}.yaml --to {name}.csv
fk-pipeline up .               # the same in Dagster, at http://127.0.0.1:3000; `fk-pipeline down` ends it
```
"""
