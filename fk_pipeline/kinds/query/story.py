"""The story of a row of a query: what it is made of, down to the inputs; of a row that is not there, what took it out.

It is told over the versions that the blocks stand for, by the SQL of the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.blocks.hashing import with_row_hash
from fk_pipeline.blocks.landed_versions import newest_version
from fk_pipeline.blocks.refresh.facts import VERSIONS
from fk_pipeline.blocks.refresh.relations import Snapshot, columns_of_part, relations, row_key
from fk_pipeline.blocks.select.block import ROW, Block
from fk_pipeline.blocks.select.generators import shown_call
from fk_pipeline.blocks.select.lineage import columns_in, plain_read, sql_of_joined
from fk_pipeline.blocks.select.trees import conditions_in
from fk_pipeline.blocks.story import (
    COUNTING,
    Origin,
    PlaceOf,
    Story,
    StoryEvent,
    because,
    file_of,
    values_said,
)
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.contract import loaded
from fk_pipeline.errors import FkPipelineError, UsageError
from fk_pipeline.export import json_rows
from fk_pipeline.frames import sql_over
from fk_pipeline.identity import Side
from fk_pipeline.kinds.query.kind import RESULT
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.tables import layout_of
from fk_pipeline.spec import quote
from fk_pipeline.spec.clock import is_clock
from fk_pipeline.spec.inputs import CLOCK
from fk_pipeline.spec.keys import shown, value_from_text
from fk_pipeline.spec.load import load_spec
from fk_pipeline.spec.sql import DIALECT, Column
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import ABSENT, TableReader
from fk_pipeline.store.tables import StoredTables
from fk_pipeline.words import counted

SHOWN = 5
"""The most rows of a result, and of what one of them is made of, that a story tells."""


@dataclass(frozen=True)
class InputRow:
    """A row that a row of the result is made of, directly or through blocks.

    Attributes:
        block: the block that reads it.
        alias: what it is called there.
        relation: the input, or the block, that it is a row of.
        row: its columns that are read; None: a left join found none.
        batch: of a row of a pipeline's result, the batch that brought it; None if that is not known.
        file: and the landing file.
        more: the command that tells its story; empty for a row of a block, or of a table of somebody else.
    """

    block: str
    alias: str
    relation: str
    row: dict[str, Any] | None
    batch: int | None = None
    file: str = ""
    more: str = ""


@dataclass(frozen=True)
class RowStory:
    """One row of the result, and what it is made of.

    Attributes:
        row: the row.
        batch: the look at the inputs after which it was last written.
        made_of: the rows that it is made of; of a group, or of many, the first few.
        of: the number of joined rows that it is made of.
    """

    row: dict[str, Any]
    batch: int
    made_of: tuple[InputRow, ...]
    of: int


@dataclass(frozen=True)
class QueryStory(Story):
    """What is known of the rows of the result with some values.

    Attributes:
        key: the values.
        rows: the rows with them, the first few.
        missing: if there is none, the steps of the query and the number of rows that are left after each.
        due: the due batches per stage.
    """

    key: dict[str, str]
    rows: tuple[RowStory, ...]
    missing: tuple[tuple[str, str, int], ...] = ()
    due: dict[str, list[int]] = field(default_factory=dict)

    @property
    def as_expected(self) -> bool:
        """Whether each row is made of something, or the row that is not there would be made of nothing."""
        if self.rows:
            return all(row.of for row in self.rows)
        return any(not left for _, _, left in self.missing)

    @property
    def heading(self) -> str:
        """The name of the row."""
        return f"Row {','.join(f'{name}={value}' for name, value in self.key.items())}"

    def events(self) -> list[StoryEvent]:
        """Returns the rows that the result is made of, in the order of the query."""
        return [
            (row.batch or 0, f"{row.relation} as {row.alias}", values_said(row.row), row.file)
            for story in self.rows
            for row in story.made_of
        ]

    def sentences(self, place: PlaceOf = file_of) -> list[str]:
        """Returns the present state in sentences: the conclusion, then the rows, or the steps that leave none."""
        sentences = [self.concluded("has it" if self.rows else "has no such row")]
        sentences += [
            f"The result has {values_said(story.row)}, made of {counted(story.of, 'joined row')}; "
            f"written in batch {story.batch}."
            for story in self.rows
        ]
        for row in (row for story in self.rows for row in story.made_of):
            what = f"the row of {row.relation} as {row.alias} ({values_said(row.row)})"
            origin = None if row.batch is None else Origin(Side(row.relation), row.batch, row.file, None)
            sentences += because(what, origin, place)
        sentences += dict.fromkeys(f"More: {row.more}" for story in self.rows for row in story.made_of if row.more)
        return sentences + [f"{block}: {step}: {counted(left, 'row')} left." for block, step, left in self.missing]


def explain(read: TableReader, spec: QuerySpec, ledger: Ledger, text: str) -> QueryStory:
    """Returns the story of the rows of the result with some values.

    Args:
        read: the tables.
        spec: the pipeline.
        ledger: its ledger.
        text: `a=1,b=2` with columns of the result, or the value of `key` if that is one column.

    Raises:
        UsageError: the text names no columns of the result.
    """
    return _Telling(read, spec, ledger).story(text)


class _Telling:
    """Tells stories over the versions that each block stands for."""

    def __init__(self, read: TableReader, spec: QuerySpec, ledger: Ledger) -> None:
        self.read, self.spec, self.ledger = read, spec, ledger
        self.session: SparkSession = read.warehouse.session
        self.tables = {table.name: table for table in layout_of(self.session, spec).tables}
        self.others: dict[str, Callable[[dict[str, Any]], tuple[int | None, str, str]]] = {}

    def story(self, text: str) -> QueryStory:
        """Returns the story of the rows with some values."""
        dtypes = dict(self.tables[RESULT].columns)
        requested = _requested(text, self.spec)
        own = " AND ".join(_is(quote(name), value, dtypes[name]) for name, value in requested.items())
        stored = self.read.read(RESULT).where(own).orderBy(*map(quote, self.spec.blocks.columns)).limit(SHOWN)
        visible = json_rows(stored.select(*map(quote, self.spec.blocks.columns)))
        rows = [row.asDict() for row in stored.collect()]
        stories = []
        for row, values in zip(rows, visible, strict=True):
            number, made = self._made(RESULT, row)
            stories.append(RowStory(values, int(row["_fk_batch"]), tuple(made), number))
        missing = () if rows else tuple(self._missing(RESULT, requested))
        return QueryStory(requested, tuple(stories), missing, self.ledger.due.by_stage())

    def _snapshot(self, block: Block) -> Snapshot:
        """Returns what a block reads, at the versions in its last commit."""
        by_name = relations(self.spec, {n: self.tables[n] for n in block.relations if n in self.tables}, block)
        facts = self.read.about(block.name).metadata.get(VERSIONS) or {}
        places, versions = {}, {}
        for name in block.relations:
            place = self._place(name)
            versions[name] = int(facts[name][1]) if name in facts and place else ABSENT
            places[name] = facts[name][0] if name in facts and is_clock(place) else place
        return Snapshot(self.session, by_name, places, versions, self.read.limits.sizes)

    def _place(self, name: str) -> str:
        if name in self.tables:
            return self.read.warehouse.path(name)
        seen: Seen | None = newest_version(self.spec, self.ledger, Side(name))
        return "" if seen is None else seen.location

    def _made(self, name: str, row: Mapping[str, Any]) -> tuple[int, list[InputRow]]:
        """Returns the number of joined rows that a stored row of a block is made of, and the first few."""
        block = self.spec.blocks.block(name)
        at, keys = self._snapshot(block), {of: row[of] for of in self.tables[name].keys}
        parts = [self._made_in(block, number, at, keys) for number in range(len(block.parts))]
        return sum(number for number, _ in parts), [input_row for _, some in parts for input_row in some]

    def _made_in(self, block: Block, place: int, at: Snapshot, keys: Mapping[str, Any]) -> tuple[int, list[InputRow]]:
        """Returns the same of a part of a UNION ALL, given its place; other blocks have one part."""
        more = columns_of_part(self.spec, self.tables, block, place, at.relations)
        block = block.parts[place]
        frames = {alias.name: at.rows(alias.relation) for alias in block.aliases}
        fields = [[f"{quote(name)}.{quote(of)}" for of in rows.columns] for name, rows in frames.items()]
        columns = [f"STRUCT({', '.join(names)}) AS _of_{number}" for number, names in enumerate(fields)]
        own = [f"{sql} AS {of}" for of, sql in more.items()]
        joined = sql_over(frames, lambda tables: block.joined(tables, [*columns, *own]))
        if ROW in keys:
            joined = with_row_hash(joined, ROW, row_key(joined, block), "FALSE")
        for of, value in keys.items():
            joined = joined.where(joined[of].eqNullSafe(F.lit(value)))
        joined = joined.persist()
        try:
            number, some = joined.count(), [row.asDict() for row in joined.limit(SHOWN).collect()]
            shown_rows = [json_rows(joined.limit(SHOWN).select(f"_of_{n}.*")) for n in range(len(block.aliases))]
        finally:
            joined.unpersist()
        return number, [*self._input_rows(block, at, some, shown_rows)]

    def _input_rows(
        self, block: Block, at: Snapshot, rows: Sequence[Mapping[str, Any]], shown_rows: Sequence[Any]
    ) -> Iterator[InputRow]:
        """Yields the rows of each table in joined rows; in place of a row of a block, what that is made of."""
        for place, row in enumerate(rows):
            for number, alias in enumerate(block.aliases):
                stored, values = row[f"_of_{number}"].asDict(), shown_rows[number][place]
                relation = at.relations[alias.relation]
                if all(stored[key] is None for key in relation.keys):
                    yield InputRow(block.name, alias.name, alias.relation, None)
                elif alias.relation in self.tables:
                    yield from self._made(alias.relation, stored)[1]
                else:
                    yield self._origin(block, alias.name, alias.relation, values)

    def _origin(self, block: Block, alias: str, name: str, values: dict[str, Any]) -> InputRow:
        """Returns a row of an input, with the batch and file that brought it if a pipeline tells."""
        side = self.spec.inputs[name]
        if name in self.spec.clocks:
            values = {of: value for of, value in values.items() if of != CLOCK}
        if side.pipeline is None:
            return InputRow(block.name, alias, name, values)
        if name not in self.others:
            self.others[name] = _teller(self.session, self.spec, name)
        batch, file, more = self.others[name](values)
        return InputRow(block.name, alias, name, values, batch, file, more)

    # ------------------------------------------------------------------------------------------------ a row that is not
    def _missing(self, name: str, requested: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
        """Yields the steps of a block, each with the number of rows with some values that are left after it."""
        whole = self.spec.blocks.block(name)
        each = [[*self._missing_of(name, whole, part, requested)] for part in whole.parts]
        lacking = [steps for steps in each if any(not left for _, _, left in steps)]
        for steps in each if len(lacking) == len(each) else [steps for steps in each if steps not in lacking]:
            yield from steps

    def _missing_of(
        self, name: str, whole: Block, block: Block, requested: Mapping[str, str]
    ) -> Iterator[tuple[str, str, int]]:
        """Yields the same of a part of a UNION ALL, or of a block that is none."""
        at, dtypes = self._snapshot(whole), dict(self.tables[name].columns)
        frames = {alias.name: at.rows(alias.relation) for alias in block.aliases}
        of_values = [
            (_is(sql, value, dtypes[of]), {column.table for column in columns_in(block, sql)})
            for of, value in requested.items()
            if (sql := sql_of_joined(block, of)) is not None
        ]
        joined: set[str] = set()
        for number, alias in enumerate(block.aliases):
            joined.add(alias.name)
            conditions = [sql for sql, of in of_values if of <= joined]
            step = f"{alias.relation} as {alias.name}" if not number else f"joined to {alias.relation} as {alias.name}"
            if conditions:
                step += f", with {' and '.join(conditions)}"
            left = self._left(block, frames, number + 1, conditions)
            yield name, step, left
            if not left:
                yield from self._missing_in(alias.relation, block, requested)
                return
        for number, lateral in enumerate(block.laterals, start=len(block.aliases) + 1):
            joined.add(lateral.alias)
            conditions = [sql for sql, of in of_values if of <= joined]
            left = self._left(block, frames, number, conditions)
            shown_conditions = f", with {' and '.join(conditions)}" if conditions else ""
            yield name, f"rows that {shown_call(lateral)} makes as {lateral.alias}{shown_conditions}", left
            if not left:
                return
        conditions = [sql for sql, _ in of_values]
        for condition in (tree.sql(DIALECT) for tree in conditions_in(block.tree)):
            conditions.append(condition)
            left = self._left(block, frames, len(block.aliases) + len(block.laterals), conditions)
            yield name, f"where {condition}", left
            if not left:
                return
        after = [
            condition for condition in (block.having(), block.keep.where if block.keep is not None else "") if condition
        ]
        if after:
            yield name, f"of the {block.unit} {' and '.join(after)}", 0

    def _missing_in(self, relation: str, block: Block, requested: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
        """Yields the steps of an earlier block that lacks a row, if the values are those of its columns."""
        if relation not in self.tables:
            return
        columns = {of.lower(): of for of in self.spec.blocks.block(relation).columns}
        inner = {}
        for of, value in requested.items():
            plain = plain_read(block, of)
            if plain is not None and plain[0] == relation:
                inner[columns[plain[1].lower()]] = value
        if inner:
            yield from self._missing(relation, inner)

    def _left(self, block: Block, frames: Mapping[str, DataFrame], number: int, conditions: Sequence[str]) -> int:
        """Returns the number of rows of the first tables of a block that meet some conditions."""
        some = {alias.name: frames[alias.name] for alias in block.aliases[:number]}
        rows = sql_over(some, lambda tables: block.first(tables, number, conditions))
        return rows.limit(1_000_000).count()


def _requested(text: str, spec: QuerySpec) -> dict[str, str]:
    """Returns columns of the result with values as text.

    Raises:
        UsageError: the text names no columns of the result.
    """
    names = {name.lower(): name for name in spec.blocks.columns}
    starts = [*re.finditer(rf"(?:^|,)\s*({'|'.join(map(re.escape, names))})=", text, re.IGNORECASE)]
    if starts and starts[0].start() == 0:
        ends = [*(match.start() for match in starts[1:]), len(text)]
        return {names[match[1].lower()]: text[match.end() : end] for match, end in zip(starts, ends, strict=True)}
    if len(spec.key) == 1:
        return {spec.key[0]: text}
    example = ",".join(f"{name}=..." for name in spec.key or spec.blocks.columns[:2])
    raise UsageError(f"--key: {text!r} names no columns of the result", fix=f"--key {example}")


def _is(sql: str, value: str, dtype: str) -> str:
    """SQL (BOOLEAN): a value, given as text, is that of an expression; `null` is null."""
    if value == "null":
        return f"{sql} IS NULL"
    return f"{sql} = {value_from_text(value, Column('value', dtype))}"


def _teller(
    session: SparkSession, spec: QuerySpec, name: str
) -> Callable[[dict[str, Any]], tuple[int | None, str, str]]:
    """Returns a function from a row of an input to the batch and file that brought it, and the command for more."""
    other = load_spec(spec.file.parent / str(spec.inputs[name].pipeline))
    stored = StoredTables(session, other.home)
    layout = loaded(other.definition.layout)(session, other)
    ledger = Ledger(other.home, other.definition)

    def origin(row: dict[str, Any]) -> tuple[int | None, str, str]:
        keys = {of: row.get(of) for of, _, _ in other.result_key_outputs()}
        text = shown(keys)
        more = f"fk-pipeline explain {other.file} --key '{text}'"
        try:
            with TableReader(stored, layout.tables) as read:
                story: Story = loaded(other.definition.explain)(read, other, ledger, text)
        except FkPipelineError:
            return None, "", more
        events = story.events()
        counting = [event for event in events if event[1].endswith(COUNTING)] or events[-1:]
        batch, _, _, landed = counting[-1] if counting else (None, "", "", "")
        return batch, landed, more

    return origin
