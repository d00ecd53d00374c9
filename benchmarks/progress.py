"""What the benchmarks say while they go on."""

from __future__ import annotations

import sys
from datetime import UTC, datetime


def say(text: str) -> None:
    """Progress goes to standard error."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)
