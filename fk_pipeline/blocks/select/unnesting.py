"""Takes the subqueries out of a SELECT whose names are resolved, and its outer joins apart. No Spark.

What is left are SELECTs of inner and left joins over tables and subqueries in FROM, and UNION ALL of such:

    EXISTS, IN              a join with the values that the inner rows have, each once
    NOT EXISTS, OR, CASE    the same by LEFT JOIN: there is a partner
    NOT IN                  besides, whether there are rows, and one without a value: SQL's unknown
    a value, correlated     LEFT JOIN with a group per value that it is looked up by; COUNT is 0 where there is none
    a value, by itself      a table of one row, joined without a condition
    RIGHT JOIN, FULL JOIN   sides swapped; the rows of the left join, and right rows without a partner

A condition between inner and outer rows that is no equality is tested on each outer row, over the set of inner values
that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from fk_pipeline.blocks.select.above_groups import is_above_groups, split_groups
from fk_pipeline.blocks.select.generators import made_above_subqueries, split_laterals, typed
from fk_pipeline.blocks.select.likeness import are_alike, type_of
from fk_pipeline.blocks.select.outer_joins import without_outer_join
from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.resolving import as_group, schema_of
from fk_pipeline.blocks.select.tied import Tied, outer_columns, tested, tied_by, ties_of
from fk_pipeline.blocks.select.trees import (
    aliased,
    call,
    column_of,
    conjuncts,
    external,
    is_grouped,
    laterals_of,
    names_in,
    own,
    query_of,
    sources_of,
    subqueries,
    subquery_as,
)
from fk_pipeline.spec.sql import Column

Keys = Mapping[str, Sequence[str]]
"""Per input, the columns that identify a row, in lower case."""

_OF_NOTHING = {
    **dict.fromkeys(("COUNT", "COUNT_IF", "APPROX_COUNT_DISTINCT", "REGR_COUNT"), "CAST(0 AS BIGINT)"),
    **dict.fromkeys(("COLLECT_LIST", "COLLECT_SET", "ARRAY_AGG"), "ARRAY()"),
}
"""Aggregates whose value is not null where there are no rows."""

_STRICT = (exp.Paren, exp.Mul, exp.Add, exp.Sub, exp.Div, exp.Neg, exp.Literal, exp.Filter, exp.WithinGroup)
"""What is null if an operand is."""

_NAMED = (exp.Table, exp.Subquery, exp.CTE, exp.Lateral)
"""What has a name in a FROM."""

_SIMPLE = ("limit", "offset", "qualify", "having", "group", "distinct", "with_")
"""Clauses without which WHERE is the last to choose among the rows of a SELECT."""


def unnested(whole: exp.Select, keys: Keys, inputs: Mapping[str, Sequence[Column]]) -> exp.Select:
    """Returns a resolved query without subqueries as values or conditions, RIGHT and FULL JOIN.

    Args:
        whole: the query.
        keys: per input, the columns that identify a row, as far as they are known.
        inputs: per input its columns.

    Raises:
        SqlTextError: one of them cannot be taken out; the message names it, its line, and what to write.
    """
    tree = typed(whole.copy(), schema_of(inputs))
    taken = {one.alias_or_name.lower() for one in tree.find_all(*_NAMED)} | {*keys}
    _Unnesting(keys, taken).query(tree)
    return tree


class _Unnesting:
    """Rewrites SELECTs, the inner ones first, and gives names to the tables that it makes."""

    def __init__(self, keys: Keys, taken: set[str]) -> None:
        self.keys, self.taken = keys, taken

    def query(self, tree: exp.Query) -> exp.Query:
        """Rewrites a query in place; returns it."""
        with_ = tree.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            cte.set("this", self.query(cte.this))
        if isinstance(tree, exp.SetOperation):
            for side in ("this", "expression"):
                one = tree.args[side]
                place, inner = (one, one.this) if isinstance(one, exp.Subquery) else (tree, one)
                place.set("this" if place is one else side, self.query(inner))
            return tree
        assert isinstance(tree, exp.Select)
        return self._select(tree)

    def _select(self, select: exp.Select) -> exp.Select:
        for one in subqueries(select):
            if one.find_ancestor(exp.Group, exp.Select) is not select:
                not_taken(one, "a subquery in GROUP BY; compute it in a subquery in FROM, and group by its column")
        if is_grouped(select) and any(is_above_groups(one) for one in subqueries(select)):
            split_groups(select, self._name("groups"))
        if made_above_subqueries(select):
            split_laterals(select, self._name("rows"))
        self._sources(select)
        _subqueries_of_on(select)
        while without_outer_join(select, self._name):
            self._sources(select)
        for node in [*subqueries(select)]:
            self._taken_out(select, node)
        _leave_out_true(select)
        return select

    def _sources(self, select: exp.Select) -> None:
        for source in sources_of(select):
            if isinstance(source, exp.Subquery):
                source.set("this", self.query(source.this))

    def _name(self, what: str) -> str:
        number = 1
        while f"{what}_{number}" in self.taken:
            number += 1
        self.taken.add(f"{what}_{number}")
        return f"{what}_{number}"

    # ---------------------------------------------------------------------------------------------------- subqueries
    def _taken_out(self, select: exp.Select, node: exp.Expr) -> None:
        """Replaces one subquery of a SELECT by columns of tables that are joined."""
        inner = query_of(node)
        for column in external(inner):
            if column.table not in names_in(select):
                not_taken(node, f"a subquery reads {column.sql('spark')} of a query two levels out; join it in FROM")
        inner = self.query(inner)
        if isinstance(inner, exp.SetOperation):
            inner = _over(inner, self._name("union"))
        assert isinstance(inner, exp.Select)
        if laterals_of(inner) and not self._is_tied_alike(node, inner):
            split_laterals(inner, self._name("rows"))
        if isinstance(node, exp.Exists):
            self._exists(select, node, inner)
        elif isinstance(node, exp.In):
            self._in(select, node, inner)
        else:
            self._value(select, node, inner)

    def _is_tied_alike(self, node: exp.Expr, inner: exp.Select) -> bool:
        """Returns whether a subquery is tied to the row around it by equalities of values of one type alone."""
        tied, given = tied_by(node, inner), _given(node) if isinstance(node, exp.In) else []
        pairs = [*zip((one.unalias() for one in inner.selects), given, strict=False)]
        pairs += [(one, outer) for one, outer, _ in tied.pairs]
        return not tied.rest and not tied.outer and all(are_alike(*pair) for pair in pairs)

    def _exists(self, select: exp.Select, node: exp.Exists, inner: exp.Select) -> None:
        if not external(inner):
            _of_one_row(inner, [aliased(_more_rows_than(0), _THERE)], self._name("rows"))
            node.replace(self._one_row(select, inner, "exists", _THERE))
            return
        if is_grouped(inner) and inner.args.get("group") is None:
            why = "is true, whatever the rows are" if inner.args.get("having") is None else "with HAVING is not taken"
            not_taken(node, f"EXISTS over an aggregate without GROUP BY {why}; compare the aggregate as a value")
        inner.set("distinct", None)
        inner.set("order", None)
        limit = inner.args.get("limit")
        if limit is not None and limit.expression.name != "0":
            inner.set("limit", None)
        tied = tied_by(node, inner)
        if not tied.pairs:
            not_taken(node, "EXISTS needs an equality between a column of its table and one around it")
        self._partner(select, node, tied, "exists")

    def _in(self, select: exp.Select, node: exp.In, inner: exp.Select) -> None:
        given, is_negated = _given(node), _is_negated(node)
        if len(given) != len(inner.selects):
            not_taken(node, f"IN compares {len(given)} values with {len(inner.selects)}")
        is_value = is_grouped(inner) and inner.args.get("group") is None
        if is_value and inner.args.get("having") is not None and external(inner):
            not_taken(
                node, "HAVING without GROUP BY in a subquery of IN that reads a column around it; group it in FROM"
            )
        if is_value and inner.args.get("having") is None and len(given) == 1:
            value, is_conjunct = exp.Subquery(this=inner), _is_conjunct(node)
            equal = exp.EQ(this=node.this.copy(), expression=value)
            node.replace(equal if is_conjunct else _known(equal, unknown=is_negated))
            self._value(select, value, inner)
            return
        if any(not [*one.find_all(exp.Column)] for one in given):
            not_taken(node, "IN needs a column before it, as the other table is looked up by it")
        if is_value and external(inner):
            not_taken(node, "IN with several aggregates of a subquery that reads a column around it; join it in FROM")
        if not external(inner) and (is_value or _others(inner) or own(inner, exp.Window)):
            inner = _over(inner, self._name("rows"), ("group", "having") if not is_negated and _is_once(inner) else ())
        tied = tied_by(node, inner)
        pairs = [(one.unalias(), value, False) for one, value in zip(tied.inner.selects, given, strict=True)]
        if is_negated:
            self._in_or_unknown(select, node, tied, pairs)
        else:
            tied.pairs = [*pairs, *tied.pairs]
            self._partner(select, node, tied, "in")

    def _in_or_unknown(
        self, select: exp.Select, node: exp.In, tied: Tied, pairs: Sequence[tuple[exp.Expr, exp.Expr, bool]]
    ) -> None:
        """Replaces IN under NOT, by whether it is true or unknown: NOT IN is true if it is neither.

        So does Spark, for which IN is never null: false if it is unknown, and NOT IN, too.
        """
        if len(pairs) > 1 or tied.rest or tied.outer:
            not_taken(node, "NOT IN with several columns, or with a further condition on a row around; NOT EXISTS is")
        (value, given, _), correlated = pairs[0], tied.pairs
        if is_grouped(tied.inner):
            not_taken(node, "GROUP BY in a subquery of NOT IN that reads a column around it; NOT EXISTS is taken")
        flags = tied.inner.copy()
        lacks = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Count(this=value.copy()))
        outputs = [aliased(_more_rows_than(0), "has_rows"), aliased(lacks, "has_null")]
        if correlated:
            of_rows = Tied(flags, correlated, [], [])
            ties, by = self._tied(select, node, of_rows)
            name = self._joined(select, self._groups(of_rows.inner, by, outputs), "in_rows", ties, "LEFT")
        else:
            _of_one_row(flags, outputs, self._name("rows"))
            name = self._joined(select, flags, "in_rows", [], "CROSS")
        tied.pairs = [*pairs, *correlated]
        ties, by = self._tied(select, node, tied)
        of = self._joined(select, self._groups(tied.inner, by, []), "in", ties, "LEFT")
        node.replace(
            exp.Case()
            .when(_is_there(of, ties), exp.true())
            .when(exp.not_(_known(column_of(name, "has_rows"))), exp.false())
            .when(exp.or_(_null(given.copy()), column_of(name, "has_null")), exp.true())
            .else_(exp.false())
        )

    def _partner(self, select: exp.Select, node: exp.Expr, tied: Tied, what: str) -> None:
        """Joins the inner rows, grouped by what they are equal to; replaces the condition by whether there are any."""
        conjunct = _is_conjunct(node)
        how = "" if conjunct else "LEFT"
        alike = all(are_alike(one, outer) for one, outer, _ in tied.pairs)
        values, test = tested(tied) if tied.rest and alike else ([], None)
        outer = tied.outer if alike else []
        is_unique = not tied.rest and self._is_unique(tied)
        ties, by = ties_of(tied) if alike else self._domain(select, node, tied)
        inner = _selecting(tied.inner, _as_keys(by)) if is_unique else self._groups(tied.inner, by, values)
        name = self._joined(select, inner, what, ties, how)
        found: list[exp.Expr] = [] if conjunct else [_is_there(name, ties)]
        if test is not None:
            found = [_known(exp.paren(test(name)))]
        found += map(_known, outer)
        node.replace(exp.paren(exp.and_(*found)) if found else exp.true())

    def _value(self, select: exp.Select, node: exp.Expr, inner: exp.Select) -> None:
        """Replaces a subquery that is a value."""
        if len(inner.selects) != 1:
            not_taken(node, "a subquery that is a value has one column")
        if not external(inner):
            node.replace(self._one_row(select, self._at_most_one(inner), "value", "value"))
            return
        tied = tied_by(node, inner)
        value = tied.inner.selects[0].unalias()
        group = tied.inner.args.get("group")
        by = [one for one, _, _ in tied.pairs]
        if not is_grouped(tied.inner):
            self._looked_up(select, node, tied, value)
            return
        if group is not None and not all(one in by for one in group.expressions):
            not_taken(node, "a subquery that is a value, with GROUP BY of more than what it is tied by, has many rows")
        having = tied.inner.args.get("having")
        nothing = None if group is not None else _of_nothing(value)
        if having is not None and nothing is not None:
            not_taken(having, "HAVING beside COUNT in a subquery that is a value; write CASE WHEN ... THEN")
        tied.inner.set("group", None)
        ties, by = self._tied(select, node, tied)
        if not ties:
            not_taken(node, "a subquery that is a value needs an equality between a column of its table and one around")
        inner = self._groups(tied.inner, by, [aliased(value.copy(), "value")])
        name = self._joined(select, inner, "value", ties, "LEFT")
        if nothing is None:
            node.replace(column_of(name, "value"))
        else:
            node.replace(call("IF", _is_there(name, ties), column_of(name, "value"), nothing))

    def _looked_up(self, select: exp.Select, node: exp.Expr, tied: Tied, value: exp.Expr) -> None:
        """Replaces a subquery that is a column of the only row that has a key."""
        if tied.rest or tied.outer or not self._is_unique(tied):
            not_taken(node, "a subquery that is a value may have several rows here; write MIN or MAX of the column")
        ties, by = ties_of(tied)
        inner = _selecting(tied.inner, [*_as_keys(by), aliased(value.copy(), "value")])
        name = self._joined(select, inner, "value", ties, "LEFT")
        node.replace(column_of(name, "value"))

    def _tied(
        self, select: exp.Select, node: exp.Expr, tied: Tied
    ) -> tuple[list[tuple[exp.Expr, bool]], list[exp.Expr]]:
        """Returns what the groups of a subquery are joined to (`ties_of`), and by what they are grouped."""
        if tied.rest or tied.outer or not all(are_alike(inner, outer) for inner, outer, _ in tied.pairs):
            return self._domain(select, node, tied)
        return ties_of(tied)

    def _domain(
        self, select: exp.Select, node: exp.Expr, tied: Tied
    ) -> tuple[list[tuple[exp.Expr, bool]], list[exp.Expr]]:
        """Joins a subquery with the values of its outer columns, each combination once; returns how both are joined."""
        outer = [*dict.fromkeys(column.copy() for column in outer_columns(tied))]
        tables = {one.table for one in outer}
        source = next((one for one in sources_of(select) if one.alias_or_name in tables), None)
        if len(tables) > 1 or not isinstance(source, exp.Table):
            why = "a condition that is no equality, or compares two types"
            not_taken(node, f"a subquery with {why}, reads columns of one table of FROM around it only; CAST may help")
        values = exp.select(*_as_keys(outer)).from_(source.copy()).distinct()
        name = self._name("asked")
        place = {one: column_of(name, f"k{n}") for n, one in enumerate(outer)}

        def put(condition: exp.Expr) -> exp.Expr:
            return condition.transform(lambda one: place[one].copy() if one in place else one)

        pairs = [
            (exp.NullSafeEQ if safe else exp.EQ)(this=inner.copy(), expression=put(of.copy()))
            for inner, of, safe in tied.pairs
        ]
        on = exp.and_(*pairs, *(put(one) for one in [*tied.rest, *tied.outer]))
        source_ = subquery_as(values, name)
        tied.inner.append("joins", exp.Join(this=source_, on=on))
        return [(one, True) for one in outer], [place[one] for one in outer]

    def _groups(self, inner: exp.Select, by: Sequence[exp.Expr], more: Sequence[exp.Expr]) -> exp.Select:
        """Returns a SELECT of the groups of a subquery by some expressions, which it calls `k0`, `k1` and so on."""
        names = _as_keys(by)
        if is_grouped(inner) and inner.args.get("group") is not None:
            groups = inner.args["group"].expressions
            if more or not all(one in groups for one in by) or len({*by}) < len(groups):  # finer: its groups, grouped
                for one in by:
                    if one not in groups and not one.find(exp.AggFunc):
                        inner.args["group"].append("expressions", as_group(one))
                inner = _selecting(inner, names)
                return self._distinct(inner)
            return _selecting(inner, names)
        inner = _selecting(inner, [*names, *more])
        inner.set("group", exp.Group(expressions=[as_group(one) for one in by]))
        return inner

    def _distinct(self, inner: exp.Select) -> exp.Select:
        over = _over(inner, self._name("rows"))
        over.set("distinct", exp.Distinct())
        return over

    def _is_unique(self, tied: Tied) -> bool:
        """Returns whether a subquery is rows of one input, of which no two are equal to the same values."""
        inner, by = tied.inner, [one for one, outer, _ in tied.pairs if are_alike(one, outer)]
        source = inner.args["from_"].this if inner.args.get("from_") is not None else None
        if not isinstance(source, exp.Table) or inner.args.get("joins") or laterals_of(inner):
            return False
        if source.name not in self.keys:
            return False
        if _others(inner) or is_grouped(inner):
            return False
        return {*self.keys[source.name]} <= {one.name.lower() for one in by if isinstance(one, exp.Column)}

    def _at_most_one(self, inner: exp.Select) -> exp.Select:
        """Returns a SELECT of exactly one row: the only value of a subquery, null if it has none."""
        value = inner.selects[0].unalias()
        if is_grouped(inner) and inner.args.get("group") is None and not _others(inner, "having"):
            having = inner.args.get("having")
            inner.set("having", None)
            if having is not None:
                value = call("IF", having.this.copy(), value.copy(), exp.null())
            return _selecting(inner, [aliased(value.copy(), "value")])
        one = _over(inner, self._name("rows"))
        column = one.selects[0].unalias().copy()
        error = call("RAISE_ERROR", exp.Literal.string("a subquery that is a value has more than one row"))
        checked = exp.Case().when(_more_rows_than(1), error).else_(exp.Max(this=column))
        return _selecting(one, [aliased(checked, "value")])

    def _one_row(self, select: exp.Select, inner: exp.Select, what: str, column: str) -> exp.Column:
        """Joins a subquery of one row; returns a column of it."""
        return column_of(self._joined(select, inner, what, [], "CROSS"), column)

    def _joined(
        self, select: exp.Select, inner: exp.Select, what: str, ties: Sequence[tuple[exp.Expr, bool]], how: str
    ) -> str:
        """Adds a subquery to FROM, tied by its columns `k0`, `k1` and so on; returns its name."""
        name = self._name(what)
        join = exp.Join(this=subquery_as(inner, name))
        if how == "CROSS":
            join.set("kind", "CROSS")
        else:
            equal = [
                (exp.NullSafeEQ if safe else exp.EQ)(this=column_of(name, f"k{number}"), expression=outer.copy())
                for number, (outer, safe) in enumerate(ties)
            ]
            join.set("on", exp.and_(*equal))
            join.set("side", how or None)
            if all(safe for _, safe in ties):
                inner.select(aliased(exp.true(), _THERE), copy=False)
        select.append("joins", join)
        return name


_THERE = "is_there"
"""The column of a table that says that there is a row."""


def _subqueries_of_on(select: exp.Select) -> None:
    """Moves conditions with subqueries from ON of inner joins to WHERE."""
    joins = select.args.get("joins") or ()
    outer = any((one.side or "").upper() in ("RIGHT", "FULL") for one in joins)
    for join in joins:
        on = join.args.get("on")
        if on is None or on.find(exp.Query) is None:
            continue
        if join.side or outer:
            not_taken(on, f"a subquery in ON of a {join.side or 'RIGHT or FULL'} JOIN; join it in FROM")
        parts = [*conjuncts(on)]
        moved = [one for one in parts if one.find(exp.Query) is not None]
        kept = [one.copy() for one in parts if one not in moved]
        select.where(*(one.copy() for one in moved), copy=False)
        join.set("on", exp.and_(*kept) if kept else None)


def _given(node: exp.In) -> list[exp.Expr]:
    """Returns the values before IN."""
    return [*node.this.expressions] if isinstance(node.this, exp.Tuple) else [node.this.unnest()]


def _known(condition: exp.Expr, *, unknown: bool = False) -> exp.Expr:
    """SQL: a condition that is never null."""
    return exp.Coalesce(this=condition, expressions=[exp.Boolean(this=unknown)])


def _more_rows_than(number: int) -> exp.Expr:
    """SQL: whether there are more rows than a number; an aggregate."""
    return exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(number))


def _is_once(inner: exp.Select) -> bool:
    """Returns whether the columns of a grouped SELECT are its groups, so that no two rows are equal."""
    group = inner.args.get("group")
    if group is None or _others(inner, "group", "having"):
        return False
    return {*group.expressions} <= {one.unalias() for one in inner.selects}


def _others(inner: exp.Select, *without: str) -> bool:
    """Returns whether a SELECT has clauses after WHERE (`_SIMPLE`), without some."""
    return any(inner.args.get(one) is not None for one in _SIMPLE if one not in without)


def _over(inner: exp.Query, name: str, keep: Sequence[str] = ()) -> exp.Select:
    """Returns a SELECT of all columns of a query, or the query itself if it has only clauses that may stay."""
    if isinstance(inner, exp.Select) and keep and not _others(inner, *keep):
        return inner
    columns = [column_of(name, one) for one in inner.named_selects]
    for number, one in enumerate(columns):
        one.type = type_of(inner, number)
    return exp.select(*[aliased(one, one.name) for one in columns]).from_(subquery_as(inner, name))


def _selecting(inner: exp.Select, outputs: Sequence[exp.Expr]) -> exp.Select:
    inner.set("expressions", [*outputs])
    inner.set("order", None) if inner.args.get("limit") is None else None
    return inner


def _of_one_row(inner: exp.Select, outputs: Sequence[exp.Expr], name: str) -> None:
    """Makes of a subquery aggregates over all its rows."""
    if is_grouped(inner) or _others(inner):
        rows = inner.copy()
        for key in [*inner.args]:
            inner.set(key, None)
        inner.set("from_", exp.From(this=subquery_as(rows, name)))
    inner.set("expressions", [*outputs])
    inner.set("order", None)


def _is_conjunct(node: exp.Expr) -> bool:
    """Returns whether a condition is one of those that AND joins in WHERE."""
    above = node.parent
    while isinstance(above, (exp.And, exp.Paren)):
        above = above.parent
    return isinstance(above, exp.Where) and isinstance(above.parent, exp.Select)


def _leave_out_true(select: exp.Select) -> None:
    """Leaves out of WHERE what has become a join."""
    where = select.args.get("where")
    if where is not None:
        kept = [one.copy() for one in conjuncts(where.this) if one != exp.true()]
        select.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)


def _is_negated(node: exp.Expr) -> bool:
    """Returns whether a condition stands under an odd number of NOT, with AND and OR between."""
    found, above = False, node.parent
    while above is not None and (isinstance(above, (exp.And, exp.Or, exp.Paren, exp.Not)) or _is_with_boolean(above)):
        found, above = found is not _negates(above), above.parent
    return found


def _is_with_boolean(node: exp.Expr) -> bool:
    """Returns whether a condition is compared with TRUE or FALSE: Spark makes it, or NOT, of that."""
    return isinstance(node, (exp.EQ, exp.NEQ)) and any(isinstance(one, exp.Boolean) for one in (node.left, node.right))


def _negates(node: exp.Expr) -> bool:
    """Returns whether NOT, or a comparison with TRUE or FALSE, turns a condition around."""
    if isinstance(node, (exp.EQ, exp.NEQ)):
        return isinstance(node, exp.NEQ) is (exp.true() in (node.left, node.right))
    return isinstance(node, exp.Not)


def _is_there(name: str, ties: Sequence[tuple[exp.Expr, bool]]) -> exp.Expr:
    """SQL: a left join found a row; a column that is compared by `=` is not null then."""
    place = next((number for number, (_, safe) in enumerate(ties) if not safe), None)
    return exp.not_(_null(column_of(name, _THERE if place is None else f"k{place}")))


def _as_keys(by: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Returns the columns `k0`, `k1` and so on of a table that is joined."""
    return [aliased(one.copy(), f"k{number}") for number, one in enumerate(by)]


def _null(value: exp.Expr) -> exp.Expr:
    return exp.Is(this=value, expression=exp.null())


def _of_nothing(value: exp.Expr) -> exp.Expr | None:
    """Returns what an expression of aggregates is without any rows; None if that is null."""
    root, is_null = exp.Paren(this=value.copy()), True
    for node in [*root.walk(prune=lambda one: isinstance(one, exp.AggFunc))]:
        if isinstance(node, exp.AggFunc):
            name = node.name if isinstance(node, exp.AnonymousAggFunc) else node.key
            nothing = _OF_NOTHING.get(name.upper())
            is_null = is_null and nothing is None
            whole: exp.Expr = node
            while isinstance(whole.parent, (exp.Filter, exp.WithinGroup)):
                whole = whole.parent
            whole.replace(exp.null() if nothing is None else exp.Var(this=nothing))
        elif not isinstance(node, _STRICT):
            is_null = False
    return None if is_null else root
