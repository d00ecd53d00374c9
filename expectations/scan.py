"""What breaks the rules of a table, in one Spark job: counts, the batches concerned, and a few sample rows.

A `View` puts the rows of a table beside what they are to be compared with; a `Rule` says what must not be true of a row
of a view. Nothing here knows what kind of join the tables belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import contiguous

SAMPLE = 20
"""How many rows a sample shows."""

ROW, COPIES, PENDING = "_fk_row", "_fk_copies", "_fk_pending"
"""Columns of a view: it is a row of the table (true, else null); how many rows have its key; due work explains it."""


@dataclass(frozen=True)
class Rule:
    """What must not be true of a row of a view.

    Attributes:
        name: the expectation that it belongs to.
        broken: SQL condition; null counts as false.
        found: SQL (STRING): what the row says, for a sample.
        expected: SQL (STRING): what it ought to say.
        may_be_pending: work that is due explains such a row; two rows of one key for example are never legal.
    """

    name: str
    broken: str
    found: str
    expected: str
    may_be_pending: bool = True


@dataclass(frozen=True)
class View:
    """Rows of a table beside what they are compared with, and the rules for them.

    Attributes:
        rows: one row per row of the table, with `_fk_row`, and per row that the table ought to have and has not.
        key: SQL (STRUCT): the key of a row, with the names that its owner knows.
        batch: SQL (INT): the batch that a broken row is laid at; it may be null.
        rules: what must not be true of a row.
        excused: adds `_fk_pending` (BOOLEAN, never null) to `rows`; called only where something is broken.
    """

    rows: DataFrame
    key: str
    batch: str
    rules: tuple[Rule, ...]
    excused: Callable[[DataFrame], DataFrame] | None = None


@dataclass(frozen=True)
class Finding:
    """What the scan found for one expectation.

    Attributes:
        value: rows that break it, or the share that it is about.
        pending: rows that break it because work is due.
        batches: the batches of the rows that break it.
        sample: up to `SAMPLE` of them, the lowest keys first: `key` (JSON), `found`, `expected`, `batch`.
    """

    value: float = 0
    pending: int = 0
    batches: tuple[int, ...] = ()
    sample: tuple[Mapping[str, Any], ...] = ()

    def plus(self, other: Finding) -> Finding:
        """Both together: an expectation may have a rule in more than one view."""
        return Finding(
            self.value + other.value,
            self.pending + other.pending,
            tuple(sorted({*self.batches, *other.batches})),
            (*self.sample, *other.sample)[:SAMPLE],
        )


@dataclass(frozen=True)
class Scan:
    """What a scan found: the rows of the first view's table, and a `Finding` per expectation."""

    rows: int
    findings: Mapping[str, Finding] = field(default_factory=dict)


def scan(views: Sequence[View]) -> Scan:
    """Looks at all views at once; a second time, with what is pending told apart, at those with broken rows."""
    if not views:
        return Scan(0)
    found = _look(views)
    doubtful = [i for i, view in enumerate(views) if view.excused is not None and _broken(found[i], view)]
    if doubtful:
        again = _look([_with_pending(views[i]) for i in doubtful])
        found |= {i: again[j] for j, i in enumerate(doubtful)}
    findings: dict[str, Finding] = {}
    for i, view in enumerate(views):
        for rule, counted in zip(view.rules, found[i]["rules"], strict=True):
            finding = Finding(
                counted["wrong"],
                counted["pending"],
                tuple(sorted(counted["batches"] or ())),
                tuple(counted["sample"] or ()),
            )
            findings[rule.name] = findings[rule.name].plus(finding) if rule.name in findings else finding
    return Scan(found[0]["rows"], findings)


def _broken(found: Mapping[str, Any], view: View) -> bool:
    rules = zip(view.rules, found["rules"], strict=True)
    return any(counted["wrong"] for rule, counted in rules if rule.may_be_pending)


def _with_pending(view: View) -> View:
    assert view.excused is not None
    return View(view.excused(view.rows), view.key, view.batch, view.rules)


def _look(views: Sequence[View]) -> dict[int, dict[str, Any]]:
    parts = [_aggregated(view).withColumn("view", F.lit(i)) for i, view in enumerate(views)]
    rows = reduce(DataFrame.unionByName, parts).collect()
    return {row["view"]: row.asDict(recursive=True) for row in rows}


def _aggregated(view: View) -> DataFrame:
    """One row: `rows`, and `rules`, per rule a struct of wrong, pending, batches and sample."""
    rows, excusable = view.rows, PENDING in view.rows.columns
    wanted = [F.expr(f"COUNT_IF({ROW})").alias("rows")]
    for i, rule in enumerate(view.rules):
        excused = PENDING if excusable and rule.may_be_pending else "FALSE"
        rows = rows.withColumn(f"_fk_broken_{i}", F.expr(f"COALESCE({rule.broken}, FALSE)"))
        wrong = f"_fk_broken_{i} AND NOT {excused}"
        sample = (
            f"STRUCT(TO_JSON({view.key}, MAP('ignoreNullFields', 'false')) AS key, {rule.found} AS found, "
            f"{rule.expected} AS expected, {view.batch} AS batch)"
        )
        wanted += [
            F.expr(f"COUNT_IF({wrong})").alias(f"wrong_{i}"),
            F.expr(f"COUNT_IF(_fk_broken_{i} AND {excused})").alias(f"pending_{i}"),
            F.expr(f"COLLECT_SET({view.batch}) FILTER (WHERE {wrong})").alias(f"batches_{i}"),
            F.expr(f"MIN_BY({sample}, {view.key}, {SAMPLE}) FILTER (WHERE {wrong})").alias(f"sample_{i}"),
        ]
    counted = ", ".join(
        f"STRUCT(wrong_{i} AS wrong, pending_{i} AS pending, batches_{i} AS batches, sample_{i} AS sample)"
        for i in range(len(view.rules))
    )
    return rows.agg(*wanted).selectExpr("rows", f"ARRAY({counted}) AS rules")


# ---- what the rules are made of


def with_copies(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows of a table with `_fk_row` and `_fk_copies`; `keys` are SQL."""
    by = ", ".join(keys)
    return rows.withColumns({ROW: F.lit(True), COPIES: F.expr(f"COUNT(*) OVER (PARTITION BY {by})")})


def only_one(name: str) -> Rule:
    """One row per key."""
    return Rule(name, f"{COPIES} > 1", f"CONCAT({COPIES}, ' rows')", "'1 row'", may_be_pending=False)


def hex_of(column: str) -> str:
    """SQL (STRING): a hash for people."""
    return f"COALESCE(LOWER(HEX({column})), 'none')"


def json_of(*columns: str) -> str:
    """SQL (STRING): some columns for people."""
    return f"TO_JSON(STRUCT({', '.join(columns)}), MAP('ignoreNullFields', 'false'))"


def in_batch(column: str) -> str:
    """SQL (STRING): where a row lies, for people."""
    return f"CONCAT('batch ', COALESCE(CAST({column} AS STRING), 'none'))"


def ranges_sql(column: str, batches: Iterable[int]) -> str:
    """SQL (BOOLEAN, never null): the column is one of the batches.

    >>> ranges_sql("n", [1, 2, 7])
    'COALESCE(n BETWEEN 1 AND 2 OR n = 7, FALSE)'
    """
    numbers = {int(batch) for batch in batches}
    found = contiguous(numbers, range(min(numbers), max(numbers) + 1)) if numbers else ()
    return f"COALESCE({' OR '.join(one.predicate(column) for one in found)}, FALSE)" if numbers else "FALSE"
