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
    sides = {one.side for one in found.discovered if spec.side(one.side).pipeline is not None}
    held = [notice for side in sorted(sides) if (notice := _held_back(spec, side, zone)) is not None]
    left_out = {one.side for one in held}
    return replace(
        found,
        discovered=tuple(one for one in found.discovered if one.side not in left_out),
        notices=(*found.notices, *held),
    )


def _held_back(spec: PipelineSpec, side: Side, zone: LandingZone) -> Notice | None:
    """Returns the notice that the result which a side reads failed a check; None if it did not."""
    home, _, result = spec.landing(side).rpartition("/")

    def notice(why: str) -> Notice:
        text = f"{side}: what changed in {result} of {spec.side(side).pipeline} is not read: {why}"
        return Notice(side, HELD_BACK, 0, spec.landing(side), text)

    if not DeltaTable.is_deltatable(f"{home}/checks", storage.delta_options(home)):
        return None  # it was never checked
    try:
        other = load_spec(spec.file.parent / str(spec.side(side).pipeline))
    except PipelineFileError as error:
        return notice(str(error))
    with telling_damage(other, zone):
        ledger = Ledger(home, other.definition)
    failed = ledger.checks.of_table(other.definition.result_stage)
    if not failed:
        return None
    told = check_failed(failed, other, ledger)
    return notice(f"{told.what}. {told.fix}; if later batches have mended it: fk-pipeline verify {other.file}")
