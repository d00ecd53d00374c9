"""Parses a query so that the text made of it calls the functions that were written. No Spark.

sqlglot knows what many functions of all dialects mean, and writes some of them as others: `log10(x)` as `LOG(10, x)`,
which has other last digits, `to_char(n, '99')` as a cast. Here a function is known only if it is written back as it
was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, UnsupportedError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from fk_pipeline.blocks.aggregates import DEPENDING, EXACT
from fk_pipeline.blocks.select.time_windows import as_arithmetic, as_function
from fk_pipeline.blocks.select.trees import split_fields
from fk_pipeline.spec.sql import DIALECT, bind_lambdas, tokens_of

_KNOWN_AGGREGATES = frozenset({"AVG", "COUNT", "MAX", "MIN", "SUM"})
"""Aggregates with a class of node of their own; of any other only the name is known."""

_OWN_SYNTAX = {"CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING", "TRIM", "TRY_CAST"}
"""Functions of Spark with words among their arguments."""

_NO_WORDS = {"ANY", "CONNECT_BY_ROOT"}
"""Functions of Spark, or of none, that sqlglot takes for words of SQL."""

_WITH_UNIT, _ARGUMENTS_WITH_UNIT = {"DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "TIMESTAMPADD", "TIMESTAMPDIFF"}, 3
"""Functions whose first of three arguments is a word: DAY, HOUR."""

_OTHER_ARGUMENTS = (AttributeError, LookupError, TypeError, ValueError)
"""How sqlglot fails on fewer arguments than it knows of."""

_STRUCT = "STRUCT"
"""The function whose arguments may have names."""


def _builder(name: str, build: Callable[..., exp.Expr]) -> Callable[..., exp.Expr]:
    """Returns what makes a node of a call: sqlglot's, if it is written as it was; else one with a name only."""

    def made(given: Sequence[exp.Expr]) -> exp.Expr:
        plain = exp.Anonymous(this=name, expressions=[argument.copy() for argument in given])
        node = _built(build, given)
        if isinstance(node, exp.AggFunc) and name not in _KNOWN_AGGREGATES:
            return _aggregate(name)(given)
        if node is not None and _sql(node) == _sql(plain):
            return node
        if name in _WITH_UNIT and len(given) == _ARGUMENTS_WITH_UNIT and isinstance(given[0], exp.Column):
            plain.expressions[0].replace(exp.Var(this=given[0].name))
        return plain

    return made


def _built(build: Callable[..., exp.Expr], given: Sequence[exp.Expr]) -> exp.Expr | None:
    """Returns what sqlglot makes of a call; None if it takes other arguments."""
    for more in ({}, {"dialect": Spark()}):  # some ask for the dialect
        try:
            return build([argument.copy() for argument in given], **more)
        except _OTHER_ARGUMENTS:
            continue
    return None


def _sql(node: exp.Expr) -> str | None:
    """Returns the SQL of a node; None if there is none of Spark's."""
    try:
        text: str = node.sql(dialect=DIALECT, unsupported_level=ErrorLevel.RAISE)
    except (UnsupportedError, *_OTHER_ARGUMENTS):
        return None
    return text


def _aggregate(name: str) -> Callable[..., exp.Expr]:
    return lambda given: exp.AnonymousAggFunc(this=name, expressions=[*given])


class _AsWritten(SparkParser):
    """Spark's parser, without what it would make of functions."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: _builder(name, build) for name, build in SparkParser.FUNCTIONS.items() if name not in _OWN_SYNTAX},
        **{
            name: _aggregate(name)
            for name in {function.upper() for function in (*EXACT, *DEPENDING)} - _KNOWN_AGGREGATES
        },
        _STRUCT: SparkParser.FUNCTIONS[_STRUCT],
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name in _OWN_SYNTAX
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parse for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name not in _NO_WORDS
    }


def parse_as_known(text: str) -> exp.Query:
    """Returns a query with all that sqlglot makes of its functions: enough to tell what they take and return."""
    [tree] = [statement for statement in Spark().parser().parse(_tokens(text), text) if statement is not None]
    assert isinstance(tree, exp.Query)
    bind_lambdas(tree)
    as_arithmetic(tree)
    return tree


def parse_as_written(text: str) -> list[Any]:
    """Returns the statements of a text, whose functions are those that are written; None for an empty one.

    Raises:
        SqlglotError: it is no SQL.
        SqlTextError: it has a window of time that is none.
    """
    statements = _AsWritten(dialect=DIALECT).parse(_tokens(text), text)
    for tree in statements:
        if tree is not None:
            bind_lambdas(tree)
            as_arithmetic(tree)
            _keep_precedence(tree)
    return [*statements]


def _keep_precedence(tree: exp.Expr) -> None:
    """Writes parentheses where sqlglot leaves them out, and binds as Spark does.

    `a - INTERVAL 1 DAY 2 HOURS` takes the sum of two intervals off, and a shift binds more closely than `&`, `^`, `|`.
    """
    for node in [*tree.find_all(exp.Sub)]:
        if isinstance(node.expression, (exp.Add, exp.Sub)):
            node.expression.replace(exp.Paren(this=node.expression.copy()))
    for shift in reversed([*tree.find_all(exp.BitwiseLeftShift, exp.BitwiseRightShift)]):  # inner ones first
        if isinstance(shift.this, (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)):
            above = shift.this
            moved = type(shift)(this=above.expression.copy(), expression=shift.expression.copy())
            shift.replace(type(above)(this=above.this.copy(), expression=moved))


def expression_as_written(sql: str) -> exp.Expr:
    """Returns an expression whose functions are those that are written."""
    [tree] = parse_as_written(f"SELECT {sql}")
    value: exp.Expr = tree.selects[0].pop()
    return value


def expression_over(sql: str, tables: Collection[str]) -> exp.Expr:
    """Returns an expression over tables with some names, whose functions are those that are written.

    A column has its table, if that is written, and is the first name behind it: the others are fields of a struct.
    """
    root = exp.Paren(this=expression_as_written(sql))
    split_fields(root, tables)
    value: exp.Expr = root.this
    return value


def is_written_back(sql: str) -> bool:
    """Returns whether the text that is made of an expression has the words and signs that were written, in any case."""
    return _words(sql) == _words(expression_as_written(sql).sql(DIALECT))


def _words(sql: str) -> list[str]:
    words = ((token, sql[token.start : token.end + 1]) for token in Spark().tokenize(sql))
    return [raw if token.token_type == TokenType.STRING else raw.strip("`").upper() for token, raw in words]


def _tokens(text: str) -> list[Token]:
    return as_function(_with_quotes(tokens_of(text), text))


def _with_quotes(tokens: Sequence[Token], text: str) -> list[Token]:
    """Returns tokens in which a quote that is written twice is a part of the string: sqlglot reads two strings."""
    merged: list[Token] = []
    for token in tokens:
        last = merged[-1] if merged else None
        is_more = last is not None and last.token_type == token.token_type == TokenType.STRING
        if is_more and last is not None and last.end + 1 == token.start and text[last.end] == text[token.start]:
            both = f"{last.text}{text[token.start]}{token.text}"
            merged[-1] = Token(TokenType.STRING, both, last.line, last.col, last.start, token.end)
        else:
            merged.append(token)
    return merged
