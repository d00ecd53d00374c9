"""What several stages of the foreign-key join read: the ends of versions, and the subscriptions to right rows."""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.blocks.horizon import sql_of
from fk_pipeline.effects import Reader, RowSet
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.rights import Ends, concerned, truncates_in
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

UPSTREAM = (Stage.SUBSCRIPTION_STORE, Stage.RIGHT_TABLE)
"""The stages whose states tell which pairs of rows are current."""


def ends_of(read: Reader) -> Ends:
    """Returns what may have ended versions of right rows, with `as_of`, besides the next version of their key."""
    spec, stage = read.spec, Stage.RIGHT_TABLE
    if spec.as_of is None:
        return Ends(withdrawn=False)
    horizon = sql_of(read.history.horizon(stage))
    if read.history.may_be_truncated(stage) is False:
        return Ends(not read.never_rewritten(stage), horizon=horizon)
    if not spec.as_of_batch:  # a truncate withdraws versions
        return Ends(horizon=horizon)
    truncates = truncates_in(read.read(k.RIGHT_CHANGELOG), spec)
    return Ends(truncates=truncates, changed=read.history.truncated(stage))


def subscribers_of(read: Reader, changed: RowSet, versions: DataFrame, ends: Ends) -> tuple[DataFrame, int]:
    """Returns at least the subscriptions that hear of changed right rows, by the index, and a bound of their number.

    Args:
        read: reads the index and the store.
        changed: the right rows.
        versions: with `as_of` all versions of their keys.
        ends: what may have ended versions.
    """
    spec, columns = read.spec, {fk: name for name, fk in k.right_keys(read.spec).items()}

    def of_the_time(pairs: DataFrame) -> DataFrame:
        return concerned(pairs, versions, spec, read.batches, ends).select(*map(quote, pairs.columns)).distinct()

    narrow = None if spec.as_of is None else of_the_time
    return read.through_index(k.SUBSCRIBERS, k.SUBSCRIPTION_STORE, changed, columns, subscription_columns(spec), narrow)


def subscription_columns(spec: ForeignKeySpec) -> list[str]:
    """Returns the columns of a subscription that responses need."""
    return [*k.pk_names(spec), *k.subscribed(spec), s.HASH, s.OWNER, s.APPLIED_IN, k.INSTRUCTION]
