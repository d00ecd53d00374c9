"""The proof: the last writers of both changelogs, joined anew in SQL and compared row by row with the result.

Shares no code with the stages beyond reading tables. A difference that work still due explains is pending, not wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.failures import is_from_spark
from fk_pipeline.identity import Stage
from fk_pipeline.privacy import Mask, mask_of
from fk_pipeline.spec import PipelineSpec, SideSpec, quote
from fk_pipeline.spec.failing import fails
from fk_pipeline.tables import schemas as s
from fk_pipeline.tables.ledger import Ledger
from fk_pipeline.tables.settings import GUARDED, settings
from fk_pipeline.verify.report import VerifyReport

TABLES = ("left_changelog", "right_changelog", "right_table", "subscription_store", "responses", "resolved_join")
"""What a verification reads."""

SLICES = 1_000_000
"""A share of the keys is so many of these."""

SAMPLE = 20
"""How many differing rows a report shows."""


def current_rows(changelog: DataFrame, side: SideSpec) -> DataFrame:
    """The table that a changelog describes: per key the row of the last writer, unless that deleted it.

    A row without a key is a truncate, the last writer of every key that has nothing newer. A row of its own batch and
    sequence came after it: the changelog keeps no other.
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
    left_changelog: DataFrame, right_changelog: DataFrame, spec: PipelineSpec, careful: bool = False
) -> DataFrame:
    """The batch join of the last-writer-wins tables: `_fk_pk_*` and the selected columns.

    When careful, as far as the selected expressions can be computed. A row of an inner join on which one fails is left
    out. In a left join two rows match only if the expressions that read the right side can be computed on them; a left
    row is left out where one fails on the left row, or with no right row.
    """
    session = left_changelog.sparkSession
    left, right = f"fk_left_{uuid.uuid4().hex}", f"fk_right_{uuid.uuid4().hex}"
    current = current_rows(left_changelog, spec.left)
    current.selectExpr(
        "*", *[f"({text}) AS _fk_ref_{i}" for i, text in enumerate(spec.left.foreign_key)]
    ).createOrReplaceTempView(left)
    current_rows(right_changelog, spec.right).createOrReplaceTempView(right)
    on = [f"`left`._fk_ref_{i} = `right`.{c.quoted}" for i, c in enumerate(spec.right.key_columns)]
    keys = [f"`left`.{c.quoted} AS {quote(s.pk(c.name))}" for c in spec.left.key_columns]
    outputs = [o.sql for o in spec.outputs]
    of_right = [o.sql for o in spec.outputs if o.name in spec.right_outputs]
    if careful and of_right and not spec.inner:
        on.append(f"NOT {fails(*of_right)}")
    computed = f" WHERE NOT {fails(*outputs)}" if careful else ""
    rows: DataFrame = session.sql(
        f"SELECT {', '.join([*keys, *outputs])} FROM {left} AS `left` "
        f"{'INNER' if spec.inner else 'LEFT'} JOIN {right} AS `right` ON {' AND '.join(on)}{computed}"
    )
    return rows.toDF(*[s.pk(c.name) for c in spec.left.key_columns], *[o.name for o in spec.outputs])


def compare(expected: DataFrame, result: DataFrame, spec: PipelineSpec) -> DataFrame:
    """The rows that differ.

    Returns:
        `_fk_pk_*`, `difference` (missing, stale, unexpected), `expected` and `found` as structs.
    """
    keys = [name for name, _ in s.pk_columns(spec)]
    names = [o.name for o in spec.outputs]
    fields = {f.name: f.dataType for f in result.schema.fields}

    def packed(frame: DataFrame, name: str, number: Column) -> DataFrame:
        return frame.select(*map(quote, keys), number.alias("_fk_number"), F.struct(*map(quote, names)).alias(name))

    # A second row of a key has nothing to be compared with: it is unexpected.
    of_its_key = F.row_number().over(Window.partitionBy(*map(quote, keys)).orderBy(F.lit(1)))
    both = packed(expected, "expected", F.lit(1)).join(
        packed(result, "found", of_its_key), [*keys, "_fk_number"], "full"
    )
    same = F.lit(True)
    for name in names:
        want, have = F.col("expected")[name], F.col("found")[name]
        same = same & _comparable(want, fields[name]).eqNullSafe(_comparable(have, fields[name]))
    difference = (
        F.when(F.col("found").isNull(), "missing").when(F.col("expected").isNull(), "unexpected").when(~same, "stale")
    )
    return both.withColumn("difference", difference).where("difference IS NOT NULL")


def _comparable(value: Column, kind: T.DataType) -> Column:
    """Maps have no equality in SQL: their sorted entries have."""
    return F.array_sort(F.map_entries(value)) if isinstance(kind, T.MapType) else value


