"""Errors of a file system that refuses a write, reported in one sentence with a fix.

Python, delta-rs and Spark report them in different ways, but all with the message of the system (errno(3)).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fk_pipeline.errors import FkPipelineError, StorageError

_FULL, _READ_ONLY, _FORBIDDEN, _NOT_ATOMIC = "full", "read-only", "forbidden", "not atomic"

_KINDS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOSYS: _NOT_ATOMIC,
    errno.EOPNOTSUPP: _NOT_ATOMIC,
    errno.EXDEV: _NOT_ATOMIC,
}
_SENTENCES = {os.strerror(number): kind for number, kind in _KINDS.items()}
_OF_RUST = re.compile(r"\(os error (\d+)\)")

_MESSAGES = {
    _FULL: ("the disk is full", "free space there ('fk-pipeline compact' removes what nothing needs any more)"),
    _READ_ONLY: ("the file system is read-only", "mount it so that it can be written"),
    _FORBIDDEN: ("this user lacks a permission", "grant it, or run the command as another user"),
    _NOT_ATOMIC: (
        "the file system cannot put a file into its place in one step",
        "move the warehouse to a local disk or to S3 (s3a://): commits are files that appear as a whole",
    ),
}


def refusal(error: BaseException, place: str, where: str = "") -> StorageError | None:
    """Returns a `StorageError` for an error in which a file system refused a write; None for any other error.

    Args:
        error: an error of Python, delta-rs, or Spark.
        place: the folder that was written to, in case the error names no file; empty if it is not known.
        where: the pipeline, stage and batch, as far as they are known.
    """
    if isinstance(error, FkPipelineError):
        return None
    details = _details(error)
    if details is None:
        return None
    kind, message, file = details
    what, fix = _MESSAGES[kind]
    if place and (not file or file.startswith(place)):
        fix += "; or name another 'warehouse' in the pipeline file"
    return StorageError(
        f"{what}: {message}",
        where=f"{where}: {file or place}" if where else file or place,
        why="nothing wrong was stored; what was not finished stays due",
        fix=fix,
    )


@contextmanager
def telling_refusals(place: str) -> Iterator[None]:
    """Replaces an error in which a file system refused a write by a `StorageError`; other errors pass unchanged.

    Raises:
        StorageError: a file system refused a write.
    """
    try:
        yield
    except Exception as error:
        refused = refusal(error, place)
        if refused is None:
            raise
        raise refused from error


def _details(error: BaseException) -> tuple[str, str, str] | None:
    """Returns the kind of refusal, the message of the system, and the file if the error names one; None for others."""
    if isinstance(error, OSError) and error.errno in _KINDS:
        names: list[Any] = [name for name in (error.filename, error.filename2) if name is not None]
        return _KINDS[error.errno], os.strerror(error.errno), os.fsdecode(names[-1]) if names else ""
    text = str(error)
    number = _OF_RUST.search(text)
    if number is not None and int(number[1]) in _KINDS:
        return _KINDS[int(number[1])], os.strerror(int(number[1])), ""
    if type(error).__module__.split(".")[0] not in ("pyspark", "py4j"):
        return None
    for sentence, kind in _SENTENCES.items():
        match = re.search(rf"(?:(?:file:)?(/[^\n:()]+?)[ :]+\(?)?\b{sentence}", text)
        if match is not None and (match[1] or kind != _FORBIDDEN):  # Spark reads with other permissions than it writes
            return kind, sentence, match[1] or ""
    return None
