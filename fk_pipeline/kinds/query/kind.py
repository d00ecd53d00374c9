"""A query kept up to date as data: a stage and a table per block, which follow from the pipeline file. No Spark."""

from __future__ import annotations

from fk_pipeline.contract import Kind, Role, StageDef, TableDef
from fk_pipeline.proof import Proof

RESULT = "result"
"""The name of the last block, its stage and its table."""

HERE, REFRESH = "fk_pipeline.kinds.query", "fk_pipeline.blocks.refresh"

QUERY = Kind(
    name="query",
    spec=f"{HERE}.spec:QuerySpec",
    inputs=(),
    tables=(TableDef(RESULT, Role.RESULT, RESULT),),
    stages=(
        StageDef(
            RESULT,
            "The rows of the query.\n",
            reads=(RESULT,),
            run=f"{REFRESH}.stages:block",
            views=f"{HERE}.rules:block_views",
        ),
    ),
    depends_on=lambda spec: {"query": " ".join(spec.sql.split())},
    rebuilt_by={"query": (RESULT,)},
    keys=f"{HERE}.tables:keys_of",
    shown_keys=f"{HERE}.tables:shown_keys",
    proof=Proof(
        expected=f"{HERE}.proof:expected",
        pending=f"{HERE}.proof:pending",
        counted=f"{HERE}.proof:counted",
        outside=f"{HERE}.proof:outside",
        paired=f"{HERE}.proof:paired",
        tolerance=1e-9,
        inexact=f"{HERE}.proof:inexact",
        says="the query",
        anew="run anew",
    ),
    suites=f"{HERE}.rules:QUERY_SUITES",
    explain=f"{HERE}.story:explain",
    impact=f"{HERE}.impact:impact",
    lineage=f"{HERE}.tables:lineage",
    layout=f"{HERE}.tables:layout_of",
    declared_layout=f"{HERE}.tables:declared_layout",
    meaning=f"{HERE}.tables:meaning",
    standing=f"{HERE}.tables:standing",
    carried=f"{REFRESH}.facts:carried",
    blocks=f"{HERE}.advice:blocks",
    forecasts=f"{REFRESH}.forecasts:forecasts",
    forecast_of=f"{REFRESH}.costs:forecast_of",
    named_inputs=True,
)
