"""Takes a SELECT apart into blocks (`docs/concepts/queries.md`), or says what of it no block can be. No Spark.

sqlglot resolves names; what it makes of the text is run by Spark, and `verify` runs the query as it was written.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.helper import find_new_name

from fk_pipeline.blocks.select.block import Alias, Block, Keep, Unit, is_same
from fk_pipeline.blocks.select.generators import spelling, with_positions
from fk_pipeline.blocks.select.query import Query
from fk_pipeline.blocks.select.refusals import (
    JOINS,
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
from fk_pipeline.blocks.select.resolving import OUTPUT, as_group, merged, resolved, tables_named
from fk_pipeline.blocks.select.trees import (
    aliased,
    column_of,
    conditions_in,
    conjuncts,
    is_grouped,
    laterals_of,
    named,
    names_in,
    own,
    sources_of,
    subquery_as,
    table_as,
)
from fk_pipeline.blocks.select.unnesting import unnested
from fk_pipeline.blocks.select.written import parse_as_known, parse_as_written
from fk_pipeline.spec.inputs import INPUT_NAME
from fk_pipeline.spec.sql import DIALECT, Column, SqlTextError, quote
from fk_pipeline.store import LEDGER_TABLES

_UNNAMED = re.compile(r"_col_\d+")
"""What sqlglot calls a column without a name."""

_RANK, _ORDER = "_fk_rank", "_fk_order_{}"
"""Columns of a block with LIMIT: the place of a row, and the values by which rows are ordered."""


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
    names = _names(_first_select(written))
    tree = _as_select(written)
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
    return _Taking(inputs, single, last).query(merged(unnested(whole, known, inputs)), tuple(names))


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
        found = [tree for tree in parse_as_written(text) if tree is not None]
    except SqlglotError as error:
        raise SqlTextError(f"not SQL: {_first_line(error)}") from None
    if len(found) != 1:
        raise SqlTextError(f"not one SELECT: there are {len(found)} statements; keep each in a pipeline of its own")
    tree = found[0]
    if not isinstance(tree, exp.Query):
        raise SqlTextError(f"not one SELECT: it is {tree.key.upper()}; a query only reads")
    if any(one.is_string and "${" in one.name for one in tree.find_all(exp.Literal)):
        raise SqlTextError("${...} would be replaced by a variable of Spark's; write CONCAT('$', '{...}')")
    refuse_parts(tree)
    refuse_orders(text)
    _first_select(tree)
    return tree


def _first_select(tree: exp.Expr) -> exp.Select:
    """Returns the first SELECT of a UNION, which gives the columns their names; of any other query itself."""
    while isinstance(tree, (exp.SetOperation, exp.Subquery)):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        not_taken(tree, "it is no SELECT")
    return tree


def _as_select(tree: exp.Query) -> exp.Select:
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


def _first_line(error: Exception) -> str:
    return str(error).replace("\x1b[4m", "").replace("\x1b[0m", "").splitlines()[0]


def _names(tree: exp.Select) -> list[str]:
    """Returns the names of the columns of the result, as they are written; none if one is a star."""
    if any(one.is_star for one in tree.selects):
        return []
    for number, one in enumerate(tree.selects, start=1):
        if not isinstance(one, (exp.Alias, exp.Aliases, exp.Column, exp.Dot)):
            names = "(position, name)" if isinstance(one, exp.Posexplode) else "name"
            not_taken(one, f"column {number} needs a name: {one.sql(dialect=DIALECT)} AS {names}")
    return tree.named_selects


def _names_of_star(whole: exp.Select, inputs: Mapping[str, Sequence[Column]]) -> list[str]:
    """Returns the names of the columns of the result, spelled as the inputs have them."""
    spelled = {c.name.lower(): c.name for columns in inputs.values() for c in columns}
    of = {
        one.alias_or_name: {c.name.lower(): c.name for c in inputs.get(one.name, ())}
        for one in whole.find_all(exp.Table)
    }
    of |= {one.alias: spelling(one) for one in laterals_of(whole)}
    found = [(one.alias_or_name, one.unalias()) for one in whole.selects]
    tables = [one.table if isinstance(one, exp.Column) else "" for _, one in found]
    return [
        of.get(table, {}).get(name) or spelled.get(name, name) for (name, _), table in zip(found, tables, strict=True)
    ]


def _refuse_names(names: Sequence[str], made: Sequence[exp.Expr]) -> None:
    seen: set[str] = set()
    for number, (name, one) in enumerate(zip(names, made, strict=True), start=1):
        if name.lower() in seen:
            not_taken(one, f"two columns of the result are called {name!r}; give one another name with AS")
        if name.lower().startswith("_fk_"):
            not_taken(one, f"column {name!r}: names that start with _fk_ are the pipeline's own; write AS and another")
        if _UNNAMED.fullmatch(name):
            not_taken(one, f"column {number} needs a name: give it one with AS in the subquery")
        seen.add(name.lower())


class _Taking:
    """Makes blocks of a query whose names are resolved, the inner ones first."""

    def __init__(self, inputs: Mapping[str, Sequence[Column]], single: Collection[str], last: str) -> None:
        self.inputs, self.single, self.last, self.blocks = inputs, {*single}, last, list[Block]()
        self.taken = {*inputs, *LEDGER_TABLES, last, "quarantine"}

    def query(self, tree: exp.Select, names: tuple[str, ...]) -> Query:
        """Returns the query; `names` are those of the columns of its result."""
        self.select(tree, self.last, {}, names)
        return Query(tuple(self.blocks), names)

    def select(self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...] = ()) -> str:
        """Makes the block of a SELECT, and before it those that it reads; returns its name."""
        with_ = tree.args.get("with_")
        there = dict(ctes)
        for cte in with_.expressions if with_ is not None else ():
            there[cte.alias] = self._derived(cte.this, cte.alias, there)
        tree = tree.copy()
        tree.set("with_", None)
        union = _only_union(tree)
        if union is not None:
            return self.union(union, name, there, names or tuple(tree.named_selects))
        if tree.args.get("limit") is not None:
            return self._limited(tree, name, there, names)
        tree.set("order", None)  # rows of a table have no order
        if tree.args.get("distinct") is not None:
            return self._distinct(tree, name, there, names)
        if tree.args.get("qualify") is not None:
            tree = _without_qualify(tree)
        inner = self._ranked(tree)
        if inner is not None:
            where = tree.args.get("where")
            chosen = tuple(one.unalias().sql(DIALECT) for one in tree.selects)
            keep = Keep(tree.args["from_"].this.alias, chosen, "" if where is None else where.this.sql(DIALECT))
            return self._block(inner, name, there, names or tuple(tree.named_selects), keep)
        return self._block(tree, name, there, names or tuple(tree.named_selects), None)

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
        if any(tree.args.get(one) is not None for one in ("with_", "order", "limit", "offset")):
            return self.select(_named_as(_as_select(tree)), name, ctes, names)
        columns = names or tuple(_first_select(tree).named_selects)
        if tree.args.get("distinct"):
            every = tree.copy()
            every.set("distinct", False)
            rows = exp.select(*[column_of("_rows", one) for one in _first_select(tree).named_selects]).distinct()
            return self.select(rows.from_(subquery_as(every, "_rows")), name, ctes, columns)
        self.taken.add(name)
        branches, seen = list[Block](), set[str]()
        for number, one in enumerate(_branches(tree), start=1):
            if len(one.selects) != len(columns):
                not_taken(one, f"a part of UNION has {len(one.selects)} columns, and the first has {len(columns)}")
            branch = self._branch(one, name, number, ctes, seen)
            seen |= names_in(branch.tree)
            branches.append(replace(branch, columns=columns))
        aliases = tuple(alias for one in branches for alias in one.aliases)
        return self._added(Block(name, Unit.UNION, aliases, branches[0].tree, (), columns, None, tuple(branches)))

    def _branch(self, one: exp.Select, name: str, number: int, ctes: Mapping[str, str], seen: set[str]) -> Block:
        """Returns a part of UNION ALL as a block of rows; with more on top, of those of a block that it reads."""
        clauses = ("with_", "limit", "offset", "distinct", "qualify")
        rows = not is_grouped(one) and not own(one, exp.Window)
        if not rows or any(one.args.get(clause) is not None for clause in clauses) or _only_union(one) is not None:
            inner = self._derived(one, f"{name}_part_{number}", ctes)
            outputs = [aliased(column_of("_rows", of), of) for of in one.named_selects]
            one = exp.select(*outputs).from_(table_as(inner, "_rows"))
            ctes = {**ctes, inner: inner}
        return self._made(one, name, ctes, tuple(one.named_selects), None, seen)

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
        for number, one in enumerate(order.expressions):
            key, shown = _order_key(one.this, tree)
            if not shown:
                if tree.args.get("distinct") is not None:
                    not_taken(one, "ORDER BY beside DISTINCT goes by columns of the SELECT; write the column there")
                rest.select(exp.alias_(key, _ORDER.format(number), quoted=True), copy=False)
                key = exp.column(exp.to_identifier(_ORDER.format(number), quoted=True))
            ordered = one.copy()
            ordered.set("this", key)
            by.append(ordered)
        inner = self._derived(rest, f"{name}_rows" if name == self.last else name, ctes)
        rank = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=by))
        ranked = exp.select(*[exp.column(exp.to_identifier(one, quoted=True)) for one in outputs])
        ranked = ranked.select(exp.alias_(rank, _RANK, quoted=True)).from_(table_as(inner, "_rows"))
        for column in ranked.find_all(exp.Column):
            column.set("table", exp.to_identifier("_rows", quoted=True))
        kept = Keep("_rows", tuple(map(quote, outputs)), f"`{_RANK}` <= {limit.expression}")
        there = {**ctes, inner: inner}
        return self._block(ranked, name, there, names or tuple(outputs), kept)

    def _distinct(self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...]) -> str:
        """Makes a block of DISTINCT: a group per row that differs."""
        tree.set("distinct", None)
        outputs = [*tree.named_selects]
        if is_grouped(tree) or own(tree, exp.Window) or tree.args.get("qualify") is not None:
            inner = self._derived(tree, f"{name}_rows" if name == self.last else name, ctes)
            tree = exp.select(
                *[exp.column(exp.to_identifier(one, quoted=True), "_rows", quoted=True) for one in outputs]
            )
            tree = tree.from_(table_as(inner, "_rows"))
            ctes = {**ctes, inner: inner}
        tree.set("group", exp.Group(expressions=[as_group(one.unalias()) for one in tree.selects]))
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
        if is_grouped(tree) or own(tree, exp.Window) or any(inner.args.get(one) is not None for one in clauses):
            return None
        return inner if is_grouped(inner) or own(inner, exp.Window) else None

    def _block(
        self, tree: exp.Select, name: str, ctes: Mapping[str, str], names: tuple[str, ...], keep: Keep | None
    ) -> str:
        """Makes a block of a SELECT without subqueries as values; returns its name."""
        return self._added(self._made(tree, name, ctes, names, keep))

    def _added(self, block: Block) -> str:
        """Takes a block, unless there is an equal one; returns its name."""
        for one in self.blocks:
            if block.name != self.last and is_same(one, block):
                return one.name
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
        relations = {one.alias_or_name: self._relation(one, ctes) for one in sources_of(tree)}
        one_row = self.single | {one.name for one in self.blocks if one.is_one_row}
        _put_behind(tree, {name for name, of in relations.items() if of in one_row})
        relations = {one.alias_or_name: relations[one.alias_or_name] for one in sources_of(tree)}
        for source in sources_of(tree):
            table = table_as(source.alias_or_name, source.alias_or_name)
            if isinstance(source.this, exp.Identifier):
                table.this.update_positions(source.this)  # errors tell the line
            source.replace(table)
        for old in sorted(names_in(tree) & {*seen}):
            new = find_new_name({*seen, *names_in(tree)}, old)
            relations = {new if one == old else one: of for one, of in relations.items()}
            _rename(tree, old, new)
        aliases = _aliases(tree, relations, {name for name, of in relations.items() if of in one_row})
        grouped, windows = is_grouped(tree), own(tree, exp.Window)
        if grouped and windows:
            not_taken(windows[0], "a window function beside GROUP BY; group in a subquery, and rank its rows")
        if not grouped:
            with_positions(tree)
        group = tree.args.get("group")
        by = group.expressions if group is not None else _partition(windows) if windows else ()
        unit = Unit.GROUP if grouped else Unit.PARTITION if windows else Unit.ROW
        return Block(name, unit, aliases, tree, tuple(one.copy() for one in by), names, keep)

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
    made = {one.alias_or_name: one.unalias() for one in tree.selects}
    columns = [*root.find_all(exp.Column)]
    outputs: list[exp.Expr] = [one for one in columns if one.name in made and (not one.table or made[one.name] == one)]
    shown = len(outputs) == len(columns) and root.find(exp.AggFunc, exp.Window) is None
    outputs += [one for one in root.find_all(exp.Identifier) if one.meta.get(OUTPUT)]
    for one in outputs:
        one.replace(exp.column(named(one.name)) if shown else exp.paren(made[one.name]))
    return root.this, shown


def _without_qualify(tree: exp.Select) -> exp.Select:
    """Returns a SELECT with QUALIFY as one with WHERE over a subquery that has what the condition reads."""
    inner, root = tree.copy(), exp.Paren(this=tree.args["qualify"].this.copy())
    inner.set("qualify", None)
    read = [one for one in root.find_all(exp.Window, exp.Column) if one.find_ancestor(exp.Window) is None]
    for one in read:
        name = next((made.alias_or_name for made in inner.selects if made.unalias() == one), "")
        if not name:
            start = "_w" if isinstance(one, exp.Window) else "_q"
            name = find_new_name({*inner.named_selects}, start)
            inner.select(exp.alias_(one.copy(), name, quoted=True), copy=False)
        one.replace(exp.column(named(name)))
    chosen = [exp.alias_(exp.column(named(name)), name, quoted=True) for name in tree.named_selects]
    source = exp.Subquery(this=inner, alias=exp.TableAlias(this=named("_t")))
    return exp.select(*chosen).from_(source).where(root.this)


def _only_union(tree: exp.Expr) -> exp.SetOperation | None:
    """Returns the UNION of which a SELECT is the rows, with their columns in order; None if it is none."""
    if not isinstance(tree, exp.Select) or tree.args.get("from_") is None:
        return None
    source = tree.args["from_"].this
    if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.SetOperation):
        return None
    if any(value for key, value in tree.args.items() if key not in ("from_", "expressions", "kind")):
        return None
    columns = [one.unalias() for one in tree.selects]
    plain = all(isinstance(one, exp.Column) for one in columns)
    return source.this if plain and [one.name for one in columns] == source.this.named_selects else None


def _named_as(tree: exp.Select) -> exp.Select:
    """Returns a SELECT of all columns of a UNION with the names of these."""
    source = tree.args["from_"].this
    tree.set("expressions", [column_of(source.alias, one) for one in source.this.named_selects])
    return tree


def _branches(tree: exp.Query) -> Iterator[exp.Select]:
    """Yields the parts of a UNION ALL."""
    clauses = ("with_", "order", "limit", "offset", "distinct")
    inner: exp.Query = tree
    while isinstance(inner, exp.Subquery) and not any(inner.args.get(one) for one in clauses):
        inner = inner.this
    if isinstance(inner, exp.SetOperation) and not any(inner.args.get(one) for one in clauses):
        yield from _branches(inner.this)
        yield from _branches(inner.expression)
    else:
        yield inner if isinstance(inner, exp.Select) else _named_as(_as_select(inner))


def _put_behind(tree: exp.Select, single: Collection[str]) -> None:
    """Puts tables of one row, which no row of another is an anchor for, behind the next, and their ON into WHERE."""
    joins, from_ = tree.args.get("joins") or [], tree.args["from_"]
    inner = list(itertools.takewhile(lambda one: not JOINS[(one.side or one.kind or "").upper()], joins))
    first = next((one for one in inner if one.this.alias_or_name not in single), None)
    if from_.this.alias_or_name in single and first is not None:
        one, other = from_.this.copy(), first.this.copy()
        from_.set("this", other)
        first.set("this", one)
    for join in joins:
        on = join.args.get("on")
        if join.this.alias_or_name in single and on is not None and not JOINS[(join.side or join.kind or "").upper()]:
            join.set("on", None)
            join.set("kind", "CROSS")
            tree.where(on, copy=False)


def _rename(tree: exp.Select, old: str, new: str) -> None:
    """Gives a table of a FROM another name, where it is read, too."""
    for source in sources_of(tree):
        if source.alias_or_name == old:
            source.replace(table_as(new, new))
    for lateral in laterals_of(tree):
        if lateral.alias == old:
            lateral.args["alias"].set("this", named(new))
    for one in tree.find_all(exp.Column):
        if one.table == old:
            one.set("table", named(new))


def _aliases(tree: exp.Select, relations: Mapping[str, str], single: Collection[str]) -> tuple[Alias, ...]:
    """Returns the tables of a FROM in order, each with the earlier one that it is joined to, and by what.

    `single` are those that always have one row: they need not be joined by anything.
    """
    names = [*relations]
    of_where = conditions_in(tree)
    found, nullable = [Alias(names[0], relations[names[0]])], set[str]()
    for number, join in enumerate(tree.args.get("joins") or (), start=1):
        alias, how = names[number], JOINS[(join.side or join.kind or "").upper()]
        on = join.args.get("on")
        conditions = [*conjuncts(on)] if on is not None else []
        conditions += of_where if not how else []
        parent = _parent(alias, names[:number], conditions)
        if parent is None and alias in single and on is None:
            found.append(Alias(alias, relations[alias], how, names[0], is_single=True))
            continue
        if parent is None and _parent(alias, [one.alias for one in laterals_of(tree)], conditions) is not None:
            not_taken(join, f"{alias} is joined by what LATERAL VIEW makes; make the rows in a subquery, and join that")
        if parent is None:
            write = f"write ON {names[0]}.column = {alias}.column"
            not_taken(join, f"{alias} is joined without an equality with one earlier table; {write}")
        path = [one for one in conditions if alias in _tables_in(one) and _tables_in(one) <= {alias, parent}]
        equal = tuple(pair for one in path if (pair := _equal(one, alias)) is not None)
        nullable |= {alias} if how or parent in nullable else set()
        none = parent in nullable and not equal  # where a column of the parent is null, `=` does not hold
        sql = tuple(one.sql(DIALECT) for one in path)
        found.append(Alias(alias, relations[alias], how, parent, sql, equal, none))
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


def _partition(windows: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
    """Returns the expressions by which all window functions partition the rows."""
    each = [one.args.get("partition_by") or [] for one in windows]
    return tuple(one for one in each[0] if all(one in other for other in each[1:]))
