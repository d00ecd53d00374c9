"""Classifies errors of Spark and delta-rs, and describes each in one sentence."""

from __future__ import annotations

import re

_BRANCH = re.compile(r"\s*\n\s*(?:\x1b\[[0-9;]*m)*↳(?:\x1b\[[0-9;]*m)*\s*")
"""The separator that delta-rs writes before a cause."""

_JAVA = re.compile(r"((?:\w+\.)+\w+(?:Exception|Error))(?=:|$)")
"""The name of the Java class at the beginning of a message."""


def is_from_spark(error: Exception) -> bool:
    """Returns whether Spark, or the gateway to it, raised the error."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def is_conflict(error: Exception) -> bool:
    """Returns whether the cause is that another writer committed to the table, or created it, in the meantime."""
    signs = ("DELTA_CONCURRENT", "ConcurrentModification", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED")
    return type(error).__name__ == "CommitFailedError" or any(sign in str(error) for sign in signs)


def is_of_a_file(error: Exception) -> bool:
    """Returns whether the cause is that Spark could not read a file."""
    return "FAILED_READ_FILE" in str(error)


def is_of_values(error: Exception) -> bool:
    """Returns whether the cause is that values do not fit an expression, as an overflow (SQL state 22...)."""
    state = getattr(error, "getSqlState", lambda: None)()
    return state is not None and state.startswith("22")


def comes_again(error: Exception) -> bool:
    """Returns whether Spark says of the plan or of the rows that they cannot be computed, so that it will say so again.

    Spark's condition has a class of SQL states then: a feature, a cardinality, data, a constraint, syntax or a name, a
    limit. A path that is not found is not among them: it was there when the run looked.
    """
    state = getattr(error, "getSqlState", lambda: None)() or ""
    return state[:2] in ("0A", "21", "22", "23", "42", "54") and state != "42K03"


def root_message(error: Exception) -> str:
    """Returns the first line of the innermost cause; for delta-rs, which prints a tree of causes, all in one line."""
    text = str(error).strip()
    if _BRANCH.search(text):
        return ": ".join(part.strip() for part in _BRANCH.split(text))
    for line in text.splitlines():
        if line.startswith("Caused by:"):
            text = line.removeprefix("Caused by:").strip()
    return text.splitlines()[0] if text else type(error).__name__


def kind_of(error: Exception) -> str:
    """Returns the kind of an error without its message: Spark's error condition in brackets, else the class."""
    condition = getattr(error, "getCondition", lambda: None)()
    if condition:
        return f"[{condition}]"
    java = _JAVA.match(root_message(error))
    return java[1] if java else type(error).__name__
