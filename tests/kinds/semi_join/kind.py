"""The semi join: the left rows that have a match. A kind of join in one folder, as an example and for the tests."""

from __future__ import annotations

from typing import Any

from fk_pipeline.contract import Input, Kind, Role, StageDef, TableDef
from fk_pipeline.identity import APPLIED, INSERTED, LATE, QUARANTINED, SILENT, Side
from fk_pipeline.proof import Proof

LEFT_ROWS, RIGHT_KEYS, MATCHED_ROWS = "left_rows", "right_keys", "matched_rows"
"""The stages, called like their main tables."""

_HERE = "tests.kinds.semi_join"


def reference(name: str) -> str:
    """Returns the name of a column that refers to a component of the right key."""
    return f"_fk_refers_to_{name}"


def _derived(spec: Any) -> dict[str, str]:
    return {reference(key.name): sql for key, sql in zip(spec.right.key_columns, spec.left.foreign_key, strict=True)}


def _depends_on(spec: Any) -> dict[str, str]:
    return {
        "select": "; ".join(output.sql for output in spec.outputs),
        "left.foreign_key": "; ".join(spec.left.foreign_key),
    }


_STATE_COUNTS = {
    "changes": ("rows",),
    "applied": (INSERTED, APPLIED),
    "silent": (SILENT,),
    "late": (LATE,),
    "quarantined": (QUARANTINED,),
}

SEMI_JOIN = Kind(
    name="semi_join",
    spec="fk_pipeline.kinds.foreign_key.spec:ForeignKeySpec",
    inputs=(
        Input(Side.LEFT, LEFT_ROWS, log="left_changelog", derives=_derived, derived_as=lambda _: "left.foreign_key"),
        Input(Side.RIGHT, RIGHT_KEYS, log="right_changelog"),
    ),
    tables=(
        TableDef("left_changelog", Role.LOG, LEFT_ROWS, Side.LEFT),
        TableDef(LEFT_ROWS, Role.STATE, LEFT_ROWS, Side.LEFT),
        TableDef("right_changelog", Role.LOG, RIGHT_KEYS, Side.RIGHT),
        TableDef(RIGHT_KEYS, Role.STATE, RIGHT_KEYS, Side.RIGHT),
        TableDef(MATCHED_ROWS, Role.RESULT, MATCHED_ROWS),
        TableDef("quarantine", Role.REJECTED),
    ),
    stages=(
        StageDef(
            LEFT_ROWS,
            description="The current row of every left key, and the right key that it refers to.",
            reads=("left_changelog", LEFT_ROWS),
            counts=_STATE_COUNTS,
            full_share=0.05,
            run=f"{_HERE}.stages:left_rows",
            views=f"{_HERE}.rules:left_views",
        ),
        StageDef(
            RIGHT_KEYS,
            description="Every right key, and whether its row lives.",
            reads=("right_changelog", RIGHT_KEYS),
            counts=_STATE_COUNTS,
            full_share=0.05,
            run=f"{_HERE}.stages:right_keys",
            views=f"{_HERE}.rules:right_views",
        ),
        StageDef(
            MATCHED_ROWS,
            description="The left rows whose right row lives. A batch asks for the left rows that it changed, and for "
            "those that refer to right rows which it changed; the two states tell the answer.",
            upstream=(LEFT_ROWS, RIGHT_KEYS),
            reads=(LEFT_ROWS, RIGHT_KEYS, MATCHED_ROWS),
            counts={"written": ("written",), "removed": ("removed",)},
            full_share=0.05,
            run=f"{_HERE}.stages:matched_rows",
            views=f"{_HERE}.rules:result_views",
            evaluates=lambda spec: [output.sql for output in spec.outputs],
        ),
    ),
    depends_on=_depends_on,
    rebuilt_by={"select": (LEFT_ROWS, RIGHT_KEYS), "left.foreign_key": (LEFT_ROWS,)},
    keys=f"{_HERE}.tables:keys_of",
    shown_keys=f"{_HERE}.tables:shown_keys",
    proof=Proof(expected=f"{_HERE}.proof:expected", pending=f"{_HERE}.proof:pending", counted=f"{_HERE}.proof:counted"),
    suites=f"{_HERE}.rules:SUITES",
    explain=f"{_HERE}.story:explain",
    impact=f"{_HERE}.story:impact",
    lineage=f"{_HERE}.tables:lineage",
    layout=f"{_HERE}.tables:layout_of",
    declared_layout=f"{_HERE}.tables:declared_layout",
    meaning=f"{_HERE}.tables:meaning",
)
