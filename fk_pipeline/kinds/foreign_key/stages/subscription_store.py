"""Stage `subscription_store`: its state, with an index.

subscription_store = newest_by_key(left_changelog), without payload
"""

from __future__ import annotations

from functools import partial

from fk_pipeline.blocks.state import state_effects
from fk_pipeline.effects import Effect, Index
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.subscription_store import new_subscribers
from fk_pipeline.kinds.foreign_key.subscription_store import subscription_store as make_subscription_store
from fk_pipeline.stage_input import Reader


def subscription_store(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches to the subscription store; a large store has an index by right key."""
    spec = read.spec
    keys = {k.pk(column.name): column.name for column in spec.left.key_columns}
    make = make_subscription_store
    return state_effects(read, Stage.LEFT_CHANGELOG, k.LEFT_CHANGELOG, k.SUBSCRIPTION_STORE, keys, make)


def subscribers(spec: ForeignKeySpec) -> Index:
    """Returns the index of a large subscription store: it is sorted by the foreign key, then by the time."""
    return Index(k.SUBSCRIBERS, k.subscribed(spec), partial(new_subscribers, spec=spec))
