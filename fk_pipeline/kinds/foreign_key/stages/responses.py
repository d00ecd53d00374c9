"""Stage `responses`: who gets one, by the rows that the batches changed.

responses[n] = (subscription_store ⟕ right_table) where either row changed in n
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.effects import CountBy, Effect, ReplaceBatches, Report
from fk_pipeline.identity import APPLIED, INSERTED, UNWRITTEN
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.responses import due_rights, due_subscriptions
from fk_pipeline.kinds.foreign_key.responses import responses as due_responses
from fk_pipeline.kinds.foreign_key.rights import Ends, answer_columns
from fk_pipeline.kinds.foreign_key.stages.reading import (
    UPSTREAM,
    ends_of,
    subscribers_of,
    subscription_columns,
)
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Counts, Reader
from fk_pipeline.store import schemas as s
from fk_pipeline.store.sizes import UNKNOWN


def responses(read: Reader) -> list[Effect]:
    """Returns the effects that write the responses due to the batches."""
    ends = ends_of(read)
    nothing_changed = all(read.history.never_did(up, INSERTED, APPLIED) for up in UPSTREAM)
    if read.history.first_time and nothing_changed and not ends.changed:
        return []
    asking, changing = map(read.history.propagated, UPSTREAM)
    if ends.changed:  # they concern every key
        changing = UNKNOWN
    # The store is opened first, so the index has at least all pairs of this version of the store.
    subscriptions, right = read.read(k.SUBSCRIPTION_STORE), read.read(k.RIGHT_TABLE)
    at_most = 2 * read.about(k.SUBSCRIPTION_STORE).rows
    if max(asking, changing) <= read.limits.lookup_limit(min(asking + changing, UNKNOWN), k.SUBSCRIPTION_STORE):
        subscriptions, right, at_most = _looked_up(read, ends, asking, changing)
    elif unwritten := _unwritten(read, ends):
        nothing = read.frames.planned(read.read(k.RESPONSES).limit(0), 0)
        return [Report(unwritten), ReplaceBatches(k.RESPONSES, nothing)]
    due = due_responses(subscriptions, right, read.spec, read.batches, ends)
    expected = UNKNOWN if ends.changed else read.history.propagated(Stage.SUBSCRIPTION_STORE)
    is_guess = not read.about(k.SUBSCRIBERS).rows  # the index bounds their number
    if is_guess and expected + touched_by_responses(read) <= read.limits.in_driver < at_most:
        rows = read.frames.cached(due, None)  # the driver writes few rows and counts them; Spark takes longer
    else:
        rows = read.frames.planned(due, at_most)
    return [ReplaceBatches(k.RESPONSES, rows, counted=CountBy(s.BATCH, s.CAUSE, "{}-driven".format))]


def _unwritten(read: Reader, ends: Ends) -> Counts:
    """Returns per batch an upper bound of its responses, if `resolved_join` computes them; empty if they are written.

    It does where they concern a large part of a large store: to write and read them would take longer (ADR 0062).
    """
    store, sizes = read.about(k.SUBSCRIPTION_STORE).rows, read.limits.sizes
    asking, changing = map(read.history.propagated, UPSTREAM)
    if ends.changed or max(asking, changing) >= UNKNOWN:
        return {}
    if min(asking, store) + min(touched_by_responses(read), store) <= max(sizes.unwritten_rows, store // 10):
        return {}
    counts = {}
    for batch in map(int, read.history.known):
        asking, changing = (read.history.propagated(up, batch) for up in UPSTREAM)
        counts[batch] = {UNWRITTEN: asking + (store if changing else 0)}
    return counts


def _looked_up(read: Reader, ends: Ends, asking: int, changing: int) -> tuple[DataFrame, DataFrame, int]:
    """Returns subscriptions and right rows, found by their keys, that few changes concern, and a bound of responses.

    Args:
        read: reads both states.
        ends: what may have ended versions.
        asking: an upper bound of the changed subscriptions.
        changing: an upper bound of the changed right rows.
    """
    batches, keys = read.batches, k.right_keys(read.spec)
    due = due_subscriptions(read.of_batches(k.SUBSCRIPTION_STORE, s.APPLIED_IN), batches)
    asks = read.frames.cached(due.select(*map(quote, subscription_columns(read.spec))), asking)
    rows, at_most = asks.frame, asking
    columns = answer_columns(read.spec)
    rights = read.with_keys(k.RIGHT_TABLE, asks, keys, needed=columns)
    changed_rights = due_rights(read.of_batches(k.RIGHT_TABLE, s.APPLIED_IN), batches)
    changed = read.frames.cached(changed_rights.select(*map(quote, columns)), changing)
    if changed.local is None or len(changed.local):
        versions = changed.frame
        if read.spec.as_of is not None:  # the other versions of their keys determine how long they hold
            same = {column: column for column in keys}
            versions = read.frames.cached(read.with_keys(k.RIGHT_TABLE, changed, same, needed=columns), None).frame
        hearing, more = subscribers_of(read, changed, versions, ends)
        rows, at_most = rows.unionByName(hearing).dropDuplicates(k.pk_names(read.spec)), min(at_most + more, UNKNOWN)
        rights = rights.unionByName(versions).dropDuplicates([*k.keys_of(read.spec, k.RIGHT_TABLE).keys])
    in_driver = asks.local is not None and changed.local is not None
    return rows, F.broadcast(rights) if in_driver else rights, at_most


def touched_by_responses(read: Reader) -> int:
    """Returns about how many rows of the result the changed right rows concern: a few right rows may concern all."""
    store, right = read.about(k.SUBSCRIPTION_STORE).rows, read.about(k.RIGHT_TABLE).rows
    return read.history.propagated(Stage.RIGHT_TABLE) * store // max(1, right)
