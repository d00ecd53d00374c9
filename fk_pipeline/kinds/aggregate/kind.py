"""The aggregate of one input as data: its four stages, and its tables. No Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fk_pipeline.contract import Input, Kind, Proof, Role, StageDef, TableDef
from fk_pipeline.identity import APPLIED, INSERTED, LATE, QUARANTINED, SILENT, Side


class AggregateStage(StrEnum):
    """The four stages, in running order; each has the name of its main table."""

    CHANGELOG = "changelog"
    GROUPING_STORE = "grouping_store"
    TOUCHED_GROUPS = "touched_groups"
    AGGREGATED = "aggregated"


NOTES, GROUP_ROWS = "group_notes", "group_rows"
"""The tables that the grouping store writes before its main one: the groups that a batch touches; the index."""

GROUP, AT, START, SLICE = "_fk_group", "_fk_at", "_fk_window_start", "_fk_slice"
"""Columns: a hash of the values of `group_by`, never null; when the row happened; the start of its window; the number
of the span of time, as long as a window, in which it happened."""

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The names by which `select` and `having` know the window of a group."""

ENTRY = "_fk_entry"
"""Column of the notes: the entry of the ledger at which the run that wrote the note was started."""

NOTES_VERSION = "notes version"
"""The part of what the tables depend on that grows when notes get other columns: 2 since they have `_fk_entry`."""

MEMBERS = "_fk_rows"
"""Column of the result: the number of rows of the group."""

ONE_GROUP, EVERY_GROUP = "group", "every"
"""Causes of a note and of a message: this group was touched; any group may have been."""

WRITTEN, REMOVED = "written", "removed"
"""Counts of groups that the result has got, or got with other rows, and of groups that it has lost."""

_SHARE = 0.05
"""`full_share` of the stages that look up rows."""

_HERE = "fk_pipeline.kinds.aggregate"

_CHANGELOG = """\
The input, batch by batch: every event, or the last one per key, with the whole row, its 128-bit hash and the source's
own sequence. Lines that cannot be read, on which an expression of `group_by` fails, or without a time that a window
can have, go to `quarantine`.
"""
_GROUPING_STORE = """\
The current rows, narrow: the values of `group_by`, the time, and what the aggregates read. **Owner rule**: a batch
changes a row only if it brings a newer version, or no longer brings the one it owned. **Which groups a batch touches is
noted before the store changes**, the old groups of a row and the new ones, and notes are only ever added: the store
alone forgets a group in which a row stood between two runs.
"""
_TOUCHED_GROUPS = """\
The groups, or windows of groups, that a batch touched, each once: from its notes. A note counts until the result
stands for the run that wrote it.
"""
_AGGREGATED = """\
The result: one row per group, or window of a group, that has rows. A touched group is **computed anew from its rows**:
there is no arithmetic with what it was before. It is written if its members changed.
"""
"""Descriptions of the stages, in Markdown."""


def by(name: str) -> str:
    """Returns the column of a table with a value of `group_by`, given its name."""
    return f"_fk_by_{name}"


def _derives(spec: Any) -> dict[str, str]:
    values = ", ".join(f"({sql})" for sql in spec.grouped_by.values())
    found = {GROUP: f"XXHASH64({values})" if values else "CAST(0 AS BIGINT)"}
    found |= {by(name): sql for name, sql in spec.grouped_by.items()}
    if spec.window is not None:
        found[AT] = spec.window.time
    return found


def _depends_on(spec: Any) -> dict[str, str]:
    window = spec.window
    return {
        "group_by": "; ".join(spec.group_by),
        "window": "" if window is None else f"{window.size} every {window.step} in {window.zone}",
        "window.time": "" if window is None else window.time,
        "aggregates": "; ".join(spec.aggregates),
        "having": spec.having or "",
        "select": "; ".join(output.sql for output in spec.outputs),
        NOTES_VERSION: "2",
    }


