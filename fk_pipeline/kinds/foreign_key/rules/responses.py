"""Rules for the responses: every due response exactly once, and a response for every pair of current rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.as_of import is_closed
from fk_pipeline.blocks.horizon import sql_of
from fk_pipeline.frames import marked
from fk_pipeline.identity import BatchRange, ranges_sql
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kafka.instructions import PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.proof import pending as pending_keys
from fk_pipeline.kinds.foreign_key.rights import (
    Ends,
    answer_columns,
    answering,
    concerned,
    meeting,
    reached,
    right_hash,
    with_right,
)
from fk_pipeline.kinds.foreign_key.rules.reading import (
    ends_of,
    pks_of,
    subscribers_of,
    unwritten_of,
    versions_of,
)
from fk_pipeline.kinds.foreign_key.rules.subscription_store import source_key
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.rules.check_reader import CheckReader, at_once
from fk_pipeline.rules.logs import ledger_counts
from fk_pipeline.rules.scan import COPIES, PENDING, ROW, Counted, Rule, View, hex_of, only_one, with_copies
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s
from fk_pipeline.store.reader import ABSENT


def pair_of(left: str, right: str) -> str:
    """SQL (STRING): the hashes of a pair of rows, as people read them."""
    return f"CONCAT('left ', {hex_of(left)}, ', right ', {hex_of(right)})"


def response_key(spec: ForeignKeySpec) -> str:
    """SQL (STRUCT): the key of a response."""
    return source_key(spec, f"{s.BATCH} AS batch", f"{s.CAUSE} AS cause")


def excused_keys(reader: CheckReader) -> Callable[[DataFrame], DataFrame] | None:
    """Returns a function that adds `_fk_pending` to rows with a left key or the key of the result; None if none is due.

    `_fk_pending` is true if work that is due may still change the rows of the key.
    """
    if not any(reader.due.values()):
        return None

    def mark(rows: DataFrame) -> DataFrame:
        read = {name: reader.whole(name) for name in reader.spec.definition.proved}
        return marked(rows, PENDING, pending_keys(read, reader.due, reader.spec), nullable=reader.spec.outer)

    return mark


def beside_right(rows: DataFrame, rights: DataFrame, spec: ForeignKeySpec, ends: Ends) -> DataFrame:
    """Returns rows with the right row that answers each: `_fk_right` (hash), `_fk_changed_in`, `_fk_told`.

    `_fk_told` is false for the tombstone of a key that never had a row: no subscription gets a response about it.

    Args:
        rows: rows with the foreign key, and with `as_of` the time.
        rights: the right table, or its rows with these keys.
        spec: the pipeline.
        ends: what may have ended versions, with `as_of`.
    """
    propagated = f"({s.SEEN_BEFORE} OR {s.HASH} IS NOT NULL)"
    columns = {"_fk_right": right_hash(spec), "_fk_changed_in": s.APPLIED_IN, "_fk_told": propagated}
    of_right = [F.expr(sql).alias(name) for name, sql in columns.items()]
    return with_right(rows, answering(rights, spec, ends), spec, of_right)


def responses_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the views of the responses: by themselves, against the counts of the ledger, and against their causes."""
    stored = reader.of_batches(k.RESPONSES, s.BATCH)
    counted = ledger_counts("rows_are_those_counted", reader, "left-driven", "right-driven")
    if reader.batches is None:
        return [_single(stored, reader.spec, counted), _pairs(reader)]
    groups = _snapshots(reader)
    covered = {batch for batches in groups.values() for batch in batches}
    others = [int(batch) for batch in reader.known if batch not in covered]
    views = [
        _snapshot(reader.as_of(dict(read)), stored, batches, counted.of(batches), horizon)
        for (read, horizon), batches in groups.items()
    ]
    if others or not views:
        uncovered = stored.where(f"NOT {ranges_sql(s.BATCH, covered)}")
        views.append(_single(uncovered, reader.spec, counted.of(others)))
    return views


