"""Takes a SELECT apart into blocks (`docs/concepts/queries.md`), or says what of it no block can be. No Spark.

sqlglot resolves names; what it makes of the text is run by Spark, and `verify` runs the query as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.transforms import eliminate_qualify

from fk_pipeline.blocks.aggregates import refuse_order
from fk_pipeline.blocks.calls import Call, calls_in
from fk_pipeline.kinds.query.blocks import Alias, Block, Keep, Query, Unit, conjuncts
from fk_pipeline.kinds.query.kind import RESULT
from fk_pipeline.spec.determinism import function_of, is_not_of_the_row, moment_in
from fk_pipeline.spec.sql import DIALECT, Column, SqlTextError, quote
from fk_pipeline.store import LEDGER_TABLES

_JOINS = {"": "", "INNER": "", "CROSS": "", "LEFT": "LEFT"}
"""Per kind of join that a block takes, how Spark joins."""

_UNNAMED = re.compile(r"_col_\d+")
"""What sqlglot calls a column without a name."""

_RANK, _ORDER = "_fk_rank", "_fk_order_{}"
"""Columns of a block with LIMIT: the place of a row, and the values by which rows are ordered."""


def parse_query(text: str, inputs: Mapping[str, Sequence[Column]]) -> Query:
    """Returns the blocks of a query.

    Args:
        text: one SELECT in Spark's dialect.
        inputs: per name in FROM its columns.

    Raises:
        SqlTextError: it is no such query; the message names the construct, its line, and what to write.
    """
    tree = _parsed(text)
    _refuse_unknown_tables(tree, inputs)
    names = _names(tree)
    schema: dict[str, object] = {name: {c.name: c.type for c in columns} for name, columns in inputs.items()}
    try:
        whole = qualify(tree.copy(), schema=schema, dialect=DIALECT, identify=True)
    except (OptimizeError, SqlglotError) as error:
        _refuse_unresolved(tree, inputs)
        raise SqlTextError(_first_line(error)) from None
    assert isinstance(whole, exp.Select)
    if not names:
        names = _names_of_star(whole, inputs)
    _refuse_names(names, whole.selects)
    _refuse_moments(whole, inputs)
    merged = merge_subqueries(_inlined(whole))
    assert isinstance(merged, exp.Select)
    return _Taking(inputs).query(merged, tuple(names))


_OVER = r"\s*((ignore|respect)\s+nulls\s*)?over\b"
"""Pattern of what follows the call of a window function, whose rows are ordered."""


def _parsed(text: str) -> exp.Select:
    if "${" in text:
        raise SqlTextError("${...} would be replaced by a variable of Spark's")
    try:
        found = [tree for tree in sqlglot.parse(text, dialect=DIALECT) if tree is not None]
    except SqlglotError as error:
        _refuse_window(text)
        raise SqlTextError(f"not SQL: {_first_line(error)}") from None
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise SqlTextError("not one SELECT")
    tree = found[0]
    for node in tree.walk():
        _refuse(node)
    for call in calls_in(text):
        if not re.search(
            rf"{re.escape(call.whole)}\s*(ignore\s+nulls\s*|respect\s+nulls\s*)?over\b", text, re.IGNORECASE
        ):
            _refuse_order_of(call, text)  # those of a window have ordered rows
    if not isinstance(tree, exp.Select):
        _not_taken(tree, "it is no SELECT")
    return tree


def _refuse_window(text: str) -> None:
    """Refuses Spark's function of time windows, which sqlglot takes for the clause WINDOW.

    Raises:
        SqlTextError: the text calls it.
    """
    found = re.search(r"\b(session_)?window\s*\(", text, re.IGNORECASE)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        instead = "group by date_trunc('HOUR', t), or floor(unix_seconds(t) / 900)"
        raise SqlTextError(f"line {line}: {found[0].rstrip('( ')}() is not possible; {instead}")


def _refuse_order_of(call: Call, text: str) -> None:
    """Refuses a function whose value depends on the order of the rows, with the line in which it is called first."""
    try:
        refuse_order([call])
    except SqlTextError as error:
        found = re.search(rf"\b{call.name}\s*\(", text, re.IGNORECASE)
        line = "" if found is None else f"line {text.count(chr(10), 0, found.start()) + 1}: "
        raise SqlTextError(f"{line}{error}") from None


def _refuse(node: exp.Expr) -> None:
    """Refuses what no block has."""
    if isinstance(node, exp.SetOperation):
        _not_taken(node, f"{node.key.upper()} joins two SELECTs; keep each in a pipeline of its own")
    if isinstance(node, (exp.Lateral, exp.Pivot, exp.TableSample, exp.Hint, exp.Values, exp.Version)):
        _not_taken(node, f"{node.key.upper()} is not possible; write the query without it")
    if isinstance(node, (exp.Placeholder, exp.Parameter)):
        _not_taken(node, "a query has no parameters; write the value")
    if isinstance(node, (exp.Exists, exp.Any, exp.All)) or (isinstance(node, exp.In) and node.args.get("query")):
        _not_taken(node, f"{node.key.upper()} over a subquery; join a grouped subquery in FROM")
    if isinstance(node, exp.Subquery) and not isinstance(node.parent, (exp.From, exp.Join)):
        _not_taken(node, "a subquery as a value; join it in FROM")
    if isinstance(node, (exp.Rollup, exp.Cube, exp.GroupingSets)):
        _not_taken(node, "ROLLUP, CUBE and GROUPING SETS group several times; write a query for each grouping")
    if isinstance(node, exp.Group) and (node.args.get("all") or node.args.get("totals")):
        _not_taken(node, "GROUP BY ALL; name the groups")
    if isinstance(node, exp.Join):
        how = " ".join(filter(None, (node.method, node.side, node.kind))).upper()
        if how not in _JOINS and how != "LEFT OUTER":
            _not_taken(node, f"{how} JOIN; a query takes JOIN and LEFT JOIN")
    _refuse_function(node)


def _refuse_function(node: exp.Expr) -> None:
    name = function_of(node)
    if is_not_of_the_row(node):
        _not_taken(node, f"{name}() is not deterministic, or knows the time: a row computed again would change")
    if name in ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "stack"):
        _not_taken(node, f"{name}() makes several rows of one; make them in the table that is read")


def _not_taken(node: exp.Expr, why: str) -> NoReturn:
    """Refuses a part of the query.

    Raises:
        SqlTextError: always.
    """
    text = " ".join(node.sql(dialect=DIALECT).split())
    raise SqlTextError(f"{_line_of(node)}{why} (in {text[:80]!r})")


def _line_of(node: exp.Expr) -> str:
    """Returns the line of a node in the query, from 1, as the beginning of a message; empty if it is not known."""
    above: exp.Expr | None = node
    while above is not None:
        lines = (one.meta.get("line") for one in above.walk())
        found = next((line for line in lines if line is not None), None)
        if found is not None:
            return f"line {found}: "
        above = above.parent
    return ""


def _first_line(error: Exception) -> str:
    return str(error).replace("\x1b[4m", "").replace("\x1b[0m", "").splitlines()[0]


def _inlined(tree: exp.Select) -> exp.Select:
    """Returns a query in which a CTE that is named once stands where it is named."""
    for cte in [*tree.find_all(exp.CTE)]:
        named = [one for one in tree.find_all(exp.Table) if one.name == cte.alias and not one.db]
        if len(named) == 1 and sum(one.alias == cte.alias for one in tree.find_all(exp.CTE)) == 1:
            named[0].replace(exp.Subquery(this=cte.this, alias=exp.TableAlias(this=_named(named[0].alias_or_name))))
            with_ = cte.parent
            cte.pop()
            if isinstance(with_, exp.With) and not with_.expressions:
                with_.pop()
    return tree


def _refuse_unknown_tables(tree: exp.Select, inputs: Mapping[str, Sequence[Column]]) -> None:
    ctes = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if table.name.lower() not in ctes | {*inputs} or table.db:
            shown = table.sql(dialect=DIALECT)
            _not_taken(table, f"{shown} is no input; inputs are {', '.join(inputs)}")


def _names(tree: exp.Select) -> list[str]:
    """Returns the names of the columns of the result, as they are written; none if one is a star."""
    if any(one.is_star for one in tree.selects):
        return []
    for number, one in enumerate(tree.selects, start=1):
        if not isinstance(one, (exp.Alias, exp.Column, exp.Dot)):
            _not_taken(one, f"column {number} needs a name: {one.sql(dialect=DIALECT)} AS name")
    return [one.alias_or_name for one in tree.selects]


def _names_of_star(whole: exp.Select, inputs: Mapping[str, Sequence[Column]]) -> list[str]:
    """Returns the names of the columns of the result, spelled as the inputs have them."""
    spelled = {c.name.lower(): c.name for columns in inputs.values() for c in columns}
    of = {one.alias_or_name: {c.lower(): c for c in _columns(inputs, one.name)} for one in whole.find_all(exp.Table)}
    found = [(one.alias_or_name, one.unalias()) for one in whole.selects]
    tables = [one.table if isinstance(one, exp.Column) else "" for _, one in found]
    return [
        of.get(table, {}).get(name) or spelled.get(name, name) for (name, _), table in zip(found, tables, strict=True)
    ]


def _refuse_names(names: Sequence[str], made: Sequence[exp.Expr]) -> None:
    seen: set[str] = set()
    for number, (name, one) in enumerate(zip(names, made, strict=True), start=1):
        if name.lower() in seen:
            _not_taken(one, f"two columns of the result are called {name!r}; give one another name with AS")
        if name.lower().startswith("_fk_"):
            _not_taken(one, f"column {name!r}: names that start with _fk_ are the pipeline's own; write AS and another")
        if _UNNAMED.fullmatch(name):
            _not_taken(one, f"column {number} needs a name: give it one with AS in the subquery")
        seen.add(name.lower())


def _refuse_unresolved(tree: exp.Select, inputs: Mapping[str, Sequence[Column]]) -> None:
    """Refuses the first column that no table has, or more than one."""
    for scope in traverse_scope(tree):
        have: dict[str, list[str]] = {}
        for alias, (_, source) in scope.selected_sources.items():
            inner = source.expression if isinstance(source, Scope) else source
            names = inner.named_selects if isinstance(inner, exp.Query) else _columns(inputs, inner.name)
            have[alias.lower()] = [name.lower() for name in names]
        joined_by = {one.name.lower() for join in scope.find_all(exp.Join) for one in join.args.get("using") or ()}
        for column in scope.columns:
            _refuse_one_unresolved(column, have, joined_by)


def _refuse_one_unresolved(column: exp.Column, have: Mapping[str, Sequence[str]], joined_by: set[str]) -> None:
    table, name = column.table.lower(), column.name.lower()
    if table and table not in have:
        if not any(table in columns for columns in have.values()):  # else it is a field of a struct
            _not_taken(column, f"no table is called {column.table} here; there are {', '.join(have)}")
        return
    owners = [alias for alias, columns in have.items() if {name, "*"} & {*columns} and table in ("", alias)]
    if len(owners) > 1 and name not in joined_by:
        of = " and of ".join(owners)
        _not_taken(column, f"{column.name} is a column of {of}; write {owners[0]}.{column.name}, or whose it is")
    if not owners:
        some = "; ".join(f"{alias} has {', '.join(have[alias])}" for alias in ([table] if table else have))
        _not_taken(column, f"{column.name} is no column; {some}")


def _columns(inputs: Mapping[str, Sequence[Column]], name: str) -> list[str]:
    return [column.name for column in inputs.get(name.lower(), ())]


def _refuse_moments(tree: exp.Select, inputs: Mapping[str, Sequence[Column]]) -> None:
    types: dict[str, set[str]] = {}
    for columns in inputs.values():
        for column in columns:
            types.setdefault(column.name.lower(), set()).add(column.type)

    def type_of(path: tuple[str, ...]) -> str | None:
        found = types.get(path[-1].lower(), set())
        return next(iter(found)) if len(found) == 1 else None

    moment = moment_in(tree, type_of)
    if moment is not None:
        raise SqlTextError(f"{moment} may become the day on which it is computed; write the day, DATE'2024-01-31'")


class _Taking:
    """Makes blocks of a query whose names are resolved, the inner ones first."""

    def __init__(self, inputs: Mapping[str, Sequence[Column]]) -> None:
        self.inputs, self.blocks = inputs, list[Block]()
        self.taken = {*inputs, *LEDGER_TABLES, RESULT, "quarantine"}

    def query(self, tree: exp.Select, names: tuple[str, ...]) -> Query:
        """Returns the query; `names` are those of the columns of its result."""
        self.select(tree, RESULT, {}, names)
        return Query(tuple(self.blocks), names)

    def select(self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...] = ()) -> str:
        """Makes the block of a SELECT, and before it those that it reads; returns its name."""
        with_ = tree.args.get("with_")
        there = dict(ctes)
        for cte in with_.expressions if with_ is not None else ():
            there[cte.alias] = self._derived(cte.this, cte.alias, there)
        tree = tree.copy()
        tree.set("with_", None)
        if tree.args.get("qualify") is not None:
            found = eliminate_qualify(tree)
            assert isinstance(found, exp.Select)
            tree = found
        if tree.args.get("limit") is not None or tree.args.get("offset") is not None:
            return self._limited(tree, name, there, names)
        tree.set("order", None)  # rows of a table have no order
        if tree.args.get("distinct") is not None:
            return self._distinct(tree, name, there, names)
        inner = self._ranked(tree)
        if inner is not None:
            where = tree.args.get("where")
            chosen = tuple(one.unalias().sql(DIALECT) for one in tree.selects)
            keep = Keep(tree.args["from_"].this.alias, chosen, "" if where is None else where.this.sql(DIALECT))
            return self._block(inner, name, there, names or tuple(tree.named_selects), keep)
        return self._block(tree, name, there, names or tuple(tree.named_selects), None)

    def _derived(self, tree: exp.Expr, alias: str, ctes: Mapping[str, str]) -> str:
        """Makes the block of a subquery in FROM, or of a CTE; returns its name."""
        if not isinstance(tree, exp.Select):
            _not_taken(tree, "it is no SELECT")
        name, number = alias.lower().lstrip("_") or "part", 1
        while name in self.taken:
            name, number = f"{alias.lower().lstrip('_')}_{number}", number + 1
        self.taken.add(name)
        return self.select(tree, name, ctes)

    def _limited(self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...]) -> str:
        """Makes a block of all rows, and a ranking of them, of which the first stay."""
        limit, offset, order = tree.args.get("limit"), tree.args.get("offset"), tree.args.get("order")
        if offset is not None or limit is None or not isinstance(limit.expression, exp.Literal):
            _not_taken(tree, "LIMIT takes a number, without OFFSET")
        if order is None:
            _not_taken(limit, "LIMIT without ORDER BY: which rows stay is left to chance")
        outputs = [*tree.named_selects]
        rest = tree.copy()
        rest.set("limit", None)
        rest.set("order", None)
        by = []
        for number, one in enumerate(order.expressions):
            key, shown = one.this, exp.column(exp.to_identifier(_ORDER.format(number), quoted=True))
            if isinstance(key, exp.Column) and not key.table and key.name in outputs:
                shown = exp.column(exp.to_identifier(key.name, quoted=True))
            else:
                rest.select(exp.alias_(key.copy(), _ORDER.format(number), quoted=True), copy=False)
            ordered = one.copy()
            ordered.set("this", shown)
            by.append(ordered)
        inner = self._derived(rest, f"{name}_rows" if name == RESULT else name, ctes)
        rank = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=by))
        ranked = exp.select(*[exp.column(exp.to_identifier(one, quoted=True)) for one in outputs])
        ranked = ranked.select(exp.alias_(rank, _RANK, quoted=True)).from_(_table(inner, "_rows"))
        for column in ranked.find_all(exp.Column):
            column.set("table", exp.to_identifier("_rows", quoted=True))
        kept = Keep("_rows", tuple(map(quote, outputs)), f"`{_RANK}` <= {limit.expression}")
        there = {**ctes, inner: inner}
        return self._block(ranked, name, there, names or tuple(outputs), kept)

    def _distinct(self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...]) -> str:
        """Makes a block of DISTINCT: a group per row that differs."""
        if tree.args["distinct"].args.get("on") is not None:
            _not_taken(tree, "DISTINCT ON is not possible")
        tree.set("distinct", None)
        outputs = [*tree.named_selects]
        if _is_grouped(tree) or _own(tree, exp.Window):
            inner = self._derived(tree, f"{name}_rows" if name == RESULT else name, ctes)
            tree = exp.select(
                *[exp.column(exp.to_identifier(one, quoted=True), "_rows", quoted=True) for one in outputs]
            )
            tree = tree.from_(_table(inner, "_rows"))
            ctes = {**ctes, inner: inner}
        tree.set("group", exp.Group(expressions=[one.unalias().copy() for one in tree.selects]))
        return self._block(tree, name, ctes, names or tuple(outputs), None)

    @staticmethod
    def _ranked(tree: exp.Select) -> exp.Select | None:
        """Returns the subquery with groups or window functions among whose rows a SELECT only chooses; else None."""
        source = tree.args["from_"].this if tree.args.get("from_") is not None else None
        if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Select) or tree.args.get("joins"):
            return None
        inner, clauses = source.this, ("with_", "limit", "offset", "distinct", "qualify")
        if _is_grouped(tree) or _own(tree, exp.Window) or any(inner.args.get(one) is not None for one in clauses):
            return None
        return inner if _is_grouped(inner) or _own(inner, exp.Window) else None

    def _block(
        self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...], keep: Keep | None
    ) -> str:
        """Makes a block of a SELECT without subqueries as values; returns its name."""
        if tree.args.get("from_") is None:
            _not_taken(tree, "there is no FROM")
        tree = tree.copy()
        tree.set("order", None)
        sources = [tree.args["from_"].this, *(join.this for join in tree.args.get("joins") or ())]
        relations = {one.alias_or_name: self._relation(one, ctes) for one in sources}
        aliases = _aliases(tree, relations)
        self.taken.add(name)
        for source, alias in zip(sources, aliases, strict=True):
            source.replace(_table(alias.name, alias.name))
        grouped, windows = _is_grouped(tree), _own(tree, exp.Window)
        if grouped and windows:
            _not_taken(windows[0], "a window function beside GROUP BY; group in a subquery, and rank its rows")
        group = tree.args.get("group")
        by = group.expressions if group is not None else _partition(windows) if windows else ()
        unit = Unit.GROUP if grouped else Unit.PARTITION if windows else Unit.ROW
        self.blocks.append(Block(name, unit, aliases, tree, tuple(one.copy() for one in by), names, keep))
        return name

    def _relation(self, source: exp.Expr, ctes: Mapping[str, str]) -> str:
        """Returns the name of the input or block that stands in FROM."""
        if isinstance(source, exp.Subquery):
            return self._derived(source.this, source.alias, ctes)
        if not isinstance(source, exp.Table):
            _not_taken(source, "it is no table")
        return ctes.get(source.name, source.name)


def _aliases(tree: exp.Select, relations: Mapping[str, str]) -> tuple[Alias, ...]:
    """Returns the tables of a FROM in order, each with the earlier one that it is joined to, and by what."""
    names = [*relations]
    where = tree.args.get("where")
    of_where = [*conjuncts(where.this)] if where is not None else []
    found = [Alias(names[0], relations[names[0]])]
    for number, join in enumerate(tree.args.get("joins") or (), start=1):
        alias, how = names[number], _JOINS[(join.side or join.kind or "").upper()]
        on = join.args.get("on")
        conditions = [*conjuncts(on)] if on is not None else []
        conditions += of_where if not how else []
        parent = _parent(alias, names[:number], conditions)
        if parent is None:
            write = f"write ON {names[0]}.column = {alias}.column"
            _not_taken(join, f"{alias} is joined without an equality with one earlier table; {write}")
        path = [one for one in conditions if alias in _tables_in(one) and _tables_in(one) <= {alias, parent}]
        equal = tuple(pair for one in path if (pair := _equal(one, alias)) is not None)
        found.append(Alias(alias, relations[alias], how, parent, tuple(one.sql(DIALECT) for one in path), equal))
    return tuple(found)


def _equal(condition: exp.Expr, alias: str) -> tuple[str, str] | None:
    """Returns the column of a table, and that of another to which a condition says it is equal; None otherwise."""
    if not isinstance(condition, exp.EQ):
        return None
    one, other = condition.left, condition.right
    if isinstance(one, exp.Column) and isinstance(other, exp.Column) and one.table != other.table:
        return (one.name, other.name) if one.table == alias else (other.name, one.name)
    return None


def _tables_in(node: exp.Expr) -> set[str]:
    return {column.table for column in node.find_all(exp.Column)}


def _parent(alias: str, earlier: Sequence[str], conditions: Sequence[exp.Expr]) -> str | None:
    """Returns the earliest table that an equality joins to another; None if there is none."""
    for name in earlier:
        for one in conditions:
            if isinstance(one, (exp.EQ, exp.NullSafeEQ)):
                sides = [_tables_in(one.left), _tables_in(one.right)]
                if {name} in sides and {alias} in sides:
                    return name
    return None


def _own(tree: exp.Select, *types: type[exp.Expr]) -> list[exp.Expr]:
    """Returns the nodes of some types in a SELECT, without those in subqueries."""
    return [one for one in tree.find_all(*types) if one.find_ancestor(exp.Select) is tree]


def _is_grouped(tree: exp.Select) -> bool:
    """Returns whether a SELECT groups its rows: by GROUP BY, or all of them by an aggregate."""
    if tree.args.get("group") is not None or tree.args.get("having") is not None:
        return True
    return any(not isinstance(_above(one), exp.Window) for one in _own(tree, exp.AggFunc))


def _above(call: exp.Expr) -> exp.Expr | None:
    """Returns what an aggregate function stands in: OVER, if it has one."""
    above = call.parent
    while isinstance(above, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        above = above.parent
    return above


def _table(name: str, alias: str) -> exp.Table:
    return exp.Table(this=_named(name), alias=exp.TableAlias(this=_named(alias)))


def _named(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def _partition(windows: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
    """Returns the expressions by which all window functions partition the rows."""
    each = [one.args.get("partition_by") or [] for one in windows]
    return tuple(one for one in each[0] if all(one in other for other in each[1:]))
