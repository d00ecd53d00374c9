"""Names of landing files: the one that a file has in the ledger for ever, and the one that it has for a pipeline now.

The pipeline file, the tables and the landing folders may move, each alone or all together, and two pipeline files may
read the same folders. So a file is known by its place below the landing folder of its side. The ledger has it under the
path that led there when the first file of the side was found; every pipeline file has its own path to that folder.
"""

from __future__ import annotations

import os.path
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fk_pipeline.identity import Side
from fk_pipeline.spec.paths import GLOB

FILE_THAT_RAN = "pipeline file"
"""The part of the fingerprints that names the file which ran last, for messages and for ledgers of older versions."""


def claimed(side: Side) -> str:
    """Returns the name of the fingerprint part with the resolved landing path of a side."""
    return f"{side}.landing"


def claimed_from_tables(side: Side) -> str:
    """Returns the name of the fingerprint part with the path from the tables to the landing path of a side.

    The value of the part is empty where the landing path is in another store than the tables.
    """
    return f"{side}.landing from the tables"


def claimed_name(side: Side) -> str:
    """Returns the name of the fingerprint part with the path with which the files of a side begin in the ledger."""
    return f"{side}.landing in the ledger"


def is_claim(part: str) -> bool:
    """Returns whether a fingerprint part records which pipeline the tables belong to, or what its files are called."""
    side = Side(part.split(".", maxsplit=1)[0])
    return part in (FILE_THAT_RAN, claimed(side), claimed_from_tables(side), claimed_name(side))


@dataclass(frozen=True)
class LandingPlace:
    """Where the files of a side land, as one pipeline file describes it.

    Attributes:
        name: the folder from which the landing path starts, or a single file or table, as messages name it.
        folder: the folder of the pipeline file.
        base: the place that `name` leads to, with links resolved.
        path: the landing path with links resolved: `base`, or a glob below it.
        from_tables: the path from the tables to `path`; empty if they are in different stores.
    """

    name: str
    folder: str
    base: str
    path: str
    from_tables: str


class Names:
    """Translates between the paths of the ledger and the paths that a pipeline file leads to.

    A path of the ledger that is not below the landing folder, from before that was another one, stays as it is.

    Attributes:
        first: per side, the path with which the files of the side begin in the ledger.
        ways: per side, what `first` can be after an edit of the landing path, the value that it has before the others:
            files that stayed keep their places, and files that were moved the ones below the landing folder.
    """

    def __init__(
        self, places: Mapping[Side, LandingPlace], claim: Mapping[str, str], known: Mapping[Side, Iterable[str]]
    ) -> None:
        """Finds out how the paths of the ledger begin.

        Args:
            places: where files land now.
            claim: the parts of the claim in the ledger.
            known: per side the paths in the ledger, the newest first; used where the claim does not tell.
        """
        self._now = {side: place.name for side, place in places.items()}
        self.ways = {side: _ways(side, place, claim, known.get(side, ())) for side, place in places.items()}
        self.first = {side: ways[0] for side, ways in self.ways.items()}

    def now(self, side: Side, path: str) -> str:
        """Returns what a path of the ledger is now."""
        return path if side not in self._now else self.by(self.first[side], side, path)

    def by(self, first: str, side: Side, path: str) -> str:
        """Returns what a path of the ledger is now if the files of its side begin there with `first`."""
        return _moved(path, first, self._now[side])

    def in_ledger(self, side: Side, path: str) -> str:
        """Returns what the ledger calls a path of now."""
        return path if side not in self._now else _moved(path, self._now[side], self.first[side])


def _moved(path: str, base: str, to: str) -> str:
    """Returns a path with its beginning replaced; the path itself if it does not begin so."""
    if not base and not _is_absolute(path):
        return f"{to}/{path}" if to else path
    if path == base:
        return to
    if path.startswith((f"{base}/", f"{base}@")):  # a version of a table, or a file in a folder
        rest = path.removeprefix(base)
        return f"{to}{rest}" if to else rest.removeprefix("/")
    return path


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path


def _ways(side: Side, place: LandingPlace, claim: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Returns the paths with which the files of a side may begin in the ledger, the most likely one first."""
    was = claim.get(claimed(side))
    base = place.base if was is None else _base_of(was, place)
    first = claim.get(claimed_name(side))
    if first is None:  # an older version wrote it: relative to the pipeline file, as the path was given there
        folder = place.folder if was is None else str(Path(claim.get(FILE_THAT_RAN, "")).parent)
        first = _leading_to(base, folder, known)
    if first is None:
        return [place.name]
    if was in (None, place.path) or claim.get(claimed_from_tables(side)) == (place.from_tables or None):
        return [first]
    return list(dict.fromkeys((_after_edit(first, base, place), first)))


def _base_of(path: str, place: LandingPlace) -> str:
    """Returns the folder from which an earlier landing path started; what it shares with the one of now is no glob."""
    parts, now = path.split("/"), place.base.split("/")
    shared = next((i for i, pair in enumerate(zip(parts, now, strict=False)) if pair[0] != pair[1]), len(now))
    fixed = next((i for i, part in enumerate(parts) if i >= shared and GLOB.search(part)), len(parts))
    return "/".join(parts[:fixed])


def _leading_to(base: str, folder: str, known: Iterable[str]) -> str | None:
    """Returns the beginning of a known path that leads from a folder to a place; None if there is none.

    The longest one counts: `left/../left/1.jsonl` is `1.jsonl` in the place `left`.
    """
    tried = set[str]()
    for path in known:
        ends = [i for i, letter in enumerate(path) if letter in "/@"]
        begins = [path[:end] for end in (len(path), *reversed(ends))] + ([] if _is_absolute(path) else [""])
        for begin in (start for start in begins if start not in tried):
            if base == (begin if "://" in begin else os.path.realpath(os.path.join(folder, begin))):  # noqa: PTH118
                return begin
            tried.add(begin)
    return None


def _after_edit(first: str, base: str, place: LandingPlace) -> str:
    """Returns how paths begin after an edit of the landing path.

    If one of the two places is below the other, the files in both keep their paths if they stayed. Otherwise the files
    were moved, and those below the new place have the paths that they had below the old one.
    """
    (scheme, old), (other, new) = _apart(base), _apart(place.base)
    away = posixpath.relpath(f"/{new}", f"/{old}")
    if scheme != other or (".." in away and away.strip("./")):
        return first
    start, rest = _apart(first)
    edited = posixpath.normpath(posixpath.join(rest, away))
    if edited.startswith(".."):
        return place.name
    return start + ("" if edited == "." else edited)


def _apart(path: str) -> tuple[str, str]:
    """Returns the scheme of a URI with `://`, or nothing, and the rest."""
    start, sign, rest = path.rpartition("://")
    return start + sign, rest
