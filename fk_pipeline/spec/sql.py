"""Parses the SQL inside a pipeline file without a Spark session: column lists (DDL) and expressions.

Expressions stay text and are evaluated by Spark; here they are only parsed, to find the columns that they read, the
name of their result, and whether they are deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from fk_pipeline.spec.column_types import wrong_column, wrong_type
from fk_pipeline.spec.determinism import TypeOf, function_of, is_not_of_the_row, moment_in

DIALECT = "spark"
FORBIDDEN_IN_NAMES = set(" ,;{}()\n\t=")
"""Characters that Delta refuses in a column name without column mapping."""

KEY_TYPES_REFUSED = {"ARRAY", "MAP", "STRUCT", "VARIANT", "INTERVAL", "OBJECT"}
TYPES_REFUSED = {"VARIANT", "INTERVAL", "OBJECT", "VOID", "NULL", "USERDEFINED", "UNKNOWN"}
SYNONYMS = {"LONG": "BIGINT", "SHORT": "SMALLINT", "BYTE": "TINYINT"}

GENERATORS = {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack"}
"""Functions of Spark that make several rows of one."""


WHOLE_TIMES = (
    "'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX', 'timestampNTZFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS'"
)
"""SQL: options of `TO_JSON`, which otherwise cuts times to milliseconds."""

_NO_ZONE = ["TIMESTAMP", "WITHOUT", "TIME", "ZONE"]
"""What SQL calls TIMESTAMP_NTZ; sqlglot skips the last three words."""

_WOULD_CHANGE = "a row computed again would change"
_OF_THE_ROW = "read a column of the source in its place, a time of change for example"


class SqlTextError(ValueError):
    """The text is not SQL that can be used at this place."""


@dataclass(frozen=True)
class Column:
    """A declared source column: its name and its Spark type, in DDL."""

    name: str
    type: str

    @property
    def quoted(self) -> str:
        """The name in backticks, for SQL."""
        return quote(self.name)


@dataclass(frozen=True)
class Expression:
    """A SQL expression as written, the name of its result and the column paths that it reads."""

    text: str
    name: str | None
    reads: tuple[tuple[str, ...], ...]
    plain: bool
    """It is nothing but one column."""


INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
"""Types of whole numbers, as parsed columns have them."""


def quote(name: str) -> str:
    """Returns a column name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """Returns a SQL string literal. Dollars are escaped, or Spark would replace `${...}` by variables."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


def key_as_json(columns: Iterable[tuple[str, str]]) -> str:
    """SQL (STRING, never null): a key as a JSON object with the nulls and whole times of its columns.

    Args:
        columns: per column its SQL and its name.
    """
    fields = ", ".join(f"{sql} AS {quote(name)}" for sql, name in columns)
    return f"TO_JSON(STRUCT({fields}), MAP('ignoreNullFields', 'false', {WHOLE_TIMES}))"


def tokens_of(text: str) -> list[Token]:
    """Returns the tokens of a text for Spark, in which TIMESTAMP WITHOUT TIME ZONE is TIMESTAMP_NTZ.

    Raises:
        SqlglotError: it is no SQL.
    """
    tokens = [*Spark().tokenize(text)]
    for place in reversed(range(len(tokens))):
        first, last = tokens[place], tokens[min(place + 3, len(tokens) - 1)]
        if [token.text.upper() for token in tokens[place : place + 4]] == _NO_ZONE:
            made = Token(TokenType.TIMESTAMPNTZ, "TIMESTAMP_NTZ", first.line, first.col, first.start, last.end)
            tokens[place : place + 4] = [made]
    return tokens


def bind_lambdas(tree: exp.Expr) -> None:
    """Makes names in lambda functions the parameters that Spark takes them for, whatever their case, in place.

    sqlglot takes a name for a column that is written in other letters than the parameter: `transform(xs, X -> x + 1)`.
    """
    for function in reversed([*tree.find_all(exp.Lambda)]):  # inner ones first
        given = {parameter.name.lower(): parameter for parameter in function.expressions}
        for column in [*function.this.find_all(exp.Column)]:
            first, *fields = column.parts
            value = given.get(first.name.lower())
            if value is not None:
                column.replace(exp.Dot.build([value.copy(), *fields]) if fields else value.copy())


def parse_columns(ddl: str) -> tuple[Column, ...]:
    """Returns the columns of a Spark DDL string such as `id BIGINT, carrier STRING`.

    Raises:
        SqlTextError: not a column list, a type this pipeline cannot hash, a name Delta cannot store, a duplicate.
    """
    try:
        text = f"CREATE TABLE t ({ddl}\n)"
        table, *_ = Spark().parser().parse(tokens_of(text), text)
    except SqlglotError as error:
        why = wrong_column(ddl) or _first_line(error)
        raise SqlTextError(f"not a Spark column list: {why}") from None
    schema = table.this if isinstance(table, exp.Create) else None
    definitions = schema.expressions if isinstance(schema, exp.Schema) else []
    if not definitions or not all(isinstance(d, exp.ColumnDef) and d.kind for d in definitions):
        why = wrong_column(ddl) or "it should look like 'id BIGINT, name STRING'"
        raise SqlTextError(f"not a Spark column list: {why}")
    columns = tuple(Column(d.this.name, _type_of(d)) for d in definitions)
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise SqlTextError(f"column {column.name!r} is declared twice (names differ in more than case)")
        seen.add(column.name.lower())
        if column.name.lower().startswith("_fk_"):
            raise SqlTextError(f"column {column.name!r}: names that start with _fk_ are the pipeline's own")
        if column.name.lower() in ("left", "right"):
            raise SqlTextError(f"column {column.name!r}: 'left' and 'right' name the sides of the join")
        if bad := FORBIDDEN_IN_NAMES & set(column.name):
            raise SqlTextError(f"column {column.name!r}: Delta cannot store a name with {sorted(bad)}")
    return columns


def _type_of(definition: exp.ColumnDef) -> str:
    dtype = definition.args["kind"]
    text: str = dtype.sql(dialect=DIALECT)
    text = SYNONYMS.get(text.upper(), text)
    base = text.upper().split("(")[0].split("<")[0].split(" ")[0]
    if any(part.this == exp.DType.TIME for part in dtype.find_all(exp.DataType)):
        raise SqlTextError(f"column {definition.this.name!r} has type TIME, which is not supported; declare it STRING")
    if base in TYPES_REFUSED or (dtype.this == exp.DataType.Type.USERDEFINED and text not in SYNONYMS.values()):
        raise SqlTextError(f"column {definition.this.name!r} has type {text}, which is not supported")
    if wrong := wrong_type(dtype):
        raise SqlTextError(f"column {definition.this.name!r} has type {wrong}")
    return text


@lru_cache(1024)  # the expressions of a pipeline file, for each of many stories
def parse_expression(text: str) -> Expression:
    """Parses one expression, with or without `AS name`.

    Raises:
        SqlTextError: not one scalar expression, or one that is not deterministic.
    """
    tree = one_tree(text)
    for node in tree.walk():
        if isinstance(node, (exp.Query, exp.Subquery)):
            raise SqlTextError("a subquery is not possible here")
        if isinstance(node, (exp.AggFunc, exp.Window)):
            raise SqlTextError(f"{node.sql(dialect=DIALECT)} looks at several rows; an expression sees one row")
        if function_of(node) in GENERATORS:
            raise SqlTextError(f"{node.sql(dialect=DIALECT)} makes several rows of one")
        if is_not_of_the_row(node):
            raise SqlTextError(f"{node.sql(dialect=DIALECT)} is not deterministic: {_WOULD_CHANGE}; {_OF_THE_ROW}")
    body = tree.this if isinstance(tree, exp.Alias) else tree
    reads = []
    for column in tree.find_all(exp.Column):
        path = [part.name for part in column.parts]
        if "" in path or isinstance(column.this, exp.Star):
            raise SqlTextError("'*' is not possible here; name the columns, or leave select out for all of them")
        reads.append(tuple(path))
    if isinstance(tree, exp.Star):
        raise SqlTextError("'*' is not possible here; name the columns, or leave select out for all of them")
    result = tree.alias if isinstance(tree, exp.Alias) else (body.name if isinstance(body, exp.Column) else None)
    return Expression(text, result, tuple(dict.fromkeys(reads)), isinstance(body, exp.Column))


def refuse_moments(text: str, type_of: TypeOf) -> None:
    """Refuses an expression in which a constant text may become the day or moment at which it is computed.

    Args:
        text: an expression that `parse_expression` takes.
        type_of: function from the path of a column to its declared type; None if it is not known.

    Raises:
        SqlTextError: there is such a text; the message names it.
    """
    moment = moment_in(one_tree(text), type_of)
    if moment is not None:
        raise SqlTextError(
            f"{moment} may become the day on which it is computed: {_WOULD_CHANGE}; write the day, DATE'2024-01-31', "
            "or read a column; where the word itself is meant, compare it with a STRING column"
        )


def body_of(text: str) -> str:
    """Returns an expression without `AS name`."""
    if not isinstance(one_tree(text), exp.Alias):
        return text
    tokens = sqlglot.tokenize(text, dialect=DIALECT)
    name = tokens[-2] if tokens[-2].text.upper() == "AS" else tokens[-1]
    return text[: name.start].strip()


def one_tree(text: str) -> exp.Expr:
    """Parses a text as the list of a SELECT: alone, a column called `comment` or `cache` would begin a statement."""
    if "${" in text:
        raise SqlTextError(
            "${...} would be replaced by a variable of Spark's; for the text itself write '\\u0024{...}'"
        )
    try:
        tokens = sqlglot.tokenize(text, dialect=DIALECT)
        parsed = [tree for tree in sqlglot.parse(f"SELECT\n{text}", dialect=DIALECT) if tree is not None]
    except SqlglotError as error:
        problem = re.sub(r"Line (\d+)", lambda match: f"Line {int(match[1]) - 1}", _first_line(error))
        cut = text.count("(") != text.count(")")
        why = "a bracket is missing; in a YAML list [a, b] an expression with a comma needs quotes" if cut else problem
        raise SqlTextError(f"not a SQL expression: {why}") from None
    selected = parsed[0] if len(parsed) == 1 else None
    clauses = [name for name, value in selected.args.items() if value and name != "expressions"] if selected else []
    if not isinstance(selected, exp.Select) or len(selected.expressions) != 1 or clauses:
        raise SqlTextError("not one SQL expression over the columns")
    bind_lambdas(selected)
    tree: exp.Expr = selected.expressions[0]
    if isinstance(tree, exp.Query):
        raise SqlTextError("not one SQL expression over the columns")
    # The text is inserted into other SQL, where a line comment would hide the text after it.
    if tokens[-1].text in (";", ",") or any(token.comments for token in tokens):
        raise SqlTextError("leave out comments, and what stands after the expression")
    return tree


def _first_line(error: Exception) -> str:
    return str(error).replace("\x1b[4m", "").replace("\x1b[0m", "").splitlines()[0]
