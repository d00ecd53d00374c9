"""The changelog of an input: the last valid event per key and batch, with the whole row, its hash and its sequence.

It has nothing of a join: what a kind derives from a row (`Input.derives`), and the hash of what it selects, are in its
state (`with_content`). Late events are kept here; the state decides which version wins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.blocks.hashing import with_row_hash
from fk_pipeline.blocks.holes import AT, PLACE
from fk_pipeline.blocks.left_out import NOT_PASSING, as_read
from fk_pipeline.blocks.times import unfit
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.cdc.records import BAD, EVENT, TRUNCATE
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec, SideSpec, quote
from fk_pipeline.spec.failing import STOPPING, Evaluator
from fk_pipeline.spec.formats import COMMITTED_AT
from fk_pipeline.spec.sql import parse_expression, text
from fk_pipeline.store import schemas as s

OF_RECORD = "_fk_record"
"""Struct: the record that a row of a changelog comes from."""

_IS_EVENT = f"_fk_record.kind = '{EVENT}'"
_IS_WRITTEN = f"{_IS_EVENT} AND NOT _fk_record.deleted"
"""SQL (BOOLEAN) over records as the struct `_fk_record`: an event, and one with which the source sent a row."""

_Checked = tuple[str, str, str]
"""An expression that must not fail on a row: derived column or empty, SQL, key of the pipeline file."""


def evaluate(records: DataFrame, spec: PipelineSpec, side: Side, evaluator: Evaluator = STOPPING) -> DataFrame:
    """Evaluates the pipeline's own expressions on the events among records (`fk_pipeline.cdc.records`).

    Args:
        records: one row per line.
        spec: the pipeline.
        side: the side of the lines.
        evaluator: if it is isolating, events on which an expression fails become bad records; otherwise Spark fails.

    Returns:
        The records, `value` only for bad ones; those on which `delete_when` is true are tombstones; `sequence` is
        `{value}` when the side has a `sequence_by`, and in a feed of Delta `{value, written}`, removed rows first;
        with `valid_from` they get `valid_from`; records of an input with derived columns (`Input.derives`) or later
        expressions (`Input.computed`) that may fail on a row get `derived`, BOOLEAN: none of these is null. A log has
        no row on which one fails.
    """
    side_spec, checked = spec.side(side), _checked(spec, side)
    times = spec.definition.input(side).times
    columns = [c for c in records.columns if c != "row"]
    frame = records.selectExpr(f"STRUCT({', '.join(columns)}) AS _fk_record", "row.*")
    frame = _with_results(frame, side_spec, checked, evaluator)
    out = {name: f"_fk_record.{name}" for name in columns} | _columns_of_events(side_spec)
    if evaluator.isolating or side_spec.sequence_by is not None or side_spec.valid_from is not None or times:
        wrong = _wrong(frame, side_spec, checked, times)
        out["kind"] = f"IF({wrong} IS NOT NULL, '{BAD}', _fk_record.kind)"
        out["reason"] = f"COALESCE({wrong}, _fk_record.reason)"
    # Only the text of a bad record is used later: that of the others need not be sorted and kept.
    text_of = "TO_JSON" if isinstance(records.schema["value"].dataType, T.StructType) else ""
    may_fail = evaluator.isolating and side_spec.where is not None and "holes" in columns  # once it is filled
    used = f"{out['kind']} = '{BAD}'{' OR _fk_record.holes IS NOT NULL' if may_fail else ''}"
    out["value"] = f"IF({used}, {text_of}(_fk_record.value), NULL)"
    if checked:  # a sum, so that each is computed, also beside one that is null
        out["derived"] = f"0 = {' + '.join(f'INT(_fk_derived_{i} IS NULL)' for i in range(len(checked)))}"
    return frame.selectExpr(*[f"{sql} AS {name}" for name, sql in out.items()])


def _with_results(frame: DataFrame, side: SideSpec, checked: Sequence[_Checked], evaluator: Evaluator) -> DataFrame:
    """Adds the results of the expressions to records, and `_fk_failed`, the reason why one of them fails, or null.

    The results are `_fk_gone` (`delete_when`), `_fk_derived_<i>` (`checked`), `_fk_value` (`sequence_by`) and
    `_fk_since` (`valid_from`); of an expression that the pipeline file does not have, there is none.
    """
    when, since = side.delete_when, side.valid_from
    if when is not None:
        frame = frame.selectExpr("*", f"COALESCE({evaluator.value(when, _IS_WRITTEN)}, FALSE) AS _fk_gone")
    expressions = [(f"_fk_derived_{i}", sql, _has_row(side), what) for i, (_, sql, what) in enumerate(checked)]
    if side.sequence_by is not None:
        ordered = f"_fk_record.kind IN ('{EVENT}', '{TRUNCATE}')"
        expressions.append(("_fk_value", side.sequence_by, ordered, "sequence_by"))
    if since is not None and not side.holds_since_commit:
        expressions.append(("_fk_since", since, _IS_EVENT, "valid_from"))
    first = [] if when is None else [(_IS_WRITTEN, when, "delete_when")]
    failed = evaluator.reason([*first, *[(on, sql, what) for _, sql, on, what in expressions]])
    return frame.selectExpr("*", f"{failed} AS _fk_failed").selectExpr(
        "*", *[f"IF({on} AND _fk_failed IS NULL, ({sql}), NULL) AS {name}" for name, sql, on, _ in expressions]
    )


def _columns_of_events(side: SideSpec) -> dict[str, str]:
    """Returns the columns of records that follow from the results: per name, the SQL over `_with_results`."""
    out = {"row": f"STRUCT({', '.join(c.quoted for c in side.columns)})"}
    deleted = "_fk_record.deleted"
    if side.delete_when is not None:
        deleted = "_fk_record.deleted OR _fk_gone"
        out |= {"op": "IF(_fk_gone, 'd', _fk_record.op)", "deleted": deleted}
    if side.sequence_by is not None:
        written = f", IF({deleted}, 0, 1) AS written" if side.feed_of_delta else ""
        out["sequence"] = f"STRUCT(_fk_value AS value{written})"
    if side.valid_from is not None:
        out["valid_from"] = _valid_from(side)
    return out


def _wrong(frame: DataFrame, side: SideSpec, checked: Sequence[_Checked], times: Collection[str]) -> str:
    """SQL (STRING) over `_with_results`: the reason why an event is a bad record, or null.

    An expression fails on it, or the order, the begin of validity or a time that it needs is null or out of range.
    """
    wrong = "_fk_failed"
    if side.sequence_by is not None:
        wrong = f"COALESCE(_fk_failed, IF({_IS_EVENT} AND _fk_value IS NULL, 'sequence_by is null', NULL))"
    since = side.valid_from
    if since is not None:
        missing = text(f"{'valid_from' if since == COMMITTED_AT else f'valid_from {since}'} is null")
        wrong = f"COALESCE({wrong}, IF({_IS_EVENT} AND {_valid_from(side)} IS NULL, {missing}, NULL))"
    for i, (name, sql, what) in enumerate(checked):
        if name in times:
            dtype = frame.schema[f"_fk_derived_{i}"].dataType.simpleString()
            unfit_time = unfit(f"_fk_derived_{i}", dtype, f"{what} {sql}")
            wrong = f"COALESCE({wrong}, IF({_has_row(side)}, {unfit_time}, NULL))"
    return wrong


def _has_row(side: SideSpec) -> str:
    """SQL (BOOLEAN) over `_with_results`: an event has a row, also after `delete_when`."""
    return f"{_IS_WRITTEN} AND NOT {'FALSE' if side.delete_when is None else '_fk_gone'}"


def _valid_from(side: SideSpec) -> str:
    """SQL over `_with_results`: the begin of validity of an event."""
    return "_fk_record.committed_at" if side.holds_since_commit else "_fk_since"


def _checked(spec: PipelineSpec, side: Side) -> list[_Checked]:
    """Returns the expressions that must not fail on a row."""
    kind_input, where = spec.definition.input(side), spec.side(side).where
    derived = {
        n: sql for n, sql in _derived(spec, side).items() if n in kind_input.times or not parse_expression(sql).plain
    }
    expressions = [(name, sql, kind_input.derived_as(name).removeprefix(f"{side}.")) for name, sql in derived.items()]
    expressions += [("", sql, what) for sql, what in kind_input.computed(spec).items()]
    return expressions + ([] if where is None else [("", where, "where")])


def row_expressions(spec: PipelineSpec, side: Side) -> tuple[str, ...]:
    """Returns the SQL expressions that are computed for every change of a side."""
    of_side, kind_input = spec.side(side), spec.definition.input(side)
    valid_from = None if of_side.holds_since_commit else of_side.valid_from
    own = filter(None, (of_side.sequence_by, of_side.delete_when, of_side.where, valid_from))
    return (*kind_input.derives(spec).values(), *kind_input.computed(spec), *own)


def mark_last(records: DataFrame, spec: PipelineSpec, side: Side) -> DataFrame:
    """Adds two columns to records: `last`, newest event of its key in its batch; `events`, how many its key has there.

    The order is the source's sequence, ties by the place in the landing files. Truncates count as events of one key of
    their own, and an event before the newest truncate of its batch is not the last of its key: the truncate is. Both
    columns are null for a record that is neither an event nor a truncate.
    """
    counts = f"kind IN ('{EVENT}', '{TRUNCATE}')"
    order = "STRUCT(sequence, file_number, block, position)"
    keys = [f"CASE WHEN kind = '{EVENT}' THEN {sql} END" for sql in key_of_record(spec.side(side)).values()]
    own_place = f"CASE WHEN NOT {counts} THEN STRUCT(file, block, position) END"
    by_key = f"PARTITION BY {', '.join(['batch', 'kind', *keys, own_place])}"
    truncated = f"MAX(CASE WHEN kind = '{TRUNCATE}' THEN {order} END) OVER (PARTITION BY batch)"
    newest = f"ROW_NUMBER() OVER ({by_key} ORDER BY {order} DESC) = 1"
    outlives = f"(_fk_truncated IS NULL OR {order} >= _fk_truncated)"
    return (
        records.selectExpr("*", f"{truncated} AS _fk_truncated")
        .selectExpr(
            "*",
            f"CASE WHEN {counts} THEN {newest} AND {outlives} END AS last",
            f"CASE WHEN {counts} THEN COUNT(*) OVER ({by_key}) END AS events",
        )
        .drop("_fk_truncated")
    )


def mark_only(records: DataFrame) -> DataFrame:
    """Adds the columns of `mark_last` to records with every key of a batch once, after its truncates: all are last."""
    event = F.col("kind").isin(EVENT, TRUNCATE)
    return records.withColumns({"last": F.when(event, F.lit(True)), "events": F.when(event, F.lit(1).cast("bigint"))})


def changelog(records: DataFrame, spec: PipelineSpec, side: Side, generations: Mapping[int, int]) -> DataFrame:
    """Returns the rows of a changelog: one per batch and key, and per batch its newest truncate, without a key.

    For a format with unavailable values the rows also have `holes.AT`, their place among all versions.

    Args:
        records: what `mark_last` returns.
        spec: the pipeline.
        side: the side of the records.
        generations: per batch, the generation of its partition.
    """
    return _rows(records.where("last"), spec, side, generations)


def with_records(records: DataFrame, spec: PipelineSpec, side: Side, generations: Mapping[int, int]) -> DataFrame:
    """Returns the row of `changelog` of every record, also of one that is not the last, with it as `OF_RECORD`."""
    return _rows(records.selectExpr("*", f"STRUCT(*) AS {OF_RECORD}"), spec, side, generations, [OF_RECORD])


def _rows(
    records: DataFrame, spec: PipelineSpec, side: Side, generations: Mapping[int, int], beside: Sequence[str] = ()
) -> DataFrame:
    """Returns the row of a changelog that each record would be, with some of its columns beside."""
    side_spec = spec.side(side)
    rewritten = [f"WHEN {int(batch)} THEN {int(number)}" for batch, number in generations.items() if number]
    generation = f"CASE batch {' '.join(rewritten)} ELSE 0 END" if rewritten else "0"
    keys = [f"IF(kind = '{TRUNCATE}', NULL, {sql}) AS {quote(key)}" for key, sql in key_of_record(side_spec).items()]
    values = [f"IF(deleted, NULL, row.{c.quoted}) AS {c.quoted}" for c in side_spec.value_columns]
    lacking = []
    if format_of(side_spec).has_holes:
        unknown = "IF(FALSE, sequence, NULL) AS sequence, CAST(NULL AS INT) AS batch"
        hole = f"STRUCT(_name AS column, {unknown}, CAST(NULL AS BOOLEAN) AS where_fails)"
        lacking = [
            f"TRANSFORM(holes, _name -> {hole}) AS {s.HOLES}",
            f"IF(holes IS NULL OR old_key IS NULL, NULL, STRUCT(sequence, old_key AS key)) AS {s.OLD_KEY}",
            f"{PLACE} AS {AT}",
        ]
    rows = records.selectExpr(
        f"batch AS {s.BATCH}",
        f"{generation} AS {s.GENERATION}",
        f"sequence AS {s.SEQUENCE}",
        f"op AS {s.OP}",
        f"deleted AS {s.DELETED}",
        f"events AS {s.EVENTS}",
        f"file AS {s.FILE}",
        *lacking,
        *keys,
        *values,
        *beside,
    )
    return hashed(rows, spec, side)


def key_of_record(side: SideSpec) -> dict[str, str]:
    """Returns the columns that identify a row of a batch in the changelog, each with its SQL over an event."""
    since = {} if side.valid_from is None else {s.VALID_FROM: "valid_from"}
    return {column.name: f"row.{column.quoted}" for column in side.key_columns} | since


def hashed(log: DataFrame, spec: PipelineSpec, side: Side) -> DataFrame:
    """Returns rows of a changelog with `_fk_hash`, the hash of the whole row; null for a tombstone."""
    declared = spec.side(side)
    since = [] if declared.valid_from is None else [s.VALID_FROM]
    return _with_hash(log, [*(column.name for column in declared.columns), *since])


def content_columns(spec: PipelineSpec, side: Side) -> list[str]:
    """Returns the columns whose values are the content of a row: a change of another column is not propagated (rule 5).

    These are the key and the selected columns; and the derived columns, unless they follow from those.
    """
    declared = spec.side(side)
    names = dict.fromkeys(column.name for column in (*declared.key_columns, *spec.selected[side]))
    derived = _derived(spec, side)
    reads = [declared.column(path[0]) for sql in derived.values() for path in parse_expression(sql).reads]
    follow = all(column is not None and column.name in names for column in reads)
    versions = spec.definition.input(side).versions_by(spec)
    return [*names, *({} if follow else derived), *([s.VALID_FROM, s.DELETED] if versions else [])]


def passes(side: SideSpec) -> str:
    """SQL (BOOLEAN, never null) over a row of a changelog: it has a row, which passes `where`.

    A row on which `where` fails stops Spark, in every mode: to leave it out would lose it. A line on which it fails
    goes to the quarantine before; so does one on which it fails once its values are filled, whose row stays in the
    changelog, and does not pass. What is in a changelog can fail after an edit.
    """
    if side.where is None:
        return f"NOT {s.DELETED}"
    gone = f"{s.DELETED} OR {s.WHERE_FAILS}" if format_of(side).has_holes else s.DELETED
    return f"COALESCE(IF({gone}, FALSE, ({side.where})), FALSE)"


def passing(log: DataFrame, side: SideSpec) -> DataFrame:
    """Returns rows of a changelog as an input with `where` has them: one that does not pass is a tombstone.

    The changelog keeps the row, so that an edit of `where` needs no landing files.
    """
    if side.where is None:
        return log
    values = [name for name in (s.HASH, *(column.name for column in side.value_columns)) if name in log.columns]
    masked = {name: F.expr(f"IF(_fk_passes, {quote(name)}, NULL)") for name in values}
    marked = log.selectExpr("*", f"{passes(side)} AS _fk_passes")
    return marked.withColumns({**masked, s.DELETED: F.expr("NOT _fk_passes")}).drop("_fk_passes")


def for_story(log: DataFrame, side: SideSpec) -> DataFrame:
    """Returns rows of a changelog with `NOT_PASSING`, and with their values once more (`as_read`), if it has a `where`.

    So a story has the values of a row that does not pass, also after `with_content`.
    """
    if side.where is None:
        return log
    values = [f"{column.quoted} AS {quote(as_read(column.name))}" for column in side.value_columns]
    return log.selectExpr("*", f"NOT {s.DELETED} AND NOT {passes(side)} AS {NOT_PASSING}", *values)


def in_source_order(log: DataFrame, side: SideSpec) -> DataFrame:
    """Returns rows of a changelog in the source's order; a truncate comes before the rows of its batch and sequence."""
    keys = [F.col(quote(name)) for name in side.stored_key]
    return log.orderBy(s.SEQUENCE, s.BATCH, keys[0].isNotNull(), *keys)


