"""The expectations of a query, and the view of a block that finds broken rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.blocks.landed_versions import newest_version
from fk_pipeline.blocks.refresh.facts import standing_for
from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.identity import Side
from fk_pipeline.kinds.query.kind import RESULT
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.scan import COPIES, ROW, Rule, View, hex_of, only_one, with_copies
from fk_pipeline.rules.suites import PROOF, Depth, Expectation, Remedy
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.spec.sql import text
from fk_pipeline.store import schemas as s

_OF_BLOCK = (
    Expectation("one_row_per_key", "A row of the block is stored at most once."),
    Expectation(
        "hash_is_that_of_the_row",
        "Hash consistency: the hash of a row is that of its values, computed again. Otherwise a change of it is lost.",
    ),
)
_OF_RESULT = (
    *_OF_BLOCK,
    Expectation(
        "declared_key_is_unique",
        "No two rows have the same values in `key`, and none has a null there: a reader takes them for one row.",
        remedy=Remedy.SOURCE,
        only="those with `key`",
        when=lambda spec: bool(spec.key),
        advice="name in `key` columns that identify a row, or let the query give one row for these",
    ),
    Expectation(
        "input_keys_are_unique",
        "No two rows of a Delta table that is an input have the same `key`, and none has a null there, at the versions "
        "that the result stands for: a refresh tells the rows apart by it.",
        remedy=Remedy.SOURCE,
        depths=(Depth.FULL,),
        only="those with an input by `table`",
        when=lambda spec: bool(_declared(spec)),
        advice="correct the table, or name in its `key` columns that identify a row",
    ),
    Expectation(
        PROOF,
        "The proof: the query as it was written, run over the inputs at the versions that the result stands for, gives "
        "the same rows.",
        depths=(Depth.FULL,),
    ),
)


_SAME = "_fk_same"
"""A column of a check: the number of rows with the same declared key."""


class _Suites(Mapping[str, tuple[Expectation, ...]]):
    """Per stage its expectations: those of the result, and of every other block the same."""

    def __getitem__(self, stage: str) -> tuple[Expectation, ...]:
        return _OF_RESULT if stage == RESULT else _OF_BLOCK

    def __iter__(self) -> Iterator[str]:
        return iter((RESULT,))

    def __len__(self) -> int:
        return 1


QUERY_SUITES = _Suites()
"""Per stage, the expectations of its table."""


def block_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the view with one row per row of a block; in a check of batches, of those that they wrote."""
    spec, name = reader.spec, reader.stage
    table = reader.about(name).declared
    keys = [*map(quote, table.keys)]
    stored = reader.whole(name) if reader.batches is None else reader.of_batches(name, s.BATCH)
    columns = spec.blocks.block(name).columns
    content = row_hash((field.name, field.dataType) for field in stored.select(*map(quote, columns)).schema.fields)
    read = [*keys, ROW, COPIES, s.BATCH, s.HASH, f"{content} AS _fk_content"]
    rules = [
        only_one("one_row_per_key"),
        Rule("hash_is_that_of_the_row", f"NOT ({s.HASH} <=> _fk_content)", hex_of(s.HASH), hex_of("_fk_content")),
    ]
    rows = with_copies(stored, keys)
    if name == RESULT and spec.key:
        declared = [*map(quote, spec.key)]
        rows = _with_same(rows, reader.whole(name), declared)
        null = " OR ".join(f"{key} IS NULL" for key in declared)
        shared = f"IF({null}, 'null', CONCAT({_SAME}, ' rows'))"
        rules.append(Rule("declared_key_is_unique", f"{null} OR {_SAME} > 1", shared, "'1 row, without a null'"))
        read += [*(key for key in declared if key not in keys), _SAME]
    rows = rows.selectExpr(*read)
    shown = f"STRUCT({', '.join(keys)})"
    of_inputs = _input_views(reader) if name == RESULT and reader.batches is None else []
    return [View(rows, shown, s.BATCH, tuple(rules), None), *of_inputs]


def _declared(spec: QuerySpec) -> list[str]:
    """Returns the inputs of which only the pipeline file says that their keys are unique."""
    return [name for name, side in spec.inputs.items() if side.pipeline is None and name not in spec.clocks]


def _input_views(reader: CheckReader) -> list[View]:
    """Returns, per such input, a view with a row per key, at the version that the result stands for.

    None of an input whose rows at this version cannot be read any more, or of which the blocks have read two versions.
    """
    spec, views = reader.spec, []
    stands = standing_for(reader.about(RESULT).metadata)
    for name in _declared(spec):
        side, seen, read = spec.inputs[name], newest_version(spec, reader.ledger, Side(name)), stands.get(name) or []
        if seen is None or len(read) != 1 or read[0][0] != seen.id:
            continue
        if not are_kept(f"{seen.location}@..{read[0][1]}"):
            continue
        rows = reader.warehouse.session.read.format("delta").option("versionAsOf", read[0][1]).load(seen.location)
        keys = [column.quoted for column in side.key_columns]
        same = (rows.where(side.where) if side.where else rows).groupBy(*keys).agg(F.count("*").alias(_SAME))
        null = " OR ".join(f"{key} IS NULL" for key in keys)
        values = "'sensitive' AS key" if any(map(side.is_sensitive, side.key)) else ", ".join(keys)
        number = f"CONCAT({_SAME}, ' rows')"
        rule = Rule("input_keys_are_unique", f"{_SAME} > 1 OR {null}", number, "'1 row, without a null'")
        same = same.withColumn(ROW, F.lit(True))
        views.append(View(same, f"STRUCT({text(name)} AS input, {values})", "CAST(NULL AS INT)", (rule,)))
    return views


def _with_same(rows: DataFrame, whole: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns rows with the number of rows of the whole table that have the same values in some columns."""
    own = [f"_fk_declared_{number}" for number in range(len(keys))]
    each = whole.selectExpr(*(f"{key} AS {name}" for key, name in zip(keys, own, strict=True)))
    same = each.groupBy(*own).agg(F.count("*").alias(_SAME))
    equal = " AND ".join(f"{key} = {name}" for key, name in zip(keys, own, strict=True))
    return rows.join(same, F.expr(equal), "left")
