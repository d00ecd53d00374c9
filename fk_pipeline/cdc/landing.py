"""Discovery: which landing files are new, and which batch each belongs to (`docs/reference/landing.md`). No Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fk_pipeline.cdc.endings import is_of_format, stem_of
from fk_pipeline.cdc.table_versions import names_versions, new_versions
from fk_pipeline.cdc.zone import FILE, FoundFile, LandingZone
from fk_pipeline.errors import LandingError
from fk_pipeline.identity import MAX_BATCH, BatchId, Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.tables.ledger import LandedFile, Ledger

READER_VERSION = "2"
"""Raise it when the same files would give other rows: every batch is then read again before its state is trusted."""


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
        numbers = re.findall(r"\d+", stem_of(path, side) or "")
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
        listed = zone.list(spec.landing(side))
        for file in listed:
            if file.kind != FILE or not is_of_format(file.path, spec.side(side)):
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
        present = {spec.relative(file.path) for file in listed}
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
