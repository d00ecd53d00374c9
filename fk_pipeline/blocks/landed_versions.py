"""The newest version of an input that stages read where it lies, according to the ledger. No Spark."""

from __future__ import annotations

from collections.abc import Iterable

from fk_pipeline.cdc.table_versions import Seen, names_versions, version_range
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger


def newest_version(
    spec: PipelineSpec, ledger: Ledger, side: Side, discovered: Iterable[LandedFile] = ()
) -> Seen | None:
    """Returns the newest version of an input's table that was found, without withdrawn batches; None if none was.

    It is that of the last batch: a table that was made anew begins with version 0 again.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        side: the input.
        discovered: what was found of any input, and is not in the ledger.
    """
    removed = ledger.files.removed
    found: dict[tuple[int, int], Seen] = {}
    for file in (*ledger.files.of_side(side), *(one for one in discovered if one.side == side)):
        if file.batch not in removed and names_versions(file.path):
            location, _, version = version_range(spec.location(file.path))
            found[int(file.batch), version] = Seen(location, file.digest, version)
    return found[max(found)] if found else None
