"""Which pipeline the tables belong to: two pipelines with one name and warehouse would replace each other's rows.

From the first landing file on, the ledger has the landing location of each side: its resolved path, and its path from
the tables. A pipeline is the same if one of the two is the same: so its folder may be moved as a whole, with tables and
landing files, the tables may be moved alone, and so may the pipeline file, whose path is used in messages only.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from pathlib import Path

from fk_pipeline.cdc.landing import Discovery
from fk_pipeline.cdc.names import as_utf8
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.environment.storage import scheme_of
from fk_pipeline.errors import StateError
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.places import landing_base, landing_path, relative
from fk_pipeline.store.ledger import FILE_THAT_RAN, LandingPlace, Ledger, claimed, claimed_from_tables, claimed_name


def landing_places(spec: PipelineSpec) -> dict[Side, LandingPlace]:
    """Returns where the files of each side land."""
    home, places = _resolved(spec.home), {}
    for side in spec.sides:
        base, path = landing_base(spec, side), _resolved(spec.location(spec.side(side).path))
        name = relative(spec, f"{base if '://' in base else as_utf8(base)}/").rstrip("/") if base else "/"
        places[side] = LandingPlace(name, spec.location(""), _resolved(base), path, _from(home, path))
    return places


def claim(spec: PipelineSpec, ledger: Ledger, new_sides: Iterable[Side] = ()) -> dict[str, str]:
    """Returns what the ledger must record of a pipeline: the landing locations of the sides with known files.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        new_sides: further sides, whose first files will be recorded.
    """
    parts, places = {}, landing_places(spec)
    for side in sorted({side for side, _ in ledger.files.known} | {*new_sides}):
        parts[claimed(side)] = places[side].path
        parts[claimed_from_tables(side)] = places[side].from_tables
        parts[claimed_name(side)] = ledger.files.names.first[side]
    return parts | {FILE_THAT_RAN: str(spec.file.absolute())} if parts else {}


def adopted(spec: PipelineSpec, ledger: Ledger, zone: LandingZone) -> dict[str, str]:
    """Returns the claim of a pipeline that takes tables over whose landing files were in another place.

    A folder may have been moved into one below it, or out of it, or the path was edited and the files stayed. Of both,
    it is what leads to more of the known files: a name that was not found would be read again as a new file.
    """
    parts, names = claim(spec, ledger), ledger.files.names
    for side in {side for side, _ in ledger.files.known}:
        if len(names.ways[side]) > 1:
            listed = {relative(spec, file.path) for file in zone.list(landing_path(spec, side))}
            known = [file.known_as for file in ledger.files.of_side(side)]
            parts[claimed_name(side)] = max(
                names.ways[side], key=lambda first: len(listed & {names.by(first, side, path) for path in known})
            )
    return parts


def _resolved(place: str) -> str:
    return place.rstrip("/") if "://" in place else os.path.realpath(place)


def _from(home: str, landing: str) -> str:
    """Returns the path of a location from the tables; empty if they are in different stores."""
    scheme = scheme_of(home)
    if scheme != scheme_of(landing):
        return ""
    return os.path.relpath(*(f"/{place.removeprefix(f'{scheme}://').lstrip('/')}" for place in (landing, home)))


def check_claim(spec: PipelineSpec, ledger: Ledger) -> None:
    """Refuses the tables of another pipeline. Needs no Spark.

    Raises:
        StateError: a landing location differs; the error names both locations and the ways out.
    """
    was = ledger.claim
    for side, place in landing_places(spec).items():
        if not ledger.files.of_side(side) or was.get(claimed(side), place.path) == place.path:
            continue
        if not place.from_tables or was[claimed_from_tables(side)] != place.from_tables:
            raise _refusal(spec, f"their {side} landing files are in {was[claimed(side)]}, not in {place.path}", was)


def check_unclaimed(spec: PipelineSpec, ledger: Ledger, discovery: Discovery) -> None:
    """Refuses tables whose ledger has no claim if it knows other files than those that landed.

    A side belongs to this pipeline if a known file is there unchanged; or if files are gone from the folder where its
    files land, as they may be, and no file has other content.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        discovery: the result of a discovery in the landing folders.

    Raises:
        StateError: the side belongs to another pipeline; the error names the ways out.
    """
    for side in sorted({side for side, _ in ledger.files.known}):
        if claimed(side) in ledger.claim:
            continue
        known = [file for (of, _), file in ledger.files.known.items() if of == side]
        read = [*discovery.changed, *(file for file, _ in discovery.waiting)]
        changed = [file for file in read if file.side == side and (side, file.path) in ledger.files.known]
        gone = [file for file in discovery.vanished if file.side == side]
        if len(known) > len(changed) + len(gone):
            continue
        root = landing_base(spec, side)
        below = [file for file in gone if Path(spec.location(file.path)).is_relative_to(root)]
        if changed or not below:
            raise _refusal(spec, f"none of their {len(known)} {side} landing file(s) is here as it was", {})


def _refusal(spec: PipelineSpec, how: str, was: dict[str, str]) -> StateError:
    own_file = str(spec.file.absolute())
    by = was.get(FILE_THAT_RAN, own_file)
    whose = "" if by == own_file else f", {by}"
    return StateError(
        f"these tables belong to another pipeline {spec.name!r}{whose}: {how}",
        where=spec.home,
        why="each of the two would replace the rows of the other; nothing was changed",
        fix=f"give this pipeline another name, or another warehouse; or, if it is the same one and its landing files "
        f"moved: fk-pipeline run {spec.file} --adopt, which takes each file there for the known one of the same name: "
        "one with other content replaces its rows",
    )
