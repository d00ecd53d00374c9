"""The stage of a table: a function from a reader to effects, which describe what the tables must hold."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.blocks.state import by_versions, state_effects
from fk_pipeline.blocks.versions import OUTCOME
from fk_pipeline.effects import CountBy, Effect, Upsert
from fk_pipeline.identity import APPLIED, INSERTED, Side
from fk_pipeline.kinds.table.kind import CHANGED_ROW, NEW_ROW, REMOVED_ROW, VERSIONS, TableStage
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import text
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.sizes import UNKNOWN

_DECISION, _STORED_HASH = "_fk_decision", "_fk_there"

_DECIDED = f"""
    CASE WHEN {s.HASH} IS NULL THEN '{REMOVED_ROW}' WHEN {OUTCOME} = '{INSERTED}' THEN '{NEW_ROW}' ELSE '{CHANGED_ROW}'
    END AS {_DECISION}
"""


def table(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches to `versions`, and then write the rows whose content changed.

    The values of these rows are at hand. A run that died between the two commits left rows of its batches in `versions`
    only: they are looked up and written by the next run of the same batches.
    """
    spec, stored = read.spec, read.about(VERSIONS).rows
    keys = {column.name: column.name for column in spec.input.key_columns}
    values = [column.name for column in spec.input.value_columns]

    def once(rows: RowSet) -> tuple[RowSet, list[Effect]]:
        """Computes rows for both tables together, except those of a first load, which are written as they are read."""
        if not stored and rows.at_most > read.limits.in_driver:
            return rows, []
        return read.frames.cached(rows.frame, None if rows.at_most >= UNKNOWN else rows.at_most), []

    make = by_versions([*keys], values)
    effects = state_effects(read, TableStage.CHANGELOG, "changelog", VERSIONS, keys, make, carries=values, note=once)
    if not effects:
        return []
    applied = effects[-1]
    assert isinstance(applied, Upsert)
    columns = [quote(name) for name in (*keys, s.HASH, *values)]
    changed = (
        applied.rows.frame.where(F.col(OUTCOME).isin(INSERTED, APPLIED))
        .where(f"NOT ({OUTCOME} = '{INSERTED}' AND {s.HASH} IS NULL)")
        .selectExpr(*columns, f"{s.APPLIED_IN} AS {s.BATCH}", _DECIDED)
    )
    at_most = applied.rows.at_most
    if not read.history.first_time:
        left, number = _left_behind(read, applied.rows.frame, [*keys])
        changed, at_most = changed.unionByName(left), min(at_most + number, UNKNOWN)
    rows = changed.selectExpr("*", f"{s.HASH} IS NULL AS {s.DELETED}", f"CURRENT_TIMESTAMP() AS {s.CHANGED_AT}")
    all_new = "" if stored else text(NEW_ROW)
    counted = CountBy(s.BATCH, _DECISION, stored=s.BATCH, first=all_new, new=(NEW_ROW,))
    version = read.about(VERSIONS).version
    # For `contract.Removals`: this run may have nothing for `versions`.
    facts = {} if version is None or version < 0 else {VERSIONS: version}
    planned = read.frames.planned(rows, at_most)
    return [*effects, Upsert(TableStage.TABLE, planned, s.DELETED, counted, facts)]


def _left_behind(read: Reader, applied: DataFrame, keys: list[str]) -> tuple[DataFrame, int]:
    """Returns the rows that an earlier run of the batches changed in `versions` and not in the table, and a bound.

    A version whose changelog row was replaced meanwhile is left out: its batch is due.
    """
    spec, stage = read.spec, TableStage.TABLE
    applied_keys = applied.where(F.col(OUTCOME).isin(INSERTED, APPLIED)).select(*map(quote, keys))
    before = read.of_batches(VERSIONS, s.APPLIED_IN).where(read.batches.predicate(s.APPLIED_IN))
    before = before.select(*map(quote, keys), s.HASH, s.OWNER, s.APPLIED_IN).join(applied_keys, keys, "left_anti")
    same = {name: name for name in keys}
    candidates = read.frames.cached(before, None)
    stored = read.with_keys(stage, candidates, same, needed=[s.HASH]).select(
        *map(quote, keys), F.col(s.HASH).alias(_STORED_HASH)
    )
    differ = candidates.frame.join(stored, keys, "left").where(f"NOT ({s.HASH} <=> {_STORED_HASH})")
    missing = read.frames.cached(differ, None)
    log = with_content(read.with_keys("changelog", missing, same), spec, Side.INPUT, read.evaluator)
    values = [column.name for column in spec.input.value_columns]
    logged = log.where(f"{s.HASH} IS NOT NULL").select(
        *map(quote, keys), F.col(s.BATCH).alias(s.OWNER), F.col(s.HASH).alias("_fk_logged"), *map(quote, values)
    )
    rows = missing.frame.join(logged, [*keys, s.OWNER], "left").where(f"{s.HASH} <=> _fk_logged")
    decided = f"IF({s.HASH} IS NULL, '{REMOVED_ROW}', IF({_STORED_HASH} IS NULL, '{NEW_ROW}', '{CHANGED_ROW}'))"
    missing_rows = rows.selectExpr(
        *map(quote, (*keys, s.HASH, *values)), f"{s.APPLIED_IN} AS {s.BATCH}", f"{decided} AS {_DECISION}"
    )
    return missing_rows, missing.at_most
