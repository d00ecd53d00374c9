"""Errors of ours as Dagster's failures: what, where and why stand first on the page of the run, the fix beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import Failure, MetadataValue

from fk_pipeline.errors import FkPipelineError, escaped


@contextmanager
def failing() -> Iterator[None]:
    """Raises an error of ours as a failure of the step; its trace is that of its cause, below.

    Raises:
        Failure: there was one. Its description is the message; `fix` and the kind of error are metadata.
    """
    try:
        yield
    except FkPipelineError as error:
        told, fix = str(error).partition("\n  Fix: ")[::2]
        metadata = {"error": MetadataValue.text(type(error).__name__)}
        if fix:
            metadata = {"fix": MetadataValue.text(escaped(error.fix))} | metadata
        raise Failure(description=told, metadata=metadata) from error
