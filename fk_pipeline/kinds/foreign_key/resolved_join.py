"""Stage `resolved_join`: applies the responses that are about the current rows of both sides and drops all others.

It is KIP-213's response join. Kafka checks only the left hash and relies on ordered partitions for the right side; here
both hashes are checked (architecture, rule 3), so that stages may run in any order. Every response gets one verdict; a
verdict that the response implies is not stored (ADR 0021).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.as_of import is_closed
from fk_pipeline.blocks.outputs import FAILED, PAIR_AS_JSON, keys_of_pairs, select_outputs, with_names
from fk_pipeline.identity import EXPIRED, HALF_QUARANTINED, QUARANTINED, Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import (
    HALF_JOINED,
    JOINED,
    REFUSED,
    RETRACTED,
    REWRITTEN,
    STALE_LEFT,
    STALE_RIGHT,
    UNCHANGED,
)
from fk_pipeline.kinds.foreign_key.rights import right_hash, right_row, with_right
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import ISOLATING, STOPPING, Evaluator
from fk_pipeline.store import schemas as s


def writing(spec: ForeignKeySpec) -> tuple[str, ...]:
    """Returns the verdicts that change the result, before it is known for which pairs an expression fails."""
    return (JOINED, HALF_JOINED, RETRACTED, *(() if spec.inner else (EXPIRED,)))


IMPLIED = (JOINED, HALF_JOINED)
"""Verdicts that are not stored: a decided response without one was written, and its right hash implies which it has."""

IMPLIED_SQL = f"IF({s.RIGHT_HASH} IS NULL, '{HALF_JOINED}', '{JOINED}')"
"""SQL (STRING) over a response: its implied verdict."""

_HALF_FAILED, _KEY_FAILED = "_fk_half_failed", "_fk_key_failed"
"""Columns of `rows_changed`: the reason why the left row is computed without its right row, and why the result key
cannot be computed."""

RESULT_FK, _REMOVES = "_fk_stood", "_fk_removes"
"""Columns: the foreign key under which the result has a row of the left key; the row is the removal of that row."""

REPLACING = (JOINED, HALF_JOINED, RETRACTED, *REFUSED)
"""Verdicts of an outer join after which the result has no longer the row of the left key that it had."""

_CURRENT_LEFT, _CURRENT_RIGHT = "_fk_current_left", "_fk_current_right"


def decide(
    due: DataFrame,
    subscriptions: DataFrame | None,
    right_table: DataFrame | None,
    left_changelog: DataFrame | None,
    result: DataFrame,
    spec: ForeignKeySpec,
    carry: bool = False,
) -> DataFrame:
    """Decides the verdict on every response that is due.

    Args:
        due: the responses.
        subscriptions: the subscription store; None if it is known not to have changed since the responses were
            computed. For this and the other tables the rows with keys of `due` are enough.
        right_table: the right rows that may answer (`rights.answering`); None if they are known not to have changed
            since then.
        left_changelog: the left changelog with the hash of the content (`changelog.with_content`); None if every left
            row is known to be in the partition of its owner.
        result: the resolved join.
        spec: the pipeline.
        carry: whether to return the rows of both sides with the verdict; otherwise `with_rows` fetches them.

    Returns:
        The responses (one row per batch, left key and cause) with `_fk_verdict`; `_fk_owner` is the batch whose
        changelog partition has the payload of the left row; with `carry` also `left` and `right`; with `result_key:
        both`, or in an outer join, also `_fk_stood` (STRUCT): the foreign key of the row that the result has, null if
        it has none.
    """
    rows, left_is_current = _with_current_left(due, subscriptions, spec)
    rows, right_is_current, closed = _with_current_right(rows, right_table, spec, carry=carry)
    rows, is_logged = _with_logged_left(rows, left_changelog, spec, carry=carry)
    rows = rows.join(_stored_rows(result, spec), k.pk_names(spec), "left")
    verdict = _verdict(left_is_current, right_is_current, is_logged, closed, inner=spec.inner)
    return rows.select(
        *map(quote, due.columns),
        verdict.alias(k.VERDICT),
        *(["left", "right"] if carry else []),
        *([RESULT_FK] if k.stands_by(spec) else []),
    )


def _with_current_left(
    due: DataFrame, subscriptions: DataFrame | None, spec: ForeignKeySpec
) -> tuple[DataFrame, Column]:
    """Returns responses with the current `_fk_owner`, and whether the left row of each is current (BOOLEAN)."""
    if subscriptions is None:
        return due, F.lit(True)
    pks = k.pk_names(spec)
    left = subscriptions.select(*map(quote, pks), F.col(s.HASH).alias(_CURRENT_LEFT), s.OWNER)
    rows = due.drop(s.OWNER).join(left, pks, "left")
    return rows, F.col(s.LEFT_HASH).eqNullSafe(F.col(_CURRENT_LEFT))


def _with_current_right(
    rows: DataFrame, right_table: DataFrame | None, spec: ForeignKeySpec, *, carry: bool
) -> tuple[DataFrame, Column, Column]:
    """Returns responses beside their current right rows; with `carry` also with these rows as `right`.

    And two conditions (BOOLEAN): the right row of a response is current, and the response is about a closed time.
    """
    if right_table is None:
        return rows, F.lit(True), F.expr(is_closed(s.RIGHT_HASH))
    right = [F.expr(right_hash(spec)).alias(_CURRENT_RIGHT), *([right_row(spec).alias("right")] if carry else [])]
    # A time may have been closed since the response was made: then the response is about a closed time.
    closed = F.expr(is_closed(_CURRENT_RIGHT))
    is_current = closed | F.col(s.RIGHT_HASH).eqNullSafe(F.col(_CURRENT_RIGHT))
    return with_right(rows, right_table, spec, right), is_current, closed


def _with_logged_left(
    rows: DataFrame, left_changelog: DataFrame | None, spec: ForeignKeySpec, *, carry: bool
) -> tuple[DataFrame, Column]:
    """Returns responses, with `carry` with `left`, and whether the owner's changelog partition has the left row."""
    if left_changelog is None:
        return rows, F.lit(True)
    logged = left_changelog.select(
        *_as_pks(spec),
        F.col(s.BATCH).alias(s.OWNER),
        F.col(s.HASH).alias("_fk_logged"),
        *([_left_row(spec).alias("left")] if carry else []),
    )
    is_logged = F.col("_fk_logged").eqNullSafe(F.col(s.LEFT_HASH))
    return rows.join(logged, [*k.pk_names(spec), s.OWNER], "left"), is_logged


