"""The verification: joins the last writers of both changelogs again in SQL and compares them with the result by row.

It shares no code with the stages beyond reading tables. A difference that work still due explains is pending, not
wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.export import json_rows
from fk_pipeline.failures import is_from_spark
from fk_pipeline.identity import QUARANTINED
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.privacy import Mask, mask_of
from fk_pipeline.spec import PipelineSpec, SideSpec, quote
from fk_pipeline.spec.failing import fails
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.settings import GUARDED, settings
from fk_pipeline.verify.report import VerifyReport

SLICES = 1_000_000
"""Number of slices into which a hash divides the keys; a share of the keys is a number of slices."""

DIFFERENCES_SHOWN = 20
"""The largest number of differing rows that a report shows."""


def current_rows(changelog: DataFrame, side: SideSpec) -> DataFrame:
    """Returns the table that a changelog describes: per key the row of the last writer, unless that is a deletion.

    A row without a key is a truncate: the last writer of every key without a newer row. A row with the batch and
    sequence of a truncate came after it, because the changelog keeps no other.
    """
    view = f"fk_verify_{uuid.uuid4().hex}"
    changelog.createOrReplaceTempView(view)
    keys = ", ".join(c.quoted for c in side.key_columns)
    columns = ", ".join(c.quoted for c in side.columns)
    order, key = f"STRUCT({s.SEQUENCE}, {s.BATCH})", side.key_columns[0].quoted
    rows: DataFrame = changelog.sparkSession.sql(
        f"SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} "
        f"ORDER BY {order} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS _fk_rank "
        f"FROM {view} WHERE {key} IS NOT NULL) "
        f"CROSS JOIN (SELECT MAX({order}) AS _fk_truncated FROM {view} WHERE {key} IS NULL) "
        f"WHERE _fk_rank = 1 AND NOT {s.DELETED} AND ({order} >= _fk_truncated OR _fk_truncated IS NULL)"
    )
    return rows


def expected_join(
    left_changelog: DataFrame, right_changelog: DataFrame, spec: PipelineSpec, isolating: bool = False
) -> DataFrame:
    """Returns the batch join of the last-writer-wins tables: `_fk_pk_*` and the selected columns.

    With `isolating` the join has only rows on which the selected expressions can be computed. An inner join leaves out
    a row on which one fails. In a left join two rows match only if the expressions that read the right side can be
    computed on them; a left row is left out if an expression fails on the left row alone, or without a right row.
    """
    keys = [f"`left`.{c.quoted} AS {quote(k.pk(c.name))}" for c in spec.left.key_columns]
    outputs = [o.sql for o in spec.outputs]
    computed = f" WHERE NOT {fails(*outputs)}" if isolating else ""
    joined = _joined(left_changelog, right_changelog, spec, isolating)
    rows: DataFrame = left_changelog.sparkSession.sql(f"SELECT {', '.join([*keys, *outputs])} FROM {joined}{computed}")
    return rows.toDF(*[k.pk(c.name) for c in spec.left.key_columns], *[o.name for o in spec.outputs])


def _joined(left_changelog: DataFrame, right_changelog: DataFrame, spec: PipelineSpec, isolating: bool) -> str:
    """SQL (FROM clause): the current rows of both sides, joined as `expected_join` describes."""
    left, right = f"fk_left_{uuid.uuid4().hex}", f"fk_right_{uuid.uuid4().hex}"
    references = [f"({text}) AS _fk_ref_{i}" for i, text in enumerate(spec.left.foreign_key)]
    current_rows(left_changelog, spec.left).selectExpr("*", *references).createOrReplaceTempView(left)
    current_rows(right_changelog, spec.right).createOrReplaceTempView(right)
    on = [f"`left`._fk_ref_{i} = `right`.{c.quoted}" for i, c in enumerate(spec.right.key_columns)]
    of_right = [o.sql for o in spec.outputs if o.name in spec.right_outputs]
    if isolating and of_right and not spec.inner:
        on.append(f"NOT {fails(*of_right)}")
    kind = "INNER" if spec.inner else "LEFT"
    return f"{left} AS `left` {kind} JOIN {right} AS `right` ON {' AND '.join(on)}"


def _counts(
    left_changelog: DataFrame, right_changelog: DataFrame, result: DataFrame, spec: PipelineSpec, isolating: bool
) -> dict[str, int]:
    """Returns `rows`, `left_rows`, `right_rows`, `left_out` and `unmatched` of a `VerifyReport`, counted in one job."""
    frames = {
        "rows": result,
        "left_rows": current_rows(left_changelog, spec.left),
        "right_rows": current_rows(right_changelog, spec.right),
    }
    if isolating:
        joined = f"FROM {_joined(left_changelog, right_changelog, spec, isolating)}"
        lost = fails(*[o.sql for o in spec.outputs])
        session = result.sparkSession
        frames["left_out"] = session.sql(f"SELECT 1 AS one {joined} WHERE {lost}")
        if not spec.inner:  # joins the keys of the right rows again: finds right rows that exist and were not joined
            there = f"fk_there_{uuid.uuid4().hex}"
            names = [f"{c.quoted} AS _fk_there_{i}" for i, c in enumerate(spec.right.key_columns)]
            frames["right_rows"].selectExpr(*names).createOrReplaceTempView(there)
            on = " AND ".join(f"`left`._fk_ref_{i} = _fk_there_{i}" for i in range(len(names)))
            key = spec.right.key_columns[0].quoted
            frames["unmatched"] = session.sql(
                f"SELECT 1 AS one {joined} JOIN {there} ON {on} WHERE `right`.{key} IS NULL AND NOT {lost}"
            )
    counted = [frame.agg(F.count("*")).select(F.lit(name), "count(1)") for name, frame in frames.items()]
    return dict(map(tuple, reduce(DataFrame.union, counted).collect()))


def compare(expected: DataFrame, result: DataFrame, spec: PipelineSpec) -> DataFrame:
    """Returns the rows that differ: `_fk_pk_*`, `difference` (missing, stale, unexpected), `expected` and `found`.

    `expected` and `found` are structs of the selected columns.
    """
    keys = [name for name, _ in k.pk_columns(spec)]
    names = [o.name for o in spec.outputs]
    fields = {f.name: f.dataType for f in result.schema.fields}

    def packed(frame: DataFrame, name: str) -> DataFrame:
        return frame.select(*map(quote, keys), F.struct(*map(quote, names)).alias(name))

    same = F.lit(True)
    for name in names:
        same = same & _same(name, fields[name])
    both = packed(expected, "expected").join(packed(result, "found"), keys, "full").withColumn("same", same)
    # If a key has several rows, one is compared (an equal one if there is any). The others are unexpected.
    of_its_key = F.row_number().over(Window.partitionBy(*map(quote, keys)).orderBy(F.col("same").desc()))
    both = both.withColumn("expected", F.when(of_its_key == 1, F.col("expected")))
    difference = (
        F.when(F.col("found").isNull(), "missing").when(F.col("expected").isNull(), "unexpected").when(~same, "stale")
    )
    return both.drop("same").withColumn("difference", difference).where("difference IS NOT NULL")


def _same(name: str, kind: T.DataType) -> Column:
    """Returns a BOOLEAN column: `expected` and `found` have the same value in the named column."""
    return _comparable(F.col("expected")[name], kind).eqNullSafe(_comparable(F.col("found")[name], kind))


def _comparable(value: Column, kind: T.DataType) -> Column:
    """Returns a value that SQL can compare: a map becomes the array of its sorted entries."""
    return F.array_sort(F.map_entries(value)) if isinstance(kind, T.MapType) else value


def pending_keys(tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], spec: PipelineSpec) -> DataFrame:
    """Returns the left keys whose result row may still change when the due work is done: `_fk_pk_*`, distinct.

    Args:
        tables: `left_changelog`, `right_changelog`, `subscription_store`, `right_table`, `responses`.
        due: the due batches per stage.
        spec: the pipeline.
    """
    batches = {stage: [int(b) for b in due.get(stage, ())] for stage in spec.definition.stage_names}
    left = sorted({*batches[Stage.LEFT_CHANGELOG], *batches[Stage.SUBSCRIPTION_STORE]})
    right, responses, resolve = (batches[x] for x in (Stage.RIGHT_TABLE, Stage.RESPONSES, Stage.RESOLVED_JOIN))
    pks, fks = [n for n, _ in k.pk_columns(spec)], [n for n, _ in k.fk_columns(spec)]
    store = tables["subscription_store"]

    def truncated(changelog: str, side: SideSpec, batches: list[int]) -> DataFrame:
        """Returns one row without columns if a truncate is due, otherwise no row."""
        log = tables[changelog].where(F.col(s.BATCH).isin(batches))
        return log.where(F.col(quote(side.key_columns[0].name)).isNull()).limit(1).select()

    def left_keys(frame: DataFrame) -> DataFrame:
        return frame.select(*[F.col(quote(c.name)).alias(k.pk(c.name)) for c in spec.left.key_columns])

    def subscribers(rows: DataFrame) -> DataFrame:
        keys = rows.select(*[F.col(quote(c.name)).alias(k.fk(c.name)) for c in spec.right.key_columns])
        return store.join(keys.distinct(), fks, "left_semi").select(*map(quote, pks))

    parts = [
        left_keys(tables["left_changelog"].where(F.col(s.BATCH).isin(left))),
        store.where(F.col(s.OWNER).isin(left)).select(*map(quote, pks)),
        subscribers(tables["right_changelog"].where(F.col(s.BATCH).isin(right))),
        subscribers(tables["right_table"].where(F.col(s.OWNER).isin(right))),
        store.where(F.col(s.APPLIED_IN).isin(responses)).select(*map(quote, pks)),
        subscribers(tables["right_table"].where(F.col(s.APPLIED_IN).isin(responses))),
        tables["responses"].where(F.col(s.BATCH).isin(resolve)).select(*map(quote, pks)),
        store.select(*map(quote, pks)).crossJoin(truncated("left_changelog", spec.left, left)),
        store.select(*map(quote, pks)).crossJoin(truncated("right_changelog", spec.right, right)),
    ]
    union = parts[0]
    for part in parts[1:]:
        union = union.unionByName(part)
    return union.distinct()


def _chosen(key: list[str], share: float) -> str:
    """SQL (BOOLEAN): the key belongs to the chosen share of the keys, which is the same in every run."""
    return f"PMOD(XXHASH64({', '.join(key)}), {SLICES}) < {round(share * SLICES)}"


def verify(
    tables: Mapping[str, DataFrame],
    due: Mapping[str, Iterable[int]],
    spec: PipelineSpec,
    ledger: Ledger,
    share: float = 1.0,
) -> VerifyReport:
    """Compares the result with the join of the last writers.

    Args:
        tables: every table of the pipeline by name, `resolved_join` among them.
        due: the due batches per stage.
        spec: the pipeline.
        ledger: its ledger, for the tokens of sensitive values.
        share: the share of the left keys to compare, chosen by a hash; 1 for all.
    """
    mask = mask_of(spec, ledger, k.sensitive_names(spec) | spec.sensitive_outputs)
    states = [state for (stage, _), state in ledger.runs.stages.items() if stage in ledger.inputs]
    lines = sum(state.counts.get(QUARANTINED, 0) for state in states)
    try:
        return replace(_verify(tables, due, spec, mask, share, isolating=False), quarantined_lines=lines)
    except Exception as error:
        if not is_from_spark(error) or all(output.plain for output in spec.outputs):
            raise
    with settings(tables["resolved_join"].sparkSession, GUARDED):
        return replace(_verify(tables, due, spec, mask, share, isolating=True), quarantined_lines=lines)


def _verify(
    tables: Mapping[str, DataFrame],
    due: Mapping[str, Iterable[int]],
    spec: PipelineSpec,
    mask: Mask,
    share: float,
    isolating: bool,
) -> VerifyReport:
    result, left_changelog = tables["resolved_join"], tables["left_changelog"]
    if share < 1:
        key = spec.left.key_columns[0].quoted
        chosen = _chosen([c.quoted for c in spec.left.key_columns], share)
        left_changelog = left_changelog.where(f"{key} IS NULL OR {chosen}")
        result = result.where(_chosen([quote(name) for name, _ in k.pk_columns(spec)], share))
    right_changelog = tables["right_changelog"]
    expected = expected_join(left_changelog, right_changelog, spec, isolating)
    work = sum(len(list(batches)) for batches in due.values())
    differences = compare(expected, result, spec).persist()
    try:
        keys = [name for name, _ in k.pk_columns(spec)]
        explained = F.lit(False)
        found = differences
        if work:
            pending = pending_keys(tables, due, spec).withColumn("_pending", F.lit(True))
            found = differences.join(pending, keys, "left")
            explained = F.coalesce("_pending", F.lit(False))
        found = found.withColumn("pending", explained)
        groups = found.groupBy("difference", "pending").count().collect()
        counts = {(row["difference"], row["pending"]): row["count"] for row in groups}
        wrong = found.where("NOT pending").orderBy(*map(quote, keys)).limit(DIFFERENCES_SHOWN)
        return VerifyReport(
            missing=counts.get(("missing", False), 0),
            stale=counts.get(("stale", False), 0),
            unexpected=counts.get(("unexpected", False), 0),
            pending=sum(n for (_, pending), n in counts.items() if pending),
            due=work,
            share=share,
            sample=tuple(_sample(wrong, spec, mask)) if counts else (),
            **_counts(left_changelog, right_changelog, result, spec, isolating),
        )
    finally:
        differences.unpersist()


def _sample(wrong: DataFrame, spec: PipelineSpec, mask: Mask) -> Iterator[dict[str, Any]]:
    """Yields rows that differ in the form of `VerifyReport.sample`."""
    fields = {f.name: f.dataType for f in wrong.select("found.*").schema.fields}
    differing = F.array_compact(F.array(*[F.when(~_same(name, kind), F.lit(name)) for name, kind in fields.items()]))
    rows = wrong.withColumn("differing", differing).persist()  # the same order for all queries below
    try:
        seen = mask(rows)
        keys = json_rows(seen.select(*[F.col(quote(k.pk(c.name))).alias(c.name) for c in spec.left.key_columns]))
        both = [json_rows(seen.select(f"{side}.*")) for side in ("expected", "found")]
        told = seen.select("difference", "differing").collect()
    finally:
        rows.unpersist()
    for key, expected, found, (difference, names) in zip(keys, *both, told, strict=True):
        shown = [name for name in fields if difference != "stale" or name in names]
        yield {
            "key": key,
            "difference": difference,
            "expected": None if difference == "unexpected" else {name: expected[name] for name in shown},
            "found": None if difference == "missing" else {name: found[name] for name in shown},
        }
