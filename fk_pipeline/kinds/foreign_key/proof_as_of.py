"""The as-of join for the proof: for each left row the version that held at its time, in SQL of its own.

It sorts the times of both sides together and takes the last version before each left row. The stages compute intervals
of validity instead (`blocks.as_of`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.horizon import sql_of
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import text
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.verify.last_writers import last_versions

HELD = "_fk_held"
"""Column: the time since which the version that a left row sees holds; null if there is none."""


def living_versions(tables: Mapping[str, DataFrame], spec: ForeignKeySpec) -> DataFrame:
    """Returns the versions of the right side that are no deletions.

    Returns:
        The right columns, `_fk_valid_from`, and `valid_from` and `valid_to` if `select` may name them.
    """
    keys = ", ".join(c.quoted for c in spec.right.key_columns)
    times = {"valid_from": s.VALID_FROM, "valid_to": "_fk_until"}
    until = f"LEAD({s.VALID_FROM}) OVER (PARTITION BY {keys} ORDER BY {s.VALID_FROM})"
    rows = _versions(tables, spec).selectExpr("*", f"{until} AS _fk_until")
    if spec.as_of_batch:
        ended = f"LEAST(_fk_until, ARRAY_MIN(FILTER(_fk_truncates, _at -> _at > {s.VALID_FROM})))"
        rows = _with_truncates(rows, tables, spec).withColumn("_fk_until", F.expr(ended))
    more = [f"{times[c.name]} AS {c.quoted}" for c in spec.columns_of_validity]
    return rows.where(f"NOT {s.DELETED}").selectExpr(*[c.quoted for c in spec.right.columns], s.VALID_FROM, *more)


def dated(left: DataFrame, tables: Mapping[str, DataFrame], spec: ForeignKeySpec) -> DataFrame:
    """Returns left rows with `_fk_held`.

    Args:
        left: the current left rows with `_fk_ref_<i>`, the components of the foreign key, and `_fk_batch`.
        tables: `right_changelog`.
        spec: the pipeline.
    """
    rights, lefts = f"fk_versions_{uuid.uuid4().hex}", f"fk_dated_{uuid.uuid4().hex}"
    _versions(tables, spec).createOrReplaceTempView(rights)
    left.createOrReplaceTempView(lefts)
    names = [f"_fk_ref_{i}" for i in range(len(spec.right.key_columns))]
    keys = ", ".join(f"{c.quoted} AS {name}" for name, c in zip(names, spec.right.key_columns, strict=True))
    time = s.BATCH if spec.as_of_batch else f"({spec.as_of})"
    rows = left.sparkSession.sql(
        f"SELECT _fk_left, _fk_time, LAST_VALUE(_fk_since, TRUE) OVER (PARTITION BY {', '.join(names)} "
        f"ORDER BY _fk_time, _fk_of ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS {HELD} FROM ("
        f"SELECT {', '.join(names)}, {time} AS _fk_time, 1 AS _fk_of, NULL AS _fk_since, STRUCT(*) AS _fk_left "
        f"FROM {lefts} UNION ALL "
        f"SELECT {keys}, {s.VALID_FROM}, 0, {s.VALID_FROM}, NULL FROM {rights})"
    )
    rows, held = rows.where("_fk_left IS NOT NULL"), HELD
    if spec.as_of_batch:
        rows = _with_truncates(rows, tables, spec)
        held = f"IF(EXISTS(_fk_truncates, _at -> _at > {HELD} AND _at <= _fk_time), NULL, {HELD}) AS {HELD}"
    return rows.selectExpr("_fk_left.*", held)


def closed(tables: Mapping[str, DataFrame], spec: ForeignKeySpec, ledger: Ledger) -> tuple[list[DataFrame], str]:
    """Returns the left keys (`_fk_pk_*`) whose version had ended by the horizon, if there is one.

    A row of theirs has what they saw before the time was closed, and no right row if they came later. So it may differ
    in columns that read the right side; in an inner join there may be one or none.

    Returns:
        The keys, and SQL (BOOLEAN) over `difference` and `differing`: the difference may be that.
    """
    horizon = sql_of(ledger.folds.horizon(Stage.RIGHT_TABLE))
    if spec.as_of is None or spec.as_of_batch or horizon is None:
        return [], "FALSE"
    rights, lefts = f"fk_versions_{uuid.uuid4().hex}", f"fk_dated_{uuid.uuid4().hex}"
    _versions(tables, spec).createOrReplaceTempView(rights)
    own = spec.left.key_columns
    rows = last_versions(tables[k.LEFT_CHANGELOG], spec.left, [c.name for c in own])
    rows.where(f"NOT {s.DELETED}").createOrReplaceTempView(lefts)
    keys = ", ".join(f"{c.quoted} AS {quote(k.pk(c.name))}" for c in own)
    refs = ", ".join(f"({sql}) AS _fk_ref_{i}" for i, sql in enumerate(spec.left.foreign_key))
    same = " AND ".join(f"{c.quoted} = _fk_ref_{i}" for i, c in enumerate(spec.right.key_columns))
    query = (
        f"SELECT DISTINCT {', '.join(quote(k.pk(c.name)) for c in own)} "
        f"FROM (SELECT {keys}, {refs}, ({spec.as_of}) AS _fk_time FROM {lefts}) "
        f"LEFT SEMI JOIN {rights} ON {same} AND {s.VALID_FROM} > _fk_time AND {s.VALID_FROM} <= {horizon}"
    )
    of_right = ", ".join(text(name) for name in sorted(spec.right_outputs))
    others = f"ARRAY_EXCEPT(differing, CAST(ARRAY({of_right}) AS ARRAY<STRING>))"
    excused = f"difference = 'stale' AND ARRAY_SIZE({others}) = 0"
    if spec.inner:
        excused = f"({excused} OR difference <> 'stale')"
    return [rows.sparkSession.sql(query)], excused


def _versions(tables: Mapping[str, DataFrame], spec: ForeignKeySpec) -> DataFrame:
    """Returns the last writer of each version of a right key, deletions too: right columns, `_fk_valid_from`."""
    log, keys = tables[k.RIGHT_CHANGELOG], [c.name for c in spec.right.key_columns]
    if not spec.as_of_batch:
        return last_versions(log, spec.right, spec.right.stored_key)
    rows = log.where(f"{spec.right.key_columns[0].quoted} IS NOT NULL")
    return last_versions(rows, spec.right, [*keys, s.BATCH]).withColumn(s.VALID_FROM, F.col(s.BATCH))


def _with_truncates(rows: DataFrame, tables: Mapping[str, DataFrame], spec: ForeignKeySpec) -> DataFrame:
    """Adds `_fk_truncates` (ARRAY<INT>): with `as_of: batch` the batches that end all versions."""
    log = tables[k.RIGHT_CHANGELOG].where(f"{spec.right.key_columns[0].quoted} IS NULL")
    return rows.crossJoin(F.broadcast(log.agg(F.collect_set(s.BATCH).alias("_fk_truncates"))))
