"""The expectations of the semi join, and the views that find broken rows."""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.frames import marked
from fk_pipeline.identity import Side
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.scan import PENDING, ROW, Rule, View, hex_of, only_one, with_copies
from fk_pipeline.rules.states import LOGGED, beside_changelog, excused_by, state_view, version_rules
from fk_pipeline.rules.suites import PROOF, Depth, Expectation, of_log, of_state
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s
from tests.kinds.semi_join.kind import LEFT_ROWS, MATCHED_ROWS, RIGHT_KEYS, reference
from tests.kinds.semi_join.proof import pending
from tests.kinds.semi_join.tables import key, keys_of

_HASH = Expectation("hash_is_that_of_the_changelog_row", "A row has the hash of the changelog row that it comes from.")

SUITES: dict[str, tuple[Expectation, ...]] = {
    LEFT_ROWS: (*of_state("one_row_per_left_key", "left"), _HASH, *of_log("left", "changelog_")),
    RIGHT_KEYS: (*of_state("one_row_per_right_key", "right"), _HASH, *of_log("right", "changelog_")),
    MATCHED_ROWS: (
        Expectation("one_row_per_left_key", "A left row is in the result at most once."),
        Expectation("row_is_that_of_a_match", "A row of the result is that of a left row as it is now, with a match."),
        Expectation("no_missing_row", "Every left row with a match is in the result."),
        Expectation(PROOF, "Both changelogs, joined anew, give the same rows.", depths=(Depth.FULL,)),
    ),
}


def left_views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the view of the left rows."""
    return [_state(reader, evaluator, Side.LEFT, LEFT_ROWS, "left_changelog", "one_row_per_left_key")]


def right_views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the view of the right keys."""
    return [_state(reader, evaluator, Side.RIGHT, RIGHT_KEYS, "right_changelog", "one_row_per_right_key")]


def _state(reader: CheckReader, evaluator: Evaluator, side: Side, name: str, log_name: str, one: str) -> View:
    spec = reader.spec
    keys = {c.name: c.name for c in spec.side(side).key_columns}
    log = with_content(reader.of_batches(log_name, s.BATCH), spec, side, evaluator, again=True)
    rows = beside_changelog(reader, name, name, log, keys, {"_fk_log_hash": s.HASH}, [])
    rules = (
        *version_rules(one, reader.batches, reader.ledger.folds.of(name)),
        Rule(
            _HASH.name, f"{LOGGED} AND NOT ({s.HASH} <=> _fk_log_hash)", hex_of(s.HASH), hex_of("_fk_log_hash"),
        ),
    )  # fmt: skip
    return state_view(rows, f"STRUCT({', '.join(map(quote, keys))})", rules,
                      excused_by(reader, log_name, name, keys, reader.due[name]))  # fmt: skip


def result_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the view of the result: the whole tables, because this kind has no look-ups."""
    spec = reader.spec
    keys, names = keys_of(spec, MATCHED_ROWS).keys, [c.name for c in spec.left.key_columns]
    refers = [reference(c.name) for c in spec.right.key_columns]
    there = with_copies(reader.whole(MATCHED_ROWS), list(map(quote, keys)))
    there = there.selectExpr(*map(quote, keys), ROW, "_fk_copies", f"{s.HASH} AS _fk_there", s.BATCH)
    rights = reader.whole(RIGHT_KEYS).where(f"{s.HASH} IS NOT NULL")
    rights = rights.select(*map(quote, [c.name for c in spec.right.key_columns])).toDF(*refers)
    lefts = reader.whole(LEFT_ROWS).where(f"{s.HASH} IS NOT NULL").join(rights, refers, "left_semi")
    lefts = lefts.selectExpr(
        *[f"{quote(name)} AS {quote(key(name))}" for name in names], f"{s.HASH} AS _fk_now", s.APPLIED_IN
    )
    rows = there.join(lefts, list(keys), "full")
    if reader.batches is not None:
        rows = rows.where(f"{reader.span.predicate(s.BATCH)} OR {reader.span.predicate(s.APPLIED_IN)}")
    stale = f"{ROW} IS NOT NULL AND NOT (_fk_there <=> _fk_now)"
    missing = f"{ROW} IS NULL AND _fk_now IS NOT NULL" + (" AND FALSE" if reader.spec.computes else "")
    rules = (
        only_one("one_row_per_left_key"),
        Rule("row_is_that_of_a_match", stale, hex_of("_fk_there"), hex_of("_fk_now")),
        Rule("no_missing_row", missing, "'no row'", hex_of("_fk_now")),
    )

    def excused(rows: DataFrame) -> DataFrame:
        read = {name: reader.whole(name) for name in spec.definition.proved}
        return marked(rows, PENDING, pending(read, reader.due, spec), nullable=False)

    shown = f"STRUCT({', '.join(f'{quote(key(name))} AS {quote(name)}' for name in names)})"
    due = excused if any(reader.due.values()) else None
    return [View(rows, shown, f"COALESCE({s.BATCH}, {s.APPLIED_IN})", rules, due)]
