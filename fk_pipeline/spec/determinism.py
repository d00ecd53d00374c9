"""Finds SQL expressions that return another value when they are computed again; a pipeline file may not have them.

There are two kinds. First, functions whose result does not depend on the row alone, such as `rand()` or
`session_user()`. Spark's own flag does not mark the latter, so they are listed here, and
`tests/engine/test_determinism.py` compares the list with the functions of the session. Second, texts that Spark reads
as a day or moment, such as `'today'`, where a constant text becomes a date or timestamp: by a cast in the expression or
by one that Spark adds (rule `SpecialDatetimeValues`, Spark 4.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sqlglot import exp

TypeOf = Callable[[tuple[str, ...]], str | None]
"""Function from the path of a column to its declared type; None if the type is not known."""

_NOT_OF_THE_ROW = {
    "aes_encrypt", "collations", "curdate", "input_file_block_length", "input_file_block_start", "input_file_name",
    "java_method", "localtimestamp", "monotonically_increasing_id", "now", "python_worker_logs", "rand", "randn",
    "random", "randstr", "reflect", "session_user", "shuffle", "spark_partition_id", "sql_keywords", "try_reflect",
    "uniform", "user", "uuid", "version",
}  # fmt: skip
"""Functions whose result does not depend on the row alone; so do all functions that start with `current_`."""

_OF_THE_CLOCK = {"curdate", "current_date", "current_time", "current_timestamp", "localtimestamp", "now"}
"""The functions among them that are the current time, or day."""

_BY_ITS_TEXT = {"identifier"}
"""Functions that name a function or a column by a computed text."""

_MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)([ \t]*[^A-Za-z\s]\S*|[ \t]+\S+)?\s*", re.IGNORECASE)
"""Texts that Spark reads as a moment, with or without a time zone; `epoch` is always the same one."""

_TEXTS = (exp.Literal, exp.RawString, exp.National, exp.UnicodeString)
_MADE_OF_TEXTS = {
    "btrim", "chr", "collate", "concat", "concat_ws", "decode", "format_string", "initcap", "left", "lower", "lpad",
    "ltrim", "overlay", "pad", "printf", "regexp_extract", "regexp_replace", "regexp_substr", "repeat", "replace",
    "reverse", "right", "rpad", "rtrim", "space", "split_part", "string", "substr", "substring", "substring_index",
    "translate", "trim", "unicode", "upper", "url_decode",
}  # fmt: skip
"""Functions that return a text and take texts as texts, without a cast to a date or timestamp."""

_TAKE_TEXTS = _MADE_OF_TEXTS | {
    "array_join", "contains", "ends_with", "endswith", "find_in_set", "from_json", "get_json_object", "instr",
    "json_extract_scalar", "length", "levenshtein", "locate", "md5", "position", "regexp_count", "regexp_extract_all",
    "regexp_instr", "regexp_like", "regexp_split", "schema_of_json", "sha2", "split", "starts_with", "startswith",
    "str_position",
}  # fmt: skip
_COMPARE = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)
_CHOOSE = (exp.Case, exp.Coalesce, exp.If, exp.Nullif)
_PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike, exp.Bracket, exp.DPipe, exp.Alias)


def function_of(node: exp.Expr) -> str:
    """Returns the name of the function that a node calls, in lower case; empty if it calls none."""
    if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)):
        return node.name.lower()
    name = getattr(node, "sql_name", None)  # only function nodes have one
    return str(name()).lower() if callable(name) else ""


def is_not_of_the_row(node: exp.Expr) -> bool:
    """Returns whether the value of a node depends on when, where or by whom it is computed, for the same row."""
    name = function_of(node)
    if name == "aes_encrypt":  # by default it uses a random initialisation vector
        return len(node.expressions) < 5 and not _is_ecb(node.expressions[2:3])
    return name in _NOT_OF_THE_ROW or name in _BY_ITS_TEXT or name.startswith("current_") or knows_the_time(node)


def knows_the_time(node: exp.Expr) -> bool:
    """Returns whether a node is the current time, or day."""
    name = function_of(node)
    is_now = isinstance(node, exp.StrToUnix) and node.this is None  # unix_timestamp() alone is the current time
    is_now |= isinstance(node, exp.Anonymous) and name == "unix_timestamp" and not node.expressions
    return name in _OF_THE_CLOCK or is_now


def _is_ecb(mode: list[exp.Expr]) -> bool:
    return bool(mode) and isinstance(mode[0], exp.Literal) and mode[0].name.upper() == "ECB"


def moment_in(tree: exp.Expr, type_of: TypeOf) -> str | None:
    """Returns the first constant text that Spark may read as a relative day or moment; None if there is none.

    Args:
        tree: an expression.
        type_of: returns the types of columns, so that a word that is compared with texts counts as a text.
    """
    for node in tree.walk():
        if _is_moment(node) and not _stays_text(node, type_of):
            return node.sql(dialect="spark")
    return None


def _is_moment(node: exp.Expr) -> bool:
    """Returns whether a node is such a literal, or a text computed from literals alone, of unknown value."""
    if isinstance(node, _TEXTS):
        is_text = not isinstance(node, exp.Literal) or node.is_string
        return is_text and bool(_MOMENT.fullmatch(node.name))
    if not isinstance(node, exp.DPipe) and function_of(node) not in _MADE_OF_TEXTS:
        return False
    return node.find(exp.Column) is None and node.find(*_TEXTS) is not None


def _stays_text(node: exp.Expr, type_of: TypeOf) -> bool:
    """Returns whether a constant text is used as a text at its place."""
    above = node.parent
    while isinstance(above, exp.Paren):
        node, above = above, above.parent
    if above is None or isinstance(above, (exp.Select, *_PATTERNS)) or function_of(above) in _TAKE_TEXTS:
        return True
    if isinstance(above, exp.Cast):
        return bool(above.to.this in exp.DataType.TEXT_TYPES)
    if isinstance(above, _COMPARE):
        return _are_texts(above.iter_expressions(), type_of)
    if isinstance(above, exp.If) and isinstance(above.parent, exp.Case):
        case = above.parent
        if node is above.this:  # CASE ... WHEN 'today'
            return case.this is not None and _is_text(case.this, type_of)
        above = case
    # Other nodes that return one of several values are texts if all these values are.
    return isinstance(above, _CHOOSE) and _are_texts(_values(above), type_of) and _stays_text(above, type_of)


def _values(node: exp.Expr) -> Iterable[exp.Expr | None]:
    """Returns the values that a node chooses from."""
    if isinstance(node, exp.Case):
        return [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
    return [node.args["true"], node.args.get("false")] if isinstance(node, exp.If) else node.iter_expressions()


def _are_texts(nodes: Iterable[exp.Expr | None], type_of: TypeOf) -> bool:
    return all(node is None or _is_text(node, type_of) for node in nodes)


def _is_text(node: exp.Expr, type_of: TypeOf) -> bool:
    """Returns whether a node is known to be of type STRING, or null."""
    if isinstance(node, exp.Paren):
        return _is_text(node.this, type_of)
    if isinstance(node, _CHOOSE):
        return _are_texts(_values(node), type_of)
    if isinstance(node, exp.Column):
        dtype = type_of(tuple(part.name for part in node.parts)) or ""
        return dtype.upper().startswith(("STRING", "VARCHAR", "CHAR"))
    if isinstance(node, exp.Cast):
        return bool(node.to.this in exp.DataType.TEXT_TYPES)
    is_text = isinstance(node, (exp.DPipe, exp.Null, *_TEXTS)) or function_of(node) in _MADE_OF_TEXTS
    return is_text and not (isinstance(node, exp.Literal) and not node.is_string)
