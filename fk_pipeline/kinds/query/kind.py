"""A query kept up to date as data: a stage and a table per block, which follow from the pipeline file. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fk_pipeline.contract import Kind, Proof, Role, StageDef, TableDef

RESULT = "result"
"""The name of the last block, its stage and its table."""

ADDED, WRITTEN, REMOVED = "added", "written", "removed"
"""Counts of rows of a block: with keys that it did not have, with other values, and those that are gone."""

VERSIONS, STANDS_FOR = "versions", "stands for"
"""Facts in a commit of a block: per relation that it read the id and version of the table; per input the versions that
its rows stand for, one unless blocks before it had read another."""

HERE = "fk_pipeline.kinds.query"

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
            run=f"{HERE}.stages:block",
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
    carried=f"{HERE}.kind:carried",
    topology=f"{HERE}.told:topology",
    forecasts=f"{HERE}.forecasts:forecasts",
    forecast_of=f"{HERE}.forecasts:forecast_of",
    named_inputs=True,
)


def standing_for(facts: Any) -> dict[str, list[tuple[str, int]]]:
    """Returns, per input, the versions (id of the table, version) that the rows of a commit stand for."""
    return {name: [(of, version) for of, version in some] for name, some in (facts.get(STANDS_FOR) or {}).items()}


def carried(facts: Mapping[str, Any], moved: Mapping[tuple[str, int], tuple[str, int]]) -> dict[str, Any]:
    """Returns the facts in a commit of a block, where earlier blocks are versions of other tables than it had read."""
    versions = {name: [*moved.get((of, at), (of, at))] for name, (of, at) in (facts.get(VERSIONS) or {}).items()}
    return {**facts, VERSIONS: versions} if facts else {}
