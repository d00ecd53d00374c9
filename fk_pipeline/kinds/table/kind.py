"""A table kept up to date from its changes as data: its two stages, and its tables. No Spark."""

from __future__ import annotations

from enum import StrEnum

from fk_pipeline.contract import Input, Kind, Removals, Role, StageDef, TableDef
from fk_pipeline.identity import APPLIED, INSERTED, LATE, QUARANTINED, SILENT, Side
from fk_pipeline.proof import Proof


class TableStage(StrEnum):
    """The two stages, in running order; each has the name of its main table."""

    CHANGELOG = "changelog"
    TABLE = "table"


VERSIONS = "versions"
"""The state: which version of every key counts."""

NEW_ROW, CHANGED_ROW, REMOVED_ROW = "added", "written", "removed"
"""Counts of rows of the result: of keys never seen before, others that are written, and those that are gone."""

_PACKAGE = "fk_pipeline.kinds.table"

_CHANGELOG = """\
The input, batch by batch: the last event per key, with the whole row, its 128-bit hash and the source's own sequence.
Lines that cannot be read, or on which an expression fails, go to `quarantine`.
"""
_TABLE = """\
The result: the current row of every key. **Owner rule**: a batch changes a key only if it brings a newer version, or no
longer brings the one it owned. Which version counts is in `versions`, with tombstones; it is written first, and a run
after a death finds there what the table still lacks.
"""
"""Descriptions of the stages, in Markdown."""

TABLE = Kind(
    name="table",
    spec=f"{_PACKAGE}.spec:TableSpec",
    inputs=(Input(Side.INPUT, TableStage.CHANGELOG, "changelog"),),
    tables=(
        TableDef("changelog", Role.LOG, TableStage.CHANGELOG, Side.INPUT),
        TableDef(VERSIONS, Role.STATE, TableStage.TABLE, Side.INPUT),
        TableDef("table", Role.RESULT, TableStage.TABLE, Side.INPUT),
        TableDef("quarantine", Role.REJECTED),
    ),
    stages=(
        StageDef(
            TableStage.CHANGELOG,
            description=_CHANGELOG,
            counts={"changes": ("rows",), "quarantined": (QUARANTINED,)},
        ),
        StageDef(
            TableStage.TABLE,
            description=_TABLE,
            upstream=(TableStage.CHANGELOG,),
            reads=("changelog", VERSIONS, "table"),
            counts={"applied": (INSERTED, APPLIED), "silent": (SILENT,), "late": (LATE,)},
            looks_up_in=VERSIONS,
            full_share=0.05,
            run=f"{_PACKAGE}.stages:table",
            views=f"{_PACKAGE}.rules:table_views",
        ),
    ),
    depends_on=lambda _: {},
    rebuilt_by={},
    keys=f"{_PACKAGE}.tables:keys_of",
    shown_keys=f"{_PACKAGE}.tables:shown_keys",
    proof=Proof(
        expected=f"{_PACKAGE}.proof:expected",
        pending=f"{_PACKAGE}.proof:pending",
        counted=f"{_PACKAGE}.proof:counted",
        says="the last writer of every key",
        recomputed="found anew",
    ),
    suites=f"{_PACKAGE}.rules:TABLE_SUITES",
    explain=f"{_PACKAGE}.story:explain",
    impact="fk_pipeline.blocks.story:no_impact",
    lineage=f"{_PACKAGE}.tables:lineage",
    layout=f"{_PACKAGE}.tables:layout_of",
    declared_layout=f"{_PACKAGE}.tables:declared_layout",
    meaning=f"{_PACKAGE}.tables:meaning",
    removals=Removals(VERSIONS, "_fk_hash IS NULL", f"{_PACKAGE}.tables:key_columns", "_fk_applied_in"),
    explain_in_process=f"{_PACKAGE}.story:explain_in_process",
    key_of_row=f"{_PACKAGE}.tables:key_of_row",
    impact_in_process="fk_pipeline.blocks.story:no_impact",
)
