"""What a change of an input would touch of a query, before it is made: a refresh over a change that is only supposed.

The blocks are refreshed one after the other, as by a run, from the versions that they stand for to these with the
change; nothing is written. Of a change of one row, whose new values are not known, what its old ones touch is told.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.refresh.changes import NEW, OLD, of_step
from fk_pipeline.blocks.refresh.refresh import Refresh
from fk_pipeline.blocks.select.block import Unit
from fk_pipeline.blocks.would_land import CHANGED, EFFECT, TOUCHING, effects_on, log_of_file
from fk_pipeline.blocks.would_land import REMOVED as GONE
from fk_pipeline.contract import loaded
from fk_pipeline.errors import UsageError
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import ADDED, REMOVED, WRITTEN
from fk_pipeline.kinds.query.kind import RESULT
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.supposed import ReadAsRefreshed, SupposedBlock
from fk_pipeline.kinds.query.tables import layout_of
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.clock import Clock, moment_of
from fk_pipeline.spec.keys import parse_key, shown, value_from_text
from fk_pipeline.spec.load import load_spec
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.tables import StoredTables
from fk_pipeline.words import counted

TOUCHED = "touched"
"""The effect on a row of a block that depends on values which are not known."""


@dataclass(frozen=True)
class BlockImpact:
    """What a change touches of one block.

    Attributes:
        block: the block.
        anchor: the table whose rows are its anchors.
        unit: what of it is computed again together: row, group or partition.
        anchors: the number of anchors whose joined rows may differ.
        units: the number of touched groups or partitions; of a block without, that of the anchors.
        rows: the number of rows of the block, by the effect on them.
        unknown: the names of the input in the block to which a new row may be joined by columns that are not known.
    """

    block: str
    anchor: str
    unit: str
    anchors: int
    units: int
    rows: dict[str, int]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class QueryImpact:
    """The impact of a change of an input of a query.

    Attributes:
        input: the input.
        change: the key of the row, or the file.
        input_rows: the number of rows of the input, by what becomes of them.
        quarantined: the number of records of the file that cannot be used.
        blocks: what is touched of each block, as far as the change reaches.
        result_rows: the number of rows of the result that would be touched, or added, written and removed.
        sample: some of them: `effect`, and `row`; of a written row, as it would be.
        due: the due batches per stage.
    """

    input: str
    change: str
    input_rows: dict[str, int]
    quarantined: int
    blocks: tuple[BlockImpact, ...]
    result_rows: int
    sample: tuple[dict[str, Any], ...]
    due: dict[str, list[int]]

    def as_json(self) -> dict[str, Any]:
        """Returns the impact as a JSON object."""
        return asdict(self)

    def table(self) -> list[list[str]]:
        """Returns the rows of the result as a table for people, its header first."""
        columns = [*self.sample[0]["row"]] if self.sample else []
        rows = [[entry["effect"], *(_text(entry["row"][name]) for name in columns)] for entry in self.sample]
        return [["row of the result", *columns], *rows]

    def sentences(self) -> list[str]:
        """Returns the numbers in sentences."""
        sentences = [f"{self.input}: {counted(number, 'row')} {what}" for what, number in self.input_rows.items()]
        if self.quarantined:
            sentences.append(f"{counted(self.quarantined, 'record')} of the file cannot be used")
        for touched in self.blocks:
            units = "" if touched.unit == Unit.ROW else f", in {counted(touched.units, touched.unit)}"
            rows = ", ".join(f"{counted(number, 'row')} {what}" for what, number in touched.rows.items())
            anchors = f"{counted(touched.anchors, 'anchor')} in {touched.anchor}{units}"
            sentences.append(f"{touched.block}: {anchors}: {rows or 'no row differs'}")
            sentences += [
                f"{touched.block}: to which rows a new row is joined as {alias} depends on columns besides its key"
                for alias in touched.unknown
            ]
        if self.due:
            sentences.append("Work is due: this is about the result as it is now.")
        if not any(TOUCHED in touched.rows or touched.unknown for touched in self.blocks):
            return [*sentences, f"{counted(self.result_rows, 'row')} of the result would be written or taken out."]
        sentences.append(
            "A change of columns that join or group it also touches what it comes to: --changes FILE tells."
        )
        made = f"{counted(self.result_rows, 'row')} of the result {'is' if self.result_rows == 1 else 'are'} made of it"
        return [*sentences, f"{made}, or of what it is joined to."]


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)


def impact(
    read: TableReader,
    spec: QuerySpec,
    ledger: Ledger,
    key: str | None,
    changes: Path | None,
    limit: int,
    since: str | None = None,
    side: str | None = None,
) -> QueryImpact:
    """Returns the impact of any change of one row of an input, or of the changes in a file.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        key: the key of a row of the input; or
        changes: a file as it would land in the pipeline of `kind: table` that the input is the result of.
        limit: the largest number of rows of the result to report.
        since: refused: no input has versions that hold since a time.
        side: the name of the input; None: the only one.

    Raises:
        UsageError: it is neither or both of key and file; there is no such input, or it has no such key; or the file is
            not in the format of the input's pipeline, or the input is of no such pipeline.
    """
    named = ", ".join(spec.inputs)
    if since is not None:
        raise UsageError("a time goes with a right key of a pipeline with as_of, and a query has none")
    if side is None and len(spec.inputs) > 1:
        raise UsageError(f"impact needs the input that changes: {named}", fix=f"--input {next(iter(spec.inputs))}")
    name = next(iter(spec.inputs)) if side is None else side
    if name not in spec.inputs:
        raise UsageError(f"{name!r} is no input of pipeline {spec.name}", fix=f"--input, one of {named}")
    if (key is None) == (changes is None):
        fix = "--key KEY, or --changes FILE; not both"
        raise UsageError(f"impact needs the key of a row of {name}, or a file of changes", fix=fix)
    with ExitStack() as stack:
        return _Supposing(read, spec, ledger, name, stack).impact(key, changes, limit)


class _Supposing:
    """Brings a supposed change of an input through the blocks."""

    def __init__(self, read: TableReader, spec: QuerySpec, ledger: Ledger, name: str, stack: ExitStack) -> None:
        self.spec, self.ledger, self.name, self.stack = spec, ledger, name, stack
        self.warehouse, self.session = read.warehouse, read.warehouse.session
        self.tables = {table.name: table for table in layout_of(self.session, spec).tables}
        first = next(block for block in spec.blocks.blocks if name in block.relations)
        self.first = Refresh(self._reading(first.name))
        self.relation = self.first.relations[name]

    def _reading(self, stage: str) -> Reader:
        """Returns a reader of a block, as far as a refresh that writes nothing reads."""
        reader = ReadAsRefreshed(self.warehouse, self.tables, self.spec, self.ledger, stage)
        self.stack.callback(reader.release)
        return cast(Reader, reader)

    def impact(self, key: str | None, file: Path | None, limit: int) -> QueryImpact:
        """Returns the impact of any change of a row, or of the changes in a file."""
        if file is not None:
            changed, input_rows, quarantined = self._in_file(file)
            change, new, exact = str(file), False, True
        elif self.name in self.spec.clocks:
            changed, change = self._of_clock(str(key))
            input_rows, quarantined, new, exact = {CHANGED: changed.at_most}, 0, False, True
        else:
            changed, change, new = self._of_row(str(key))
            input_rows, quarantined, exact = {"added" if new else f"{CHANGED} or {GONE}": 1}, 0, False
        blocks, rows = self._through(changed, exact=exact, new=new)
        number = sum(blocks[-1].rows.values()) if blocks and blocks[-1].block == RESULT else 0
        sample = () if rows is None else self._sample(rows, limit, exact=exact)
        due = {stage: [*map(int, batches)] for stage, batches in self.ledger.due.by_stage().items()}
        return QueryImpact(self.name, change, input_rows, quarantined, tuple(blocks), number, sample, due)

    # ------------------------------------------------------------------------------------------------ the change
    def _of_row(self, given: str) -> tuple[RowSet, str, bool]:
        """Returns a row of the input as one that goes, its key as text, and whether it is not there, but comes."""
        side = self.spec.inputs[self.name]
        key = parse_key(given, side)
        text = shown(key_row(self.session, key, side))
        values = (f"{value_from_text(key[c.name], c)} AS {c.quoted}" for c in side.key_columns)
        keys = self.first.read.frames.cached(self.session.range(1).selectExpr(*values), None)
        old = self._old(keys)
        if old.at_most:
            return self._changes(old.frame, None), text, False
        known = {c.name for c in side.key_columns}
        row = [quote(n) if n in known else f"CAST(NULL AS {of}) AS {quote(n)}" for n, of in self.relation.table.columns]
        return self._changes(None, keys.frame.selectExpr(*row)), text, True

    def _of_clock(self, given: str) -> tuple[RowSet, str]:
        """Returns the row of a clock that is set to another time, and the step that this time is in."""
        seen = self.first.now[self.name]
        if seen is None:
            raise UsageError(f"the clock {self.name} was never looked at", fix=f"fk-pipeline run {self.spec.file}")
        clock = Clock.at(seen.location)
        try:
            step = clock.step(moment_of(given))
        except ValueError as error:
            raise UsageError(f"--key of the clock {self.name} is the time to which it is set: {error}") from None
        changed = of_step(self.first.snapshot, self.name, seen.version, step)
        return self._changes(*(rows.frame for rows in changed.both)), clock.shown(step)

    def _old(self, keys: RowSet) -> RowSet:
        """Returns the rows of the input with some keys."""
        return self.first.snapshot.with_keys(self.name, keys, {key: key for key in self.relation.keys})

    def _changes(self, old: DataFrame | None, new: DataFrame | None) -> RowSet:
        """Returns old and new versions of rows that differ, as structs (`changes.of_versions`)."""
        names, keys = [name for name, _ in self.relation.table.columns], [*self.relation.keys]
        return self.first.read.frames.cached(_both(old, new, names, keys), None)

    def _in_file(self, file: Path) -> tuple[RowSet, dict[str, int], int]:
        """Returns the rows of the input that a file changes, their numbers by effect, and that of useless records."""
        other = self._pipeline()
        [side] = other.sides
        stored = StoredTables(self.session, other.home)
        reader = TableReader(stored, loaded(other.definition.layout)(self.session, other).tables)
        ledger, named = Ledger(other.home, other.definition), f"input {self.name}"
        log, quarantined = log_of_file(reader, other, side, named, ledger, file, self.stack)
        keys = [*self.relation.keys]
        effects = effects_on(log, reader.read(other.definition.state_of(side).name), keys)
        cached = self.first.read.frames.cached(effects, None)
        numbers = {row[0]: row[1] for row in sorted(cached.frame.groupBy(EFFECT).count().collect())}
        touched = cached.frame.where(F.col(EFFECT).isin(*TOUCHING)).select(*map(quote, keys))
        touched_keys = self.first.read.frames.cached(touched, None)
        rows = log.where(f"{s.HASH} IS NOT NULL").join(F.broadcast(touched_keys.frame), keys, "left_semi")
        new = self.relation.view(rows.select(*(quote(name) for name, _ in self.relation.table.columns)))
        return self._changes(self._old(touched_keys).frame, new), numbers, quarantined

    def _pipeline(self) -> PipelineSpec:
        """Returns the pipeline whose result the input is.

        Raises:
            UsageError: it is a table of somebody else, or the result of a pipeline whose rows are not those that land.
        """
        side, fix = self.spec.inputs[self.name], f"--input {self.name} --key KEY"
        if side.pipeline is None:
            why = "it is a Delta table, and no files land"
            raise UsageError(f"--changes is a file as it would land, and not for input {self.name}: {why}", fix=fix)
        other = load_spec(self.spec.file.parent / str(side.pipeline))
        if other.definition.name != "table":
            why = f"{side.pipeline} is of kind {other.definition.name}, and its rows are not those that land"
            raise UsageError(f"--changes is not for input {self.name}: {why}", fix=fix)
        return other

    # ------------------------------------------------------------------------------------------------ the blocks
    def _through(self, changed: RowSet, *, exact: bool, new: bool) -> tuple[list[BlockImpact], RowSet | None]:
        """Returns the impact on each block that is reached, and the changed rows of the result.

        Args:
            changed: the changed rows of the input.
            exact: whether their new versions are known.
            new: whether they are new, and known by their key alone.
        """
        reached, impacts = {self.name: changed}, list[BlockImpact]()
        for block in self.spec.blocks.blocks:
            if not any(name in reached and reached[name].at_most for name in block.relations):
                continue
            what = SupposedBlock(self._reading(block.name), reached, self.name if new else "")
            if new and block.unit not in (Unit.ROW, Unit.UNION):
                number = _number(what.expected.anchors)
                impacts.append(BlockImpact(block.name, block.anchor.relation, block.unit, number, 0, {}, what.unknown))
                continue  # which groups they come to is not known
            part, columns = what.expected.changed_part(), [*map(quote, self.tables[block.name].names)]
            stored = what.refresh.read.read(block.name).select(*columns)
            if part.keys is not None and part.keys.at_most and part.columns:
                same = {column: column for column in part.columns}
                stored = what.refresh.read.with_keys(block.name, part.keys, same)
                stored = stored.join(part.keys.frame.select(*map(quote, same)), [*same], "left_semi").select(*columns)
            else:
                stored = stored.limit(0)
            names = [*dict.fromkeys((*self.tables[block.name].keys, *block.columns))]
            computed = part.rows.where(f"{s.HASH} IS NOT NULL") if exact else None
            both = _both(stored, computed, names, [*self.tables[block.name].keys], s.HASH)
            rows = what.refresh.read.frames.cached(both, None)
            reached[block.name] = rows
            units = 0 if part.keys is None else _number(part.keys)
            anchors = _number(what.expected.anchors)
            numbers = _effects(rows.frame, exact=exact)
            impacts.append(
                BlockImpact(block.name, block.anchor.relation, block.unit, anchors, units, numbers, what.unknown)
            )
        return impacts, reached.get(RESULT)

    def _sample(self, rows: RowSet, limit: int, *, exact: bool) -> tuple[dict[str, Any], ...]:
        """Returns some changed rows of the result, each with the effect on it."""
        names = self.spec.blocks.columns
        some = rows.frame.selectExpr(f"{_effect(exact=exact)} AS {EFFECT}", f"COALESCE({NEW}, {OLD}) AS _fk_row")
        some = some.select(EFFECT, *(F.col("_fk_row")[name].alias(name) for name in names))
        sample = json_rows(some.orderBy(EFFECT, *map(quote, names)).limit(limit))
        return tuple({"effect": row[EFFECT], "row": {name: row[name] for name in names}} for row in sample)


def _both(old: DataFrame | None, new: DataFrame | None, names: list[str], keys: list[str], by: str = "") -> DataFrame:
    """Returns old and new versions of rows as structs, of those that differ.

    Args:
        old: rows; None: there are none.
        new: rows; None: there are none.
        names: the columns of the structs.
        keys: the columns by which old rows and new ones are paired; none is ever null.
        by: the column that differs where rows differ; empty: the structs are compared.
    """
    row = f"STRUCT({', '.join(map(quote, names))})"
    compared = by or row
    if old is None or new is None:
        given = old if old is not None else new
        assert given is not None
        none = f"IF(FALSE, {row}, NULL)"
        return given.selectExpr(f"{row if new is None else none} AS {OLD}", f"{none if new is None else row} AS {NEW}")
    before, after = (
        rows.selectExpr(*map(quote, keys), f"{row} AS {of}", f"{compared} AS {of}_by")
        for rows, of in ((old, OLD), (new, NEW))
    )
    both = before.join(after, keys, "full")
    if by or "map<" not in both.schema.simpleString():  # which Spark does not compare
        both = both.where(f"NOT ({OLD}_by <=> {NEW}_by)")
    return both.select(OLD, NEW)


def _effect(*, exact: bool) -> str:
    """SQL: the effect on a changed row of a block."""
    if not exact:
        return f"'{TOUCHED}'"
    return f"CASE WHEN {NEW} IS NULL THEN '{REMOVED}' WHEN {OLD} IS NULL THEN '{ADDED}' ELSE '{WRITTEN}' END"


def _effects(rows: DataFrame, *, exact: bool) -> dict[str, int]:
    """Returns the number of changed rows of a block, by the effect on them."""
    counted = rows.groupBy(F.expr(_effect(exact=exact)).alias(EFFECT)).count()
    return {row[0]: row[1] for row in sorted(counted.collect())}


def _number(rows: RowSet) -> int:
    return rows.at_most if rows.local is not None else rows.frame.count()
