"""The join of two streams within a span of time as data: its five stages, and its six tables. No Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fk_pipeline.contract import Input, Kind, Role, StageDef, TableDef
from fk_pipeline.identity import APPLIED, EXPIRED, INSERTED, LATE, QUARANTINED, SILENT, Side
from fk_pipeline.proof import Proof


class WindowStage(StrEnum):
    """The five stages, in running order; each has the name of its main table."""

    LEFT_CHANGELOG = "left_changelog"
    RIGHT_CHANGELOG = "right_changelog"
    LEFT_TABLE = "left_table"
    RIGHT_TABLE = "right_table"
    RESOLVED_JOIN = "resolved_join"


PAIRED, PARTED = "paired", "parted"
"""Counts of pairs that the result has got, or got with other rows, and of pairs that it has lost."""

LEFT_UNMATCHED, MATCHED = "left alone", "taken back"
"""Counts of rows without a match that the result has got, and of those that it has lost."""

TIME, BUCKET = "_fk_time", "_fk_bucket"
"""Columns: when the row happened; the number of the span of time, as long as a window, in which it happened."""

EXPIRED_ROW = f"_fk_hash IS NULL AND {TIME} IS NOT NULL"
"""SQL (BOOLEAN) over a row of a table: it was older than the horizon when it landed (`retention`)."""

_TABLE_SHARE, _RESULT_SHARE = 0.05, 0.02
"""`full_share` of the stages that look up rows in their table, and of the one that does so in the result."""

_PACKAGE, _REFRESH = "fk_pipeline.kinds.window", "fk_pipeline.blocks.refresh"

_CHANGELOG = """\
The {side} stream, batch by batch: every event, or the last one per key, with the whole row, its 128-bit hash and the
source's own sequence. Lines that cannot be read, and rows without a time that a window can have, go to
`quarantine`.
"""
_TABLE = """\
The current {side} rows, narrow: the values of `on`, the time, and the selected columns. An event that its batch no
longer brings is gone. **Owner rule**: a batch changes a row only if it brings a newer version, or no longer brings the
one it owned.
"""
_OF_BOTH = "If the stream is joined to itself, the left {} serves both sides, and this one stays empty.\n"
_RESOLVED_JOIN = """\
The pairs, and in a left or outer join the rows without a match. It is a **block over both tables**: a refresh brings it
from the versions that its last commit names to the newest ones, in one commit. It looks at the rows that changed, at
those that match their old or new versions, and at every row whose close lies between the clock of that commit and the
new one, in either direction. A match that comes late takes the unmatched row back.
"""
"""Descriptions of the stages, in Markdown."""

_STORED_AS = "stored as"
"""The part of what the tables depend on that grows when they are stored otherwise: 2 since the result is a block."""


def on_columns(spec: Any) -> list[str]:
    """Returns the columns of a table with the values of `on`."""
    return [f"_fk_on_{i}" for i in range(len(spec.left.on))]


def _input(side: Side, **more: Any) -> Input:
    """Returns an input, from whose rows its table has the values of `on` and the time."""

    def derives(spec: Any) -> dict[str, str]:
        of_side = spec.side(side)
        return {**dict(zip(on_columns(spec), of_side.on, strict=True)), TIME: of_side.time}

    def declared_as(column: str) -> str:
        return f"{side}.{'time' if column == TIME else 'on'}"

    log = f"{side}_changelog"
    times = (TIME,)
    return Input(side, log, log, derives, apart=True, times=times, numbered=BUCKET, derived_as=declared_as, **more)


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
        _STORED_AS: "2",
    }


_LOG_COUNTS = {"changes": ("rows",), "quarantined": (QUARANTINED,)}
_TABLE_COUNTS = {"applied": (INSERTED, APPLIED), "silent": (SILENT,), "late": (LATE,), "expired": (EXPIRED,)}
_TABLES = (WindowStage.LEFT_TABLE, WindowStage.RIGHT_TABLE)


def _changelog(side: Side, stage: str, more: str = "") -> StageDef:
    return StageDef(stage, description=_CHANGELOG.format(side=side) + more, counts=_LOG_COUNTS)


def _table(side: Side, stage: str, log: str, more: str = "") -> StageDef:
    return StageDef(
        stage,
        description=_TABLE.format(side=side) + more,
        upstream=(log,),
        reads=(log, stage),
        counts=_TABLE_COUNTS,
        full_share=_TABLE_SHARE,
        run=f"{_PACKAGE}.stages:{stage}",
        views=f"{_PACKAGE}.rules:{side}_views",
    )


WINDOW = Kind(
    name="window",
    spec=f"{_PACKAGE}.spec:WindowSpec",
    inputs=(
        _input(Side.LEFT),
        _input(Side.RIGHT, shared=lambda spec: Side.LEFT if spec.single_store else None),
    ),
    tables=(
        TableDef("left_changelog", Role.LOG, WindowStage.LEFT_CHANGELOG, Side.LEFT),
        TableDef("right_changelog", Role.LOG, WindowStage.RIGHT_CHANGELOG, Side.RIGHT),
        TableDef("left_table", Role.STATE, WindowStage.LEFT_TABLE, Side.LEFT),
        TableDef("right_table", Role.STATE, WindowStage.RIGHT_TABLE, Side.RIGHT),
        TableDef("resolved_join", Role.RESULT, WindowStage.RESOLVED_JOIN),
        TableDef("quarantine", Role.REJECTED),
    ),
    stages=(
        _changelog(Side.LEFT, WindowStage.LEFT_CHANGELOG),
        _changelog(Side.RIGHT, WindowStage.RIGHT_CHANGELOG, _OF_BOTH.format("changelog")),
        _table(Side.LEFT, WindowStage.LEFT_TABLE, WindowStage.LEFT_CHANGELOG),
        _table(Side.RIGHT, WindowStage.RIGHT_TABLE, WindowStage.RIGHT_CHANGELOG, _OF_BOTH.format("table")),
        StageDef(
            WindowStage.RESOLVED_JOIN,
            description=_RESOLVED_JOIN,
            upstream=_TABLES,
            reads=("left_table", "right_table", "resolved_join"),
            counts={
                "paired": (PAIRED,),
                "parted": (PARTED,),
                "alone": (LEFT_UNMATCHED,),
                "taken back": (MATCHED,),
                "quarantined": (QUARANTINED,),
            },
            full_share=_RESULT_SHARE,
            run=f"{_PACKAGE}.stages:resolved_join",
            views=f"{_PACKAGE}.rules:result_views",
            evaluates=lambda spec: [output.sql for output in spec.outputs],
        ),
    ),
    depends_on=_depends_on,
    rebuilt_by={
        "join": (WindowStage.RESOLVED_JOIN,),
        "grace": (WindowStage.RESOLVED_JOIN,),
        "unmatched": (WindowStage.RESOLVED_JOIN,),
        "within": _TABLES,
        "select": _TABLES,
        "left.on": (WindowStage.LEFT_TABLE,),
        "left.time": (WindowStage.LEFT_TABLE,),
        "right.on": (WindowStage.RIGHT_TABLE,),
        "right.time": (WindowStage.RIGHT_TABLE,),
    },
    keys=f"{_PACKAGE}.tables:keys_of",
    shown_keys=f"{_PACKAGE}.tables:shown_keys",
    proof=Proof(
        expected=f"{_PACKAGE}.proof:expected",
        pending=f"{_PACKAGE}.proof:pending",
        counted=f"{_PACKAGE}.proof:counted",
        unproved=f"{_PACKAGE}.proof:unproved",
    ),
    suites=f"{_PACKAGE}.suites:WINDOW_SUITES",
    explain=f"{_PACKAGE}.story:explain",
    impact=f"{_PACKAGE}.story:impact",
    explain_in_process=f"{_PACKAGE}.story:explain_in_process",
    impact_in_process=f"{_PACKAGE}.story:impact_in_process",
    key_of_row=f"{_PACKAGE}.tables:key_of_row",
    lineage="fk_pipeline.blocks.current:lineage",
    layout=f"{_PACKAGE}.layout:layout_of",
    declared_layout=f"{_PACKAGE}.layout:declared_layout",
    meaning=f"{_PACKAGE}.tables:meaning",
    stands_for=f"{_PACKAGE}.clock:stands_for",
    topology=f"{_PACKAGE}.topology:topology",
    closing=f"{_PACKAGE}.closing:closing_of",
    carried=f"{_REFRESH}.facts:carried",
    blocks=f"{_REFRESH}.block_tree:blocks",
    forecasts=f"{_REFRESH}.forecasts:forecasts",
    forecast_of=f"{_REFRESH}.costs:forecast_of",
)
