"""The expectations of a query, and the view of a block that finds broken rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.kinds.query.kind import RESULT
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.scan import COPIES, ROW, Rule, View, hex_of, only_one, with_copies
from fk_pipeline.rules.suites import PROOF, Depth, Expectation, Remedy
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
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
    table = reader.table_of(name)
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
        found = f"IF({null}, 'null', CONCAT({_SAME}, ' rows'))"
        rules.append(Rule("declared_key_is_unique", f"{null} OR {_SAME} > 1", found, "'1 row, without a null'"))
        read += [*(key for key in declared if key not in keys), _SAME]
    rows = rows.selectExpr(*read)
    shown = f"STRUCT({', '.join(keys)})"
    return [View(rows, shown, s.BATCH, tuple(rules), None)]


def _with_same(rows: DataFrame, whole: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns rows with the number of rows of the whole table that have the same values in some columns."""
    own = [f"_fk_declared_{number}" for number in range(len(keys))]
    each = whole.selectExpr(*(f"{key} AS {name}" for key, name in zip(keys, own, strict=True)))
    same = each.groupBy(*own).agg(F.count("*").alias(_SAME))
    equal = " AND ".join(f"{key} = {name}" for key, name in zip(keys, own, strict=True))
    return rows.join(same, F.expr(equal), "left")
