"""Finds the columns of the left sample that refer to the key of the right one, by names and by common values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fk_pipeline.scaffold.column import SUFFIXES, Meaning, SampleColumn
from fk_pipeline.scaffold.names import names_table
from fk_pipeline.scaffold.sampled import Sample
from fk_pipeline.spec.inputs import PLACEHOLDER

ENOUGH = 1.5
"""The lowest score of a sure proposal; what has a lower score is left open for the user."""
_NAMED_AFTER_TABLE = 4.0
_GENERIC = SUFFIXES | {"name", "type", "year", "date", "day", "time", "at"}
"""Names that do not say what they are the key of."""
_REFERS = SUFFIXES | {"ref", "fk"}
_ENOUGH_ROWS = 20
"""The number of rows from which on no value comes twice for a reason, in a column to which the other side refers."""


@dataclass(frozen=True)
class Part:
    """A proposed part of the foreign key.

    Attributes:
        expression: the SQL over left columns, which has the type of its key column.
        evidence: why it should refer to that.
        score: the strength of the evidence.
        column: the left column that it reads.
    """

    expression: str
    evidence: str
    score: float
    column: str


@dataclass(frozen=True)
class Proposal:
    """A proposed foreign key.

    Attributes:
        parts: one per column of the right key; none if that is not known.
        others: other columns that are possible.
    """

    parts: tuple[Part, ...]
    others: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """The strength of the evidence."""
        return min((part.score for part in self.parts), default=0.0)

    @property
    def is_sure(self) -> bool:
        """Whether the evidence is strong enough."""
        return self.score >= ENOUGH

    @property
    def written(self) -> tuple[str, ...]:
        """The expressions for the pipeline file, with a placeholder for each that is not sure."""
        return tuple(part.expression if part.score >= ENOUGH else PLACEHOLDER for part in self.parts) or (PLACEHOLDER,)


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
        key = right.column(name)
        ranked = sorted(
            (_candidate(left, column, right, key) for column in left.columns if _fits(column, key)),
            key=lambda candidate: -candidate.score,
        )
        ranked = ranked or [_Candidate(left.columns[0], 0.0, "nothing")]
        taken = [candidate.column for candidate, _ in chosen]
        free = [candidate for candidate in ranked if candidate.column not in taken] or ranked
        chosen.append((free[0], key))
        others += [candidate.column.name for candidate in free[1:3] if candidate.score >= ENOUGH]
    parts = (
        Part(cast_to(candidate.column, key), candidate.evidence, candidate.score, candidate.column.name)
        for candidate, key in chosen
    )
    return Proposal(tuple(parts), tuple(others))


def with_referred_key(left: Sample, right: Sample) -> Sample:
    """Returns the right sample, with the column as key to which the left side refers, if its own rows show no key.

    Several left rows have one value of that column, no two right rows have, and the columns have one name. In a
    small sample that may be chance, so the column has the name of the table; or it is the only column with an
    identifier, or the sample is large, and no column has a time, at which a row may hold beside others.
    """
    referred = []
    timed = any(column.meaning is Meaning.TIME and not column.names_change for column in right.columns)
    for key in right.columns if not right.has_key else ():
        of_table = names_table("".join(key.words), right.table)
        only = [column.name for column in right.columns if column.may_be_key] == [key.name]
        enough = of_table or (not timed and (only or right.records >= _ENOUGH_ROWS))
        if key.name not in right.apart or not enough:
            continue
        for column in left.columns:
            common, several = len(column.values & key.values), len(column.values) < column.present
            if _named(column, key, right.table) >= 1.0 and several and 2 * common >= len(column.values) > 0:
                among = f"{common:,} of {len(column.values):,} values are among its own, which are all different"
                referred.append(replace(right, key=(key.name,), key_doubt=f"left {column.name} refers to it: {among}"))
    return referred[0] if len({sample.key for sample in referred}) == 1 else right


def _fits(column: SampleColumn, key: SampleColumn) -> bool:
    """Returns whether a column can refer to a key: it is no amount, no prose, and a time only if the key is a time."""
    return column.may_be_key or (column.meaning is Meaning.TIME and key.meaning is Meaning.TIME)


def _candidate(left: Sample, column: SampleColumn, right: Sample, key: SampleColumn) -> _Candidate:
    named = _named(column, key, right.table)
    is_own = left.key == (column.name,)
    if (left.path, left.table) == (right.path, right.table):  # a tree: an employee refers to a manager
        named = 2.0 if column.subject and not is_own else 0.0
    elif is_own and named < _NAMED_AFTER_TABLE:
        named = 0.0
    common = len(column.values & key.values)
    share = common / len(column.values) if column.values else 0.0
    telling = 4.0 if column.inferred.type == "STRING" and len(column.values) > 2 else 2.0
    if column.inferred.type != "STRING" and not named:  # small numbers are among the keys by chance
        telling = 0.0
    evidence = (
        [f"{common:,} of {len(column.values):,} values are keys of {right.table} in the sample"] if common else []
    )
    if named:
        evidence.insert(0, "its name")
    return _Candidate(column, named + telling * share - (2.0 if is_own else 0.0), "; ".join(evidence) or "nothing")


def _named(column: SampleColumn, key: SampleColumn, table: str) -> float:
    """Returns a score for how much the name of a column looks like a reference to a key."""
    words = column.words
    subject = "".join(words[:-1]) if words[-1:] and words[-1] in _REFERS else ""
    of_key = "".join(words).removesuffix("".join(key.words))
    if any(names_table(name, table) for name in (subject, of_key, "".join(words)) if name):
        return _NAMED_AFTER_TABLE
    generic = len(key.words) == 1 and key.words[0] in _GENERIC
    if words == key.words:
        return 1.0 if generic else 3.0
    if not generic and words[-len(key.words) :] == key.words:
        return 2.0
    within = any(names_table(word, table) for word in words)
    return 1.0 if within and column.meaning is Meaning.IDENTIFIER else 0.0


def cast_to(column: SampleColumn, key: SampleColumn) -> str:
    """Returns the SQL of a column, cast to the type of the key if it has another type."""
    if column.inferred.type == key.inferred.type:
        return column.name
    word = "TRY_CAST" if column.inferred.type == "STRING" else "CAST"
    return f"{word}({column.name} AS {key.inferred.type})"
