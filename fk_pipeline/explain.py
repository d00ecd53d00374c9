"""The story of one left key: what every batch brought, what was asked and answered, and why the result is as it is.

Read from the tables as they stand: versions of the left row and of the right rows that it ever referred to, the
answers with their verdicts, the row of the result, and the join of both changelogs computed now. `docs/reference/
command.md`, explain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import Side, Stage
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import is_key, parse_key, shown
from fk_pipeline.stages import resolved_join as verdicts
from fk_pipeline.stages.runner import Runner
from fk_pipeline.tables import schemas as s
from fk_pipeline.verify.rejoin import expected_join

Row = dict[str, Any]

_WHY = {
    verdicts.JOINED: "written to the result",
    verdicts.HALF_JOINED: "written to the result without a right row",
    verdicts.RETRACTED: "taken out of the result",
    verdicts.UNCHANGED: "the result said so already",
    verdicts.STALE_LEFT: "dropped: by then the left row was another version",
    verdicts.STALE_RIGHT: "dropped: by then the right row was another version",
    verdicts.REWRITTEN: "dropped: the batch of the left row had been read anew",
    verdicts.QUARANTINED: "an expression of select fails on the two rows: see the quarantine",
}


@dataclass(frozen=True)
class Version:
    """One version of a row, as a batch brought it.

    Attributes:
        batch: the batch.
        key: of the row; None for a truncate.
        sequence: the source's order.
        op: what the source did.
        deleted: it is a tombstone.
        row: its columns; None for a tombstone.
        refers_to: of a left row, the right key; None where it has none.
        hash: hexadecimal; None for a tombstone.
        file: the landing file.
        current: it is the version that counts.
    """

    batch: int
    key: Row | None
    sequence: Row
    op: str
    deleted: bool
    row: Row | None
    refers_to: Row | None
    hash: str | None
    file: str | None
    current: bool


@dataclass(frozen=True)
class Answer:
    """One answer to the key, and what became of it; `verdict` is None while it is not resolved."""

    batch: int
    cause: str
    instruction: str | None
    refers_to: Row | None
    left_hash: str | None
    right_hash: str | None
    verdict: str | None
    why: str


@dataclass(frozen=True)
class Story:
    """Everything that is known of a left key.

    Attributes:
        key: the key.
        left: its versions, oldest first, and the truncates of the left source.
        right: those of the right rows that it ever referred to, and the truncates of the right source.
        answers: what it was answered, by batch.
        subscription: its row of the subscription store.
        result: its row of the result; None if there is none.
        expected: that of the join computed now.
        due: per stage the batches that are due.
        conclusion: why the row is there, or is not.
    """

    key: Row
    left: tuple[Version, ...]
    right: tuple[Version, ...]
    answers: tuple[Answer, ...]
    subscription: Row | None
    result: Row | None
    expected: Row | None
    due: dict[str, list[int]]
    conclusion: str

    @property
    def as_expected(self) -> bool:
        """The result has the row that the join has."""
        return self.result == self.expected

    def as_json(self) -> Row:
        """For machines."""
        return {**asdict(self), "as_expected": self.as_expected}


def explain(runner: Runner, said: str) -> Story:
    """The story of a left key.

    Args:
        runner: of the pipeline.
        said: the key, as `parse_key` takes it.

    Raises:
        UsageError: it is no key of the left side.
    """
    return _Explained(runner, parse_key(said, runner.spec.left)).story()


class _Explained:
    """What the tables say of a key; each is read once."""

    def __init__(self, runner: Runner, key: Mapping[str, str]) -> None:
        self.runner, self.spec = runner, runner.spec
        self.own = is_key(key, self.spec.left)
        self.key = key_row(runner.session, key, self.spec.left)
        self._in_state = is_key(key, self.spec.left, s.pk)

    def story(self) -> Story:
        rows = json_rows(self._of_key(s.RESOLVED_JOIN).select(*[quote(o.name) for o in self.spec.outputs]))
        joined = expected_join(self._log(Side.LEFT), self._log(Side.RIGHT), self.spec, careful=True)
        again = json_rows(joined.select(*[quote(o.name) for o in self.spec.outputs]))
        result, expected = rows[0] if rows else None, again[0] if again else None
        due = {stage.value: [*map(int, found)] for stage in Stage if (found := self.runner.ledger.due(stage))}
        store = json_rows(self._of_key(s.SUBSCRIPTION_STORE))
        return Story(
            key=self.key,
            left=self.left,
            right=self.right,
            answers=self.answers,
            subscription=store[0] if store else None,
            result=result,
            expected=expected,
            due=due,
            conclusion=self._conclusion(result, expected, bool(due)),
        )

    def _of_key(self, table: str) -> DataFrame:
        """The rows of a state table with the key."""
        return self._table(table).where(self._in_state)

    def _table(self, name: str) -> DataFrame:
        table = self.runner.layout.table(name)
        assert table is not None
        return self.runner.warehouse.read(table)

    def _log(self, side: Side) -> DataFrame:
        """The rows of a changelog that concern the key, truncates among them."""
        log = self._table(s.LEFT_CHANGELOG if side is Side.LEFT else s.RIGHT_CHANGELOG)
        first = F.col(self.spec.side(side).key_columns[0].quoted)
        if side is Side.LEFT:
            return log.where(F.expr(self.own) | first.isNull())
        fks = [name for name, _ in s.fk_columns(self.spec)]
        referred = self._table(s.LEFT_CHANGELOG).where(self.own).select(*map(quote, fks)).distinct()
        wanted = referred.toDF(*[c.name for c in self.spec.right.key_columns])
        names = [c.name for c in self.spec.right.key_columns]
        return log.join(F.broadcast(wanted), names, "left_semi").unionByName(log.where(first.isNull()))

    @cached_property
    def left(self) -> tuple[Version, ...]:
        """The versions of the left row."""
        return self._versions(Side.LEFT)

    @cached_property
    def right(self) -> tuple[Version, ...]:
        """The versions of the right rows."""
        return self._versions(Side.RIGHT)

    def _versions(self, side: Side) -> tuple[Version, ...]:
        side_spec, log = self.spec.side(side), self._log(side)
        # A truncate comes before the rows of its batch and sequence.
        rows = json_rows(log.orderBy(s.SEQUENCE, s.BATCH, F.col(side_spec.key_columns[0].quoted).isNotNull()))
        fks = [name for name, _ in s.fk_columns(self.spec)] if side is Side.LEFT else []
        keys = [c.name for c in side_spec.key_columns]
        versions = [
            Version(
                batch=row[s.BATCH],
                key=None if row[keys[0]] is None else {name: row[name] for name in keys},
                sequence=row[s.SEQUENCE],
                op=row[s.OP],
                deleted=row[s.DELETED],
                row=None if row[s.DELETED] else {c.name: row[c.name] for c in side_spec.columns},
                refers_to=self._reference([row[name] for name in fks]) if fks else None,
                hash=row[s.HASH],
                file=row[s.FILE],
                current=False,
            )
            for row in rows
        ]
        last: dict[Any, int] = {}
        for i, version in enumerate(versions):
            if version.key is None:
                last = dict.fromkeys(last, i)
            else:
                last[tuple(version.key.values())] = i
        return tuple(Version(**{**vars(v), "current": i in last.values()}) for i, v in enumerate(versions))

    def _reference(self, values: Sequence[Any]) -> Row | None:
        if any(value is None for value in values):
            return None
        return dict(zip([c.name for c in self.spec.right.key_columns], values, strict=True))

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """What was answered, with the verdicts that there are."""
        fks = [name for name, _ in s.fk_columns(self.spec)]
        place = (s.BATCH, s.CAUSE)
        told = {tuple(row[n] for n in place): row for row in json_rows(self._of_key(s.VERDICTS))}
        asked = {tuple(row[n] for n in place): row for row in json_rows(self._of_key(s.RESPONSES))}
        out = []
        for at in sorted({*told, *asked}):
            row = asked.get(at) or told[at]  # what was answered again is not resolved again yet
            verdict = told.get(at, {}).get(s.VERDICT)
            if any(told.get(at, row)[name] != row[name] for name in (s.LEFT_HASH, s.RIGHT_HASH)):
                verdict = None
            out.append(
                Answer(
                    batch=row[s.BATCH],
                    cause=row[s.CAUSE],
                    instruction=row[s.INSTRUCTION],
                    refers_to=self._reference([row[name] for name in fks]),
                    left_hash=row[s.LEFT_HASH],
                    right_hash=row[s.RIGHT_HASH],
                    verdict=verdict,
                    why=_WHY.get(verdict, "not resolved yet") if verdict else "not resolved yet",
                )
            )
        return tuple(out)

    def _conclusion(self, result: Row | None, expected: Row | None, work: bool) -> str:
        why = self._why()
        if result == expected:
            return f"The row is {'in' if result is not None else 'not in'} the result: {why}"
        have = "is not in the result" if result is None else "in the result is another one"
        if expected is None:
            have = "is in the result and should not be"
        if work:
            return f"The row {have} than the join has it, and work is due that may explain it: {why}"
        return f"WRONG: the row {have}. {why} 'fk-pipeline verify' says how many there are, 'rebuild' makes them anew."

    def _why(self) -> str:
        """One sentence: what the versions that count say."""
        left = next((v for v in self.left if v.current), None)
        if not any(v.key is not None for v in self.left):
            return "no batch has brought this key."
        if left is None or left.deleted:
            what = "truncates the left table" if left is not None and left.key is None else "deletes the left row"
            return f"batch {left.batch if left else '?'} {what}, and nothing newer has come."
        if left.refers_to is None:
            return f"the left row of batch {left.batch} refers to no right row" + (
                ", and an inner join leaves it out." if self.spec.inner else "; a left join keeps it."
            )
        name = shown(left.refers_to)
        known = any(v.key == left.refers_to for v in self.right)
        mine = [v for v in self.right if v.current and known and (v.key is None or v.key == left.refers_to)]
        there = next((v for v in mine if not v.deleted), None)
        if there is not None:
            failing = next((a for a in self.answers[::-1] if a.verdict == verdicts.QUARANTINED), None)
            if failing is not None and failing.left_hash == left.hash and failing.right_hash == there.hash:
                return f"an expression of select fails on the left row of batch {left.batch} and right row {name}."
            return f"the left row of batch {left.batch} refers to right row {name} of batch {there.batch}."
        gone = f"was deleted by batch {mine[-1].batch}" if mine else "has never come"
        kept = "an inner join leaves the left row out." if self.spec.inner else "a left join keeps the left row."
        return f"the left row of batch {left.batch} refers to right row {name}, which {gone}: {kept}"
