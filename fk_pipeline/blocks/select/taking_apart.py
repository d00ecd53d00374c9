"""Takes a query whose names are resolved, and which has no subqueries as values, apart into blocks. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.helper import find_new_name

from fk_pipeline.blocks.select.aliases import aliases_of, put_behind, rename_table
from fk_pipeline.blocks.select.block import Block, Keep, Unit, is_same
from fk_pipeline.blocks.select.generators import with_positions
from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.resolving import OUTPUT, as_group
from fk_pipeline.blocks.select.trees import (
    aliased,
    column_of,
    is_grouped,
    laterals_of,
    named,
    names_in,
    own,
    sources_of,
    subquery_as,
    table_as,
)
from fk_pipeline.blocks.select.unions import branches_of, first_select, only_union, with_columns
from fk_pipeline.spec.sql import DIALECT, quote
from fk_pipeline.store import LEDGER_TABLES

_RANK, _ORDER = "_fk_rank", "_fk_order_{}"
"""Columns of a block with LIMIT: the place of a row, and the values by which rows are ordered."""


def blocks_of(
    tree: exp.Select, names: tuple[str, ...], inputs: Iterable[str], single: Collection[str], last: str
) -> tuple[Block, ...]:
    """Returns the blocks of a query, each after those that it reads.

    Args:
        tree: the query.
        names: the names of the columns of its result.
        inputs: the names in FROM that are no blocks.
        single: the names in FROM that always have one row.
        last: the name of the last block, whose rows are those of the query.

    Raises:
        SqlTextError: a part of it can be no block.
    """
    taking = _Taking(inputs, single, last)
    taking.select(tree, last, {}, names)
    return tuple(taking.blocks)


class _Taking:
    """Makes blocks of a query whose names are resolved, the inner ones first."""

    def __init__(self, inputs: Iterable[str], single: Collection[str], last: str) -> None:
        self.single, self.last, self.blocks = {*single}, last, list[Block]()
        self.taken = {*inputs, *LEDGER_TABLES, last, "quarantine"}

    def select(self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...] = ()) -> str:
        """Makes the block of a SELECT, and before it those that it reads; returns its name."""
        with_ = tree.args.get("with_")
        known = dict(ctes)
        for cte in with_.expressions if with_ is not None else ():
            known[cte.alias] = self._derived(cte.this, cte.alias, known)
        tree = tree.copy()
        tree.set("with_", None)
        union = only_union(tree)
        if union is not None:
            return self.union(union, name, known, names or tuple(tree.named_selects))
        if tree.args.get("limit") is not None:
            return self._limited(tree, name, known, names)
        tree.set("order", None)  # rows of a table have no order
        if tree.args.get("distinct") is not None:
            return self._distinct(tree, name, known, names)
        if tree.args.get("qualify") is not None:
            tree = _without_qualify(tree)
        inner = self._ranked(tree)
        if inner is not None:
            where = tree.args.get("where")
            chosen = tuple(output.unalias().sql(DIALECT) for output in tree.selects)
            keep = Keep(tree.args["from_"].this.alias, chosen, "" if where is None else where.this.sql(DIALECT))
            return self._block(inner, name, known, names or tuple(tree.named_selects), keep)
        return self._block(tree, name, known, names or tuple(tree.named_selects), None)

    def _derived(self, tree: exp.Query, alias: str, ctes: Mapping[str, str]) -> str:
        """Makes the block of a subquery in FROM, or of a CTE; returns its name."""
        start = alias.lower().lstrip("_")
        name = start = start if start[:1].isalpha() else f"part_{start}".rstrip("_")
        number = 1
        while name in self.taken:
            name, number = f"{start}_{number}", number + 1
        self.taken.add(name)
        if isinstance(tree, exp.SetOperation):
            return self.union(tree, name, ctes)
        assert isinstance(tree, exp.Select)
        return self.select(tree, name, ctes)

    def union(self, tree: exp.SetOperation, name: str, ctes: Mapping[str, str], names: tuple[str, ...] = ()) -> str:
        """Makes the block of a UNION, and before it those that it reads; returns its name."""
        if any(tree.args.get(clause) is not None for clause in ("with_", "order", "limit", "offset")):
            return self.select(with_columns(tree), name, ctes, names)
        columns = names or tuple(first_select(tree).named_selects)
        if tree.args.get("distinct"):
            every = tree.copy()
            every.set("distinct", False)
            rows = exp.select(*[column_of("_rows", column) for column in first_select(tree).named_selects]).distinct()
            return self.select(rows.from_(subquery_as(every, "_rows")), name, ctes, columns)
        self.taken.add(name)
        branches, seen = list[Block](), set[str]()
        for number, part in enumerate(branches_of(tree), start=1):
            if len(part.selects) != len(columns):
                not_taken(part, f"a part of UNION has {len(part.selects)} columns, and the first has {len(columns)}")
            branch = self._branch(part, name, number, ctes, seen)
            seen |= names_in(branch.tree)
            branches.append(replace(branch, columns=columns))
        aliases = tuple(alias for branch in branches for alias in branch.aliases)
        return self._added(Block(name, Unit.UNION, aliases, branches[0].tree, (), columns, None, tuple(branches)))

    def _branch(self, part: exp.Select, name: str, number: int, ctes: Mapping[str, str], seen: set[str]) -> Block:
        """Returns a part of UNION ALL as a block of rows; with more on top, of those of a block that it reads."""
        clauses = ("with_", "limit", "offset", "distinct", "qualify")
        rows = not is_grouped(part) and not own(part, exp.Window)
        if not rows or any(part.args.get(clause) is not None for clause in clauses) or only_union(part) is not None:
            inner = self._derived(part, f"{name}_part_{number}", ctes)
            outputs = [aliased(column_of("_rows", of), of) for of in part.named_selects]
            part = exp.select(*outputs).from_(table_as(inner, "_rows"))
            ctes = {**ctes, inner: inner}
        return self._made(part, name, ctes, tuple(part.named_selects), None, seen)

    def _limited(self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...]) -> str:
        """Makes a block of all rows, and a ranking of them, of which the first stay."""
        limit, order = tree.args["limit"], tree.args.get("order")
        if order is None:
            not_taken(limit, "LIMIT without ORDER BY: which rows stay is left to chance")
        outputs = [*tree.named_selects]
        rest = tree.copy()
        rest.set("limit", None)
        rest.set("order", None)
        by = []
        for number, term in enumerate(order.expressions):
            key, shown = _order_key(term.this, tree)
            if not shown:
                if tree.args.get("distinct") is not None:
                    not_taken(term, "ORDER BY beside DISTINCT goes by columns of the SELECT; write the column there")
                rest.select(exp.alias_(key, _ORDER.format(number), quoted=True), copy=False)
                key = exp.column(exp.to_identifier(_ORDER.format(number), quoted=True))
            ordered = term.copy()
            ordered.set("this", key)
            by.append(ordered)
        inner = self._derived(rest, f"{name}_rows" if name == self.last else name, ctes)
        rank = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=by))
        ranked = exp.select(*[exp.column(exp.to_identifier(output, quoted=True)) for output in outputs])
        ranked = ranked.select(exp.alias_(rank, _RANK, quoted=True)).from_(table_as(inner, "_rows"))
        for column in ranked.find_all(exp.Column):
            column.set("table", exp.to_identifier("_rows", quoted=True))
        keep = Keep("_rows", tuple(map(quote, outputs)), f"`{_RANK}` <= {limit.expression}")
        known = {**ctes, inner: inner}
        return self._block(ranked, name, known, names or tuple(outputs), keep)

    def _distinct(self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...]) -> str:
        """Makes a block of DISTINCT: a group per row that differs."""
        tree.set("distinct", None)
        outputs = [*tree.named_selects]
        if is_grouped(tree) or own(tree, exp.Window) or tree.args.get("qualify") is not None:
            inner = self._derived(tree, f"{name}_rows" if name == self.last else name, ctes)
            tree = exp.select(
                *[exp.column(exp.to_identifier(output, quoted=True), "_rows", quoted=True) for output in outputs]
            )
            tree = tree.from_(table_as(inner, "_rows"))
            ctes = {**ctes, inner: inner}
        tree.set("group", exp.Group(expressions=[as_group(output.unalias()) for output in tree.selects]))
        return self._block(tree, name, ctes, names or tuple(outputs), None)

    @staticmethod
    def _ranked(tree: exp.Select) -> exp.Select | None:
        """Returns the subquery with groups or window functions among whose rows a SELECT only chooses; else None."""
        source = tree.args["from_"].this if tree.args.get("from_") is not None else None
        if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Select) or tree.args.get("joins"):
            return None
        if laterals_of(tree):
            return None
        inner, clauses = source.this, ("with_", "limit", "offset", "distinct", "qualify")
        if is_grouped(tree) or own(tree, exp.Window) or any(inner.args.get(clause) is not None for clause in clauses):
            return None
        return inner if is_grouped(inner) or own(inner, exp.Window) else None

    def _block(
        self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...], keep: Keep | None
    ) -> str:
        """Makes a block of a SELECT without subqueries as values; returns its name."""
        return self._added(self._made(tree, name, ctes, names, keep))

    def _added(self, block: Block) -> str:
        """Takes a block, unless there is an equal one; returns its name."""
        for existing in self.blocks:
            if block.name != self.last and is_same(existing, block):
                return existing.name
        self.taken.add(block.name)
        self.blocks.append(block)
        return block.name

    def _made(
        self,
        tree: exp.Select,
        name: str,
        ctes: Mapping[str, str],
        names: tuple[str, ...],
        keep: Keep | None,
        seen: Collection[str] = (),
    ) -> Block:
        """Returns the block of a SELECT; `seen` are names that its tables must not have."""
        if tree.args.get("from_") is None:
            not_taken(tree, "there is no FROM")
        tree = tree.copy()
        tree.set("order", None)
        relations = {source.alias_or_name: self._relation(source, ctes) for source in sources_of(tree)}
        one_row = self.single | {block.name for block in self.blocks if block.is_one_row}
        put_behind(tree, {name for name, of in relations.items() if of in one_row})
        relations = {source.alias_or_name: relations[source.alias_or_name] for source in sources_of(tree)}
        for source in sources_of(tree):
            table = table_as(source.alias_or_name, source.alias_or_name)
            if isinstance(source.this, exp.Identifier):
                table.this.update_positions(source.this)  # errors tell the line
            source.replace(table)
        for old in sorted(names_in(tree) & {*seen}):
            new = find_new_name({*seen, *names_in(tree)}, old)
            relations = {new if alias == old else alias: of for alias, of in relations.items()}
            rename_table(tree, old, new)
        aliases = aliases_of(tree, relations, {name for name, of in relations.items() if of in one_row})
        grouped, windows = is_grouped(tree), own(tree, exp.Window)
        if grouped and windows:
            not_taken(windows[0], "a window function beside GROUP BY; group in a subquery, and rank its rows")
        if not grouped:
            with_positions(tree)
        group = tree.args.get("group")
        by = group.expressions if group is not None else _partition(windows) if windows else ()
        unit = Unit.GROUP if grouped else Unit.PARTITION if windows else Unit.ROW
        return Block(name, unit, aliases, tree, tuple(value.copy() for value in by), names, keep)

    def _relation(self, source: exp.Expr, ctes: Mapping[str, str]) -> str:
        """Returns the name of the input or block that stands in FROM."""
        if isinstance(source, exp.Subquery):
            return self._derived(source.this, source.alias, ctes)
        if not isinstance(source, exp.Table):
            not_taken(source, "it is no table")
        return ctes.get(source.name, source.name)


def _order_key(key: exp.Expr, tree: exp.Select) -> tuple[exp.Expr, bool]:
    """Returns an expression of ORDER BY, and whether it is over the outputs of a SELECT; else it is over its tables."""
    root = exp.Paren(this=key.copy())
    made = {output.alias_or_name: output.unalias() for output in tree.selects}
    columns = [*root.find_all(exp.Column)]
    outputs: list[exp.Expr] = [
        column for column in columns if column.name in made and (not column.table or made[column.name] == column)
    ]
    shown = len(outputs) == len(columns) and root.find(exp.AggFunc, exp.Window) is None
    outputs += [identifier for identifier in root.find_all(exp.Identifier) if identifier.meta.get(OUTPUT)]
    for output in outputs:
        output.replace(exp.column(named(output.name)) if shown else exp.paren(made[output.name]))
    return root.this, shown


def _without_qualify(tree: exp.Select) -> exp.Select:
    """Returns a SELECT with QUALIFY as one with WHERE over a subquery that has what the condition reads."""
    inner, root = tree.copy(), exp.Paren(this=tree.args["qualify"].this.copy())
    inner.set("qualify", None)
    read = [part for part in root.find_all(exp.Window, exp.Column) if part.find_ancestor(exp.Window) is None]
    for part in read:
        name = next((made.alias_or_name for made in inner.selects if made.unalias() == part), "")
        if not name:
            start = "_w" if isinstance(part, exp.Window) else "_q"
            name = find_new_name({*inner.named_selects}, start)
            inner.select(exp.alias_(part.copy(), name, quoted=True), copy=False)
        part.replace(exp.column(named(name)))
    chosen = [exp.alias_(exp.column(named(name)), name, quoted=True) for name in tree.named_selects]
    source = exp.Subquery(this=inner, alias=exp.TableAlias(this=named("_t")))
    return exp.select(*chosen).from_(source).where(root.this)


def _partition(windows: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
    """Returns the expressions by which all window functions partition the rows."""
    each = [window.args.get("partition_by") or [] for window in windows]
    return tuple(value for value in each[0] if all(value in other for other in each[1:]))
