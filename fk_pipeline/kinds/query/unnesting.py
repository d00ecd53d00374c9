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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from fk_pipeline.kinds.query.above_groups import is_above_groups, split_groups
from fk_pipeline.kinds.query.generators import made_above_subqueries, split_laterals, typed
from fk_pipeline.kinds.query.outer_joins import without_outer_join
from fk_pipeline.kinds.query.refusals import not_taken
from fk_pipeline.kinds.query.resolving import as_group, schema_of
from fk_pipeline.kinds.query.trees import (
    aliased,
    column_of,
    conjuncts,
    external,
    is_grouped,
    is_in,
    laterals_of,
    named,
    names_in,
    own,
    query_of,
    sources_of,
    subqueries,
    subquery_as,
)
from fk_pipeline.spec.sql import DIALECT, Column

Keys = Mapping[str, Sequence[str]]
"""Per input, the columns that identify a row, in lower case."""

_EXACT_NUMBERS = {
    exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.DECIMAL,
}  # fmt: skip
"""Types of which two values that differ differ as those of another of them, too."""

_TEXTS = {exp.DType.TEXT, exp.DType.VARCHAR}

_OF_NOTHING = {
    "COUNT": "0L", "COUNT_IF": "0L", "APPROX_COUNT_DISTINCT": "0L", "REGR_COUNT": "0L",
    "COLLECT_LIST": "ARRAY()", "COLLECT_SET": "ARRAY()", "ARRAY_AGG": "ARRAY()",
}  # fmt: skip
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


