"""Our SQL as Sail has to be told it: calls that it answers otherwise than Spark are written in another way.

Spark is told the SQL as it stands in the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from fk_pipeline.environment.sail import is_sail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Call = Callable[[str], str]
"""What stands in the place of a call, from what is between its parentheses."""

_PART = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|\w*\(|\w+|.""", re.DOTALL)
"""Quoted text, the beginning of a call or a parenthesis, a word, or one other letter."""

_OPENS = re.compile(r"\w*\(")


def for_engine(session: SparkSession, sql: str) -> str:
    """SQL of ours for the engine of a session."""
    return rewritten(sql, CALLS) if is_sail(session) else sql


def rewritten(sql: str, calls: Mapping[str, Call]) -> str:
    """SQL in which other text stands for the calls of some functions, the inner ones first; quoted text stays.

    Args:
        sql: the SQL.
        calls: by name of a function, as the SQL has it.
    """
    return _inside(iter(_PART.findall(sql)), calls)


def _inside(parts: Iterator[str], calls: Mapping[str, Call]) -> str:
    """What comes before the parenthesis that closes."""
    said = []
    for part in parts:
        if part == ")":
            break
        if _OPENS.fullmatch(part):
            inner, call = _inside(parts, calls), calls.get(part[:-1])
            said.append(f"{part}{inner})" if call is None else call(inner))
        else:
            said.append(part)
    return "".join(said)


def arguments(inner: str) -> list[str]:
    """The arguments of a call, from what is between its parentheses."""
    found, depth = [""], 0
    for part in _PART.findall(inner):
        if part == "," and not depth:
            found.append("")
            continue
        depth += 1 if _OPENS.fullmatch(part) else -1 if part == ")" else 0
        found[-1] += part
    return [one.strip() for one in found]


def _md5(inner: str) -> str:
    """Sail keeps what its function gives in another form."""
    return f"CAST(MD5({inner}) AS STRING)"


def _xxhash64(inner: str) -> str:
    """Sail hashes every NaN by its own bits."""
    is_double = inner.startswith("CAST(") and inner.endswith(" AS DOUBLE)")
    return f"XXHASH64(NANVL({inner}, DOUBLE('NaN')))" if is_double else f"XXHASH64({inner})"


def _try_cast(inner: str) -> str:
    """Sail takes two texts for truth values that Spark does not."""
    value = inner.removesuffix(" AS BOOLEAN")
    cast = f"TRY_CAST({inner})"
    return cast if value == inner else f"IF(LOWER(TRIM({value})) IN ('on', 'off'), NULL, {cast})"


CALLS: Mapping[str, Call] = {"MD5": _md5, "XXHASH64": _xxhash64, "TRY_CAST": _try_cast}
"""By name the functions that Sail answers otherwise."""
