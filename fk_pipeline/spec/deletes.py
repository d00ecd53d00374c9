"""Recognises names of fields in which sources mark a row as deleted, for formats that do not define such a mark."""

from __future__ import annotations

import re

_OPERATION = re.compile(r"_*(op|operation|change_?type)", re.IGNORECASE)
_ACTION = re.compile(r"_*action", re.IGNORECASE)
_FLAG = re.compile(r"_*(is_?)?(soft_?)?(deleted?|removed|tombstone)(_?(flag|ind|indicator|fl|yn))?_*", re.IGNORECASE)
_MOMENT = re.compile(r"_*(is_?)?(soft_?)?(deleted?|removed)_?(at|on|date|time|ts|timestamp|datetime)", re.IGNORECASE)


def names_operation(name: str) -> bool:
    """Returns whether a name is typical for the field of the operation: `op`, `operation`, `_change_type`, `action`."""
    return bool(_OPERATION.fullmatch(name) or _ACTION.fullmatch(name))


def names_delete(name: str) -> bool:
    """Returns whether a name is typical for the mark of a deleted row: `is_deleted`, `_delete`, `deleted_at`."""
    return bool(_FLAG.fullmatch(name) or _MOMENT.fullmatch(name))


def names_moment(name: str) -> bool:
    """Returns whether a name is typical for the time at which a row was deleted: `deleted_at`."""
    return bool(_MOMENT.fullmatch(name))


def may_say_deletes(name: str) -> bool:
    """Returns whether the name alone suggests that a field marks deletes; `action` has too many meanings."""
    return bool(_OPERATION.fullmatch(name)) or names_delete(name)