def _stored_rows(result: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns, per left key of the result, `_fk_stored` (true), both hashes, and `_fk_stood` if a run must know it."""
    fks = k.stands_by(spec)
    return result.select(
        *map(quote, k.pk_names(spec)),
        F.lit(True).alias("_fk_stored"),
        F.col(s.LEFT_HASH).alias("_fk_stored_left"),
        F.col(s.RIGHT_HASH).alias("_fk_stored_right"),
        *([F.struct(*map(quote, fks)).alias(RESULT_FK)] if fks else []),
    )


def _verdict(
    left_is_current: Column, right_is_current: Column, is_logged: Column, closed: Column, *, inner: bool
) -> Column:
    """Returns the verdict on a response, given beside the row of the result: that of the first check that applies."""
    is_stored = F.coalesce("_fk_stored", F.lit(False))
    gone = F.col(s.LEFT_HASH).isNull() | ((F.col(s.RIGHT_HASH).isNull() | closed) & F.lit(inner))
    same_left = is_stored & F.col("_fk_stored_left").eqNullSafe(F.col(s.LEFT_HASH))
    return (
        F.when(~left_is_current, STALE_LEFT)
        .when(~right_is_current, STALE_RIGHT)
        .when(closed & same_left, UNCHANGED)  # the row stays as it was answered
        .when(gone, F.when(is_stored, RETRACTED).when(closed, EXPIRED).otherwise(UNCHANGED))
        .when(same_left & F.col("_fk_stored_right").eqNullSafe(F.col(s.RIGHT_HASH)), UNCHANGED)
        .when(~is_logged, REWRITTEN)
        .when(closed, EXPIRED)
        .otherwise(F.expr(IMPLIED_SQL))
    )


def first_rows(left_changelog: DataFrame, rights: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns the rows of `with_rows` for the responses of a whole changelog whose rows are all current ones.

    The rows of the changelog have their content (`changelog.with_content`).
    """
    left = left_changelog.where(~F.col(s.DELETED)).select(
        *_as_pks(spec),
        *map(quote, k.subscribed(spec)),
        s.BATCH,
        F.col(s.HASH).alias(s.LEFT_HASH),
        _left_row(spec).alias("left"),
    )
    exists = rights.where(F.expr(right_hash(spec)).isNotNull())
    right = [F.expr(right_hash(spec)).alias(s.RIGHT_HASH), right_row(spec).alias("right")]
    rows = with_right(left, exists, spec, right, "inner" if spec.inner else "left")
    return rows.withColumn(k.VERDICT, F.expr(IMPLIED_SQL))


def with_rows(decided: DataFrame, left_changelog: DataFrame, rights: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns decided responses with `left` and `right`, the rows of both sides as structs (null if there is none)."""
    left = left_changelog.select(*_as_pks(spec), F.col(s.BATCH).alias(s.OWNER), _left_row(spec).alias("left"))
    # The left rows are joined last: that join sorts by their keys, and the rows are written in that order.
    return with_right(decided, rights, spec, [right_row(spec).alias("right")]).join(
        left, [*k.pk_names(spec), s.OWNER], "left"
    )


def _as_pks(spec: ForeignKeySpec) -> list[Column]:
    return [F.col(quote(c.name)).alias(k.pk(c.name)) for c in spec.left.key_columns]


def _left_row(spec: ForeignKeySpec) -> Column:
    return F.struct(*[quote(c.name) for c in spec.left.columns])


def rows_changed(rows: DataFrame, spec: ForeignKeySpec, evaluator: Evaluator = STOPPING) -> DataFrame:
    """Returns the rows to write: one per left key whose verdict changes the result, with the selected columns.

    With `result_key: both`, a row that gets another foreign key is two: the new one, and the removal of the old one.

    Args:
        rows: decided responses with `left` and `right`, as `rows_to_write` chooses them.
        spec: the pipeline.
        evaluator: with row-error isolation, a row on which a selected expression fails leaves the result; in a left
            join it is computed without its right row if the expression reads that. Otherwise Spark stops.

    Returns:
        The columns of `resolved_join` and `_fk_deleted`, true if the row leaves the result; with row-error isolation
        also `_fk_failed` (the reason why it cannot be computed as it is; null if it can) and `_fk_pair` (the two rows
        that fail, as JSON). A row computed without its right row has no right hash, so every later response about it is
        decided again.
    """
    pks = k.pk_names(spec)
    columns = [*pks, *k.fk_names(spec), s.LEFT_HASH, s.RIGHT_HASH, s.BATCH]
    none = [F.lit(None).cast(dtype).alias(name) for name, dtype in k.unmatched_columns(spec)]
    answered = F.expr(f"IF({k.VERDICT} = '{EXPIRED}', NULL, {s.RIGHT_HASH})")
    rows = (
        _with_removals(rows, spec)
        .withColumn(s.RIGHT_HASH, answered)
        .select(*map(quote, columns), F.col(_REMOVES).alias(s.DELETED), *none, "left", "right")
    )
    return selected_rows(rows, spec, evaluator, halves=not spec.inner)


def selected_rows(rows: DataFrame, spec: ForeignKeySpec, evaluator: Evaluator, *, halves: bool) -> DataFrame:
    """Returns rows of the result with the selected columns; see `rows_changed`.

    Args:
        rows: the columns of the result that the engine adds, except the time, `_fk_deleted`, and `left` and `right`.
        spec: the pipeline.
        evaluator: evaluates the expressions.
        halves: whether a row on which an expression fails is computed without its right row.
    """
    rows = with_result_key(rows, spec, evaluator).withColumn(s.CHANGED_AT, F.current_timestamp())
    keep = [name for name in rows.columns if name not in ("left", "right", _KEY_FAILED)]
    if not evaluator.isolating:
        return select_outputs(rows, spec, keep)
    return _select_isolating(rows, spec, keep, halves=halves)


def with_result_key(rows: DataFrame, spec: ForeignKeySpec, evaluator: Evaluator = STOPPING) -> DataFrame:
    """Returns rows of the result with the columns of a result key of one's choice (`_fk_key_*`), if there is one.

    The expressions see the columns of both keys, as `left` and `right` and by names that only one key has. A left row
    without a match has the values of its foreign key as right key.

    Args:
        rows: rows with `_fk_pk_*` and `_fk_fk_*`.
        spec: the pipeline.
        evaluator: if it is isolating, an expression is null where it fails, and `_fk_key_failed` has the reason.
    """
    if not spec.key_outputs:
        return rows.withColumn(_KEY_FAILED, F.lit(None).cast("string")) if evaluator.isolating else rows
    keys = {Side.LEFT: (spec.left, k.pk), Side.RIGHT: (spec.right, k.fk)}
    names = [c.name.lower() for side, _ in keys.values() for c in side.key_columns]
    structs = [
        F.struct(*[F.col(quote(name(c.name))).alias(c.name) for c in side.key_columns]).alias(which)
        for which, (side, name) in keys.items()
    ]
    flat = [
        F.col(quote(name(c.name))).alias(c.name)
        for side, name in keys.values()
        for c in side.key_columns
        if names.count(c.name.lower()) == 1
    ]
    values = {k.chosen(o.name): F.expr(o.sql) for o in spec.key_outputs}
    if evaluator.isolating:
        reason = evaluator.reason((f"NOT _fk_row.{s.DELETED}", o.sql, "result_key") for o in spec.key_outputs)
        values = {name: F.when(F.expr(f"{reason} IS NULL"), value) for name, value in values.items()}
        values[_KEY_FAILED] = F.expr(reason)
    made = rows.select(F.struct("*").alias("_fk_row"), *structs, *flat)
    return made.select("_fk_row.*", *[value.alias(name) for name, value in values.items()])


def _with_removals(rows: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Adds `_fk_removes` (BOOLEAN) to decided responses: the row is removed from the result.

    If the foreign key is part of the result key, the removal of a row has the foreign key that the row had, and a row
    with another foreign key becomes two: a removal and a new row.
    """
    retracted = f"{k.VERDICT} = '{RETRACTED}'"
    if RESULT_FK not in rows.columns or not k.paired_columns(spec):
        return rows.withColumn(_REMOVES, F.expr(retracted))
    fks = k.fk_names(spec)
    same = " AND ".join(f"{quote(fk)} <=> {RESULT_FK}.{quote(fk)}" for fk in fks)
    moved = f"{RESULT_FK} IS NOT NULL AND NOT ({same})"
    each = f"CASE WHEN {retracted} THEN ARRAY(TRUE) WHEN {moved} THEN ARRAY(TRUE, FALSE) ELSE ARRAY(FALSE) END"
    rows = rows.withColumn(_REMOVES, F.explode(F.expr(each)))
    return rows.withColumns({fk: F.expr(f"IF({_REMOVES}, {RESULT_FK}.{quote(fk)}, {quote(fk)})") for fk in fks})


def rows_to_write(decided: DataFrame, spec: ForeignKeySpec, once: bool = False) -> DataFrame:
    """Returns one decided response per left key whose verdict changes the result.

    Several responses of one range that pass both checks for a key are about the same two rows: one of them is kept.

    Args:
        decided: the responses as `decide` returns them.
        spec: the pipeline.
        once: whether there is one response per key already, as `responses` returns them for one batch.
    """
    chosen = decided.where(F.col(k.VERDICT).isin(*writing(spec)))
    return chosen if once else chosen.dropDuplicates(k.pk_names(spec))


def pair_keys(spec: ForeignKeySpec) -> list[Column]:
    """Returns the keys of a pair of rows in the quarantine: `_fk_pk_*` and `_fk_fk_*`, null without the row."""
    return keys_of_pairs(spec, {Side.LEFT: k.pk, Side.RIGHT: k.fk})


def refused_pairs(decided: DataFrame, changed: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Changes the verdicts on responses that pass both checks and whose row cannot be computed as it is.

    Args:
        decided: the responses as `decide` returns them.
        changed: the rows as `rows_changed` returns them with row-error isolation.
        spec: the pipeline.

    Returns:
        `decided` with the verdict `quarantined` where the row leaves the result, `half-quarantined` where the result
        has it without its right row; and with the columns of the quarantine besides `_fk_batch`: `_fk_file` and
        `_fk_line` (null: the record is a pair of rows, not a line), `_fk_reason` and `_fk_raw`.
    """
    pks = k.pk_names(spec)
    verdict = F.when(F.col(s.DELETED), QUARANTINED).otherwise(HALF_QUARANTINED)
    failing = changed.where(F.col(FAILED).isNotNull()).select(
        *map(quote, pks), F.col(FAILED).alias(s.REASON), F.col(PAIR_AS_JSON).alias(s.RAW), verdict.alias("_fk_refused")
    )
    refused = F.col(k.VERDICT).isin(JOINED, HALF_JOINED, EXPIRED) & F.col(s.REASON).isNotNull()
    verdicts = decided.join(failing, pks, "left").withColumns(
        {
            k.VERDICT: F.when(refused, F.col("_fk_refused")).otherwise(F.col(k.VERDICT)),
            s.FILE: F.lit(None).cast("string"),
            s.LINE: F.lit(None).cast("bigint"),
        }
    )
    return verdicts.drop("_fk_refused")


def _select_isolating(joined: DataFrame, spec: ForeignKeySpec, keep: Sequence[str], *, halves: bool) -> DataFrame:
    """Returns the columns of `select_outputs`, `_fk_failed` and `_fk_pair`.

    A row on which an expression fails gets `_fk_deleted`. With `halves`, if an expression that reads the right side
    fails and none that reads only the left side does, the row is computed as if it had no right row; it gets
    `_fk_deleted` if an expression fails even then.
    """
    doubtful = {output.name: output.sql for output in spec.outputs if not output.plain}
    of_right = {name: sql for name, sql in doubtful.items() if halves and name in spec.right_outputs}
    others = [sql for name, sql in doubtful.items() if name not in of_right]

    def why(expressions: Iterable[str], where: str) -> str:
        return ISOLATING.reason((where, sql, "select") for sql in expressions)

    pair = joined.withColumn(PAIR_AS_JSON, F.to_json(F.struct("left", "right")))
    frame = with_names(pair, spec, [*keep, PAIR_AS_JSON, _KEY_FAILED]).selectExpr(
        "*",
        f"COALESCE({_KEY_FAILED}, {why(others, f'NOT {s.DELETED}')}) AS {FAILED}",
        f"{why(of_right.values(), f'NOT {s.DELETED} AND right IS NOT NULL')} AS {_HALF_FAILED}",
    )
    without = f"{_HALF_FAILED} IS NOT NULL AND {FAILED} IS NULL"
    frame = frame.withColumns(
        {
            "right": F.expr(f"IF({without}, NULL, right)"),
            s.RIGHT_HASH: F.expr(f"IF({without}, NULL, {s.RIGHT_HASH})"),
        }
    )
    frame = with_names(frame, spec, [*keep, PAIR_AS_JSON, FAILED, _HALF_FAILED]).withColumn(
        FAILED, F.expr(f"COALESCE({FAILED}, {why(of_right.values(), f'NOT {s.DELETED} AND right IS NULL')})")
    )
    failed = F.col(FAILED).isNotNull()
    columns = {name: F.col(quote(name)) for name in keep} | {s.DELETED: F.col(s.DELETED) | failed}
    reason = F.coalesce(FAILED, _HALF_FAILED)
    return frame.select(
        *[column.alias(name) for name, column in columns.items()],
        reason.alias(FAILED),
        F.when(reason.isNotNull(), F.col(PAIR_AS_JSON)).alias(PAIR_AS_JSON),
        *[F.when(~failed, F.expr(o.sql)).alias(o.name) for o in spec.outputs],
    )
