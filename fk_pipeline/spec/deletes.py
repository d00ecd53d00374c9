"""Names of fields by which sources say that a row is deleted, where their format does not say it."""

from __future__ import annotations

import re

_OPERATION = re.compile(r"_*(op|operation|change_?type)", re.IGNORECASE)
_ACTION = re.compile(r"_*action", re.IGNORECASE)
_FLAG = re.compile(r"_*(is_?)?(soft_?)?(deleted?|removed|tombstone)(_?(flag|ind|indicator|fl|yn))?_*", re.IGNORECASE)
_MOMENT = re.compile(r"_*(is_?)?(soft_?)?(deleted?|removed)_?(at|on|date|time|ts|timestamp|datetime)", re.IGNORECASE)


def names_operation(name: str) -> bool:
    """Whether a field is called as one that says what a row does: `op`, `operation`, `_change_type`, `action`."""
    return bool(_OPERATION.fullmatch(name) or _ACTION.fullmatch(name))


def names_delete(name: str) -> bool:
    """Whether a field is called as one that says that a row is deleted: `is_deleted`, `_delete`, `deleted_at`."""
    return bool(_FLAG.fullmatch(name) or _MOMENT.fullmatch(name))


def names_moment(name: str) -> bool:
    """Whether a field is called as the time at which a row was deleted: `deleted_at`."""
    return bool(_MOMENT.fullmatch(name))


def may_say_deletes(name: str) -> bool:
    """Whether the name alone is enough to ask about a field; `action` is a word of many businesses."""
    return bool(_OPERATION.fullmatch(name)) or names_delete(name)
