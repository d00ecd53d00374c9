"""Records new and changed landing files in the ledger, so that their batches become due. No Spark."""

from __future__ import annotations

from dataclasses import replace

from fk_pipeline.cdc.landing import Discovery, look, refuse_missing
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger


def discover(spec: PipelineSpec, ledger: Ledger, zone: LandingZone) -> Discovery:
    """Assigns new and changed files to batches and records them. Idempotent; a vanished file changes nothing.

    Raises:
        LandingError: no batch can be derived from a file name.
        PipelineFileError: a landing folder does not exist and never did.
    """
    found = look(spec, ledger.files, zone)
    refuse_missing(found, spec, ledger.files)
    files = [("discovered", f) for f in found.discovered] + [("changed", f) for f in found.changed]
    found_now = {(f.side, f.path) for _, f in files}
    files += [(event, f) for event, f in ledger.files.unlisted() if (f.side, f.path) not in found_now]
    return replace(found, batches=tuple(ledger.files.record(files)))
