"""Replaces a subquery that is a condition or a value by columns of a table that is joined (`unnesting`). No Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from fk_pipeline.blocks.select.generators import split_laterals
from fk_pipeline.blocks.select.inner_rows import (
    as_keys,
    at_most_one,
    has_clauses,
    in_groups,
    is_once,
    more_rows_than,
    of_nothing,
    of_one_row,
    over,
    selecting,
)
from fk_pipeline.blocks.select.likeness import are_alike
from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.tied import Tied, outer_columns, tested, tied_by, ties_of
from fk_pipeline.blocks.select.trees import (
    aliased,
    call,
    column_of,
    external,
    is_conjunct,
    is_grouped,
    is_negated,
    laterals_of,
    own,
    sources_of,
    subquery_as,
)

Keys = Mapping[str, Sequence[str]]
"""Per input, the columns that identify a row, in lower case."""

_HAS_ROW = "is_there"
"""The column of a table that says that there is a row."""


def replace_subquery(
    select: exp.Select, node: exp.Expr, inner: exp.Query, keys: Keys, name: Callable[[str], str]
) -> None:
    """Replaces a subquery of a SELECT, in place, by columns of tables that are joined.

    Args:
        select: the SELECT.
        node: the subquery, which is a condition or a value in it.
        inner: its query, without subqueries as values or conditions.
        keys: per input, the columns that identify a row, as far as they are known.
        name: function that returns a name that no table has, given how it begins.

    Raises:
        SqlTextError: it cannot be replaced; the message names it, its line, and what to write.
    """
    if isinstance(inner, exp.SetOperation):
        inner = over(inner, name("union"))
    assert isinstance(inner, exp.Select)
    if laterals_of(inner) and not _is_tied_alike(node, inner):
        split_laterals(inner, name("rows"))
    replaced = _Subquery(select, node, keys, name)
    if isinstance(node, exp.Exists):
        replaced.exists(inner)
    elif isinstance(node, exp.In):
        replaced.in_(inner)
    else:
        replaced.value(inner)


def _given(node: exp.Expr) -> list[exp.Expr]:
    """Returns the values before IN."""
    return [*node.this.expressions] if isinstance(node.this, exp.Tuple) else [node.this.unnest()]


def _is_tied_alike(node: exp.Expr, inner: exp.Select) -> bool:
    """Returns whether a subquery is tied to the row around it by equalities of values of one type alone."""
    tied, given = tied_by(node, inner), _given(node) if isinstance(node, exp.In) else []
    pairs = [*zip((output.unalias() for output in inner.selects), given, strict=False)]
    pairs += [(value, outer) for value, outer, _ in tied.pairs]
    return not tied.rest and not tied.outer and all(are_alike(*pair) for pair in pairs)


@dataclass(frozen=True)
class _Subquery:
    """A subquery that is replaced.

    Attributes:
        select: the SELECT that it stands in.
        node: the condition or the value.
        keys: per input, the columns that identify a row.
        name: function that returns a name that no table has.
    """

    select: exp.Select
    node: exp.Expr
    keys: Keys
    name: Callable[[str], str]

    def exists(self, inner: exp.Select) -> None:
        """Replaces EXISTS."""
        if not external(inner):
            of_one_row(inner, [aliased(more_rows_than(0), _HAS_ROW)], self.name("rows"))
            self.node.replace(self._one_row(inner, "exists", _HAS_ROW))
            return
        if is_grouped(inner) and inner.args.get("group") is None:
            why = "is true, whatever the rows are" if inner.args.get("having") is None else "with HAVING is not taken"
            not_taken(self.node, f"EXISTS over an aggregate without GROUP BY {why}; compare the aggregate as a value")
        inner.set("distinct", None)
        inner.set("order", None)
        limit = inner.args.get("limit")
        if limit is not None and limit.expression.name != "0":
            inner.set("limit", None)
        tied = tied_by(self.node, inner)
        if not tied.pairs:
            not_taken(self.node, "EXISTS needs an equality between a column of its table and one around it")
        self._partner(tied, "exists")

    def in_(self, inner: exp.Select) -> None:
        """Replaces IN, with one value before it or with several."""
        given, negated = _given(self.node), is_negated(self.node)
        if len(given) != len(inner.selects):
            not_taken(self.node, f"IN compares {len(given)} values with {len(inner.selects)}")
        is_value = is_grouped(inner) and inner.args.get("group") is None
        if is_value and inner.args.get("having") is not None and external(inner):
            not_taken(
                self.node, "HAVING without GROUP BY in a subquery of IN that reads a column around it; group it in FROM"
            )
        if is_value and inner.args.get("having") is None and len(given) == 1:
            value, conjunct = exp.Subquery(this=inner), is_conjunct(self.node)
            equal = exp.EQ(this=self.node.this.copy(), expression=value)
            self.node.replace(equal if conjunct else _known(equal, unknown=negated))
            replace(self, node=value).value(inner)
            return
        if any(not [*value.find_all(exp.Column)] for value in given):
            not_taken(self.node, "IN needs a column before it, as the other table is looked up by it")
        if is_value and external(inner):
            not_taken(
                self.node, "IN with several aggregates of a subquery that reads a column around it; join it in FROM"
            )
        if not external(inner) and (is_value or has_clauses(inner) or own(inner, exp.Window)):
            inner = over(inner, self.name("rows"), ("group", "having") if not negated and is_once(inner) else ())
        tied = tied_by(self.node, inner)
        pairs = [(output.unalias(), value, False) for output, value in zip(tied.inner.selects, given, strict=True)]
        if negated:
            self._in_or_unknown(tied, pairs)
        else:
            tied.pairs = [*pairs, *tied.pairs]
            self._partner(tied, "in")

    def _in_or_unknown(self, tied: Tied, pairs: Sequence[tuple[exp.Expr, exp.Expr, bool]]) -> None:
        """Replaces IN under NOT, by whether it is true or unknown: NOT IN is true if it is neither.

        So does Spark, for which IN is never null: false if it is unknown, and NOT IN, too.
        """
        if len(pairs) > 1 or tied.rest or tied.outer:
            not_taken(
                self.node, "NOT IN with several columns, or with a further condition on a row around; NOT EXISTS is"
            )
        (value, given, _), correlated = pairs[0], tied.pairs
        if is_grouped(tied.inner):
            not_taken(self.node, "GROUP BY in a subquery of NOT IN that reads a column around it; NOT EXISTS is taken")
        flags = tied.inner.copy()
        lacks = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Count(this=value.copy()))
        outputs = [aliased(more_rows_than(0), "has_rows"), aliased(lacks, "has_null")]
        if correlated:
            of_rows = Tied(flags, correlated, [], [])
            ties, by = self._tied(of_rows)
            name = self._joined(in_groups(of_rows.inner, by, outputs, self.name), "in_rows", ties, "LEFT")
        else:
            of_one_row(flags, outputs, self.name("rows"))
            name = self._joined(flags, "in_rows", [], "CROSS")
        tied.pairs = [*pairs, *correlated]
        ties, by = self._tied(tied)
        of = self._joined(in_groups(tied.inner, by, [], self.name), "in", ties, "LEFT")
        self.node.replace(
            exp.Case()
            .when(_has_match(of, ties), exp.true())
            .when(exp.not_(_known(column_of(name, "has_rows"))), exp.false())
            .when(exp.or_(_null(given.copy()), column_of(name, "has_null")), exp.true())
            .else_(exp.false())
        )

    def _partner(self, tied: Tied, what: str) -> None:
        """Joins the inner rows, grouped by what they are equal to; replaces the condition by whether there are any."""
        conjunct = is_conjunct(self.node)
        how = "" if conjunct else "LEFT"
        alike = all(are_alike(value, outer) for value, outer, _ in tied.pairs)
        values, test = tested(tied) if tied.rest and alike else ([], None)
        outer = tied.outer if alike else []
        is_unique = not tied.rest and self._is_unique(tied)
        ties, by = ties_of(tied) if alike else self._domain(tied)
        inner = selecting(tied.inner, as_keys(by)) if is_unique else in_groups(tied.inner, by, values, self.name)
        name = self._joined(inner, what, ties, how)
        conditions: list[exp.Expr] = [] if conjunct else [_has_match(name, ties)]
        if test is not None:
            conditions = [_known(exp.paren(test(name)))]
        conditions += map(_known, outer)
        self.node.replace(exp.paren(exp.and_(*conditions)) if conditions else exp.true())

    def value(self, inner: exp.Select) -> None:
        """Replaces a subquery that is a value."""
        if len(inner.selects) != 1:
            not_taken(self.node, "a subquery that is a value has one column")
        if not external(inner):
            self.node.replace(self._one_row(at_most_one(inner, self.name), "value", "value"))
            return
        tied = tied_by(self.node, inner)
        value = tied.inner.selects[0].unalias()
        group = tied.inner.args.get("group")
        by = [expression for expression, _, _ in tied.pairs]
        if not is_grouped(tied.inner):
            self._looked_up(tied, value)
            return
        if group is not None and not all(expression in by for expression in group.expressions):
            not_taken(
                self.node, "a subquery that is a value, with GROUP BY of more than what it is tied by, has many rows"
            )
        having = tied.inner.args.get("having")
        nothing = None if group is not None else of_nothing(value)
        if having is not None and nothing is not None:
            not_taken(having, "HAVING beside COUNT in a subquery that is a value; write CASE WHEN ... THEN")
        tied.inner.set("group", None)
        ties, by = self._tied(tied)
        if not ties:
            not_taken(
                self.node, "a subquery that is a value needs an equality between a column of its table and one around"
            )
        inner = in_groups(tied.inner, by, [aliased(value.copy(), "value")], self.name)
        name = self._joined(inner, "value", ties, "LEFT")
        if nothing is None:
            self.node.replace(column_of(name, "value"))
        else:
            self.node.replace(call("IF", _has_match(name, ties), column_of(name, "value"), nothing))

    def _looked_up(self, tied: Tied, value: exp.Expr) -> None:
        """Replaces a subquery that is a column of the only row that has a key."""
        if tied.rest or tied.outer or not self._is_unique(tied):
            not_taken(
                self.node, "a subquery that is a value may have several rows here; write MIN or MAX of the column"
            )
        ties, by = ties_of(tied)
        inner = selecting(tied.inner, [*as_keys(by), aliased(value.copy(), "value")])
        name = self._joined(inner, "value", ties, "LEFT")
        self.node.replace(column_of(name, "value"))

    def _tied(self, tied: Tied) -> tuple[list[tuple[exp.Expr, bool]], list[exp.Expr]]:
        """Returns what the groups of a subquery are joined to (`ties_of`), and by what they are grouped."""
        if tied.rest or tied.outer or not all(are_alike(inner, outer) for inner, outer, _ in tied.pairs):
            return self._domain(tied)
        return ties_of(tied)

    def _domain(self, tied: Tied) -> tuple[list[tuple[exp.Expr, bool]], list[exp.Expr]]:
        """Joins a subquery with the values of its outer columns, each combination once; returns how both are joined."""
        outer = [*dict.fromkeys(column.copy() for column in outer_columns(tied))]
        tables = {column.table for column in outer}
        source = next((table for table in sources_of(self.select) if table.alias_or_name in tables), None)
        if len(tables) > 1 or not isinstance(source, exp.Table):
            why = "a condition that is no equality, or compares two types"
            not_taken(
                self.node, f"a subquery with {why}, reads columns of one table of FROM around it only; CAST may help"
            )
        values = exp.select(*as_keys(outer)).from_(source.copy()).distinct()
        name = self.name("asked")
        place = {column: column_of(name, f"k{n}") for n, column in enumerate(outer)}

        def put(condition: exp.Expr) -> exp.Expr:
            return condition.transform(lambda node: place[node].copy() if node in place else node)

        pairs = [
            (exp.NullSafeEQ if safe else exp.EQ)(this=inner.copy(), expression=put(of.copy()))
            for inner, of, safe in tied.pairs
        ]
        on = exp.and_(*pairs, *(put(condition) for condition in [*tied.rest, *tied.outer]))
        source_ = subquery_as(values, name)
        tied.inner.append("joins", exp.Join(this=source_, on=on))
        return [(column, True) for column in outer], [place[column] for column in outer]

    def _is_unique(self, tied: Tied) -> bool:
        """Returns whether a subquery is rows of one input, of which no two are equal to the same values."""
        inner, by = tied.inner, [value for value, outer, _ in tied.pairs if are_alike(value, outer)]
        source = inner.args["from_"].this if inner.args.get("from_") is not None else None
        if not isinstance(source, exp.Table) or inner.args.get("joins") or laterals_of(inner):
            return False
        if source.name not in self.keys:
            return False
        if has_clauses(inner) or is_grouped(inner):
            return False
        return {*self.keys[source.name]} <= {value.name.lower() for value in by if isinstance(value, exp.Column)}

    def _one_row(self, inner: exp.Select, what: str, column: str) -> exp.Column:
        """Joins a subquery of one row; returns a column of it."""
        return column_of(self._joined(inner, what, [], "CROSS"), column)

    def _joined(self, inner: exp.Select, what: str, ties: Sequence[tuple[exp.Expr, bool]], how: str) -> str:
        """Adds a subquery to FROM, tied by its columns `k0`, `k1` and so on; returns its name."""
        name = self.name(what)
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
                inner.select(aliased(exp.true(), _HAS_ROW), copy=False)
        self.select.append("joins", join)
        return name


def _known(condition: exp.Expr, *, unknown: bool = False) -> exp.Expr:
    """SQL: a condition that is never null."""
    return exp.Coalesce(this=condition, expressions=[exp.Boolean(this=unknown)])


def _has_match(name: str, ties: Sequence[tuple[exp.Expr, bool]]) -> exp.Expr:
    """SQL: a left join found a row; a column that is compared by `=` is not null then."""
    place = next((number for number, (_, safe) in enumerate(ties) if not safe), None)
    return exp.not_(_null(column_of(name, _HAS_ROW if place is None else f"k{place}")))


def _null(value: exp.Expr) -> exp.Expr:
    return exp.Is(this=value, expression=exp.null())
