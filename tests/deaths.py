"""The exception with which a run dies in a test, as by `kill -9`, at a point that `fk_pipeline.store.faults` names."""

from __future__ import annotations

from fk_pipeline.store.faults import CommitListener


class Killed(BaseException):
    """The death of a run: no handler of the pipeline catches it, and nothing runs after it."""


def dies_at(wanted: str) -> CommitListener:
    """Returns a listener that ends the run at a point."""

    def listen(point: str) -> None:
        if point == wanted:
            raise Killed

    return listen