@dataclass
class _Correlated:
    """A subquery without the conditions that tie it to the query around it.

    Attributes:
        inner: the SELECT without these conditions.
        pairs: (an expression of the subquery, the one around that it is equal to, whether null equals null).
        rest: further conditions between both.
        outer: conditions of the query around alone.
    """

    inner: exp.Select
    pairs: list[tuple[exp.Expr, exp.Expr, bool]]
    rest: list[exp.Expr]
    outer: list[exp.Expr]


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
        tied, given = self._correlated(node, inner), list[exp.Expr]()
        if isinstance(node, exp.In):
            given = [*node.this.expressions] if isinstance(node.this, exp.Tuple) else [node.this.unnest()]
        pairs = [*zip((one.unalias() for one in inner.selects), given, strict=False)]
        pairs += [(one, outer) for one, outer, _ in tied.pairs]
        return not tied.rest and not tied.outer and all(_are_alike(*pair) for pair in pairs)

    def _exists(self, select: exp.Select, node: exp.Exists, inner: exp.Select) -> None:
        if not external(inner):
            there = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
            _of_one_row(inner, [aliased(there, "is_there")], self._name("rows"))
            node.replace(self._one_row(select, inner, "exists", "is_there"))
            return
        if is_grouped(inner) and inner.args.get("group") is None:
            why = "is true, whatever the rows are" if inner.args.get("having") is None else "with HAVING is not taken"
            not_taken(node, f"EXISTS over an aggregate without GROUP BY {why}; compare the aggregate as a value")
        inner.set("distinct", None)
        inner.set("order", None)
        limit = inner.args.get("limit")
        if limit is not None and limit.expression.name != "0":
            inner.set("limit", None)
        tied = self._correlated(node, inner)
        if not tied.pairs:
            not_taken(node, "EXISTS needs an equality between a column of its table and one around it")
        self._partner(select, node, tied, "exists")

    def _in(self, select: exp.Select, node: exp.In, inner: exp.Select) -> None:
        given = [*node.this.expressions] if isinstance(node.this, exp.Tuple) else [node.this.unnest()]
        if len(given) != len(inner.selects):
            not_taken(node, f"IN compares {len(given)} values with {len(inner.selects)}")
        is_value = is_grouped(inner) and inner.args.get("group") is None
        if is_value and inner.args.get("having") is not None and external(inner):
            not_taken(
                node, "HAVING without GROUP BY in a subquery of IN that reads a column around it; group it in FROM"
            )
        if is_value and inner.args.get("having") is None and len(given) == 1:
            value, is_conjunct = exp.Subquery(this=inner), _is_conjunct(node)
            equal, unknown = exp.EQ(this=node.this.copy(), expression=value), exp.Boolean(this=_is_negated(node))
            node.replace(equal if is_conjunct else exp.Coalesce(this=equal, expressions=[unknown]))
            self._value(select, value, inner)
            return
        if any(not [*one.find_all(exp.Column)] for one in given):
            not_taken(node, "IN needs a column before it, as the other table is looked up by it")
        is_negated = _is_negated(node)
        if is_value and external(inner):
            not_taken(node, "IN with several aggregates of a subquery that reads a column around it; join it in FROM")
        if not external(inner) and (is_value or _others(inner) or own(inner, exp.Window)):
            inner = _over(inner, self._name("rows"), ("group", "having") if not is_negated and _is_once(inner) else ())
        tied = self._correlated(node, inner)
        pairs = [(one.unalias(), value, False) for one, value in zip(tied.inner.selects, given, strict=True)]
        if is_negated:
            self._in_or_unknown(select, node, tied, pairs)
        else:
            tied.pairs = [*pairs, *tied.pairs]
            self._partner(select, node, tied, "in")

    def _in_or_unknown(
        self, select: exp.Select, node: exp.In, tied: _Correlated, pairs: Sequence[tuple[exp.Expr, exp.Expr, bool]]
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
        has = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
        lacks = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Count(this=value.copy()))
        outputs = [aliased(has, "has_rows"), aliased(lacks, "has_null")]
        if correlated:
            of_rows = _Correlated(flags, correlated, [], [])
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
            .when(exp.not_(exp.Coalesce(this=column_of(name, "has_rows"), expressions=[exp.false()])), exp.false())
            .when(exp.or_(_null(given.copy()), column_of(name, "has_null")), exp.true())
            .else_(exp.false())
        )

    def _partner(self, select: exp.Select, node: exp.Expr, tied: _Correlated, what: str) -> None:
        """Joins the inner rows, grouped by what they are equal to; replaces the condition by whether there are any."""
        conjunct = _is_conjunct(node)
        how = "" if conjunct else "LEFT"
        alike = all(_are_alike(one, outer) for one, outer, _ in tied.pairs)
        values, test = _tested(tied) if tied.rest and alike else ([], None)
        outer = tied.outer if alike else []
        is_unique = not tied.rest and self._is_unique(tied)
        ties, by = _ties(tied) if alike else self._domain(select, node, tied)
        inner = _selecting(tied.inner, _as_keys(by)) if is_unique else self._groups(tied.inner, by, values)
        name = self._joined(select, inner, what, ties, how)
        found: list[exp.Expr] = [] if conjunct else [_is_there(name, ties)]
        if test is not None:
            found = [exp.Coalesce(this=exp.paren(test(name)), expressions=[exp.false()])]
        found += [exp.Coalesce(this=one, expressions=[exp.false()]) for one in outer]
        node.replace(exp.paren(exp.and_(*found)) if found else exp.true())

    def _value(self, select: exp.Select, node: exp.Expr, inner: exp.Select) -> None:
        """Replaces a subquery that is a value."""
        if len(inner.selects) != 1:
            not_taken(node, "a subquery that is a value has one column")
        if not external(inner):
            node.replace(self._one_row(select, self._at_most_one(inner), "value", "value"))
            return
        tied = self._correlated(node, inner)
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
            node.replace(_call("IF", _is_there(name, ties), column_of(name, "value"), nothing))

    def _looked_up(self, select: exp.Select, node: exp.Expr, tied: _Correlated, value: exp.Expr) -> None:
        """Replaces a subquery that is a column of the only row that has a key."""
        by = [one for one, _, _ in tied.pairs]
        simple = all(tied.inner.args.get(one) is None for one in _SIMPLE)
        if tied.rest or tied.outer or not simple or not self._is_unique(tied):
            not_taken(node, "a subquery that is a value may have several rows here; write MIN or MAX of the column")
        inner = _selecting(tied.inner, [*_as_keys(by), aliased(value.copy(), "value")])
        name = self._joined(select, inner, "value", [(outer, safe) for _, outer, safe in tied.pairs], "LEFT")
        node.replace(column_of(name, "value"))

    def _tied(
        self, select: exp.Select, node: exp.Expr, tied: _Correlated
    ) -> tuple[list[tuple[exp.Expr, bool]], list[exp.Expr]]:
        """Returns what the groups of a subquery are joined to (`_ties`), and by what they are grouped."""
        if tied.rest or tied.outer or not all(_are_alike(inner, outer) for inner, outer, _ in tied.pairs):
            return self._domain(select, node, tied)
        return _ties(tied)

    def _domain(
        self, select: exp.Select, node: exp.Expr, tied: _Correlated
    ) -> tuple[list[tuple[exp.Expr, bool]], list[exp.Expr]]:
        """Joins a subquery with the values of its outer columns, each combination once; returns how both are joined."""
        outer = [*dict.fromkeys(column.copy() for column in _outer_columns(tied))]
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

    def _correlated(self, node: exp.Expr, inner: exp.Select) -> _Correlated:
        """Takes out of a subquery the conditions of WHERE that read columns around it."""
        tied = _Correlated(inner.copy(), [], [], [])
        where, around = tied.inner.args.get("where"), {one.table for one in external(inner)}
        kept = []
        for one in conjuncts(where.this) if where is not None else ():
            sides = {column.table in around for column in one.find_all(exp.Column)}
            if True not in sides:
                kept.append(one.copy())
            elif False not in sides:
                tied.outer.append(one.copy())
            elif (pair := _pair(one, around)) is not None:
                tied.pairs.append(pair)
            else:
                tied.rest.append(one.copy())
        tied.inner.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)
        rest = external(tied.inner)
        if isinstance(node, exp.Exists):
            rest = [one for one in rest if not _is_in_selects(one, tied.inner)]
        if rest:
            not_taken(node, f"{rest[0].sql('spark')} of the query around is read elsewhere than in WHERE")
        if around and any(tied.inner.args.get(one) is not None for one in ("limit", "offset", "qualify", "with_")):
            not_taken(node, "LIMIT, QUALIFY or WITH in a subquery that reads a column around it; join one in FROM")
        if around and any(own(tied.inner, exp.Window)):
            not_taken(node, "a window function in a subquery that reads a column around it; join one in FROM")
        if tied.rest and is_grouped(tied.inner) and not isinstance(node, exp.Subquery):
            not_taken(node, "GROUP BY in a subquery beside a condition that is no equality with the row around")
        return tied

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

    def _is_unique(self, tied: _Correlated) -> bool:
        """Returns whether a subquery is rows of one input, of which no two are equal to the same values."""
        inner, by = tied.inner, [one for one, outer, _ in tied.pairs if _are_alike(one, outer)]
        source = inner.args["from_"].this if inner.args.get("from_") is not None else None
        if not isinstance(source, exp.Table) or inner.args.get("joins") or laterals_of(inner):
            return False
        if source.name not in self.keys:
            return False
        if any(inner.args.get(one) is not None for one in _SIMPLE) or is_grouped(inner):
            return False
        return {*self.keys[source.name]} <= {one.name.lower() for one in by if isinstance(one, exp.Column)}

    def _at_most_one(self, inner: exp.Select) -> exp.Select:
        """Returns a SELECT of exactly one row: the only value of a subquery, null if it has none."""
        value = inner.selects[0].unalias()
        if is_grouped(inner) and inner.args.get("group") is None and not _others(inner, "having"):
            having = inner.args.get("having")
            inner.set("having", None)
            if having is not None:
                value = _call("IF", having.this.copy(), value.copy(), exp.null())
            return _selecting(inner, [aliased(value.copy(), "value")])
        one = _over(inner, self._name("rows"))
        column = one.selects[0].unalias().copy()
        many = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(1))
        error = _call("RAISE_ERROR", exp.Literal.string("a subquery that is a value has more than one row"))
        checked = exp.Case().when(many, error).else_(exp.Max(this=column))
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


