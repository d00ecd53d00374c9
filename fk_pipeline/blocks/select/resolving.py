"""Resolves the names of a SELECT, and merges the subqueries that are no blocks of their own. No Spark.

sqlglot does most of it; what it would do otherwise than Spark is done here, before it or after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.qualify import qualify

from fk_pipeline.blocks.select.generators import as_laterals, note_spelling
from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.trees import named, sources_of, subquery_as
from fk_pipeline.spec.sql import DIALECT, Column

_UNMERGED = "settings"
"""An argument of a SELECT that Spark has not: sqlglot merges no subquery that has it."""

_WRITTEN = "written"
"""What is noted at a COALESCE of the user's, to tell it from those that sqlglot makes of USING."""

OUTPUT = "output"
"""What is noted at a name in ORDER BY that is one of an output."""

_GREATEST_INT = 2**31 - 1


def resolved(tree: exp.Query, inputs: Mapping[str, Sequence[Column]]) -> exp.Query:
    """Returns a query in which each column has its table, and stars and names of outputs are what they stand for."""
    tree = tree.copy()
    _rename_ctes(tree, {}, {*inputs})
    for select in [*tree.find_all(exp.Select)]:
        _semi_joins(select)
        _expand_windows(select)
        _keep_order(select)
    for node in tree.find_all(exp.PropertyEQ, exp.ColumnDef):  # names of fields are part of a value, in any case
        for name in [node.this, *node.this.find_all(exp.Identifier)]:
            if isinstance(name, exp.Identifier):
                name.meta["case_sensitive"] = True
    note_spelling(tree)
    for call in tree.find_all(exp.Coalesce):
        call.meta[_WRITTEN] = True
    whole = qualify(tree, schema=schema_of(inputs), dialect=DIALECT, identify=True)
    for call in [*whole.find_all(exp.Coalesce)]:
        if not call.meta.get(_WRITTEN) and not _is_outer(call.find_ancestor(exp.Select)):
            call.replace(call.this)  # of inner and left joins the column of the first table is that of USING
    assert isinstance(whole, exp.Query)
    as_laterals(whole)
    return whole


def schema_of(inputs: Mapping[str, Sequence[Column]]) -> dict[str, object]:
    """Returns inputs as sqlglot takes them: per name, the type of each column."""
    return {name: {c.name: c.type for c in columns} for name, columns in inputs.items()}


def _is_outer(select: exp.Select | None) -> bool:
    """Returns whether a SELECT has a RIGHT or a FULL JOIN."""
    joins = [] if select is None else select.args.get("joins") or []
    return any((join.side or "").upper() in ("RIGHT", "FULL") for join in joins)


def _semi_joins(select: exp.Select) -> None:
    """Writes LEFT SEMI JOIN as EXISTS, and LEFT ANTI JOIN as NOT EXISTS; refuses what would change by that."""
    joins = select.args.get("joins") or []
    if _is_outer(select) and sum(join.args.get("using") is not None for join in joins) > 1:
        not_taken(select, "RIGHT or FULL JOIN with USING beside another USING; write ON")
    for join in [*joins]:
        kind = (join.kind or "").upper()
        if kind in ("SEMI", "ANTI"):
            if join.args.get("on") is None or _is_outer(select):
                not_taken(join, f"LEFT {kind} JOIN without ON, or beside RIGHT or FULL JOIN; write it as EXISTS")
            rows = exp.select("1").from_(join.this.copy()).where(join.args["on"].copy())
            exists = exp.Exists(this=rows)
            select.where(exp.not_(exists) if kind == "ANTI" else exists, copy=False)
            join.pop()


def tables_named(tree: exp.Query) -> list[exp.Table]:
    """Returns the tables in FROM that are no CTEs, in the order of the text."""
    tree = tree.copy()
    _rename_ctes(tree, {}, {table.name.lower() for table in tree.find_all(exp.Table)})
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if table.db or table.name.lower() not in ctes]
    return sorted(tables, key=lambda table: int(table.this.meta.get("start", 0)))


def merged(whole: exp.Select) -> exp.Select:
    """Returns a resolved SELECT without the subqueries that can be a part of the SELECT around them."""
    tree = _inlined(whole.copy())
    for select in tree.find_all(exp.Select):
        for output in select.selects:
            value = output.unalias()
            if value is not output and not _needs_no_parentheses(value):
                value.replace(exp.Paren(this=value.copy()))
        for source in _unmerged(select):
            source.this.set(_UNMERGED, [exp.true()])
    tree = merge_subqueries(tree)
    assert isinstance(tree, exp.Select)
    for select in tree.find_all(exp.Select):
        select.set(_UNMERGED, None)
        group = select.args.get("group")
        for value in [
            *(output.unalias() for output in select.selects),
            *(group.expressions if group is not None else ()),
        ]:
            if isinstance(value, exp.Paren):
                value.replace(value.unnest())
        _without_positions(select)
    return tree


def _unmerged(select: exp.Select) -> Iterator[exp.Subquery]:
    """Yields the subqueries in FROM that sqlglot would merge, and whose rows or values would be others then."""
    ranks = select.args.get("qualify") is not None or any(
        window.find_ancestor(exp.Select) is select for window in select.find_all(exp.Window)
    )
    for place in (select.args["from_"], *(select.args.get("joins") or ())) if select.args.get("from_") else ():
        source = place.this
        if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Select):
            continue
        made = [output.unalias() for inner in source.find_all(exp.Select) for output in inner.selects]
        is_computed = any(not isinstance(value, exp.Column) for value in made)
        if isinstance(place, exp.Join) and place.side == "LEFT" and is_computed:
            yield source  # without a partner its values are null, whatever they are computed of
        elif ranks and any(value.find(exp.Window) is not None for value in made):
            yield source  # a window function takes no other
        elif _is_compared(select, source):
            yield source  # a table is joined to one other


