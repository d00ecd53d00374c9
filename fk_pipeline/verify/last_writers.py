"""The table that a changelog describes, in SQL of its own, and what due work may change: no code of the stages."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.store import schemas as s


def current_rows(changelog: DataFrame, side: SideSpec) -> DataFrame:
    """Returns the table that a changelog describes: per key the row of the last writer, unless that is a deletion.

    A row without a key is a truncate: the last writer of every key without a newer row. A row with the batch and
    sequence of a truncate came after it, because the changelog keeps no other.
    """
    return last_versions(changelog, side, side.stored_key).where(f"NOT {s.DELETED}").select(*_columns(side))


def last_versions(changelog: DataFrame, side: SideSpec, by: Sequence[str]) -> DataFrame:
    """Returns per value of some columns the row of the last writer, deletions too, unless a truncate came after it.

    Args:
        changelog: the changelog.
        side: its side.
        by: the columns, the first key column among them.

    Returns:
        `by`, the declared columns, `_fk_deleted`, also true of a row that does not pass `where`, and `_fk_batch`.
    """
    view = f"fk_verify_{uuid.uuid4().hex}"
    changelog.createOrReplaceTempView(view)
    keys = ", ".join(map(quote, by))
    deleted = f"{s.DELETED} OR {s.WHERE_FAILS}" if s.HOLES in changelog.columns else s.DELETED
    gone = s.DELETED if side.where is None else f"IF({deleted}, TRUE, ({side.where}) IS NOT TRUE) AS {s.DELETED}"
    columns = ", ".join(dict.fromkeys([*map(quote, by), *_columns(side), gone, s.BATCH]))
    order, key = f"STRUCT({s.SEQUENCE}, {s.BATCH})", side.key_columns[0].quoted
    rows: DataFrame = changelog.sparkSession.sql(
        f"SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} "
        f"ORDER BY {order} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS _fk_rank "
        f"FROM {view} WHERE {key} IS NOT NULL) "
        f"CROSS JOIN (SELECT MAX({order}) AS _fk_truncated FROM {view} WHERE {key} IS NULL) "
        f"WHERE _fk_rank = 1 AND ({order} >= _fk_truncated OR _fk_truncated IS NULL)"
    )
    return rows


def concerned(
    log: DataFrame, state: DataFrame, keys: Sequence[str], due: Mapping[str, Iterable[int]]
) -> tuple[DataFrame, DataFrame]:
    """Returns the keys that due batches concern, maybe several times; and a row without columns if one has a truncate.

    Args:
        log: the changelog.
        state: the state that is made of it.
        keys: the key columns, which both have under the same names.
        due: the due batches per stage.
    """
    batches, names = sorted({int(batch) for of_stage in due.values() for batch in of_stage}), [*map(quote, keys)]
    own = log.where(F.col(s.BATCH).isin(batches))
    changed = state.where(F.col(s.OWNER).isin(batches) | F.col(s.APPLIED_IN).isin(batches))
    rows = own.where(f"{names[0]} IS NOT NULL").select(*names).unionByName(changed.select(*names))
    return rows, own.where(f"{names[0]} IS NULL").limit(1).select()


def _columns(side: SideSpec) -> list[str]:
    return [c.quoted for c in side.columns]
