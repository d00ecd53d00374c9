"""The instructions of a subscription message, as KIP-213 names them, and when the engine sends which.

Kafka's own table of left changes is larger; the engine needs one rule for every change of a key that was seen before,
because its stages may run at any time (`docs/architecture.md`, rule 4).
"""

from __future__ import annotations

DELETE_KEY_NO_PROPAGATE = "DELETE_KEY_NO_PROPAGATE"
"""To the old foreign key when it changes: unsubscribe, no answer. Implied by `_fk_previous_fk_*` of a store row."""

DELETE_KEY_AND_PROPAGATE = "DELETE_KEY_AND_PROPAGATE"
"""The row was deleted or lost its foreign key: unsubscribe and answer with null."""

PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE"
"""Subscribe; answer with the right row, or with null where there is none."""

PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE"
"""Subscribe; answer only if the right row exists. Safe only for a left key that was never seen before."""


def instruction_sql(*, seen: str, deleted: str, fk_null: str, had_fk: str, inner: bool) -> str:
    """SQL (STRING, null = no message) for the instruction of a left change.

    Args:
        seen: SQL condition, a version of the left key was applied before.
        deleted: SQL condition, the new version is a tombstone.
        fk_null: SQL condition, the new version has no foreign key (a tombstone has none).
        had_fk: SQL condition, the version before had a foreign key.
        inner: the join type; it matters only for a key never seen before.
    """
    never_seen = (
        f"CASE WHEN {fk_null} THEN NULL ELSE '{PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE}' END"
        if inner
        else f"CASE WHEN {deleted} THEN NULL ELSE '{PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE}' END"
    )
    return (
        f"CASE WHEN NOT ({seen}) THEN {never_seen} "
        f"WHEN ({deleted}) OR (({fk_null}) AND ({had_fk})) THEN '{DELETE_KEY_AND_PROPAGATE}' "
        f"ELSE '{PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE}' END"
    )


def engine_messages(
    inner: bool, seen: bool, old: bytes | None, exists: bool, new: bytes | None
) -> list[tuple[bytes | None, str]]:
    """The messages of a left change by `instruction_sql`, as (foreign key, instruction) in the order they count.

    Args:
        inner: the join type.
        seen: a version of the left key was applied before, a tombstone perhaps.
        old: the foreign key of the version before; null where it had none.
        exists: there is a row now.
        new: its foreign key; null where it has none.
    """
    if not seen:
        if inner:
            return [(new, PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)] if new is not None else []
        return [(new, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)] if exists else []
    if not exists or (new is None and old is not None):
        return [(old, DELETE_KEY_AND_PROPAGATE)]
    unsubscribe = [(old, DELETE_KEY_NO_PROPAGATE)] if old is not None and old != new else []
    return [*unsubscribe, (new, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]
