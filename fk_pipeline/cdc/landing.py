"""The landing zone: which files there are, and which batch each belongs to (`docs/reference/landing.md`).

Listing goes through fsspec and never starts Spark. Writers rename complete files into place; names that start with
`.` or `_` are ignored.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fsspec.implementations.local import LocalFileSystem

from fk_pipeline.cdc.own import own_format
from fk_pipeline.cdc.table_versions import names_versions, new_versions
from fk_pipeline.environment import storage
from fk_pipeline.errors import LandingError
from fk_pipeline.identity import MAX_BATCH, BatchId, Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.model import GLOB
from fk_pipeline.tables.ledger import LandedFile, Ledger

READER_VERSION = "2"
"""Raise it when the same files would give other rows: every batch is then read again before its state is trusted."""

JSON_LINES = (".jsonl", ".json", ".ndjson")
"""Endings of files with one JSON value per line; each also with `.gz`."""

ENDINGS = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    "dms": (".csv", ".csv.gz", ".parquet"),
    "parquet": (".parquet", ".parq"),
}
"""Endings of the files of a format that is not written as JSON lines; one of the user's may have `endings`."""


@dataclass(frozen=True)
class FoundFile:
    """A file in the landing zone, as its storage describes it."""

    path: str
    size: int
    modified: str


class LandingZone(Protocol):
    """What the engine asks of a landing zone; tests give it one of their own."""

    def list(self, location: str) -> list[FoundFile]:
        """The files in a folder, or those that match a glob."""
        ...

    def digest(self, file: FoundFile) -> str:
        """A digest of a file's content."""
        ...


class FsspecLandingZone:
    """A landing zone on any file system that fsspec knows."""

    def list(self, location: str) -> list[FoundFile]:
        fs, root = storage.filesystem(location)
        if fs.isdir(root):
            entries = fs.ls(root, detail=True)
        elif fs.isfile(root):
            entries = [fs.info(root)]
        else:
            entries = list(fs.glob(root, detail=True).values()) if GLOB.search(root) else []
        local = isinstance(fs, LocalFileSystem)
        scheme = location.split("://", maxsplit=1)[0]
        found = []
        for entry in entries:
            name = entry["name"]
            if entry.get("type") == "file" and _is_data(name):
                path = name if local else f"{scheme}://{name.split('://')[-1]}"
                found.append(FoundFile(path, int(entry.get("size") or 0), self._modified(entry)))
        return sorted(found, key=lambda f: (f.path.rsplit("/", 1)[-1], f.path))

    @staticmethod
    def _modified(entry: dict[str, Any]) -> str:
        for name in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created"):
            if entry.get(name):
                return str(entry[name])
        return ""

    def digest(self, file: FoundFile) -> str:
        if file.modified and "://" in file.path:
            return f"{file.size}:{file.modified}"  # an object's etag or time; reading it all only to hash it is dear
        digest = hashlib.sha256()
        with storage.opened(file.path) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()


def _is_data(path: str) -> bool:
    return not path.rsplit("/", 1)[-1].startswith((".", "_"))


def is_of_format(path: str, side: SideSpec) -> bool:
    """Whether the format of the side reads files with this ending."""
    return names_versions(path) if side.format == "delta" else _stem(path, side) is not None


def _stem(path: str, side: SideSpec) -> str | None:
    """The name of a file without its ending; None when the format of the side has no such files."""
    name, endings = path.rsplit("/", 1)[-1], ENDINGS.get(side.format)
    if ":" in side.format:
        endings = getattr(own_format(side.format), "endings", None)
    bare = name if endings else name.removesuffix(".gz")
    return next((bare.removesuffix(e) for e in endings or JSON_LINES if bare.endswith(e)), None)


