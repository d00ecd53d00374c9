"""The versions of what stages read: of an input where it lies, the newest according to the ledger. No Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fk_pipeline.cdc.landing import newest_seen
from fk_pipeline.cdc.table_versions import Seen, table_id
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger

if TYPE_CHECKING:
    from fk_pipeline.store.reader import TableReader


def newest_version(
    spec: PipelineSpec, ledger: Ledger, side: Side, discovered: Iterable[LandedFile] = ()
) -> Seen | None:
    """Returns the newest version of an input's table, or clock: see `newest_seen`."""
    return newest_seen(spec, ledger.files, side, discovered)


def version_read(read: TableReader, spec: PipelineSpec, ledger: Ledger, name: str) -> Seen | None:
    """Returns the version of a table that a reader reads; of an input that lies elsewhere, the newest found."""
    if name in spec.sides:
        return newest_version(spec, ledger, Side(name))
    path, version = read.warehouse.path(name), read.about(name).version
    return None if version is None else Seen(path, table_id(f"{path}@..{version}"), version)
