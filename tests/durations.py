"""The seconds that each file of tests took, so that the longest begin first and all processes end together.

`make test-durations` writes them anew. The order of tests is the only thing that depends on them.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

STORED = Path(__file__).with_suffix(".json")


def longest_first(items: list[pytest.Item], root: Path) -> None:
    """Sorts tests by the seconds of their file, the longest first; within a file they stay in order."""
    stored: dict[str, float] = json.loads(STORED.read_text())
    items.sort(key=lambda item: -stored.get(item.path.relative_to(root).as_posix(), 0.0))


class Recorder:
    """Adds up the seconds of each file in the process that starts the others, and stores them in the end."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds the seconds of one phase of a test."""
        self.seconds[report.location[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Stores the files that took a second or more."""
        rounded = {file: round(seconds, 1) for file, seconds in self.seconds.most_common() if seconds >= 1}
        STORED.write_text(json.dumps(rounded, indent=0) + "\n")
