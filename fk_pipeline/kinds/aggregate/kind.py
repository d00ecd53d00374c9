"""The aggregate of one input as data: its three stages, and its tables. No Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fk_pipeline.contract import Input, Kind, Role, StageDef, TableDef
from fk_pipeline.identity import ADDED, APPLIED, INSERTED, LATE, QUARANTINED, REMOVED, SILENT, WRITTEN, Side
from fk_pipeline.proof import Proof


class AggregateStage(StrEnum):
    """The three stages, in running order; each has the name of its main table."""

    CHANGELOG = "changelog"
    TABLE = "table"
    AGGREGATED = "aggregated"


AT, START, PANE, NUMBER = "_fk_at", "_fk_window_start", "_fk_pane", "_fk_window"
"""Columns: when the row happened; the key of a window, its start; the number of the last window that has begun when the
row happened (`windows.Windows`); the number of a window in which a row counts."""

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The names by which `select` and `having` know the window of a group."""

_PACKAGE, _REFRESH = "fk_pipeline.kinds.aggregate", "fk_pipeline.blocks.refresh"

_CHANGELOG = """\
The input, batch by batch: every event, or the last one per key, with the whole row, its 128-bit hash and the source's
own sequence. Lines that cannot be read, on which an expression of `group_by` fails, or without a time that a window
can have, go to `quarantine`.
"""
_TABLE = """\
The current rows, narrow: the values of `group_by`, the time, and what the aggregates read. **Owner rule**: a batch
changes a row only if it brings a newer version, or no longer brings the one it owned.
"""
_AGGREGATED = """\
The result: one row per group, or window of a group, that has rows. It is a **block over the table**: a refresh brings
it from the version of the table that its last commit names to the newest one, in one commit. Counts and sums of whole
numbers and decimals are added up; of other aggregates the groups in which changed rows stood and stand are computed
again from all their rows. A row is written if it differs.
"""
"""Descriptions of the stages, in Markdown."""


_STORED_AS = "notes version"
"""The part of what the tables depend on that grows when they are stored in another way: 3 since there are no notes."""


def by(name: str) -> str:
    """Returns the column of a table with a value of `group_by`, given its name."""
    return f"_fk_by_{name}"


def _derives(spec: Any) -> dict[str, str]:
    derived = {by(name): sql for name, sql in spec.grouped_by.items()}
    if spec.window is not None:
        derived[AT] = spec.window.time
    return derived


def _depends_on(spec: Any) -> dict[str, str]:
    window = spec.window
    return {
        "group_by": "; ".join(spec.group_by),
        "window": "" if window is None else f"{window.size} every {window.step} in {window.zone}",
        "window.time": "" if window is None else window.time,
        "aggregates": "; ".join(spec.aggregates),
        "having": spec.having or "",
        "select": "; ".join(output.sql for output in spec.outputs),
        _STORED_AS: "3",
    }


AGGREGATE = Kind(
    name="aggregate",
    spec=f"{_PACKAGE}.spec:AggregateSpec",
    inputs=(
        Input(
            Side.INPUT,
            AggregateStage.CHANGELOG,
            "changelog",
            _derives,
            apart=True,
            times=(AT,),
            numbered=PANE,
            derived_as=lambda column: "window.time" if column == AT else "group_by",
            computed=lambda spec: dict.fromkeys(spec.computed_on_rows, "aggregates"),
        ),
    ),
    tables=(
        TableDef("changelog", Role.LOG, AggregateStage.CHANGELOG, Side.INPUT),
        TableDef("table", Role.STATE, AggregateStage.TABLE, Side.INPUT),
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
            AggregateStage.TABLE,
            description=_TABLE,
            upstream=(AggregateStage.CHANGELOG,),
            reads=("changelog", "table"),
            counts={"applied": (INSERTED, APPLIED), "silent": (SILENT,), "late": (LATE,)},
            full_share=0.05,
            run=f"{_PACKAGE}.stages:table",
            views=f"{_PACKAGE}.rules:table_views",
        ),
        StageDef(
            AggregateStage.AGGREGATED,
            description=_AGGREGATED,
            upstream=(AggregateStage.TABLE,),
            reads=("table", "aggregated"),
            counts={"changed": (ADDED, WRITTEN, REMOVED)},
            full_share=0.3,
            run=f"{_REFRESH}.stages:block",
            views=f"{_PACKAGE}.rules:result_views",
        ),
    ),
    depends_on=_depends_on,
    rebuilt_by={
        "group_by": (AggregateStage.TABLE,),
        "window": (AggregateStage.TABLE,),
        "window.time": (AggregateStage.TABLE,),
        "aggregates": (AggregateStage.TABLE,),
        _STORED_AS: (AggregateStage.TABLE,),
        "having": (AggregateStage.AGGREGATED,),
        "select": (AggregateStage.AGGREGATED,),
    },
    keys=f"{_PACKAGE}.tables:keys_of",
    shown_keys=f"{_PACKAGE}.tables:shown_keys",
    proof=Proof(
        expected=f"{_PACKAGE}.proof:expected",
        pending=f"{_PACKAGE}.proof:pending",
        counted=f"{_PACKAGE}.proof:counted",
        outside=f"{_PACKAGE}.proof:outside",
        tolerance=1e-9,
        inexact=f"{_PACKAGE}.proof:inexact",
        says="the groups of the table",
        recomputed="grouped anew",
    ),
    suites=f"{_PACKAGE}.suites:AGGREGATE_SUITES",
    explain=f"{_PACKAGE}.story:explain",
    impact="fk_pipeline.blocks.story:no_impact",
    lineage="fk_pipeline.blocks.current:lineage",
    layout=f"{_PACKAGE}.layout:layout_of",
    declared_layout=f"{_PACKAGE}.layout:declared_layout",
    meaning=f"{_PACKAGE}.tables:meaning",
    carried=f"{_REFRESH}.facts:carried",
    blocks=f"{_REFRESH}.block_tree:blocks",
    forecasts=f"{_REFRESH}.forecasts:forecasts",
    forecast_of=f"{_REFRESH}.costs:forecast_of",
    impact_in_process="fk_pipeline.blocks.story:no_impact",
)
