"""A pipeline whose tables of data somebody has upgraded: Spark goes on where the driver cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY
from fk_pipeline.store.schemas import QUARANTINE
from fk_pipeline.store.sizes import Sizes
from tests.upgrades import upgrade

pytestmark = pytest.mark.spark

UPGRADED = (
    "allowColumnDefaults", "checkpointProtection", "domainMetadata", "identityColumns", "inCommitTimestamp",
    "materializePartitionColumns", "rowTracking", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck",
    "variantShredding", "variantType",
)  # fmt: skip


@pytest.mark.slow  # each feature on each kind of table: tests/store/test_upgraded_tables.py
def test_a_run_goes_on_with_tables_of_every_feature(rows_pipeline: Callable[..., Any]) -> None:
    """The tables of states have deletion vectors, which delta-rs does not read together with some of the features."""
    made = rows_pipeline("left", Sizes(rewritten_rows=1))
    made.land(1, [(1, "a", "x"), (2, "b", "x"), (3, "a", "x")], [("a", "A"), ("b", "B")])
    made.land(2, [(2, "a", "y")], [("a", "AA")])
    made.pipeline.run()
    for name in [table.name for table in FOREIGN_KEY.tables if table.name != QUARANTINE]:
        if (path := Path(made.pipeline.spec.home, name)).exists():
            upgrade(path, *UPGRADED)
    made.land(1, [(1, "b", "z"), (2, "b", "x")], [("a", "A"), ("b", "B")])
    made.land(3, [(1,), (4, "b", "new")], [("b", "BB")])
    made.pipeline.run()
    assert made.result() == {2: ("y", "AA"), 4: ("new", "BB")}
