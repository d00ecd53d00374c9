"""fk-pipeline: joins and aggregates of changing tables and streams, kept up to date on Spark and Delta.

`load("pipeline.yaml")` returns a `Pipeline`, `query("SELECT ...", ...)` a query without a file of one's own. Importing
this package starts no Spark and imports no Dagster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "AggregateComponent",
    "FkJoinComponent",
    "Pipeline",
    "QueryComponent",
    "StageFunctions",
    "TableComponent",
    "WindowJoinComponent",
    "__version__",
    "changes",
    "definitions",
    "load",
    "query",
]

if TYPE_CHECKING:
    from fk_pipeline.component import (
        AggregateComponent,
        FkJoinComponent,
        QueryComponent,
        TableComponent,
        WindowJoinComponent,
    )
    from fk_pipeline.definitions import definitions
    from fk_pipeline.kinds.foreign_key.functions import StageFunctions
    from fk_pipeline.maintained import query
    from fk_pipeline.pipeline import Pipeline, changes, load
else:  # an editor and a type checker see the imports above; a name is imported when it is used first
    _LAZY = {
        "load": "fk_pipeline.pipeline",
        "Pipeline": "fk_pipeline.pipeline",
        "changes": "fk_pipeline.pipeline",
        "query": "fk_pipeline.maintained",
        "definitions": "fk_pipeline.definitions",
        "FkJoinComponent": "fk_pipeline.component",
        "WindowJoinComponent": "fk_pipeline.component",
        "AggregateComponent": "fk_pipeline.component",
        "QueryComponent": "fk_pipeline.component",
        "TableComponent": "fk_pipeline.component",
        "StageFunctions": "fk_pipeline.kinds.foreign_key.functions",
    }

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
