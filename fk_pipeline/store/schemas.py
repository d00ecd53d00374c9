"""The building blocks of the tables of every kind: `Table`, the columns that the engine adds, changelog, quarantine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fk_pipeline.spec import Column, SideSpec, inputs, quote

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
WHERE_FAILS = f"COALESCE(GET_JSON_OBJECT(CAST({HOLES} AS STRING), '$[0].where_fails') = 'true', FALSE)"
"""SQL (BOOLEAN, never null) over a row of a changelog with `HOLES`: `where` fails on it, once it was filled."""
VALID_FROM = inputs.SINCE

OWNER = "_fk_owner"
APPLIED_IN = "_fk_applied_in"
SEEN_BEFORE = "_fk_seen_before"

CAUSE = "_fk_cause"
LEFT_HASH = "_fk_left_hash"
RIGHT_HASH = "_fk_right_hash"
CHANGED_AT = "_fk_changed_at"

SIDE = "_fk_side"
LINE = "_fk_line"
REASON = "_fk_reason"
RAW = "_fk_raw"

QUARANTINE = "quarantine"

MEANING = {
    BATCH: "the batch",
    GENERATION: "counts how often the batch was written with other content",
    SEQUENCE: "the order of the versions of a key",
    OP: "the operation, as Debezium writes it: `c`, `u`, `r`, `d`, for plain rows also `i`; of a truncate `t`",
    DELETED: "the event is a tombstone",
    EVENTS: "events of the key in the batch, this one included",
    FILE: "the landing file that it came from",
    HOLES: "the columns that the source did not send, as JSON",
    OLD_KEY: "of a row with unavailable values: the key that it had when the batch began, as JSON",
    OWNER: "the batch that brought the current version; null if no version is left",
    SEEN_BEFORE: "a version of the key had been applied before the last propagated change",
    APPLIED_IN: "the batch whose processing last changed the content",
    CHANGED_AT: "when the row was last written",
    SIDE: "`left` or `right`: the side that the line came in on; `join`: a pair of rows",
    LINE: "the line, from 1; null for a pair",
    RAW: 'the line as it is, or as it was corrected; for a pair `{"left", "right"}` as JSON',
    REASON: "why it could not be used; without the values of sensitive columns",
}
"""Of columns that mean the same in the tables of every kind: a few words for people. A kind may say more."""


DELETION_VECTORS = "delta.enableDeletionVectors"

CHANGE_FEED = "delta.enableChangeDataFeed"

COMMENT = "comment"
"""The metadata of a column with its comment."""

STATISTICS = "delta.dataSkippingStatsColumns"

MERGED = {DELETION_VECTORS: "true"}
"""Delta properties of a table with MERGEs: a MERGE writes the rows that it replaces into deletion vectors, and
does not rewrite their files (ADR 0008).
"""


@dataclass(frozen=True)
class Table:
    """A Delta table of a pipeline: its name, columns (name, DDL type) in order, and Delta properties.

    `keys` are the columns by which a MERGE identifies a row. Those in `nullable_keys` may be null: two rows have the
    same key if they are null in the same columns and equal in the others. `either` are the two parts of such a key, if
    every row has values in one part and nulls in the other.

    `identity` are the columns that identify a row for its readers, if these are not the keys.

    `skip_by` are the columns with statistics, by which files are skipped: those that the engine filters by, which come
    before any struct, because delta-rs returns no statistics of columns after one; and of the result those that its
    readers filter by (ADR 0060).

    `sensitive` are the columns whose values may be in the files of the table, but in no predicate.

    `description` and `comments`, the latter per column, are for people who find the table. A table has them in its
    metadata since it was created, or since the last `compact`.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    skip_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    sensitive: frozenset[str] = frozenset()
    nullable_keys: frozenset[str] = frozenset()
    either: tuple[tuple[str, ...], ...] = ()
    identity: tuple[str, ...] = ()
    description: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)

    def same_key(self, alias: str, other: str) -> str:
        """SQL (BOOLEAN), for Spark and DataFusion: two rows have the same key; the arguments are their aliases."""
        equal = {True: "IS NOT DISTINCT FROM", False: "="}
        return " AND ".join(
            f"({alias}.{quote(key)} {equal[key in self.nullable_keys]} {other}.{quote(key)})" for key in self.keys
        )

    @property
    def delta_properties(self) -> dict[str, str]:
        """The Delta properties of the table when Spark writes to it."""
        return {**self.statistics, "delta.checkpointInterval": "50", **self.properties}

    @property
    def statistics(self) -> dict[str, str]:
        """The Delta property that names the columns with statistics."""
        return {STATISTICS: ",".join(map(quote, self.skip_by))} if self.skip_by else {}

    @property
    def small_properties(self) -> dict[str, str]:
        """The Delta properties of the table while the driver rewrites its files: no deletion vectors (ADR 0030)."""
        return {name: value for name, value in self.delta_properties.items() if name != DELETION_VECTORS}

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return [name for name, _ in self.columns]

    @property
    def ddl(self) -> str:
        """The columns as Spark DDL."""
        return ", ".join(f"{quote(name)} {dtype}" for name, dtype in self.columns)


