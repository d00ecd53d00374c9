"""What a commit of a block says of its rows: of which versions they were made, and for which they stand. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSIONS, STANDS_FOR = "versions", "stands for"
"""Facts in a commit of a block: per relation that it read the id and version of the table; per input the versions that
its rows stand for, one unless blocks before it had read another."""


def standing_for(facts: Any) -> dict[str, list[tuple[str, int]]]:
    """Returns, per input, the versions (id of the table, version) that the rows of a commit stand for."""
    return {name: [(of, version) for of, version in some] for name, some in (facts.get(STANDS_FOR) or {}).items()}


def carried(facts: Mapping[str, Any], moved: Mapping[tuple[str, int], tuple[str, int]]) -> dict[str, Any]:
    """Returns the facts in a commit of a block, where earlier blocks are versions of other tables than it had read."""
    versions = {name: [*moved.get((of, at), (of, at))] for name, (of, at) in (facts.get(VERSIONS) or {}).items()}
    return {**facts, VERSIONS: versions} if facts else {}
