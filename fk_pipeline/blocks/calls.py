"""The calls of functions in a SQL text, as it is written: the text of each argument can be used alone. No Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType

from fk_pipeline.spec.sql import DIALECT

_OPENS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSES = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_ORDERED = {"asc", "desc", "nulls", "first", "last"}


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        name: of the function, in lower case.
        arguments: the texts of the arguments, without DISTINCT.
        ordered_by: the text of WITHIN GROUP (ORDER BY ...), without the direction; None without one.
        where: the text of FILTER (WHERE ...); None without one.
        whole: the text of the call, FILTER included.
        within: the call of which it is an argument or a part of one; None if it is in no other.
    """

    name: str
    arguments: tuple[str, ...]
    ordered_by: str | None
    where: str | None
    whole: str
    within: Call | None


def calls_in(text: str) -> list[Call]:
    """Returns the calls in a text that Spark's parser accepts, each after the one that it is in."""
    tokens = sqlglot.tokenize(text, dialect=DIALECT)
    closes, opened = dict[int, int](), list[int]()
    for i, token in enumerate(tokens):
        if token.token_type in _OPENS:
            opened.append(i)
        elif token.token_type in _CLOSES and opened:
            closes[opened.pop()] = i
    calls: list[tuple[int, int, Call]] = []
    for i, token in enumerate(tokens[:-1]):
        if i + 1 not in closes or tokens[i + 1].token_type is not TokenType.L_PAREN or not token.text.isidentifier():
            continue
        if token.token_type in (TokenType.FILTER, TokenType.WHERE) or _is_group(tokens, i):
            continue
        within = next((call for first, last, call in reversed(calls) if first < i < last), None)
        call, last = _call(text, tokens, closes, i, within)
        calls.append((i, last, call))
    return [call for _, _, call in calls]


def _call(text: str, tokens: Sequence[Token], closes: dict[int, int], i: int, within: Call | None) -> tuple[Call, int]:
    """Returns the call whose name is a token, and its last token."""
    last = closes[i + 1]
    arguments = tuple(_slice(text, tokens, first, end) for first, end in _parts(tokens, closes, i + 2, last))
    ordered_by = where = None
    if _is_group(tokens, last + 2) and last + 3 in closes:
        end = closes[last + 3]
        stop = next((j for j in range(last + 5, end) if tokens[j].text.lower() in _ORDERED), end)
        ordered_by, last = _slice(text, tokens, last + 5, stop), end
    if last + 2 in closes and tokens[last + 1].token_type is TokenType.FILTER:
        end = closes[last + 2]
        where, last = _slice(text, tokens, last + 4, end), end
    return Call(tokens[i].text.lower(), arguments, ordered_by, where, _slice(text, tokens, i, last + 1), within), last


def _is_group(tokens: Sequence[Token], i: int) -> bool:
    """Returns whether a token is the second of WITHIN GROUP."""
    return 0 < i < len(tokens) and [token.text.lower() for token in tokens[i - 1 : i + 1]] == ["within", "group"]


def _parts(tokens: Sequence[Token], closes: dict[int, int], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the first token of each part between commas, and the one after its last."""
    start = i = first + (first < end and tokens[first].token_type is TokenType.DISTINCT)
    while i < end:
        if tokens[i].token_type is TokenType.COMMA:
            yield start, i
            start = i + 1
        i = closes.get(i, i) + 1
    if start < end:
        yield start, end


def _slice(text: str, tokens: Sequence[Token], first: int, end: int) -> str:
    return text[tokens[first].start : tokens[end - 1].end + 1] if first < end else ""
