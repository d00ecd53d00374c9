"""The right row that answers a left row: of its foreign key the latest, or with `as_of` the version of its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.as_of import VALID_TO, during, held, is_closed, reach
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

PROPAGATED = f"({s.SEEN_BEFORE} OR {s.HASH} IS NOT NULL)"
"""SQL (BOOLEAN) over a right row: its change is propagated. A tombstone of a key that never had a row is not."""


@dataclass(frozen=True)
class Ends:
    """What may have ended versions of right rows, besides the next version of their key.

    Attributes:
        withdrawn: whether versions may have been withdrawn.
        truncates: with `as_of: batch` the batches with a truncate, ascending: each ends all versions that hold then.
        changed: those batches of a run that have a truncate, or ever had one.
        horizon: SQL, the time by which versions that do not answer any more had ended (`history`); None if all answer.
    """

    withdrawn: bool = True
    truncates: Sequence[int] = ()
    changed: Sequence[int] = ()
    horizon: str | None = None


USUAL = Ends()
"""No truncates."""


def as_fks(spec: ForeignKeySpec) -> list[Column]:
    """Returns the key columns of the right table under the names of the foreign key."""
    return [F.col(quote(c.name)).alias(k.fk(c.name)) for c in spec.right.key_columns]


def validity(spec: ForeignKeySpec) -> list[str]:
    """Returns the columns of the right table that tell when a version holds; none without `as_of`."""
    return [] if spec.as_of is None else [s.VALID_FROM, s.DELETED]


def answer_columns(spec: ForeignKeySpec) -> list[str]:
    """Returns the columns of a right row that tell which response is due about it."""
    keys = [c.name for c in spec.right.key_columns]
    return [*keys, *validity(spec), s.HASH, s.APPLIED_IN, s.SEEN_BEFORE]


def truncates_in(right_changelog: DataFrame, spec: ForeignKeySpec) -> list[int]:
    """Returns the batches that have a truncate, ascending."""
    truncates = right_changelog.where(f"{spec.right.key_columns[0].quoted} IS NULL")
    return sorted(row[0] for row in truncates.select(s.BATCH).distinct().collect())


def answering(right_table: DataFrame, spec: ForeignKeySpec, ends: Ends = USUAL) -> DataFrame:
    """Returns the right rows that may answer a left row: with `as_of` the versions, and when each holds."""
    if spec.as_of is None:
        return right_table
    return held(right_table, [c.name for c in spec.right.key_columns], ends.truncates, ends.horizon)


def right_hash(spec: ForeignKeySpec) -> str:
    """SQL (BINARY) over a row of `answering`: the hash that a response carries; null if the row is deleted.

    For closed times it is `as_of.CLOSED`.

    If the end of validity is selected, the hash differs when that does.
    """
    if spec.as_of is None:
        return s.HASH
    until = f"UNHEX(MD5(CONCAT(HEX({s.HASH}), CAST(XXHASH64({VALID_TO}) AS STRING))))"
    content = f"IF({VALID_TO} IS NULL OR {is_closed(s.HASH)}, {s.HASH}, {until})" if spec.selects_end else s.HASH
    return f"IF({s.DELETED}, NULL, {content})"


def right_row(spec: ForeignKeySpec) -> Column:
    """Returns a row of `answering` as a struct, with `as_of` also its validity; null for a deleted row."""
    columns = [F.col(quote(c.name)) for c in spec.right.columns]
    times = {"valid_from": s.VALID_FROM, "valid_to": VALID_TO}
    columns += [F.col(times[c.name]).alias(c.name) for c in spec.columns_of_validity]
    exists = F.col(s.HASH).isNotNull() if spec.as_of is None else ~F.col(s.DELETED)
    return F.when(exists, F.struct(*columns))


def with_right(
    rows: DataFrame, rights: DataFrame, spec: ForeignKeySpec, columns: Sequence[Column], how: str = "left"
) -> DataFrame:
    """Returns rows with columns of the right row that answers each.

    Args:
        rows: rows with the foreign key (`_fk_fk_*`), and with `as_of` the time (`_fk_as_of`).
        rights: right rows as `answering` returns them.
        spec: the pipeline.
        columns: the columns over a right row.
        how: as `DataFrame.join` takes it.
    """
    fks = k.fk_names(spec)
    if spec.as_of is None:
        return rows.join(rights.select(*as_fks(spec), *columns), fks, how)
    versions = rights.select(*as_fks(spec), s.VALID_FROM, VALID_TO, *columns)
    return during(rows, versions, {fk: fk for fk in fks}, k.AS_OF, how)


def concerned(
    rows: DataFrame, right_table: DataFrame, spec: ForeignKeySpec, batches: BatchRange, ends: Ends = USUAL
) -> DataFrame:
    """Returns the rows for whose time a right row changed, maybe several times.

    Args:
        rows: rows with the foreign key (`_fk_fk_*`) and the time (`_fk_as_of`).
        right_table: the versions of some right keys.
        spec: the pipeline, with `as_of`.
        batches: the batches for which versions changed.
        ends: what may have ended versions.

    Returns:
        The columns of `rows`, and `_fk_batch`: the batch of the change.
    """
    changed = f"{batches.predicate(s.APPLIED_IN)} AND {PROPAGATED}"
    now = answering(right_table, spec, ends).where(changed)
    times = [now.select(*as_fks(spec), F.col(s.APPLIED_IN).alias(s.BATCH), s.VALID_FROM, VALID_TO)]
    times += reached(right_table, spec, batches, ends)
    return meeting(rows, times, spec)


def meeting(rows: DataFrame, times: Sequence[DataFrame], spec: ForeignKeySpec) -> DataFrame:
    """Returns the rows whose time is among some times, with the other columns of these; a row may come several times.

    Args:
        rows: rows with the foreign key (`_fk_fk_*`) and the time (`_fk_as_of`).
        times: as `reached` returns them; the few without a foreign key are of every key.
        spec: the pipeline.
    """
    fks = k.fk_names(spec)
    parts = []
    for frame in times:
        keys = {fk: fk for fk in fks if fk in frame.columns}
        parts.append(during(rows, frame if keys else F.broadcast(frame), keys, k.AS_OF, "inner"))
    return reduce(DataFrame.unionByName, parts)


def reached(right_table: DataFrame, spec: ForeignKeySpec, batches: BatchRange, ends: Ends = USUAL) -> list[DataFrame]:
    """Returns the times for which changes of right rows concern left rows that those rows do not answer now.

    Args:
        right_table: the versions of some right keys.
        spec: the pipeline, with `as_of`.
        batches: the batches for which they changed.
        ends: what may have ended versions.

    Returns:
        Frames with `_fk_batch`, `_fk_valid_from` and `_fk_valid_to`, of changed versions also with `_fk_fk_*`.
    """
    frames = []
    if ends.withdrawn or spec.selects_end:
        keys = [c.name for c in spec.right.key_columns]
        changed = f"{batches.predicate(s.APPLIED_IN)} AND {PROPAGATED}"
        versions = reach(right_table, keys, changed, ends.truncates, ends.horizon, before=spec.selects_end)
        frames.append(versions.select(*as_fks(spec), F.col(s.APPLIED_IN).alias(s.BATCH), s.VALID_FROM, VALID_TO))
    if ends.changed:
        later = {batch: min((b for b in ends.truncates if b > batch), default=None) for batch in ends.changed}
        since = "0" if spec.selects_end else s.BATCH  # else only what held since then
        rows = ", ".join(f"({batch}, {'NULL' if end is None else end})" for batch, end in later.items())
        times = f"SELECT {s.BATCH}, {since} AS {s.VALID_FROM}, CAST({VALID_TO} AS INT) AS {VALID_TO}"
        query = f"{times} FROM VALUES {rows} AS truncates({s.BATCH}, {VALID_TO})"
        frames.append(right_table.sparkSession.sql(query))
    return frames
