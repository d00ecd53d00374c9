"""Upgrades of Delta tables by somebody else: the features of Delta 4.4, and how a table gets one without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable

OF_READERS = (
    "columnMapping", "deletionVectors", "geospatial", "geospatial-dev", "timestampNtz", "typeWidening",
    "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding", "variantShredding-preview",
    "variantType", "variantType-preview",
)  # fmt: skip
"""Features that readers must know, too."""

OF_WRITERS = (
    "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection", "clustering",
    "coordinatedCommits-preview", "domainMetadata", "generatedColumns", "icebergCompatV1", "icebergCompatV2",
    "icebergCompatV3", "identityColumns", "inCommitTimestamp", "invariants", "materializePartitionColumns",
    "rowTracking",
)  # fmt: skip

NOT_IN_OLD_TABLES = ("adaptiveMetadata-preview", "catalogManaged")
"""Features that Delta 4.4 gives to new tables only."""

FEATURES = (*OF_READERS, *OF_WRITERS)


def upgrade(path: str | Path, *features: str) -> int:
    """Gives a table some features in addition to those that it has; returns its new version."""
    table = DeltaTable(str(path))
    known, version = table.protocol(), table.version() + 1
    writers = {"appendOnly", "invariants", *(known.writer_features or ()), *features}
    readers = {*(known.reader_features or ()), *(one for one in features if one in OF_READERS)}
    protocol = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7, "writerFeatures": sorted(writers)}
    if readers:
        protocol["readerFeatures"] = sorted(readers)
    Path(path, "_delta_log", f"{version:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    return version
