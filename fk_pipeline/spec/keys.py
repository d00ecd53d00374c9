"""Keys as people write them on the command line: `17`, or `a=1,b=2` if there are several columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from fk_pipeline.errors import UsageError
from fk_pipeline.spec.inputs import EVENT_COLUMN, RESULT_KEY, SideSpec
from fk_pipeline.spec.sql import Column, quote, text

_BARE = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "BOOLEAN")
"""The types whose values JSON has without quotes."""


_PLACE = re.compile(r"\d+/.+/\d+")
"""The place of an event: batch, file and line."""


def parse_key(given: str, side: SideSpec, option: str = "--key") -> dict[str, str]:
    """Returns the key columns of a side with their values as text.

    Args:
        given: the value of the only key column, or `a=1,b=2`; a key that is `result_key` may be given by its columns.
        side: whose key it is.
        option: the option with the key, for the message.

    Raises:
        UsageError: the text does not have the columns of the key, or is no place of an event without a key.
    """
    if side.key_of_result and not given.startswith("{"):
        parts = parse_columns_of_key(given, side.key_parts, option)
        fields = (f"{json.dumps(c.name)}:{_json(parts[c.name], c)}" for c in side.key_parts)
        return {RESULT_KEY: f"{{{','.join(fields)}}}"}
    key = parse_columns_of_key(given, side.key_columns, option)
    if side.keyed_by_place and not _PLACE.fullmatch(key[EVENT_COLUMN.name]):
        raise UsageError(
            f"{option}: {given!r} is no event: one without a key is known by its place",
            fix=f"{option} BATCH/FILE/LINE, for example {option} 1/landing/clicks/1.jsonl/2; column "
            f"{EVENT_COLUMN.name} of the table of the events has these",
        )
    return key


def _json(value: str, column: Column) -> str:
    """Returns a value, given as text, as Spark writes it in JSON; `null` is null."""
    dtype = column.type.upper()
    if value == "null" or dtype.startswith(_BARE):
        return value
    if dtype == "TIMESTAMP":
        with suppress(ValueError):
            at = datetime.fromisoformat(value)
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
            value = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return json.dumps(value, ensure_ascii=False)


def parse_columns_of_key(given: str, columns: Sequence[Column], option: str = "--key") -> dict[str, str]:
    """Returns some key columns with their values as text; as `parse_key`.

    Raises:
        UsageError: the text does not have the columns.
    """
    names = {c.name.lower(): c.name for c in columns}
    starts = re.finditer(rf"(?:^|,)\s*({'|'.join(map(re.escape, names))})=", given, re.IGNORECASE)
    fields = [(names[start[1].lower()], start.start(), start.end()) for start in starts]
    if len({name for name, *_ in fields}) == len(fields) == len(names) and fields[0][1] == 0:
        ends = [*(comma for _, comma, _ in fields[1:]), len(given)]
        return {name: given[begin:end] for (name, _, begin), end in zip(fields, ends, strict=True)}
    if len(names) == 1:
        return {columns[0].name: given}
    example = ",".join(f"{c.name}=..." for c in columns)
    raise UsageError(f"{option}: {given!r} is no key of {len(names)} columns", fix=f"{option} {example}")


def is_key(key: Mapping[str, str], side: SideSpec, column: Callable[[str], str] = str) -> str:
    """SQL (BOOLEAN): a row has a key that is given as text; null or false if a text does not fit its type.

    Args:
        key: the key columns with their values.
        side: whose key it is.
        column: function from the name of a key column to its name in the table.
    """
    return " AND ".join(f"{quote(column(c.name))} = {value_from_text(key[c.name], c)}" for c in side.key_columns)


def value_from_text(value: str, column: Column) -> str:
    """SQL: a value of a key column, given as the text that is shown for it; null if the text does not fit the type."""
    if column.type.upper() == "BINARY":
        return f"TRY_TO_BINARY({text(value)}, 'hex')"
    return f"TRY_CAST({text(value)} AS {column.type})"


def shown(key: Mapping[str, Any] | None) -> str:
    """Returns a key in the form that `parse_key` reads: its value, or its columns with their values.

    A null is `null`; None, no key, is `-`.
    """
    if key is None:
        return "-"
    texts = {name: "null" if value is None else str(value) for name, value in key.items()}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return ",".join(f"{name}={value}" for name, value in texts.items())
