"""The report of a comparison of landing files with changelogs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fk_pipeline.identity import Side

DIFFERENCES_NAMED = 20
"""The largest number of differences that a report names."""

COUNTED = (
    *("batches", "files", "lines", "written", "deleted", "truncated", "quarantined", "ignored"),
    *("closed", "doubtful", "rows", "differences"),
)
"""The numbers of a report."""


@dataclass(frozen=True)
class InputDifference:
    """A difference between a landing file and what was read from it.

    Attributes:
        side: the input.
        batch: the batch.
        what: the kind of difference: `value`, `operation`, `order`, `count`, `missing`, `unexpected`, `quarantine`.
        file: the file; empty if it is not known.
        line: the line or row in it; 0 if it is not known.
        key: the key, as text.
        column: the column; empty if the difference is not about one.
        landed: what the file says.
        stored: what the tables have.
    """

    side: Side
    batch: int
    what: str
    file: str = ""
    line: int = 0
    key: str = ""
    column: str = ""
    landed: str = ""
    stored: str = ""

    def as_json(self) -> dict[str, Any]:
        """Returns the difference as a JSON object, without what is not known."""
        return {name: value for name, value in vars(self).items() if value not in ("", 0) or name == "batch"}


@dataclass(frozen=True)
class NotCompared:
    """Batches of an input that were not compared, and why."""

    side: Side
    why: str
    batches: int
    files: int


@dataclass
class InputsReport:
    """The numbers of a comparison, and some differences.

    Attributes:
        batches: number of batches of an input whose files were read.
        files: number of files that were read.
        lines: number of lines and rows in them.
        written: number of records that write a row.
        deleted: number of records that delete one.
        truncated: number of records that delete every row.
        quarantined: number of records in the quarantine.
        ignored: number of ignored records.
        closed: number of keys without a row in the changelog, which may have left it: its input does not keep old rows.
        doubtful: number of records of which the documentation does not say whether they are read.
        rows: number of changelog rows that were compared.
        differences: number of differences.
        bytes_read: bytes of the files that were read.
        bytes_all: bytes of all files that could be compared.
        keys_share: whether of some batches only a share of the keys was compared.
        not_compared: the batches that were not.
        sample: the first differences.
    """

    batches: int = 0
    files: int = 0
    lines: int = 0
    written: int = 0
    deleted: int = 0
    truncated: int = 0
    quarantined: int = 0
    ignored: int = 0
    closed: int = 0
    doubtful: int = 0
    rows: int = 0
    differences: int = 0
    bytes_read: int = 0
    bytes_all: int = 0
    keys_share: bool = False
    not_compared: list[NotCompared] = field(default_factory=list)
    sample: list[InputDifference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the tables have what landed, as far as it was compared."""
        return not self.differences

    @property
    def is_sample(self) -> bool:
        """Whether some batches or keys were left out because there is much to read."""
        return self.bytes_read < self.bytes_all or self.keys_share

    def add(self, difference: InputDifference) -> None:
        """Counts a difference; keeps the first ones."""
        self.differences += 1
        if len(self.sample) < DIFFERENCES_NAMED:
            self.sample.append(difference)

    def include(self, part: InputsReport) -> None:
        """Adds the numbers and differences of a part."""
        for name in (*COUNTED, "bytes_read"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.keys_share |= part.keys_share
        self.sample += part.sample[: DIFFERENCES_NAMED - len(self.sample)]

    def counts(self) -> dict[str, int]:
        """Returns the numbers by name."""
        return {name: getattr(self, name) for name in COUNTED}

    def as_json(self) -> dict[str, Any]:
        """Returns the report as one JSON object."""
        report: dict[str, Any] = self.counts()
        if self.is_sample:
            report["sampled_bytes"], report["all_bytes"] = self.bytes_read, self.bytes_all
        if self.not_compared:
            report["not_compared"] = [vars(left_out) for left_out in self.not_compared]
        if self.sample:
            report["sample"] = [difference.as_json() for difference in self.sample]
        return report
