"""What is wrong with a table: one Spark scan that leaves counts and a few sample keys.

A key whose row work still due explains is pending, not violated: stages may run in any order, so a table that lags
behind its inputs is a legal state (`docs/architecture.md`, rule 8). Two rows for one key are never legal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fk_pipeline.identity import UPSTREAM, BatchId, Side, Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.protocol.hashing import row_hash
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.stages.resolved_join import QUARANTINED
from fk_pipeline.tables import schemas as s
from fk_pipeline.verify.rejoin import pending_keys

if TYPE_CHECKING:
    import pandas as pd

SAMPLE = 20
"""How many rows a sample shows."""

TABLES = (
    "left_changelog",
    "right_changelog",
    "right_table",
    "subscription_store",
    "responses",
    "verdicts",
    "resolved_join",
)
"""From upstream to downstream: what a stage commits while they are opened is not older than what it read."""

_ROW, _COPIES, _PENDING = "_fk_row", "_fk_copies", "_fk_pending"


@dataclass(frozen=True)
class Rule:
    """What must not be true of a row, as SQL over `subscription_rows` or `result_rows`.

    `found` and `expected` (SQL, STRING) describe an offending row in a sample.
    """

    name: str
    broken: str
    found: str
    expected: str
    may_be_pending: bool = True


@dataclass(frozen=True)
class Violations:
    """What the scan of one table found.

    Attributes:
        table: the table.
        rows: its rows.
        counts: per rule the rows that break it.
        pending: per rule the rows that break it because work is due.
        samples: per rule up to `SAMPLE` rows that break it, the lowest keys first: `key`, `found`, `expected`.
    """

    table: str
    rows: int
    counts: Mapping[str, int]
    pending: Mapping[str, int]
    samples: Mapping[str, tuple[dict[str, str], ...]]

    def frame(self) -> pd.DataFrame:
        """The counts as one row, a column per rule."""
        import pandas as pd

        return pd.DataFrame([dict(self.counts)])


def violations(pipeline: Pipeline, stage: Stage) -> Violations:
    """Scans the table of a stage, `subscription_store` or `resolved_join`."""
    spec = pipeline.spec
    # Before and after: a run that ends while the tables are opened is due before, what it makes due is due after.
    before = pipeline.due()
    tables = {name: pipeline.table(name) for name in TABLES}
    after = pipeline.due()
    store = tables["subscription_store"]
    if stage is Stage.SUBSCRIPTION_STORE:
        rows, rules = subscription_rows(store, tables["left_changelog"], spec), subscription_rules(spec)
    elif stage is Stage.RESOLVED_JOIN:
        rows, rules = result_rows(tables, spec), result_rules(spec)
    else:
        raise ValueError(f"there are no rules for {stage}")
    return summary(stage, with_pending(rows, tables, explaining(stage, before, after), spec), rules, spec)


def explaining(stage: Stage, *ledgers: Mapping[Stage, Iterable[BatchId]]) -> dict[Stage, set[BatchId]]:
    """The due batches that explain a row of a stage's table: those of the stage and of everything upstream of it."""
    stages = [stage]
    for one in stages:  # grows while it is read: upstream of upstream
        stages += [up for up in UPSTREAM[one] if up not in stages]
    return {one: {batch for due in ledgers for batch in due[one]} for one in stages}


def with_pending(
    rows: DataFrame, tables: Mapping[str, DataFrame], due: Mapping[Stage, Iterable[int]], spec: PipelineSpec
) -> DataFrame:
    """The rows with `_fk_pending`: work that is due may still change the key."""
    if not any(due.values()):
        return rows.withColumn(_PENDING, F.lit(False))
    keys = pending_keys(tables, due, spec).withColumn(_PENDING, F.lit(True))
    joined = rows.join(keys, [name for name, _ in s.pk_columns(spec)], "left")
    return joined.withColumn(_PENDING, F.coalesce(_PENDING, F.lit(False)))


def _counted(table: DataFrame, spec: PipelineSpec) -> DataFrame:
    """A state table with `_fk_row` (true) and `_fk_copies`, how many rows have the key."""
    pks = [quote(name) for name, _ in s.pk_columns(spec)]
    return table.withColumns({_ROW: F.lit(True), _COPIES: F.count("*").over(Window.partitionBy(*pks))})


# ---- subscription_store


