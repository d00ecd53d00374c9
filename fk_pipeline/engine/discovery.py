"""Records new and changed landing files in the ledger, so that their batches become due. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from deltalake import DeltaTable

from fk_pipeline.cdc import landing
from fk_pipeline.cdc.landing import Discovery, refuse_missing
from fk_pipeline.cdc.notices import HELD_BACK, Notice, about_waiting
from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.engine.claim import claim
from fk_pipeline.engine.damage import telling_damage
from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.environment import storage
from fk_pipeline.errors import HeldBackError, PipelineFileError
from fk_pipeline.identity import BatchRange, LandedFile, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.load import load_spec
from fk_pipeline.spec.places import landing_path
from fk_pipeline.store.ledger import Ledger


def discover(
    spec: PipelineSpec, ledger: Ledger, zone: LandingZone, now: datetime | None = None, *, stopped: bool = False
) -> Discovery:
    """Assigns new and changed files to batches and records them, and whose they are.

    Idempotent; a vanished file changes nothing. `now` and `stopped` are about clocks (`landing.look`).

    Raises:
        LandingError: no batch can be derived from a file name.
        PipelineFileError: a landing folder does not exist and never did.
    """
    discovery = find(spec, ledger, zone, now, stopped=stopped)
    refuse_missing(discovery, spec, ledger.files)
    ledger.record_claim(claim(spec, ledger, {f.side for f in discovery.discovered}))  # first: how the paths begin
    files = [("discovered", f) for f in discovery.discovered] + [("changed", f) for f in discovery.changed]
    seen = {(f.side, f.path) for _, f in files}
    files += [(event, f) for event, f in ledger.files.unlisted() if (f.side, f.path) not in seen]
    return replace(discovery, batches=tuple(ledger.files.record(files)))


def find(
    spec: PipelineSpec, ledger: Ledger, zone: LandingZone, now: datetime | None = None, *, stopped: bool = False
) -> Discovery:
    """Finds what `discover` would record; records nothing.

    New versions of another pipeline's result are left out, with a notice, as long as that result has failed a critical
    check: the first look after it is mended or waived has all that changed since the last one. So are files whose batch
    cannot be read, because another file of it is gone.

    Raises:
        LandingError: no batch can be derived from a file name.
    """
    discovery = _without_waiting(landing.look(spec, ledger.files, zone, now, stopped=stopped), ledger)
    sides = [file.side for file in discovery.discovered if spec.side(file.side).pipeline is not None]
    read = {side: landing_path(spec, side) for side in sides}
    side_of = {place: side for side, place in read.items()}  # both sides may read one result
    why = {place: _why_held_back(spec, side, zone) for place, side in side_of.items()}
    held = {side: text for side, place in sorted(read.items()) if (text := why[place]) is not None}
    notices = [Notice(side, HELD_BACK, 0, read[side], f"{side}: {text}") for side, text in held.items()]
    return replace(
        discovery,
        discovered=tuple(file for file in discovery.discovered if file.side not in held),
        notices=(*discovery.notices, *notices),
    )


def gone_in_batch(
    spec: PipelineSpec, ledger: Ledger, discovery: Discovery, batch: int
) -> tuple[list[str], list[LandedFile]]:
    """Returns the landing files of a batch that cannot be read any more.

    Returns:
        Their paths, without those of the second part; and the versions of Delta tables that were never read, in whose
        place the whole table can be read.
    """
    gone, unread = [file.path for file in discovery.vanished if file.batch == batch], []
    logged = [side for side in spec.sides if spec.definition.input(side).log]  # others are read at the newest version
    for file in (file for side in logged for file in ledger.files.of_side(side) if file.batch == batch):
        if spec.side(file.side).format != "delta" or are_kept(spec.location(file.path)):
            continue
        state = ledger.state(spec.definition.input(file.side).stage, batch)
        if state.was_read and state.input:  # empty: it was withdrawn then
            gone.append(file.path)
        else:
            unread.append(file)
    return gone, unread


def _without_waiting(discovery: Discovery, ledger: Ledger) -> Discovery:
    """Leaves out the new and changed files of batches that cannot be read in full, with notices."""
    removed = ledger.files.removed
    gone = {(file.side, file.batch): file for file in discovery.vanished if file.batch not in removed}
    landed = [*discovery.discovered, *discovery.changed]
    waiting = tuple((file, gone[file.side, file.batch]) for file in landed if (file.side, file.batch) in gone)
    left_out = {file for file, _ in waiting}
    return replace(
        discovery,
        discovered=tuple(file for file in discovery.discovered if file not in left_out),
        changed=tuple(file for file in discovery.changed if file not in left_out),
        waiting=waiting,
        notices=(*discovery.notices, *about_waiting(waiting)),
    )


def refuse_waiting(discovery: Discovery, spec: PipelineSpec, batches: Sequence[BatchRange] | None = None) -> None:
    """Refuses files that were left out, because another file of their batch is gone.

    Args:
        discovery: the outcome of a discovery.
        spec: the pipeline.
        batches: files of other batches are not refused; None: the files of all batches are.

    Raises:
        HeldBackError: there is such a file.
    """
    for file, gone in discovery.waiting:
        if batches is None or any(file.batch in some for some in batches):
            raise HeldBackError(
                f"{file.path} is not read: without {gone.path}, which is gone, its batch cannot be read again",
                where=f"pipeline {spec.name}, batch {file.batch}",
                why="nothing of it was recorded, and the rows of the batch stay as they are",
                fix=f"restore {gone.path}; or take {file.path} out of the folder, and land its rows in another batch",
            )


def _why_held_back(spec: PipelineSpec, side: Side, zone: LandingZone) -> str | None:
    """Returns a sentence if the result that a side reads failed a check, with the remedy; else None."""
    home, _, result = landing_path(spec, side).rpartition("/")
    if not DeltaTable.is_deltatable(f"{home}/checks", storage.delta_options(home)):
        return None  # it was never checked
    name = str(spec.side(side).pipeline)
    what = f"what changed in {result} of {name} is not read"
    try:
        other = load_spec(spec.location(name))
    except PipelineFileError as error:
        return f"{what}: {error}"
    with telling_damage(other, zone):
        ledger = Ledger(home, other.definition)
    failed = ledger.checks.of_table(other.definition.result_stage)
    if not failed:
        return None
    refusal = check_failed(failed, other, ledger)
    return f"{what}: {refusal.what}. {refusal.fix}; if later batches have mended it: fk-pipeline verify {other.file}"
