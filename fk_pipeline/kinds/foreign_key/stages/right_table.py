"""Stage `right_table`: its state, within the limit of result rows that a batch may touch.

right_table = newest_by_key(right_changelog)
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import functions as F

from fk_pipeline.blocks.state import state_effects
from fk_pipeline.blocks.versions import OUTCOME
from fk_pipeline.effects import Effect
from fk_pipeline.errors import FanOutError
from fk_pipeline.identity import LATE, Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.fan_out import beyond
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.right_table import right_table as make_right_table
from fk_pipeline.kinds.foreign_key.rights import Ends
from fk_pipeline.kinds.foreign_key.stages.reading import ends_of, subscribers_of
from fk_pipeline.spec import quote
from fk_pipeline.spec.settings import FAN_OUT_WITHIN_BUDGET
from fk_pipeline.stage_input import Reader, RowSet


def right_table(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches, which are in the right changelog, to the right table."""
    spec = read.spec
    keys = spec.definition.keys_in_log(spec, Side.RIGHT, k.keys_of(spec, k.RIGHT_TABLE).keys)
    return state_effects(
        read,
        Stage.RIGHT_TABLE,
        k.RIGHT_CHANGELOG,
        k.RIGHT_TABLE,
        keys,
        make_right_table,
        check=partial(_within_budget, read),
    )


def _within_budget(read: Reader, rows: RowSet) -> RowSet:
    """Returns the right rows after the batches, if each batch keeps the limit of result rows that it may touch.

    Raises:
        FanOutError: a batch would touch more rows and is not approved.
    """
    spec, budget = read.spec, read.history.limit(FAN_OUT_WITHIN_BUDGET)
    if budget is None or not read.about(k.SUBSCRIPTION_STORE).rows:
        return rows
    cached, store = read.frames.cached(rows.frame, rows.at_most), read.read(k.SUBSCRIPTION_STORE)
    if cached.local is not None and read.about(k.SUBSCRIBERS).rows and spec.as_of is None:
        store, _ = subscribers_of(read, cached, cached.frame, Ends())
    versions = None
    if spec.as_of is not None:
        names = {name: name for name in k.keys_of(spec, k.RIGHT_TABLE).keys}
        keys = {c.name: c.name for c in spec.right.key_columns}
        fresh = cached.frame.where(F.col(OUTCOME) != LATE)
        others = read.with_keys(k.RIGHT_TABLE, cached, keys).join(
            fresh.select(*map(quote, names)), [*names], "left_anti"
        )
        versions = others.unionByName(fresh, allowMissingColumns=True)
    approved = read.history.approved(FAN_OUT_WITHIN_BUDGET)
    fan_out = beyond(cached.frame, store, spec, budget, approved, versions, ends_of(read))
    if fan_out is None:
        return cached
    error = FanOutError(
        f"{fan_out}, and max_fan_out is {budget:,}",
        where=f"pipeline {spec.name}",
        why="its right rows were not applied",
        fix=f"correct what landed, or agree: fk-pipeline run {spec.file} --waive REASON",
    )
    error.values = fan_out.rows
    raise error
