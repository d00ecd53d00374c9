"""The story of one group, as data and in words: which rows count in it, and which batches moved it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import for_story, with_content
from fk_pipeline.blocks.current import CurrentRows
from fk_pipeline.blocks.left_out import DO_NOT_PASS, DOES_NOT_PASS, NOT_PASSING
from fk_pipeline.blocks.refresh.exactness import inexact
from fk_pipeline.blocks.story import (
    JsonRow,
    Origin,
    PlaceOf,
    ResultStory,
    StoryEvent,
    because,
    by_batch,
    file_of,
    values_said,
)
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
from fk_pipeline.spec.places import relative
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.words import counted

NULL = "null"
"""The text of a group without a value."""

MEMBERS_SHOWN = 20
"""The largest number of rows of a group that its story has."""

ORIGINS_SAID = 3
"""The most rows of a group whose landing file and line are told."""


@dataclass(frozen=True)
class Member:
    """A row that counts in the group now: its key, the batch that brought it, and what the aggregates read of it.

    `file` is the landing file, None if the changelog does not have the row any more.
    """

    key: JsonRow
    batch: int
    applied_in: int
    values: JsonRow
    file: str | None = None


@dataclass(frozen=True)
class GroupStory(ResultStory):
    """A group, or window of a group: its rows, and the row of the result.

    Attributes, besides those of `ResultStory`:
        key: its key.
        members: rows that count in it, those that changed last first; at most `MEMBERS_SHOWN`.
        rows: the number of rows that count in it.
        touched_by: the batches that brought a version of a row that counts in it, or once did.
        is_current: whether the result has the row that it must have by the rows of the table.
        left_out: the number of rows of the input that would count in it and do not pass `where`.
    """

    key: JsonRow
    members: tuple[Member, ...]
    rows: int
    touched_by: tuple[int, ...]
    result: JsonRow | None
    written_in: int | None
    expected: JsonRow | None
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

    def events(self) -> list[StoryEvent]:
        """Returns the rows that count and the batches that touched the group, by batch."""
        rows = [
            (member.applied_in, "row", f"{shown(member.key)}: {values_said(member.values)}", member.file or "")
            for member in self.members
        ]
        return by_batch([*rows, *((batch, "touched", "", "") for batch in self.touched_by)])

    def sentences(self, place: PlaceOf = file_of) -> list[str]:
        """Returns the present state in sentences: the conclusion, the row, the rows that count in it."""
        many = "" if self.rows == len(self.members) else f", of which {len(self.members)} are shown"
        sentences = [self.concluded(self.has)]
        sentences += [] if self.result is None else [f"{values_said(self.result)}."]
        sentences.append(f"{counted(self.rows, 'row counts', 'rows count')} in it{many}.")
        if self.left_out:
            sentences.append(f"{counted(self.left_out, f'row of it {DOES_NOT_PASS}', f'rows of it {DO_NOT_PASS}')}.")
        if self.rows and self.expected is None:
            sentences.append("`having` keeps it out of the result.")
        newest = self.members[:ORIGINS_SAID]
        origins = [Origin(Side.INPUT, member.batch, member.file or "", member.key) for member in newest]
        of_rows = [because(f"row {shown(origin.key)}", origin, place) for origin in origins]
        return [*sentences, *(line for lines in of_rows for line in lines)]


def explain(read: TableReader, spec: AggregateSpec, ledger: Ledger, text: str) -> GroupStory:
    """Returns the story of a group, said as `service=a,level=b`, with windows also `window_start=...`; `null` is null.

    A column has the name that `select` gives it.

    Raises:
        UsageError: the text is not the key of a group.
    """
    keys, types = k.group_key(spec), dict(read.about(AggregateStage.AGGREGATED).declared.columns)
    parts = [Column(name, types[key]) for name, key in zip(k.shown_keys(spec), keys, strict=True)]
    given = parse_columns_of_key(text, parts)
    values = [f"CAST(NULL AS {c.type})" if given[c.name] == NULL else value_from_text(given[c.name], c) for c in parts]
    same = " AND ".join(f"{quote(key)} <=> {value}" for key, value in zip(keys, values, strict=True))
    key = _key(read, given, values, parts)
    windows = windows_of(spec, dict(read.about(AggregateStage.TABLE).declared.columns))

    def of_group(rows: DataFrame) -> DataFrame:
        return spread(rows, windows).where(same)

    current = read.read(AggregateStage.TABLE)
    counting = of_group(current.where(f"{s.HASH} IS NOT NULL"))
    outputs = [quote(output.name) for output in spec.outputs]
    block = spec.block_of(AggregateStage.AGGREGATED, read.table_of)
    now = sql_over({alias.name: current for alias in block.aliases}, block.of).where(same)
    stored = read.read(AggregateStage.AGGREGATED).where(same)
    expected, result = (next(iter(json_rows(frame.select(*outputs).limit(1))), None) for frame in (now, stored))
    since = stored.agg(F.max(s.BATCH)).first()
    return GroupStory(
        key=key,
        members=_members(read, spec, counting),
        rows=counting.count(),
        touched_by=_touched_by(read, spec, of_group),
        result=result,
        written_in=None if since is None else since[0],
        expected=expected,
        is_current=_are_alike(expected, result, inexact(block, {AggregateStage.TABLE: current})),
        due=ledger.due.by_stage(),
        left_out=of_group(_left_out(read, spec)).count() if spec.input.where is not None else 0,
    )


def _members(read: TableReader, spec: AggregateSpec, counting: DataFrame) -> tuple[Member, ...]:
    """Returns rows that count in the group, those that changed last first, given all of them."""
    own = CurrentRows.of(spec, Side.INPUT).keys
    payload = [column.name for column in CurrentRows.of(spec, Side.INPUT).payload]
    order = [F.col(s.APPLIED_IN).desc(), *(F.col(quote(name)) for name in own)]
    recent = counting.orderBy(*order).limit(MEMBERS_SHOWN)
    rows = recent.select(*map(quote, own), s.OWNER, s.APPLIED_IN, *map(quote, payload))
    log = read.read(AggregateStage.CHANGELOG).where(f"{quote(own[0])} IS NOT NULL")
    landed = log.select(*map(quote, own), F.col(s.BATCH).alias(s.OWNER), s.FILE)
    return tuple(
        Member(
            key={n: row[n] for n in own},
            batch=row[s.OWNER],
            applied_in=row[s.APPLIED_IN],
            values={n: row[n] for n in payload},
            file=None if row[s.FILE] is None else relative(spec, row[s.FILE]),
        )
        for row in json_rows(rows.join(landed, [*own, s.OWNER], "left").orderBy(*order))
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
    return all(
        value == result[name]
        or (isinstance(value, float) and isinstance(result[name], float) and math.isclose(value, result[name]))
        for name, value in expected.items()
        if name not in loose or isinstance(value, float)
    )


def _left_out(read: TableReader, spec: AggregateSpec) -> DataFrame:
    """Returns the current rows of the input that do not pass `where`, placed as the table has those that pass."""
    keys, gone = CurrentRows.of(spec, Side.INPUT).keys, read.read(AggregateStage.TABLE).where(f"{s.HASH} IS NULL")
    log = for_story(read.read(AggregateStage.CHANGELOG), spec.input).where(NOT_PASSING)
    whole = spec.model_copy(update={"input": spec.input.model_copy(update={"where": None})})
    current = gone.select(*map(quote, keys), F.col(s.OWNER).alias(s.BATCH))
    return with_content(log.join(current, [*keys, s.BATCH], "left_semi"), whole, Side.INPUT, ISOLATING)


def _key(read: TableReader, given: Mapping[str, str], values: list[str], parts: list[Column]) -> JsonRow:
    """Returns the key of a group.

    Raises:
        UsageError: a text is not a value of the type of its column.
    """
    selected = [f"{value} AS {column.quoted}" for value, column in zip(values, parts, strict=True)]
    [row] = json_rows(read.warehouse.session.range(1).selectExpr(*selected))
    for column in parts:
        if row[column.name] is None and given[column.name] != NULL:
            raise UsageError(f"{given[column.name]!r} is no {column.type}", where=f"group {column.name}")
    return row
