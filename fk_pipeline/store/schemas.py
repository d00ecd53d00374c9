"""What the tables of any kind are made of: a table, columns that the engine writes, a changelog, the quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fk_pipeline.spec import Column, SideSpec, quote

BATCH = "_fk_batch"
GENERATION = "_fk_generation"
SEQUENCE = "_fk_sequence"
OP = "_fk_op"
DELETED = "_fk_deleted"
HASH = "_fk_hash"
EVENTS = "_fk_events"
FILE = "_fk_file"
HOLES = "_fk_holes"
OLD_KEY = "_fk_old_key"

OWNER = "_fk_owner"
APPLIED_IN = "_fk_applied_in"
SEEN_BEFORE = "_fk_seen_before"

CHANGED_AT = "_fk_changed_at"

SIDE = "_fk_side"
LINE = "_fk_line"
REASON = "_fk_reason"
RAW = "_fk_raw"

QUARANTINE = "quarantine"


MERGED = {"delta.enableDeletionVectors": "true"}
"""A MERGE marks the rows that it replaces, where it would write their whole files anew (ADR 0008)."""


@dataclass(frozen=True)
class Table:
    """A Delta table of a pipeline: its name, columns (name, DDL type) in order, and Delta properties.

    `keys` are the columns that a MERGE identifies a row by.

    `skip_by` are the columns that files are skipped by; they stand before any struct, because delta-rs gives no
    statistics of what comes after one. Statistics of all others would cost every commit and every read and help nobody.

    `sensitive` are the columns whose values stand in the files of the table and in no predicate.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    skip_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    sensitive: frozenset[str] = frozenset()

    @property
    def delta_properties(self) -> dict[str, str]:
        """What the table is created with."""
        skipping = {"delta.dataSkippingStatsColumns": ",".join(map(quote, self.skip_by))} if self.skip_by else {}
        return {**skipping, "delta.checkpointInterval": "50", **self.properties}

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return [name for name, _ in self.columns]

    @property
    def ddl(self) -> str:
        """The columns as Spark DDL."""
        return ", ".join(f"{quote(name)} {kind}" for name, kind in self.columns)


def typed_columns(columns: Sequence[Column]) -> tuple[tuple[str, str], ...]:
    """Columns of the pipeline file as those of a table: (name, type)."""
    return tuple((c.name, c.type) for c in columns)


def changelog_table(
    name: str, side: SideSpec, sequence: str, extra: tuple[tuple[str, str], ...], has_holes: bool
) -> Table:
    """The changelog of an input: one row per key and batch, the last event, with the whole row and its hash."""
    if has_holes:
        extra = (*extra, (HOLES, "STRING"), (OLD_KEY, "STRING"))
    return Table(
        name,
        (
            (BATCH, "INT"),
            *typed_columns(side.key_columns),
            (GENERATION, "INT"),
            (OP, "STRING"),
            (DELETED, "BOOLEAN"),
            (HASH, "BINARY"),
            (EVENTS, "BIGINT"),
            (FILE, "STRING"),
            *extra,
            (SEQUENCE, sequence),
            *typed_columns(side.value_columns),
        ),
        skip_by=(BATCH, *(c.name for c in side.key_columns if has_statistics(c.type))),
    )


def has_statistics(kind: str) -> bool:
    """Delta keeps no minimum and maximum of binary and boolean columns."""
    return kind.upper() not in ("BINARY", "BOOLEAN")


def skippable(columns: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Those of some columns that files can be skipped by."""
    return tuple(name for name, kind in columns if has_statistics(kind))


def version_columns(sequence: str) -> tuple[tuple[str, str], ...]:
    """The columns that say of a row of a state which version it is."""
    return (
        (OWNER, "INT"),
        (GENERATION, "INT"),
        (APPLIED_IN, "INT"),
        (SEEN_BEFORE, "BOOLEAN"),
        (HASH, "BINARY"),
        (SEQUENCE, sequence),
    )


def quarantine_table() -> Table:
    """One row per record that could not be used: where it stands, why, and its raw text.

    Side is `left` or `right` for a line of a landing file, and `join` for a pair of rows that `select` fails on.
    """
    return Table(
        QUARANTINE,
        ((SIDE, "STRING"), (BATCH, "INT"), (FILE, "STRING"), (LINE, "BIGINT"), (REASON, "STRING"), (RAW, "STRING")),
        partition_by=(SIDE,),
    )
