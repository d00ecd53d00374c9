"""Rules for the rows of an outer join without a left row: those of right rows that no other row of the result has."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import OF_PAIRS
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.rights import as_fks, right_row
from fk_pipeline.kinds.foreign_key.rules.reading import pks_of, unwritten_of
from fk_pipeline.kinds.foreign_key.rules.responses import excused_keys
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.unmatched_rights import matched_keys, no_left_row
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.scan import COPIES, ROW, Rule, View, hex_of, only_one, with_copies
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

_RIGHT, _CHANGED_IN, _MATCHED, _REFUSED, _OWN_KEY = (
    "_fk_right",
    "_fk_changed_in",
    "_fk_matched",
    "_fk_refused",
    "_fk_own",
)


def unmatched_view(reader: CheckReader) -> View:
    """Returns the view of the right rows that stand alone, or should."""
    keys = ", ".join(f"{quote(fk)} AS {quote(name)}" for name, fk in k.right_keys(reader.spec).items())
    batch = f"COALESCE({s.BATCH}, {_CHANGED_IN})"
    return View(_rows(reader), f"STRUCT({keys})", batch, _rules(), excused_keys(reader))


def _rules() -> tuple[Rule, ...]:
    """Returns the rules for `_rows`. At most one of them applies to a row, besides that of two rows."""
    stored = f"CONCAT('right ', {hex_of(s.RIGHT_HASH)})"
    current = f"IF({_MATCHED}, 'no row: a left row has it', CONCAT('right ', {hex_of(_RIGHT)}))"
    is_unmatched = f"{_RIGHT} IS NOT NULL AND NOT {_MATCHED}"
    stale = f"NOT ({is_unmatched}) OR NOT ({s.RIGHT_HASH} <=> {_RIGHT}) OR NOT {_OWN_KEY}"
    return (
        only_one("one_row_per_right_key_alone"),
        Rule("no_stale_row_alone", f"{ROW} IS NOT NULL AND ({stale})", stored, current),
        Rule("no_missing_row_alone", f"{ROW} IS NULL AND {is_unmatched} AND {_REFUSED} IS NULL", "'no row'", current),
    )


def _rows(reader: CheckReader) -> DataFrame:
    """Returns the rows of the result without a left row, with the current versions of their right rows.

    Returns:
        One row per such row and per right key without one: the key columns of the result (null for the left key) and
        the right key as `_fk_fk_*`; `_fk_row`, `_fk_copies`, `_fk_right_hash` and `_fk_batch` of the row;
        `_fk_own` (BOOLEAN): its key is the right key; `_fk_right` and `_fk_changed_in` of the right table;
        `_fk_matched` (BOOLEAN): a row of the result with a left row has the right row; `_fk_refused`: not null if
        `select` failed on the right row alone.
    """
    spec = reader.spec
    fks, alones = k.fk_names(spec), [name for name, _ in k.unmatched_columns(spec)]
    all_rows = reader.batches is None or reader.small or unwritten_of(reader)
    stored, rights, matched = _whole(reader) if all_rows else _of_the_batches(reader)
    own = " AND ".join(f"{quote(fk)} <=> {quote(key)}" for fk, key in zip(fks, alones, strict=False)) or "TRUE"
    result = with_copies(stored, list(map(quote, alones or fks))).select(
        *map(quote, fks), ROW, COPIES, s.RIGHT_HASH, s.BATCH, F.expr(own).alias(_OWN_KEY)
    )
    rows = result.join(rights.select(*map(quote, fks), _RIGHT, _CHANGED_IN), fks, "full")
    rows = rows.join(matched.distinct().withColumn(_MATCHED, F.lit(True)), fks, "left")
    rows = rows.withColumn(_MATCHED, F.coalesce(_MATCHED, F.lit(False)))
    if reader.spec.computes:
        rows = rows.join(_refused(reader).withColumn(_REFUSED, F.lit(True)), fks, "left")
    else:
        rows = rows.withColumn(_REFUSED, F.lit(None).cast("boolean"))
    nulls = {name: F.lit(None).cast(dtype) for name, dtype in k.pk_columns(spec)}
    return rows.withColumns(nulls | {key: F.col(quote(fk)) for fk, key in zip(fks, alones, strict=False)})


def _whole(reader: CheckReader) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Returns the rows of the result without a left row, the right rows, and the right keys of all other rows."""
    spec, result = reader.spec, reader.whole(k.RESOLVED_JOIN)
    return (
        result.where(f"NOT {k.has_left(spec)}"),
        _rights(reader.whole(k.RIGHT_TABLE), spec),
        matched_keys(result, spec),
    )


def _rights(table: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns right rows as the result names them: `_fk_fk_*`, `_fk_right` (hash) and `_fk_changed_in`."""
    return table.select(*as_fks(spec), F.col(s.HASH).alias(_RIGHT), F.col(s.APPLIED_IN).alias(_CHANGED_IN))


def _of_the_batches(reader: CheckReader) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Returns the same for the right keys that the batches concern.

    These are the keys of right rows that changed, of responses, and of rows of the result that were written.
    """
    spec = reader.spec
    rights, fks = k.right_keys(spec), {fk: fk for fk in k.right_keys(spec).values()}
    places = {k.RESPONSES: s.BATCH, k.RESOLVED_JOIN: s.BATCH}
    referred = reader.touched_by(places, fks).frame.dropna()
    changed = reader.touched_by({k.RIGHT_TABLE: s.APPLIED_IN}, {fk: name for name, fk in rights.items()}).frame
    keys = reader.at_hand(referred.unionByName(changed).distinct(), None)
    written = matched_keys(reader.of_batches(k.RESOLVED_JOIN, s.BATCH), spec)
    # A right key of a row that was written needs no search for another one: many rows may have it.
    open_keys = reader.at_hand(keys.frame.join(written, list(fks), "left_anti"), keys.at_most)
    result_keys = dict(zip([name for name, _ in k.unmatched_columns(spec)] or fks, fks, strict=True))
    stored = reader.with_keys(k.RESOLVED_JOIN, keys, result_keys).join(keys.frame, list(fks), "left_semi")
    current = _rights(reader.with_keys(k.RIGHT_TABLE, keys, rights), spec)
    current = current.join(keys.frame, list(fks), "left_semi")
    needed = [*pks_of(spec), *fks, s.RIGHT_HASH]
    referring = reader.with_keys(k.RESOLVED_JOIN, open_keys, fks, needed=needed)
    matched = matched_keys(referring, spec).unionByName(written)
    return stored.where(f"NOT {k.has_left(spec)}"), current, matched


def _refused(reader: CheckReader) -> DataFrame:
    """Returns the keys of the right rows, as they are now, that are alone in the quarantine: `_fk_fk_*`, distinct."""
    spec = reader.spec
    rights = reader.whole(k.RIGHT_TABLE).where(F.col(s.HASH).isNotNull())
    pair = F.to_json(F.struct(no_left_row(spec).alias("left"), right_row(spec).alias("right"))).alias(s.RAW)
    refused = reader.whole(s.QUARANTINE).where(F.col(s.SIDE) == OF_PAIRS).select(s.RAW)
    return rights.select(*as_fks(spec), pair).join(refused, s.RAW, "left_semi").drop(s.RAW)
