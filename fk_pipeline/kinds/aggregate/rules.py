"""The rules of an aggregate: views of store, messages and result that find broken rows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.frames import join_by_key, marked
from fk_pipeline.identity import Side, ranges_sql
from fk_pipeline.kinds.aggregate import tables as k
from fk_pipeline.kinds.aggregate.aggregated import outputs_of, placed
from fk_pipeline.kinds.aggregate.kind import (
    EVERY_GROUP,
    GROUP_ROWS,
    MEMBERS,
    NOTES,
    AggregateStage,
)
from fk_pipeline.kinds.aggregate.proof import pending
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.kinds.aggregate.stages import by_entry, group_rows, messages_of, windows_of
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.scan import PENDING, ROW, Rule, View, hex_of, json_of, only_one, with_copies
from fk_pipeline.rules.states import LOGGED, beside_changelog, excused_by, state_view, version_rules
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s

_HAD, _TOLD = "_fk_had", "_fk_told"


def store_views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the views of the grouping store."""
    spec, name, stage = reader.spec, AggregateStage.GROUPING_STORE, AggregateStage.CHANGELOG
    keys = {key: key for key in k.input_key(spec)}
    placing = k.placing_columns(spec)
    log = with_content(reader.of_batches("changelog", s.BATCH), spec, Side.INPUT, evaluator, anew=True)
    quoted = [*map(quote, placing)]
    facts = {"_fk_log_hash": s.HASH, "_fk_log_values": f"STRUCT({', '.join(quoted)})"}
    rows = beside_changelog(reader, name, stage, log, keys, facts, quoted)
    same = " AND ".join(f"{column} <=> _fk_log_values.{column}" for column in quoted)
    rules = (
        *version_rules("one_row_per_key", reader.batches, reader.ledger.folds.of(stage)),
        Rule(
            "hash_is_that_of_the_changelog_row",
            f"{LOGGED} AND NOT ({s.HASH} <=> _fk_log_hash)",
            hex_of(s.HASH),
            hex_of("_fk_log_hash"),
        ),
        Rule(
            "group_is_that_of_the_changelog_row",
            f"{LOGGED} AND {s.HASH} IS NOT NULL AND NOT ({same})",
            json_of(*quoted),
            json_of("_fk_log_values.*"),
        ),
    )
    shown = f"STRUCT({', '.join(map(quote, keys))})"
    due = sorted({*reader.due.get(stage, ()), *reader.due[reader.stage]})
    view = state_view(rows, shown, rules, excused_by(reader, "changelog", name, keys, due))
    is_indexed = reader.batches is None and reader.index_fits and reader.rows(GROUP_ROWS)
    return [view, _index(reader)] if is_indexed else [view]


def _index(reader: CheckReader) -> View:
    """View with one row per living row of a large store: whether its index has it."""
    spec, store, index = reader.spec, reader.whole(AggregateStage.GROUPING_STORE), group_rows(reader.spec)
    names = [*index.keys, *k.input_key(spec)]
    there = reader.whole(GROUP_ROWS).select(*map(quote, names)).distinct().withColumn("_fk_indexed", F.lit(True))
    rows = index.entries(store).withColumn(ROW, F.lit(True)).join(there, names, "left")
    rule = Rule("groups_are_indexed", "_fk_indexed IS NULL", "'not in the index'", json_of(*map(quote, index.keys)))
    shown = ", ".join(map(quote, k.input_key(spec)))
    return View(rows, f"STRUCT({shown})", "CAST(NULL AS INT)", (rule,))


