"""Rules for the subscription store: one subscription per left key, with the hash and foreign key of its left row."""

from __future__ import annotations

from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kafka.instructions import instruction_sql
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.scan import AS_SHOWN, ROW, Rule, View, hex_of, in_batch, json_of
from fk_pipeline.rules.states import LOGGED, beside_changelog, excused_by, state_view, version_rules
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s

INDEXED = "_fk_indexed"


def source_key(spec: ForeignKeySpec, *more: str) -> str:
    """SQL (STRUCT): the left key of a row of a state table, with the names of the source, and `more` fields."""
    return f"STRUCT({', '.join([*[f'{quote(k.pk(c.name))} AS {c.quoted}' for c in spec.left.key_columns], *more])})"


def subscription_store_views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the view of the subscription store, joined to the left changelog and to its index if it has one."""
    spec = reader.spec
    keys = {k.pk(c.name): c.name for c in spec.left.key_columns}
    pks = list(keys)
    log = reader.of_batches(k.LEFT_CHANGELOG, s.BATCH)
    to = k.subscribed(spec)
    facts = {"_fk_log_hash": s.HASH, "_fk_log_fk": f"STRUCT({', '.join(map(quote, to))})"}
    previous = [k.previous_fk(c.name) for c in spec.right.key_columns]
    columns = [*map(quote, [*to, *previous]), s.SEEN_BEFORE, k.INSTRUCTION]
    log = with_content(log, spec, Side.LEFT, evaluator, again=True)
    rows = beside_changelog(reader, k.SUBSCRIPTION_STORE, Stage.LEFT_CHANGELOG, log, keys, facts, columns)
    place = in_batch(s.OWNER)
    same_fk = " AND ".join(f"{quote(name)} <=> _fk_log_fk.{quote(name)}" for name in to)
    no_fk = " AND ".join(f"{quote(name)} IS NULL" for name in to)
    rules = [
        *version_rules("one_row_per_left_key", reader.batches, reader.ledger.folds.of(Stage.LEFT_CHANGELOG)),
        Rule(
            "hash_is_that_of_the_changelog_row",
            f"{LOGGED} AND NOT ({s.HASH} <=> _fk_log_hash) OR ({ROW} AND {s.OWNER} IS NULL AND {s.HASH} IS NOT NULL)",
            hex_of(s.HASH),
            f"CONCAT({hex_of('_fk_log_hash')}, ' in ', {place})",
        ),
        Rule(
            "foreign_key_is_that_of_the_changelog_row",
            f"{LOGGED} AND NOT ({same_fk}) OR ({ROW} AND {s.HASH} IS NULL AND NOT ({no_fk}))",
            json_of(*map(quote, to)),
            f"CONCAT(TO_JSON(_fk_log_fk, {AS_SHOWN}), ' in ', {place})",
        ),
        Rule(
            "instruction_is_that_of_the_change",
            f"{ROW} AND NOT ({k.INSTRUCTION} <=> {_instruction(spec)})",
            f"COALESCE({k.INSTRUCTION}, 'none')",
            f"COALESCE({_instruction(spec)}, 'none')",
        ),
    ]
    # The index is sorted by foreign keys, so the left keys of a batch cannot be looked up in it.
    if reader.batches is None and reader.about(k.SUBSCRIBERS).rows:
        index = reader.whole(k.SUBSCRIBERS).select(*map(quote, [*to, *pks]))
        rows = rows.join(index.distinct().withColumn(INDEXED, F.lit(True)), [*to, *pks], "left")
        rules.append(
            Rule(
                "subscribers_are_indexed",
                f"{ROW} AND NOT ({no_fk}) AND {INDEXED} IS NULL",
                f"CONCAT('no entry for ', {json_of(*map(quote, to))})",
                "'an entry in subscribers'",
            )
        )
    due = [*reader.due[Stage.LEFT_CHANGELOG], *reader.due[Stage.SUBSCRIPTION_STORE]]
    excused = excused_by(reader, k.LEFT_CHANGELOG, k.SUBSCRIPTION_STORE, keys, due)
    return [state_view(rows, source_key(spec), rules, excused)]


def _instruction(spec: ForeignKeySpec) -> str:
    """SQL (STRING): the instruction for the change that a row propagated last."""
    first = next(iter(spec.right.key_columns)).name
    return instruction_sql(
        seen=s.SEEN_BEFORE,
        deleted=f"{s.HASH} IS NULL",
        fk_null=f"{quote(k.fk(first))} IS NULL",
        had_fk=f"{quote(k.previous_fk(first))} IS NOT NULL",
        inner=spec.inner,
    )
