"""The rows of the result that changed last, and the story of each: why it is as it is. Read without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypedDict

import pyarrow as pa

from fk_pipeline.arrow_text import json_lines
from fk_pipeline.blocks.story import Story
from fk_pipeline.conditions import ListTest
from fk_pipeline.contract import loaded
from fk_pipeline.errors import FkPipelineError, LeftToSpark
from fk_pipeline.feed import CHANGE, DELETE, TIME
from fk_pipeline.feed_in_process import of_commit, schema_of_changes
from fk_pipeline.identity import BatchRange
from fk_pipeline.privacy import message_of
from fk_pipeline.readable import ReadablePipeline, answer_in_process
from fk_pipeline.reads import stored
from fk_pipeline.report.tokens import Tokens
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger.commits import Commit, commits
from fk_pipeline.store.rows_in_process import HeldRows, InProcessTable, NoRows, Relation, RowRequest, leaving_errors

HELD_BYTES = 16 * 2**20
"""The size of a table up to which it is read whole, once, for all stories."""

TEXT_CHARACTERS = 300
"""The most characters of a value that are told."""

EVENTS_SHOWN = 40
"""The most events of a story that are told, the newest."""

WRITTEN = "written"
"""The change of a row of a commit whose changes only Spark reads: it wrote the row."""


class StoryFacts(TypedDict):
    """The story of a row, in words.

    Attributes:
        heading: what it is about.
        events: per event its batch, what it is, what it says, and the landing file.
        earlier: how many events before these are left out.
        note: the meaning of the mark in the events.
        sentences: how it stands now; the first one says whether the row is there, and why.
    """

    heading: str
    events: list[list[str | int]]
    earlier: int
    note: str
    sentences: list[str]


class RowFacts(TypedDict):
    """A row of the result that changed.

    Attributes:
        key: the key by which `explain` is asked for it; None: of a kind whose stories only Spark tells.
        change: `insert`, `update` or `delete`; or `written`: which of these is not known.
        batch: the batch of the change; None of a row that one of several batches of a run removed.
        at: when it was committed; None: not known.
        values: the columns of the result as text; None is null. Of a removed row what it was.
        story: why it is as it is now; None: left out.
    """

    key: str | None
    change: str
    batch: int | None
    at: str | None
    values: dict[str, str | None]
    story: StoryFacts | None


class ChangedRows(TypedDict):
    """The rows that changed last, the newest first; `stories`: how many of them have one; `ask`: for others."""

    rows: list[RowFacts]
    stories: int
    ask: str


@dataclass(frozen=True)
class Taking:
    """How many rows are told at most, and until when (`time.monotonic`) rows and stories are read."""

    rows: int
    until: float

    @property
    def is_over(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() > self.until


def changed_rows(pipeline: ReadablePipeline, taking: Taking, left_out: list[str]) -> ChangedRows:
    """Returns the rows that changed last.

    Args:
        pipeline: the pipeline.
        taking: how many, and until when.
        left_out: takes sentences about what is left out.
    """
    spec, tokens = pipeline.spec, Tokens(pipeline.spec, pipeline.ledger())
    rows: list[RowFacts] = []
    raw: list[str | None] = []
    half = Taking(taking.rows, time.monotonic() + (taking.until - time.monotonic()) / 2)
    reference = spec.definition.key_of_row
    key_of: Callable[[Any, Any], str] | None = loaded(reference) if reference else None
    outputs = [output.name for output in spec.outputs]
    for row, change, at in _changes(pipeline, half, left_out):
        masked = tokens.row(row)
        raw.append(None if key_of is None else key_of(spec, row))
        rows.append(
            {
                "key": None if key_of is None else key_of(spec, masked),
                "change": change,
                "batch": row[s.BATCH],
                "at": at,
                "values": {name: as_text(masked[name]) for name in outputs},
                "story": None,
            }
        )
    if raw and key_of is None:
        left_out.append(f"Stories of rows are left out: those of kind {spec.kind} are told by Spark.")
    elif raw:
        _tell(pipeline, rows, [str(key) for key in raw], taking, tokens, left_out)
    stories = sum(row["story"] is not None for row in rows)
    return {"rows": rows, "stories": stories, "ask": f"fk-pipeline explain {spec.file} --key KEY"}


def as_text(value: Any) -> str | None:
    """Returns a value of JSON as text, shortened if it is long; None stays None."""
    text = value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text is None or len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]}…"


def _changes(
    pipeline: ReadablePipeline, taking: Taking, left_out: list[str]
) -> Iterator[tuple[dict[str, Any], str, str | None]]:
    """Yields rows of the result with the kind and the time of their last change, the newest first, each key once."""
    spec, kind = pipeline.spec, pipeline.spec.definition
    path, number, seen = f"{spec.home}/{kind.result.name}", 0, set[str]()
    try:
        pipeline.check_fingerprints()
        pipeline.refuse_unfinished()
        pipeline.refuse_never_run()
        version, table = _result(pipeline, path)
        if table is None:
            return
        keys = loaded(kind.keys)(spec, kind.result.name).keys
        for commit in commits(path, range(version, -1, -1)):
            if commit.stage != kind.result_stage or not commit.batches:
                continue
            if taking.is_over:
                left_out.append(f"Changed rows beyond the newest {number:,} are left out: reading them takes long.")
                return
            for row in _of_commit(pipeline, table, commit, taking.rows):
                key = json.dumps([row[name] for name in keys])
                if key not in seen:
                    seen.add(key)
                    number += 1
                    yield row, row.pop(CHANGE), row.pop(TIME)
                if number == taking.rows:
                    left_out.append(f"Of the rows that changed, the newest {number:,} are told.")
                    return
    except LeftToSpark as error:
        left_out.append(f"Rows that changed are left out, or some of them: {error}.")
    except FkPipelineError:  # the state of the pipeline says it
        return


def _result(pipeline: ReadablePipeline, path: str) -> tuple[int, InProcessTable | None]:
    """Returns the version of the result, and its rows; None if there is no table.

    Raises:
        LeftToSpark: only Spark can read it.
    """
    if "://" in path:
        raise LeftToSpark("the result is not on a disk")
    logs = pipeline.ledger().logs
    return logs.version(path) or 0, InProcessTable.of(logs, path, pipeline.sizes)


def _of_commit(pipeline: ReadablePipeline, table: InProcessTable, commit: Commit, most: int) -> list[dict[str, Any]]:
    """Returns rows that a commit changed, as JSON; if only Spark reads its changes, rows that it wrote.

    A removed row has the batch that removed it; None if it was one of several.
    """
    spec, name = pipeline.spec, pipeline.spec.definition.result.name
    layout = loaded(spec.definition.declared_layout)(spec)
    names, path = layout[name].names, f"{spec.home}/{name}"
    schema = schema_of_changes(table, names)
    batches = BatchRange.parse(commit.batches)
    try:
        with leaving_errors():
            rows = of_commit(path, layout, name, commit, None, schema, pipeline.sizes)
        newest = rows.slice(max(0, len(rows) - most))
    except LeftToSpark:
        known = [int(batch) for batch in pipeline.ledger().batches if batch in batches]
        of_run = [ListTest(s.BATCH, pa.array(known, table.schema.field(s.BATCH).type))]
        newest = _written(table.read(RowRequest(names, of_run, limit=most)), schema)
    changes = [json.loads(line) for line in json_lines(newest, hexadecimal=True)]
    remover = int(batches.first) if batches.is_single else None
    return [row | {s.BATCH: remover} if row[CHANGE] == DELETE else row for row in reversed(changes)]


def _written(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns rows of the result as changes of which only the time is known, if any."""
    at = rows[s.CHANGED_AT] if s.CHANGED_AT in rows.column_names else pa.nulls(len(rows), schema.field(TIME).type)
    added = [
        pa.repeat(pa.scalar(WRITTEN), len(rows)),
        pa.nulls(len(rows), pa.int64()),
        at.cast(schema.field(TIME).type),
    ]
    return pa.Table.from_arrays([*added, *rows.columns], schema=schema)