def batch_of(path: str, side: SideSpec) -> BatchId | None:
    """The batch that a file's name says; None when it says none (batched in order of arrival).

    Raises:
        LandingError: the number has more than 8 digits, `batch_by` does not match, or a snapshot has none.
    """
    name = path.rsplit("/", 1)[-1]
    if side.batch_by == "arrival" or (side.batch_by is None and side.format == "dms"):
        return None  # a number in the name of a file of DMS is a time, or hexadecimal
    if side.batch_by is not None:
        match = re.search(side.batch_by, name)
        if match is None:
            raise LandingError(
                f"batch_by {side.batch_by!r} does not match the name of this file",
                where=path,
                fix="correct batch_by, or keep files of other kinds out of the folder",
            )
        text = match[1] if match.re.groups else match[0]
    else:
        numbers = re.findall(r"\d+", _stem(path, side) or "")
        if not numbers and side.is_snapshot:
            raise LandingError(
                "a snapshot file has no batch number in its name",
                where=path,
                why="two dumps that arrive together would count as one table",
                fix="number the dumps, or say with batch_by which part of the name is the number",
            )
        if not numbers:
            return None
        text = numbers[-1]
    if not text.isdigit() or int(text) > MAX_BATCH:
        raise LandingError(
            f"{text!r} is not a batch number of at most 8 digits",
            where=path,
            fix="say with batch_by which number in the name is the batch, or 'batch_by: arrival'",
        )
    return BatchId(text)


@dataclass(frozen=True)
class Discovery:
    """What a look at the landing zone found: files by what is new about them, and the batches that became due."""

    discovered: tuple[LandedFile, ...] = ()
    changed: tuple[LandedFile, ...] = ()
    vanished: tuple[LandedFile, ...] = ()
    batches: tuple[BatchId, ...] = ()


def discover(spec: PipelineSpec, ledger: Ledger, zone: LandingZone) -> Discovery:
    """Assigns new and changed files to batches and records them. Idempotent; a vanished file changes nothing."""
    found = look(spec, ledger, zone)
    files = [("discovered", f) for f in found.discovered] + [("changed", f) for f in found.changed]
    found_now = {(f.side, f.path) for _, f in files}
    files += [(event, f) for event, f in ledger.unlisted() if (f.side, f.path) not in found_now]
    return replace(found, batches=tuple(ledger.record_files(files)))


def look(spec: PipelineSpec, ledger: Ledger, zone: LandingZone) -> Discovery:
    """What `discover` would record."""
    discovered: list[LandedFile] = []
    changed: list[LandedFile] = []
    vanished: list[LandedFile] = []
    arrivals: list[tuple[Side, FoundFile]] = []
    for side in Side:
        if spec.side(side).format == "delta":
            arrivals += [(side, file) for file in _new_versions(spec, side, ledger)]
            continue
        found = zone.list(spec.landing(side))
        for file in found:
            if not is_of_format(file.path, spec.side(side)):
                continue
            path = spec.relative(file.path)
            known = ledger.files.get((side, path))
            if known is None:
                batch = batch_of(file.path, spec.side(side))
                if batch is None:
                    arrivals.append((side, file))
                else:
                    discovered.append(_landed(file, path, side, batch, zone))
            elif (known.size, known.modified) != (file.size, file.modified):
                fresh = _landed(file, path, side, known.batch, zone)
                if fresh.digest != known.digest:
                    changed.append(fresh)
        present = {spec.relative(file.path) for file in found}
        vanished += [f for (s, path), f in ledger.files.items() if s is side and path not in present]
    if arrivals:
        taken = [*ledger.batches, *(f.batch for f in discovered)]
        batch = BatchId(max(taken) + 1 if taken else 0)
        discovered += [_landed(file, spec.relative(file.path), side, batch, zone) for side, file in arrivals]
    return Discovery(tuple(discovered), tuple(changed), tuple(vanished))


def _new_versions(spec: PipelineSpec, side: Side, ledger: Ledger) -> list[FoundFile]:
    """The versions of a side's Delta table that came since the last look, as one file that nothing changes any more."""
    known = {spec.location(f.path): f for (of, _), f in ledger.files.items() if of is side}
    withdrawn = [path for path, f in known.items() if f.batch in ledger.removed]
    found = new_versions(spec.landing(side), {path: f.modified for path, f in known.items()}, withdrawn)
    return [] if found is None else [FoundFile(*found)]


def _landed(file: FoundFile, path: str, side: Side, batch: BatchId, zone: LandingZone) -> LandedFile:
    digest = file.modified if names_versions(path) else zone.digest(file)
    return LandedFile(path, side, batch, file.size, file.modified, digest)
