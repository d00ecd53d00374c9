"""Takes a SELECT apart into blocks (`docs/kinds/query.md`), or says what of it no block can be. No Spark.

sqlglot resolves names; what it makes of the text is run by Spark, and `verify` runs the query as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError

from fk_pipeline.blocks.select.generators import spelling
from fk_pipeline.blocks.select.query import Query
from fk_pipeline.blocks.select.refusals import (
    line_of,
    not_taken,
    refuse_excepted,
    refuse_moments,
    refuse_orders,
    refuse_parts,
    refuse_same_names,
    refuse_unknown_tables,
    refuse_unresolved,
)
from fk_pipeline.blocks.select.resolving import merged, resolved, tables_named
from fk_pipeline.blocks.select.taking_apart import blocks_of
from fk_pipeline.blocks.select.trees import laterals_of
from fk_pipeline.blocks.select.unions import as_select, first_select
from fk_pipeline.blocks.select.unnesting import unnested
from fk_pipeline.blocks.select.written import parse_as_known, parse_as_written
from fk_pipeline.spec.inputs import INPUT_NAME
from fk_pipeline.spec.sql import DIALECT, Column, SqlTextError

_UNNAMED = re.compile(r"_col_\d+")
"""What sqlglot calls a column without a name."""


def parse_query(
    text: str,
    inputs: Mapping[str, Sequence[Column]],
    keys: Mapping[str, Sequence[str]] = MappingProxyType({}),
    single: Collection[str] = (),
    last: str = "result",
) -> Query:
    """Returns the blocks of a query.

    Args:
        text: one SELECT, or a UNION of some, in Spark's dialect.
        inputs: per name in FROM its columns.
        keys: per name in FROM the columns that identify a row, as far as they are known.
        single: the names in FROM that always have one row.
        last: the name of the last block, whose rows are those of the query.

    Raises:
        SqlTextError: it is no such query; the message names the construct, its line, and what to write.
    """
    written = _parsed(text)
    refuse_unknown_tables(written, inputs)
    refuse_excepted(written, inputs)
    names = _names(first_select(written))
    tree = as_select(written)
    try:
        whole = resolved(tree, inputs)
        assert isinstance(whole, exp.Select)
        refuse_moments(resolved(parse_as_known(text), inputs), text, inputs)
    except (OptimizeError, SqlglotError) as error:
        refuse_unresolved(tree, inputs)
        raise SqlTextError(_first_line(error)) from None
    if not names:
        names = _names_of_star(whole, inputs)
    _refuse_names(names, whole.selects)
    refuse_same_names(whole)
    known = {name: [key.lower() for key in some] for name, some in keys.items()}
    tree = merged(unnested(whole, known, inputs))
    return Query(blocks_of(tree, tuple(names), inputs, single, last), tuple(names))


def inputs_named(text: str) -> dict[str, int]:
    """Returns the names in FROM that must be inputs, in lower case, each with the line in which it stands first.

    Raises:
        SqlTextError: it is no query, as far as its inputs need not be known for that; or no input can have the name.
    """
    named: dict[str, int] = {}
    for table in tables_named(_parsed(text)):
        name = table.name.lower()
        if table.db:
            not_taken(table, f"the name of an input has no dot; write {name}, or {name} AS another_name")
        if not INPUT_NAME.fullmatch(name):
            not_taken(table, "the name of an input starts with a letter a-z and goes on with a-z, 0-9 and _; write one")
        named.setdefault(name, line_of(table))
    return named


def _parsed(text: str) -> exp.Query:
    if "${" in text:
        raise SqlTextError("${...} would be replaced by a variable of Spark's")
    try:
        statements = [tree for tree in parse_as_written(text) if tree is not None]
    except SqlglotError as error:
        raise SqlTextError(f"not SQL: {_first_line(error)}") from None
    if len(statements) != 1:
        raise SqlTextError(
            f"not one SELECT: there are {len(statements)} statements; keep each in a pipeline of its own"
        )
    tree = statements[0]
    if not isinstance(tree, exp.Query):
        raise SqlTextError(f"not one SELECT: it is {tree.key.upper()}; a query only reads")
    if any(literal.is_string and "${" in literal.name for literal in tree.find_all(exp.Literal)):
        raise SqlTextError("${...} would be replaced by a variable of Spark's; write CONCAT('$', '{...}')")
    refuse_parts(tree)
    refuse_orders(text)
    first_select(tree)
    return tree


def _first_line(error: Exception) -> str:
    return str(error).replace("\x1b[4m", "").replace("\x1b[0m", "").splitlines()[0]


def _names(tree: exp.Select) -> list[str]:
    """Returns the names of the columns of the result, as they are written; none if one is a star."""
    if any(output.is_star for output in tree.selects):
        return []
    for number, output in enumerate(tree.selects, start=1):
        if not isinstance(output, (exp.Alias, exp.Aliases, exp.Column, exp.Dot)):
            names = "(position, name)" if isinstance(output, exp.Posexplode) else "name"
            not_taken(output, f"column {number} needs a name: {output.sql(dialect=DIALECT)} AS {names}")
    return tree.named_selects


def _names_of_star(whole: exp.Select, inputs: Mapping[str, Sequence[Column]]) -> list[str]:
    """Returns the names of the columns of the result, spelled as the inputs have them."""
    spelled = {c.name.lower(): c.name for columns in inputs.values() for c in columns}
    of = {
        table.alias_or_name: {c.name.lower(): c.name for c in inputs.get(table.name, ())}
        for table in whole.find_all(exp.Table)
    }
    of |= {lateral.alias: spelling(lateral) for lateral in laterals_of(whole)}
    outputs = [(output.alias_or_name, output.unalias()) for output in whole.selects]
    tables = [value.table if isinstance(value, exp.Column) else "" for _, value in outputs]
    return [
        of.get(table, {}).get(name) or spelled.get(name, name) for (name, _), table in zip(outputs, tables, strict=True)
    ]


def _refuse_names(names: Sequence[str], made: Sequence[exp.Expr]) -> None:
    seen: set[str] = set()
    for number, (name, output) in enumerate(zip(names, made, strict=True), start=1):
        if name.lower() in seen:
            not_taken(output, f"two columns of the result are called {name!r}; give one another name with AS")
        if name.lower().startswith("_fk_"):
            not_taken(
                output, f"column {name!r}: names that start with _fk_ are the pipeline's own; write AS and another"
            )
        if _UNNAMED.fullmatch(name):
            not_taken(output, f"column {number} needs a name: give it one with AS in the subquery")
        seen.add(name.lower())
