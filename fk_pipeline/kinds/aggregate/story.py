"""The story of one group, as data and in words: which rows count in it, and which batches moved it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import for_story, with_content
from fk_pipeline.blocks.current import CurrentRows
from fk_pipeline.blocks.left_out import DO_NOT_PASS, DOES_NOT_PASS, NOT_PASSING
from fk_pipeline.blocks.refresh.exactness import inexact
from fk_pipeline.errors import UsageError
from fk_pipeline.export import json_rows
from fk_pipeline.frames import sql_over
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate import tables as k
from fk_pipeline.kinds.aggregate.kind import AggregateStage
from fk_pipeline.kinds.aggregate.placing import spread
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.kinds.aggregate.windows import windows_of
from fk_pipeline.spec import Column, quote
from fk_pipeline.spec.failing import ISOLATING
from fk_pipeline.spec.keys import parse_columns_of_key, shown, value_from_text
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader

NULL = "null"
"""The text of a group without a value."""

MEMBERS_SHOWN = 20
"""The largest number of rows of a group that its story has."""


@dataclass(frozen=True)
class Member:
    """A row that counts in the group now: its key, the batch that brought it, and what the aggregates read of it."""

    key: dict[str, Any]
    batch: int
    applied_in: int
    values: dict[str, Any]


@dataclass(frozen=True)
class GroupStory:
    """A group, or window of a group: its rows, and the row of the result.

    Attributes:
        key: its key.
        members: rows that count in it, those that changed last first; at most `MEMBERS_SHOWN`.
        rows: the number of rows that count in it.
        touched_by: the batches that brought a version of a row that counts in it, or once did.
        result: the row of the result; None if it has none.
        written_in: the batch that last wrote it.
        expected: the row that the result must have by the rows of the table; None if none.
        is_current: whether the result has this row.
        due: the due batches per stage.
        left_out: the number of rows of the input that would count in it and do not pass `where`.
    """

    key: dict[str, Any]
    members: tuple[Member, ...]
    rows: int
    touched_by: tuple[int, ...]
    result: dict[str, Any] | None
    written_in: int | None
    expected: dict[str, Any] | None
    is_current: bool
    due: dict[str, list[int]] = field(default_factory=dict)
    left_out: int = 0

    @property
    def as_expected(self) -> bool:
        """Whether the result has the group as its rows make it."""
        return self.is_current

    @property
    def heading(self) -> str:
        """The name of the group."""
        return f"Group {shown(self.key)}"

    @property
    def note(self) -> str:
        """The meaning of a mark in the events; none is marked."""
        return ""

    def events(self) -> list[tuple[int, str, str, str]]:
        """Returns the rows that count and the batches that touched the group, by batch."""
        found = [
            (one.applied_in, "row", f"{shown(one.key)}: {', '.join(f'{n}={v}' for n, v in one.values.items())}", "")
            for one in self.members
        ]
        found += [(batch, "touched", "", "") for batch in self.touched_by]
        return sorted(found, key=lambda event: event[:3])

    def sentences(self) -> list[str]:
        """Returns the present state in sentences, the conclusion last."""
        many = "" if self.rows == len(self.members) else f", of which {len(self.members)} are shown"
        found = [f"{self.rows:,} row{'' if self.rows == 1 else 's'} count{'s' if self.rows == 1 else ''} in it{many}."]
        if self.left_out:
            does = DOES_NOT_PASS if self.left_out == 1 else DO_NOT_PASS
            found.append(f"{self.left_out:,} row{'' if self.left_out == 1 else 's'} of it {does}.")
        if self.rows and self.expected is None:
            found.append("`having` keeps it out of the result.")
        has = "does not have it" if self.result is None else f"has it since batch {self.written_in}"
        if self.as_expected:
            found.append(f"The result {has}, as it should.")
        elif self.due:
            found.append(f"The result {has}; work is due that may change it.")
        else:
            found.append(f"The result {has}, and that is wrong: fk-pipeline verify tells more.")
        return found

    def as_json(self) -> dict[str, Any]:
        """Returns the story as a JSON object."""
        return {**asdict(self), "as_expected": self.as_expected}


def explain(read: TableReader, spec: AggregateSpec, ledger: Ledger, said: str) -> GroupStory:
    """Returns the story of a group, said as `service=a,level=b`, with windows also `window_start=...`; `null` is null.

    A column has the name that `select` gives it.

    Raises:
        UsageError: the text is not the key of a group.
    """
    try:
        return _story(read, spec, ledger, said)
    finally:
        read.release()


def _story(read: TableReader, spec: AggregateSpec, ledger: Ledger, said: str) -> GroupStory:
    names, keys = k.shown_keys(spec), k.group_key(spec)
    table = read.table_of(AggregateStage.AGGREGATED)
    types = dict(table.columns)
    columns = [Column(name, types[key]) for name, key in zip(names, keys, strict=True)]
    given = parse_columns_of_key(said, columns)
    wanted = _wanted(read, given, columns, keys)
    shown_key = json_rows(
        wanted.select(*[F.col(quote(key)).alias(name) for name, key in zip(names, keys, strict=True)])
    )
    windows = windows_of(spec, dict(read.table_of(AggregateStage.TABLE).columns))
    same = " AND ".join(f"m.{quote(key)} <=> w.{quote(key)}" for key in keys)

    def of_group(rows: DataFrame) -> DataFrame:
        return rows.alias("m").join(F.broadcast(wanted).alias("w"), F.expr(same), "left_semi")

    current = read.read(AggregateStage.TABLE)
    counting = of_group(spread(current.where(f"{s.HASH} IS NOT NULL"), windows))
    rows = counting.count()
    own = CurrentRows.of(spec, Side.INPUT).keys
    recent = counting.orderBy(F.col(s.APPLIED_IN).desc(), *map(quote, own)).limit(MEMBERS_SHOWN)
    payload = [column.name for column in CurrentRows.of(spec, Side.INPUT).payload]
    found = json_rows(recent.select(*map(quote, own), s.OWNER, s.APPLIED_IN, *map(quote, payload)))
    members = tuple(
        Member({n: row[n] for n in own}, row[s.OWNER], row[s.APPLIED_IN], {n: row[n] for n in payload}) for row in found
    )
    outputs = [output.name for output in spec.outputs]
    block = spec.block_of(AggregateStage.AGGREGATED, read.table_of)
    now = of_group(sql_over({one.name: current for one in block.aliases}, block.of))
    there = of_group(read.read(AggregateStage.AGGREGATED))
    expected, result = (json_rows(one.select(*map(quote, outputs)).limit(1)) for one in (now, there))
    since = there.agg(F.max(s.BATCH)).first()

    def values(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        return {name: rows[0][name] for name in outputs} if rows else None

    return GroupStory(
        key=shown_key[0],
        members=members,
        rows=rows,
        touched_by=_touched_by(read, spec, lambda rows: of_group(spread(rows, windows))),
        result=values(result),
        written_in=None if since is None else since[0],
        expected=values(expected),
        is_current=_are_alike(values(expected), values(result), inexact(block, {AggregateStage.TABLE: current})),
        due=ledger.due.by_stage(),
        left_out=of_group(spread(_left_out(read, spec), windows)).count() if spec.input.where is not None else 0,
    )


def _touched_by(read: TableReader, spec: AggregateSpec, of_group: Callable[[DataFrame], DataFrame]) -> tuple[int, ...]:
    """Returns the batches of the changelog with a version of a row that counts in the group, or once did."""
    own = CurrentRows.of(spec, Side.INPUT).keys
    log = for_story(read.read(AggregateStage.CHANGELOG), spec.input).where(f"{quote(own[0])} IS NOT NULL")
    versions = with_content(log, spec, Side.INPUT, ISOLATING)
    members = of_group(versions.where(f"{s.HASH} IS NOT NULL")).select(*map(quote, own)).distinct()
    touched = log.join(members, own, "left_semi").select(s.BATCH).distinct().collect()
    return tuple(sorted(row[0] for row in touched))


def _are_alike(expected: Mapping[str, Any] | None, result: Mapping[str, Any] | None, loose: Collection[str]) -> bool:
    """Returns whether two rows have the same values, floating-point numbers up to the order of their sums.

    Other values of the columns `loose`, which depend on that order, are not compared.
    """
    if expected is None or result is None:
        return expected is result
    compared = [name for name in expected if name not in loose or isinstance(expected[name], float)]
    pairs = [(expected[name], result[name]) for name in compared]
    return all(_is_close(*pair) if isinstance(pair[0], float) else pair[0] == pair[1] for pair in pairs)


def _is_close(one: float, other: Any) -> bool:
    return one == other or (isinstance(other, float) and math.isclose(one, other, rel_tol=1e-9))


def _left_out(read: TableReader, spec: AggregateSpec) -> DataFrame:
    """Returns the current rows of the input that do not pass `where`, placed as the table has those that pass."""
    keys, gone = CurrentRows.of(spec, Side.INPUT).keys, read.read(AggregateStage.TABLE).where(f"{s.HASH} IS NULL")
    log = for_story(read.read(AggregateStage.CHANGELOG), spec.input).where(NOT_PASSING)
    whole = spec.model_copy(update={"input": spec.input.model_copy(update={"where": None})})
    current = gone.select(*map(quote, keys), F.col(s.OWNER).alias(s.BATCH))
    return with_content(log.join(current, [*keys, s.BATCH], "left_semi"), whole, Side.INPUT, ISOLATING)


def _wanted(read: TableReader, given: Mapping[str, str], columns: list[Column], keys: list[str]) -> DataFrame:
    """Returns one row with the key of a group.

    Raises:
        UsageError: a text is not a value of the type of its column.
    """
    values = [
        f"CAST(NULL AS {c.type})" if given[c.name] == NULL else value_from_text(given[c.name], c) for c in columns
    ]
    wanted = read.warehouse.session.range(1).selectExpr(
        *[f"{value} AS {quote(key)}" for value, key in zip(values, keys, strict=True)]
    )
    row = wanted.first()
    assert row is not None
    for column, key in zip(columns, keys, strict=True):
        if row[key] is None and given[column.name] != NULL:
            raise UsageError(f"{given[column.name]!r} is no {column.type}", where=f"group {column.name}")
    return wanted


def impact(_: TableReader, spec: AggregateSpec, *__: Any) -> NoReturn:
    """Refuses: an aggregate has no right side, whose changes concern many rows.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "impact tells how many rows of the result a change of a right row concerns, and an aggregate has no right side",
        where=str(spec.file),
        fix="fk-pipeline explain tells which rows count in a group",
    )
