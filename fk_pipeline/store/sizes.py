"""The sizes at which the engine chooses another physical way to read or write. Every way leaves the same rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass

UNKNOWN = sys.maxsize
"""The upper bound of a number of rows that is not known."""

READERS = 2
"""The number of files that the driver reads at once. Each reader holds the wanted columns of a row group as stored (in
files of older versions up to 128 megabytes), and `Sizes.decoded_bytes` of their rows."""


@dataclass(frozen=True)
class Sizes:
    """Sizes, measured on two cores (`docs/benchmark.md`, and the record that an attribute names). Tests pass others.

    Rows and keys in the driver, the Python process beside Spark's own:

    Attributes:
        driver_rows: the most rows of a frame that is brought there: a MERGE from a local relation saves several jobs.
        driver_bytes: the most bytes of such a frame, as its rows are stored in files.
        driver_keys: the most keys whose rows the driver finds itself, where Spark runs on this machine (ADR 0020).
        batch_rows: the most rows of the files from which the driver reads those of some batches.
        scanned_bytes: bytes of the wanted columns in files that the driver scans, however few the keys are.
        scanned_rows_per_key: rows per key that the driver scans in larger files; Spark would read a page for each key,
            which takes as long as ten pages by Arrow.
        scanned_in_process: bytes of a table that a command which only looks scans itself: Spark would have to start
            (ADR 0045).
        fetched_bytes: the most bytes of files in S3 that the driver copies to its disk to look into them; a file is
            copied once (ADR 0061).
        found_bytes: the most bytes of the rows that the driver finds: a key may have any number of versions.
        decoded_rows: rows that are decoded at once, before the wanted ones are selected.
        decoded_bytes: the same limit in bytes, by the width of a row in the metadata of a file.

    Conditions that leave files and pages unread (ADR 0008, 0020):

    Attributes:
        sent_bytes: bytes of memory for keys that are sent to the readers of a table.
        listed_keys: single keys in a condition. The session lets Parquet skip pages by that many (`settings.always`);
            with more keys, finding the pages takes longer than reading them all, and several thousand nest too deep for
            the stack of a thread.
        intervals: intervals of keys in a condition. Every row of the pages that are read is compared with all of them.
        named_numbers: the most integer keys that a commit names.
        named_texts: the most string keys that a commit names.
        named_bytes: the most bytes of the keys that a commit names, as the log of the table stores them. JSON readers
            refuse texts of 20 megabytes.
        keys_per_bucket: keys per bucket, where a commit names keys in buckets: a row is compared with one bucket.

    How a stage does its work (ADR 0005, 0008):

    Attributes:
        small_rows: rows of all tables that a stage reads and writes, up to which `settings.SMALL` is quicker.
        many_rows: rows of the result that a batch concerns, above which `settings.FEW_PARTITIONS` are too few.
        small_bytes: bytes of landing files up to which `settings.SMALL` is quicker, and their rows are brought to the
            driver.
        compressed_bytes: the same limit for compressed files: `driver_rows` of 40 bytes each.
        broadcast_bytes: bytes of a right table of about a million rows. Up to this size Spark may keep that table in
            memory instead of sorting the other one. Spark's own limit is ten megabytes.
        small_change: changed rows up to which a look-up of them is quicker in a table of any size.
        named_share: used in place of a stage's `full_share` if a commit names the keys of all rows and needs no MERGE.
        indexed_rows: rows of a state from which on it has an index, which finds its rows by another key.
        unwritten_rows: messages above which they are computed with the rows that they are about, and not written, if
            they are also a tenth of the rows of the state (ADR 0062).

    Files (ADR 0008):

    Attributes:
        deletion_vector_rows: rows in deletion vectors up to which a literal or a join leaves them out; with more rows,
            Delta does.
        mark_words: the most words of that literal.
        rewritten_rows: the most rows of the files that the driver rewrites to replace some of their rows (ADR 0030).
        rewritten_bytes: the most bytes of these files.
        rows_per_file: rows per file of a table that is written in the order of its keys.
        sorted_rows: changed rows above which they are sorted by their keys before they are written.
        rows_per_page: rows per page of the Parquet files that the engine writes; a look-up of single keys reads pages.
            Parquet's own size is 20,000.
        rows_per_group: the most rows per row group of these files; the driver reads only row groups that may have a
            key (ADR 0041). Parquet's own limit is 128 megabytes.
    """

    driver_rows: int = 20_000
    driver_bytes: int = 16 * 2**20
    driver_keys: int = 200_000
    batch_rows: int = 200_000
    scanned_bytes: int = 128 * 2**20
    scanned_in_process: int = 8 * 2**30
    scanned_rows_per_key: int = 20_000
    fetched_bytes: int = 128 * 2**20
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
    unwritten_rows: int = 200_000

    deletion_vector_rows: int = 200_000
    mark_words: int = 1_000
    rewritten_rows: int = 200_000
    rewritten_bytes: int = 16 * 2**20
    rows_per_file: int = 500_000
    sorted_rows: int = 20_000
    rows_per_page: int = 2_000
    rows_per_group: int = 50_000


MEASURED = Sizes()
"""The default sizes, which users get."""
