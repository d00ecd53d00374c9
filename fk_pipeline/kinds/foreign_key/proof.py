"""The proof of the foreign-key join: both tables of last writers joined in SQL, without the code of the stages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.proof_as_of import HELD, dated, living_versions
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.failing import fails
from fk_pipeline.store import schemas as s
from fk_pipeline.verify.last_writers import current_rows, last_versions

_JOINS = {"inner": "INNER", "left": "LEFT", "outer": "FULL"}
"""Per `join` of the pipeline file, the join of SQL."""


def expected(tables: Mapping[str, DataFrame], spec: ForeignKeySpec, isolating: bool = False) -> DataFrame:
    """Returns the batch join of the last-writer-wins tables: the key of the result and the selected columns.

    With `isolating` the join has only rows on which the selected expressions can be computed. An inner join leaves out
    a row on which one fails. In the other joins two rows match only if the expressions that read the right side can be
    computed on them; a left row is left out if an expression fails on the left row alone, or without a right row, and a
    right row that stands alone if an expression fails on it. A row whose result key cannot be computed is left out.

    Args:
        tables: `left_changelog` and `right_changelog`.
        spec: the pipeline.
        isolating: whether an expression fails on a row.
    """
    keys = [f"`left`.{c.quoted}" for c in spec.left.key_columns]
    if k.paired_columns(spec):
        keys += _right_key(spec)
    elif spec.outer:
        keys += _unmatched_key(spec)
    outputs = [o.sql for o in spec.outputs]
    computed = f" WHERE NOT {fails(*outputs)}" if isolating else ""
    joined, session = _joined(tables, spec, isolating), tables[k.LEFT_CHANGELOG].sparkSession
    query = f"SELECT {', '.join([*keys, *outputs])} FROM {joined}{computed}"
    if isolating and spec.key_outputs:
        query = _with_key(f"STRUCT({', '.join([*keys, *outputs])})", f"{joined}{computed}", spec)
    rows: DataFrame = session.sql(query)
    return rows.toDF(*k.keys_of(spec, k.RESOLVED_JOIN).keys, *[o.name for o in spec.outputs])


def _with_key(row: str, joined: str, spec: ForeignKeySpec) -> str:
    """SQL (SELECT): the joined rows, given as a struct, whose result key can be computed from both keys."""
    left = [(f"`left`.{c.quoted}", c) for c in spec.left.key_columns]
    right = [*zip(_right_key(spec), spec.right.key_columns, strict=True)]
    sides = [
        f"STRUCT({', '.join(f'{sql} AS {c.quoted}' for sql, c in columns)}) AS `{side}`"
        for side, columns in (("left", left), ("right", right))
    ]
    names = [c.name.lower() for _, c in (*left, *right)]
    flat = [f"{sql} AS {c.quoted}" for sql, c in (*left, *right) if names.count(c.name.lower()) == 1]
    made = f"SELECT {', '.join([f'{row} AS _fk_row', *sides, *flat])} FROM {joined}"
    return f"SELECT _fk_row.* FROM ({made}) WHERE NOT {fails(*[o.sql for o in spec.key_outputs])}"


def _right_key(spec: ForeignKeySpec) -> list[str]:
    """SQL per component of the right key of a joined row: the foreign key, or the key of a right row alone."""
    references = [f"`left`._fk_ref_{i}" for i in range(len(spec.right.key_columns))]
    whole = " AND ".join(f"{reference} IS NOT NULL" for reference in references)
    return [
        f"IF({whole}, {reference}, {other})" for reference, other in zip(references, _unmatched_key(spec), strict=True)
    ]


def _unmatched_key(spec: ForeignKeySpec) -> list[str]:
    """SQL per component of the right key: its value in a joined row without a left row, else null."""
    left = f"`left`.{spec.left.key_columns[0].quoted}"
    return [f"IF({left} IS NULL, `right`.{c.quoted}, NULL)" for c in spec.right.key_columns]


def _joined(tables: Mapping[str, DataFrame], spec: ForeignKeySpec, isolating: bool) -> str:
    """SQL (FROM clause): the current rows of both sides, joined as `expected` describes."""
    left, right = f"fk_left_{uuid.uuid4().hex}", f"fk_right_{uuid.uuid4().hex}"
    references = [f"({text}) AS _fk_ref_{i}" for i, text in enumerate(spec.left.foreign_key)]
    lefts = last_versions(tables[k.LEFT_CHANGELOG], spec.left, [c.name for c in spec.left.key_columns])
    lefts = lefts.where(f"NOT {s.DELETED}").drop(s.DELETED).selectExpr("*", *references)
    on = [f"`left`._fk_ref_{i} = `right`.{c.quoted}" for i, c in enumerate(spec.right.key_columns)]
    if spec.as_of is not None:
        lefts = dated(lefts, tables, spec)
        on.append(f"`left`.{HELD} = `right`.{s.VALID_FROM}")
    lefts.createOrReplaceTempView(left)
    _rights(tables, spec).createOrReplaceTempView(right)
    # In an outer join a right row stands alone also if its left row leaves the result.
    unmatching = [o.sql for o in spec.outputs if spec.outer or o.name in spec.right_outputs]
    if isolating and unmatching and not spec.inner:
        on.append(f"NOT {fails(*unmatching)}")
    return f"{left} AS `left` {_JOINS[spec.join]} JOIN {right} AS `right` ON {' AND '.join(on)}"


def _rights(tables: Mapping[str, DataFrame], spec: ForeignKeySpec) -> DataFrame:
    """Returns the right rows that left rows may match: with `as_of` all versions that are no deletions."""
    return current_rows(tables[k.RIGHT_CHANGELOG], spec.right) if spec.as_of is None else living_versions(tables, spec)


def counted(
    tables: Mapping[str, DataFrame], spec: ForeignKeySpec, isolating: bool, chosen: Callable[[Iterable[str]], str]
) -> dict[str, DataFrame]:
    """Returns, per number of a `VerifyReport` that is about the inputs, a frame with as many rows.

    These are `left_rows` and `right_rows`; with `isolating` also `left_out` and, except in an inner join, `unmatched`.

    Args:
        tables: `left_changelog` and `right_changelog`.
        spec: the pipeline.
        isolating: whether an expression fails on a row.
        chosen: function from columns of the left key to SQL (BOOLEAN): the key belongs to the verified share.
    """
    keys = [c.quoted for c in spec.left.key_columns]
    log = tables[k.LEFT_CHANGELOG].where(f"{keys[0]} IS NULL OR {chosen(keys)}")
    tables = {**tables, k.LEFT_CHANGELOG: log}
    right_rows = _rights(tables, spec)
    frames = {"left_rows": current_rows(log, spec.left), "right_rows": right_rows}
    if not isolating:
        return frames
    joined, session = f"FROM {_joined(tables, spec, isolating)}", log.sparkSession
    lost = fails(*[o.sql for o in spec.outputs])
    frames["left_out"] = session.sql(f"SELECT 1 AS one {joined} WHERE `left`.{keys[0]} IS NOT NULL AND {lost}")
    if not spec.inner:  # joins the keys of the right rows again: finds right rows that exist and were not joined
        existing = f"fk_there_{uuid.uuid4().hex}"
        names = [f"{c.quoted} AS _fk_there_{i}" for i, c in enumerate(spec.right.key_columns)]
        on = " AND ".join(f"`left`._fk_ref_{i} = _fk_there_{i}" for i in range(len(names)))
        if spec.as_of is not None:
            names.append(f"{s.VALID_FROM} AS _fk_there_since")
            on += f" AND `left`.{HELD} = _fk_there_since"
        right_rows.selectExpr(*names).createOrReplaceTempView(existing)
        key = spec.right.key_columns[0].quoted
        frames["unmatched"] = session.sql(
            f"SELECT 1 AS one {joined} JOIN {existing} ON {on} WHERE `right`.{key} IS NULL AND NOT {lost}"
        )
    return frames


def pending(tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], spec: ForeignKeySpec) -> list[DataFrame]:
    """Returns the keys whose result row may still change when the due work is done, each once.

    Args:
        tables: `left_changelog`, `right_changelog`, `subscription_store`, `right_table`, `responses`; of an outer join
            also `resolved_join`.
        due: the due batches per stage.
        spec: the pipeline.

    Returns:
        The left keys (`_fk_pk_*`); of an outer join also the keys of right rows that may stand alone or no longer do
        so: all key columns of the result, null in `_fk_pk_*`.
    """
    lefts = _pending_left(tables, due, spec)
    return [lefts, _pending_right(tables, due, lefts, spec)] if spec.outer else [lefts]


def _pending_right(
    tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], lefts: DataFrame, spec: ForeignKeySpec
) -> DataFrame:
    """Returns the keys of right rows that due work may let stand alone or not: those that it changes.

    And those to which a pending left row refers, by the changelog, the store or the result.
    """
    pks, fks = [n for n, _ in k.pk_columns(spec)], [n for n, _ in k.fk_columns(spec)]
    rights = [F.col(quote(c.name)).alias(k.fk(c.name)) for c in spec.right.key_columns]
    batches = sorted({int(b) for numbers in due.values() for b in numbers})
    log, table = tables["right_changelog"], tables["right_table"]
    versions = current_rows(tables["left_changelog"], spec.left)
    own = [F.col(quote(c.name)).alias(k.pk(c.name)) for c in spec.left.key_columns]
    referring = [F.expr(sql).alias(fk) for sql, fk in zip(spec.left.foreign_key, fks, strict=True)]
    parts = [
        log.where(F.col(s.BATCH).isin(batches)).select(*rights),
        table.where(F.col(s.APPLIED_IN).isin(batches) | F.col(s.OWNER).isin(batches)).select(*rights),
        *[
            rows.join(lefts, pks, "left_semi").select(*map(quote, fks))
            for rows in (versions.select(*own, *referring), tables["subscription_store"], tables["resolved_join"])
        ],
    ]
    truncated = log.where(F.col(s.BATCH).isin(batches) & F.col(quote(spec.right.key_columns[0].name)).isNull())
    parts.append(table.select(*rights).crossJoin(truncated.limit(1).select()))
    keys = reduce(DataFrame.unionByName, parts).distinct()
    columns = k.paired_columns(spec) or k.unmatched_columns(spec)
    return keys.select(
        *[F.lit(None).cast(dtype).alias(name) for name, dtype in k.pk_columns(spec)],
        *[F.col(quote(fk)).alias(name) for fk, (name, _) in zip(fks, columns, strict=True)],
    )


def _pending_left(tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], spec: ForeignKeySpec) -> DataFrame:
    """Returns the left keys whose result row may still change when the due work is done: `_fk_pk_*`, distinct."""
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
        frame = frame.where(F.col(quote(spec.left.key_columns[0].name)).isNotNull())  # a truncate has no key
        return frame.select(*[F.col(quote(c.name)).alias(k.pk(c.name)) for c in spec.left.key_columns])

    def subscribers(rows: DataFrame) -> DataFrame:
        keys = rows.select(*[F.col(quote(c.name)).alias(k.fk(c.name)) for c in spec.right.key_columns])
        return store.join(keys.distinct(), fks, "left_semi").select(*map(quote, pks))

    parts = [
        left_keys(tables["left_changelog"].where(F.col(s.BATCH).isin(left))),
        store.where(F.col(s.OWNER).isin(left)).select(*map(quote, pks)),
        subscribers(tables["right_changelog"].where(F.col(s.BATCH).isin(right))),
        subscribers(tables["right_table"].where(F.col(s.OWNER).isin(right))),
        # Responses that are due to be resolved may be unwritten: they concern the same rows as those that are due.
        store.where(F.col(s.APPLIED_IN).isin([*responses, *resolve])).select(*map(quote, pks)),
        subscribers(tables["right_table"].where(F.col(s.APPLIED_IN).isin([*responses, *resolve]))),
        tables["responses"].where(F.col(s.BATCH).isin(resolve)).select(*map(quote, pks)),
        store.select(*map(quote, pks)).crossJoin(truncated("left_changelog", spec.left, left)),
        store.select(*map(quote, pks)).crossJoin(truncated("right_changelog", spec.right, right)),
    ]
    if spec.as_of_batch and (
        right or responses
    ):  # a truncate of such a batch, even if it was withdrawn, ends versions since then
        parts.append(store.where(F.col(k.AS_OF) >= min(right + responses)).select(*map(quote, pks)))
    return reduce(DataFrame.unionByName, parts).distinct()
