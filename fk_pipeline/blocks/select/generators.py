"""Functions that make several rows of one, `explode` and `posexplode`: LATERAL VIEW, and columns of a SELECT. No Spark.

A column of a SELECT is written as LATERAL VIEW:

    SELECT id, explode(items) AS item FROM orders
    SELECT id, made.item FROM orders LATERAL VIEW explode(items) made AS item

The position, which `posexplode` gives, tells the rows apart that are made of one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.helper import find_new_name
from sqlglot.optimizer.annotate_types import annotate_types

from fk_pipeline.blocks.select.outer_joins import outward
from fk_pipeline.blocks.select.refusals import not_taken, refuse_nested
from fk_pipeline.blocks.select.trees import (
    aliased,
    column_of,
    conditions_in,
    is_grouped,
    laterals_of,
    named,
    own,
    sources_of,
    subqueries,
    subquery_as,
)
from fk_pipeline.spec.sql import DIALECT, quote

POSITION = "_fk_position"
"""The column of generated rows with their position, where the query does not ask for it."""

_SPELLED = "spelled"
"""What is noted at the name of a generated column: as it is written."""


def note_spelling(tree: exp.Query) -> None:
    """Notes how the columns of LATERAL VIEW are written, before their names are resolved."""
    for lateral in tree.find_all(exp.Lateral):
        for column in lateral.args["alias"].columns:
            column.meta[_SPELLED] = column.name


def spelling(lateral: exp.Expr) -> dict[str, str]:
    """Returns per column of a LATERAL VIEW, in lower case, how it is written."""
    return {column.name: str(column.meta.get(_SPELLED, column.name)) for column in lateral.args["alias"].columns}


def as_laterals(whole: exp.Query) -> None:
    """Writes functions that make rows, among the columns of SELECTs with resolved names, as LATERAL VIEW, in place.

    Raises:
        SqlTextError: one stands beside what Spark does before it makes the rows.
    """
    tables = whole.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Lateral)
    taken = {table.alias_or_name for table in tables}
    for select in [*whole.find_all(exp.Select)]:
        made = [output for output in select.selects if isinstance(_value(output), exp.Explode)]
        if made:
            name = find_new_name(taken, "made")
            taken.add(name)
            _as_lateral(select, made, name)
    for call in whole.find_all(exp.Explode):
        refuse_nested(call)  # a name of an output, in another one, stands for what it is


def _value(output: exp.Expr) -> exp.Expr:
    return output.this if isinstance(output, (exp.Alias, exp.Aliases)) else output


def _as_lateral(select: exp.Select, made: list[exp.Expr], name: str) -> None:
    output = made[0]
    if len(made) > 1:
        not_taken(made[1], "a second function that makes rows in one SELECT; write each as LATERAL VIEW")
    if is_grouped(select) or own(select, exp.Window):
        not_taken(
            output,
            "explode in SELECT beside an aggregate or a window function, which Spark computes before the rows are "
            "made; write LATERAL VIEW to compute them of the rows that are made, or a subquery",
        )
    call = _value(output)
    columns = [part.name for part in output.expressions] if isinstance(output, exp.Aliases) else [output.alias_or_name]
    alias = exp.TableAlias(this=named(name), columns=[named(column) for column in columns])
    select.append("laterals", exp.Lateral(this=call.copy(), view=True, outer=False, alias=alias))
    order = select.args.get("order")
    for repeated in [*order.find_all(exp.Explode)] if order is not None else ():
        if repeated == call and len(columns) == 1:
            repeated.replace(column_of(name, columns[0]))
    outputs = list[exp.Expr]()
    for selected in select.selects:
        outputs += [aliased(column_of(name, of), of) for of in columns] if selected is output else [selected]
    select.set("expressions", outputs)


def with_positions(tree: exp.Select) -> None:
    """Makes every LATERAL VIEW of a SELECT give the position of its rows as the first column, in place."""
    for lateral in laterals_of(tree):
        call = lateral.this
        if not isinstance(call, exp.Posexplode):
            kind = exp.PosexplodeOuter if isinstance(call, exp.ExplodeOuter) else exp.Posexplode
            lateral.set("this", kind(this=call.this))
            lateral.args["alias"].set("columns", [named(POSITION), *lateral.args["alias"].columns])


def position_of(lateral: exp.Expr) -> exp.Column | None:
    """Returns the column with the position of generated rows; None if there is none."""
    if not isinstance(lateral.this, exp.Posexplode):
        return None
    return column_of(lateral.alias, lateral.args["alias"].columns[0].name)


def lateral_sql(lateral: exp.Expr) -> str:
    """SQL: LATERAL VIEW."""
    columns = ", ".join(quote(column.name) for column in lateral.args["alias"].columns)
    outer = "OUTER " if lateral.args.get("outer") else ""
    return f"LATERAL VIEW {outer}{lateral.this.sql(DIALECT)} {quote(lateral.alias)} AS {columns}"


def shown_call(lateral: exp.Expr) -> str:
    """Returns the function that makes rows, for people."""
    call = lateral.this
    hidden = any(column.name == POSITION for column in lateral.args["alias"].columns)
    is_outer = lateral.args.get("outer") or isinstance(call, exp.ExplodeOuter)
    name = "explode" if hidden or not isinstance(call, exp.Posexplode) else "posexplode"
    return f"{name}{'_outer' if is_outer else ''}({call.this.sql(DIALECT)})"


def _is_of(condition: exp.Expr, tables: set[str]) -> bool:
    """Returns whether a condition reads some tables alone, and has no subquery."""
    return condition.find(exp.Query) is None and {column.table for column in condition.find_all(exp.Column)} <= tables


def typed(tree: exp.Select, schema: Mapping[str, object]) -> exp.Select:
    """Returns a SELECT whose expressions know their types; sqlglot takes an element for the array that it is of."""
    tree = annotate_types(tree, schema={**schema}, dialect=DIALECT)
    stands_for = list[exp.Expr]()
    for select in reversed([*tree.find_all(exp.Select)]):
        for lateral in laterals_of(select):
            dtypes = _types_of(lateral, stands_for)
            for column in [read for read in outward(select) if read.table == lateral.alias]:
                dtype = dtypes.get(column.name)
                node = _call_of_no_type(column) if dtype is None else exp.cast(column.copy(), dtype.copy())
                column.replace(node)
                stands_for.append(node)
            tree = annotate_types(tree, schema={**schema}, dialect=DIALECT)
    for node in stands_for:
        column = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        column.type = node.type
        node.replace(column)
    return tree


def _call_of_no_type(column: exp.Column) -> exp.Expr:
    return exp.Anonymous(this=POSITION, expressions=[column.copy()])


def _types_of(lateral: exp.Expr, stands_for: Sequence[exp.Expr]) -> dict[str, exp.DataType]:
    """Returns the types of columns that are made of an array, or a map, which is a column; others are not known."""
    given, columns = lateral.this.this, [column.name for column in lateral.args["alias"].columns]
    is_column = isinstance(given, exp.Column) or any(given is node for node in stands_for)
    if not is_column or given.type is None or not given.type.is_type(exp.DType.ARRAY, exp.DType.MAP):
        return {}
    parts = given.type.expressions
    return dict(zip(columns[-len(parts) :], parts, strict=True)) if 0 < len(parts) <= len(columns) else {}


def made_above_subqueries(select: exp.Select) -> bool:
    """Returns whether a subquery that is a condition or a value reads generated rows of the SELECT that it stands in.

    Raises:
        SqlTextError: it stands in LATERAL VIEW itself.
    """
    made = {lateral.alias for lateral in laterals_of(select)}
    for node in subqueries(select) if made else ():
        if any(column.table in made for column in node.find_all(exp.Column)):
            if node.find_ancestor(exp.Lateral) is not None:
                not_taken(node, "a subquery in LATERAL VIEW reads what another one makes; make the rows in a subquery")
            return True
    return False


def split_laterals(select: exp.Select, name: str) -> None:
    """Makes of a SELECT with LATERAL VIEW, in place, one over a subquery of some name that makes the rows.

    Args:
        select: the SELECT.
        name: a new name.
    """
    inner = exp.Select()
    moved = [*sources_of(select), *laterals_of(select)]
    tables = {source.alias_or_name for source in moved}
    clauses = [select.args["from_"], *(select.args.get("joins") or ()), *laterals_of(select)]
    conditions = conditions_in(select)
    early = [condition for condition in conditions if _is_of(condition, tables)]
    inside = {id(column) for part in (*clauses, *early) for column in part.find_all(exp.Column)}
    read = [column for column in outward(select) if column.table in tables and id(column) not in inside]
    names: dict[tuple[str, str], str] = {}
    for column in read:
        if (column.table, column.name) not in names:
            names[column.table, column.name] = find_new_name({*names.values()}, column.name)
    outputs = {as_: column_of(*of) for of, as_ in names.items()}
    for original in read:
        column = column_of(name, names[original.table, original.name])
        column.type = outputs[column.name].type = original.type
        original.replace(column)
    made = [aliased(column, as_) for as_, column in outputs.items()]
    inner.set("expressions", made or [aliased(exp.Literal.number(1), "one")])
    for clause in ("from_", "joins", "laterals"):
        inner.set(clause, select.args.get(clause))
        select.set(clause, None)
    late = [condition.copy() for condition in conditions if not any(condition is other for other in early)]
    if early:
        inner.set("where", exp.Where(this=exp.and_(*(condition.copy() for condition in early))))
    select.set("where", exp.Where(this=exp.and_(*late)) if late else None)
    select.set("from_", exp.From(this=subquery_as(inner, name)))
