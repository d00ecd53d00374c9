"""The exception with which a run dies in a test, as by `kill -9`, at a point that `fk_pipeline.store.faults` names."""

from __future__ import annotations


class Killed(BaseException):
    """The death of a run: no handler of the pipeline catches it, and nothing runs after it."""
