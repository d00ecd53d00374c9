"""Finds declared columns that rows lack: those that older batches had, and those that no row ever had.

What older batches had is read from the counts of the ledger. `docs/reference/schema-changes.md` is the contract.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fk_pipeline.blocks.alike import close_names
from fk_pipeline.identity import BatchId, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.sql import parse_columns
from fk_pipeline.store.ledger import Ledger, StageState
from fk_pipeline.store.ledger.fields import NOT_COMPARED

ROWS_WITHOUT = "rows without column "
"""The beginning of the names of counts: the rows of a batch that lack a column. Where a source may leave out nulls,
they are counted only if all rows of the batch lack a column that no batch had."""


@dataclass(frozen=True)
class Unsent:
    """A declared column that no row of a side ever had.

    Attributes:
        side: the side.
        column: the column.
        batches: the batches whose rows lack it.
    """

    side: Side
    column: str
    batches: tuple[int, ...]

    def __str__(self) -> str:
        return f"no {self.side} row has ever had column {self.column}, which {self.side}.schema declares: it is null"


def lacking(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns, per column, the number of rows of a batch that lack it."""
    return {name.removeprefix(ROWS_WITHOUT): number for name, number in counts.items() if name.startswith(ROWS_WITHOUT)}


def unproven(spec: PipelineSpec, ledger: Ledger, stage: str) -> list[str]:
    """Returns the declared columns, without the key, that no batch had whose rows were compared with the schema."""
    columns = [c.name for c in spec.side(ledger.inputs[stage]).as_sent.value_columns]
    never = _never_had(ledger, stage, columns)
    return [name for name in columns if name in never]


def never_sent(spec: PipelineSpec, ledger: Ledger) -> list[Unsent]:
    """Returns the declared columns that no row ever had, of sides whose rows were compared with the schema."""
    unsent = []
    for stage, side in ledger.inputs.items():
        states = {int(batch): lacking(ledger.state(stage, batch).counts) for batch in ledger.batches}
        for column in unproven(spec, ledger, stage) if any(states.values()) else ():
            batches = tuple(batch for batch, lacks in states.items() if column in lacks)
            unsent += [Unsent(side, column, batches)] if batches else []
    return unsent


def missed(ledger: Ledger, stage: str, batches: Iterable[int]) -> Iterator[tuple[int, str, int | None, int]]:
    """Yields columns that rows of some batches lack, although older batches had them or none ever had.

    Args:
        ledger: the ledger of the pipeline.
        stage: a changelog stage.
        batches: the batches.

    Yields:
        The batch, the column, the newest older batch whose rows have it (None: no batch ever had it), and the number of
        rows that lack it.
    """
    counted = {int(batch): lacking(ledger.state(stage, batch).counts) for batch in batches}
    yield from had_before(ledger, stage, counted)
    never = _never_had(ledger, stage, {name for lacks in counted.values() for name in lacks})
    for batch, lacks in counted.items():
        yield from ((batch, name, None, number) for name, number in lacks.items() if name in never)


def had_before(
    ledger: Ledger, stage: str, counted: Mapping[int, Mapping[str, int]]
) -> Iterator[tuple[int, str, int, int]]:
    """Yields the columns that older batches had, as `missed` does.

    An older batch had a column if all its rows had it and the column was already declared when the batch was read.

    Args:
        ledger: the ledger of the pipeline.
        stage: a changelog stage.
        counted: per batch and column, the number of rows that lack it.
    """
    columns = {name for lacks in counted.values() for name in lacks}
    if not columns:
        return
    since = _declared_since(ledger, ledger.inputs[stage])
    had: dict[str, int] = {}
    for batch in sorted({*map(int, ledger.batches), *counted}):
        for name, number in counted.get(batch, {}).items():
            if name in had:
                yield batch, name, had[name], number
        had |= dict.fromkeys(_had(ledger.state(stage, BatchId(batch)), columns, since), batch)


def warn(side: Side, column: str, rows: Mapping[int, int], names: Iterable[str]) -> str:
    """Returns the warning that no row of some batches, the first that are compared, has a column.

    Args:
        side: the side of the rows.
        column: the column.
        rows: per batch, the number of its rows.
        names: the names of undeclared fields in the rows.
    """
    of = f"batch {min(rows)}" if len(rows) == 1 else f"{len(rows)} batches, the first of them {min(rows)}"
    message = f"{of}: none of {sum(rows.values()):,} {side} row(s) has column {column}, which {side}.schema declares"
    close = close_names(column, names)
    if not close:
        return f"{message}: it is null for them"
    return (
        f"{message}: it is null for them. They have {' and '.join(close)}: if that is its name, correct {side}.schema"
    )


def _never_had(ledger: Ledger, stage: str, columns: Iterable[str]) -> set[str]:
    """Returns the columns that no batch had."""
    left = {*columns}
    since = _declared_since(ledger, ledger.inputs[stage]) if left else {}
    for batch in ledger.batches:
        if not left:
            break
        left -= _had(ledger.state(stage, batch), left, since)
    return left


def _had(state: StageState, columns: Collection[str], since: Mapping[str, int]) -> set[str]:
    """Returns the columns that all rows of a batch had, and that were declared when it was read."""
    counts, read = state.counts, state.succeeded or 0
    rows = counts.get("rows", 0) - counts.get("tombstones", 0) - counts.get("truncates", 0)
    if rows <= 0 or NOT_COMPARED in counts:
        return set()
    lacks = lacking(counts)
    return {name for name in columns if name not in lacks and name in since and read > since[name]}


def _declared_since(ledger: Ledger, side: Side) -> dict[str, int]:
    """Returns, per column of a side, the ledger entry from which on its schema has had it without interruption."""
    since: dict[str, int] = {}
    for row in ledger.entries.rows("fingerprints"):
        if row["part"] == f"{side}.schema":
            since = {c.name: since.get(c.name, int(row["entry"])) for c in parse_columns(row["value"])}
    return since
