"""The result of another pipeline as an input: `pipeline: other.yaml` in place of path, format, schema and key.

Schema and key are those of the result table. Before the other pipeline has run there is no table, and only the types
that its file tells are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fk_pipeline.contract import Source, loaded
from fk_pipeline.environment import storage
from fk_pipeline.environment.refusals import refusal
from fk_pipeline.errors import PipelineFileError, StateError
from fk_pipeline.spec.described import description_of_output
from fk_pipeline.spec.inputs import RESULT_KEY
from fk_pipeline.spec.model import CATALOG_NAME, UNKNOWN_TYPE, PipelineSpec
from fk_pipeline.spec.paths import path_meant
from fk_pipeline.spec.sql import quote

REPLACED = ("path", "format", "schema", "key", "op_column", "sequence_by", "batch_by", "delete_when", "csv", "table")
"""The keys of an input that the result of another pipeline determines."""

_PRIMITIVE = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
}
"""Per type of Delta, the type of Spark."""


def as_input(other: PipelineSpec, *, referred: bool) -> dict[str, Any]:
    """Returns the keys of an input that is the result of another pipeline.

    Args:
        other: the other pipeline.
        referred: whether its rows matter only to rows of another input that refer to their key: a row whose key has a
            null is then left out. Otherwise a key that may be null is the column `result_key`, the key as JSON.

    Raises:
        PipelineFileError: `select` of the other pipeline leaves out a column of its key.
        StateError: the result cannot be opened.
    """
    key = _key(other)
    types, is_known = _types(other)
    columns = [f"{quote(output.name)} {types[output.name]}" for output in other.outputs]
    declared: dict[str, Any] = {"key": [name for name, _ in key]}
    if any(nullable for _, nullable in key) and not referred:
        if any(name.lower() == RESULT_KEY for name in types):
            raise PipelineFileError(
                f"a column of its result is called {RESULT_KEY!r}",
                where=str(other.file),
                why="another pipeline reads the result, and knows its rows by a column of this name",
                fix=f"give it another name in select: {RESULT_KEY} AS another_name",
            )
        columns.append(f"{RESULT_KEY} STRING")
        declared = {"key": [RESULT_KEY], "key_of_result": declared["key"]}
    secret = [name for name in types if name in other.sensitive_outputs]
    if {*declared.get("key_of_result", ())} & {*secret}:
        secret.append(RESULT_KEY)
    described = {output.name: description_of_output(other, output) for output in other.outputs}
    return declared | {
        "path": f"{other.home}/{other.definition.result.name}",
        "format": "delta",
        "schema": ", ".join(columns),
        "not_run": "" if is_known else str(other.file),
        "told_apart": other.told_apart,
        "descriptions": {name: text for name, text in described.items() if text is not None},
        **({"sensitive": secret} if secret else {}),
    }


def _key(other: PipelineSpec) -> Sequence[tuple[str, bool]]:
    """Returns per column of the key of a result its name in `select`, and whether it may be null."""
    columns = []
    for shown, name, nullable in other.result_key_outputs():
        if name is None:
            raise PipelineFileError(
                f"select leaves out {shown!r}, which is part of the key of its result",
                where=str(other.file),
                why="another pipeline reads the result, whose rows it must tell apart",
                fix=f"add {shown} to select",
            )
        columns.append((name, nullable))
    return columns


def _types(other: PipelineSpec) -> tuple[Mapping[str, str], bool]:
    """Returns the types of the columns of a result, and whether they are known; unknown types are STRING."""
    from deltalake.exceptions import DeltaError

    path = f"{other.home}/{other.definition.result.name}"
    try:
        stored = dict(_stored(path))
    except DeltaError as error:
        raise refusal(error, path) or _damaged(other, path, error) from error
    names = [output.name for output in other.outputs]
    if {*names} <= stored.keys():
        return {name: stored[name] for name in names}, True
    declared = dict(loaded(other.definition.declared_layout)(other)[other.definition.result.name].columns)
    assumed = {name: "STRING" if declared[name] == UNKNOWN_TYPE else declared[name] for name in names}
    known = not stored and UNKNOWN_TYPE not in (declared[name] for name in names)  # the file has all types
    return {name: stored.get(name, assumed[name]) for name in names}, known


def _stored(path: str) -> list[tuple[str, str]]:
    """Returns the columns of a Delta table with their types; none if there is no table."""
    from deltalake import DeltaTable

    from fk_pipeline.table_features import open_table

    if not DeltaTable.is_deltatable(path, storage.delta_options(path)):
        return []
    fields = json.loads(open_table(path).schema().to_json())["fields"]
    return [(field["name"], _ddl(field["type"])) for field in fields]


def schema_of(folder: Path, table: str, where: str) -> str:
    """Returns the columns of a Delta table as DDL.

    Args:
        folder: that of the pipeline file.
        table: a path, relative to it, or a URI.
        where: the place in the pipeline file.

    Raises:
        PipelineFileError: there is no such table, or its log cannot be read.
    """
    from deltalake.exceptions import DeltaError

    path = table if "://" in table else str(folder.absolute() / table)
    try:
        columns = _stored(path)
    except DeltaError as error:
        raise PipelineFileError(f"the Delta table {table} cannot be read: {error}", where=where) from None
    if not columns:
        raise PipelineFileError(
            f"there is no Delta table {table}{path_meant(path)}",
            where=where,
            fix=f"give the path or URI of the folder that has _delta_log{_of_catalog(table)}",
        )
    if any(name.startswith("_fk_") for name, _ in columns):
        raise PipelineFileError(
            f"{table} is a table of a pipeline, whose rows have columns of its own",
            where=where,
            fix="name the pipeline in place of its table: {pipeline: FILE}",
        )
    return ", ".join(f"{quote(name)} {dtype}" for name, dtype in columns)


def _of_catalog(table: str) -> str:
    """Returns how to find the path of a table, if the text may be a name in Spark's catalog; else an empty text."""
    return f"; of a table of Spark's catalog: DESCRIBE DETAIL {table}" if CATALOG_NAME.fullmatch(table) else ""


def _damaged(other: PipelineSpec, path: str, error: Exception) -> StateError:
    """Returns the error for a result whose log is damaged, with the command that rebuilds it."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return StateError(
        f"table {other.definition.result.name} is damaged: _delta_log cannot be read ({reason[:200]})",
        where=f"{path}/_delta_log",
        why=f"it is the result of pipeline {other.name}, which another one reads",
        fix=f"fk-pipeline rebuild {other.file} --from {Source.CHANGELOG} --stages {other.definition.result_stage}",
    )


def _ddl(dtype: Any) -> str:
    """Returns a type of a Delta schema as Spark DDL."""
    if isinstance(dtype, str):
        return _PRIMITIVE.get(dtype, dtype.upper())
    if dtype["type"] == "array":
        return f"ARRAY<{_ddl(dtype['elementType'])}>"
    if dtype["type"] == "map":
        return f"MAP<{_ddl(dtype['keyType'])}, {_ddl(dtype['valueType'])}>"
    fields = ", ".join(f"{quote(field['name'])}: {_ddl(field['type'])}" for field in dtype["fields"])
    return f"STRUCT<{fields}>"
