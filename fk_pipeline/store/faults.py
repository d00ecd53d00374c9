"""Named points around every commit, at which tests can end a run. In production there is no listener: nothing happens.

A point is named `before <what>` or `after <what>`; `<what>` is `commit of <table>` or `entry in <ledger table>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

CommitListener = Callable[[str], None]
"""Called with the name of the point; an exception that it raises ends the run."""

_listeners: list[CommitListener] = []


def point(name: str) -> None:
    """Calls the listeners with the name of a point that the run has reached."""
    for listener in _listeners:
        listener(name)


@contextmanager
def around(what: str) -> Iterator[None]:
    """Reaches the points before and after a commit."""
    point(f"before {what}")
    yield
    point(f"after {what}")


@contextmanager
def listening(listener: CommitListener) -> Iterator[None]:
    """Calls the listener at every point while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
