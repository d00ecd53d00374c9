"""The right rows that stand alone in the result of an outer join: those that live and that no row of the result has.

The result itself, as it is after the same commit, decides whether a right row stands alone. The subscription store does
not: it may be ahead of the result by a change that is taken back before it is resolved. The candidates are the right
keys that rows of the result had and have now, and every right row that changed, with or without subscribers
(architecture, rule 10).
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.effects import Effect, Upsert
from fk_pipeline.identity import OF_PAIRS, BatchRange
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import JOINED, UNCHANGED, Stage
from fk_pipeline.kinds.foreign_key.resolved_join import (
    REPLACING,
    RESULT_FK,
    pair_keys,
    selected_rows,
)
from fk_pipeline.kinds.foreign_key.responses import due_rights
from fk_pipeline.kinds.foreign_key.rights import as_fks, right_row
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.sizes import UNKNOWN

_OTHER, _STORED_HASH = "_fk_other", "_fk_there"

MATCHED = "_fk_matched"
"""Column of `candidate_keys`: by one of the responses the right row does not stand alone."""

MATCHED_SQL = f"({k.VERDICT} = '{JOINED}' OR {k.VERDICT} = '{UNCHANGED}' AND {s.RIGHT_HASH} IS NOT NULL)"
"""SQL (BOOLEAN) over a decided response: afterwards the result has its left row with its right row."""


def by_keys(read: Reader, decided: RowSet) -> RowSet:
    """Returns the rows of right rows alone to write or to remove, with the rows of the tables read by their keys.

    Args:
        read: reads the tables.
        decided: the decided responses of the batches.
    """
    spec, fks = read.spec, {fk: fk for fk in k.fk_names(read.spec)}
    at_most = min(2 * decided.at_most + read.history.propagated(Stage.RIGHT_TABLE), UNKNOWN)
    changed = _changed_keys(read)
    keys = read.frames.cached(candidate_keys(decided.frame, changed, spec), at_most)
    pks, alones = ([name for name, _ in columns(spec)] for columns in (k.pk_columns, k.unmatched_columns))
    needed = [*pks, *fks, s.RIGHT_HASH]
    result = read.with_keys(k.RESOLVED_JOIN, keys, dict(zip(alones or fks, fks, strict=True)), needed=needed)
    open_keys = keys.but(MATCHED, True)
    payload = [s.HASH, *[c.name for c in spec.right.columns]]
    rights = read.with_keys(k.RIGHT_TABLE, open_keys, k.right_keys(spec), needed=payload)
    # With `result_key: both` the first search was by foreign key too.
    referring = read.with_keys(k.RESOLVED_JOIN, open_keys, fks, needed=needed) if alones else result
    matched = matched_keys(referring, spec, _replaced(decided.frame, spec))
    return read.frames.cached(unmatched_rows(keys.frame, rights, matched, result, spec, read.evaluator), at_most)


def of_all(read: Reader, decided: DataFrame, rights: DataFrame) -> RowSet:
    """Returns the rows of right rows alone to write or to remove, by joins of whole tables.

    Args:
        read: reads the tables.
        decided: the decided responses of the batches.
        rights: the right table.
    """
    spec, changed = read.spec, _changed_keys(read)
    if read.about(k.RESOLVED_JOIN).rows:
        rows = of_tables(decided, changed, rights, read.read(k.RESOLVED_JOIN), spec, read.evaluator)
    else:  # no right row stood alone before, so only those that changed may now
        keys = changed.withColumn(MATCHED, F.lit(False))
        matched = decided.where(MATCHED_SQL).select(*map(quote, k.fk_names(spec))).distinct()
        rows = unmatched_rows(keys, rights, matched, None, spec, read.evaluator)
    return read.frames.cached(rows, None)


def _changed_keys(read: Reader) -> DataFrame:
    """Returns the keys of `changed_rights`, and those of right rows that these batches put into the quarantine.

    A run replaces the records of its batches, so it must decide again about the right rows in them.
    """
    spec = read.spec
    changed = changed_rights(read.of_batches(k.RIGHT_TABLE, s.APPLIED_IN), read.batches, spec)
    if read.history.first_time or not spec.computes:
        return changed
    pairs = read.of_batches(s.QUARANTINE, s.BATCH).where(F.col(s.SIDE) == OF_PAIRS)
    unmatched = pairs.select(*pair_keys(spec), s.BATCH).where(f"NOT {k.has_left(spec)}")
    return changed.unionByName(unmatched.select(*changed.columns)).distinct()


def of_tables(
    decided: DataFrame,
    changed: DataFrame,
    rights: DataFrame,
    result: DataFrame,
    spec: ForeignKeySpec,
    evaluator: Evaluator,
) -> DataFrame:
    """Returns the rows of right rows alone to write or to remove: see `unmatched_rows`.

    Args:
        decided: the decided responses of the batches.
        changed: the keys of the right rows that changed for the batches, as `changed_rights` returns them.
        rights: the right table.
        result: the result before the responses are applied.
        spec: the pipeline.
        evaluator: evaluates the selected expressions.
    """
    matched = matched_keys(result, spec, _replaced(decided, spec))
    return unmatched_rows(candidate_keys(decided, changed, spec), rights, matched, result, spec, evaluator)


def changed_rights(right_table: DataFrame, batches: BatchRange, spec: ForeignKeySpec) -> DataFrame:
    """Returns the keys of the right rows that changed for the batches: `_fk_fk_*` and `_fk_batch`."""
    return due_rights(right_table, batches).select(*as_fks(spec), F.col(s.APPLIED_IN).alias(s.BATCH))


def written(read: Reader, rows: RowSet | None, unmatched: RowSet | None, number: int) -> list[Effect]:
    """Returns the effect that writes rows of the result together with those of right rows alone, in one commit.

    Args:
        read: plans the rows.
        rows: the rows of left rows; None if there are none.
        unmatched: the rows of right rows alone; None in a join that has none.
        number: the number of rows in `unmatched`.
    """
    if unmatched is None or not number:
        both = rows
    elif rows is None:
        both = unmatched.bounded(number)
    else:
        keys = None if rows.keys is None else rows.keys.unionByName(result_key(unmatched.frame, read.spec))
        at_most, frame = min(number + rows.at_most, UNKNOWN), rows.frame.unionByName(unmatched.frame)
        both = read.frames.planned(frame, at_most, cached=rows.cached, keys=keys, unique=rows.unique)
    return [] if both is None else [Upsert(k.RESOLVED_JOIN, both, delete_when=s.DELETED)]


def result_key(rows: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns the key columns of rows of the result; rows that do not have those of a right row alone are left rows."""
    none = {name: F.lit(None).cast(dtype).alias(name) for name, dtype in k.unmatched_columns(spec)}
    keys = k.keys_of(spec, k.RESOLVED_JOIN).keys
    return rows.select([F.col(quote(key)) if key in rows.columns else none[key] for key in keys])