def typed_columns(columns: Sequence[Column]) -> tuple[tuple[str, str], ...]:
    """Returns columns of the pipeline file as columns of a table: (name, type)."""
    return tuple((c.name, c.type) for c in columns)


def changelog_table(name: str, side: SideSpec, sequence: str, has_holes: bool, time: str = "") -> Table:
    """Returns the changelog of an input: one row per key and batch, the last event, with the whole row and its hash.

    With `valid_from` it has one row per key, time since which the row holds, and batch; `time` is the type of the time.
    """
    since = ((VALID_FROM, time),) if side.valid_from is not None else ()
    extra = ((HOLES, "STRING"), (OLD_KEY, "STRING")) if has_holes else ()
    return Table(
        name,
        (
            (BATCH, "INT"),
            *typed_columns(side.key_columns),
            *since,
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
        skip_by=(BATCH, *(c.name for c in side.key_columns if has_statistics(c.type)), *(name for name, _ in since)),
    )


def has_statistics(dtype: str) -> bool:
    """Returns whether Delta keeps minimum and maximum of a type: not of BINARY and BOOLEAN."""
    return dtype.upper() not in ("BINARY", "BOOLEAN")


_FILTERED_BY = re.compile(
    r"DATE|TIMESTAMP|TINYINT|BYTE|SMALLINT|SHORT|INT|INTEGER|BIGINT|LONG|FLOAT|REAL|DOUBLE"
    r"|(DECIMAL|DEC|NUMERIC)\s*(\(.*\))?|STRING",
    re.IGNORECASE,
)


def is_filtered_by(dtype: str) -> bool:
    """Returns whether people filter by values of a type, and all writers and readers agree on its bounds.

    They do not on those of TIMESTAMP_NTZ, and of texts with a collation.
    """
    return _FILTERED_BY.fullmatch(dtype.strip()) is not None


def skippable(columns: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Returns the names of the columns by which files can be skipped."""
    return tuple(name for name, dtype in columns if has_statistics(dtype))


def version_columns(sequence: str) -> tuple[tuple[str, str], ...]:
    """Returns the columns that identify the version of a row of a state."""
    return (
        (OWNER, "INT"),
        (GENERATION, "INT"),
        (APPLIED_IN, "INT"),
        (SEEN_BEFORE, "BOOLEAN"),
        (HASH, "BINARY"),
        (SEQUENCE, sequence),
    )


def quarantine_table() -> Table:
    """Returns the quarantine: one row per record that could not be used, with its place, the reason and its raw text.

    Side is `left` or `right` for a line of a landing file, and `join` for a pair of rows on which `select` fails.
    """
    return Table(
        QUARANTINE,
        ((SIDE, "STRING"), (BATCH, "INT"), (FILE, "STRING"), (LINE, "BIGINT"), (REASON, "STRING"), (RAW, "STRING")),
        partition_by=(SIDE,),
    )