def _single(stored: DataFrame, spec: ForeignKeySpec, counted: Counted) -> View:
    rows = with_copies(stored, [s.BATCH, *map(quote, k.pk_names(spec)), s.CAUSE])
    return View(rows, response_key(spec), s.BATCH, (only_one("one_answer_per_key_and_cause"),), counted=(counted,))


def _pairs(reader: CheckReader) -> View:
    """View with one row per left key ever seen: its current row and the current right row that it refers to.

    Batches whose responses are removed, or were not written, have none.
    """
    spec, none = reader.spec, reader.folded.union(unwritten_of(reader))
    pks = [n for n, _ in k.pk_columns(spec)]
    store = reader.whole(k.SUBSCRIPTION_STORE).select(
        *map(quote, [*pks, *k.subscribed(spec)]), F.col(s.HASH).alias(s.LEFT_HASH), k.INSTRUCTION, s.APPLIED_IN
    )
    sent = reader.whole(k.RESPONSES).select(*map(quote, pks), s.LEFT_HASH, s.RIGHT_HASH).distinct()
    store = marked(store, "_fk_reached", _reached_by(none, store, reader), nullable=False)
    pairs = beside_right(store, reader.whole(k.RIGHT_TABLE), spec, ends_of(reader))
    pairs = pairs.withColumnRenamed("_fk_right", s.RIGHT_HASH)
    same = [pairs[quote(pk)] == sent[quote(pk)] for pk in pks]
    same += [pairs[name].eqNullSafe(sent[name]) for name in (s.LEFT_HASH, s.RIGHT_HASH)]
    rows = pairs.join(sent.withColumn("_fk_said", F.lit(True)), reduce(lambda a, b: a & b, same), "left").select(
        *[pairs[quote(name)] for name in [*pks, s.LEFT_HASH, s.RIGHT_HASH, k.INSTRUCTION, s.APPLIED_IN]],
        "_fk_said",
        "_fk_changed_in",
        "_fk_reached",
        F.lit(True).alias(ROW),
    )
    without = " OR ".join(ranges_sql(name, none, reader.ledger.batches) for name in (s.APPLIED_IN, "_fk_changed_in"))
    asks = (
        f"{k.INSTRUCTION} IS NOT NULL AND "
        f"({k.INSTRUCTION} <> '{PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE}' OR {s.RIGHT_HASH} IS NOT NULL)"
    )
    rule = Rule(
        "every_current_pair_has_a_response",
        f"{asks} AND _fk_said IS NULL AND NOT ({without} OR _fk_reached OR {is_closed(s.RIGHT_HASH)})",
        "'no response'",
        pair_of(s.LEFT_HASH, s.RIGHT_HASH),
    )
    return View(rows, source_key(spec), s.APPLIED_IN, (rule,), excused_keys(reader))


def _reached_by(batches: Collection[int], store: DataFrame, reader: CheckReader) -> list[DataFrame]:
    """Returns the left keys to which a change in some batches may have given another version, or another end of it.

    No frame without `as_of`, or without batches.
    """
    spec = reader.spec
    if spec.as_of is None or not batches:
        return []
    ends = ends_of(reader)
    ends = replace(ends, changed=[batch for batch in ends.changed if batch in batches])
    times = reached(reader.whole(k.RIGHT_TABLE), spec, BatchRange.of(min(batches), max(batches)), ends)
    subscriptions = meeting(store, times, spec).where(ranges_sql(s.BATCH, batches, reader.ledger.batches))
    return [subscriptions.select(*map(quote, k.pk_names(spec))).distinct()]


def _snapshots(reader: CheckReader) -> dict[tuple[tuple[tuple[str, int], ...], str | None], list[int]]:
    """Returns the batches, grouped by what their responses were made from: versions of tables, and the horizon.

    Batches that ran together read the same versions. A batch that was rebuilt, or had nothing to read, has no versions
    and is left out. So are batches whose responses were removed, as they are folded, or not written.
    """
    groups: dict[tuple[tuple[tuple[str, int], ...], str | None], list[int]] = {}
    none = reader.folded.union(unwritten_of(reader))
    for batch in (b for b in reader.known if b not in none):
        state = reader.ledger.state(Stage.RESPONSES, batch)
        read, horizon = state.versions, reader.ledger.folds.horizon(Stage.RIGHT_TABLE, state.started)
        # The truncates that the run knew are in the changelog as it read it; it reads none if there was none.
        names = (k.SUBSCRIPTION_STORE, k.RIGHT_TABLE, *((k.RIGHT_CHANGELOG,) if reader.spec.as_of_batch else ()))
        if any(name in read for name in names) and batch not in reader.due[Stage.RESPONSES]:
            snapshot = tuple((name, read.get(name, ABSENT)) for name in names), horizon
            groups.setdefault(snapshot, []).append(int(batch))
    return groups