AGGREGATE = Kind(
    name="aggregate",
    spec=f"{_HERE}.spec:AggregateSpec",
    inputs=(
        Input(
            Side.INPUT,
            AggregateStage.CHANGELOG,
            "changelog",
            _derives,
            apart=True,
            times=(AT,),
            derived_as=lambda column: "window.time" if column == AT else "group_by",
            computed=lambda spec: dict.fromkeys(spec.computed_on_rows, "aggregates"),
        ),
    ),
    tables=(
        TableDef("changelog", Role.LOG, AggregateStage.CHANGELOG, Side.INPUT),
        TableDef(NOTES, Role.MESSAGES, AggregateStage.GROUPING_STORE),
        TableDef("grouping_store", Role.STATE, AggregateStage.GROUPING_STORE, Side.INPUT),
        TableDef(GROUP_ROWS, Role.INDEX, AggregateStage.GROUPING_STORE, index=f"{_HERE}.stages:group_rows"),
        TableDef("touched_groups", Role.MESSAGES, AggregateStage.TOUCHED_GROUPS),
        TableDef("aggregated", Role.RESULT, AggregateStage.AGGREGATED),
        TableDef("quarantine", Role.REJECTED),
    ),
    stages=(
        StageDef(
            AggregateStage.CHANGELOG,
            description=_CHANGELOG,
            counts={"changes": ("rows",), "quarantined": (QUARANTINED,)},
        ),
        StageDef(
            AggregateStage.GROUPING_STORE,
            description=_GROUPING_STORE,
            upstream=(AggregateStage.CHANGELOG,),
            reads=("changelog", "grouping_store"),
            counts={"applied": (INSERTED, APPLIED), "silent": (SILENT,), "late": (LATE,)},
            full_share=_SHARE,
            run=f"{_HERE}.stages:grouping_store",
            views=f"{_HERE}.rules:store_views",
        ),
        StageDef(
            AggregateStage.TOUCHED_GROUPS,
            description=_TOUCHED_GROUPS,
            upstream=(AggregateStage.GROUPING_STORE,),
            reads=(NOTES,),
            counts={"groups": (ONE_GROUP,), "all at once": (EVERY_GROUP,)},
            run=f"{_HERE}.stages:touched_groups",
            views=f"{_HERE}.rules:touched_views",
        ),
        StageDef(
            AggregateStage.AGGREGATED,
            description=_AGGREGATED,
            upstream=(AggregateStage.TOUCHED_GROUPS,),
            reads=("touched_groups", "grouping_store", "aggregated"),
            counts={"written": (WRITTEN,), "removed": (REMOVED,)},
            full_share=_SHARE,
            run=f"{_HERE}.stages:aggregated",
            views=f"{_HERE}.rules:result_views",
        ),
    ),
    depends_on=_depends_on,
    rebuilt_by={
        "group_by": (AggregateStage.GROUPING_STORE,),
        "window": (AggregateStage.GROUPING_STORE,),
        "window.time": (AggregateStage.GROUPING_STORE,),
        "aggregates": (AggregateStage.GROUPING_STORE,),
        NOTES_VERSION: (AggregateStage.GROUPING_STORE,),
        "having": (AggregateStage.AGGREGATED,),
        "select": (AggregateStage.AGGREGATED,),
    },
    keys=f"{_HERE}.tables:keys_of",
    shown_keys=f"{_HERE}.tables:shown_keys",
    proof=Proof(
        expected=f"{_HERE}.proof:expected",
        pending=f"{_HERE}.proof:pending",
        counted=f"{_HERE}.proof:counted",
        tolerance=1e-9,
        says="the groups of the table",
        anew="grouped anew",
    ),
    suites=f"{_HERE}.suites:AGGREGATE_SUITES",
    explain=f"{_HERE}.story:explain",
    impact=f"{_HERE}.story:impact",
    lineage=f"{_HERE}.tables:lineage",
    layout=f"{_HERE}.layout:layout_of",
    declared_layout=f"{_HERE}.layout:declared_layout",
    meaning=f"{_HERE}.tables:meaning",
)
