"""Named points around every commit, where tests let a run die. In production nothing listens, and nothing happens.

A point is named `before <what>` or `after <what>`; what is `commit of <table>`, or `entry in <ledger table>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

CommitListener = Callable[[str], None]
"""Is told the name of the point; whatever it raises, the run dies of."""

_listeners: list[CommitListener] = []


def point(name: str) -> None:
    """Work has come to a point at which it may die."""
    for listener in _listeners:
        listener(name)


@contextmanager
def around(what: str) -> Iterator[None]:
    """The points before and after a commit."""
    point(f"before {what}")
    yield
    point(f"after {what}")


@contextmanager
def listening(listener: CommitListener) -> Iterator[None]:
    """Tells the listener of every point while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
