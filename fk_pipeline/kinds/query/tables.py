"""Names and schemas of the tables of a query: one per block, whose rows know their key and the hash of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.blocks.input_types import empty_rows, first_line
from fk_pipeline.cdc.table_versions import shown_version
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.frames import empty
from fk_pipeline.kinds.query.blocks import ANCHOR, PART, ROW, Block, Unit
from fk_pipeline.kinds.query.kind import standing_for
from fk_pipeline.kinds.query.proof import as_written
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.sums import MEAN, SUM, Sums, is_exact, sums_of
from fk_pipeline.spec.model import UNKNOWN_TYPE
from fk_pipeline.store import schemas as s
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.schemas import MERGED, Table, skippable, typed_columns

Typed = tuple[tuple[str, str], ...]


_HASHED = (Unit.GROUP, Unit.UNION)
"""Units of blocks whose rows have no anchor of one kind, and are told apart by a hash alone."""


def relation_keys(spec: QuerySpec, tables: Mapping[str, Table], relation: str) -> Typed:
    """Returns the key columns (name, type) of an input, or of a block among `tables`; none of them is ever null."""
    if relation in spec.inputs:
        return typed_columns(spec.inputs[relation].key_columns)
    types = dict(tables[relation].columns)
    return tuple((name, types[name]) for name in tables[relation].keys)


def anchor_columns(spec: QuerySpec, tables: Mapping[str, Table], block: Block) -> dict[str, str]:
    """Returns, per column of a block with a part of its anchor's key, the name of that part; none for groups."""
    if block.unit in _HASHED:
        return {}
    keys = relation_keys(spec, tables, block.anchor.relation)
    return {ANCHOR.format(number): name for number, (name, _) in enumerate(keys)}


def _table_of(
    spec: QuerySpec, tables: Mapping[str, Table], block: Block, columns: Typed, numbers: Typed, *, hashed: bool
) -> Table:
    """Returns the table of a block: one row per row of it.

    Args:
        spec: the pipeline.
        tables: those of earlier blocks, by name.
        block: the block.
        columns: its columns with their types.
        numbers: the hidden columns of groups that are kept by arithmetic.
        hashed: whether its rows are told apart by a hash, beside the key of the anchor (`_is_hashed`).
    """
    anchors: Typed = ()
    if block.unit not in _HASHED:
        keys = relation_keys(spec, tables, block.anchor.relation)
        anchors = tuple((ANCHOR.format(number), kind) for number, (_, kind) in enumerate(keys))
    key = (*anchors, *(((ROW, "BINARY"),) if hashed else ()))
    part = ((PART, "BINARY"),) if block.unit in (Unit.PARTITION, Unit.UNION) else ()
    secret = {column for column in block.columns if _is_secret(spec, block, column)}
    return Table(
        block.name,
        (*key, *part, (s.HASH, "BINARY"), (s.BATCH, "INT"), (s.CHANGED_AT, "TIMESTAMP"), *numbers, *columns),
        skip_by=(s.BATCH, *skippable(anchors)),
        keys=tuple(name for name, _ in key),
        properties={**MERGED, s.CHANGE_FEED: "true"},
        sensitive=frozenset(secret),
    )


def _is_hashed(spec: QuerySpec, declared: Mapping[str, Table], block: Block) -> bool:
    """Returns whether the key of the anchor does not identify a joined row, as far as the pipeline file alone tells.

    It does if each other table is joined by its whole key, to values of the same type: a row of the anchor is joined to
    one row of it at most.
    """
    if block.unit in _HASHED or block.laterals:
        return True
    kinds = {one.name: _types(spec, declared, one.relation) for one in block.aliases}
    for one in [one for one in block.aliases[1:] if not one.is_single]:
        own, others = kinds[one.name], kinds[one.parent]
        by = {name for name, of in one.equal if own[name] == others[of] and is_compared_as_stored(own[name])}
        if not {name.lower() for name, _ in relation_keys(spec, declared, one.relation)} <= by:
            return True
    return False


def _types(spec: QuerySpec, tables: Mapping[str, Table], relation: str) -> dict[str, str]:
    """Returns the types of the columns of a relation, by their names in lower case."""
    side = spec.inputs.get(relation)
    columns = tables[relation].columns if side is None else typed_columns(side.columns)
    return {name.lower(): kind.upper() for name, kind in columns}


_COMPARED = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING", "BINARY", "DATE", "TIMESTAMP", "BOOLEAN")


def is_compared_as_stored(kind: str) -> bool:
    """Returns whether two values of a type, in upper case, are equal if, and only if, they are stored alike."""
    return kind.split("(", 1)[0] in _COMPARED


def _is_secret(spec: QuerySpec, block: Block, column: str) -> bool:
    return any(spec.inputs[name].is_sensitive(read) for name, read in spec.blocks.inputs_of(column, block.name))


def layout_of(session: SparkSession, spec: QuerySpec) -> Layout:
    """Returns the tables; Spark analyses the query over empty tables.

    Raises:
        PipelineFileError: Spark refuses a part of the query.
    """
    rows = {name: empty_rows(session, spec, side) for name, side in spec.inputs.items()}
    _refuse_what_spark_refuses(rows, spec)
    tables, declared = dict[str, Table](), declared_layout(spec)
    for block in spec.blocks.blocks:
        sums = sums_of(block)
        kinds = _analysed(session, spec, block, rows, sums.analysed() if sums is not None else {})
        columns = tuple((name, kinds[name]) for name in block.columns)
        types = {name: kind for name, kind in kinds.items() if name not in block.columns}
        numbers = () if sums is None or not is_exact(types) else number_columns(sums, types)
        hashed = ROW in declared[block.name].names  # what needs no Spark must know the keys, too
        tables[block.name] = _table_of(spec, tables, block, columns, numbers, hashed=hashed)
        rows[block.name] = empty(session, tables[block.name].columns)
    return Layout(tuple(tables.values()))


