"""Small functions over sqlglot's trees of a query. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from sqlglot import exp


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the parts of a condition that AND joins."""
    if isinstance(condition, exp.Paren):
        yield from conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        yield from conjuncts(condition.left)
        yield from conjuncts(condition.right)
    else:
        yield condition


def conditions_in(select: exp.Select) -> list[exp.Expr]:
    """Returns the parts of WHERE that AND joins; none without one."""
    where = select.args.get("where")
    return [] if where is None else [*conjuncts(where.this)]


def sources_of(select: exp.Select) -> list[exp.Expr]:
    """Returns the tables and subqueries in FROM."""
    from_ = select.args.get("from_")
    return [clause.this for clause in (from_, *(select.args.get("joins") or ())) if clause is not None]


def laterals_of(select: exp.Select) -> list[exp.Expr]:
    """Returns each LATERAL VIEW of a SELECT, in order."""
    return [*(select.args.get("laterals") or ())]


def names_in(select: exp.Select) -> set[str]:
    """Returns what the tables and subqueries in FROM, and the generated rows of LATERAL VIEW, are called."""
    return {source.alias_or_name for source in (*sources_of(select), *laterals_of(select))}


def own(tree: exp.Select, *types: type[exp.Expr]) -> list[exp.Expr]:
    """Returns the nodes of some types in a SELECT, without those in subqueries."""
    return [node for node in tree.find_all(*types) if node.find_ancestor(exp.Select) is tree]


def is_grouped(tree: exp.Select) -> bool:
    """Returns whether a SELECT groups its rows: by GROUP BY, or all of them by an aggregate."""
    if tree.args.get("group") is not None or tree.args.get("having") is not None:
        return True
    return any(not isinstance(_above(aggregate), exp.Window) for aggregate in own(tree, exp.AggFunc))


def _above(call: exp.Expr) -> exp.Expr | None:
    """Returns what an aggregate function stands in: OVER, if it has one."""
    above = call.parent
    while isinstance(above, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        above = above.parent
    return above


def named(name: str) -> exp.Identifier:
    """Returns a name, in the letters that it has."""
    return exp.Identifier(this=name, quoted=True)


def text_beside(sql: str, columns: Iterable[exp.Expr] = ()) -> exp.Expr:
    """Returns SQL that stays as it was written, beside the columns that it reads."""
    node = exp.Var(this=sql)
    node.set("expressions", [*columns])
    return node


def column_of(table: str, name: str) -> exp.Column:
    """Returns a column of a table."""
    return exp.Column(this=named(name), table=named(table))


def split_fields(root: exp.Expr, tables: Collection[str]) -> None:
    """Tells columns from fields of structs in a parsed expression over tables with some names, in place.

    For sqlglot `orders.address.city` is the column `city` of the table `orders.address`.
    """
    for column in [*root.find_all(exp.Column)]:
        first, *names = (part.copy() for part in column.parts)
        table = first if names and first.name in tables else None
        name, *fields = [first, *names] if table is None else names
        own = exp.Column(this=name, table=table)
        column.replace(exp.Dot.build([own, *fields]) if fields else own)


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Returns a call of a function by its name."""
    return exp.Anonymous(this=name, expressions=[*arguments])


def aliased(value: exp.Expr, name: str) -> exp.Alias:
    """Returns an expression with a name."""
    return exp.Alias(this=value, alias=named(name))


def table_as(name: str, alias: str) -> exp.Table:
    """Returns a table with an alias."""
    return exp.Table(this=named(name), alias=exp.TableAlias(this=named(alias)))


def subquery_as(query: exp.Query, alias: str) -> exp.Subquery:
    """Returns a subquery in FROM."""
    return exp.Subquery(this=query, alias=exp.TableAlias(this=named(alias)))


def query_of(node: exp.Expr) -> exp.Query:
    """Returns the query of a subquery that is a condition or a value."""
    inner = node.args["query"] if isinstance(node, exp.In) else node.this
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    assert isinstance(inner, exp.Query)
    return inner


def subqueries(select: exp.Select) -> Iterator[exp.Expr]:
    """Yields the subqueries of a SELECT that are conditions or values, not those in FROM or in another subquery."""
    for node in select.walk(prune=lambda part: part is not select and isinstance(part, (exp.Query, exp.With))):
        is_value = isinstance(node, exp.Subquery) and not isinstance(
            node.parent, (exp.From, exp.Join, exp.In, exp.Exists)
        )
        is_exists = isinstance(node, exp.Exists) and isinstance(node.this, exp.Query)
        if is_value or is_exists or (isinstance(node, exp.In) and node.args.get("query") is not None):
            yield node


def external(query: exp.Expr) -> list[exp.Column]:
    """Returns the columns in a query that are of tables around it."""
    if isinstance(query, exp.Subquery):
        return external(query.this)
    if isinstance(query, exp.SetOperation):
        return [*external(query.this), *external(query.expression)]
    assert isinstance(query, exp.Select)
    names, columns = names_in(query), list[exp.Column]()
    for node in query.walk(prune=lambda part: part is not query and isinstance(part, exp.Query)):
        if isinstance(node, exp.Column) and node.table and node.table not in names:
            columns.append(node)
        elif node is not query and isinstance(node, exp.Query):
            in_from = isinstance(node.parent, (exp.From, exp.Join, exp.CTE))
            columns += [column for column in external(node) if in_from or column.table not in names]
    return columns


def is_in(node: exp.Expr, root: exp.Expr) -> bool:
    """Returns whether a node is a part of another, or that itself."""
    above: exp.Expr | None = node
    while above is not None and above is not root:
        above = above.parent
    return above is root


def is_conjunct(node: exp.Expr) -> bool:
    """Returns whether a condition is one of those that AND joins in WHERE."""
    above = node.parent
    while isinstance(above, (exp.And, exp.Paren)):
        above = above.parent
    return isinstance(above, exp.Where) and isinstance(above.parent, exp.Select)


def is_negated(node: exp.Expr) -> bool:
    """Returns whether a condition stands under an odd number of NOT, with AND and OR between."""
    negated, above = False, node.parent
    while above is not None and (isinstance(above, (exp.And, exp.Or, exp.Paren, exp.Not)) or _is_with_boolean(above)):
        negated, above = negated is not _negates(above), above.parent
    return negated


def _is_with_boolean(node: exp.Expr) -> bool:
    """Returns whether a condition is compared with TRUE or FALSE: Spark makes it, or NOT, of that."""
    return isinstance(node, (exp.EQ, exp.NEQ)) and any(
        isinstance(side, exp.Boolean) for side in (node.left, node.right)
    )


def _negates(node: exp.Expr) -> bool:
    """Returns whether NOT, or a comparison with TRUE or FALSE, turns a condition around."""
    if isinstance(node, (exp.EQ, exp.NEQ)):
        return isinstance(node, exp.NEQ) is (exp.true() in (node.left, node.right))
    return isinstance(node, exp.Not)
