"""What several stages of the foreign-key join read: the ends of versions, and the subscriptions to right rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from fk_pipeline.blocks.horizon import sql_of
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.rights import Ends, concerned, truncates_in
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Messages, Reader, RowSet
from fk_pipeline.store import schemas as s

UPSTREAM = (Stage.SUBSCRIPTION_STORE, Stage.RIGHT_TABLE)
"""The stages whose states determine which pairs of rows are current."""


def ends_of(read: Reader) -> Ends:
    """Returns what may have ended versions of right rows, with `as_of`, besides the next version of their key."""
    spec, stage = read.spec, Stage.RIGHT_TABLE
    if spec.as_of is None:
        return Ends(withdrawn=False)
    horizon = sql_of(read.history.horizon(stage))
    if read.history.may_be_truncated(stage) is False:
        return Ends(not never_rewritten(read, stage, k.RIGHT_CHANGELOG), horizon=horizon)
    if not spec.as_of_batch:  # a truncate withdraws versions
        return Ends(horizon=horizon)
    truncates = truncates_in(read.read(k.RIGHT_CHANGELOG), spec)
    return Ends(truncates=truncates, changed=read.history.truncated(stage))


def unchanged_since(read: Reader, messages: Messages, stages: Sequence[str], tables: Sequence[str]) -> bool:
    """Returns whether some tables are unchanged since messages were computed from them: then no message is stale.

    The ledger is read after the versions of the tables are fixed: no run of their stages may have started since, and
    none may have been under way. The versions must be the same as well; that alone is not enough (rule 8).
    """
    versions = {name: read.about(name).version for name in tables}
    return (
        messages.since is not None
        and read.history.unchanged_since(stages, messages.since)
        and all(made_from.get(name) == version for made_from in messages.versions for name, version in versions.items())
    )


def never_rewritten(read: Reader, stage: str, log: str) -> bool:
    """Returns whether no partition of a log was ever rewritten; the ledger is read after its version is fixed."""
    read.about(log).fix()
    return read.history.never_rewritten(stage)


def subscribers_of(read: Reader, changed: RowSet, versions: DataFrame, ends: Ends) -> tuple[DataFrame, int]:
    """Returns at least the subscribers of changed right rows, found by the index, and a bound of their number.

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
