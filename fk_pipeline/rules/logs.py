"""Rules for the changelog of one side of any join: one valid row per key and batch, with its own hash.

`docs/reference/expectations.md` lists them; see also `docs/architecture.md`, rules 1 and 7.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import hashed
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.identity import Side
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.scan import Counted, Rule, View, hex_of, json_of, only_one, with_copies
from fk_pipeline.rules.suites import HOLES
from fk_pipeline.spec import PipelineSpec, SideSpec, quote
from fk_pipeline.store import schemas as s

TRUNCATES = f"({s.DELETED} AND COALESCE(LEFT(LOWER({s.OP}), 1), '') = 't')"
"""SQL (BOOLEAN): the row is a truncate, that is, it deletes every key."""


def changelog_view(log: DataFrame, spec: PipelineSpec, side: Side, counted: Counted, prefix: str = "") -> View:
    """Returns the view that checks each row of a changelog by itself, and the number of rows per batch.

    Args:
        log: the changelog, or some batches of it.
        spec: the pipeline.
        side: the side of the changelog.
        counted: the number of rows that each batch should have.
        prefix: the prefix of the names of the rules.
    """
    side_spec = spec.side(side)
    keys = [quote(name) for name in side_spec.stored_key]
    stored = log.select("*", F.col(s.HASH).alias("_fk_stored"))
    rows = with_copies(hashed(stored, spec, side), [s.BATCH, TRUNCATES, *keys])
    nulls = " OR ".join(f"{key} IS NULL" for key in keys)
    some = " OR ".join(f"{key} IS NOT NULL" for key in keys)
    order = [f"{s.SEQUENCE}.{quote(name)} IS NOT NULL" for name in log.select(f"{s.SEQUENCE}.*").columns]
    rules = [
        only_one(f"{prefix}one_row_per_key_and_batch"),
        Rule(
            f"{prefix}no_null_key",
            f"IF({TRUNCATES}, {some}, {nulls})",
            f"CONCAT(IF({TRUNCATES}, 'a truncate ', 'a row '), {json_of(*keys)})",
            f"IF({TRUNCATES}, 'no key', 'a key')",
            may_be_pending=False,
        ),
        Rule(
            f"{prefix}sequence_is_present",
            f"NOT ({s.SEQUENCE} IS NOT NULL AND ({' OR '.join(order)}))",
            "'none'",
            "'a sequence'",
            may_be_pending=False,
        ),
        Rule(
            f"{prefix}hash_is_that_of_the_row",
            f"NOT (_fk_stored <=> {s.HASH})",
            hex_of("_fk_stored"),
            hex_of(s.HASH),
            may_be_pending=False,
        ),
        Rule(
            f"{prefix}no_payload_in_a_tombstone",
            f"{s.DELETED} IS NULL OR ({s.DELETED} AND ({has_values(side_spec)}))",
            f"CONCAT('deleted ', COALESCE(CAST({s.DELETED} AS STRING), 'null'))",
            "'no values'",
            may_be_pending=False,
        ),
    ]
    if format_of(side_spec).has_holes:
        read = f"FROM_JSON({s.HOLES}, 'ARRAY<STRUCT<column: STRING, batch: INT>>')"
        lacks = f"FILTER({read}, _hole -> _hole.batch IS NULL)"
        names = f"CONCAT('no ', ARRAY_JOIN(TRANSFORM({lacks}, _hole -> _hole.column), ', '))"
        rules.append(Rule(f"{prefix}{HOLES}", f"SIZE({lacks}) > 0", names, "'an older version with it'"))
    key = f"STRUCT({s.BATCH} AS batch, {', '.join(keys)})"
    return View(rows, key, s.BATCH, tuple(rules), counted=(counted,))


def has_values(side: SideSpec) -> str:
    """SQL (BOOLEAN): a row of a side has a value in a column outside its key."""
    return " OR ".join(f"{c.quoted} IS NOT NULL" for c in side.value_columns) or "FALSE"


def ledger_counts(name: str, reader: CheckReader, *counts: str) -> Counted:
    """Returns the number of rows that each batch of a log should have, as the ledger counted them at the write.

    Args:
        name: the name of the expectation.
        reader: the reader of the tables that are checked.
        counts: the counts of the stage whose sum is the number of rows; default: all counts.
    """
    states = {int(batch): reader.ledger.state(reader.stage, batch) for batch in reader.known}
    rows = {
        batch: sum(number for count, number in state.counts.items() if not counts or count in counts)
        for batch, state in states.items()
        if state.succeeded is not None
    }
    return Counted(name, rows, reader.folded.union(map(int, reader.due[reader.stage])))
