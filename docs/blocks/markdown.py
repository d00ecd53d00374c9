"""Tables and texts of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a `|` in a cell is escaped."""
    first, *others = (f"| {' | '.join(map(_cell, line))} |".replace("|  |", "| |") for line in (heads, *rows))
    return "\n".join([first, f"|{'---|' * len(heads)}", *others])


def items(texts: Iterable[str]) -> str:
    """A list, one text per item."""
    return "\n".join(f"* {text}" for text in texts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """A text as code."""
    return f"`{text}`"


def one_of(words: Iterable[object]) -> str:
    """Words as code, the last behind an `or`."""
    *first, last = [code(word) for word in words]
    return f"{', '.join(first)} or {last}" if first else last


NAMES = ("Dagster", "Great Expectations", "Java", "SQL", "Spark")
"""Words that begin with a capital letter within a sentence too."""


def cell(text: str) -> str:
    """The text of a docstring as one line of a table: without the full stop at its end, its first letter small."""
    line = " ".join(text.split()).removesuffix(".")
    return line if line.startswith(NAMES) else line[:1].lower() + line[1:]


def first_paragraph(docstring: str) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join(docstring.strip().split("\n\n")[0].split())
