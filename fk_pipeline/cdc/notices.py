"""Notices of a discovery for people: files that are not read, files that are missing, and how names became batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fk_pipeline.cdc.endings import JSON_LINES, endings_of, is_of_format
from fk_pipeline.cdc.zone import BROKEN_LINK, FILE, FOLDER, FoundFile, LandingZone
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.paths import path_meant
from fk_pipeline.spec.places import landing_base, landing_path, relative

MISSING, UNREAD, FOLDERS, LINKS, EMPTY = "missing", "not read", "folders", "broken links", "empty"
VANISHED, NAMED, ARRIVED, HELD_BACK = "vanished", "named", "arrived", "held back"


@dataclass(frozen=True)
class Notice:
    """One notice about the landing files of a side.

    Attributes:
        side: the side whose files they are.
        kind: one of the constants above.
        files: the number of files, folders or links that it is about.
        first: the path of the first of them, or the folder.
        text: a sentence for people, with the remedy.
    """

    side: Side
    kind: str
    files: int
    first: str
    text: str

    @classmethod
    def of(cls, side: Side, kind: str, paths: Sequence[str], singular: str, plural: str, then: str) -> Notice:
        """Returns a notice about some paths, at least one.

        Args:
            side: the side whose files they are.
            kind: its kind.
            paths: the paths.
            singular: the statement about one path, such as `file is empty`.
            plural: the same statement about several paths.
            then: the consequence and the remedy.
        """
        sentence = f"1 {singular}: {paths[0]}" if len(paths) == 1 else f"{len(paths):,} {plural}; the first: {paths[0]}"
        return cls(side, kind, len(paths), paths[0], f"{side}: {sentence}. {then}")

    def __str__(self) -> str:
        return self.text


def about_listed(
    spec: PipelineSpec, side: Side, listed: Sequence[FoundFile], gone: Sequence[LandedFile], zone: LandingZone
) -> list[Notice]:
    """Returns the notices about the files in the landing folder of a side."""
    where, reads = landing_path(spec, side), spec.side(side)
    notices = []
    if not listed and not zone.exists(where):
        place = where if "://" in where else landing_base(spec, side)
        then = "its rows stay" if gone else f"correct {side}.path, or make it if its files come later"
        notices.append(Notice(side, MISSING, 0, place, f"{side}: there is nothing at {place}: {then}"))
    paths: dict[str, list[str]] = {}
    for file in listed:
        if file.kind == FILE:
            kind = EMPTY if not file.size else None
            kind = kind if is_of_format(file.path, reads) else UNREAD
        else:
            kind = {FOLDER: FOLDERS, BROKEN_LINK: LINKS}.get(file.kind, UNREAD)
        if kind is not None:
            paths.setdefault(kind, []).append(relative(spec, file.path))
    endings = ", ".join(endings_of(reads) or [f"{e}, {e}.gz" for e in JSON_LINES])
    pattern = f"{spec.side(side).path.rstrip('/')}/*/*"
    for kind, singular, plural, then in (
        (UNREAD, "file is not read", "files are not read",
         f"Format {reads.format} reads {endings}: convert them, correct {side}.format, or keep them elsewhere"),
        (FOLDERS, "folder is not looked into", "folders are not looked into",
         f"To read files in folders write a glob, such as {side}.path: {pattern}"),
        (LINKS, "link leads nowhere", "links lead nowhere", "Restore what they name, or remove them"),
        (EMPTY, "file is empty", "files are empty", "No row is read there; land what should be in it again"),
    ):  # fmt: skip
        if kind in paths:
            notices.append(Notice.of(side, kind, paths[kind], singular, plural, then))
    if gone:
        then = "Their rows stay, but a batch that is withdrawn cannot be brought back without its files"
        notices.append(
            Notice.of(side, VANISHED, [f.path for f in gone], "known file is gone", "known files are gone", then)
        )
    return notices


def about_waiting(waiting: Sequence[tuple[LandedFile, LandedFile]]) -> list[Notice]:
    """Returns the notices about files that are left out, each given with another file of its batch that is gone."""
    notices = []
    for side in dict.fromkeys(file.side for file, _ in waiting):
        pairs = [(file, gone) for file, gone in waiting if file.side == side]
        (first, gone), paths = pairs[0], [file.path for file, _ in pairs]
        then = f"Batch {first.batch} cannot be read again without {gone.path}, which is gone: restore it"
        notices.append(Notice.of(side, HELD_BACK, paths, "file is held back", "files are held back", then))
    return notices


def no_table(spec: PipelineSpec, side: Side) -> Notice:
    """Returns the notice that no Delta table exists at the path of the side."""
    where, of_side = landing_path(spec, side), spec.side(side)
    if of_side.pipeline is not None:
        first = f"run it first: fk-pipeline run {spec.location(of_side.pipeline)}"
        return Notice(side, MISSING, 0, where, f"{side}: pipeline {of_side.pipeline} has no result yet; {first}")
    then = f"correct {side}.path, or wait until it is made"
    return Notice(side, MISSING, 0, where, f"{side}: there is no Delta table at {where}: {then}{path_meant(where)}")


def about_names(
    spec: PipelineSpec, side: Side, new: Sequence[LandedFile], arrivals: Sequence[FoundFile], *, first: bool
) -> list[Notice]:
    """Returns the notices about how names became batches (only with `first`), and about names without a number."""
    reads = spec.side(side)
    if not new or reads.has_versions:
        return []
    by_arrival = reads.batch_by == "arrival" or (reads.batch_by is None and reads.format == "dms")
    arrived = {relative(spec, file.path) for file in arrivals}
    landed = next((f for f in new if f.path not in arrived), new[0])
    notices = []
    if first:
        rule = "the last number in the name" if reads.batch_by is None else f"batch_by {reads.batch_by}"
        rule = "the order of arrival" if by_arrival or landed.path in arrived else rule
        files = "1 file" if len(new) == 1 else f"{len(new):,} files"
        example = f"{landed.path.rsplit('/', 1)[-1]} -> {int(landed.batch)}"
        notices.append(
            Notice(side, NAMED, len(new), landed.path, f"{side}: {files}, batch = {rule}, for example {example}")
        )
    if arrived and not by_arrival:
        batch = next(int(f.batch) for f in new if f.path in arrived)
        then = f"They are batch {batch}, in the order of arrival; if that is meant, say batch_by: arrival"
        what = ("file has no number in its name", "files have no number in their names")
        notices.append(Notice.of(side, ARRIVED, sorted(arrived), *what, then))
    return notices
