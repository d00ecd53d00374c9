"""Records new and changed landing files in the ledger, so that their batches become due. No Spark."""

from __future__ import annotations

from dataclasses import replace

from fk_pipeline.cdc import landing
from fk_pipeline.cdc.landing import Discovery, refuse_missing
from fk_pipeline.cdc.notices import HELD_BACK, Notice
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.engine.failed_checks import check_failed
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
    found = look(spec, ledger, zone)
    refuse_missing(found, spec, ledger.files)
    files = [("discovered", f) for f in found.discovered] + [("changed", f) for f in found.changed]
    found_now = {(f.side, f.path) for _, f in files}
    files += [(event, f) for event, f in ledger.files.unlisted() if (f.side, f.path) not in found_now]
    return replace(found, batches=tuple(ledger.files.record(files)))


def look(spec: PipelineSpec, ledger: Ledger, zone: LandingZone) -> Discovery:
    """Finds what `discover` would record; records nothing.

    New versions of another pipeline's result are left out, with a notice, as long as that result has failed a critical
    check: the first look after it is mended or waived has all that changed since the last one.

    Raises:
        LandingError: no batch can be derived from a file name.
    """
    found = landing.look(spec, ledger.files, zone)
    sides = {one.side for one in found.discovered if spec.side(one.side).pipeline is not None}
    held = {side: why for side in spec.sides if side in sides for why in [_held_back(spec, side)] if why is not None}
    if not held:
        return found
    return replace(
        found,
        discovered=tuple(one for one in found.discovered if one.side not in held),
        notices=(*found.notices, *held.values()),
    )


def _held_back(spec: PipelineSpec, side: Side) -> Notice | None:
    """Returns the notice that the result which a side reads failed a check; None if it did not."""
    other = load_spec(spec.file.parent / str(spec.side(side).pipeline))
    result = other.definition.result
    ledger = Ledger(other.home, other.definition)
    failed = ledger.checks.of_table(other.definition.result_stage)
    if not failed:
        return None
    error = check_failed(failed, other, ledger)
    text = f"{side}: what changed in {result.name} of {other.name} is not read: {error.what}. {error.fix}"
    return Notice(side, HELD_BACK, 0, f"{other.home}/{result.name}", text)