_SET, _ROW = "rows", "_row"
"""Of a group, the set of values that a further condition reads, and one of them."""

_LEAST, _GREATEST = "least", "greatest"
"""Of a group, the ends of the values that a comparison reads."""

_ENDS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.LT: (_LEAST,),
    exp.LTE: (_LEAST,),
    exp.GT: (_GREATEST,),
    exp.GTE: (_GREATEST,),
    exp.NEQ: (_LEAST, _GREATEST),
}
"""Per comparison, the ends of the values on its left that tell whether it holds for one of them."""

_OTHER_END = {_LEAST: _GREATEST, _GREATEST: _LEAST}

_THERE = "is_there"
"""The column of a table that says that there is a row."""


def _subqueries_of_on(select: exp.Select) -> None:
    """Moves conditions with subqueries from ON of inner joins to WHERE."""
    joins = select.args.get("joins") or ()
    outer = any((one.side or "").upper() in ("RIGHT", "FULL") for one in joins)
    for join in joins:
        on = join.args.get("on")
        if on is None or not any(True for _ in _subqueries_in(on)):
            continue
        if join.side or outer:
            not_taken(on, f"a subquery in ON of a {join.side or 'RIGHT or FULL'} JOIN; join it in FROM")
        parts = [*conjuncts(on)]
        moved = [one for one in parts if any(True for _ in _subqueries_in(one))]
        kept = [one.copy() for one in parts if one not in moved]
        select.where(*(one.copy() for one in moved), copy=False)
        join.set("on", exp.and_(*kept) if kept else None)


