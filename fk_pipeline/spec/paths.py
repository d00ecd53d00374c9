"""Paths of the pipeline file, as places: absolute, and without `..`, so that messages name each place in one way.

`FILE#INPUT` is the pipeline of an input that is given inline in a file.
"""

from __future__ import annotations

import os.path
import re
from functools import lru_cache
from pathlib import Path

from fk_pipeline.words import did_you_mean

GLOB = re.compile(r"[*?\[]")
"""The characters that make a path a glob."""

_UNTIDY = re.compile(r"/\.{0,2}(?:/|$)")
"""What a path does not have that is as `place_of` returns it."""


def place_of(path: str | Path) -> str:
    """Returns the absolute path of a local file or folder; one with `..` as the place that it leads to.

    What stands before the last `..` is resolved: the folder above a symbolic link is the one above its target. Other
    links stay as they are.
    """
    if isinstance(path, str) and path.startswith("/") and not _UNTIDY.search(path):
        return path
    absolute = Path(path).absolute()
    if ".." not in absolute.parts:
        return str(absolute)
    after = len(absolute.parts) - absolute.parts[::-1].index("..")
    return str(Path(os.path.realpath(Path(*absolute.parts[:after])), *absolute.parts[after:]))


def folder_of(file: Path) -> str:
    """Returns the absolute path of the folder of a file, whose path may be relative to the working folder."""
    return _folder_of(file, os.getcwd())  # noqa: PTH109 - of every landing file


@lru_cache(maxsize=256)
def _folder_of(file: Path, working: str) -> str:
    return place_of(Path(working, file).parent)


def split_glob(path: str) -> tuple[str, str]:
    """Returns the part of a path before the first component that is a pattern, and the rest.

    >>> split_glob("landing/*/7-*.jsonl"), split_glob("/*.jsonl"), split_glob("landing")
    (('landing', '*/7-*.jsonl'), ('/', '*.jsonl'), ('landing', ''))
    """
    parts = path.split("/")
    fixed = next((i for i, part in enumerate(parts) if GLOB.search(part)), len(parts))
    return "/".join(parts[:fixed]) or ("/" if path.startswith("/") else ""), "/".join(parts[fixed:])


def path_meant(path: str | Path) -> str:
    """Returns the path that is meant by one that leads nowhere, as the end of a sentence.

    That is the path with its first missing part replaced by what lies there and is spelled alike; nothing if nothing
    is, or if the path is a URI.
    """
    whole = Path(path)
    try:
        missing = next((part for part in [*whole.parents[::-1], whole] if not part.exists()), None)
        if "://" in str(path) or missing is None:
            return ""
        names = [other.name for other in missing.parent.iterdir()]
    except OSError:  # also of a name that is too long
        return ""
    rest = whole.relative_to(missing)
    return did_you_mean(missing.name, names, lambda name: str(missing.with_name(name) / rest))


def inline_reference(file: Path, name: str) -> Path:
    """Returns the reference to the pipeline of an inline input of a file."""
    return file.with_name(f"{file.name}#{name}")


def inline_of(file: Path) -> tuple[Path, str]:
    """Returns the file and the input that `FILE#INPUT` names; of the path of a file the path, and an empty text.

    >>> inline_of(Path("a/revenue.yaml#orders")), inline_of(Path("a/revenue.yaml"))
    ((PosixPath('a/revenue.yaml'), 'orders'), (PosixPath('a/revenue.yaml'), ''))
    """
    name, _, of = file.name.rpartition("#")
    return (file, "") if not name or not of or file.is_file() else (file.with_name(name), of)
