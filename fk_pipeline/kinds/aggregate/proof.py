"""The proof of an aggregate: the table of last writers grouped in SQL.

It is without the code of the stages, but for which columns are compared loosely (`inexact`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.blocks.current import CurrentRows
from fk_pipeline.blocks.refresh.exactness import inexact as inexact_columns
from fk_pipeline.blocks.refresh.facts import VERSIONS
from fk_pipeline.blocks.times import limited
from fk_pipeline.cdc.delta import changes_between
from fk_pipeline.cdc.table_versions import are_kept, table_id
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate import tables as k
from fk_pipeline.kinds.aggregate.block import block_of
from fk_pipeline.kinds.aggregate.kind import START, WINDOW_END, WINDOW_START, AggregateStage, by
from fk_pipeline.kinds.aggregate.placing import spread
from fk_pipeline.kinds.aggregate.spec import AggregateSpec, TimeWindow
from fk_pipeline.kinds.aggregate.windows import DAY_MICROS, windows_of
from fk_pipeline.spec import quote
from fk_pipeline.spec.durations import micros, span
from fk_pipeline.spec.failing import ISOLATING
from fk_pipeline.spec.sql import text
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import row_metadata
from fk_pipeline.verify.last_writers import concerned, current_rows

CHANGED, ANY_GROUP = "changed rows", "any group"
"""The names of the frames of `outside`."""

_EPOCH = "DATE'1970-01-01'"
_FROM, _TO, _KEY = "_fk_from", "_fk_to", "_fk_key"


def expected(tables: Mapping[str, DataFrame], spec: AggregateSpec, _isolating: bool = False) -> DataFrame:
    """Returns the groups of the last writers: key columns and selected columns.

    Args:
        tables: the changelog.
        spec: the pipeline.
        _isolating: not used: an aggregate that fails stops the stage.
    """
    rows = current_rows(tables[AggregateStage.CHANGELOG], spec.input)
    session, view, named = rows.sparkSession, f"fk_{uuid.uuid4().hex}", f"fk_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    values = [f"({sql}) AS _fk_value_{i}" for i, sql in enumerate(spec.grouped_by.values())]
    source = f"SELECT {', '.join(['*', *values])} FROM {view}"
    names = {f"_fk_value_{i}": name for i, name in enumerate(spec.group_names)}
    if spec.window is not None:
        dtype = rows.selectExpr(f"({spec.window.time}) AS at").schema["at"].dataType.simpleString()
        source = _windowed(source, spec.window, dtype)
        names |= {_FROM: WINDOW_START, _TO: WINDOW_END, _KEY: START}
    measures = [measure.text for measure in spec.measures]
    groups = f"SELECT {', '.join([*names, *measures])} FROM ({source}) GROUP BY {', '.join(names)}"
    session.sql(groups).withColumnsRenamed(names).createOrReplaceTempView(named)
    columns = {by(name): name for name in spec.group_names} | {START: START}
    keys = [quote(columns[column]) for column in k.group_key(spec)]
    outputs = [output.sql for output in spec.outputs]
    result: DataFrame = session.sql(f"SELECT {', '.join([*keys, *outputs])} FROM {named} WHERE {spec.having or 'TRUE'}")
    return result.toDF(*k.group_key(spec), *[output.name for output in spec.outputs])


def _windowed(rows: str, window: TimeWindow, dtype: str) -> str:
    """SQL (query): rows once per window in which each counts, with the bounds of the window."""
    size, step, at = micros(span(window.size)), micros(span(window.step)), limited(f"({window.time})", dtype)
    if window.local:
        zone, size, step = text(window.zone), size // DAY_MICROS, step // DAY_MICROS
        place = f"DATEDIFF(TO_DATE(FROM_UTC_TIMESTAMP({at}, {zone})), {_EPOCH})"

        def time(number: str) -> str:
            return f"TO_UTC_TIMESTAMP(CAST(DATE_ADD({_EPOCH}, CAST({number} AS INT)) AS TIMESTAMP), {zone})"

    elif dtype == "bigint":
        place, size, step = at, size // 1000, step // 1000

        def time(number: str) -> str:
            return number

    else:  # Spark has windows of timestamps
        windowed = f"SELECT *, WINDOW({at}, '{size} microseconds', '{step} microseconds') AS _fk_w FROM ({rows})"
        return f"SELECT *, _fk_w.start AS {_FROM}, _fk_w.end AS {_TO}, _fk_w.start AS {_KEY} FROM ({windowed})"
    last = f"({place} - (({place} % {step}) + {step}) % {step})"
    spread = f"SELECT *, EXPLODE(SEQUENCE(0, {(size - 1) // step})) AS _fk_back FROM ({rows})"
    start = f"({last} - _fk_back * {step})"
    bounds = f"{time(start)} AS {_FROM}, {time(f'({start} + {size})')} AS {_TO}"
    key = time(start)
    if window.local:  # a day that its zone skipped begins with the next one: a microsecond tells their windows apart
        key = f"IF({key} = {time(f'({start} + {step})')}, {key} - INTERVAL 1 MICROSECOND, {key})"
    return f"SELECT *, {bounds}, {key} AS {_KEY} FROM ({spread}) WHERE {start} + {size} > {place}"


def inexact(tables: Mapping[str, DataFrame], spec: AggregateSpec) -> frozenset[str]:
    """Returns the columns whose values may depend on the order in which floating-point numbers are added."""
    table = tables[AggregateStage.TABLE]
    block = block_of(spec, windows_of(spec, dict(table.dtypes)))
    return inexact_columns(block, {AggregateStage.TABLE: table})


def outside(session: SparkSession, _: AggregateSpec, ledger: Ledger) -> dict[str, DataFrame]:
    """Returns the rows of the table that changed since the version that the result stands for, as they were and are.

    `ANY_GROUP` is there if nothing tells which these are.
    """
    result, table = (f"{ledger.home}/{name}" for name in (AggregateStage.AGGREGATED, AggregateStage.TABLE))
    stands, now = (ledger.logs.version(path) for path in (result, table))
    if now is None:
        return {}
    facts = {} if stands is None else row_metadata(result, stands)
    of, then = (facts.get(VERSIONS) or {}).get(AggregateStage.TABLE, ("", -1))
    changes, same = f"{table}@{then + 1}..{now}", of == table_id(f"{table}@..{now}")
    if same and then == now:
        return {}
    if not same or not 0 <= then < now or not are_kept(changes):
        return {ANY_GROUP: session.range(1)}
    return {CHANGED: changes_between(session, changes)}


def pending(tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], spec: AggregateSpec) -> list[DataFrame]:
    """Returns the keys of the groups that due work may still change, each once.

    These are the groups of every version of the rows that due batches concern, as the changelog and the table have
    them, and those of the rows of the table that the result does not stand for. All groups, if a due batch has a
    truncate, or nothing tells which rows the result does not stand for.

    Args:
        tables: the tables, and what `outside` returned.
        due: the due batches per stage.
        spec: the pipeline.
    """
    log, table = tables[AggregateStage.CHANGELOG], tables[AggregateStage.TABLE]
    rows, windows = CurrentRows.of(spec, Side.INPUT), windows_of(spec, dict(table.dtypes))
    touched, whole = concerned(log, table, rows.keys, due)
    if ANY_GROUP in tables:
        whole = whole.union(tables[ANY_GROUP].select()).limit(1)
    first = quote(rows.keys[0])
    versions = with_content(log.where(f"{first} IS NOT NULL"), spec, Side.INPUT, ISOLATING)

    def groups(of: DataFrame) -> DataFrame:
        return spread(of.where(f"{s.HASH} IS NOT NULL"), windows).select(*map(quote, k.group_key(spec)))

    parts = [groups(tables[CHANGED])] if CHANGED in tables else []
    for frame in (versions, table):
        narrow = frame.select(*map(quote, (*rows.keys, *rows.derived)), s.HASH)
        parts.append(groups(narrow.join(touched.distinct(), rows.keys, "left_semi")))
        parts.append(groups(narrow.crossJoin(F.broadcast(whole))))
    everything = tables[AggregateStage.AGGREGATED].select(*map(quote, k.group_key(spec)))
    parts.append(everything.crossJoin(F.broadcast(whole)))
    return [reduce(DataFrame.unionByName, parts).distinct()]


def counted(
    tables: Mapping[str, DataFrame], spec: AggregateSpec, _isolating: bool, _chosen: Callable[[Iterable[str]], str]
) -> dict[str, DataFrame]:
    """Returns, per number of a `VerifyReport` that is about the inputs, a frame with as many rows: `left_rows`."""
    return {"left_rows": current_rows(tables[AggregateStage.CHANGELOG], spec.input)}
