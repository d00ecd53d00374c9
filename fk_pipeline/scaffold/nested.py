"""The type of objects and lists in a sample: STRUCT and ARRAY, if every value of the sample fits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from fk_pipeline.spec.sql import FORBIDDEN_IN_NAMES, quote

MOST_FIELDS_OF_OBJECT = 100
"""The largest number of fields of an object; in an object with more, the names are values, as in a map."""
_DEEPEST = 8
_LONG, _WIDEST = 1 << 63, 38


def nested(values: Sequence[Any], depth: int = 0) -> str | None:
    """Returns the type that reads every value, in DDL; None if only the text of the JSON reads them all.

    Args:
        values: JSON values with fractions as `Decimal`, without nulls.
        depth: the number of objects and lists that contain them.
    """
    kinds = {type(value) for value in values}
    if not values or kinds == {str}:
        return "STRING"
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds <= {int, Decimal}:
        return decimal_of(values) if Decimal in kinds else _whole(values)
    if kinds == {list} and depth < _DEEPEST:
        inner = nested([element for value in values for element in value if element is not None], depth + 1)
        return None if inner is None else f"ARRAY<{inner}>"
    if kinds == {dict} and depth < _DEEPEST:
        return _struct(values, depth)
    return None


def _struct(values: Sequence[dict[str, Any]], depth: int) -> str | None:
    names = list(dict.fromkeys(name for value in values for name in value))
    odd = any(not name or FORBIDDEN_IN_NAMES & {*name} or not name.isprintable() for name in names)
    if not 0 < len(names) <= MOST_FIELDS_OF_OBJECT or odd or len({name.lower() for name in names}) < len(names):
        return None
    fields = []
    for name in names:
        inner = nested([member for value in values if (member := value.get(name)) is not None], depth + 1)
        if inner is None:
            return None
        fields.append(f"{quote(name)}: {inner}")
    return f"STRUCT<{', '.join(fields)}>"


def _whole(values: Sequence[int]) -> str | None:
    if all(-_LONG <= value < _LONG for value in values):
        return "BIGINT"
    return f"DECIMAL({_WIDEST},0)" if all(abs(value) < 10**_WIDEST for value in values) else None


def decimal_of(values: Sequence[int | Decimal]) -> str | None:
    """Returns the DECIMAL for every number with all its digits, with room for larger ones; None if none is enough."""
    whole, scale = 1, 0
    for value in map(Decimal, values):
        _, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            return None
        scale, whole = max(scale, -exponent), max(whole, len(digits) + exponent)
    if whole + scale > _WIDEST:
        return None
    return f"DECIMAL({min(_WIDEST, max(18, whole + scale + 4))},{scale})"
