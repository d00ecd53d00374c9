"""The instructions of a subscription message, as KIP-213 names them, and when the engine sends each.

Kafka's own table of left changes is larger. The engine uses one rule for every change of a key that was seen before,
because its stages may run at any time (`docs/architecture.md`, rule 4).
"""

from __future__ import annotations

DELETE_KEY_NO_PROPAGATE = "DELETE_KEY_NO_PROPAGATE"
"""To the old foreign key when it changes: unsubscribe, no response. Implied by `_fk_previous_fk_*` of a store row."""

DELETE_KEY_AND_PROPAGATE = "DELETE_KEY_AND_PROPAGATE"
"""The row was deleted or lost its foreign key: unsubscribe and respond with null."""

PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE"
"""Subscribe; respond with the right row, or with null if there is none."""

PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE"
"""Subscribe; respond only if the right row exists. Safe only for a left key that was never seen before."""


def instruction_sql(*, seen: str, deleted: str, fk_null: str, had_fk: str, inner: bool) -> str:
    """SQL (STRING): the instruction of a left change; null if no message is sent.

    Args:
        seen: SQL condition: a version of the left key was applied before.
        deleted: SQL condition: the new version is a tombstone.
        fk_null: SQL condition: the new version has no foreign key (a tombstone has none).
        had_fk: SQL condition: the version before had a foreign key.
        inner: whether the join is an inner join; it matters only for a key never seen before.
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
    """Returns the messages of a left change by the rule of `instruction_sql`, as (foreign key, instruction) in order.

    Args:
        inner: whether the join is an inner join.
        seen: whether a version of the left key, a row or a tombstone, was applied before.
        old: the foreign key of the version before; None if it had none.
        exists: whether the row exists after the change.
        new: the foreign key of that row; None if it has none.
    """
    if not seen:
        if inner:
            return [(new, PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)] if new is not None else []
        return [(new, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)] if exists else []
    if not exists or (new is None and old is not None):
        return [(old, DELETE_KEY_AND_PROPAGATE)]
    unsubscribe = [(old, DELETE_KEY_NO_PROPAGATE)] if old is not None and old != new else []
    return [*unsubscribe, (new, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]
