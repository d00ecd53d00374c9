"""What samples are meant to become: a join by key, as of a time or within a span, an aggregate, a table, a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.column import Meaning, SampleColumn
from fk_pipeline.scaffold.foreign_key import Proposal, cast_to, propose, with_referred_key
from fk_pipeline.scaffold.meanings import Meant
from fk_pipeline.scaffold.sampled import Sample, as_events

SAYS = {
    Meant.FOREIGN_KEY: "each row of {0} with the latest row of {1} that it refers to",
    Meant.AS_OF: "each row of {0} with the row of {1} that held at its time",
    Meant.WINDOW: "the rows of {0} and {1} that happened near each other in time",
    Meant.AGGREGATE: "the rows of {0}, counted and added up per group",
    Meant.TABLE: "the current rows of {0}",
}
"""Per meaning what the result has, in words, with the names of the tables."""

_VALID = frozenset({"valid", "validity", "effective", "applies", "applicable"})
_SINCE = frozenset({"since", "from", "start", "starts", "begin", "begins", "starting"})
_UNTIL = frozenset({"to", "until", "till", "end", "ends", "ending", "expires", "expiry", "expired"})
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True)
class Versions:
    """Which version of a right row a left row sees.

    Attributes:
        at: SQL over left columns: the time at which the version must hold.
        since: SQL over right columns: the time since which a version holds.
        evidence: why these are the columns.
    """

    at: str
    since: str
    evidence: str


@dataclass(frozen=True)
class Nearness:
    """What makes rows of two streams a pair.

    Attributes:
        on: per side the SQL whose values are equal.
        times: per side the SQL of the time.
        same: the right column whose values the result has already, as those of a left column; empty: none.
        evidence: why these are the columns.
    """

    on: tuple[str, str]
    times: tuple[str, str]
    same: str
    evidence: str


@dataclass(frozen=True)
class Groups:
    """What the rows of a group have in common, and what is added up.

    Attributes:
        by: the column; empty: there is none.
        sums: the columns that are added up.
        evidence: why it is this column.
    """

    by: str
    sums: tuple[str, ...]
    evidence: str


@dataclass(frozen=True)
class Intent:
    """A pipeline that samples may be meant to become.

    Attributes:
        meant: which.
        samples: the samples of its inputs, in the order of the pipeline file.
        why: what tells it; empty if it is the only possibility.
        proposal: of a join by key, the foreign key.
        versions: of a join as of a time, the times.
        nearness: of a join within a span, the columns.
        groups: of an aggregate, the groups.
    """

    meant: Meant
    samples: tuple[Sample, ...]
    why: str = ""
    proposal: Proposal | None = None
    versions: Versions | None = None
    nearness: Nearness | None = None
    groups: Groups | None = None

    @property
    def says(self) -> str:
        """What the result has, in words."""
        return SAYS[self.meant].format(*(sample.table for sample in self.samples))


def intents_of(tables: Sequence[Sample], kind: Meant | None, *, ordered: bool) -> list[Intent]:
    """Returns what one or two tables may be meant to become, the likeliest first; with `kind`, only that.

    Args:
        tables: their samples.
        kind: what the user said.
        ordered: whether the first is the left side of a join, as the user named it; else evidence decides.

    Raises:
        UsageError: it cannot be what was asked for.
    """
    intents = _of_one(tables[0], kind) if len(tables) == 1 else _of_two(tables[0], tables[1], kind, ordered=ordered)
    chosen = [intent for intent in intents if kind in (None, intent.meant)]
    if not chosen and kind is not None:
        raise UsageError(
            f"--kind {kind}: the samples do not give it",
            why=_lacking(kind, tables),
            fix=f"--kind {intents[0].meant}, or give the samples that it needs",
        )
    return chosen


def _lacking(kind: Meant, tables: Sequence[Sample]) -> str:
    """Returns what samples lack for a kind."""
    names = " and ".join(sample.table for sample in tables)
    if len(tables) > 1 and kind in (Meant.AGGREGATE, Meant.TABLE):
        return f"it reads one table, and these are {names}"
    if len(tables) == 1 and kind is not Meant.AGGREGATE:
        return f"it reads two tables, and {names} is one"
    return {
        Meant.AS_OF: f"it needs a time in {tables[0].table}, and a column such as valid_from in {tables[-1].table}",
        Meant.WINDOW: f"it needs a time in each of {names}, and a column that both have",
    }.get(kind, f"no column of {names} can be a group")


def _of_one(sample: Sample, kind: Meant | None) -> list[Intent]:
    table = as_events(sample)
    intents = [Intent(Meant.TABLE, (table,))]
    groups = groups_of(table)
    if groups is not None and (groups.sums or kind is Meant.AGGREGATE):
        intents.append(Intent(Meant.AGGREGATE, (table,), groups=groups))
    return intents


def _of_two(first: Sample, second: Sample, kind: Meant | None, *, ordered: bool) -> list[Intent]:
    forward, backward = _by_key(first, second, kind), _by_key(second, first, kind)
    near = _near(first, second, kind)
    strength, turned = _strength(forward), _strength(backward)
    if turned > strength and not (ordered and strength):
        left, right = backward[0].samples
        why = f"{left.table} refers to {right.table}, so it is the left side" if ordered else ""
        return [*(replace(intent, why=why) for intent in backward), *near]
    if strength:
        return forward if kind is not Meant.WINDOW else [*forward, *near]
    why = "both have events with times, and neither refers to the key of the other"
    near = [replace(intent, why=why) for intent in near]
    return [*near, *forward] if kind is not None else near or forward


def _strength(intents: Sequence[Intent]) -> float:
    """Returns how sure the foreign key is; 0 if it is not."""
    proposal = intents[0].proposal
    return proposal.score if proposal is not None and proposal.is_sure else 0.0


def _by_key(left: Sample, right: Sample, kind: Meant | None) -> list[Intent]:
    """Returns the joins in which left rows refer to right rows, the likelier first."""
    left = as_events(left)
    plain = with_referred_key(left, right)
    latest = Intent(Meant.FOREIGN_KEY, (left, plain), proposal=propose(left, plain))
    known = latest.proposal is not None and latest.proposal.is_sure
    versioned = _versions(left, plain, any_column=kind is Meant.AS_OF)
    if versioned is None:
        return [latest]
    referred, versions, strong = versioned
    proposal = propose(left, referred)
    as_of = Intent(Meant.AS_OF, (left, referred), versions.evidence, proposal, versions)
    latest = latest if known else replace(latest, samples=(left, referred), proposal=proposal)
    if known and referred.key != plain.key and kind is None:
        return [latest]  # it refers to one version
    return [as_of, latest] if strong else [latest, as_of]


def _versions(left: Sample, right: Sample, *, any_column: bool) -> tuple[Sample, Versions, bool] | None:
    """Returns the right side with the key that its versions share, their times, and whether much tells it; or None."""
    ranked = sorted(
        (column for column in right.columns if _since(column) and column.name != right.mark),
        key=lambda column: -_since(column),
    )
    times = [c for c in left.columns if c.meaning is Meaning.TIME and _is_moment(c) and c.name != left.mark]
    times.sort(key=lambda column: column.names_change)
    if not ranked or not times:
        return None
    since, at = ranked[0], times[0]
    rest = tuple(name for name in right.key if name != since.name)
    keys = [rest] if rest else []
    again = [c for c in right.columns if c.may_be_key and c is not since and (any_column or len(c.values) < c.present)]
    keys += [(column.name,) for column in again]
    proposals = [(propose(left, replace(right, key=key)), key) for key in dict.fromkeys(keys)]
    sure = [(proposal.score, -number, key) for number, (proposal, key) in enumerate(proposals) if proposal.is_sure]
    if not sure:
        return None
    _, _, key = max(sure)
    repeats = any(len(right.column(name).values) < right.column(name).present for name in key)
    evidence = f"{since.name} tells since when a row of {right.table} holds"
    evidence += ", and keys come again with another one" if repeats else ""
    doubt = right.key_doubt if key == right.key else f"{left.table} refers to it; {since.name} tells its versions apart"
    chosen = replace(right, key=key, key_doubt=doubt)
    others = f"; or {', '.join(column.name for column in times[1:])}" if times[1:] else ""
    same = at.inferred.type == since.inferred.type
    versions = Versions(_as_time(at, same), _as_time(since, same), f"{evidence}{others}")
    return chosen, versions, repeats or _since(since) > 1


def _since(column: SampleColumn) -> int:
    """Returns how much the name of a time says that a row holds since then: 2 for `valid_from`, 1 for `since`, or 0."""
    words = {*column.words}
    if not _is_moment(column) or words & _UNTIL or not column.words:
        return 0
    if words & _VALID:
        return 2
    return int(bool({column.words[0], column.words[-1]} & _SINCE))


def _is_moment(column: SampleColumn) -> bool:
    return column.inferred.type.startswith(("DATE", "TIMESTAMP"))


def _as_time(column: SampleColumn, same: bool) -> str:
    """Returns the SQL of a time as TIMESTAMP; of two times of the type TIMESTAMP_NTZ as they are."""
    dtype = column.inferred.type
    is_plain = dtype == "TIMESTAMP" or (same and dtype != "DATE")
    return column.name if is_plain else f"CAST({column.name} AS TIMESTAMP)"


def _near(left: Sample, right: Sample, kind: Meant | None) -> list[Intent]:
    """Returns the join within a span of time, if both are streams of events with times, and have a column in common."""
    declared = kind is Meant.WINDOW
    sides = [_as_stream(sample, declared=declared) for sample in (left, right)]
    times = [_time_of(sample) for sample in (left, right)]
    ranked = sorted(
        ((_alike(a, b), a, b) for a in left.columns for b in right.columns if not {a.name, b.name} & {*times}),
        key=lambda pair: -pair[0],
    )
    if not all(sides) or not all(times) or not ranked or not ranked[0][0]:
        return []
    _, a, b = ranked[0]
    on, same = cast_to(a, b), b.name if a.inferred.type == b.inferred.type else ""
    evidence = f"both have {a.name}" if a.name == b.name else f"{a.name} and {b.name} have values in common"
    near = Nearness((on, b.name), (str(times[0]), str(times[1])), same, evidence)
    return [Intent(Meant.WINDOW, tuple(side for side in sides if side), nearness=near)]


def _as_stream(sample: Sample, *, declared: bool) -> Sample | None:
    """Returns a sample as a stream of events; None if its rows are changed, and the user did not say that it is one."""
    if (sample.changes or "op_column" in sample.options or sample.mark) and not declared:
        return None
    events = as_events(sample)
    if events.has_key or "op_column" in sample.options or sample.mark:
        return events
    return replace(sample, key=(), key_doubt="", options=sample.options | {"contents": "events"})


def _time_of(sample: Sample) -> str | None:
    """Returns the time of a row: the first that is not the one of its latest change."""
    times = [c.name for c in sample.columns if c.inferred.type.startswith("TIMESTAMP") and not c.names_change]
    return next((name for name in times if name != sample.mark), None)


def _alike(a: SampleColumn, b: SampleColumn) -> float:
    """Returns how much two columns look like the same thing of both sides, by names and by values; 0: not at all."""
    if not a.may_be_key or not b.may_be_key:
        return 0.0
    subjects = [column.subject or column.words for column in (a, b)]
    if subjects[0] != subjects[1] or a.words in (("id",), ("key",)):
        return 0.0
    common = len(a.values & b.values)
    share = common / len(a.values) if a.values else 0.0
    return share and share + (1.0 if a.words == b.words else 0.5)


def groups_of(sample: Sample) -> Groups | None:
    """Returns what the rows of a table may be grouped by, and its sums; None if no column can be a group."""
    kinds = (Meaning.IDENTIFIER, Meaning.FLAG)
    possible = [
        column
        for column in sample.columns
        if column.name != sample.mark and (column.name,) != sample.key and column.meaning in kinds and column.values
    ]
    repeated = [column for column in possible if len(column.values) < column.present]
    ranked = sorted(repeated, key=lambda column: (len(column.values) < 2, len(column.values)))
    chosen = next(iter(ranked or possible), None)
    if chosen is None:
        return None
    sums = tuple(
        column.name
        for column in sample.columns
        if column.meaning is Meaning.MEASURE
        and column.inferred.type.startswith(_NUMBERS)
        and column.name not in sample.key
        and column is not chosen
    )
    others = f"; or {', '.join(column.name for column in ranked if column is not chosen)}" if len(ranked) > 1 else ""
    different = f"{len(chosen.values):,} different values in {chosen.present:,} rows"
    return Groups(chosen.name, sums, f"{different}{others}")
