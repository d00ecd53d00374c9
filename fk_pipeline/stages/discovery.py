"""Discovery, written down: new and changed landing files are recorded, and their batches are due by that. No Spark."""

from __future__ import annotations

from dataclasses import replace

from fk_pipeline.cdc.landing import Discovery, look, refuse_missing
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger


def discover(spec: PipelineSpec, ledger: Ledger, zone: LandingZone) -> Discovery:
    """Assigns new and changed files to batches and records them. Idempotent; a vanished file changes nothing.

    Raises:
        LandingError: a name gives no batch.
        PipelineFileError: a landing folder is not there and never was.
    """
    found = look(spec, ledger.files, zone)
    refuse_missing(found, spec, ledger.files)
    files = [("discovered", f) for f in found.discovered] + [("changed", f) for f in found.changed]
    found_now = {(f.side, f.path) for _, f in files}
    files += [(event, f) for event, f in ledger.files.unlisted() if (f.side, f.path) not in found_now]
    return replace(found, batches=tuple(ledger.files.record(files)))