def with_content(
    log: DataFrame, spec: PipelineSpec, side: Side, evaluator: Evaluator = STOPPING, *, again: bool = False
) -> DataFrame:
    """Returns rows of a changelog as a state takes them: with the derived columns, and the hash of their content.

    A row that does not pass `where` is a tombstone (`passing`).

    If the content is the whole row, its hash is the one that the changelog has (ADR 0032). Where the state keeps every
    version of a key (`Input.versions_by`), the deletion of a row is a version too, and has a hash.

    Args:
        log: rows of a changelog, whole.
        spec: the pipeline.
        side: the side of the changelog.
        evaluator: if it is isolating, the derived columns of a row on which an expression fails are null; otherwise
            Spark fails.
        anew: whether the hash is computed in any case.

    Returns:
        The rows with the columns of `Input.derives`, and `_fk_hash`, null for a tombstone; with
        versions also `_fk_valid_from`.
    """
    log = passing(log, spec.side(side))
    versions = spec.definition.input(side).versions_by(spec)
    if versions and versions != (s.VALID_FROM,):
        log = log.withColumn(s.VALID_FROM, F.col(*versions))
    derived = _derived(spec, side)
    if derived:
        values = [evaluator.value(sql, f"NOT {s.DELETED}") for sql in derived.values()]
        evaluated = [f"{value} AS _fk_derived_{i}" for i, value in enumerate(values)]
        parts = {name: f"_fk_derived_{i}" for i, name in enumerate(derived)}
        columns = parts if spec.definition.input(side).apart else _whole(derived)
        log = log.selectExpr("*", *evaluated).withColumns({n: F.expr(sql) for n, sql in columns.items()})
    content = content_columns(spec, side)
    if not again and {*content} == {column.name for column in spec.side(side).columns}:
        return log
    if versions:
        no_key = quote(spec.side(side).key_columns[0].name)
        return with_row_hash(log.drop(s.HASH), s.HASH, content, f"{no_key} IS NULL")
    return _with_hash(log, content)


def _derived(spec: PipelineSpec, side: Side) -> dict[str, str]:
    """Returns the columns of a state besides those of the source: per name, the SQL over a row."""
    return spec.definition.input(side).derives(spec)


def _whole(derived: Collection[str]) -> dict[str, str]:
    """Returns the SQL of derived columns from `_fk_derived_<i>`: all are null when one is."""
    parts = [f"_fk_derived_{i}" for i in range(len(derived))]
    whole = " AND ".join(f"{part} IS NOT NULL" for part in parts)
    return {name: f"IF({whole}, {part}, NULL)" for part, name in zip(parts, derived, strict=True)}


def _with_hash(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    return with_row_hash(rows.drop(s.HASH), s.HASH, names, s.DELETED)
