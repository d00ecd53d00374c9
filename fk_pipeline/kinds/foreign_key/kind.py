"""The foreign-key join as data: five stages, named after their roles in KIP-213, and nine tables. No Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fk_pipeline.contract import Input, Kind, Removals, Role, StageDef, TableDef, loaded
from fk_pipeline.identity import (
    APPLIED,
    EXPIRED,
    HALF_QUARANTINED,
    INSERTED,
    LATE,
    QUARANTINED,
    SILENT,
    UNWRITTEN,
    Side,
)
from fk_pipeline.proof import Proof


class Stage(StrEnum):
    """The five stages, in running order."""

    LEFT_CHANGELOG = "left_changelog"
    RIGHT_TABLE = "right_table"
    SUBSCRIPTION_STORE = "subscription_store"
    RESPONSES = "responses"
    RESOLVED_JOIN = "resolved_join"


JOINED, HALF_JOINED, RETRACTED, UNCHANGED = "joined", "half-joined", "retracted", "unchanged"
STALE_LEFT, STALE_RIGHT, REWRITTEN = "stale left", "stale right", "rewritten"
REFUSED = (QUARANTINED, HALF_QUARANTINED)
"""Verdicts on responses for whose pair of rows an expression fails."""

RIGHT_UNMATCHED, NO_LONGER_UNMATCHED = "alone", "no longer alone"
"""Counts of right rows in an outer join: those that came to stand alone or changed there, and those that ceased to."""

ALL_VERDICTS = (JOINED, HALF_JOINED, RETRACTED, UNCHANGED, STALE_LEFT, STALE_RIGHT, REWRITTEN, EXPIRED, *REFUSED)
"""All verdicts of the resolver on a response. One for a closed time (`history`) is `expired`: the left row is new or
changed, and gets no right row."""

_STATE_SHARE, _RESULT_SHARE = 0.05, 0.02
"""`full_share` of the stages that look up rows in a state, and of the one that does so in the result; measured
(`docs/benchmark.md`)."""


_RUNS = "fk_pipeline.kinds.foreign_key.stages"
"""The package with the functions of the stages, one module for each."""

_RULES = "fk_pipeline.kinds.foreign_key.rules"
"""The package with the rules of their tables."""


_LEFT_CHANGELOG = """\
The left table's change stream, batch by batch: the last valid event per key, with the whole row, its 128-bit hash
and the source's own sequence. Late events are kept; the subscription store decides who wins. Lines that cannot be read
go to `quarantine` with file, line, reason and raw text.
"""
_RIGHT_TABLE = """\
The current row of every right key, tombstones kept, from `right_changelog`. **Last writer wins** by the source's
sequence, ties by batch. A partition is the rows that its batch changed last; the responses to their subscribers are due
there.
"""
_SUBSCRIPTION_STORE = """\
Which right key every left row subscribes to, and the hash of the left row (KIP-213's subscription send and receive).
**Owner rule**: a batch changes a row only if it brings a newer version, or no longer brings the one it owned. An update
that leaves the hash equal is silent.
"""
_RESPONSES = """\
The responses that are due to a batch: to each subscription that asks for one, and to every subscriber of a right row
that changed. Only keys and both hashes, no payload. **One response per change**: only a left key never seen before may
stay without one. Where a batch concerns most rows, its responses are not written: `resolved_join` computes them.
"""
_RESOLVED_JOIN = """\
The join. A response is applied only if **both of its hashes are still current**; whatever made it stale has queued its
own response. Every response gets one verdict: joined, half-joined, retracted, unchanged, stale left, stale right,
rewritten, expired, half-quarantined, quarantined. The table carries batch and time of each row's last change and has
the Delta change data feed on.
"""
"""Descriptions of the stages, in Markdown."""


def _subscribed_to(spec: Any) -> dict[str, str]:
    """Returns SQL for what a left row subscribes to: each component of the foreign key, and with `as_of` the time.

    The names of the components are made of the right key columns. All are null if one is: KIP-213 has no partial
    foreign key.
    """
    keys = zip(spec.right.key_columns, spec.left.foreign_key, strict=True)
    time = {} if spec.as_of is None else {"_fk_as_of": "_fk_batch" if spec.as_of_batch else spec.as_of}
    return {f"_fk_fk_{key.name}": sql for key, sql in keys} | time


def _declared_as(column: str) -> str:
    """Returns the key of the pipeline file under which a column of `_subscribed_to` is declared."""
    return "as_of" if column == "_fk_as_of" else "left.foreign_key"


def _versions_by(spec: Any) -> tuple[str, ...]:
    """Returns the column of the right changelog with the time since which a row holds; none without `as_of`."""
    if spec.as_of is None:
        return ()
    return ("_fk_batch",) if spec.as_of_batch else ("_fk_valid_from",)


def _filled_foreign_key(spec: Any) -> list[str]:
    """Returns the expressions of the foreign key if it may fail on a row in the changelog: after values were filled.

    The foreign key of every other row was computed before the row came into the changelog.
    """
    expressions: list[str] = loaded("fk_pipeline.kinds.foreign_key.layout:foreign_key_of_filled_rows")(spec)
    return expressions


def _depends_on(spec: Any) -> dict[str, str]:
    return {
        "join": spec.join,
        "result_key": spec.result_key
        if isinstance(spec.result_key, str)
        else "; ".join(output.sql for output in spec.key_outputs) or "left",
        "select": "; ".join(output.sql for output in spec.outputs),
        "left.foreign_key": "; ".join(spec.left.foreign_key),
        **({} if spec.as_of is None else {"as_of": spec.as_of, "validity": ", ".join(spec.selected_validity)}),
    }


FOREIGN_KEY = Kind(
    name="foreign_key",
    spec="fk_pipeline.kinds.foreign_key.spec:ForeignKeySpec",
    inputs=(
        Input(Side.LEFT, Stage.LEFT_CHANGELOG, log="left_changelog", derives=_subscribed_to, derived_as=_declared_as),
        Input(Side.RIGHT, stage=Stage.RIGHT_TABLE, log="right_changelog", referred=True, versions_by=_versions_by),
    ),
    tables=(
        TableDef("left_changelog", Role.LOG, Stage.LEFT_CHANGELOG, Side.LEFT),
        TableDef("right_changelog", Role.LOG, Stage.RIGHT_TABLE, Side.RIGHT),
        TableDef("right_table", Role.STATE, Stage.RIGHT_TABLE, Side.RIGHT),
        TableDef("subscription_store", Role.STATE, Stage.SUBSCRIPTION_STORE, Side.LEFT),
        TableDef("subscribers", Role.INDEX, Stage.SUBSCRIPTION_STORE, index=f"{_RUNS}.subscription_store:subscribers"),
        TableDef("responses", Role.MESSAGES, Stage.RESPONSES),
        TableDef("verdicts", Role.MESSAGES, Stage.RESOLVED_JOIN),
        TableDef("resolved_join", Role.RESULT, Stage.RESOLVED_JOIN),
        TableDef("quarantine", Role.REJECTED),
    ),
    stages=(
        StageDef(
            Stage.LEFT_CHANGELOG,
            description=_LEFT_CHANGELOG,
            counts={"changes": ("rows",), "quarantined": (QUARANTINED,)},
        ),
        StageDef(
            Stage.RIGHT_TABLE,
            description=_RIGHT_TABLE,
            reads=("right_changelog", "right_table"),
            counts={
                "changes": ("rows",),
                "applied": (INSERTED, APPLIED),
                "silent": (SILENT,),
                "late": (LATE,),
                "quarantined": (QUARANTINED,),
            },
            full_share=_STATE_SHARE,
            run=f"{_RUNS}.right_table:right_table",
            views=f"{_RULES}.right_table:right_table_views",
        ),
        StageDef(
            Stage.SUBSCRIPTION_STORE,
            description=_SUBSCRIPTION_STORE,
            upstream=(Stage.LEFT_CHANGELOG,),
            reads=("left_changelog", "subscription_store"),
            counts={"subscriptions": (INSERTED, APPLIED), "silent": (SILENT,), "late": (LATE,)},
            evaluates=_filled_foreign_key,
            full_share=_STATE_SHARE,
            run=f"{_RUNS}.subscription_store:subscription_store",
            views=f"{_RULES}.subscription_store:subscription_store_views",
        ),
        StageDef(
            Stage.RESPONSES,
            description=_RESPONSES,
            upstream=(Stage.SUBSCRIPTION_STORE, Stage.RIGHT_TABLE),
            reads=("subscription_store", "right_table"),
            counts={"responses": ("left-driven", "right-driven", UNWRITTEN)},
            looks_up_in="subscription_store",
            index="subscribers",
            full_share=_STATE_SHARE,
            run=f"{_RUNS}.responses:responses",
            views=f"{_RULES}.responses:responses_views",
            concerns=f"{_RUNS}.responses:touched_by_responses",
        ),
        StageDef(
            Stage.RESOLVED_JOIN,
            description=_RESOLVED_JOIN,
            upstream=(Stage.RESPONSES,),
            reads=("responses", "subscription_store", "right_table", "left_changelog", "resolved_join"),
            counts={
                "joined": (JOINED,),
                "half-joined": (HALF_JOINED,),
                "retracted": (RETRACTED,),
                "unchanged": (UNCHANGED,),
                "stale dropped": (STALE_LEFT, STALE_RIGHT, REWRITTEN),
                "expired": (EXPIRED,),
                "quarantined": REFUSED,
            },
            full_share=_RESULT_SHARE,
            run=f"{_RUNS}.resolved_join:resolved_join",
            views=f"{_RULES}.resolved_join:resolved_join_views",
            concerns=f"{_RUNS}.resolved_join:touched_by_resolving",
            evaluates=lambda spec: [
                *(output.sql for output in (*spec.outputs, *spec.key_outputs)),
                *_filled_foreign_key(spec),
            ],
        ),
    ),
    depends_on=_depends_on,
    rebuilt_by={
        "join": (Stage.SUBSCRIPTION_STORE,),
        "as_of": (Stage.SUBSCRIPTION_STORE, Stage.RIGHT_TABLE),
        "validity": (Stage.SUBSCRIPTION_STORE, Stage.RIGHT_TABLE),
        "result_key": (Stage.RESOLVED_JOIN,),
        "left.foreign_key": (Stage.SUBSCRIPTION_STORE,),
        "select": (Stage.SUBSCRIPTION_STORE, Stage.RIGHT_TABLE),
    },
    keys="fk_pipeline.kinds.foreign_key.tables:keys_of",
    shown_keys="fk_pipeline.kinds.foreign_key.tables:shown_keys",
    proof=Proof(
        expected="fk_pipeline.kinds.foreign_key.proof:expected",
        pending="fk_pipeline.kinds.foreign_key.proof:pending",
        counted="fk_pipeline.kinds.foreign_key.proof:counted",
        unproved="fk_pipeline.kinds.foreign_key.proof_as_of:closed",
        rows_of="left",
    ),
    suites="fk_pipeline.kinds.foreign_key.rules.suites:SUITES",
    explain="fk_pipeline.kinds.foreign_key.explain:explain",
    impact="fk_pipeline.kinds.foreign_key.impact:impact",
    explain_in_process="fk_pipeline.kinds.foreign_key.explain:explain_in_process",
    impact_in_process="fk_pipeline.kinds.foreign_key.impact:impact_in_process",
    key_of_row="fk_pipeline.kinds.foreign_key.tables:key_of_row",
    lineage="fk_pipeline.kinds.foreign_key.lineage:lineage",
    layout="fk_pipeline.kinds.foreign_key.layout:layout_of",
    declared_layout="fk_pipeline.kinds.foreign_key.layout:declared_layout",
    meaning="fk_pipeline.kinds.foreign_key.tables:meaning",
    removals=Removals(
        "verdicts",
        f"_fk_verdict IN ('{RETRACTED}', '{QUARANTINED}')",
        keys="fk_pipeline.kinds.foreign_key.tables:pk_columns",
    ),
    closing="fk_pipeline.kinds.foreign_key.closing:closing_of",
    views={"verdicts": "fk_pipeline.kinds.foreign_key.verdicts:verdicts"},
    views_in_process={"verdicts": "fk_pipeline.kinds.foreign_key.verdicts_in_process:verdicts"},
)
