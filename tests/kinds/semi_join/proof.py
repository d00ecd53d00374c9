"""The definition of the semi join in SQL, and the rows that due work may still change."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.failing import fails
from fk_pipeline.store import schemas as s
from fk_pipeline.verify.last_writers import current_rows
from tests.kinds.semi_join.kind import LEFT_ROWS, RIGHT_KEYS, reference
from tests.kinds.semi_join.tables import key


def _matches(tables: Mapping[str, DataFrame], spec: PipelineSpec) -> str:
    """SQL (FROM clause): the left rows with a match."""
    left, right = (f"semi_{uuid.uuid4().hex}" for _ in range(2))
    current_rows(tables["left_changelog"], spec.left).createOrReplaceTempView(left)
    current_rows(tables["right_changelog"], spec.right).createOrReplaceTempView(right)
    pairs = zip(spec.left.foreign_key, spec.right.key_columns, strict=True)
    refers = [f"({text}) AS _ref_{i}" for i, (text, _) in enumerate(pairs)]
    on = " AND ".join(f"l._ref_{i} = r.{c.quoted}" for i, c in enumerate(spec.right.key_columns))
    columns = ", ".join(c.quoted for c in spec.left.columns)
    return (
        f"(SELECT {columns}, STRUCT({columns}) AS `left` FROM (SELECT *, {', '.join(refers)} FROM {left}) l "
        f"WHERE EXISTS (SELECT 1 FROM {right} r WHERE {on}))"
    )


def expected(tables: Mapping[str, DataFrame], spec: PipelineSpec, isolating: bool = False) -> DataFrame:
    """Returns the left rows with a match: key columns and selected columns."""
    keys = [f"{c.quoted} AS {quote(key(c.name))}" for c in spec.left.key_columns]
    outputs = [output.sql for output in spec.outputs]
    computed = f" WHERE NOT {fails(*outputs)}" if isolating else ""
    session = tables["left_changelog"].sparkSession
    return session.sql(f"SELECT {', '.join([*keys, *outputs])} FROM {_matches(tables, spec)}{computed}")


def pending(tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], spec: PipelineSpec) -> list[DataFrame]:
    """Returns the left keys that due batches concern: by the logs, the states, or a truncate."""
    batches = sorted({int(batch) for found in due.values() for batch in found})
    keys, rights = ([c.name for c in side.key_columns] for side in (spec.left, spec.right))
    left, refers = tables[LEFT_ROWS], [reference(name) for name in rights]
    concerned = F.col(s.APPLIED_IN).isin(batches) | F.col(s.OWNER).isin(batches)
    logs = {name: tables[name].where(F.col(s.BATCH).isin(batches)) for name in ("left_changelog", "right_changelog")}
    changed = logs["right_changelog"].select(*map(quote, rights)).unionByName(
        tables[RIGHT_KEYS].where(concerned).select(*map(quote, rights))
    )  # fmt: skip
    truncated = reduce(
        DataFrame.unionAll,
        [log.where(F.col(quote(names[0])).isNull()).limit(1).select()
         for log, names in zip(logs.values(), (keys, rights), strict=True)],
    )  # fmt: skip
    parts = [
        logs["left_changelog"].select(*map(quote, keys)),
        left.where(concerned).select(*map(quote, keys)),
        left.join(changed.distinct().toDF(*refers), refers, "left_semi").select(*map(quote, keys)),
        left.select(*map(quote, keys)).crossJoin(truncated),
    ]
    found = reduce(DataFrame.unionByName, parts).distinct()
    return [found.toDF(*[key(name) for name in keys])]


def counted(
    tables: Mapping[str, DataFrame], spec: PipelineSpec, isolating: bool, chosen: Callable[[Iterable[str]], str]
) -> dict[str, DataFrame]:
    """Returns frames with as many rows as there are left rows, right rows, and left rows on which `select` fails."""
    log = tables["left_changelog"].where(chosen([c.quoted for c in spec.left.key_columns]))
    frames = {
        "left_rows": current_rows(log, spec.left),
        "right_rows": current_rows(tables["right_changelog"], spec.right),
    }
    if isolating:
        lost = fails(*[output.sql for output in spec.outputs])
        frames["left_out"] = log.sparkSession.sql(f"SELECT 1 AS one FROM {_matches(tables, spec)} WHERE {lost}")
    return frames
