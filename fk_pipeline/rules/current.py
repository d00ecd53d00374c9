"""The view of a table with the current rows of an input (`blocks.current`) beside its changelog."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.blocks.current import CurrentRows
from fk_pipeline.identity import Side
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.scan import Rule, View, hex_of, json_of
from fk_pipeline.rules.states import LOGGED, beside_changelog, excused_by, state_view, version_rules
from fk_pipeline.rules.suites import HASH_OF_LOG, Expectation
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s

_HASH, _VALUES = "_fk_log_hash", "_fk_log_values"


def current_view(
    reader: CheckReader,
    evaluator: Evaluator,
    side: Side,
    one_row: str,
    placed: Expectation | None = None,
    *,
    number: str = "",
    logged: Callable[[DataFrame], DataFrame] = lambda log: log,
    expired: str = "FALSE",
) -> View:
    """Returns the view, with the rules of `suites.of_current`.

    Args:
        reader: the tables.
        evaluator: computes expressions of the pipeline file.
        side: the input.
        one_row: as of `suites.of_current`.
        placed: as of `suites.of_current`; None: the kind derives nothing of a row.
        number: SQL over a row of the table: the number that is made of its time.
        logged: function of the rows of the changelog that returns those which the table must know.
        expired: SQL (BOOLEAN) over a row of the table: it has no hash because it came too late.
    """
    rows = CurrentRows.of(reader.spec, side)
    keys, derived = {key: key for key in rows.keys}, [*map(quote, rows.derived)]
    log = logged(with_content(reader.of_batches(rows.log, s.BATCH), reader.spec, side, evaluator, again=True))
    # Values are shown in structs with the names of the tables' columns, by which sensitive ones are masked.
    facts = {_HASH: s.HASH, **({_VALUES: f"STRUCT({', '.join(derived)})"} if derived else {})}
    beside = beside_changelog(reader, rows.name, rows.log_stage, log, keys, facts, [*map(quote, rows.placing)])
    same = [f"{column} <=> {_VALUES}.{column}" for column in derived]
    same += [f"{rows.number} <=> {number}"] if rows.number else []
    shown = [f"{_VALUES}.*", *([f"{number} AS {rows.number}"] if rows.number else [])]
    rules = [
        *version_rules(one_row, reader.batches, reader.ledger.folds.of(rows.log_stage)),
        Rule(
            HASH_OF_LOG.name,
            f"{LOGGED} AND NOT ({s.HASH} <=> {_HASH}) AND NOT ({expired})",
            hex_of(s.HASH),
            hex_of(_HASH),
        ),
    ]
    if placed is not None:
        wrong = f"{LOGGED} AND {s.HASH} IS NOT NULL AND NOT ({' AND '.join(same)})"
        rules.append(Rule(placed.name, wrong, json_of(*map(quote, rows.placing)), json_of(*shown)))
    due = sorted({*reader.due.get(rows.log_stage, ()), *reader.due[reader.stage]})
    key = f"STRUCT({', '.join(map(quote, rows.keys))})"
    return state_view(beside, key, rules, excused_by(reader, rows.log, rows.name, keys, due))
