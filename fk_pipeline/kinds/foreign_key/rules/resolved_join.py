"""Rules for the result, which must be the join of the current rows of both sides, and for the verdicts on responses."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.as_of import is_closed
from fk_pipeline.frames import join_by_key
from fk_pipeline.identity import HALF_QUARANTINED, ranges_sql
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import ALL_VERDICTS, REFUSED, Stage
from fk_pipeline.kinds.foreign_key.resolved_join import IMPLIED, with_result_key
from fk_pipeline.kinds.foreign_key.rights import answer_columns
from fk_pipeline.kinds.foreign_key.rules.reading import ends_of, pks_of, unwritten_of, versions_of
from fk_pipeline.kinds.foreign_key.rules.responses import beside_right, excused_keys, pair_of, response_key
from fk_pipeline.kinds.foreign_key.rules.subscription_store import source_key
from fk_pipeline.kinds.foreign_key.rules.unmatched_rights import unmatched_view
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.rules.check_reader import CheckReader, at_once, some_not_among
from fk_pipeline.rules.logs import ledger_counts
from fk_pipeline.rules.scan import COPIES, PENDING, ROW, Rule, View, json_of, only_one, with_copies
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s
from fk_pipeline.store.limits import sendable
from fk_pipeline.store.materialised import Materialised

_CHANGED_IN, _CURRENT_FK = "_fk_left_changed_in", "_fk_current_fk"


def resolved_join_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the views: the result with the current rows of both sides, and the verdicts with the responses.

    The rows of an outer join without a left row have a view of their own.
    """
    spec = reader.spec
    batch = f"COALESCE({s.BATCH}, {_CHANGED_IN})"
    result = View(_result_rows(reader), source_key(spec), batch, _result_rules(spec), excused_keys(reader))
    more = [unmatched_view(reader)] if spec.outer else []
    return [result, _verdicts(reader), *more, *([_chosen_keys(reader)] if spec.key_outputs else [])]


def _result_rows(reader: CheckReader) -> DataFrame:
    """Returns the result with the current versions of both sides.

    Returns:
        One row per row of the result and per left key without one: the left key, `_fk_row` and `_fk_copies` (null
        where the result has no row), its `_fk_left_hash`, `_fk_right_hash` and `_fk_batch`, the current hashes as
        `_fk_left` and `_fk_right`, null where there is no left row, or no right row with its foreign key; its foreign
        key and the current one as structs; and `_fk_refused`: the verdict on the current pair, if an expression fails
        on it. The right row of a pair that is `half-quarantined` counts as absent.
    """
    spec = reader.spec
    pks, fks = [n for n, _ in k.pk_columns(spec)], [n for n, _ in k.fk_columns(spec)]
    if reader.batches is None or unwritten_of(reader):
        result, store = reader.whole(k.RESOLVED_JOIN), reader.whole(k.SUBSCRIPTION_STORE)
        rights = reader.whole(k.RIGHT_TABLE)
    else:
        result, store, rights = _of_the_batches(reader)
    if spec.outer:
        result = result.where(k.has_left(spec))
    in_result = with_copies(result, list(map(quote, pks))).select(
        *map(quote, pks),
        ROW,
        COPIES,
        s.LEFT_HASH,
        s.RIGHT_HASH,
        s.BATCH,
        F.struct(*map(quote, fks)).alias("_fk_fk"),
    )
    left = store.select(
        *map(quote, [*pks, *k.subscribed(spec)]),
        F.struct(*map(quote, fks)).alias(_CURRENT_FK),
        F.col(s.HASH).alias("_fk_left"),
        F.col(s.APPLIED_IN).alias(_CHANGED_IN),
    )
    current = beside_right(in_result.join(left, pks, "full"), rights, spec, ends_of(reader))
    # What the row of a left row had stays when its time is closed; another left row gets no right row then.
    stands = f"IF({s.LEFT_HASH} <=> _fk_left, {s.RIGHT_HASH}, NULL)"
    current = current.withColumn("_fk_closed", F.expr(is_closed("_fk_right")))
    current = current.withColumn("_fk_right", F.expr(f"IF(_fk_closed, {stands}, _fk_right)"))
    current = current.drop("_fk_changed_in", "_fk_told")
    if not reader.spec.computes:
        return current.withColumn("_fk_refused", F.lit(None).cast("string"))
    pairs = F.struct(F.col(s.LEFT_HASH).alias("l"), F.col(s.RIGHT_HASH).alias("r"), F.col(k.VERDICT).alias("verdict"))
    refused = reader.whole(k.VERDICTS).where(F.col(k.VERDICT).isin(*REFUSED))
    refused = refused.groupBy(*map(quote, pks)).agg(F.collect_set(pairs).alias("_fk_pairs"))
    its = "FILTER(_fk_pairs, pair -> pair.l <=> _fk_left AND (_fk_closed OR pair.r <=> _fk_right))"
    rows = current.join(refused, pks, "left").withColumn("_fk_refused", F.expr(f"GET({its}, 0).verdict"))
    half = F.col("_fk_refused").eqNullSafe(HALF_QUARANTINED)
    return rows.withColumn("_fk_right", F.when(~half, F.col("_fk_right")))


