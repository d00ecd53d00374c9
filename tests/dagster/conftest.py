"""Fixtures of the tests with Dagster: an instance in memory, and an empty landing zone of `world.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dagster import DagsterInstance


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    """Yields an instance of its own."""
    with DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def empty_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes all files from the landing zone in memory, until the end of the test."""
    from tests.dagster.world import ZONE

    monkeypatch.setattr(ZONE, "files", {"left": {}, "right": {}})
    monkeypatch.setattr(ZONE, "broken", False)