def subscription_rows(store: DataFrame, left_changelog: DataFrame, spec: PipelineSpec) -> DataFrame:
    """The subscription store beside the changelog rows that it points to.

    Returns:
        One row per row of the store: its columns, `_fk_row`, `_fk_copies`, `_fk_logged` (the changelog has the row),
        `_fk_log_hash` (recomputed) and `_fk_log_fk`, a struct of the foreign key's expressions evaluated on the row;
        `_fk_truncates`: the batch that owns the row holds a truncate.
    """
    refs = [f"_fk_ref_{i}" for i in range(len(spec.left.foreign_key))]
    fks = [name for name, _ in s.fk_columns(spec)]
    types = {f.name: f.dataType for f in left_changelog.schema.fields}
    content = row_hash((name, types[name]) for name in [*fks, *[c.name for c in spec.selected[Side.LEFT]]])
    # KIP-213 has no partial foreign key: one null component makes all of them null.
    whole = " AND ".join(f"{ref} IS NOT NULL" for ref in refs)
    parts = ", ".join(f"IF({whole}, {ref}, NULL) AS {quote(fk)}" for fk, ref in zip(fks, refs, strict=True))
    log = left_changelog.selectExpr(
        "*",
        *[f"IF({s.DELETED}, NULL, ({text})) AS {ref}" for text, ref in zip(spec.left.foreign_key, refs, strict=True)],
    ).selectExpr(
        *[f"{c.quoted} AS {quote(s.pk(c.name))}" for c in spec.left.key_columns],
        f"{s.BATCH} AS {s.OWNER}",
        "TRUE AS _fk_logged",
        f"IF({s.DELETED}, NULL, {content}) AS _fk_log_hash",
        f"STRUCT({parts}) AS _fk_log_fk",
    )
    truncates = left_changelog.where(F.col(quote(spec.left.key_columns[0].name)).isNull())
    truncates = truncates.select(F.col(s.BATCH).alias(s.OWNER), F.lit(True).alias("_fk_truncates")).distinct()
    rows = _counted(store, spec).join(log, [*[name for name, _ in s.pk_columns(spec)], s.OWNER], "left")
    return rows.join(F.broadcast(truncates), s.OWNER, "left")


def subscription_rules(spec: PipelineSpec) -> tuple[Rule, ...]:
    """What must hold for `subscription_rows`."""
    fks = [quote(name) for name, _ in s.fk_columns(spec)]
    same_fk = " AND ".join(f"{fk} <=> _fk_log_fk.{fk}" for fk in fks)
    place = f"CONCAT('batch ', COALESCE(CAST({s.OWNER} AS STRING), 'none'))"
    # A key whose last version was withdrawn points nowhere and has neither hash nor foreign key.
    # A key that a truncate deleted points to a batch that may have no row of it.
    truncated = f"({s.HASH} IS NULL AND _fk_truncates IS NOT NULL)"
    dangling = f"({s.OWNER} IS NOT NULL AND _fk_logged IS NULL AND NOT {truncated})"
    return (
        Rule("one_row_per_left_key", f"{_COPIES} > 1", f"CONCAT({_COPIES}, ' rows')", "'1 row'", may_be_pending=False),
        Rule(
            "hash_is_that_of_the_changelog_row",
            f"{dangling} OR NOT ({s.HASH} <=> _fk_log_hash)",
            _hex(s.HASH),
            f"IF({dangling}, CONCAT('no row in ', {place}), CONCAT({_hex('_fk_log_hash')}, ' in ', {place}))",
        ),
        Rule(
            "foreign_key_is_that_of_the_changelog_row",
            f"NOT ({same_fk})",
            f"TO_JSON(STRUCT({', '.join(fks)}), MAP('ignoreNullFields', 'false'))",
            f"CONCAT(TO_JSON(_fk_log_fk, MAP('ignoreNullFields', 'false')), ' in ', {place})",
        ),
    )


# ---- resolved_join


