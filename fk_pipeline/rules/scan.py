"""Scans tables for rows that break rules: one Spark job counts them; if there are any, another returns their batches.

The second job also returns samples of these rows.

A `View` joins the rows of a table to the rows that they are compared with; a `Rule` is a condition that no row of a
view may meet. This module is independent of the kind of join.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.export import JSON_OPTIONS
from fk_pipeline.spec.sql import text

SAMPLE = 20
"""The largest number of rows of a sample."""

ROW, COPIES, PENDING = "_fk_row", "_fk_copies", "_fk_pending"
"""Columns of a view: true for a row of the table, else null; the number of rows with its key; due work explains it."""

AS_SHOWN = f"MAP({', '.join(text(part) for option in JSON_OPTIONS.items() for part in option)})"
"""SQL (MAP): options of TO_JSON, so that a sample formats values like all other output."""


@dataclass(frozen=True)
class Rule:
    """A condition that no row of a view may meet.

    Attributes:
        name: the expectation that it belongs to.
        broken: SQL condition; null counts as false.
        actual: SQL (STRING): the stored value, for a sample.
        expected: SQL (STRING): the expected value.
        may_be_pending: due work may explain such a row; two rows of one key, for example, are never legal.
    """

    name: str
    broken: str
    actual: str
    expected: str
    may_be_pending: bool = True


@dataclass(frozen=True)
class Counted:
    """The number of rows that each batch of a log must have.

    Attributes:
        name: the expectation that it belongs to.
        rows: the number of rows per batch; a batch that is not listed must have none.
        open: the batches whose number of rows is not known.
        number: SQL aggregate over rows of the view: the number of rows that they represent.
        what: a word or two for the rows.
    """

    name: str
    rows: Mapping[int, int]
    open: frozenset[int]
    number: str = f"COUNT_IF({ROW})"
    what: str = "rows"

    def of(self, batches: Iterable[int]) -> Counted:
        """Returns the same for some of the batches only."""
        return replace(self, rows={batch: self.rows[batch] for batch in batches if batch in self.rows})

    def compared(self, numbers: Mapping[int | None, int]) -> Finding:
        """Returns the batches whose number of rows differs from the expected one; a row of no batch is too many."""
        known: dict[int | None, int] = dict(self.rows.items())
        wrong = [b for b in {*known, *numbers} - self.open if numbers.get(b, 0) != known.get(b, 0)]
        wrong.sort(key=lambda batch: (batch is None, batch or 0))
        sample = tuple(
            {
                "key": json.dumps({"batch": batch}, separators=(",", ":")),
                "found": f"{numbers.get(batch, 0)} {self.what}",
                "expected": f"{known.get(batch, 0)} {self.what}",
                "batch": batch,
            }
            for batch in wrong[:SAMPLE]
        )
        return Finding(len(wrong), 0, tuple(b for b in wrong if b is not None), sample)


@dataclass(frozen=True)
class View:
    """Rows of a table, joined to the rows that they are compared with, and the rules for them.

    Attributes:
        rows: one row per row of the table, with `_fk_row`, and one per row that the table must have but lacks.
        key: SQL (STRUCT): the key of a row, with the names of the source.
        batch: SQL (INT): the batch that a broken row is attributed to; it may be null.
        rules: the rules that are checked on each row.
        excused: adds `_fk_pending` (BOOLEAN, never null) to `rows`; called only if a row breaks a rule.
        counted: the number of rows that each batch must have, for the view of a log.
    """

    rows: DataFrame
    key: str
    batch: str
    rules: tuple[Rule, ...]
    excused: Callable[[DataFrame], DataFrame] | None = None
    counted: tuple[Counted, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The result of the scan for one expectation.

    Attributes:
        value: the number of rows that break it, or the share for an expectation about a share.
        pending: the number of rows that break it because work is due.
        batches: the batches of the rows that break it.
        sample: up to `SAMPLE` of them, the lowest keys first: `key` (JSON), `found`, `expected`, `batch`.
    """

    value: float = 0
    pending: int = 0
    batches: tuple[int, ...] = ()
    sample: tuple[Mapping[str, Any], ...] = ()

    def plus(self, other: Finding) -> Finding:
        """Returns the sum of two findings: an expectation may have a rule in more than one view."""
        return Finding(
            self.value + other.value,
            self.pending + other.pending,
            tuple(sorted({*self.batches, *other.batches})),
            (*self.sample, *other.sample)[:SAMPLE],
        )


@dataclass(frozen=True)
class Scan:
    """The result of a scan: the number of rows of the first view's table, and a `Finding` per expectation."""

    rows: int
    findings: Mapping[str, Finding] = field(default_factory=dict)


