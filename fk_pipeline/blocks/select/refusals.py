"""What of a SELECT no block can be: refused with its line, the reason, and what to write. No Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from fk_pipeline.blocks.aggregates import refuse_order
from fk_pipeline.blocks.calls import Call, calls_in
from fk_pipeline.blocks.select.trees import laterals_of, sources_of
from fk_pipeline.spec.determinism import function_of, is_not_of_the_row, knows_the_time, moment_in
from fk_pipeline.spec.sql import DIALECT, Column, SqlTextError
from fk_pipeline.words import did_you_mean, listed_for

JOINS = {"": "", "INNER": "", "CROSS": "", "LEFT": "LEFT"}
"""Per kind of join that a block takes, how Spark joins."""

_WRITTEN_JOINS = {*JOINS, "RIGHT", "FULL", "SEMI", "ANTI", "LEFT SEMI", "LEFT ANTI"}
"""Joins that are written in terms of those of a block."""

CLOCK_DAY = "make a clock an input, inputs: {now: {clock: 1 day}}, and write now.day (or now.at, a TIMESTAMP)"
"""How a query reads the time."""

_FIELDS = "write LATERAL VIEW explode(...) t AS s, and read the fields as s.field"
_CAST = "cast the variant to an array or a map, and write LATERAL VIEW explode(...)"
_INSTEAD = {
    "inline": _FIELDS,
    "inline_outer": _FIELDS,
    "json_tuple": "write get_json_object(json, '$.field') for each column",
    "stack": "write LATERAL VIEW explode(array(struct(...), ...)) t AS s, and read the fields as s.field",
    "variant_explode": _CAST,
    "variant_explode_outer": _CAST,
}
"""Functions that make rows, or several columns, of one, and what to write for each."""


def not_taken(node: exp.Expr, why: str) -> NoReturn:
    """Refuses a part of the query.

    Raises:
        SqlTextError: always.
    """
    text = " ".join(node.sql(dialect=DIALECT).split())
    line = line_of(node)
    raise SqlTextError(f"{f'line {line}: ' if line else ''}{why} (in {text[:80]!r})")


def line_of(node: exp.Expr) -> int:
    """Returns the line of a node in the query, from 1; 0 if it is not known."""
    above: exp.Expr | None = node
    while above is not None:
        lines = (part.meta.get("line") for part in above.walk())
        first = next((line for line in lines if line is not None), None)
        if first is not None:
            return int(first)
        above = above.parent
    return 0


def refuse_parts(tree: exp.Expr) -> None:
    """Refuses what no block has, in any part of a query."""
    for node in tree.walk():
        _refuse_subquery(node)
        _refuse_source(node)
        _refuse_clause(node)
        _refuse_function(node)


def refuse_orders(text: str) -> None:
    """Refuses functions whose value depends on the order of the rows, but for those of windows, which are ordered."""
    for call in calls_in(text):
        over = rf"{re.escape(call.whole)}\s*(ignore\s+nulls\s*|respect\s+nulls\s*)?over\b"
        if not re.search(over, text, re.IGNORECASE):
            _refuse_order_of(call, text)


def _refuse_order_of(call: Call, text: str) -> None:
    """Refuses a function whose value depends on the order of the rows, with the line in which it is called first."""
    try:
        refuse_order([call])
    except SqlTextError as error:
        match = re.search(rf"\b{call.name}\s*\(", text, re.IGNORECASE)
        line = "" if match is None else _line_at(text, match.start())
        raise SqlTextError(f"{line}{error}") from None


def _refuse_subquery(node: exp.Expr) -> None:
    if isinstance(node, exp.SetOperation) and (not isinstance(node, exp.Union) or node.args.get("by_name")):
        what = "UNION BY NAME" if isinstance(node, exp.Union) else node.key.upper()
        not_taken(node, f"{what}; write UNION with columns in order, EXISTS or NOT EXISTS")
    if isinstance(node, (exp.Any, exp.All)) and node.find(exp.Query) is not None:
        not_taken(node, f"{node.key.upper()} over a subquery; compare with a subquery of MIN or MAX, or write EXISTS")
    if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query):
        not_taken(node, "a join in parentheses; write the tables one after the other, each with its own ON")


def _refuse_source(node: exp.Expr) -> None:
    if isinstance(node, exp.Select):
        _refuse_laterals(node)
    if isinstance(node, (exp.Pivot, exp.TableSample, exp.Hint, exp.Values, exp.Version)):
        not_taken(node, f"{node.key.upper()} is not possible; write the query without it")
    if isinstance(node, exp.QueryTransform):
        not_taken(node, "TRANSFORM calls a program; write the query without it")
    if isinstance(node, exp.With) and node.recursive:
        not_taken(node, "WITH RECURSIVE is not possible; write the query without it")
    if isinstance(node, exp.TableAlias) and node.columns and not isinstance(node.parent, exp.Lateral):
        not_taken(node.parent or node, "a list of column names; name each column with AS in a subquery")
    if isinstance(node, exp.Join):
        how = " ".join(filter(None, (node.method, node.side, node.kind))).upper().replace("FULL OUTER", "FULL")
        if how.replace("LEFT OUTER", "LEFT").replace("RIGHT OUTER", "RIGHT") not in _WRITTEN_JOINS:
            not_taken(node, f"{how} JOIN; write JOIN or LEFT JOIN with ON")


def _refuse_laterals(select: exp.Select) -> None:
    """Refuses LATERAL, and LATERAL VIEW of other forms than those that a block has."""
    for join in select.args.get("joins") or ():
        if isinstance(join.this, exp.Lateral):
            not_taken(join, "LATERAL is not possible; write LATERAL VIEW explode(...) t AS x, or a join")
    names, joins = {source.alias_or_name.lower() for source in sources_of(select)}, select.args.get("joins") or ()
    for lateral in laterals_of(select):
        alias = lateral.args.get("alias")
        if function_of(lateral.this) in _INSTEAD:
            continue
        if not lateral.args.get("view") or not isinstance(lateral.this, exp.Explode):
            not_taken(lateral, "LATERAL VIEW takes explode and posexplode; write it with one of them")
        if alias is None or not alias.columns:
            not_taken(lateral, "the columns that are made need names; write LATERAL VIEW explode(...) t AS x")
        if lateral.alias and lateral.alias.lower() in names:
            not_taken(lateral, f"there is another {lateral.alias} in FROM; give the rows that are made another name")
        names.add(lateral.alias.lower())
        if any(_start(join.this) > _start(alias.columns[0]) for join in joins):
            not_taken(lateral, "LATERAL VIEW stands after all joins; make the rows in a subquery, and join that")


def _start(node: exp.Expr) -> int:
    """Returns the place in the text of the first name in a node; 0 if there is none."""
    name = node.find(exp.Identifier)
    return 0 if name is None else int(name.meta.get("start", 0))


def _refuse_clause(node: exp.Expr) -> None:
    if isinstance(node, (exp.Placeholder, exp.Parameter)):
        not_taken(node, "a query has no parameters; write the value")
    if isinstance(node, (exp.Rollup, exp.Cube, exp.GroupingSets)):
        not_taken(node, "ROLLUP, CUBE and GROUPING SETS group several times; write a query for each grouping")
    if isinstance(node, exp.Group) and (node.args.get("all") or node.args.get("totals")):
        not_taken(node, "GROUP BY ALL; name the groups")
    if isinstance(node, exp.Fetch):
        not_taken(node, "FETCH is not of Spark; write LIMIT and the number")
    if isinstance(node, exp.Offset):
        not_taken(node, "OFFSET: LIMIT goes without OFFSET; rank the rows with ROW_NUMBER() in a subquery")
    if isinstance(node, exp.Limit) and node.expressions:
        not_taken(node, "LIMIT with BY is not of Spark; write QUALIFY ROW_NUMBER() OVER (PARTITION BY ...) <= n")
    if isinstance(node, exp.Limit) and not node.expression.is_int:
        not_taken(node, "LIMIT takes a number")
    if isinstance(node, exp.Distinct) and node.args.get("on") is not None:
        not_taken(node, "DISTINCT ON is not possible")
    if isinstance(node, exp.DataType) and node.this == exp.DType.TIME:
        not_taken(node.parent or node, "the type TIME is not possible")
    if isinstance(node, exp.Star):
        place = node.parent.parent if isinstance(node.parent, exp.Column) else node.parent
        if not isinstance(place, (exp.Select, exp.Count)):
            not_taken(place or node, "a star among arguments; name the columns")


def _refuse_function(node: exp.Expr) -> None:
    name = function_of(node)
    if name == "identifier":
        not_taken(node, "identifier() names a table, a column or a function by a text; write the name itself")
    if is_not_of_the_row(node):
        if knows_the_time(node):
            not_taken(node, f"{name}() knows the time: a row computed again would change; {CLOCK_DAY}")
        not_taken(node, f"{name}() is not deterministic: a row computed again would change")
    if name in _INSTEAD:
        not_taken(node, f"{name}() makes several rows of one, or several columns; {_INSTEAD[name]}")
    if name == "session_window":
        instead = "mark where a gap ends by LAG(t) OVER (PARTITION BY ... ORDER BY t), and number the marks by SUM"
        not_taken(node, f"session_window() is not possible; {instead}")
    if isinstance(node, exp.Explode):
        refuse_nested(node)


def refuse_nested(call: exp.Explode) -> None:
    """Refuses a function that makes rows where it cannot stand."""
    if not _makes_rows(call):
        name = function_of(call)
        not_taken(call, f"{name}() stands in an expression; make a column of it in a subquery, or by LATERAL VIEW")


def _makes_rows(call: exp.Explode) -> bool:
    """Returns whether a function that makes rows stands where it can: alone, in LATERAL VIEW or as a column."""
    if isinstance(call.parent, exp.Lateral):
        return True
    output = call.parent if isinstance(call.parent, (exp.Alias, exp.Aliases)) else call
    return isinstance(output.parent, exp.Select) and output.arg_key == "expressions"


def refuse_unknown_tables(tree: exp.Query, inputs: Mapping[str, Sequence[Column]]) -> None:
    """Refuses a table that is neither an input nor a CTE."""
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if table.name.lower() not in ctes | {*inputs} or table.db:
            shown = table.sql(dialect=DIALECT)
            not_taken(table, f"{shown} is no input; inputs are {listed_for(table.name, inputs)}")


def refuse_unresolved(tree: exp.Select, inputs: Mapping[str, Sequence[Column]]) -> None:
    """Refuses the first column that no table has, or more than one."""
    for scope in traverse_scope(tree):
        if isinstance(scope.expression, exp.Lateral):
            have = _columns_in(scope.parent, inputs) if scope.parent is not None else {}
            for column in scope.columns:
                _refuse_unresolved_column(column, have, set())
            continue
        have = _columns_in(scope, inputs)
        around = _columns_in(scope.parent, inputs) if scope.is_subquery and scope.parent is not None else {}
        joined_by = {
            identifier.name.lower() for join in scope.find_all(exp.Join) for identifier in join.args.get("using") or ()
        }
        for column in scope.columns:
            is_own = any({column.name.lower(), "*"} & {*of} for of in have.values()) or not around
            _refuse_unresolved_column(
                column, have if is_own and column.table.lower() not in around else around | have, joined_by
            )


def refuse_excepted(tree: exp.Query, inputs: Mapping[str, Sequence[Column]]) -> None:
    """Refuses `* EXCEPT (column)` with a column that the star does not have."""
    for scope in traverse_scope(tree):
        have = _columns_in(scope, inputs)
        for output in scope.expression.selects if isinstance(scope.expression, exp.Select) else ():
            star, table = (output.this, output.table.lower()) if isinstance(output, exp.Column) else (output, "")
            left_out = star.args.get("except_") or () if isinstance(star, exp.Star) else ()
            present = [name for alias, names in have.items() if table in ("", alias) for name in names]
            for column in left_out:
                if "*" not in present and column.name.lower() not in present:
                    have_names = f"there are {listed_for(column.name, present)}"
                    not_taken(output, f"{column.name} is no column to be left out; {have_names}")


def refuse_same_names(tree: exp.Select) -> None:
    """Refuses a column of a subquery that has two of its name; names are resolved."""
    for scope in traverse_scope(tree):
        for column in scope.columns:
            source = scope.sources.get(column.table)
            inner = source.expression if isinstance(source, Scope) else None
            names = inner.named_selects if isinstance(inner, exp.Query) else []
            if names.count(column.name) > 1:
                not_taken(column, f"{column.table} has two columns {column.name!r}; give one another name with AS")


def _columns_in(scope: Scope, inputs: Mapping[str, Sequence[Column]]) -> dict[str, list[str]]:
    """Returns per table of a FROM the names of its columns, in lower case."""
    have: dict[str, list[str]] = {}
    for alias, (_, source) in scope.selected_sources.items():
        inner = source.expression if isinstance(source, Scope) else source
        if isinstance(inner, exp.Lateral):
            have[alias.lower()] = [column.name.lower() for column in inner.args["alias"].columns]
            continue
        columns = inputs.get(inner.name.lower(), ())
        names = inner.named_selects if isinstance(inner, exp.Query) else [column.name for column in columns]
        have[alias.lower()] = [name.lower() for name in names]
    return have


def _refuse_unresolved_column(column: exp.Column, have: Mapping[str, Sequence[str]], joined_by: set[str]) -> None:
    table, name = column.table.lower(), column.name.lower()
    if table and table not in have:
        if not any(table in columns for columns in have.values()):  # else it is a field of a struct
            not_taken(column, f"no table is called {column.table} here; there are {listed_for(table, have)}")
        return
    owners = [alias for alias, columns in have.items() if {name, "*"} & {*columns} and table in ("", alias)]
    if len(owners) > 1 and name not in joined_by:
        of = " and of ".join(owners)
        not_taken(column, f"{column.name} is a column of {of}; write {owners[0]}.{column.name}, or whose it is")
    if not owners:
        tables = [table] if table else [*have]
        some = "; ".join(f"{alias} has {', '.join(have[alias])}" for alias in tables)
        alike = did_you_mean(name, [other for alias in tables for other in have[alias]])
        not_taken(column, f"{column.name} is no column; {some}{alike}")


def refuse_moments(tree: exp.Expr, text: str, inputs: Mapping[str, Sequence[Column]]) -> None:
    """Refuses a constant text that Spark may read as a relative day or moment.

    Args:
        tree: the query, with resolved names.
        text: as it is written, for the line.
        inputs: per name in FROM its columns.

    Raises:
        SqlTextError: there is one.
    """
    types: dict[str, set[str]] = {}
    for columns in inputs.values():
        for column in columns:
            types.setdefault(column.name.lower(), set()).add(column.type)

    def type_of(path: tuple[str, ...]) -> str | None:
        known = types.get(path[-1].lower(), set())
        return next(iter(known)) if len(known) == 1 else None

    moment = moment_in(tree, type_of)
    if moment is not None:
        place = text.find(moment)
        at = "" if place < 0 else _line_at(text, place)
        raise SqlTextError(
            f"{at}{moment} may become the day on which it is computed; write the day, DATE'2024-01-31', or {CLOCK_DAY}"
        )


def _line_at(text: str, place: int) -> str:
    """Returns the line of a place in the query, from 1, as the beginning of a message."""
    return f"line {text.count(chr(10), 0, place) + 1}: "
