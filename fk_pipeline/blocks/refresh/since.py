"""What leads from the version of a table that a block stands for to the newest one, by their logs. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fk_pipeline.blocks.refresh.facts import VERSIONS
from fk_pipeline.cdc.changed_rows import changed_rows
from fk_pipeline.cdc.table_versions import Seen, are_kept

CLOCK_UNKNOWN = "the clock that it stands for is not known"
"""Why a block with a condition that moves can only be computed whole."""


def changed_between(then: Seen | None, now: Seen | None) -> int | None:
    """Returns about how many rows of a table changed between two versions; None if its log does not tell.

    `then` is None of a table that was not there, `now` of one that is not.
    """
    if now is None or then == now:
        return 0
    if now.is_clock:
        return 1
    return changed_rows(now.location, then.version + 1 if then is not None else 0, now.version)


def why_another(name: str, then: Seen | None, now: Seen | None) -> str:
    """Returns why no change leads from one version of a relation to another; empty if one may."""
    if then is not None and (now is None or now.id != then.id):
        return f"{name} is another table than before"
    if then is not None and now is not None and now.version < then.version and not now.is_clock:
        return f"{name} went back from version {then.version} to {now.version}"
    return ""


def why_lost(name: str, then: Seen | None, now: Seen | None) -> str:
    """Returns why the changes of a relation cannot be read, as far as the log tells; empty if they can, or if none are.

    The two are versions of one table, the second not the older one.
    """
    if then is None or now is None or then.version == now.version or now.is_clock:
        return ""
    return "" if are_kept(f"{now.location}@{then.version + 1}..{now.version}") else lost(name, then)


def lost(name: str, then: Seen) -> str:
    """Returns that the changes of a relation since a version cannot be read."""
    return f"the changes of {name} since version {then.version} are gone, or were never kept"


def seen_then(facts: Mapping[str, Any], name: str, now: Seen | None) -> Seen | None:
    """Returns the version of a relation that facts name, where the relation is now."""
    version = (facts.get(VERSIONS) or {}).get(name)
    return None if version is None else Seen("" if now is None else now.location, str(version[0]), int(version[1]))
