"""The newest version of an input that stages read where it lies, according to the ledger. No Spark."""

from __future__ import annotations

from collections.abc import Iterable

from fk_pipeline.cdc.landing import newest_seen
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger


def newest_version(
    spec: PipelineSpec, ledger: Ledger, side: Side, discovered: Iterable[LandedFile] = ()
) -> Seen | None:
    """Returns the newest version of an input's table, or clock: see `newest_seen`."""
    return newest_seen(spec, ledger.files, side, discovered)