def scan(
    views: Sequence[View],
    counting: AbstractContextManager[None] | None = None,
    mask: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> Scan:
    """Counts the broken rows of all views in one job; if there are any, a second job describes them.

    The second job finds pending rows, batches and samples.

    Args:
        views: the views.
        counting: a context for the first job only.
        mask: masks the rows of a view before they are shown in a sample.
    """
    if not views:
        return Scan(0)
    with counting or nullcontext():
        counts = _collect([_count(view) for view in views])
    broken = [i for i, rows in enumerate(counts) if any(any(row["broken"]) for row in rows)]
    closer = _collect([_described(views[i], mask) for i in broken]) if broken else []
    described = {i: rows[0]["rules"] for i, rows in zip(broken, closer, strict=True)}
    named: list[tuple[str, Finding]] = []
    for i, view in enumerate(views):
        findings = map(_finding, described[i]) if i in described else [Finding()] * len(view.rules)
        named += zip([rule.name for rule in view.rules], findings, strict=True)
        for j, counted in enumerate(view.counted):
            named.append((counted.name, counted.compared({row["batch"]: row["counted"][j] for row in counts[i]})))
    together: dict[str, Finding] = {}
    for name, finding in named:
        together[name] = together[name].plus(finding) if name in together else finding
    return Scan(sum(row["counted"][0] for row in counts[0]), together)


def _finding(row: Mapping[str, Any]) -> Finding:
    batches, sample = row["batches"] or (), row["sample"] or ()
    return Finding(row["wrong"], row["pending"], tuple(sorted(batches)), tuple(sample))


def _collect(frames: Sequence[DataFrame]) -> list[list[dict[str, Any]]]:
    """Returns the rows of each frame, computed in one job; all frames have the same columns."""
    numbered = [frame.withColumn("_fk_view", F.lit(i)) for i, frame in enumerate(frames)]
    rows: list[list[dict[str, Any]]] = [[] for _ in frames]
    for row in reduce(DataFrame.union, numbered).collect():
        rows[row["_fk_view"]].append(row.asDict(recursive=True))
    return rows


def _count(view: View) -> DataFrame:
    """Returns `batch`, `counted` (numbers of rows, or of what is counted) and `broken` (numbers of rows, one per rule).

    One row per batch if the view has counts per batch, else one row without a batch; no row for an empty view.
    """
    broken = [f"COUNT_IF({rule.broken})" for rule in view.rules]
    counted = [f"COALESCE({count.number}, 0)" for count in view.counted] or [f"COUNT_IF({ROW})"]
    batch = F.expr(view.batch if view.counted else "CAST(NULL AS INT)").alias("batch")
    arrays = {"counted": counted, "broken": broken}
    return view.rows.groupBy(batch).agg(
        *[F.expr(f"ARRAY({', '.join(sql)})").alias(name) for name, sql in arrays.items()]
    )


def _described(view: View, mask: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Returns one row with `rules`: per rule a struct of `wrong`, `pending`, `batches` and `sample`."""
    rows = view.rows if view.excused is None else view.excused(view.rows)
    broken = [f"COALESCE({rule.broken}, FALSE) AS _fk_broken_{i}" for i, rule in enumerate(view.rules)]
    rules = []
    for i, rule in enumerate(view.rules):
        excused = PENDING if view.excused is not None and rule.may_be_pending else "FALSE"
        wrong = f"_fk_broken_{i} AND NOT {excused}"
        sample = (
            f"STRUCT(TO_JSON({view.key}, {AS_SHOWN}) AS key, {rule.actual} AS found, "
            f"{rule.expected} AS expected, {view.batch} AS batch)"
        )
        rules.append(
            f"STRUCT(COUNT_IF({wrong}) AS wrong, COUNT_IF(_fk_broken_{i} AND {excused}) AS pending, "
            f"COLLECT_SET({view.batch}) FILTER (WHERE {wrong}) AS batches, "
            f"MIN_BY({sample}, {view.key}, {SAMPLE}) FILTER (WHERE {wrong}) AS sample)"
        )
    return mask(rows.selectExpr("*", *broken)).selectExpr(f"ARRAY({', '.join(rules)}) AS rules")


# ---- helpers for rules


def with_copies(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns rows of a table with `_fk_row` and `_fk_copies`; `keys` are SQL expressions."""
    by = ", ".join(keys)
    return rows.withColumns({ROW: F.lit(True), COPIES: F.expr(f"COUNT(*) OVER (PARTITION BY {by})")})


def only_one(name: str) -> Rule:
    """Returns the rule that a key has one row."""
    return Rule(name, f"{COPIES} > 1", f"CONCAT({COPIES}, ' rows')", "'1 row'", may_be_pending=False)


def hex_of(column: str) -> str:
    """SQL (STRING): a hash as text for a sample."""
    return f"COALESCE(LOWER(HEX({column})), 'none')"


def json_of(*columns: str) -> str:
    """SQL (STRING): some columns as JSON for a sample."""
    return f"TO_JSON(STRUCT({', '.join(columns)}), {AS_SHOWN})"


def in_batch(column: str) -> str:
    """SQL (STRING): a batch column as text for a sample."""
    return f"CONCAT('batch ', COALESCE(CAST({column} AS STRING), 'none'))"
