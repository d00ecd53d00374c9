"""The join of two streams within a span of time as data: the five stages of KIP-213, and nine tables. No Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fk_pipeline.contract import Input, Kind, Proof, Role, StageDef, TableDef
from fk_pipeline.identity import APPLIED, EXPIRED, INSERTED, LATE, QUARANTINED, SILENT, Side


class WindowStage(StrEnum):
    """The five stages, in running order; each has the name of its main table."""

    LEFT_CHANGELOG = "left_changelog"
    RIGHT_TABLE = "right_table"
    SUBSCRIPTION_STORE = "subscription_store"
    RESPONSES = "responses"
    RESOLVED_JOIN = "resolved_join"


PAIRED, PARTED = "paired", "parted"
"""Counts of pairs that the result has got, or got with other rows, and of pairs that it has lost."""

LEFT_ALONE, MATCHED = "left alone", "taken back"
"""Counts of rows without a match that the result has got, and of those that it has lost."""

TIME, BUCKET = "_fk_time", "_fk_bucket"
"""Columns: when the row happened; the number of the span of time, as long as a window, in which it happened."""

EXPIRED_ROW = f"_fk_hash IS NULL AND {TIME} IS NOT NULL"
"""SQL (BOOLEAN) over a row of a state: it was older than the horizon when it landed (`retention`)."""

_STATE_SHARE, _RESULT_SHARE = 0.05, 0.02
"""`full_share` of the stages that look up rows in a state, and of the one that does so in the result."""

_HERE = "fk_pipeline.kinds.window"

_LEFT_CHANGELOG = """\
The left stream, batch by batch: every event, or the last one per key, with the whole row, its 128-bit hash and the
source's own sequence. Lines that cannot be read, and rows without a time that a window can have, go to
`quarantine`.
"""
_RIGHT_TABLE = """\
The current right rows with what they match by: the values of `on` and the time. An event that its batch no longer
brings is gone. **Last writer wins** by the source's sequence, ties by batch. If the stream is joined to itself, the
subscription store serves both sides, and this table stays empty.
"""
_SUBSCRIPTION_STORE = """\
The current left rows: each subscribes to the values of `on` and to a span of time around its own. **Owner rule**: a
batch changes a row only if it brings a newer version, or no longer brings the one it owned.
"""
_RESPONSES = """\
What is asked for a batch: every row that it changed on either side, and every pair of such a row with a row of the
other side. Only keys and hashes, no payload.
"""
_RESOLVED_JOIN = """\
The pairs, and in a left or outer join the rows without a match. A pair is looked up again in both states before it is
written; whether a row is alone **the result itself** tells, asked for the rows that changed, for their partners, and
for every row whose close lies between the clock that the result stands for and the new one. That clock is part of the
commit. A match that comes late takes the unmatched row back.
"""
"""Descriptions of the stages, in Markdown."""


def on_columns(spec: Any) -> list[str]:
    """Returns the columns of a state with the values of `on`."""
    return [f"_fk_on_{i}" for i in range(len(spec.left.on))]


def _input(side: Side, stage: str, **more: Any) -> Input:
    """Returns an input, from whose rows a state has the values of `on` and the time."""

    def derives(spec: Any) -> dict[str, str]:
        of_side = spec.side(side)
        return {**dict(zip(on_columns(spec), of_side.on, strict=True)), TIME: of_side.time}

    def declared_as(column: str) -> str:
        return f"{side}.{'time' if column == TIME else 'on'}"

    log = f"{side}_changelog"
    return Input(side, stage, log, derives, apart=True, times=(TIME,), derived_as=declared_as, **more)


def _depends_on(spec: Any) -> dict[str, str]:
    return {
        "join": spec.join,
        "within": f"{spec.within.before} before, {spec.within.after} after",
        "grace": spec.grace,
        "unmatched": spec.unmatched,
        "select": "; ".join(output.sql for output in spec.outputs),
        "left.on": "; ".join(spec.left.on),
        "right.on": "; ".join(spec.right.on),
        "left.time": spec.left.time,
        "right.time": spec.right.time,
        "self-join": "one store" if spec.single_store else "",
    }


_STATE_COUNTS = {
    "changes": ("rows",),
    "applied": (INSERTED, APPLIED),
    "silent": (SILENT,),
    "late": (LATE,),
    "expired": (EXPIRED,),
    "quarantined": (QUARANTINED,),
}

_STATES = (WindowStage.SUBSCRIPTION_STORE, WindowStage.RIGHT_TABLE)

WINDOW = Kind(
    name="window",
    spec=f"{_HERE}.spec:WindowSpec",
    inputs=(
        _input(Side.LEFT, WindowStage.LEFT_CHANGELOG),
        _input(Side.RIGHT, WindowStage.RIGHT_TABLE, shared=lambda spec: Side.LEFT if spec.single_store else None),
    ),
    tables=(
        TableDef("left_changelog", Role.LOG, WindowStage.LEFT_CHANGELOG, Side.LEFT),
        TableDef("right_changelog", Role.LOG, WindowStage.RIGHT_TABLE, Side.RIGHT),
        TableDef("right_table", Role.STATE, WindowStage.RIGHT_TABLE, Side.RIGHT),
        TableDef("right_times", Role.INDEX, WindowStage.RIGHT_TABLE, index=f"{_HERE}.stages:right_times"),
        TableDef("subscription_store", Role.STATE, WindowStage.SUBSCRIPTION_STORE, Side.LEFT),
        TableDef("left_times", Role.INDEX, WindowStage.SUBSCRIPTION_STORE, index=f"{_HERE}.stages:left_times"),
        TableDef("responses", Role.MESSAGES, WindowStage.RESPONSES),
        TableDef("resolved_join", Role.RESULT, WindowStage.RESOLVED_JOIN),
        TableDef("quarantine", Role.REJECTED),
    ),
    stages=(
        StageDef(
            WindowStage.LEFT_CHANGELOG,
            description=_LEFT_CHANGELOG,
            counts={"changes": ("rows",), "quarantined": (QUARANTINED,)},
        ),
        StageDef(
            WindowStage.RIGHT_TABLE,
            description=_RIGHT_TABLE,
            reads=("right_changelog", "right_table"),
            counts=_STATE_COUNTS,
            full_share=_STATE_SHARE,
            run=f"{_HERE}.stages:right_table",
            views=f"{_HERE}.rules:right_views",
        ),
        StageDef(
            WindowStage.SUBSCRIPTION_STORE,
            description=_SUBSCRIPTION_STORE,
            upstream=(WindowStage.LEFT_CHANGELOG,),
            reads=("left_changelog", "subscription_store"),
            counts={
                "subscriptions": (INSERTED, APPLIED),
                "silent": (SILENT,),
                "late": (LATE,),
                "expired": (EXPIRED,),
            },
            full_share=_STATE_SHARE,
            run=f"{_HERE}.stages:subscription_store",
            views=f"{_HERE}.rules:left_views",
        ),
        StageDef(
            WindowStage.RESPONSES,
            description=_RESPONSES,
            upstream=_STATES,
            reads=("subscription_store", "right_table"),
            counts={"rows": ("left", "right"), "pairs": ("pair",)},
            looks_up_in="subscription_store",
            index="left_times",
            full_share=_STATE_SHARE,
            run=f"{_HERE}.stages:responses",
            views=f"{_HERE}.rules:responses_views",
        ),
        StageDef(
            WindowStage.RESOLVED_JOIN,
            description=_RESOLVED_JOIN,
            upstream=(WindowStage.RESPONSES,),
            reads=("responses", "subscription_store", "right_table", "resolved_join"),
            counts={
                "paired": (PAIRED,),
                "parted": (PARTED,),
                "alone": (LEFT_ALONE,),
                "taken back": (MATCHED,),
                "quarantined": (QUARANTINED,),
            },
            full_share=_RESULT_SHARE,
            run=f"{_HERE}.stages:resolved_join",
            views=f"{_HERE}.rules:result_views",
            evaluates=lambda spec: [output.sql for output in spec.outputs],
        ),
    ),
    depends_on=_depends_on,
    rebuilt_by={
        "join": (WindowStage.RESOLVED_JOIN,),
        "grace": (WindowStage.RESOLVED_JOIN,),
        "unmatched": (WindowStage.RESOLVED_JOIN,),
        "within": _STATES,
        "select": _STATES,
        "left.on": (WindowStage.SUBSCRIPTION_STORE,),
        "left.time": (WindowStage.SUBSCRIPTION_STORE,),
        "right.on": (WindowStage.RIGHT_TABLE,),
        "right.time": (WindowStage.RIGHT_TABLE,),
    },
    keys=f"{_HERE}.tables:keys_of",
    shown_keys=f"{_HERE}.tables:shown_keys",
    proof=Proof(
        expected=f"{_HERE}.proof:expected",
        pending=f"{_HERE}.proof:pending",
        counted=f"{_HERE}.proof:counted",
        unproved=f"{_HERE}.proof:unproved",
    ),
    suites=f"{_HERE}.suites:WINDOW_SUITES",
    explain=f"{_HERE}.story:explain",
    impact=f"{_HERE}.story:impact",
    explain_here=f"{_HERE}.story:explain_here",
    impact_here=f"{_HERE}.story:impact_here",
    lineage=f"{_HERE}.tables:lineage",
    layout=f"{_HERE}.layout:layout_of",
    declared_layout=f"{_HERE}.layout:declared_layout",
    meaning=f"{_HERE}.tables:meaning",
    standing=f"{_HERE}.clock:standing",
    topology=f"{_HERE}.topology:topology",
    closing=f"{_HERE}.closing:OldEvents",
)
