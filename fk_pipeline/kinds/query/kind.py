"""A query kept up to date as data: a stage and a table per block, which follow from the pipeline file. No Spark."""

from __future__ import annotations

from fk_pipeline.contract import Kind, Role, StageDef, TableDef
from fk_pipeline.proof import Proof

RESULT = "result"
"""The name of the last block, its stage and its table."""

PACKAGE, REFRESH = "fk_pipeline.kinds.query", "fk_pipeline.blocks.refresh"

QUERY = Kind(
    name="query",
    spec=f"{PACKAGE}.spec:QuerySpec",
    inputs=(),
    tables=(TableDef(RESULT, Role.RESULT, RESULT),),
    stages=(
        StageDef(
            RESULT,
            "The rows of the query.\n",
            reads=(RESULT,),
            run=f"{REFRESH}.stages:block",
            views=f"{PACKAGE}.rules:block_views",
        ),
    ),
    depends_on=lambda spec: {"query": " ".join(spec.sql.split())},
    rebuilt_by={"query": (RESULT,)},
    keys=f"{PACKAGE}.tables:keys_of",
    shown_keys=f"{PACKAGE}.tables:shown_keys",
    proof=Proof(
        expected=f"{PACKAGE}.proof:expected",
        pending=f"{PACKAGE}.proof:pending",
        counted=f"{PACKAGE}.proof:counted",
        outside=f"{PACKAGE}.proof:outside",
        paired=f"{PACKAGE}.proof:paired",
        tolerance=1e-9,
        inexact=f"{PACKAGE}.proof:inexact",
        says="the query",
        recomputed="run anew",
    ),
    suites=f"{PACKAGE}.rules:QUERY_SUITES",
    explain=f"{PACKAGE}.story:explain",
    impact=f"{PACKAGE}.impact:impact",
    lineage=f"{PACKAGE}.tables:lineage",
    layout=f"{PACKAGE}.tables:layout_of",
    declared_layout=f"{PACKAGE}.tables:declared_layout",
    meaning=f"{PACKAGE}.tables:meaning",
    stands_for=f"{PACKAGE}.tables:stands_for",
    carried=f"{REFRESH}.facts:carried",
    blocks=f"{PACKAGE}.advice:blocks",
    forecasts=f"{REFRESH}.forecasts:forecasts",
    forecast_of=f"{REFRESH}.costs:forecast_of",
    named_inputs=True,
)
