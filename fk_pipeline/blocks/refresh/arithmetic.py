"""The groups of a block whose counts and sums are kept: from what is stored of them, and what rows gave and give.

    numbers = COUNT and SUM of each group, in hidden columns                      (`sums`)
    now     = stored numbers + numbers of joined rows now - numbers of joined rows then

No other rows are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import localcontext
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.hashing import with_row_hash
from fk_pipeline.blocks.refresh.refresh import Refresh, group_values
from fk_pipeline.blocks.refresh.sums import ROWS
from fk_pipeline.blocks.refresh.tables import means_of
from fk_pipeline.blocks.select.block import GROUP_VALUE, IS_NOW, ROW
from fk_pipeline.frames import sql_over
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import RowSet

_DIGITS = 100
"""The digits of sums in Python: more than two DECIMALs have."""


def all_groups(refresh: Refresh, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Returns the groups of all rows, with their hashes; `frames`: per alias, its rows."""
    return _shown(refresh, sql_over(frames, lambda tables: _numbers(refresh, tables)))


def changed_groups(
    refresh: Refresh, frames: Mapping[str, DataFrame], both: Collection[str]
) -> tuple[DataFrame, RowSet]:
    """Returns the groups of joined rows, with their hashes, and all that may have changed: values and hash.

    Args:
        refresh: the block.
        frames: per alias, the rows that are joined.
        both: the aliases of which these are rows of two versions.
    """
    names, groups = [*refresh.hidden], group_values(refresh.block)
    numbers = sql_over(frames, lambda tables: _numbers(refresh, tables, both))
    # Counts and sums are added by SUM alone: `+` and `*` of long DECIMALs lose digits.
    signed = numbers.selectExpr(*groups, *(f"IF({IS_NOW}, {name}, -{name}) AS {name}" for name in names))
    added = _summed(signed, groups, names)
    keys = refresh.read.frames.cached(with_row_hash(added, ROW, groups, "FALSE"), None)
    stored = refresh.read.exactly(refresh.block.name, keys, {ROW: ROW}, names)
    rows = _added_in_driver(keys, stored, names)
    both_numbers = _added(refresh, keys.frame, stored.frame) if rows is None else _held(refresh, rows, keys.frame)
    return _shown(refresh, both_numbers.where(f"{ROWS} > 0") if groups else both_numbers), keys


def _held(refresh: Refresh, rows: pa.Table, keys: DataFrame) -> DataFrame:
    """Returns the values and numbers of groups as a frame; `keys` has the values, too."""
    values = [(name, keys.schema[name].dataType.simpleString()) for name in group_values(refresh.block)]
    dtypes = dict(refresh.table.columns)
    return refresh.read.frames.held(rows, [*values, *((name, dtypes[name]) for name in refresh.hidden)]).frame


def _added(refresh: Refresh, keys: DataFrame, stored: DataFrame) -> DataFrame:
    """Returns the values of groups and their numbers: those that are stored, and those of `keys`, together."""
    names, dtypes = [*refresh.hidden], dict(refresh.table.columns)
    totals = _summed(stored.select(ROW, *names).unionByName(keys.select(ROW, *names)), [ROW], names)
    sums = [f"CAST({name} AS {dtypes[name]}) AS {name}" for name in names]
    return keys.drop(*names).join(totals, ROW).selectExpr(*group_values(refresh.block), *sums)


def _added_in_driver(keys: RowSet, stored: RowSet, names: Sequence[str]) -> pa.Table | None:
    """Returns the same of few groups; None if these are many, or a sum has no place in its column: Spark refuses it."""
    if keys.local is None or stored.local is None:
        return None
    before = dict(zip(stored.local[ROW].to_pylist(), range(len(stored.local)), strict=True))
    places = [before.get(group) for group in keys.local[ROW].to_pylist()]
    rows = keys.local.drop_columns([ROW, *names])
    with localcontext(prec=_DIGITS):
        for name in names:
            old = stored.local[name].to_pylist()
            then = (None if place is None else old[place] for place in places)
            sums = [_sum(was, more) for was, more in zip(then, keys.local[name].to_pylist(), strict=True)]
            try:
                rows = rows.append_column(name, pa.array(sums, stored.local.schema.field(name).type))
            except (pa.ArrowInvalid, OverflowError):
                return None
    return rows


def _sum(left: Any, right: Any) -> Any:
    """Returns a sum as SUM has it: of null and a number the number."""
    return right if left is None else left if right is None else left + right


def _numbers(refresh: Refresh, tables: Mapping[str, str], both: Collection[str] = ()) -> str:
    """SQL: the hidden columns of each group; with tables of two versions (`Block.joined`) of each in each."""
    values = [f"{sql} AS {GROUP_VALUE.format(number)}" for number, sql in enumerate(refresh.block.values)]
    hidden = [f"{sql} AS {name}" for name, sql in refresh.hidden.items()]
    side = [f"{quote(refresh.block.anchor.name)}.{IS_NOW}"] if both else []
    sql, by = refresh.block.joined(tables, [*side, *values, *hidden], both), [*side, *refresh.block.values]
    return f"{sql} GROUP BY {', '.join(by)}" if by else sql


def _shown(refresh: Refresh, numbers: DataFrame) -> DataFrame:
    """Returns groups with the columns of the block, given their numbers."""
    assert refresh.sums is not None
    types = dict(refresh.table.columns) | means_of(refresh.session, refresh.sums, dict(refresh.table.columns))
    made = refresh.sums.values(types)
    inner = numbers.selectExpr(*numbers.columns, *(f"{sql} AS {quote(name)}" for name, sql in made.items()))
    keep, hidden = refresh.block.keep, [*group_values(refresh.block), *refresh.hidden]
    if keep is not None:
        columns = [f"{sql} AS {quote(name)}" for sql, name in zip(keep.columns, refresh.block.columns, strict=True)]
        inner = sql_over(
            {"rows": inner},
            lambda tables: f"SELECT {', '.join((*columns, *hidden))} FROM {tables['rows']} AS {quote(keep.alias)}",
        )
    return refresh.hashed(inner)


def _summed(rows: DataFrame, by: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Returns the sums of some columns per group."""
    return rows.groupBy(*by).agg(*(F.sum(name).alias(name) for name in names))