def _subqueries_in(node: exp.Expr) -> Iterator[exp.Query]:
    return node.find_all(exp.Query)


def _is_once(inner: exp.Select) -> bool:
    """Returns whether the columns of a grouped SELECT are its groups, so that no two rows are equal."""
    group = inner.args.get("group")
    if group is None or any(inner.args.get(one) is not None for one in _SIMPLE if one not in ("group", "having")):
        return False
    return {*group.expressions} <= {one.unalias() for one in inner.selects}


def _others(inner: exp.Select, *without: str) -> bool:
    return any(inner.args.get(one) is not None for one in _SIMPLE if one not in without)


def _over(inner: exp.Query, name: str, keep: Sequence[str] = ()) -> exp.Select:
    """Returns a SELECT of all columns of a query, or the query itself if it has only clauses that may stay."""
    if isinstance(inner, exp.Select) and keep and not _others(inner, *keep):
        return inner
    columns = [column_of(name, one) for one in inner.named_selects]
    for number, one in enumerate(columns):
        one.type = _type_of(inner, number)
    return exp.select(*[aliased(one, one.name) for one in columns]).from_(subquery_as(inner, name))


def _ties(tied: _Correlated) -> tuple[list[tuple[exp.Expr, bool]], list[exp.Expr]]:
    """Returns the outer sides of equalities, each with whether null equals null, and the inner sides."""
    return [(outer, safe) for _, outer, safe in tied.pairs], [inner for inner, _, _ in tied.pairs]


def _are_alike(one: exp.Expr, other: exp.Expr) -> bool:
    """Returns whether two values are known to be equal if, and only if, they are so by the type of each.

    Spark compares values of two types as those of a third: the texts '1' and '01' are two, and both equal the number 1.
    """
    kinds = [_kind_of(value) for value in (one, other)]
    if exp.DType.UNKNOWN in kinds:
        return False
    return kinds[0] == kinds[1] or any(all(kind in one for kind in kinds) for one in (_EXACT_NUMBERS, _TEXTS))


def _kind_of(value: exp.Expr) -> exp.DType:
    """Returns the type of an expression, without its size; of functions by what sqlglot knows of them."""
    if value.type is not None and value.type.this != exp.DType.UNKNOWN:
        return exp.DType(value.type.this)
    known = sqlglot.parse_one(value.sql(DIALECT), dialect=DIALECT)
    types = {(one.table, one.name): one.type for one in value.find_all(exp.Column)}

    def typed(node: exp.Expr) -> exp.Expr:
        of = types.get((node.table, node.name)) if isinstance(node, exp.Column) else None
        return node if of is None or of.this == exp.DType.UNKNOWN else exp.cast(exp.null(), of)

    found = annotate_types(known.transform(typed), dialect=DIALECT).type
    return exp.DType.UNKNOWN if found is None else exp.DType(found.this)


def _type_of(query: exp.Query, number: int) -> exp.DataType | None:
    """Returns the type of a column of a query; None if it is not known, or the parts of a UNION have others."""
    if isinstance(query, exp.Subquery):
        return _type_of(query.this, number)
    if isinstance(query, exp.SetOperation):
        left, right = (_type_of(one, number) for one in (query.this, query.expression))
        return left if left == right else None
    return query.selects[number].unalias().type if number < len(query.selects) else None


def _selecting(inner: exp.Select, outputs: Sequence[exp.Expr]) -> exp.Select:
    inner.set("expressions", [*outputs])
    inner.set("order", None) if inner.args.get("limit") is None else None
    return inner


def _of_one_row(inner: exp.Select, outputs: Sequence[exp.Expr], name: str) -> None:
    """Makes of a subquery aggregates over all its rows."""
    if is_grouped(inner) or any(inner.args.get(one) is not None for one in _SIMPLE):
        rows = inner.copy()
        for key in [*inner.args]:
            inner.set(key, None)
        inner.set("from_", exp.From(this=subquery_as(rows, name)))
    inner.set("expressions", [*outputs])
    inner.set("order", None)


