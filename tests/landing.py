"""Landing files of a test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_lines(file: Path, lines: Iterable[str | Mapping[str, Any]]) -> Path:
    """Writes or rewrites a landing file; returns its path.

    Args:
        file: the file; its folder is made.
        lines: a text as it is, or the fields of a JSON object.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines))
    return file