def _tell(
    pipeline: ReadablePipeline,
    rows: list[RowFacts],
    keys: list[str],
    taking: Taking,
    tokens: Tokens,
    left_out: list[str],
) -> None:
    """Tells the stories of rows, as many as there is time for."""
    spec = pipeline.spec
    tables, why, concealed = cache(partial(_opened, pipeline)), dict[str, int](), 0
    for i, (row, key) in enumerate(zip(rows, keys, strict=True)):
        if taking.is_over:
            left_out.append(f"The stories of {len(rows) - i:,} rows are left out: telling them takes long.")
            break
        try:
            story = tokens.story(answer_in_process(pipeline, spec.definition.explain_in_process, key, tables=tables))
            row["story"] = None if story is None else _in_words(story)
        except Exception as error:  # noqa: BLE001 - whatever ends the story of one row, the others are told
            reason = _reason(error, spec)
            why[reason] = why.get(reason, 0) + 1
            if isinstance(error, LeftToSpark) and why[reason] == i + 1 >= 3:
                why[reason] = len(rows)
                break  # it is the same for all
            continue
        concealed += story is None
    left_out += [f"The stories of {number:,} rows are left out: {reason}." for reason, number in why.items()]
    if concealed:
        left_out.append(f"The stories of {concealed:,} rows are left out: they quote sensitive values.")


def _reason(error: Exception, spec: PipelineSpec) -> str:
    """Returns why a story is left out; without the key that an error of ours may name, if it may be sensitive."""
    if isinstance(error, LeftToSpark):
        return str(error)
    hides = spec.has_sensitive and isinstance(error, FkPipelineError)
    return "it cannot be told" if hides else message_of(error, spec)


def _in_words(story: Story) -> StoryFacts:
    events: list[list[str | int]] = [[*event] for event in story.events()]
    return {
        "heading": story.heading,
        "events": events[-EVENTS_SHOWN:],
        "earlier": max(0, len(events) - EVENTS_SHOWN),
        "note": story.note,
        "sentences": story.sentences(),
    }


def _opened(pipeline: ReadablePipeline, name: str) -> Relation:
    """Returns the stored rows of a table for all stories; a small table is in memory."""
    rows = stored(pipeline.spec, pipeline.sizes, name)
    if isinstance(rows, NoRows) or pipeline.ledger().logs.bytes(f"{pipeline.spec.home}/{name}") > HELD_BYTES:
        return rows
    return HeldRows(rows.read(RowRequest(rows.schema.names)))