def _snapshot(
    reader: CheckReader, stored: DataFrame, batches: list[int], counted: Counted, horizon: str | None
) -> View:
    spec = reader.spec
    columns = [quote(name) for name in (s.BATCH, *k.pk_names(spec), s.CAUSE)]
    content = f"STRUCT({k.INSTRUCTION} AS asked, {s.LEFT_HASH} AS left, {s.RIGHT_HASH} AS right)"
    present = stored.where(ranges_sql(s.BATCH, batches)).selectExpr(
        *columns, f"{content} AS _fk_said", "TRUE AS _fk_stored"
    )
    due = _expected(reader, batches, horizon).selectExpr(*columns, f"{content} AS _fk_said", "FALSE AS _fk_stored")
    rows = (
        present.unionByName(due)
        .groupBy(*columns)
        .agg(
            F.expr("COUNT_IF(_fk_stored)").alias(COPIES),
            F.expr("MAX_BY(_fk_said, 1) FILTER (WHERE _fk_stored)").alias("_fk_there"),
            F.expr("MAX_BY(_fk_said, 1) FILTER (WHERE NOT _fk_stored)").alias("_fk_wanted"),
        )
        .withColumn(ROW, F.expr(f"IF({COPIES} > 0, TRUE, NULL)"))
    )
    actual, expected = (
        f"CONCAT({pair_of(f'{name}.left', f'{name}.right')}, ', ', COALESCE({name}.asked, 'no instruction'))"
        for name in ("_fk_there", "_fk_wanted")
    )
    rules = (
        only_one("one_answer_per_key_and_cause"),
        Rule("no_missing_answer", f"{ROW} IS NULL", "'no response'", expected, False),
        Rule("no_unexpected_answer", "_fk_wanted IS NULL", actual, "'no response'", False),
        Rule(
            "answer_is_about_the_rows_read",
            f"{ROW} AND NOT (_fk_there <=> _fk_wanted) AND _fk_wanted IS NOT NULL",
            actual,
            expected,
            False,
        ),
    )
    return View(rows, response_key(spec), s.BATCH, rules, counted=(replace(counted, number=f"SUM({COPIES})"),))


def _expected(reader: CheckReader, batches: list[int], horizon: str | None) -> DataFrame:
    """Returns the responses that batches should have, computed from the tables at the versions of `reader`.

    With `history` the horizon is that of then.

    KIP-213 has two sources of responses: the subscriptions propagated on behalf of a batch, and the subscribers of the
    right rows changed on behalf of it. A subscription that asks for a response in the very batch in which its right row
    changed gets one response.

    Returns:
        One row per response: `_fk_batch`, left key, `_fk_cause`, `_fk_instruction` and the two hashes.
    """
    spec, ends = reader.spec, replace(ends_of(reader), horizon=sql_of(horizon))
    pks = [n for n, _ in k.pk_columns(spec)]
    subscriptions, rights = _concerned(reader, batches, ends)
    answered = beside_right(subscriptions, rights, spec, ends)
    own, changed = ranges_sql(s.APPLIED_IN, batches), ranges_sql("_fk_changed_in", batches)
    asks = (
        f"{own} AND {k.INSTRUCTION} IS NOT NULL AND "
        f"({k.INSTRUCTION} <> '{PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE}' OR _fk_right IS NOT NULL)"
    )
    hears = f"{changed} AND _fk_told AND NOT ({asks} AND {s.APPLIED_IN} = _fk_changed_in)"
    left = f"STRUCT({s.APPLIED_IN} AS batch, 'left' AS cause, {k.INSTRUCTION} AS asked)"
    right = "STRUCT(_fk_changed_in AS batch, 'right' AS cause, CAST(NULL AS STRING) AS asked)"
    responding = f"ARRAY_COMPACT(ARRAY(IF({asks}, {left}, NULL), IF({hears}, {right}, NULL)))"
    pairs = answered.where(f"{own} OR {changed}").withColumn("_fk_due", F.explode(F.expr(responding)))
    if spec.as_of is not None:
        pairs = _with_times(pairs, answered, rights, reader, batches, ends)
    return pairs.select(
        F.col("_fk_due.batch").alias(s.BATCH),
        *map(quote, pks),
        F.col("_fk_due.cause").alias(s.CAUSE),
        F.col("_fk_due.asked").alias(k.INSTRUCTION),
        F.col(s.HASH).alias(s.LEFT_HASH),
        F.col("_fk_right").alias(s.RIGHT_HASH),
    )