def result_rows(tables: Mapping[str, DataFrame], spec: PipelineSpec) -> DataFrame:
    """The result beside the current versions of both sides.

    Args:
        tables: `resolved_join`, `subscription_store`, `right_table`, `verdicts`.
        spec: the pipeline.

    Returns:
        One row per row of the result and per left key without one: the left key, `_fk_row` and `_fk_copies` (null
        where the result has no row), its `_fk_left_hash` and `_fk_right_hash`, the current ones as `_fk_left` and
        `_fk_right`, null where there is no left row, or no right row with its foreign key; and `_fk_refused`: the
        current pair is in the quarantine.
    """
    result, store, right_table = (tables[name] for name in ("resolved_join", "subscription_store", "right_table"))
    pks, fks = [n for n, _ in s.pk_columns(spec)], [n for n, _ in s.fk_columns(spec)]
    there = _counted(result, spec).select(*map(quote, pks), _ROW, _COPIES, s.LEFT_HASH, s.RIGHT_HASH)
    left = store.select(*map(quote, [*pks, *fks]), F.col(s.HASH).alias("_fk_left"))
    right = right_table.select(
        *[F.col(quote(c.name)).alias(s.fk(c.name)) for c in spec.right.key_columns], F.col(s.HASH).alias("_fk_right")
    )
    refused = tables["verdicts"].where(F.col(s.VERDICT) == QUARANTINED)
    refused = refused.select(*map(quote, pks), F.col(s.LEFT_HASH).alias("_l"), F.col(s.RIGHT_HASH).alias("_r"))
    current = there.join(left, pks, "full").join(right, fks, "left")
    pair = F.struct("_fk_left", "_fk_right")
    refused = refused.groupBy(*map(quote, pks)).agg(F.collect_set(F.struct("_l", "_r")).alias("_fk_pairs"))
    return current.join(refused, pks, "left").withColumn(
        "_fk_refused", F.coalesce(F.exists("_fk_pairs", lambda one: one.eqNullSafe(pair)), F.lit(False))
    )


def result_rules(spec: PipelineSpec) -> tuple[Rule, ...]:
    """What must hold for `result_rows`. A row of the result breaks at most one of them besides the first."""
    found = f"CONCAT('left ', {_hex(s.LEFT_HASH)}, ', right ', {_hex(s.RIGHT_HASH)})"
    current = f"CONCAT('left ', {_hex('_fk_left')}, ', right ', {_hex('_fk_right')})"
    is_row, alive, matched = f"{_ROW} IS NOT NULL", "_fk_left IS NOT NULL", "_fk_right IS NOT NULL"
    due = f"{alive} AND {matched}" if spec.inner else alive
    same = f"{s.LEFT_HASH} <=> _fk_left AND {s.RIGHT_HASH} <=> _fk_right"
    rules = (
        Rule("one_row_per_left_key", f"{_COPIES} > 1", f"CONCAT({_COPIES}, ' rows')", "'1 row'", may_be_pending=False),
        Rule("no_stale_row", f"{is_row} AND {due} AND NOT ({same})", found, current),
        Rule("no_missing_row", f"{_ROW} IS NULL AND {due} AND NOT _fk_refused", "'no row'", current),
        Rule("no_row_for_a_deleted_key", f"{is_row} AND NOT ({alive})", found, "'no row'"),
    )
    if not spec.inner:
        return rules
    return (*rules, Rule("no_inner_row_without_match", f"{is_row} AND {alive} AND NOT ({matched})", found, "'no row'"))


def _hex(column: str) -> str:
    """SQL (STRING): a hash for people."""
    return f"COALESCE(LOWER(HEX({column})), 'none')"


# ---- the scan


def summary(table: str, rows: DataFrame, rules: Sequence[Rule], spec: PipelineSpec) -> Violations:
    """Counts and samples of the rules, in one aggregation that keeps no more than `SAMPLE` rows per rule.

    Args:
        table: the table, for the report.
        rows: what `with_pending` returns.
        rules: what must not be true of a row.
        spec: the pipeline.
    """
    key = f"STRUCT({', '.join(f'{quote(s.pk(c.name))} AS {c.quoted}' for c in spec.left.key_columns)})"
    judged = rows
    wanted: list[Column] = [F.expr(f"COUNT_IF({_ROW})").alias("rows")]
    for i, rule in enumerate(rules):
        excused = _PENDING if rule.may_be_pending else "FALSE"
        judged = judged.withColumn(f"_fk_broken_{i}", F.expr(f"COALESCE({rule.broken}, FALSE)"))
        wrong = f"_fk_broken_{i} AND NOT {excused}"
        sample = f"STRUCT(TO_JSON({key}) AS key, {rule.found} AS found, {rule.expected} AS expected)"
        wanted += [
            F.expr(f"COUNT_IF({wrong})").alias(f"wrong_{i}"),
            F.expr(f"COUNT_IF(_fk_broken_{i} AND {excused})").alias(f"pending_{i}"),
            F.expr(f"MIN_BY({sample}, {key}, {SAMPLE}) FILTER (WHERE {wrong})").alias(f"sample_{i}"),
        ]
    counts: dict[str, Any] = judged.agg(*wanted).collect()[0].asDict(recursive=True)
    return Violations(
        table=str(table),
        rows=counts["rows"],
        counts={rule.name: counts[f"wrong_{i}"] for i, rule in enumerate(rules)},
        pending={rule.name: counts[f"pending_{i}"] for i, rule in enumerate(rules)},
        samples={rule.name: tuple(counts[f"sample_{i}"] or ()) for i, rule in enumerate(rules)},
    )
