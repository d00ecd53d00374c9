"""The times that a row may have where stages compute with times (`contract.Input.times`): windows, spans, clocks.

They end so long before the ends of their types that a time plus or minus the spans of a pipeline file
(`spec.durations.LONGEST`) is in the type. A row with another time goes to the quarantine (`blocks.changelog`), so
stages, checks and proof have the same times. Times that are only compared (`as_of`, `valid_from`) may be any of their
type.
"""

from __future__ import annotations

from fk_pipeline.spec.sql import text

FARTHEST = 9 * 10**18
"""How far from 1970 a time is at most, in units: milliseconds of a BIGINT, microseconds of a TIMESTAMP."""


def limits(dtype: str) -> tuple[str, str]:
    """SQL: the first and the last time of a type, BIGINT or TIMESTAMP."""
    first, last = f"-{FARTHEST}L", f"{FARTHEST}L"
    return (first, last) if dtype.upper() == "BIGINT" else (f"TIMESTAMP_MICROS({first})", f"TIMESTAMP_MICROS({last})")


def unfit(time: str, dtype: str, name: str) -> str:
    """SQL (STRING): the reason why a row cannot have a time, given its type and its name for people; null if it can."""
    first, last = limits(dtype)
    outside = f"CONCAT({text(f'{name} is not between ')}, CAST({first} AS STRING), ' and ', CAST({last} AS STRING))"
    return (
        f"CASE WHEN {time} IS NULL THEN {text(f'{name} is null')} "
        f"WHEN {time} NOT BETWEEN {first} AND {last} THEN {outside} END"
    )


def limited(time: str, dtype: str) -> str:
    """SQL: a time, or the nearest one that rows may have; null for null.

    Tables of an older version may have rows with other times; so may a changelog after an edit of the pipeline file.
    """
    first, last = limits(dtype)
    return f"CASE WHEN {time} < {first} THEN {first} WHEN {time} > {last} THEN {last} ELSE {time} END"
