"""The rules of an aggregate: views of table and result that find broken rows."""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.blocks.current import CurrentRows
from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.blocks.refresh.exactness import inexact
from fk_pipeline.blocks.refresh.sums import ROWS, sums_of
from fk_pipeline.blocks.select.block import Block
from fk_pipeline.frames import join_by_key, marked, sql_over
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate import tables as k
from fk_pipeline.kinds.aggregate.kind import AT, AggregateStage
from fk_pipeline.kinds.aggregate.placing import spread
from fk_pipeline.kinds.aggregate.proof import outside, pending
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.kinds.aggregate.suites import IN_ITS_GROUP
from fk_pipeline.kinds.aggregate.windows import Windows, windows_of
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.current import current_view
from fk_pipeline.rules.scan import COPIES, PENDING, ROW, Rule, View, hex_of, only_one, with_copies
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import ISOLATING, Evaluator
from fk_pipeline.store import schemas as s

_CONTENT, _EXACT, _NOW = "_fk_content", "_fk_exact", "_fk_now"
"""Columns: the hash of the values of a row; of those that do not depend on the order of floating-point sums; the latter
as the rows of the table make it."""


def table_views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the view of the table beside the changelog."""
    windows = _windows(reader)
    number = "" if windows is None else windows.pane(AT)
    return [current_view(reader, evaluator, Side.INPUT, "one_row_per_key", IN_ITS_GROUP, number=number)]


def result_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the view of the result: its rows beside the groups of the table, computed again.

    A check of some batches of large tables looks at the groups that they wrote, and at those of the rows that they
    changed (`_touched`); any other looks at all.
    """
    spec, name = reader.spec, AggregateStage.AGGREGATED
    block, keys = spec.block_of(name, reader.table_of), k.group_key(spec)
    stored, table = reader.whole(name), reader.whole(AggregateStage.TABLE)
    touched = None
    if reader.batches is not None and not reader.small:
        touched = _touched(reader)
        stored = join_by_key(stored, touched, keys, "left_semi", nullable=True)
        if by := k.by_columns(spec):
            table = join_by_key(table, touched.select(*map(quote, by)).distinct(), by, "left_semi", nullable=True)
    dtypes, numbers = {field.name: field.dataType for field in stored.schema.fields}, _numbers(reader, block)
    compared = (*block.columns, *numbers)
    loose = inexact(block, {AggregateStage.TABLE: table})
    exact = [column for column in compared if column not in loose]
    content = row_hash((column, dtypes[column]) for column in block.columns)
    of_exact = row_hash((column, dtypes[column]) for column in exact)
    read = [*map(quote, keys), ROW, COPIES, s.BATCH, s.HASH, f"{content} AS {_CONTENT}", f"{of_exact} AS {_EXACT}"]
    rows = with_copies(stored, [*map(quote, keys)]).selectExpr(*read)
    [alias] = block.aliases
    groups = sql_over({alias.name: table}, lambda tables: block.of(tables, numbers))
    if touched is not None:
        groups = join_by_key(groups, touched, keys, "left_semi", nullable=True)
    groups = groups.selectExpr(*map(quote, keys), f"{of_exact} AS {_NOW}")
    both = join_by_key(rows, groups, keys, "full", nullable=True)
    rules = [
        only_one("one_row_per_group"),
        Rule("hash_is_that_of_the_row", f"NOT ({s.HASH} <=> {_CONTENT})", hex_of(s.HASH), hex_of(_CONTENT)),
        Rule(
            "row_is_that_of_the_table",
            f"{ROW} IS NOT NULL AND NOT ({_EXACT} <=> {_NOW})",
            hex_of(_EXACT),
            f"COALESCE({hex_of(_NOW)}, 'no group')",
        ),
        Rule("no_missing_group", f"{ROW} IS NULL", "'no row'", hex_of(_NOW)),
    ]

    def excused(rows: DataFrame) -> DataFrame:
        tables = {proved: reader.whole(proved) for proved in spec.definition.proved}
        tables |= outside(reader.warehouse.session, spec, reader.ledger)
        return marked(rows, PENDING, pending(tables, reader.due, spec), nullable=True)

    return [View(both, _shown(spec), s.BATCH, tuple(rules), excused if any(reader.due.values()) else None)]


def _windows(reader: CheckReader) -> Windows | None:
    return windows_of(reader.spec, dict(reader.about(AggregateStage.TABLE).declared.columns))


def _touched(reader: CheckReader) -> DataFrame:
    """Returns the groups that the batches wrote, and those in which rows that they changed stand, or once stood.

    Where a row stood before, its older versions in the changelog tell.
    """
    spec, rows, windows = reader.spec, CurrentRows.of(reader.spec, Side.INPUT), _windows(reader)
    keys = {key: key for key in rows.keys}
    changed = reader.touched_by({rows.name: s.APPLIED_IN}, keys)
    versions = with_content(reader.with_keys(rows.log, changed, keys), spec, Side.INPUT, ISOLATING)
    now = reader.of_batches(rows.name, s.APPLIED_IN)
    own = reader.of_batches(AggregateStage.AGGREGATED, s.BATCH).select(*map(quote, k.group_key(spec)))
    for of in (versions.join(changed.frame, rows.keys, "left_semi"), now):
        stand = spread(of.where(f"{s.HASH} IS NOT NULL").select(*map(quote, rows.derived)), windows)
        own = own.unionByName(stand.select(*map(quote, k.group_key(spec))))
    return own.distinct()


def _numbers(reader: CheckReader, block: Block) -> dict[str, str]:
    """Returns the hidden counts and sums of groups that are kept by arithmetic: name and SQL over the table."""
    table, sums = reader.about(block.name).declared, sums_of(block)
    return {} if sums is None or ROWS not in table.names else sums.numbers(dict(table.columns))


def _shown(spec: AggregateSpec) -> str:
    """SQL (STRUCT): the key of a group, for people."""
    named = zip(k.group_key(spec), k.shown_keys(spec), strict=True)
    return f"STRUCT({', '.join(f'{quote(column)} AS {quote(name)}' for column, name in named)})"
