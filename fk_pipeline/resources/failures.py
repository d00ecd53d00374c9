"""Errors of ours as Dagster's failures: what, where, why and the fix stand first on the page of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import Failure, MetadataValue

from fk_pipeline.errors import FkPipelineError, escaped


@contextmanager
def failing() -> Iterator[None]:
    """Raises an error of ours as a failure of the step; its trace is that of its cause, below.

    Raises:
        Failure: there was one. Its description is the whole message: at the end of a run Dagster shows the description
            before the trace, and no metadata. `fix` and the kind of error are metadata, too.
    """
    try:
        yield
    except FkPipelineError as error:
        metadata = {"error": MetadataValue.text(type(error).__name__)}
        if error.fix:
            metadata = {"fix": MetadataValue.text(escaped(error.fix))} | metadata
        raise Failure(description=str(error), metadata=metadata) from error