def pending_keys(tables: Mapping[str, DataFrame], due: Mapping[Stage, Iterable[int]], spec: PipelineSpec) -> DataFrame:
    """The left keys whose result row may still change when the due work is done: `_fk_pk_*`, distinct.

    Args:
        tables: `left_changelog`, `right_changelog`, `subscription_store`, `right_table`, `responses`.
        due: per stage the batches that are due.
        spec: the pipeline.
    """
    batches = {stage: [int(b) for b in due.get(stage, ())] for stage in Stage}
    left = sorted({*batches[Stage.LEFT_CHANGELOG], *batches[Stage.SUBSCRIPTION_STORE]})
    right, answers, resolve = (batches[x] for x in (Stage.RIGHT_TABLE, Stage.RESPONSES, Stage.RESOLVED_JOIN))
    pks, fks = [n for n, _ in s.pk_columns(spec)], [n for n, _ in s.fk_columns(spec)]
    store = tables["subscription_store"]

    def truncated(changelog: str, side: SideSpec, batches: list[int]) -> DataFrame:
        """One row without columns if a truncate is due, else none."""
        log = tables[changelog].where(F.col(s.BATCH).isin(batches))
        return log.where(F.col(quote(side.key_columns[0].name)).isNull()).limit(1).select()

    def left_keys(frame: DataFrame) -> DataFrame:
        return frame.select(*[F.col(quote(c.name)).alias(s.pk(c.name)) for c in spec.left.key_columns])

    def subscribers(rows: DataFrame) -> DataFrame:
        keys = rows.select(*[F.col(quote(c.name)).alias(s.fk(c.name)) for c in spec.right.key_columns])
        return store.join(keys.distinct(), fks, "left_semi").select(*map(quote, pks))

    parts = [
        left_keys(tables["left_changelog"].where(F.col(s.BATCH).isin(left))),
        store.where(F.col(s.OWNER).isin(left)).select(*map(quote, pks)),
        subscribers(tables["right_changelog"].where(F.col(s.BATCH).isin(right))),
        subscribers(tables["right_table"].where(F.col(s.OWNER).isin(right))),
        store.where(F.col(s.APPLIED_IN).isin(answers)).select(*map(quote, pks)),
        subscribers(tables["right_table"].where(F.col(s.APPLIED_IN).isin(answers))),
        tables["responses"].where(F.col(s.BATCH).isin(resolve)).select(*map(quote, pks)),
        store.select(*map(quote, pks)).crossJoin(truncated("left_changelog", spec.left, left)),
        store.select(*map(quote, pks)).crossJoin(truncated("right_changelog", spec.right, right)),
    ]
    union = parts[0]
    for part in parts[1:]:
        union = union.unionByName(part)
    return union.distinct()


def _chosen(key: list[str], share: float) -> str:
    """SQL: the key is one of a share of all, the same one every time."""
    return f"PMOD(XXHASH64({', '.join(key)}), {SLICES}) < {round(share * SLICES)}"


def verify(
    tables: Mapping[str, DataFrame],
    due: Mapping[Stage, Iterable[int]],
    spec: PipelineSpec,
    ledger: Ledger,
    share: float = 1.0,
) -> VerifyReport:
    """Compares the result with the join of the last writers.

    Args:
        tables: every table of the pipeline by name, `resolved_join` among them.
        due: per stage the batches that are due.
        spec: the pipeline.
        ledger: its ledger, for the tokens of sensitive values.
        share: of the left keys, chosen by a hash; 1 for all.
    """
    mask = mask_of(spec, ledger, s.sensitive_names(spec) | spec.sensitive_outputs)
    try:
        return _verify(tables, due, spec, mask, share, careful=False)
    except Exception as error:
        if not is_from_spark(error) or all(output.plain for output in spec.outputs):
            raise
    with settings(tables["resolved_join"].sparkSession, GUARDED):
        return _verify(tables, due, spec, mask, share, careful=True)


def _verify(
    tables: Mapping[str, DataFrame],
    due: Mapping[Stage, Iterable[int]],
    spec: PipelineSpec,
    mask: Mask,
    share: float,
    careful: bool,
) -> VerifyReport:
    result, left_changelog = tables["resolved_join"], tables["left_changelog"]
    if share < 1:
        key = spec.left.key_columns[0].quoted
        chosen = _chosen([c.quoted for c in spec.left.key_columns], share)
        left_changelog = left_changelog.where(f"{key} IS NULL OR {chosen}")
        result = result.where(_chosen([quote(name) for name, _ in s.pk_columns(spec)], share))
    expected = expected_join(left_changelog, tables["right_changelog"], spec, careful)
    work = sum(len(list(batches)) for batches in due.values())
    differences = compare(expected, result, spec).persist()
    try:
        keys = [name for name, _ in s.pk_columns(spec)]
        explained = F.lit(False)
        found = differences
        if work:
            pending = pending_keys(tables, due, spec).withColumn("_pending", F.lit(True))
            found = differences.join(pending, keys, "left")
            explained = F.coalesce("_pending", F.lit(False))
        found = found.withColumn("pending", explained)
        groups = found.groupBy("difference", "pending").count().collect()
        counts = {(row["difference"], row["pending"]): row["count"] for row in groups}
        wrong = found.where("NOT pending").orderBy(*map(quote, keys)).limit(SAMPLE)
        sample = (
            []
            if not counts
            else [
                {
                    "key": {c.name: row[s.pk(c.name)] for c in spec.left.key_columns},
                    "difference": row["difference"],
                    "expected": row["expected"].asDict() if row["expected"] else None,
                    "found": row["found"].asDict() if row["found"] else None,
                }
                for row in mask(wrong).collect()
            ]
        )
        return VerifyReport(
            rows=result.count(),
            missing=counts.get(("missing", False), 0),
            stale=counts.get(("stale", False), 0),
            unexpected=counts.get(("unexpected", False), 0),
            pending=sum(n for (_, pending), n in counts.items() if pending),
            due=work,
            share=share,
            sample=tuple(sample),
        )
    finally:
        differences.unpersist()