def _pair(condition: exp.Expr, around: set[str]) -> tuple[exp.Expr, exp.Expr, bool] | None:
    """Returns the sides of an equality between a subquery and the query around it; None of another condition."""
    if not isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
        return None
    left, right = condition.left.unnest(), condition.right.unnest()
    of = [{column.table in around for column in one.find_all(exp.Column)} for one in (left, right)]
    safe = isinstance(condition, exp.NullSafeEQ)
    if of == [{False}, {True}]:
        return left.copy(), right.copy(), safe
    return (right.copy(), left.copy(), safe) if of == [{True}, {False}] else None


def _outer_columns(tied: _Correlated) -> list[exp.Column]:
    """Returns the columns around a subquery that it reads."""
    own = names_in(tied.inner)
    parts = [*(outer for _, outer, _ in tied.pairs), *tied.rest, *tied.outer]
    return [column for part in parts for column in part.find_all(exp.Column) if column.table not in own]


def _tested(tied: _Correlated) -> tuple[list[exp.Expr], Callable[[str], exp.Expr]]:
    """Returns what a group keeps of its rows for conditions with a row around that are no equalities.

    It is the least and the greatest value, if there is one condition, which compares; otherwise the set of values that
    are read. With it comes a function from the name of the groups to SQL of whether a row of the group meets the
    conditions.
    """
    [first, *more], own_tables = tied.rest, names_in(tied.inner)
    if not more and isinstance(first, exp.Binary) and type(first) in _ENDS and _are_alike(first.left, first.right):
        inner = [{c.table in own_tables for c in side.find_all(exp.Column)} for side in (first.left, first.right)]
        if inner in ([{True}, {False}], [{False}, {True}]):
            return _compared_with_ends(first, inner[0] == {True})
    read = [*dict.fromkeys(c.copy() for one in tied.rest for c in one.find_all(exp.Column) if c.table in own_tables)]
    place = {one: exp.Dot(this=exp.to_identifier(_ROW), expression=named(f"c{n}")) for n, one in enumerate(read)}
    fields = [part for n, one in enumerate(read) for part in (exp.Literal.string(f"c{n}"), one.copy())]
    values = exp.AnonymousAggFunc(this="COLLECT_SET", expressions=[_call("NAMED_STRUCT", *fields)])
    tests = [one.transform(lambda node: place[node].copy() if node in place else node) for one in tied.rest]
    of = exp.Lambda(this=exp.and_(*tests), expressions=[exp.to_identifier(_ROW)])
    return [aliased(_call("ARRAY_SORT", values), _SET)], lambda name: _call("EXISTS", column_of(name, _SET), of.copy())


def _compared_with_ends(condition: exp.Binary, is_left: bool) -> tuple[list[exp.Expr], Callable[[str], exp.Expr]]:
    """Returns the same of a comparison, whose left or right side is of the inner rows."""
    value, other = (condition.left, condition.right) if is_left else (condition.right, condition.left)
    ends = _ENDS[type(condition)] if is_left else tuple(_OTHER_END[one] for one in _ENDS[type(condition)])
    kept: list[exp.Expr] = [
        aliased(exp.Min(this=value.copy()) if end == _LEAST else exp.Max(this=value.copy()), end) for end in ends
    ]

    def test(name: str) -> exp.Expr:
        sides = [(column_of(name, end), other.copy()) for end in ends]
        tests = [type(condition)(this=a if is_left else b, expression=b if is_left else a) for a, b in sides]
        return exp.or_(*tests)

    return kept, test


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
    while above is not None:
        if (
            isinstance(above, exp.Not)
            or _compares_with(above, exp.EQ, exp.false())
            or _compares_with(above, exp.NEQ, exp.true())
        ):
            found = not found
        elif not isinstance(above, (exp.And, exp.Or, exp.Paren)) and not (
            _compares_with(above, exp.EQ, exp.true()) or _compares_with(above, exp.NEQ, exp.false())
        ):
            break
        above = above.parent
    return found


def _compares_with(node: exp.Expr, comparison: type[exp.Binary], value: exp.Expr) -> bool:
    return isinstance(node, comparison) and value in (node.left, node.right)


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


def _is_in_selects(node: exp.Expr, select: exp.Select) -> bool:
    return any(is_in(node, one) for one in select.selects)


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[*arguments])
