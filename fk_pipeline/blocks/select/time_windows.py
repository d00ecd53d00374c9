"""Spark's `window(t, length, slide, start)` puts rows into windows of time: here it is arithmetic over times. No Spark.

    SELECT window.start, COUNT(*) AS n FROM clicks GROUP BY window(at, '1 hour')

    window.start = at - pmod(at - start, slide)      the last window that begins before `at`, or at it
    window.end   = window.start + length

Where windows overlap a row is in several, which begin one slide, two, ... earlier: LATERAL VIEW makes a row for each.
Rows without a time are in none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.trees import aliased, call, column_of, named, own, sources_of
from fk_pipeline.spec.durations import micros, span

_WINDOW, _START, _END = "window", "start", "end"

_MOST = 1_000
"""The most windows that a row is in."""

_ZERO = timedelta()


def as_function(tokens: Sequence[Token]) -> list[Token]:
    """Returns tokens in which `window` is a name, but for the clause `WINDOW name AS (...)`."""
    converted = [*tokens]
    for place, token in enumerate(tokens):
        after = [of.token_type for of in tokens[place + 1 : place + 3]]
        if token.token_type == TokenType.WINDOW and after[1:] != [TokenType.ALIAS]:
            converted[place] = Token(
                TokenType.VAR, token.text, token.line, token.col, token.start, token.end, [*token.comments]
            )
    return converted


def as_arithmetic(tree: exp.Expr) -> None:
    """Writes windows of time as arithmetic, in place.

    Raises:
        SqlTextError: a SELECT has two of them, or one whose arguments are no spans of time.
    """
    for select in [*tree.find_all(exp.Select)]:
        calls = [window for window in own(select, exp.Anonymous) if window.name.lower() == _WINDOW]
        for other in calls[1:]:
            if other != calls[0]:
                not_taken(other, "a second window() in one SELECT; write one of them in a subquery")
        if calls:
            _write(select, calls)


def _write(select: exp.Select, calls: Sequence[exp.Expr]) -> None:
    time, length, slide, offset = _arguments(calls[0])
    since = call("pmod", exp.Sub(this=_micros_of(time), expression=_number(micros(offset))), _number(micros(slide)))
    start = _moved(time, exp.Neg(this=since))
    conditions: list[exp.Expr] = [exp.Not(this=exp.Is(this=_in_parentheses(time), expression=exp.Null()))]
    if length != slide:
        starts = [_moved(start, _number(-number * micros(slide))) for number in range(-(-length // slide))]
        made = named(_START).update_positions(max(select.find_all(exp.Identifier), key=_place))  # after all joins
        alias = exp.TableAlias(this=named(_WINDOW), columns=[made])
        rows = exp.Explode(this=exp.Array(expressions=starts))
        select.append("laterals", exp.Lateral(this=rows, view=True, outer=False, alias=alias))
        start = column_of(_WINDOW, _START)
    end = _moved(start, _number(micros(length)))
    if length % slide:
        conditions.append(exp.LT(this=_in_parentheses(time), expression=end.copy()))
    whole = call("named_struct", exp.Literal.string(_START), start, exp.Literal.string(_END), end)
    _replace_fields(select, {_START: start, _END: end}, whole)
    for window in calls:
        if isinstance(window.parent, exp.Group):
            window.replace(start.copy())
        elif isinstance(window.parent, exp.Dot):
            window.parent.replace(_field(window.parent, {_START: start, _END: end}))
        else:
            window.replace(aliased(whole.copy(), _WINDOW) if window.parent is select else whole.copy())
    select.where(*conditions, copy=False)


def _arguments(given: exp.Expr) -> tuple[exp.Expr, timedelta, timedelta, timedelta]:
    """Returns the time of a row, how long a window is, how long after one the next begins, and where the first does."""
    shown = "window(t, '1 hour'), window(t, '1 hour', '15 minutes') or window(t, '1 day', '1 day', '6 hours')"
    if not given.expressions or not all(argument.is_string for argument in given.expressions[1:]):
        not_taken(given, f"window() takes a time, and then spans of time as text; write {shown}")
    try:
        spans = [span(argument.name) for argument in given.expressions[1:]]
    except ValueError as error:
        not_taken(given, f"window(): {error}")
    match spans:
        case [length]:
            slide, offset = length, _ZERO
        case [length, slide]:
            offset = _ZERO
        case [length, slide, offset]:
            pass
        case _:
            not_taken(given, f"window() takes a time and one to three spans; write {shown}")
    if not slide or not slide <= length <= _MOST * slide or offset >= slide:
        not_taken(
            given,
            "window(): a window is as long as what is between the beginnings of two, or up to "
            f"{_MOST:,} times as long, and begins less than that after a full one",
        )
    return given.expressions[0], length, slide, offset


def _replace_fields(select: exp.Select, fields: dict[str, exp.Expr], whole: exp.Expr) -> None:
    """Replaces `window`, `window.start` and `window.end` where no table of the SELECT has the name."""
    if _WINDOW in {source.alias_or_name.lower() for source in sources_of(select)}:
        return
    for column in own(select, exp.Column):
        assert isinstance(column, exp.Column)
        parts = [part.name.lower() for part in column.parts]
        if parts == [_WINDOW]:
            in_select = column.parent is select
            value = fields[_START] if isinstance(column.parent, exp.Group) else whole
            column.replace(aliased(value.copy(), _WINDOW) if in_select else value.copy())
        elif parts[:1] == [_WINDOW] and parts[1:] in ([_START], [_END]):
            value = fields[parts[1]].copy()
            column.replace(aliased(value, column.name) if column.parent is select else value)


def _field(dot: exp.Expr, fields: dict[str, exp.Expr]) -> exp.Expr:
    name = dot.expression.name
    if name.lower() not in fields:
        not_taken(dot, f"a window of time has the fields start and end, and no {name}")
    value = fields[name.lower()].copy()
    return aliased(value, name) if isinstance(dot.parent, exp.Select) else value


def _place(name: exp.Identifier) -> int:
    return int(name.meta.get("start", 0))


def _in_parentheses(value: exp.Expr) -> exp.Expr:
    return value.copy() if isinstance(value, (exp.Column, exp.Paren)) else exp.Paren(this=value.copy())


def _micros_of(time: exp.Expr) -> exp.Expr:
    return call("unix_micros", exp.cast(time.copy(), "TIMESTAMP"))


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _moved(time: exp.Expr, by: exp.Expr) -> exp.Expr:
    """Returns a time that is so many microseconds later; of the type that Spark's `window` has for it."""
    return call("timestampadd", exp.Var(this="MICROSECOND"), by, time.copy())
