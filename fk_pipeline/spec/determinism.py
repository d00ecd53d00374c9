"""Which SQL expressions give another value when they are computed again: they are refused in a pipeline file.

Two kinds. A function whose result is not a function of the row, such as `rand()` or `session_user()`: Spark's own flag
does not tell the second, so they are listed, and `tests/stages/test_determinism.py` compares the list with the
functions of the session. And a text that Spark reads as a day or moment, such as `'today'`: where a constant text
becomes a date or timestamp, by a cast that is written or one that Spark adds (rule `SpecialDatetimeValues`, Spark 4.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sqlglot import exp

TypeOf = Callable[[tuple[str, ...]], str | None]
"""The declared type of the column that a path means; None where that is not known."""

_NOT_OF_THE_ROW = {
    "aes_encrypt", "collations", "curdate", "input_file_block_length", "input_file_block_start", "input_file_name",
    "java_method", "localtimestamp", "monotonically_increasing_id", "now", "python_worker_logs", "rand", "randn",
    "random", "randstr", "reflect", "session_user", "shuffle", "spark_partition_id", "sql_keywords", "try_reflect",
    "uniform", "user", "uuid", "version",
}  # fmt: skip
"""So is everything that starts with `current_`."""

_BY_ITS_TEXT = {"identifier"}
"""What names a function or a column by a text that is computed."""

_MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)([ \t]*[^A-Za-z\s]\S*|[ \t]+\S+)?\s*", re.IGNORECASE)
"""Texts that Spark reads as a moment, with or without a time zone; `epoch` is always the same one."""

_TEXTS = (exp.Literal, exp.RawString, exp.National, exp.UnicodeString)
_MADE_OF_TEXTS = {
    "btrim", "chr", "collate", "concat", "concat_ws", "decode", "format_string", "initcap", "left", "lower", "lpad",
    "ltrim", "overlay", "pad", "printf", "regexp_extract", "regexp_replace", "regexp_substr", "repeat", "replace",
    "reverse", "right", "rpad", "rtrim", "space", "split_part", "string", "substr", "substring", "substring_index",
    "translate", "trim", "unicode", "upper", "url_decode",
}  # fmt: skip
"""Functions that make a text of texts, which stay as they are."""

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
    """The name of the function that a node calls, in lower case; empty when it calls none."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    name = getattr(node, "sql_name", None)  # only function nodes have one
    return str(name()).lower() if callable(name) else ""


def is_not_of_the_row(node: exp.Expr) -> bool:
    """Whether the value of a node depends on when, where or by whom it is computed, whatever the row."""
    name = function_of(node)
    if name == "aes_encrypt":  # by itself it takes a random initialisation vector
        return len(node.expressions) < 5 and not _is_ecb(node.expressions[2:3])
    clock = isinstance(node, exp.StrToUnix) and node.this is None  # unix_timestamp() of nothing is now
    return name in _NOT_OF_THE_ROW or name in _BY_ITS_TEXT or name.startswith("current_") or clock


def _is_ecb(mode: list[exp.Expr]) -> bool:
    return bool(mode) and isinstance(mode[0], exp.Literal) and mode[0].name.upper() == "ECB"


def moment_in(tree: exp.Expr, type_of: TypeOf) -> str | None:
    """The first constant text that Spark may read as a day or moment that passes; None when there is none.

    Args:
        tree: an expression.
        type_of: knows the columns, so that a word that is compared with texts is taken for one.
    """
    for node in tree.walk():
        if _is_moment(node) and not _stays_text(node, type_of):
            return node.sql(dialect="spark")
    return None


def _is_moment(node: exp.Expr) -> bool:
    """A literal of that kind, or a text that is computed from literals alone: what it is nobody looks up here."""
    if isinstance(node, _TEXTS):
        is_text = not isinstance(node, exp.Literal) or node.is_string
        return is_text and bool(_MOMENT.fullmatch(node.name))
    if not isinstance(node, exp.DPipe) and function_of(node) not in _MADE_OF_TEXTS:
        return False
    return node.find(exp.Column) is None and node.find(*_TEXTS) is not None


def _stays_text(node: exp.Expr, type_of: TypeOf) -> bool:
    """Whether a constant text is used as a text where it stands."""
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
    # What else gives one of several values is a text where all are.
    return isinstance(above, _CHOOSE) and _are_texts(_values(above), type_of) and _stays_text(above, type_of)


def _values(node: exp.Expr) -> Iterable[exp.Expr | None]:
    """What a node chooses from."""
    if isinstance(node, exp.Case):
        return [*(one.args["true"] for one in node.args["ifs"]), node.args.get("default")]
    return [node.args["true"], node.args.get("false")] if isinstance(node, exp.If) else node.iter_expressions()


def _are_texts(nodes: Iterable[exp.Expr | None], type_of: TypeOf) -> bool:
    return all(one is None or _is_text(one, type_of) for one in nodes)


def _is_text(node: exp.Expr, type_of: TypeOf) -> bool:
    """Whether it is known that a node is of type STRING, or null."""
    if isinstance(node, exp.Paren):
        return _is_text(node.this, type_of)
    if isinstance(node, _CHOOSE):
        return _are_texts(_values(node), type_of)
    if isinstance(node, exp.Column):
        kind = type_of(tuple(part.name for part in node.parts)) or ""
        return kind.upper().startswith(("STRING", "VARCHAR", "CHAR"))
    if isinstance(node, exp.Cast):
        return bool(node.to.this in exp.DataType.TEXT_TYPES)
    is_text = isinstance(node, (exp.DPipe, exp.Null, *_TEXTS)) or function_of(node) in _MADE_OF_TEXTS
    return is_text and not (isinstance(node, exp.Literal) and not node.is_string)