def touched_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the views: messages of one group, and groups of rows that a batch changed beside its messages.

    Once a batch told its groups again, a note of before needs no message: the result may have stood for it.
    """
    spec, windows, keys = reader.spec, windows_of(reader.spec, reader.table_of), k.group_key(reader.spec)
    kept = f"NOT {ranges_sql(s.BATCH, reader.folded, reader.ledger.batches)}"
    messages = reader.of_batches(AggregateStage.TOUCHED_GROUPS, s.BATCH).where(kept)
    rows = with_copies(messages, [s.BATCH, s.CAUSE, *map(quote, keys)])
    due = ranges_sql(s.BATCH, reader.due[AggregateStage.TOUCHED_GROUPS])
    any_due = ranges_sql(s.BATCH, sorted({int(batch) for found in reader.due.values() for batch in found}))
    views = [
        View(
            rows,
            _shown(spec),
            s.BATCH,
            (only_one("one_message_per_group"),),
            lambda rows: rows.withColumn(PENDING, F.expr(due)),
        )
    ]
    changed = reader.of_batches(AggregateStage.GROUPING_STORE, s.APPLIED_IN).where(f"{s.APPLIED_IN} IS NOT NULL")
    standing = placed(changed, windows).select(F.col(s.APPLIED_IN).alias(s.BATCH), *map(quote, keys))
    standing = standing.where(kept).distinct().withColumn(ROW, F.lit(True))
    earlier = reader.of_batches(NOTES, s.BATCH).where(kept).where(_maybe_resolved(reader))
    messages = messages.unionByName(messages_of(earlier, spec, windows))
    told = messages.where(F.col(s.CAUSE) != EVERY_GROUP).select(s.BATCH, *map(quote, keys)).distinct()
    both = join_by_key(standing, told.withColumn(_TOLD, F.lit(True)), [s.BATCH, *keys], "left", nullable=True)
    every = messages.where(F.col(s.CAUSE) == EVERY_GROUP).select(s.BATCH, F.lit(True).alias("_fk_all")).distinct()
    both = both.join(F.broadcast(every), s.BATCH, "left")
    rule = Rule("every_changed_row_is_told", f"{_TOLD} IS NULL AND _fk_all IS NULL", "'no message'", "'one message'")
    return [*views, View(both, _shown(spec), s.BATCH, (rule,), lambda rows: rows.withColumn(PENDING, F.expr(any_due)))]


def _maybe_resolved(reader: CheckReader) -> str:
    """SQL condition on notes: `touched_groups` ran again after them, and may have left them out as resolved."""
    runs = [(int(batch), reader.ledger.state(AggregateStage.TOUCHED_GROUPS, batch)) for batch in reader.known]
    return by_entry("<", {batch: one.started for batch, one in runs if one.attempts > 1}, otherwise="FALSE")


def result_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the view of the result: its rows beside the groups of the store, computed anew.

    A check of some batches looks at the groups whose last change was theirs, and at those that their messages name.
    """
    spec, windows, keys = reader.spec, windows_of(reader.spec, reader.table_of), k.group_key(reader.spec)
    names = [*keys, MEMBERS, s.HASH, s.BATCH]
    result = reader.whole(AggregateStage.AGGREGATED).select(*map(quote, names))
    wanted = None
    if reader.batches is not None:
        touched = reader.of_batches(AggregateStage.TOUCHED_GROUPS, s.BATCH)
        if touched.where(F.col(s.CAUSE) == EVERY_GROUP).isEmpty():
            own = reader.of_batches(AggregateStage.AGGREGATED, s.BATCH).select(*map(quote, keys))
            wanted = own.unionByName(touched.select(*map(quote, keys))).distinct()
            result = join_by_key(result, F.broadcast(wanted), keys, "left_semi", nullable=True)
    store = reader.whole(AggregateStage.GROUPING_STORE)
    groups = outputs_of(store, spec, windows, wanted).select(
        *map(quote, keys), F.col(MEMBERS).alias(f"{_HAD}_rows"), F.col(s.HASH).alias(f"{_HAD}_hash")
    )
    rows = join_by_key(with_copies(result, [*map(quote, keys)]), groups, keys, "full", nullable=True)
    same = f"{MEMBERS} <=> {_HAD}_rows AND {s.HASH} <=> {_HAD}_hash"
    told = "CONCAT(COALESCE({0}, 0), ' rows, ', {1})"
    now = told.format(f"{_HAD}_rows", hex_of(f"{_HAD}_hash"))
    rules = [
        only_one("one_row_per_group"),
        Rule(
            "members_are_those_of_the_store",
            f"{ROW} IS NOT NULL AND NOT ({same})",
            told.format(MEMBERS, hex_of(s.HASH)),
            now,
        ),
    ]
    if spec.having is None:
        rules.append(Rule("no_missing_group", f"{ROW} IS NULL", "'no row'", now))

    def excused(rows: DataFrame) -> DataFrame:
        tables = {name: reader.whole(name) for name in spec.definition.proved}
        return marked(rows, PENDING, pending(tables, reader.due, spec), nullable=True)

    return [View(rows, _shown(spec), s.BATCH, tuple(rules), excused if any(reader.due.values()) else None)]


def _shown(spec: AggregateSpec) -> str:
    """SQL (STRUCT): the key of a group, for people."""
    named = zip(k.group_key(spec), k.shown_keys(spec), strict=True)
    return f"STRUCT({', '.join(f'{quote(column)} AS {quote(name)}' for column, name in named)})"
