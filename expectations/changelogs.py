"""Rules for the changelog of one side, of whatever join: one valid row per key and batch, with its own hash.

`docs/reference/expectations.md` lists them; `docs/architecture.md`, rules 1 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.scan import ROW, Rule, View, hex_of, json_of, only_one, with_copies
from fk_pipeline.cdc.debezium import NOT_SENT
from fk_pipeline.identity import BatchRange, Side
from fk_pipeline.protocol.hashing import row_hash
from fk_pipeline.spec import PipelineSpec, SideSpec, quote
from fk_pipeline.spec.failing import fails
from fk_pipeline.tables import schemas as s

TRUNCATES = f"({s.DELETED} AND COALESCE(LEFT(LOWER({s.OP}), 1), '') = 't')"
"""SQL: the row stands for every key."""


def content_hash(spec: PipelineSpec, side: Side, log: DataFrame, foreign_key: Sequence[str] = ()) -> str:
    """SQL (BINARY): the hash of a changelog row, from the row itself; null for a tombstone.

    Args:
        spec: the pipeline.
        side: whose changelog it is.
        log: the changelog.
        foreign_key: the columns that hold the foreign key's expressions, evaluated anew.
    """
    types = {f.name: f.dataType for f in log.schema.fields}
    selected = [(c.name, types[c.name]) for c in spec.selected[side]]
    return f"IF({s.DELETED}, NULL, {row_hash([*((name, types[name]) for name in foreign_key), *selected])})"


def with_foreign_key(log: DataFrame, spec: PipelineSpec, careful: bool = False) -> DataFrame:
    """Left changelog rows with `_fk_ref_<i>`, the expressions of the foreign key evaluated anew.

    All of them are null where one is: KIP-213 has no partial foreign key.
    """
    names = [f"_fk_ref_{i}" for i in range(len(spec.left.foreign_key))]
    for name, sql in zip(names, spec.left.foreign_key, strict=True):
        failing = f" OR {fails(sql)}" if careful else ""
        log = log.withColumn(name, F.expr(f"IF({s.DELETED}{failing}, NULL, ({sql}))"))
    whole = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return log.withColumns({name: F.expr(f"IF({whole}, {name}, NULL)") for name in names})


def changelog_view(log: DataFrame, spec: PipelineSpec, side: Side, prefix: str = "", careful: bool = False) -> View:
    """The rows of a changelog, each against itself.

    Args:
        log: the changelog, or some batches of it.
        spec: the pipeline.
        side: whose changelog it is.
        prefix: what the names of the rules begin with.
        careful: an expression of the pipeline file may fail on a row.
    """
    side_spec = spec.side(side)
    keys = [c.quoted for c in side_spec.key_columns]
    rows = with_copies(log, [s.BATCH, TRUNCATES, *keys])
    recomputed: list[str] = []
    if side is Side.LEFT:
        stored = [name for name, _ in s.fk_columns(spec)]
        rows = with_foreign_key(rows.withColumn("_fk_stored", F.struct(*map(quote, stored))), spec, careful)
        rows = rows.withColumns({name: F.col(f"_fk_ref_{i}") for i, name in enumerate(stored)})
        recomputed = stored
    rows = rows.withColumn("_fk_content", F.expr(content_hash(spec, side, rows, recomputed)))
    nulls = " OR ".join(f"{key} IS NULL" for key in keys)
    some = " OR ".join(f"{key} IS NOT NULL" for key in keys)
    order = [f"{s.SEQUENCE}.{quote(f.name)} IS NOT NULL" for f in log.schema[s.SEQUENCE].dataType.fields]  # type: ignore[attr-defined]
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
            f"NOT ({s.HASH} <=> _fk_content)",
            hex_of(s.HASH),
            hex_of("_fk_content"),
            may_be_pending=False,
        ),
        Rule(
            f"{prefix}no_payload_in_a_tombstone",
            _payload_in_a_tombstone(side_spec),
            f"CONCAT('deleted ', COALESCE(CAST({s.DELETED} AS STRING), 'null'))",
            "'no values'",
            may_be_pending=False,
        ),
    ]
    if side is Side.LEFT:
        refs = [f"_fk_ref_{i}" for i in range(len(spec.left.foreign_key))]
        same = " AND ".join(f"_fk_stored.{quote(n)} <=> {r}" for n, r in zip(recomputed, refs, strict=True))
        rules.append(
            Rule(
                f"{prefix}foreign_key_is_that_of_the_row",
                f"NOT ({same})",
                "TO_JSON(_fk_stored, MAP('ignoreNullFields', 'false'))",
                json_of(*map(quote, recomputed)),
                may_be_pending=False,
            )
        )
    key = f"STRUCT({s.BATCH} AS batch, {', '.join(keys)})"
    return View(rows, key, s.BATCH, tuple(rules))


def _payload_in_a_tombstone(side: SideSpec) -> str:
    values = " OR ".join(f"{c.quoted} IS NOT NULL" for c in side.value_columns) or "FALSE"
    return f"{s.DELETED} IS NULL OR ({s.DELETED} AND ({values}))"


def holes_view(name: str, quarantine: DataFrame, side: Side) -> View:
    """The records of a side whose value the source did not send: they are in the quarantine, and nowhere else.

    Args:
        name: of the rule.
        quarantine: the quarantine, or some batches of it.
        side: the side.
    """
    rows = quarantine.where(F.col(s.SIDE) == side.value).withColumn(ROW, F.lit(True))
    hole = Rule(name, f"{s.REASON} LIKE '{NOT_SENT}%'", s.REASON, "'its value'", may_be_pending=False)
    return View(rows, f"STRUCT({s.BATCH} AS batch, {s.FILE} AS file, {s.LINE} AS line)", s.BATCH, (hole,))


def counted_view(
    name: str, table: DataFrame, counted: Mapping[int, int], excused: Sequence[int], within: BatchRange | None
) -> View:
    """The rows per batch of a log beside what the ledger counted when they were written.

    Args:
        name: of the rule.
        table: the log, or some batches of it.
        counted: per batch the rows that its last run counted.
        excused: batches whose run is due.
        within: the batches that are looked at; None for all.
    """
    due = {int(batch) for batch in excused}
    known = sorted({*counted, *due})
    expected = pa.table(
        {
            "batch": pa.array(known, pa.int32()),
            "expected": pa.array([counted.get(batch, 0) for batch in known], pa.int64()),
            "due": pa.array([batch in due for batch in known], pa.bool_()),
        }
    )
    stored = table.groupBy(F.col(s.BATCH).alias("batch")).agg(F.count("*").alias("found"))
    ledger = table.sparkSession.createDataFrame(expected)
    rows = ledger.join(stored, "batch", "full") if within is None else ledger.join(F.broadcast(stored), "batch", "left")
    return View(
        rows.withColumn(ROW, F.lit(True)),
        "STRUCT(batch)",
        "batch",
        (
            Rule(
                name,
                "COALESCE(found, 0) <> COALESCE(expected, 0) AND NOT COALESCE(due, FALSE)",
                "CONCAT(COALESCE(found, 0), ' rows')",
                "CONCAT(COALESCE(expected, 0), ' rows')",
                may_be_pending=False,
            ),
        ),
    )
