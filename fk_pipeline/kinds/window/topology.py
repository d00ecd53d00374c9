"""What Kafka's optimisation rules change in a windowed join: which apply, why, and the operators before and after."""

from __future__ import annotations

from typing import Any

from fk_pipeline.answers import AppliedRule, Topology
from fk_pipeline.kinds.window.spec import MERGED_REPARTITION, REUSED_SOURCE, SINGLE_STORE, WindowSpec

_LEFT = "left landing files -> left_changelog -> left_table -> resolved_join"
_RIGHT = "right landing files -> right_changelog -> right_table -> resolved_join"


def topology(spec: Any) -> Topology:
    """Returns the rules of KIP-862 and of Kafka's optimiser, whether and why each applies, and the operators."""
    rules = (_single_store(spec), _reused_source(spec), _merged_repartition(spec))
    return Topology(rules, before=(_LEFT, _RIGHT), after=(_LEFT,) if spec.single_store else (_LEFT, _RIGHT))


def _off(spec: WindowSpec, rule: str) -> AppliedRule | None:
    if spec.settings.optimizes(rule):
        return None
    return AppliedRule(rule, False, f"settings.optimize is {', '.join(spec.settings.optimize)}")


def _single_store(spec: WindowSpec) -> AppliedRule:
    if (off := _off(spec, SINGLE_STORE)) is not None:
        return off
    if not spec.to_itself:
        return AppliedRule(SINGLE_STORE, False, "the sides differ")
    return AppliedRule(SINGLE_STORE, True, "both sides are the same: one changelog and one table serve both")


def _reused_source(spec: WindowSpec) -> AppliedRule:
    why = "each side is copied into its changelog, which a batch that is withdrawn needs"
    return _off(spec, REUSED_SOURCE) or AppliedRule(REUSED_SOURCE, False, why)


def _merged_repartition(spec: WindowSpec) -> AppliedRule:
    if (off := _off(spec, MERGED_REPARTITION)) is not None:
        return off
    if spec.single_store:
        return AppliedRule(MERGED_REPARTITION, True, "one table, with the values of on and the time, serves both sides")
    return AppliedRule(MERGED_REPARTITION, False, "the sides have different rows: each has a table of its own")
