"""UNION as a SELECT of its rows, and as its parts. No Spark."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.trees import column_of, subquery_as


def first_select(tree: exp.Expr) -> exp.Select:
    """Returns the first SELECT of a UNION, which gives the columns their names; of any other query itself."""
    while isinstance(tree, (exp.SetOperation, exp.Subquery)):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        not_taken(tree, "it is no SELECT")
    return tree


def as_select(tree: exp.Query) -> exp.Select:
    """Returns a UNION as a SELECT of its rows; any other query as it is."""
    if isinstance(tree, exp.Select):
        return tree
    rows = tree.copy()
    whole = exp.select("*")
    for clause in ("with_", "order", "limit", "offset"):
        whole.set(clause, rows.args.get(clause))
        rows.set(clause, None)
    while isinstance(rows, exp.Subquery):
        rows = rows.this
    return rows if isinstance(rows, exp.Select) else whole.from_(subquery_as(rows, "union"))


def only_union(tree: exp.Expr) -> exp.SetOperation | None:
    """Returns the UNION of which a SELECT is the rows, with their columns in order; None if it is none."""
    if not isinstance(tree, exp.Select) or tree.args.get("from_") is None:
        return None
    source = tree.args["from_"].this
    if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.SetOperation):
        return None
    if any(value for key, value in tree.args.items() if key not in ("from_", "expressions", "kind")):
        return None
    columns = [output.unalias() for output in tree.selects]
    plain = all(isinstance(column, exp.Column) for column in columns)
    return source.this if plain and [column.name for column in columns] == source.this.named_selects else None


def with_columns(tree: exp.Query) -> exp.Select:
    """Returns a UNION as a SELECT of all its columns, by their names."""
    select = as_select(tree)
    source = select.args["from_"].this
    select.set("expressions", [column_of(source.alias, name) for name in source.this.named_selects])
    return select


def branches_of(tree: exp.Query) -> Iterator[exp.Select]:
    """Yields the parts of a UNION ALL."""
    clauses = ("with_", "order", "limit", "offset", "distinct")
    inner: exp.Query = tree
    while isinstance(inner, exp.Subquery) and not any(inner.args.get(clause) for clause in clauses):
        inner = inner.this
    if isinstance(inner, exp.SetOperation) and not any(inner.args.get(clause) for clause in clauses):
        yield from branches_of(inner.this)
        yield from branches_of(inner.expression)
    else:
        yield inner if isinstance(inner, exp.Select) else with_columns(inner)
