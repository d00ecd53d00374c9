"""Small files beside tables and in homes: they appear as a whole, and one that is not whole counts as missing.

A death or a full disk may leave a file empty or cut, also one that another program has written.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Parsed = TypeVar("Parsed")


def write_whole(file: Path, content: bytes) -> None:
    """Writes a file under another name, and renames it once the disk has its content; replaces an earlier one."""
    part = file.with_name(f".{file.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def read_whole(file: Path, of: Callable[[Any], Parsed]) -> Parsed | None:
    """Returns what a JSON file says; None if there is no file, or if it is not whole.

    Args:
        file: the file.
        of: makes the result from the value in the file; a ValueError, KeyError, TypeError or AttributeError means that
            it is not whole.
    """
    try:
        return whole(file.read_bytes(), of)
    except FileNotFoundError:
        return None


def whole(content: bytes, of: Callable[[Any], Parsed]) -> Parsed | None:
    """Returns what the content of a JSON file or object says, as `read_whole` does."""
    try:
        return of(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
