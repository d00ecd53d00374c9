"""Names: which column names SQL accepts without backticks, and the table name that a file name contains."""

from __future__ import annotations

import re
from pathlib import Path

from fk_pipeline.cdc.endings import ENDINGS, JSON_LINES
from fk_pipeline.spec.sql import SqlTextError, parse_columns, parse_expression

ENDINGS_READ = tuple(f"{e}{gz}" for e in (*JSON_LINES, ".csv", ".tsv") for gz in (".gz", "")) + ENDINGS["parquet"]
"""The endings of the files that can be a sample."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS_OF_SQL = """
    all and anti any as both case cast check collate column constraint create cross distinct else end except false
    fetch filter for foreign from full grant group having in inner intersect into is join lateral leading like natural
    not null on only or order outer overlaps primary references right select semi set some table then to trailing true
    union unique unknown user using values when where with within
"""
_RESERVED = frozenset(_WORDS_OF_SQL.split())
"""Words that a dialect of SQL reserves, whether or not the parser used here accepts them."""


def may_be_bare(name: str) -> bool:
    """Returns whether SQL accepts a column name without backticks: not `order`, `from`, `true` or `current_date`."""
    if not _PLAIN.fullmatch(name) or name.lower() in _RESERVED:
        return False
    try:
        read = parse_expression(name)
        return parse_columns(f"{name} INT")[0].name == name and read.plain and read.reads == ((name,),)
    except SqlTextError:
        return False


_SAY_NO_TABLE = frozenset(
    {"part", "batch", "load", "data", "snappy", "changes", "cdc", "c", "b", "export", "dump", "extract", "snapshot"}
    | {"sample", "file", "full", "new"}
)
"""Words in the names of files that are not the name of a table."""


def words_of(name: str) -> tuple[str, ...]:
    """Returns the words of a name, in lower case: `order`, `id` of `order_id`, `OrderID`, `orderId` and `Order-ID`."""
    parted = re.sub(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return tuple(word.lower() for word in re.split(r"[\W_]+", parted) if word)


def table_of(file: Path) -> str:
    """Returns the name of the table of a file: from the name of the file, else the name of its folder.

    It is `orders` for `orders-17.jsonl`, for `shop.public.orders+0+42.json`, and for `orders/00000017.jsonl`.
    """
    stem = next((file.name.removesuffix(end) for end in ENDINGS_READ if file.name.endswith(end)), file.name)
    words = re.findall(r"[A-Za-z](?:[A-Za-z_]*[A-Za-z])?", stem.split("+")[0].rsplit(".", 1)[-1])
    named = next((word for word in words if word.lower() not in _SAY_NO_TABLE), None)
    return named or file.absolute().parent.name


def singular(table: str) -> str:
    """Returns the singular of a table name, such as `order` for `orders`, if the name follows a rule."""
    name = table.lower()
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("xes", "x"), ("s", "")):
        if name.endswith(ending) and not name.endswith("ss"):
            return name.removesuffix(ending) + instead
    return name


def names_table(word: str, table: str) -> bool:
    """Returns whether a word is the singular of a table's name, or of its last words: `customer` of `dim_customers`."""
    words = words_of(table.rsplit(".", 1)[-1])
    return any(is_singular_of(word, "".join(words[first:])) for first in range(len(words)))


def is_singular_of(word: str, name: str) -> bool:
    """Returns whether a word is the singular of a name, or the name itself: `movie` of `movies`, `city` of `cities`."""
    return word in (name, singular(name)) or name in (f"{word}s", f"{word}es")
