"""The proof of a query: the query as it was written, run by Spark over the inputs at the versions of the result.

It shares no code with the blocks, but for which columns are compared loosely (`inexact`). Rows are paired by their
values, as in a bag.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.blocks.landed_versions import newest_version
from fk_pipeline.blocks.refresh.clocks import row_of_clock
from fk_pipeline.blocks.refresh.exactness import inexact_of
from fk_pipeline.blocks.refresh.facts import standing_for
from fk_pipeline.cdc.delta import of_result
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.frames import empty, sql_over
from fk_pipeline.identity import Side
from fk_pipeline.kinds.query.kind import RESULT
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.proof import PAIRED_BY
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.inputs import CLOCK
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import row_metadata

MIXED = "versions differ"
"""The name of the frame that is there if blocks stand for different versions of an input: work is due then."""


def outside(session: SparkSession, spec: QuerySpec, ledger: Ledger) -> dict[str, DataFrame]:
    """Returns the inputs at the versions that the result stands for, by name.

    If that is not one version each, or not known, they are at those that were found last; `MIXED` is there while work
    is due then.
    """
    path = f"{ledger.home}/{RESULT}"
    version = ledger.logs.version(path)
    stands = {} if version is None else standing_for(row_metadata(path, version))
    newest = {name: newest_version(spec, ledger, Side(name)) for name in spec.inputs}
    versions = {name: _version_named(stands.get(name), seen) for name, seen in newest.items()}
    unknown = not stands.keys() >= versions.keys()  # a block that the result is made of had not run
    mixed = any(seen is _OTHER for seen in versions.values()) or (unknown and any(ledger.due.by_stage().values()))
    inputs = {}
    for name, seen in versions.items():
        inputs[name] = _at(session, spec.inputs[name], newest[name] if mixed or isinstance(seen, str) else seen)
    return inputs | ({MIXED: session.range(1)} if mixed else {})


_OTHER = "other"


def _version_named(stands: list[tuple[str, int]] | None, newest: Seen | None) -> Seen | str | None:
    """Returns the version of an input that facts name, None if the table was not there; `_OTHER` if it is not one."""
    if stands is None:
        return newest
    if not stands:
        return None
    if len(stands) > 1 or newest is None or stands[0][0] != newest.id:
        return _OTHER
    return replace(newest, version=stands[0][1])


def _at(session: SparkSession, side: SideSpec, seen: Seen | None) -> DataFrame:
    """Returns an input at a version."""
    columns = [(column.name, column.type) for column in side.columns]
    if seen is None:
        return empty(session, columns)
    if seen.is_clock:
        return row_of_clock(session, seen.location, seen.version).drop(CLOCK)
    rows = session.read.format("delta").option("versionAsOf", seen.version).load(seen.location)
    if side.pipeline is not None:
        rows = of_result(rows, side)
    present = {name.lower() for name in rows.columns}
    rows = rows.selectExpr(
        *(quote(of) if of.lower() in present else f"CAST(NULL AS {dtype}) AS {quote(of)}" for of, dtype in columns)
    )
    return rows.where(side.where) if side.where else rows


def expected(tables: Mapping[str, DataFrame], spec: QuerySpec, _isolating: bool = False) -> DataFrame:
    """Returns the rows of the query."""
    named = as_written(tables, spec).toDF(*spec.blocks.columns)
    dtypes = {field.name: field.dataType for field in tables[RESULT].schema.fields}
    return named.select(*[named[quote(name)].cast(dtypes[name]).alias(name) for name in spec.blocks.columns])


def as_written(tables: Mapping[str, DataFrame], spec: QuerySpec) -> DataFrame:
    """Returns the rows of the query as it was written, over its inputs among some tables."""

    def text(names: Mapping[str, str]) -> str:
        with_ = ", ".join(f"{name} AS (SELECT * FROM {table})" for name, table in names.items())
        return f"WITH {with_} SELECT * FROM (\n{spec.sql.strip().rstrip(';')}\n)"

    return sql_over({name: tables[name] for name in spec.inputs}, text)


def inexact(tables: Mapping[str, DataFrame], spec: QuerySpec) -> frozenset[str]:
    """Returns the columns whose values may depend on the order in which floating-point numbers are added."""
    return inexact_of(spec.blocks, tables)


def paired(rows: DataFrame, spec: QuerySpec, loose: Collection[str]) -> DataFrame:
    """Returns rows with a hash of their values, and the number of each among those with one hash.

    Floating-point values, and those of the columns `loose`, may differ from one computation to the next. They are not
    in the hash; those that are numbers order the copies.
    """
    fields = [field for field in rows.schema.fields if field.name in spec.blocks.columns]
    floats = [field.name for field in fields if isinstance(field.dataType, T.FloatType | T.DoubleType)]
    content, copy = PAIRED_BY
    exact = row_hash((field.name, field.dataType) for field in fields if field.name not in (*floats, *loose))
    numbers = [field.name for field in fields if field.name in loose and isinstance(field.dataType, T.NumericType)]
    order = ", ".join(map(quote, dict.fromkeys([*floats, *numbers]))) or "1"
    hashed = rows.selectExpr("*", f"{exact} AS {content}")
    return hashed.selectExpr("*", f"ROW_NUMBER() OVER (PARTITION BY {content} ORDER BY {order}) AS {copy}")


def pending(tables: Mapping[str, DataFrame], _: Mapping[str, Iterable[int]], __: QuerySpec) -> list[DataFrame]:
    """Returns that every row is pending if the blocks stand for different versions; otherwise none is."""
    return [tables[MIXED].select()] if MIXED in tables else []


def counted(
    tables: Mapping[str, DataFrame], spec: QuerySpec, _isolating: bool, _chosen: Callable[[Iterable[str]], str]
) -> dict[str, DataFrame]:
    """Returns, per number of a `VerifyReport` that is about the inputs, a frame with as many rows: `left_rows`."""
    return {"left_rows": reduce(DataFrame.unionAll, (tables[name].selectExpr("1 AS one") for name in spec.inputs))}