def _refuse_what_spark_refuses(rows: Mapping[str, DataFrame], spec: QuerySpec) -> None:
    """Refuses a query that Spark could not run as it is written, as `verify` does, though its blocks could be."""
    try:
        as_written(rows, spec).schema  # noqa: B018 - analyses it
    except PySparkException as error:
        raise PipelineFileError(f"query: {first_line(error)}", where=str(spec.file)) from None


def number_columns(sums: Sums, types: Mapping[str, str]) -> Typed:
    """Returns the hidden columns of groups that are kept by arithmetic, with their types."""
    return tuple((name, types.get(name, "BIGINT")) for name in sums.numbers(types))


def means_of(session: SparkSession, sums: Sums, types: Mapping[str, str]) -> dict[str, str]:
    """Returns the types that Spark gives to averages of summed arguments, which follow from those of the sums."""
    found = {}
    for number in sums.averaged:
        kind = types[SUM.format(number)].upper()
        if not kind.startswith("DECIMAL"):
            found[MEAN.format(number)] = "DOUBLE"
            continue
        precision, scale = map(int, kind.removeprefix("DECIMAL(").rstrip(")").split(","))
        argument = f"CAST(NULL AS DECIMAL({max(1, precision - 10)}, {scale}))"
        mean = session.sql(f"SELECT AVG({argument}) AS mean").schema["mean"].dataType
        found[MEAN.format(number)] = mean.simpleString()
    return found


def _analysed(
    session: SparkSession, spec: QuerySpec, block: Block, rows: Mapping[str, DataFrame], more: Mapping[str, str]
) -> dict[str, str]:
    """Returns the types of the columns of a block, and of more columns (name, SQL), as Spark finds them."""
    names = {one.name: f"fk_analysed_{number}" for number, one in enumerate(block.aliases)}
    for one in block.aliases:
        rows[one.relation].createOrReplaceTempView(names[one.name])
    try:
        fields = session.sql(block.of(names, more)).schema.fields
        row_hash((field.name, field.dataType) for field in fields)  # refuses a type that cannot be hashed
    except (PySparkException, TypeError) as error:
        raise PipelineFileError(f"query: {first_line(error)}", where=str(spec.file)) from None
    finally:
        for name in names.values():
            session.catalog.dropTempView(name)
    return {field.name: field.dataType.simpleString() for field in fields}


def declared_layout(spec: QuerySpec) -> Layout:
    """Returns the tables as far as the pipeline file alone tells: the type of an expression is `expression`."""
    tables: dict[str, Table] = {}
    for block in spec.blocks.blocks:
        columns = tuple((name, _declared(spec, tables, block, name)) for name in block.columns)
        numbers, hashed = _declared_numbers(spec, block), _is_hashed(spec, tables, block)
        tables[block.name] = _table_of(spec, tables, block, columns, numbers, hashed=hashed)
    return Layout(tuple(tables.values()))


def _declared(spec: QuerySpec, tables: Mapping[str, Table], block: Block, column: str) -> str:
    plain = block.plain(column)
    if plain is None:
        return UNKNOWN_TYPE
    relation, name = plain
    if relation in spec.inputs:
        return spec.inputs[relation].type_of((name,)) or UNKNOWN_TYPE
    return {of.lower(): kind for of, kind in tables[relation].columns}[name.lower()]


def _declared_numbers(spec: QuerySpec, block: Block) -> Typed:
    """Returns the hidden columns of groups that are probably kept by arithmetic."""
    sums = sums_of(block)
    if sums is None:
        return ()
    names = {one.name: one.relation for one in block.aliases}
    for number in sums.summed:
        for column in block.read_by(sums.arguments[number]):
            side = spec.inputs.get(names.get(column.table, ""))
            if side is not None and (side.type_of((column.name,)) or "").upper() in ("FLOAT", "DOUBLE"):
                return ()
    sized = {SUM.format(number): UNKNOWN_TYPE for number in sums.summed}
    return number_columns(sums, sized)


def keys_of(spec: QuerySpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    found = declared_layout(spec)[table]
    types = dict(found.columns)
    return Table(table, tuple((k, types[k]) for k in found.keys), keys=found.keys, sensitive=found.sensitive)


def shown_keys(_: QuerySpec) -> list[str]:
    """Returns the names of the columns by which rows are paired, for people."""
    return ["content", "copy"]


def lineage(spec: QuerySpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a block, the (stage or input, column) pairs from which its values come."""
    block = spec.blocks.block(stage)
    return {column: sorted(block.reads(column)) for column in block.columns}


_MEANING = {
    **s.MEANING,
    ROW: "a hash of the keys of all joined rows, or of the group",
    PART: "a hash of the partition",
    s.HASH: "of the values of the row",
    s.BATCH: "the look at the inputs after which the row was last written",
}


def meaning(column: str, _: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    if column.startswith(ANCHOR.format("")):
        return "a part of the key of the anchor"
    return _MEANING.get(column)


def standing(facts: Mapping[str, Any]) -> dict[str, str]:
    """Returns, per input, the version that the result stands for, as text."""
    stands = standing_for(facts)
    return {name: ", ".join(shown_version(of, version) for of, version in some) for name, some in stands.items()}