def _is_compared(select: exp.Select, source: exp.Subquery) -> bool:
    """Returns whether a join, or WHERE beside one, compares a column of a subquery that is made of several tables."""
    outputs = {output.alias_or_name: output.unalias() for output in source.this.selects}
    several = {name for name, value in outputs.items() if len({c.table for c in value.find_all(exp.Column)}) > 1}
    joins = select.args.get("joins") or []
    conditions = [*(join.args.get("on") for join in joins), select.args.get("where") if joins else None]
    read = [column for condition in conditions if condition is not None for column in condition.find_all(exp.Column)]
    return any(column.table == source.alias and column.name in several for column in read)


def as_group(value: exp.Expr) -> exp.Expr:
    """Returns an expression for GROUP BY, where a whole number would be a position."""
    number = value.this if isinstance(value, exp.Neg) else value
    if isinstance(number, exp.Literal) and number.is_int and int(number.name) <= _GREATEST_INT:
        return exp.cast(value.copy(), "INT")
    return value.copy()


def _without_positions(select: exp.Select) -> None:
    """Replaces positions in GROUP BY by what stands there; sqlglot leaves those of literals."""
    group = select.args.get("group")
    if group is None:
        return
    for position in [*group.expressions]:
        if isinstance(position, exp.Literal) and position.is_int:
            if not 0 < int(position.name) <= len(select.selects):
                not_taken(group, f"GROUP BY {position.name}: there is no column of this number")
            position.replace(as_group(select.selects[int(position.name) - 1].unalias()))


def _needs_no_parentheses(value: exp.Expr) -> bool:
    """Returns whether an expression can stand at any place without parentheses."""
    if isinstance(value, (exp.Column, exp.Literal, exp.Paren)):
        return True
    return isinstance(value, exp.Func) and not isinstance(value, (exp.Binary, exp.Unary, exp.Predicate))


def _rename_ctes(query: exp.Expr, names: Mapping[str, str], taken: set[str]) -> None:
    """Gives each CTE a name that no input and no other CTE has, in itself and where it is read."""
    new_names = dict(names)
    with_ = query.args.get("with_")
    for cte in with_.expressions if with_ is not None else ():
        _rename_ctes(cte.this, new_names, taken)
        old, number = cte.alias.lower(), 0
        new = old
        while new in taken:
            number += 1
            new = f"{old}_{number}"
        taken.add(new)
        new_names[old] = new
        cte.args["alias"].set("this", named(new))
    for node in query.walk(prune=lambda part: part is not query and isinstance(part, (exp.Select, exp.With))):
        if isinstance(node, exp.With):
            continue
        if isinstance(node, exp.Select) and node is not query:
            _rename_ctes(node, new_names, taken)
        if isinstance(node, exp.Table) and not node.db and node.name.lower() in new_names:
            alias = node.alias_or_name
            node.set("this", named(new_names[node.name.lower()]).update_positions(node.this))
            node.set("alias", exp.TableAlias(this=named(alias)))


def _inlined(tree: exp.Select) -> exp.Select:
    """Returns a query in which a CTE that is named once stands where it is named."""
    for cte in [*tree.find_all(exp.CTE)]:
        places = [table for table in tree.find_all(exp.Table) if table.name == cte.alias and not table.db]
        if len(places) == 1:
            places[0].replace(subquery_as(cte.this, places[0].alias_or_name))
            with_ = cte.parent
            cte.pop()
            if isinstance(with_, exp.With) and not with_.expressions:
                with_.pop()
    return tree


def _expand_windows(select: exp.Select) -> None:
    """Writes what WINDOW defines in each OVER that names it."""
    defined = {window.name.lower(): window for window in select.args.get("windows") or ()}
    parts = ("partition_by", "order", "spec")

    def of(window: exp.Expr, seen: frozenset[str]) -> exp.Expr:
        name = window.alias.lower()
        if not name:
            return window
        if any(window.args.get(part) for part in parts):
            not_taken(window, f"OVER ({name} ...) adds to a window; write the whole of it")
        if name not in defined or name in seen:
            not_taken(window, f"WINDOW defines no {name}")
        return of(defined[name], seen | {name})

    for window in [*select.find_all(exp.Window)]:
        if window.find_ancestor(exp.Select) is select and window.arg_key != "windows":
            definition = of(window, frozenset())
            if definition is not window:
                window.set("alias", None)
                for part, value in definition.copy().args.items():
                    if part in parts:
                        window.set(part, value)
    select.set("windows", None)


def _keep_order(select: exp.Select) -> None:
    """Marks the names of outputs in ORDER BY with LIMIT: as Spark has it, they are not those of columns of FROM."""
    order = select.args.get("order")
    if order is None or select.args.get("limit") is None:
        return
    outputs = {output.alias_or_name.lower(): output.unalias() for output in select.selects if not output.is_star}
    for column in [*order.find_all(exp.Column)]:
        made = outputs.get(column.parts[0].name.lower())
        if made is None or (len(column.parts) > 1 and isinstance(made, exp.Column)):
            continue
        if len(column.parts) > 1:
            if column.table.lower() not in {source.alias_or_name.lower() for source in sources_of(select)}:
                not_taken(column, "ORDER BY a field of a computed column; give the field a name in a subquery")
        elif column.find_ancestor(exp.AggFunc) is None:
            name = named(column.name.lower())
            name.meta[OUTPUT] = True
            column.replace(name)
        elif not isinstance(made, exp.Column):
            not_taken(column, f"ORDER BY an aggregate of {column.name}, which is a column of the result; rename it")