def _of_the_batches(reader: CheckReader) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Returns result, store and right rows of the keys with a response or a change in a batch."""
    pks, fks = pks_of(reader.spec), list(k.right_keys(reader.spec).values())
    times = [name for name, _ in k.time_columns(reader.spec, k.AS_OF)]
    places, names = {k.RESPONSES: s.BATCH, k.RESOLVED_JOIN: s.BATCH}, [*pks, *fks]
    keys = reader.touched_by(places, {name: name for name in names})
    if reader.small:
        of_both = [
            reader.whole(name).join(F.broadcast(keys.frame), list(pks), "left_semi")
            for name in (k.RESOLVED_JOIN, k.SUBSCRIPTION_STORE)
        ]
        return of_both[0], of_both[1], reader.whole(k.RIGHT_TABLE)

    def of_keys(name: str, *columns: str) -> Materialised:
        rows = reader.with_keys(name, keys, pks)
        if keys.at_most > sendable(
            reader.about(name).declared, pks, reader.limits.sizes
        ):  # the read has rows of other keys, too
            rows = rows.join(keys.frame, list(pks), "left_semi")
        return reader.at_hand(rows.select(*map(quote, [*names, *columns])), keys.at_most)

    def rights_for(pairs: Materialised) -> Materialised:
        return versions_of(reader, pairs, k.right_keys(reader.spec), answer_columns(reader.spec))

    looks = [
        lambda: of_keys(k.SUBSCRIPTION_STORE, *times, s.HASH, s.APPLIED_IN),
        lambda: of_keys(k.RESOLVED_JOIN, s.LEFT_HASH, s.RIGHT_HASH, s.BATCH),
    ]
    store, result, *rights = at_once(*looks, *[lambda: rights_for(keys)] * (keys.local is not None))
    referred = None if store.local is None else store.local.select(fks).drop_null()  # a null refers to nothing
    if some_not_among(referred, keys):  # the store now refers to keys that no response is about
        rights = [rights_for(store)]
    return result.frame, store.frame, rights[0].frame


def _result_rules(spec: ForeignKeySpec) -> tuple[Rule, ...]:
    """Returns the rules for `_result_rows`. At most one of stale, superfluous and missing applies to a row."""
    stored, current = pair_of(s.LEFT_HASH, s.RIGHT_HASH), pair_of("_fk_left", "_fk_right")
    is_row, alive, matched = f"{ROW} IS NOT NULL", "_fk_left IS NOT NULL", "_fk_right IS NOT NULL"
    due = f"{alive} AND {matched}" if spec.inner else alive
    same = f"{s.LEFT_HASH} <=> _fk_left AND {s.RIGHT_HASH} <=> _fk_right"
    rules = (
        only_one("one_row_per_left_key"),
        Rule("no_stale_row", f"{is_row} AND {due} AND NOT ({same})", stored, current),
        Rule("no_missing_row", f"{ROW} IS NULL AND {due} AND _fk_refused IS NULL", "'no row'", current),
        Rule("no_row_for_a_deleted_key", f"{is_row} AND NOT ({alive})", stored, "'no row'"),
        Rule(
            "foreign_key_is_the_current_one",
            f"{is_row} AND {due} AND {same} AND NOT (_fk_fk <=> {_CURRENT_FK})",
            json_of("_fk_fk"),
            json_of(_CURRENT_FK),
        ),
    )
    if not spec.inner:
        return rules
    return (*rules, Rule("no_inner_row_without_match", f"{is_row} AND {alive} AND NOT ({matched})", stored, "'no row'"))


def _chosen_keys(reader: CheckReader) -> View:
    """View of the result with its keys of one's choice, as stored and computed anew, and the rows with the same key.

    In a check of some batches it has only rows with the keys of rows that these batches wrote.
    """
    spec = reader.spec
    stored = [k.chosen(output.name) for output in spec.key_outputs]
    renamed = {name: f"_fk_anew_{i}" for i, name in enumerate(stored)}
    if reader.batches is None or reader.small:
        rows = reader.whole(k.RESOLVED_JOIN)
    else:
        keys = reader.touched_by({k.RESOLVED_JOIN: s.BATCH}, {name: name for name in stored})
        needed = [name for name in reader.about(k.RESOLVED_JOIN).declared.names if name.startswith("_fk_")]
        result = reader.whole(k.RESOLVED_JOIN).select(*map(quote, needed))
        rows = join_by_key(result, keys.frame, stored, "left_semi", nullable=True)  # a look-up finds no null
    rows = with_copies(rows, list(map(quote, stored)))
    computed = with_result_key(rows.withColumnsRenamed(renamed), spec)
    stored_key = "STRUCT({})".format(", ".join(f"{quote(old)} AS {quote(name)}" for name, old in renamed.items()))
    computed_key = f"STRUCT({', '.join(map(quote, stored))})"
    computed = computed.withColumns({"_fk_stored_key": F.expr(stored_key), "_fk_computed_key": F.expr(computed_key)})
    if reader.batches is not None:
        in_span = reader.span.predicate(s.BATCH)
        computed = computed.withColumn(COPIES, F.expr(f"IF({in_span}, {COPIES}, 1)"))
    rules = (
        only_one("result_key_is_unique"),
        Rule(
            "result_key_is_that_of_the_row",
            "NOT (_fk_stored_key <=> _fk_computed_key)",
            json_of("_fk_stored_key"),
            json_of("_fk_computed_key"),
            may_be_pending=False,
        ),
    )
    return View(computed, "_fk_stored_key", s.BATCH, rules, excused_keys(reader))


def _verdicts(reader: CheckReader) -> View:
    """View with one row per batch, left key, cause and pair of versions: its numbers of responses and stored verdicts.

    The verdict on a response without a stored verdict is that it was written (`IMPLIED`). So a batch must have as many
    responses as the stage decided about, and as many stored verdicts as the stage counted; together, these two numbers
    also determine how many verdicts are implied.
    """
    spec = reader.spec
    about = [s.BATCH, *k.pk_names(spec), s.CAUSE, k.INSTRUCTION, s.LEFT_HASH, s.RIGHT_HASH]
    columns = [quote(name) for name in about]
    none = F.lit(None).cast("string").alias(k.VERDICT)
    known = ", ".join(f"'{verdict}'" for verdict in ALL_VERDICTS)
    unwritten = unwritten_of(reader)
    retained = f"NOT {ranges_sql(s.BATCH, reader.folded.union(unwritten), reader.ledger.batches)}"
    responses = reader.of_batches(k.RESPONSES, s.BATCH).where(retained).select(*columns, none)
    verdicts = (
        reader.of_batches(k.VERDICTS, s.BATCH)
        .where(retained)
        .select(*columns, F.coalesce(k.VERDICT, F.lit("?")).alias(k.VERDICT))
    )
    rows = (
        responses.unionByName(verdicts)
        .groupBy(*columns)
        .agg(
            F.expr(f"COUNT_IF({k.VERDICT} IS NULL)").alias("_fk_responses"),
            F.expr(f"COUNT_IF({k.VERDICT} IS NOT NULL)").alias("_fk_verdicts"),
            F.expr(f"COUNT_IF({k.VERDICT} NOT IN ({known}))").alias("_fk_unknown"),
            F.min(k.VERDICT).alias(k.VERDICT),
        )
        .withColumn(ROW, F.lit(True))
    )
    name = "every_response_has_its_verdict"
    no_right = f"{s.RIGHT_HASH} IS NULL OR " if spec.inner else ""
    unwritable = f"{s.LEFT_HASH} IS NULL OR {no_right}{is_closed(s.RIGHT_HASH)}"
    rule = Rule(
        name,
        f"_fk_verdicts NOT IN (0, _fk_responses) OR _fk_unknown > 0 OR _fk_verdicts = 0 AND ({unwritable})",
        f"CONCAT(_fk_verdicts, ' verdicts ', COALESCE({k.VERDICT}, ''))",
        "CONCAT(_fk_responses, ' responses')",
    )
    answered = ledger_counts(name, reader, *ALL_VERDICTS)
    answered = replace(
        answered,
        number="SUM(_fk_responses)",
        what="responses",
        open=answered.open.union(reader.due[Stage.RESPONSES], unwritten),
    )
    implied = ", ".join(f"'{verdict}'" for verdict in IMPLIED)
    number = f"SUM(_fk_verdicts) FILTER (WHERE {k.VERDICT} NOT IN ({implied}))"
    stored = ledger_counts(name, reader, *[verdict for verdict in ALL_VERDICTS if verdict not in IMPLIED])
    stored = replace(stored, number=number, what="verdicts that are not about written rows", open=answered.open)
    due = ranges_sql(s.BATCH, [*reader.due[Stage.RESPONSES], *reader.due[Stage.RESOLVED_JOIN]])
    return View(
        rows,
        response_key(spec),
        s.BATCH,
        (rule,),
        lambda rows: rows.withColumn(PENDING, F.expr(due)),
        counted=(answered, stored),
    )
