"""The story of a right key in an outer join: its versions, the left rows that have it, and whether it stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import Origin, Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.evidence import names_key, quarantined_of, versions_of
from fk_pipeline.kinds.foreign_key.proof import expected as expected_join
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.story import (
    Compared,
    JsonRow,
    Quarantined,
    Version,
    events_of,
    result_said,
    wrong_said,
)
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import is_key, shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader

OF_RIGHT = "right."
"""The prefix of a right key where a key of either side may stand."""


@dataclass(frozen=True)
class AloneStory(Compared):
    """All stored facts about a right key in an outer join.

    Attributes:
        right_key: the key.
        right: its versions, oldest first, and the truncates of the right source.
        quarantined: lines of the right side that name the key, and records of its row.
        referring: the number of left rows that refer to it, by the subscription store.
        joined: the number of rows of the result that have its row and a left row.
        example: the left key of one of these; None if there are none.
        result: the row of the result without a left row; None if there is none.
        written_in: the batch of the last change of that row.
        written_at: the time at which it was written.
        expected: that row of the join computed now; None if there is none.
        due: the due batches per stage.
        conclusion: the reason why the right row stands alone, or does not.
    """

    right_key: JsonRow
    right: tuple[Version, ...]
    quarantined: tuple[Quarantined, ...]
    referring: int
    joined: int
    example: JsonRow | None
    result: JsonRow | None
    written_in: int | None
    written_at: str | None
    expected: JsonRow | None
    due: dict[str, list[int]]
    conclusion: str

    @property
    def heading(self) -> str:
        """The name of the row that the story is about."""
        return f"Right row {shown(self.right_key)}"

    @property
    def note(self) -> str:
        """The meaning of a mark in the events; empty if none is marked."""
        return "* the version that counts" if self.right else ""

    def events(self) -> list[tuple[int, str, str, str]]:
        """Returns the events in the order of their batches: batch, kind of event, content, landing file."""
        return events_of((), self.right, self.quarantined)

    def sentences(self) -> list[str]:
        """Returns the present state in sentences, the conclusion last."""
        example = f", for example that of left row {shown(self.example)}" if self.example else ""
        return [
            f"Left rows that refer to it: {self.referring:,}; rows of the result with it: {self.joined:,}{example}",
            *result_said(self.result, self.written_in, self.written_at, self.expected, self.due),
            self.conclusion,
        ]


def explain_alone(read: TableReader, spec: ForeignKeySpec, ledger: Ledger, key: Mapping[str, str]) -> AloneStory:
    """Returns the story of a right key.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline, an outer join.
        ledger: its ledger.
        key: the key columns with their values as text.
    """
    try:
        return _story(read, spec, ledger, key)
    finally:
        read.release()


def _story(read: TableReader, spec: ForeignKeySpec, ledger: Ledger, key: Mapping[str, str]) -> AloneStory:
    own, in_state = is_key(key, spec.right), is_key(key, spec.right, k.fk)
    pks = [name for name, _ in k.pk_columns(spec)]
    truncates = F.col(spec.right.key_columns[0].quoted).isNull()
    right_log = read.read(k.RIGHT_CHANGELOG).where(F.expr(own) | truncates)
    right_log = read.cached(with_content(right_log, spec, Side.RIGHT), None).frame
    referring = read.read(k.SUBSCRIPTION_STORE).where(in_state).where(f"{s.HASH} IS NOT NULL")
    rows = read.cached(read.read(k.RESOLVED_JOIN).where(in_state), None).frame
    joined = rows.where(f"{k.has_left(spec)} AND {s.RIGHT_HASH} IS NOT NULL")
    lefts = referring.select(*map(quote, pks)).unionByName(joined.select(*map(quote, pks))).distinct()
    names = [output.name for output in spec.outputs]
    stored = next(iter(json_rows(rows.where(f"NOT {k.has_left(spec)}"))), None)
    result = {name: stored[name] for name in names} if stored else None
    expected = _expected(read, spec, lefts, right_log)
    example = next(iter(json_rows(joined.select(*map(quote, pks)).limit(1))), None)
    due = ledger.due.by_stage()
    right = versions_of(right_log, spec, Side.RIGHT)
    named = key_row(read.warehouse.session, key, spec.right)
    left_key = None if example is None else {c.name: example[k.pk(c.name)] for c in spec.left.key_columns}
    quarantined = quarantined_of(read, spec, {Origin.RIGHT: names_key(named), Origin.JOIN: in_state})
    return AloneStory(
        right_key=named,
        right=right,
        quarantined=quarantined,
        referring=referring.count(),
        joined=joined.count(),
        example=left_key,
        result=result,
        written_in=stored[s.BATCH] if stored else None,
        written_at=stored[s.CHANGED_AT] if stored else None,
        expected=expected,
        due=due,
        conclusion=_conclusion(result, expected, _why(right, left_key, expected), due, spec),
    )


def _expected(read: TableReader, spec: ForeignKeySpec, lefts: DataFrame, right_log: DataFrame) -> JsonRow | None:
    """Returns the row without a left row that the join computed now has; None if it has none."""
    keys = [c.name for c in spec.left.key_columns]
    log = read.read(k.LEFT_CHANGELOG)
    of_keys = log.join(lefts.toDF(*keys), keys, "left_semi")
    left_log = of_keys.unionByName(log.where(F.col(quote(keys[0])).isNull()))
    logs = {spec.definition.input(Side.LEFT).log: left_log, spec.definition.input(Side.RIGHT).log: right_log}
    rows = expected_join(logs, spec, isolating=True)
    alone = rows.where(f"NOT {k.has_left(spec)}")
    found = json_rows(alone.select(*[quote(output.name) for output in spec.outputs]))
    return next(iter(found), None)


def _why(right: tuple[Version, ...], example: JsonRow | None, expected: JsonRow | None) -> str:
    """Returns one sentence that explains the row by the current version of the right row."""
    if all(version.key is None for version in right):
        return "no batch has brought this right key."
    last = right[-1]
    if last.deleted:
        what = "truncates the right table" if last.key is None else "deletes the right row"
        return f"batch {last.batch} {what}, and nothing newer has come."
    row = f"the right row of batch {last.batch}"
    if expected is not None:
        return f"no left row has {row}."
    if example is not None:
        return f"left row {shown(example)} has {row}."
    return f"a left row refers to {row}, or an expression of select fails on it."


def _conclusion(
    result: JsonRow | None, expected: JsonRow | None, why: str, due: Mapping[str, object], spec: ForeignKeySpec
) -> str:
    if result == expected:
        return f"The right row {'stands alone' if result is not None else 'does not stand alone'} in the result: {why}"
    if due:
        return f"The result differs from the join, and work is due that may explain it: {why}"
    return wrong_said("the result differs from the join", why, spec)
