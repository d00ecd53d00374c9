"""The counts of a batch of landing files, from its records in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fk_pipeline.cdc.records import BAD, EVENT, IGNORED, SNAPSHOT, TRUNCATE
from fk_pipeline.identity import WITHOUT_OLD_KEY

SNAPSHOT_ROWS = "snapshot rows"
"""The name of the count of rows of a snapshot that are older than every change by a rule of the format."""

BY_ARRIVAL = "changes by arrival"
"""The name of the count of changes that a later snapshot of that kind replaces: they have no place in the order."""

ROUNDED = "rounded"
"""The name of the count of rows with a value rounded to its type; followed by `: COLUMN`, of one column."""


class RecordGroup(NamedTuple):
    """The columns by which records are counted; all are columns of records as the changelog stage has them.

    `derived` is among them so that Spark computes it here.
    """

    kind: str
    why: str | None
    last: bool | None
    deleted: bool | None
    holed: bool
    drifted: bool
    rounded: str | None
    derived: bool | None
    precedes: bool | None
    blind: bool | None
    gone: str | None


RecordGroups = Mapping[RecordGroup, int]
"""Per group, the number of records of a batch."""


def any_drifted(groups: RecordGroups) -> bool:
    """Returns whether the fields of a record differ from the schema."""
    return any(group.drifted for group in groups)


def by_lacking(groups: RecordGroups) -> dict[str, int]:
    """Returns the number of rows per value of `lost.GONE`."""
    counts: dict[str, int] = {}
    for group, number in groups.items():
        if group.gone is not None:
            counts[group.gone] = counts.get(group.gone, 0) + number
    return counts


def written(groups: RecordGroups) -> int:
    """Returns the number of events that write a row."""
    return sum(number for group, number in groups.items() if group.kind == EVENT and not group.deleted)


def count_records(counts: dict[str, int], groups: RecordGroups) -> None:
    """Adds up the records of a batch: `read` is the sum of events, ignored, quarantined and truncates.

    The truncate before a snapshot does not count as read.
    """
    for group, number in groups.items():
        for key, value in _counted(group, number).items():
            counts[key] = counts.get(key, 0) + value


def count_failing(counts: Mapping[int, dict[str, int]], failing: Mapping[int, int]) -> None:
    """Counts events on which `where` fails once they are filled as quarantined; `rows` has their rows."""
    for batch, number in failing.items():
        if number:
            counts[batch]["events"] -= number
            counts[batch]["quarantined"] = counts[batch].get("quarantined", 0) + number


def _counted(group: RecordGroup, number: int) -> dict[str, int]:
    last = "rows" if group.last else "superseded"
    if group.why == SNAPSHOT:
        return {"truncates": number, last: number, "snapshots": number}
    names = {BAD: "quarantined", EVENT: "events", TRUNCATE: "truncates", IGNORED: f"ignored: {group.why}"}
    added = {"read": number, names[group.kind]: number}
    if group.kind in (EVENT, TRUNCATE):
        added[last] = number
    if group.last and group.holed:
        added["holes"] = number
    if group.kind != EVENT:
        return added
    if group.last and group.deleted:
        added["tombstones"] = number
    if group.precedes:
        added[SNAPSHOT_ROWS] = number
    if group.precedes is None:
        added[BY_ARRIVAL] = number
    if group.blind:
        added[WITHOUT_OLD_KEY] = number
    if not group.deleted and group.rounded:
        added |= {ROUNDED: number} | {f"{ROUNDED}: {column}": number for column in group.rounded.split(",")}
    return added