def candidate_keys(decided: DataFrame, changed: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns the right keys whose row may stand alone or cease to.

    Args:
        decided: the decided responses of the batches.
        changed: the keys of the right rows that changed for the batches, as `changed_rights` returns them.
        spec: the pipeline.

    Returns:
        One row per right key: `_fk_fk_*`, `_fk_batch` (a batch of the response or of the change) and `_fk_matched`
        (BOOLEAN): by one of the responses its row does not stand alone.
    """
    fks = k.fk_names(spec)
    now = decided.select(*map(quote, fks), s.BATCH, F.expr(MATCHED_SQL).alias(MATCHED))
    previous = decided.select(f"{RESULT_FK}.*", s.BATCH, F.lit(False).alias(MATCHED))
    keys = reduce(DataFrame.unionByName, [now, previous, changed.withColumn(MATCHED, F.lit(False))])
    keys = keys.where(F.col(quote(fks[0])).isNotNull())
    return keys.groupBy(*map(quote, fks)).agg(F.max(s.BATCH).alias(s.BATCH), F.max(MATCHED).alias(MATCHED))


def matched_keys(result: DataFrame, spec: ForeignKeySpec, replaced: DataFrame | None = None) -> DataFrame:
    """Returns the right keys that rows of the result have with a left row: `_fk_fk_*`, distinct.

    Args:
        result: rows of the result.
        spec: the pipeline.
        replaced: left keys whose rows do not count; None if all do.
    """
    rows = result.where(f"{k.has_left(spec)} AND {s.RIGHT_HASH} IS NOT NULL")
    if replaced is not None:
        rows = rows.join(replaced, replaced.columns, "left_anti")
    return rows.select(*map(quote, k.fk_names(spec))).distinct()


def _replaced(decided: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns the left keys whose rows in the result the responses replace or remove."""
    pks = [*map(quote, k.pk_names(spec))]
    return decided.where(F.col(k.VERDICT).isin(*REPLACING)).select(*pks)


def unmatched_rows(
    candidates: DataFrame,
    rights: DataFrame,
    matched: DataFrame,
    result: DataFrame | None,
    spec: ForeignKeySpec,
    evaluator: Evaluator,
) -> DataFrame:
    """Returns the rows of right rows that stand alone to write or to remove.

    Args:
        candidates: the right keys in question, as `candidate_keys` returns them.
        rights: the right table, or its rows with these keys.
        matched: the right keys that other rows of the result have with a left row.
        result: the result, or at least its rows without a left row that have these keys; None if it has no rows.
        spec: the pipeline.
        evaluator: with row-error isolation, a right row on which an expression fails leaves the result.

    Returns:
        The columns of `resolved_join.rows_changed`: `_fk_pk_*` and `_fk_left_hash` are null.
    """
    fks = k.fk_names(spec)
    living = rights.where(F.col(s.HASH).isNotNull()).select(
        *as_fks(spec), F.col(s.HASH).alias(s.RIGHT_HASH), right_row(spec).alias("right")
    )
    rows = candidates.join(living, fks, "left").join(matched.withColumn(_OTHER, F.lit(True)), fks, "left")
    is_unmatched = f"right IS NOT NULL AND NOT {MATCHED} AND {_OTHER} IS NULL"
    if result is None:
        rows = rows.where(is_unmatched).withColumn(s.DELETED, F.lit(False))
    else:
        stored = result.where(f"NOT {k.has_left(spec)}").select(
            *map(quote, fks), F.col(s.RIGHT_HASH).alias(_STORED_HASH)
        )
        rows = rows.join(stored, fks, "left").withColumn(s.DELETED, F.expr(f"NOT ({is_unmatched})"))
        same = f"{_STORED_HASH} <=> {s.RIGHT_HASH}"
        rows = rows.where(f"IF({s.DELETED}, {_STORED_HASH} IS NOT NULL, NOT ({same}))")
    right = F.when(~F.col(s.DELETED), F.col("right")).alias("right")
    rows = rows.select(*_keys(spec), s.BATCH, s.RIGHT_HASH, s.DELETED, no_left_row(spec).alias("left"), right)
    return selected_rows(rows, spec, evaluator, halves=False)


def _keys(spec: ForeignKeySpec) -> list[Column]:
    """Returns the key columns, foreign key and left hash of the row of a right row that stands alone."""
    fks = [F.col(quote(name)) for name in k.fk_names(spec)]
    right_keys = [fk.alias(name) for fk, (name, _) in zip(fks, k.unmatched_columns(spec), strict=False)]
    none = [F.lit(None).cast(dtype).alias(name) for name, dtype in (*k.pk_columns(spec), (s.LEFT_HASH, "BINARY"))]
    return [*none, *fks, *right_keys]


def no_left_row(spec: ForeignKeySpec) -> Column:
    """Returns null as a row of the left side."""
    fields = ", ".join(f"{c.quoted}: {c.type}" for c in spec.left.columns)
    return F.lit(None).cast(f"STRUCT<{fields}>")
