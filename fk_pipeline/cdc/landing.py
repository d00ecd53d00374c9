"""Discovery: which landing files are new, and which batch each belongs to (`docs/reference/landing.md`). No Spark.

It returns a `Discovery`; `fk_pipeline.engine.discovery` records that in the ledger.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from fk_pipeline.cdc.dates import refuse_part_of_date, whole_date
from fk_pipeline.cdc.endings import is_of_format, stem_of
from fk_pipeline.cdc.ids import refuse_copy, refuse_part_of_id
from fk_pipeline.cdc.names import real
from fk_pipeline.cdc.notices import MISSING, Notice, about_listed, about_names, no_table
from fk_pipeline.cdc.table_versions import Seen, names_versions, new_versions, version_range
from fk_pipeline.cdc.zone import FILE, FoundFile, LandingZone
from fk_pipeline.errors import LandingError, PipelineFileError, UsageError
from fk_pipeline.identity import MAX_BATCH, BatchId, LandedFile, Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.clock import WALL, is_clock
from fk_pipeline.spec.inputs import ClockSpec
from fk_pipeline.spec.load import file_and_line
from fk_pipeline.spec.paths import path_meant
from fk_pipeline.spec.places import landing_path, relative

READER_VERSION = "4"
"""Version of the readers. Raise it when the same files would give other rows: every batch is then read again before its
state is trusted."""


def batch_of(path: str, side: SideSpec) -> BatchId | None:
    """Returns the batch in a file's name; None if it has none (the file then gets a batch in order of arrival).

    Raises:
        LandingError: the number has more than 8 digits, is part of a date or an identifier, or that of a copy;
            `batch_by` does not match; or a snapshot has no number.
    """
    name = real(path).rsplit("/", 1)[-1]  # the digits of an escaped byte are not a number
    if side.batch_by == "arrival" or (side.batch_by is None and side.format == "dms"):
        return None  # a number in the name of a DMS file is a time, or hexadecimal
    if side.batch_by is not None:
        match = re.search(side.batch_by, name)
        if match is None:
            raise LandingError(
                f"batch_by {side.batch_by!r} does not match the name of this file",
                where=path,
                fix="correct batch_by, or keep files of other kinds out of the folder",
            )
        text = "".join(group or "" for group in match.groups()) if match.re.groups else match[0]
    else:
        stem = stem_of(name, side) or ""
        numbers = re.findall(r"\d+", stem)
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
        refuse_part_of_date(stem, path, is_snapshot=side.is_snapshot)
        refuse_part_of_id(stem, path, is_snapshot=side.is_snapshot)
        refuse_copy(stem, path)
    if not text.isdecimal() or int(text) > MAX_BATCH:
        otherwise = "say with batch_by which number in the name is the batch, or 'batch_by: arrival'"
        raise LandingError(
            f"{text!r} is not a batch number of at most 8 digits",
            where=path,
            fix=(not side.batch_by and not side.is_snapshot and whole_date(text, name)) or otherwise,
        )
    return BatchId(text)


@dataclass(frozen=True)
class Discovery:
    """The outcome of a discovery: new, changed and vanished files, the batches that became due, and notices."""

    discovered: tuple[LandedFile, ...] = ()
    changed: tuple[LandedFile, ...] = ()
    vanished: tuple[LandedFile, ...] = ()
    batches: tuple[BatchId, ...] = ()
    notices: tuple[Notice, ...] = ()
    """Notices for people: files that are not read, and how names became batches."""
    waiting: tuple[tuple[LandedFile, LandedFile], ...] = ()
    """New and changed files that are left out, each with another file of its batch that is gone."""


class KnownFiles(Protocol):
    """The files and batches that are known from earlier discoveries."""

    @property
    def known(self) -> Mapping[tuple[Side, str], LandedFile]:
        """Every file that was ever discovered, by side and path."""
        ...

    @property
    def given_up(self) -> Mapping[tuple[Side, str], LandedFile]:
        """Every file that was given up, by side and path; none of them is known."""
        ...

    @property
    def batches(self) -> Sequence[BatchId]:
        """Every known batch, in order."""
        ...

    @property
    def removed(self) -> Collection[int]:
        """The batches that a user removed."""
        ...

    def of_side(self, side: Side) -> Sequence[LandedFile]:
        """Every file of a side that was ever discovered."""
        ...


def look(
    spec: PipelineSpec,
    files: KnownFiles,
    zone: LandingZone,
    now: datetime | None = None,
    *,
    stopped: bool = False,
) -> Discovery:
    """Finds the new, changed and vanished files; a missing landing folder counts as empty and gets a notice.

    Args:
        spec: the pipeline.
        files: the known files.
        zone: lists the landing folders.
        now: what clocks among the inputs show, also if that is earlier than what they showed; None: the time it is, and
            never an earlier one.
        stopped: whether clocks show what they showed last.

    Raises:
        LandingError: no batch can be read from a name.
        UsageError: clocks cannot show `now`.
    """
    notices: list[Notice] = []
    discovered: list[LandedFile] = []
    changed: list[LandedFile] = []
    vanished: list[LandedFile] = []
    arrivals: list[tuple[Side, FoundFile]] = []
    others = [side for side in spec.sides if side not in spec.clocks]
    for side in others:
        if spec.side(side).format == "delta":
            versions = _new_versions(spec, side, files)
            arrivals += [(side, file) for file in versions]
            if not versions and not files.of_side(side):
                notices.append(no_table(spec, side))
            continue
        listed = zone.list(landing_path(spec, side))
        readable = [file for file in listed if file.kind == FILE and is_of_format(file.path, spec.side(side))]
        numbered, unnumbered, rewritten = _new_and_changed(spec, side, readable, files, zone)
        discovered += numbered
        arrivals += [(side, file) for file in unnumbered]
        changed += rewritten
        present = {relative(spec, file.path) for file in listed}
        gone = [f for f in files.of_side(side) if f.path not in present]
        vanished += gone
        notices += about_listed(spec, side, listed, gone, zone)
    if arrivals or not others or any(map(files.of_side, others)):  # before there is a table, no step counts
        clocks = spec.clocks.items()
        steps = ((side, _new_step(spec, side, clock, files, now, stopped=stopped)) for side, clock in clocks)
        arrivals += [(side, step) for side, step in steps if step is not None]
    if arrivals:
        batch = _next_batch([*files.batches, *(f.batch for f in discovered)], arrivals[0][1].path)
        discovered += [_landed(file, relative(spec, file.path), side, batch, zone) for side, file in arrivals]
    for side in spec.sides:
        new = [f for f in discovered if f.side == side]
        notices += about_names(spec, side, new, [f for s, f in arrivals if s == side], first=not files.of_side(side))
    return Discovery(tuple(discovered), tuple(changed), tuple(vanished), notices=tuple(notices))


def _new_and_changed(
    spec: PipelineSpec, side: Side, listed: Iterable[FoundFile], files: KnownFiles, zone: LandingZone
) -> tuple[list[LandedFile], list[FoundFile], list[LandedFile]]:
    """Returns the new files with a batch in their name, the new files without, and the files with other content.

    Raises:
        LandingError: no batch can be read from a name.
    """
    numbered: list[LandedFile] = []
    unnumbered: list[FoundFile] = []
    changed: list[LandedFile] = []
    for file in listed:
        path = relative(spec, file.path)
        known = files.known.get((side, path))
        if known is None:
            batch = batch_of(file.path, spec.side(side))
            if batch is None:
                unnumbered.append(file)
            else:
                numbered.append(_landed(file, path, side, batch, zone))
        elif (known.size, known.modified) != (file.size, file.modified):
            fresh = _landed(file, path, side, known.batch, zone)
            if fresh.digest != known.digest:
                changed.append(fresh)
    return numbered, unnumbered, changed


def refuse_missing(discovery: Discovery, spec: PipelineSpec, files: KnownFiles) -> None:
    """Refuses a missing local landing folder from which no file is known: its path may be a mistake.

    Raises:
        PipelineFileError: there is such a folder.
    """
    for notice in discovery.notices:
        local = "://" not in landing_path(spec, notice.side) and spec.side(notice.side).format != "delta"
        if notice.kind == MISSING and local and not files.of_side(notice.side):
            fix = f"correct the path, or make the folder if its files come later: mkdir -p '{notice.first}'"
            if spec.file.is_symlink():
                fix = f"{spec.file} is a link, and its paths count from there: name {spec.file.resolve()}; or {fix}"
            raise PipelineFileError(
                f"{notice.side}.path: there is no file or folder {notice.first}{path_meant(notice.first)}",
                where=file_and_line(spec.file, f"{notice.side}.path", ""),
                why="nothing was recorded",
                fix=fix,
            )


def _next_batch(taken: Sequence[int], path: str) -> BatchId:
    """Returns the batch of files without a number.

    Raises:
        LandingError: no number is left.
    """
    if taken and max(taken) >= MAX_BATCH:
        raise LandingError(
            f"the name has no batch number, and none is left to give: {MAX_BATCH} is taken, the greatest there can be",
            where=path,
            why="files without a number come after all that landed before; nothing was recorded",
            fix="put a number into the name; or give the file with that number a smaller one, in a new warehouse",
        )
    return BatchId(max(taken) + 1 if taken else 0)


def _new_versions(spec: PipelineSpec, side: Side, files: KnownFiles) -> list[FoundFile]:
    """Returns the versions of a side's Delta table since the last discovery, as one file that never changes."""
    known = {spec.location(f.path): f for f in files.of_side(side)}
    removed = files.removed
    withdrawn = [path for path, f in known.items() if f.batch in removed]
    given_up = [spec.location(path) for of, path in files.given_up if of == side]
    names, lies = {path: f.modified for path, f in known.items()}, not spec.definition.input(side).log
    versions = new_versions(landing_path(spec, side), names, withdrawn, given_up, may_be_another=lies)
    return [] if versions is None else [FoundFile(*versions)]


