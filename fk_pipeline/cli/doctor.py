"""The check of a pipeline's tables in `doctor PIPELINE.yaml`; it uses no Spark."""

from __future__ import annotations

from fk_pipeline.environment.doctor import Check
from fk_pipeline.errors import FkPipelineError
from fk_pipeline.spec import PipelineSpec


def check_tables(spec: PipelineSpec) -> Check:
    """Returns the check whether the tables belong to this pipeline and agree with its ledger."""
    from fk_pipeline.pipeline import Pipeline

    what, wanted = "Tables", "those that the ledger knows, of this pipeline"
    try:
        behind = Pipeline(spec).behind()
    except FkPipelineError as error:
        return Check(what, ok=False, found=error.what, wanted=wanted, fix=error.fix or str(error))
    if not behind:
        return Check(what, ok=True, found=spec.home, wanted=wanted)
    first = next((lag for lag in behind if lag.rebuild is not None), behind[0])
    found = "; ".join(lag.what for lag in behind)
    return Check(what, first.rebuild is None, found, wanted, first.fix(spec))
