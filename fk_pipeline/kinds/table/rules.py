"""The expectations of a table, and the views of versions and result that find broken rows."""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.frames import marked
from fk_pipeline.identity import Side
from fk_pipeline.kinds.table.kind import VERSIONS, TableStage
from fk_pipeline.kinds.table.proof import pending
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.current import current_view
from fk_pipeline.rules.scan import COPIES, PENDING, ROW, Rule, View, hex_of, only_one, with_copies
from fk_pipeline.rules.suites import HASH_OF_LOG, PROOF, Depth, Expectation, of_log, of_state
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s

_LOGGED_HASH = Expectation(
    HASH_OF_LOG.name,
    "Hash consistency: the hash of a version is that of the changelog row that it comes from, computed anew. Otherwise "
    "a change of it is not written.",
)

TABLE_SUITES: dict[str, tuple[Expectation, ...]] = {
    TableStage.CHANGELOG: of_log("input"),
    TableStage.TABLE: (
        *of_state("one_version_per_key", "input"),
        _LOGGED_HASH,
        Expectation("one_row_per_key", "A key is in the result at most once."),
        Expectation(
            "row_is_that_of_the_version",
            "The hash of a row, stored and computed anew, is that of the version that counts. Otherwise it is stale.",
        ),
        Expectation("no_missing_row_of_the_table", "Every key whose version is no deletion has a row in the result."),
        Expectation(
            PROOF,
            "The proof: the last writer of every key of the changelog, found by another way than the stage's, gives "
            "the same rows, value by value.",
            depths=(Depth.FULL,),
        ),
    ),
}
"""Per stage, the expectations of its tables."""


def table_views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the view of the versions beside the changelog, and that of the result beside the versions."""
    return [current_view(reader, evaluator, Side.INPUT, "one_version_per_key"), _rows(reader)]


def _rows(reader: CheckReader) -> View:
    """View with one row per row of the result, and per living key without one; in a check of batches, of those only."""
    spec, names = reader.spec, [column.name for column in reader.spec.input.key_columns]
    stored, versions = reader.whole(TableStage.TABLE), reader.whole(VERSIONS)
    if reader.batches is not None:
        same = {name: name for name in names}
        touched = reader.touched_by({VERSIONS: s.APPLIED_IN, TableStage.TABLE: s.BATCH}, same)
        stored, versions = (
            (rows if reader.small else reader.with_keys(name, touched, same)).join(touched.frame, names, "left_semi")
            for name, rows in ((TableStage.TABLE, stored), (VERSIONS, versions))
        )
    columns = [column.quoted for column in spec.input.columns]
    content = row_hash((field.name, field.dataType) for field in stored.select(*columns).schema.fields)
    keys = [*map(quote, names)]
    rows = with_copies(stored, keys).selectExpr(*keys, ROW, COPIES, s.BATCH, s.HASH, f"{content} AS _fk_content")
    living = versions.selectExpr(*keys, f"{s.HASH} AS _fk_version", s.APPLIED_IN, f"{s.HASH} IS NOT NULL AS _fk_lives")
    both = rows.join(living, names, "full")
    wrong = f"{ROW} IS NOT NULL AND NOT (_fk_content <=> _fk_version AND {s.HASH} <=> _fk_version)"
    rules = (
        only_one("one_row_per_key"),
        Rule("row_is_that_of_the_version", wrong, hex_of("_fk_content"), hex_of("_fk_version")),
        Rule("no_missing_row_of_the_table", f"{ROW} IS NULL AND _fk_lives", "'no row'", hex_of("_fk_version")),
    )

    def excused(rows: DataFrame) -> DataFrame:
        tables = {name: reader.whole(name) for name in spec.definition.proved}
        return marked(rows, PENDING, pending(tables, reader.due, spec), nullable=False)

    due = excused if any(reader.due.values()) else None
    return View(both, _shown(reader), f"COALESCE({s.BATCH}, {s.APPLIED_IN})", rules, due)


def _shown(reader: CheckReader) -> str:
    """SQL (STRUCT): the key of a row."""
    return f"STRUCT({', '.join(map(quote, [column.name for column in reader.spec.input.key_columns]))})"
