"""Error types. Each says what happened, where, why it matters and which command comes next.

`exit_code` is what the command returns for the error: 1 the data is wrong, 2 wrong usage or configuration,
3 the environment is not fit.

What is printed may have names and values from outside: `escaped` shows their control characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Answer = TypeVar("Answer")

CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # of a terminal: they move its cursor, change its colours, or send it commands
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # of direction (Bidi_Control): text is shown in another order
    "\u2028\u2029\ud800-\udfff]"  # ends of lines, and what no stream can write
)
"""Matches one control character, in the wide sense."""


def escaped(text: str, keep: str = "") -> str:
    r"""Returns a text with its control characters as `\x1b`, `\u202e` or `\n`: a terminal shows and does not obey them.

    Args:
        text: any text.
        keep: characters that stay, for example line feeds.

    >>> print(escaped("red \x1b[31m, \u202e, two\nlines"), escaped("two\nlines", keep="\n"))
    red \x1b[31m, \u202e, two\nlines two
    lines
    """
    return CONTROL.sub(lambda match: match[0] if match[0] in keep else _shown(ord(match[0])), text)


def _shown(code: int) -> str:
    if code == ord("\n"):
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class LeftToSpark(Exception):
    """This process cannot read the requested rows, or not certainly as Spark reads them; the text says why."""


def or_by_spark(local: Callable[[], Answer], by_spark: Callable[[], Answer], tell: Callable[[str], None]) -> Answer:
    """Returns what is read in this process; or else, after `tell` is called with the reason, what Spark reads."""
    try:
        return local()
    except LeftToSpark as left:
        why = str(left)
    tell(why)  # not in the handler: that error is not the context of one of Spark
    return by_spark()


class FkPipelineError(Exception):
    """Base of every error a user can meet.

    Args:
        what: what happened, one sentence.
        where: pipeline, stage, batch, file and line: as much as is known.
        why: why it matters, or what state is left.
        fix: what would be right, or the next command.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        self.what, self.where, self.why, self.fix = what, where, why, fix
        super().__init__(what)

    def __str__(self) -> str:
        what = escaped(self.what, keep=self._ends_lines)
        parts = [f"{escaped(self.where)}: {what}" if self.where else what]
        if self.why:
            parts.append(escaped(self.why))
        if self.fix:
            parts.append(f"Fix: {escaped(self.fix)}")
        return "\n  ".join(parts)

    _ends_lines = ""


class PipelineFileError(FkPipelineError):
    """The pipeline file says something that cannot be run; `where` is `file:line`. Nothing was written."""

    exit_code = 2
    _ends_lines = "\n"  # each of several mistakes has a line


class CaseFileError(FkPipelineError):
    """A file of a pipeline's own cases is wrong; `where` is `file:line`. No case was run."""

    exit_code = 2
    _ends_lines = "\n"


class UsageError(FkPipelineError):
    """The command was called with something it does not understand."""

    exit_code = 2


class EnvironmentNotFit(FkPipelineError):
    """Java, the Delta JARs, a version or a permission is missing, or no Spark is where it is said to be."""

    exit_code = 3


class MessageFormatError(FkPipelineError):
    """Bytes are no message or key of the join protocol, or one of a version that cannot be read."""


class LandingError(FkPipelineError):
    """A landing file cannot be assigned to a batch or cannot be read any more."""


class UnreadableFileError(LandingError):
    """A snapshot cannot be read to its end: rows that are not read would be deleted. Other files are quarantined."""


class HeldBackError(LandingError):
    """A file was left out, because another file of its batch is gone; everything else was done.

    `done` is what a run did before it said so.
    """

    done: Sequence[Any] = ()


class SchemaChangedError(FkPipelineError):
    """The rows of a source have other fields than before, and `schema_changes` is `fail`."""


class BadRecordError(FkPipelineError):
    """`on_bad_record: fail` and a batch holds a record that cannot be applied. The batch stays due."""


class UnsupportedEventError(FkPipelineError):
    """The change stream holds an event that the pipeline cannot apply without giving a wrong result."""


class StageError(FkPipelineError):
    """A stage failed. Its batches stay due; running it again repairs whatever it had committed."""


class SparkEndedError(StageError):
    """Spark ended while it computed: its Java process died, or its server is gone. The next call starts it anew."""

    exit_code = 3


class ConcealedError(FkPipelineError):
    """Something failed, and its message may quote values of sensitive columns: only its kind is told."""


class StateError(FkPipelineError):
    """The warehouse does not fit the pipeline file or this version, and a run would mix both."""


class StorageError(FkPipelineError, OSError):
    """A disk or an object store does not do what it is asked for: full, read-only, no permission, no answer."""

    exit_code = 3


class LeaseTakenError(FkPipelineError):
    """Another run holds the stage: one run of a stage of a pipeline at a time (architecture, rule 8)."""


class LeaseLostError(FkPipelineError):
    """A run was not heard of for so long that another may have taken its stage over; it committed nothing more."""


class CheckFailedError(FkPipelineError):
    """A batch failed a critical check: what comes after it does not run for it until it is mended or waived.

    `done` is what a run did before it said so.
    """

    done: Sequence[Any] = ()


class FanOutError(CheckFailedError):
    """A batch would touch more rows of the result than `max_fan_out`, and nobody agreed to that.

    `values` are by batch the rows that it would touch; the ledger has them as failed checks.
    """

    values: Mapping[int, int] = {}


class ExpectationNotRunError(FkPipelineError):
    """Great Expectations could not evaluate an expectation: whether it holds is not known."""
