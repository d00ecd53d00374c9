"""The query over three tables or more that `init` writes if it is given samples alone: each joined by its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.foreign_key import Proposal, propose
from fk_pipeline.scaffold.names import may_be_bare, singular
from fk_pipeline.scaffold.queries import QueryText
from fk_pipeline.scaffold.sampled import Sample
from fk_pipeline.scaffold.text import word
from fk_pipeline.scaffold.write import name_of
from fk_pipeline.spec.sql import quote

_Steps = list[tuple[str, str, Proposal]]
"""Joins in their order: a table that is joined already, the one that it refers to, and by what."""

_BY_HAND = 'write the query: --query "SELECT ..." --from-sample NAME=FILE ...'


def query_over(folder: Path, tables: Sequence[Sample]) -> tuple[QueryText, list[str]]:
    """Returns a query over samples in which each table is joined by its key, and per table `name=path`.

    Args:
        folder: the folder of the query, whose name no table may have.
        tables: the samples.

    Raises:
        UsageError: two tables have one name, or nothing tells how a table belongs to the others.
    """
    named = {word(sample.table.rsplit(".", 1)[-1], "side"): sample for sample in tables}
    if len(named) < len(tables) or not all(map(may_be_bare, named)) or name_of(folder) in named:
        names = ", ".join(sample.table for sample in tables)
        raise UsageError(
            f"the samples are of {names}, which are no names for the tables of a query",
            why="each must be another one, a word, and not that of the folder",
            fix=_BY_HAND,
        )
    first, steps = max(((name, _steps(name, named)) for name in named), key=lambda path: len(path[1]))
    reached = {first, *(name for _, name, _ in steps)}
    for name, sample in named.items():
        if name not in reached:
            raise UsageError(
                f"nothing tells how {name} belongs to {', '.join(sorted(reached))}",
                why=f"no column of one of them refers to its key, {', '.join(sample.key) or 'which is not known'}",
                fix=_BY_HAND,
            )
    evidence = [
        f"query: {table}.{part.column} refers to {name}; {part.evidence}"
        for table, name, proposal in steps
        for part in proposal.parts
    ]
    select = _select(named, [first, *(name for _, name, _ in steps)], steps)
    joins = [
        f"LEFT JOIN {name} ON "
        + " AND ".join(
            f"{name}.{key} = {_qualified(part.expression, part.column, table)}"
            for part, key in zip(proposal.parts, named[name].key, strict=True)
        )
        for table, name, proposal in steps
    ]
    text = "\n".join([f"SELECT {select}", f"FROM {first}", *joins])
    about = f"# {first}, each row with the rows that it refers to, directly or by others, kept up to date."
    root = named[first]
    if root.key_doubt:
        evidence.append(f"query.key: {', '.join(root.key)}, that of {first}; {root.key_doubt}")
    query = QueryText(text, "", about, root.key, root.key_doubt, tuple(evidence))
    return query, [f"{name}={sample.path}" for name, sample in named.items()]


def _steps(first: str, tables: Mapping[str, Sample]) -> _Steps:
    """Returns the joins that begin at a table, the surest first."""
    steps: _Steps = []
    joined = [first]
    while True:
        possible = [
            (propose(tables[table], tables[name]), table, name)
            for table in joined
            for name in tables
            if name not in joined and tables[name].key
        ]
        sure = [step for step in possible if step[0].is_sure]
        if not sure:
            return steps
        proposal, table, name = max(sure, key=lambda step: step[0].score)
        joined.append(name)
        steps.append((table, name, proposal))


def _select(tables: Mapping[str, Sample], order: Sequence[str], steps: _Steps) -> str:
    """Returns the columns of the result: each once, and those of a key to which an equal column refers not again."""
    same = {
        (name, key)
        for _, name, proposal in steps
        for part, key in zip(proposal.parts, tables[name].key, strict=True)
        if part.expression == part.column
    }
    taken: set[str] = set()
    columns = []
    for name in order:
        for column in tables[name].columns:
            if (name, column.name) in same or (
                column.name == tables[name].mark and column.name not in tables[name].key
            ):
                continue
            plain = alias = column.name.strip("`")
            while alias.lower() in taken:
                alias = f"{singular(name)}_{alias}"
            taken.add(alias.lower())
            shown = "" if alias == plain else f" AS {alias if may_be_bare(alias) else quote(alias)}"
            columns.append(f"{name}.{column.name}{shown}")
    return ",\n       ".join(columns)


def _qualified(expression: str, column: str, table: str) -> str:
    """Returns the SQL over a column as one over the column of a table."""
    if expression == column:
        return f"{table}.{column}"
    return expression.replace(f"({column} AS", f"({table}.{column} AS", 1)
