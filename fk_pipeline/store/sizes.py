"""The sizes at which the engine takes another physical way to read or to write. Every way leaves the same rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass

UNKNOWN = sys.maxsize
"""An upper bound of rows where none is known."""


@dataclass(frozen=True)
class Sizes:
    """Measured on two cores (`docs/benchmark.md`, and the record that an attribute names). Tests hand in others.

    Rows and keys in the driver, the Python process beside Spark's own:

    Attributes:
        driver_rows: a frame of at most so many rows is brought there: a MERGE from a local relation saves several jobs.
        driver_bytes: so many bytes of it at most, as its rows are stored in files.
        driver_keys: keys of which the driver finds the rows itself, where Spark runs in this machine (ADR 0020).
        batch_rows: rows of the files from which it reads those of some batches.
        scanned_bytes: of the wanted columns, in files that it looks through for any keys.
        scanned_rows_per_key: rows that it looks through for every key in more than these; Spark would read a page for
            each key, which takes as long as ten by Arrow.
        found_bytes: of the rows that it finds: a key may have any number of versions.
        decoded_rows: rows that are decoded before the wanted ones are taken.
        decoded_bytes: the same in bytes, as far as a file tells how wide its rows are.

    Conditions that leave files and pages unread (ADR 0008, 0020):

    Attributes:
        sent_bytes: memory for keys that are sent to where a table is read.
        listed_keys: single keys in a condition. The session lets Parquet skip pages by so many (`settings.always`); for
            more it takes longer to find the pages than to read them all, and several thousands nest too deep for the
            stack of a thread.
        intervals: intervals of keys in a condition. Every row of the pages that are read is compared with all of them.
        named_numbers: integer keys that a commit names.
        named_texts: string keys that a commit names.
        named_bytes: of the keys that a commit names, as the log of the table keeps them. JSON readers refuse texts of
            20 megabytes.
        keys_per_bucket: of keys that are named in buckets: a row is compared with those of one bucket.

    How a stage goes about its work (ADR 0005, 0008):

    Attributes:
        small_rows: rows of all tables that a stage reads and writes, up to which `settings.SMALL` is quicker.
        many_rows: rows of the result that a batch concerns, above which `settings.FEW` partitions are too few.
        small_bytes: landing files up to which `settings.SMALL` is quicker, and their rows are brought to the driver.
        compressed_bytes: the same of compressed files: `driver_rows` of 40 bytes each.
        broadcast_bytes: of a right table of about a million rows. Up to it Spark may hold that table in memory rather
            than sort the other one. Its own limit is ten megabytes.
        small_change: changed rows up to which looking them up is the quicker way in a table of any size.
        named_share: in place of a stage's `full_share`, where a commit names the keys of all rows and needs no MERGE.
        indexed_rows: rows of a state from which on an index finds its rows by another key.

    Files (ADR 0008):

    Attributes:
        deletion_vector_rows: rows that deletion vectors mark: up to so many are left out by a literal or a join;
            Delta does it for more.
        mark_words: words of that literal.
        rows_per_file: of a table that is written in the order of its keys.
        sorted_rows: more changed rows are sorted by their keys before they are written.
        rows_per_page: of the Parquet files that we write; pages are what a look-up of single keys reads. Parquet's own
            size is 20,000.
    """

    driver_rows: int = 20_000
    driver_bytes: int = 16 * 2**20
    driver_keys: int = 200_000
    batch_rows: int = 200_000
    scanned_bytes: int = 128 * 2**20
    scanned_rows_per_key: int = 20_000
    found_bytes: int = 256 * 2**20
    decoded_rows: int = 128 * 1024
    decoded_bytes: int = 32 * 2**20

    sent_bytes: int = 64_000_000
    listed_keys: int = 1_000
    intervals: int = 32
    named_numbers: int = 1_000_000
    named_texts: int = 100_000
    named_bytes: int = 10_000_000
    keys_per_bucket: int = 8

    small_rows: int = 200_000
    many_rows: int = 200_000
    small_bytes: int = 8_000_000
    compressed_bytes: int = 1_000_000
    broadcast_bytes: int = 64 * 2**20
    small_change: int = 20_000
    named_share: float = 0.12
    indexed_rows: int = 500_000

    deletion_vector_rows: int = 200_000
    mark_words: int = 1_000
    rows_per_file: int = 500_000
    sorted_rows: int = 20_000
    rows_per_page: int = 2_000


MEASURED = Sizes()
"""The sizes that users get."""