def newest_seen(
    spec: PipelineSpec, files: KnownFiles, side: Side, discovered: Iterable[LandedFile] = ()
) -> Seen | None:
    """Returns the newest discovered version of a table or of a clock, without those of withdrawn batches.

    It is that of the last batch: a table that was made again begins with version 0, and a clock may be put back.

    Args:
        spec: the pipeline.
        files: the files in its ledger.
        side: the input.
        discovered: files of any input that are not in the ledger yet.
    """
    removed = files.removed
    seen: dict[tuple[int, int], Seen] = {}
    for file in (*files.of_side(side), *(f for f in discovered if f.side == side)):
        if file.batch not in removed and names_versions(file.path):
            location, _, version = version_range(spec.location(file.path))
            place = file.digest if is_clock(location) else location
            seen[int(file.batch), version] = Seen(place, file.digest, version)
    return seen[max(seen)] if seen else None


def _new_step(
    spec: PipelineSpec, side: Side, given: ClockSpec, files: KnownFiles, now: datetime | None, *, stopped: bool
) -> FoundFile | None:
    """Returns the step that a clock is in; None if it is the last discovered step, or an earlier one.

    Raises:
        UsageError: the clock cannot show `now`.
    """
    clock, last = given.of_wall, newest_seen(spec, files, side)
    if last is not None and stopped:
        return None
    try:
        step = clock.step(now or datetime.now(UTC))
    except ValueError as error:
        raise UsageError(f"the clock {side} cannot be set: {error}", where=str(spec.file)) from None
    if last is not None and last.id == clock.place and (last.version == step or (now is None and last.version > step)):
        return None
    known = {file.path for file in files.of_side(side)}
    paths = (f"{WALL}@{number}..{step}" for number in itertools.chain([""], itertools.count(1)))  # it may come again
    return FoundFile(next(path for path in paths if path not in known), 0, clock.place)


def _landed(file: FoundFile, path: str, side: Side, batch: BatchId, zone: LandingZone) -> LandedFile:
    digest = file.modified if names_versions(path) else zone.digest(file)
    return LandedFile(path, side, batch, file.size, file.modified, digest)
