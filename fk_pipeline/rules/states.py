"""Rules for a state table of current versions, compared with its changelog, for every kind of join.

A state row names its owner, the batch that wrote its version: it must have the values of the changelog row of that
batch, and the changelog may have no later writer of its key (`docs/architecture.md`, rules 1 and 2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import BatchRange, ranges_sql
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.logs import TRUNCATES
from fk_pipeline.rules.scan import PENDING, ROW, Rule, View, in_batch, only_one, with_copies
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

LOGGED, LOG_GENERATION = "_fk_logged", "_fk_log_generation"
"""Columns of the rows: the owner's changelog row exists (true, else null), and its generation. Generation and facts are
valid only if the row exists."""

_ORDER = f"STRUCT({s.SEQUENCE} AS sequence, {s.BATCH} AS batch)"
_OWN_VERSION = f"IF({s.OWNER} IS NULL, NULL, STRUCT({s.SEQUENCE} AS sequence, {s.OWNER} AS batch))"


def beside_changelog(
    reader: CheckReader,
    name: str,
    log_stage: str,
    log: DataFrame,
    keys: Mapping[str, str],
    facts: Mapping[str, str],
    columns: Sequence[str],
    *,
    truncates: bool = True,
) -> DataFrame:
    """Returns a state table joined to the changelog rows that it points to, and to the last writer of every key.

    Args:
        reader: the tables.
        name: the state table.
        log_stage: the stage that writes the changelog.
        log: the rows of the changelog; in a check of some batches, only their rows.
        keys: per key column of the state, its name in the changelog.
        facts: per name, SQL over a changelog row: the values that the rules compare the state with.
        columns: SQL over a row of the state: the values that the rules compare, apart from key and version.
        truncates: whether a truncate is a writer of every key.

    Returns:
        One row per row of the state and per key of the changelog without one: key, version and `columns`, `_fk_row`,
        `_fk_copies`; `_fk_logged` (the owner's row exists), and that row's `_fk_log_generation` and facts;
        `_fk_last` (sequence and batch of the last writer, which may be a truncate; null if there is none) and
        `_fk_truncates` (the owner's batch has a truncate).
    """
    within, truncated = reader.batches, truncates and bool(reader.history.truncated(log_stage))
    first = quote(next(iter(keys.values())))
    logged = _named_as_state(log.where(f"{first} IS NOT NULL"), keys, facts)
    selected = [*map(quote, keys), s.OWNER, s.GENERATION, s.APPLIED_IN, s.HASH, s.SEQUENCE, *columns]
    if within is None or truncated:
        state = reader.whole(name).selectExpr(*selected)
    else:
        log_name = reader.spec.definition.input(reader.ledger.inputs[log_stage]).log
        state, logged = reader.touched(name, selected, log_name, logged, keys, reader.rows_read(log_stage))
    rows = _with_logged(with_copies(state, [*map(quote, keys)]), logged, [*keys], within)
    if truncated:
        rows = _with_truncates(rows, log.where(f"{first} IS NULL").where(TRUNCATES))
    else:
        rows = rows.withColumns({"_fk_truncates": F.lit(None).cast("boolean"), "_fk_last": F.col("_fk_own_last")})
    if within is None:
        return rows
    return rows.where(f"_fk_last IS NOT NULL OR {within.predicate(s.OWNER)}")


def _named_as_state(log: DataFrame, keys: Mapping[str, str], facts: Mapping[str, str]) -> DataFrame:
    """Returns rows of a changelog with the key columns of the state, their place in the source's order, and facts.

    The place is `_fk_own_last` (sequence and batch); `_fk_logged_in` is the batch, `_fk_log_generation` its generation.
    """
    return log.selectExpr(
        *[f"{quote(name)} AS {quote(key)}" for key, name in keys.items()],
        f"{_ORDER} AS _fk_own_last",
        f"{s.BATCH} AS _fk_logged_in",
        f"{s.GENERATION} AS {LOG_GENERATION}",
        *[f"{sql} AS {name}" for name, sql in facts.items()],
    )


def _with_logged(rows: DataFrame, logged: DataFrame, keys: list[str], within: BatchRange | None) -> DataFrame:
    """Returns rows of a state, and keys without one, with the changelog row of the owner and the last of the key.

    Args:
        rows: the rows of the state.
        logged: the rows of the changelog, as `_named_as_state` returns them.
        keys: the key columns of the state.
        within: the batches that `logged` is of; None for all.
    """
    if within is not None and within.is_single:  # the log has one row per key: the owner's or a later one
        rows = rows.join(logged, keys, "full")
        return rows.withColumn(LOGGED, F.expr(f"IF({s.OWNER} = _fk_logged_in, TRUE, NULL)"))
    last = logged.groupBy(*map(quote, keys)).agg(F.max("_fk_own_last").alias("_fk_own_last"))
    owners = logged.drop("_fk_own_last").withColumnRenamed("_fk_logged_in", s.OWNER).withColumn(LOGGED, F.lit(True))
    return rows.join(last, keys, "full").join(owners, [*keys, s.OWNER], "left")


def _with_truncates(rows: DataFrame, truncates: DataFrame) -> DataFrame:
    """Returns rows as of `_with_logged` with `_fk_truncates` and `_fk_last`; a truncate is a writer of every key."""
    newest = truncates.agg(F.max(F.expr(_ORDER)).alias("_fk_truncated"))
    owning = truncates.select(F.col(s.BATCH).alias(s.OWNER), F.lit(True).alias("_fk_truncates")).distinct()
    rows = rows.join(F.broadcast(owning), s.OWNER, "left").crossJoin(F.broadcast(newest))
    return rows.withColumn("_fk_last", F.expr("GREATEST(_fk_own_last, _fk_truncated)"))


def version_rules(
    one_row: str,
    within: BatchRange | None = None,
    folded: Collection[int] = frozenset(),
    removed: str = f"{s.HASH} IS NULL",
) -> tuple[Rule, ...]:
    """Returns the rules for `beside_changelog` that hold for every state table.

    Args:
        one_row: the name of the rule that a key has one row.
        within: the batches that are checked; None for all.
        folded: batches whose deleted keys may be missing in the changelog.
        removed: SQL (BOOLEAN) over a row of the state: compaction may have removed it from the changelog already.
    """
    # A key that was deleted by a truncate points to a batch that may have no row of it. A key whose last version was
    # withdrawn points to no batch.
    truncated = f"({s.HASH} IS NULL AND _fk_truncates IS NOT NULL)"
    forgotten = f"(({removed}) AND _fk_own_last IS NULL AND {ranges_sql(s.OWNER, folded)})"
    of_batches = "" if within is None else f" AND {within.predicate(s.OWNER)}"
    dangling = f"{ROW} IS NOT NULL AND {s.OWNER} IS NOT NULL AND {LOGGED} IS NULL AND NOT {truncated}{of_batches}"
    dangling += f" AND NOT {forgotten}"
    outdated = (
        f"NOT (({_OWN_VERSION}) <=> _fk_last)"
        if within is None
        else f"COALESCE(({_OWN_VERSION}) < _fk_last, _fk_last IS NOT NULL)"
    )
    outdated = (
        f"{ROW} IS NOT NULL AND NOT {forgotten} AND (({outdated}) OR ({LOGGED} AND {s.GENERATION} <> {LOG_GENERATION}))"
    )
    place = (
        "CONCAT('sequence ', COALESCE(TO_JSON({0}), 'none'), ' of ', {1}, "
        "', generation ', COALESCE(CAST({2} AS STRING), 'none'))"
    )
    version = place.format(s.SEQUENCE, in_batch(s.OWNER), s.GENERATION)
    last = place.format("_fk_last.sequence", in_batch("_fk_last.batch"), LOG_GENERATION)
    return (
        only_one(one_row),
        Rule("owner_has_its_row", dangling, f"CONCAT('points to ', {in_batch(s.OWNER)})", "'a row of that batch'"),
        Rule("version_is_the_last", outdated, version, last),
        Rule("no_missing_row", f"{ROW} IS NULL AND _fk_own_last IS NOT NULL", "'no row'", last),
    )


def state_view(
    rows: DataFrame, key: str, rules: Sequence[Rule], excused: Callable[[DataFrame], DataFrame] | None
) -> View:
    """Returns the view of a state table; broken rows are attributed to their owner, else to the last writer."""
    return View(rows, key, f"COALESCE({s.OWNER}, _fk_last.batch, {s.APPLIED_IN})", tuple(rules), excused)


def excused_by(
    reader: CheckReader, log_name: str, state_name: str, keys: Mapping[str, str], due: Sequence[int]
) -> Callable[[DataFrame], DataFrame] | None:
    """Returns a function that adds `_fk_pending` to rows; None if nothing is due.

    `_fk_pending` (BOOLEAN): a due batch has a changelog row of the key, owns its state row, or has a truncate.

    Args:
        reader: the tables.
        log_name: the changelog.
        state_name: the state table.
        keys: per key column of the state, its name in the changelog.
        due: the batches for which the changelog or the state must be written again.
    """
    if not due:
        return None
    names = [quote(key) for key in keys]
    first = quote(next(iter(keys.values())))

    def mark(rows: DataFrame) -> DataFrame:
        log, state = reader.whole(log_name), reader.whole(state_name)
        touched = log.where(ranges_sql(s.BATCH, due))
        owned = state.where(ranges_sql(s.OWNER, due)).select(*names)
        concerned = touched.where(f"{first} IS NOT NULL").selectExpr(
            *[f"{quote(name)} AS {quote(key)}" for key, name in keys.items()]
        )
        concerned = concerned.union(owned).distinct().withColumn("_fk_concerned", F.lit(True))
        everything = touched.where(f"{first} IS NULL").agg(F.expr("COUNT(*) > 0").alias("_fk_everything"))
        marked = rows.join(concerned, list(keys), "left").crossJoin(F.broadcast(everything))
        return marked.withColumn(PENDING, F.expr("_fk_everything OR COALESCE(_fk_concerned, FALSE)"))

    return mark