def _with_times(
    pairs: DataFrame,
    answered: DataFrame,
    rights: DataFrame,
    reader: CheckReader,
    batches: list[int],
    ends: Ends,
) -> DataFrame:
    """Adds the responses about versions that changed and do not answer the subscription now; see `_expected`.

    Args:
        pairs: the other responses, with `_fk_due`.
        answered: the subscriptions with the right rows that answer them.
        rights: the versions of their right keys.
        reader: the tables.
        batches: the batches whose responses are expected.
        ends: what may have ended versions.
    """
    pks = k.pk_names(reader.spec)
    subscriptions = concerned(answered, rights, reader.spec, BatchRange.of(min(batches), max(batches)), ends)
    subscriptions = subscriptions.where(F.col(s.BATCH).isin(batches)).dropDuplicates([*pks, s.BATCH])
    due = pairs.select(*map(quote, pks), F.col("_fk_due.batch").alias(s.BATCH))
    right_driven = f"STRUCT({s.BATCH} AS batch, 'right' AS cause, CAST(NULL AS STRING) AS asked)"
    more = subscriptions.join(due, [*pks, s.BATCH], "left_anti").withColumn("_fk_due", F.expr(right_driven))
    return pairs.unionByName(more.select(*map(quote, pairs.columns)))


def _concerned(reader: CheckReader, batches: list[int], ends: Ends) -> tuple[DataFrame, DataFrame]:
    """Returns the subscriptions that may get a response from the batches, and their right rows; or more of both."""
    if reader.small or ends.changed:
        return reader.whole(k.SUBSCRIPTION_STORE), reader.whole(k.RIGHT_TABLE)
    pks, right_keys = pks_of(reader.spec), k.right_keys(reader.spec)
    columns = [*pks, *k.subscribed(reader.spec), k.INSTRUCTION, s.HASH, s.APPLIED_IN]
    known = answer_columns(reader.spec)
    asking = reader.touched_by(
        {k.SUBSCRIPTION_STORE: s.APPLIED_IN},
        {c: c for c in columns},
        reader.history.propagated(Stage.SUBSCRIPTION_STORE),
    )
    changed = reader.touched_by(
        {k.RIGHT_TABLE: s.APPLIED_IN}, {c: c for c in known}, reader.history.propagated(Stage.RIGHT_TABLE)
    )
    if [*map(int, reader.known)] != batches:  # the responses of the other batches were made from other versions
        asking, changed = (rows.only(s.APPLIED_IN, batches) for rows in (asking, changed))
    same = {name: name for name in right_keys}
    hearing, referred, *others = at_once(
        lambda: subscribers_of(reader, changed, columns),
        lambda: versions_of(reader, asking, right_keys, known),
        *([] if reader.spec.as_of is None else [lambda: versions_of(reader, changed, same, known)]),
    )
    subscriptions = asking.frame.unionByName(hearing.frame).dropDuplicates([*pks])
    identity = k.keys_of(reader.spec, k.RIGHT_TABLE).keys
    rights = [part.frame for part in (referred, *(others or [changed]))]
    return subscriptions, rights[0].unionByName(rights[1]).dropDuplicates([*identity])
