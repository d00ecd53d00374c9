"""Finds the columns of the left sample that refer to the key of the right one, by names and by common values."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fk_pipeline.scaffold.names import singular
from fk_pipeline.scaffold.sampled import Sample, SampleColumn

ENOUGH = 1.5
"""The lowest score of a sure proposal; a column with a lower score is only a placeholder for the user's own choice."""


@dataclass(frozen=True)
class Proposal:
    """A proposed foreign key.

    Attributes:
        expressions: one expression per column of the right key, of its type.
        evidence: the evidence for each expression.
        others: other columns that are possible.
        score: the strength of the evidence.
    """

    expressions: tuple[str, ...]
    evidence: tuple[str, ...]
    others: tuple[str, ...]
    score: float

    @property
    def is_sure(self) -> bool:
        """Whether the evidence is strong enough."""
        return self.score >= ENOUGH


@dataclass(frozen=True)
class _Candidate:
    column: SampleColumn
    score: float
    evidence: str


def propose(left: Sample, right: Sample) -> Proposal:
    """Returns the best column of the left sample for every column of the right key."""
    chosen: list[tuple[_Candidate, SampleColumn]] = []
    others: list[str] = []
    for name in right.key:
        ranked = sorted(
            (_candidate(left, one, right, right.column(name)) for one in filter(_fits, left.columns)),
            key=lambda one: -one.score,
        )
        if not ranked:  # no column can be a reference: a placeholder for the user's own choice
            ranked = [_Candidate(left.columns[0], 0.0, "nothing")]
        free = [one for one in ranked if one.column not in [taken.column for taken, _ in chosen]] or ranked
        chosen.append((free[0], right.column(name)))
        others += [one.column.name for one in free[1:3] if one.score >= ENOUGH]
    return Proposal(
        tuple(_cast(one.column, key) for one, key in chosen),
        tuple(one.evidence for one, _ in chosen),
        tuple(others),
        min((one.score for one, _ in chosen), default=0.0),
    )


def _fits(column: SampleColumn) -> bool:
    if re.fullmatch(r"DECIMAL\(\d+,[1-9]\d*\)", column.inferred.type):  # an amount
        return False
    return column.inferred.type.split("<")[0] not in ("ARRAY", "MAP", "STRUCT", "DOUBLE", "FLOAT", "BOOLEAN", "BINARY")


def _candidate(left: Sample, column: SampleColumn, right: Sample, key: SampleColumn) -> _Candidate:
    named = _named(column.name.strip("`").lower(), key.name.strip("`").lower(), right.table)
    is_own = left.key == (column.name,)
    if is_own and named < _NAMED_AFTER_TABLE:
        named = 0.0
    common = len(column.values & key.values)
    share = common / len(column.values) if column.values else 0.0
    telling = 4.0 if column.inferred.type == "STRING" and len(column.values) > 2 else 2.0
    evidence = (
        [f"{common:,} of {len(column.values):,} values are keys of {right.table} in the sample"] if common else []
    )
    if named:
        evidence.insert(0, "its name")
    return _Candidate(column, named + telling * share - (2.0 if is_own else 0.0), "; ".join(evidence) or "nothing")


_NAMED_AFTER_TABLE = 4.0


def _named(column: str, key: str, table: str) -> float:
    """Returns a score for how much the name of a column looks like a reference to a key."""
    base = singular(table)
    if column in {f"{base}_{key}", f"{base}{key}", f"{table.lower()}_{key}", base, f"{base}_id", f"{base}id"}:
        return _NAMED_AFTER_TABLE
    if column == key:
        return 1.0 if key in ("id", "key", "code", "name", "type", "year") else 3.0
    if len(key) > 2 and column.endswith(key):
        return 2.0
    return 1.5 if base in column else 0.0


def _cast(column: SampleColumn, key: SampleColumn) -> str:
    """Returns the SQL of a column, cast to the type of the key if it has another type."""
    if column.inferred.type == key.inferred.type:
        return column.name
    word = "TRY_CAST" if column.inferred.type == "STRING" else "CAST"
    return f"{word}({column.name} AS {key.inferred.type})"
