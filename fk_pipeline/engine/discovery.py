"""Records new and changed landing files in the ledger, so that their batches become due. No Spark."""

from __future__ import annotations

from dataclasses import replace

from deltalake import DeltaTable

from fk_pipeline.cdc import landing
from fk_pipeline.cdc.landing import Discovery, refuse_missing
from fk_pipeline.cdc.notices import HELD_BACK, Notice
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.engine.damage import telling_damage
from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.environment import storage
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.load import load_spec
from fk_pipeline.store.ledger import Ledger


def discover(spec: PipelineSpec, ledger: Ledger, zone: LandingZone) -> Discovery:
    """Assigns new and changed files to batches and records them. Idempotent; a vanished file changes nothing.

    Raises:
        LandingError: no batch can be derived from a file name.
        PipelineFileError: a landing folder does not exist and never did.
    """
    found = find(spec, ledger, zone)
    refuse_missing(found, spec, ledger.files)
    files = [("discovered", f) for f in found.discovered] + [("changed", f) for f in found.changed]
    found_now = {(f.side, f.path) for _, f in files}
    files += [(event, f) for event, f in ledger.files.unlisted() if (f.side, f.path) not in found_now]
    return replace(found, batches=tuple(ledger.files.record(files)))


def find(spec: PipelineSpec, ledger: Ledger, zone: LandingZone) -> Discovery:
    """Finds what `discover` would record; records nothing.

    New versions of another pipeline's result are left out, with a notice, as long as that result has failed a critical
    check: the first look after it is mended or waived has all that changed since the last one.

    Raises:
        LandingError: no batch can be derived from a file name.
    """
    found = landing.look(spec, ledger.files, zone)
    read = {one.side: spec.landing(one.side) for one in found.discovered if spec.side(one.side).pipeline is not None}
    one_of = {place: side for side, place in read.items()}  # both sides may read one result
    why = {place: _why_held_back(spec, side, zone) for place, side in one_of.items()}
    held = {side: text for side, place in sorted(read.items()) if (text := why[place]) is not None}
    notices = [Notice(side, HELD_BACK, 0, read[side], f"{side}: {text}") for side, text in held.items()]
    return replace(
        found,
        discovered=tuple(one for one in found.discovered if one.side not in held),
        notices=(*found.notices, *notices),
    )


def _why_held_back(spec: PipelineSpec, side: Side, zone: LandingZone) -> str | None:
    """Returns a sentence if the result that a side reads failed a check, with the remedy; else None."""
    home, _, result = spec.landing(side).rpartition("/")
    if not DeltaTable.is_deltatable(f"{home}/checks", storage.delta_options(home)):
        return None  # it was never checked
    name = str(spec.side(side).pipeline)
    what = f"what changed in {result} of {name} is not read"
    try:
        other = load_spec(spec.file.parent / name)
    except PipelineFileError as error:
        return f"{what}: {error}"
    with telling_damage(other, zone):
        ledger = Ledger(home, other.definition)
    failed = ledger.checks.of_table(other.definition.result_stage)
    if not failed:
        return None
    told = check_failed(failed, other, ledger)
    return f"{what}: {told.what}. {told.fix}; if later batches have mended it: fk-pipeline verify {other.file}"
