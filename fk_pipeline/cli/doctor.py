"""The checks of a pipeline's tables and ledger in `doctor PIPELINE.yaml`; they use no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fk_pipeline.environment.doctor import Check
from fk_pipeline.errors import FkPipelineError
from fk_pipeline.spec import PipelineSpec

if TYPE_CHECKING:
    from fk_pipeline.engine.behind import Lag
    from fk_pipeline.store.ledger import Ledger

_TABLES, _EXPECTED = "Tables", "those that the ledger knows, of this pipeline"


def check_pipeline(spec: PipelineSpec) -> list[Check]:
    """Returns the checks whether the tables are right, and whether every change of a key was seen."""
    from fk_pipeline.pipeline import Pipeline

    pipeline = Pipeline(spec)
    try:
        behind, ledger = pipeline.behind(), pipeline.ledger()
    except FkPipelineError as error:
        return [Check(_TABLES, ok=False, actual=error.what, expected=_EXPECTED, fix=error.fix or str(error))]
    return [_tables(spec, behind), *_keys(spec, ledger), *_name(spec)]


def _name(spec: PipelineSpec) -> list[Check]:
    """Returns what is said of the name in Spark's catalog, if the pipeline file has one; the catalog is not asked."""
    if spec.register_ is None:
        return []
    return [
        Check("Catalog", ok=True, actual=f"{spec.register_}, from the run on", expected="a catalog that Spark keeps")
    ]


def _tables(spec: PipelineSpec, behind: Sequence[Lag]) -> Check:
    """Returns the check whether the tables belong to this pipeline and agree with its ledger."""
    if not behind:
        return Check(_TABLES, ok=True, actual=spec.home, expected=_EXPECTED)
    first = next((lag for lag in behind if lag.rebuild is not None), behind[0])
    lagging = "; ".join(lag.what for lag in behind)
    return Check(_TABLES, first.rebuild is None, lagging, _EXPECTED, first.fix(spec))


def _keys(spec: PipelineSpec, ledger: Ledger) -> list[Check]:
    """Returns a warning per kind of records that may have changed a key without telling which row must go."""
    from fk_pipeline.engine.unseen_keys import all_unseen_keys

    expected = "old images, or the key of the source"
    return [
        Check("Keys", ok=True, actual=unseen.what, expected=expected, fix=unseen.fix)
        for unseen in all_unseen_keys(spec, ledger)
    ]
