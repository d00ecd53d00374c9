"""How a run dies in a test: like a `kill -9`, at a point that `fk_pipeline.store.faults` names."""

from __future__ import annotations


class Killed(BaseException):
    """The run dies here: no handler of the pipeline catches it, and nothing after it happens."""
