"""The table of a block, whose rows know their key and the hash of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.blocks.input_types import first_line
from fk_pipeline.blocks.refresh.refreshed import Refreshed
from fk_pipeline.blocks.refresh.sums import MEAN, SUM, Sums, is_exact, sums_of, type_of_sum
from fk_pipeline.blocks.select.block import ANCHOR, PART, ROW, Block, Unit
from fk_pipeline.blocks.select.likeness import known_type
from fk_pipeline.blocks.select.lineage import plain_read, reads_of, reads_of_sql
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.frames import sql_over
from fk_pipeline.spec.load import file_and_line
from fk_pipeline.spec.model import UNKNOWN_TYPE
from fk_pipeline.spec.sql import DIALECT
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import MERGED, Table, skippable, typed_columns

Typed = tuple[tuple[str, str], ...]


_HASHED = (Unit.GROUP, Unit.UNION)
"""Units of blocks whose rows have no anchor of one kind, and are told apart by a hash alone."""


def relation_keys(spec: Refreshed, tables: Mapping[str, Table], relation: str) -> Typed:
    """Returns the key columns (name, type) of an input, or of a table of the pipeline; none of them is ever null."""
    if relation in spec.inputs:
        return typed_columns(spec.inputs[relation].key_columns)
    types = dict(tables[relation].columns)
    return tuple((name, types[name]) for name in tables[relation].keys)


def anchor_columns(spec: Refreshed, tables: Mapping[str, Table], block: Block) -> dict[str, str]:
    """Returns, per column of a block with a part of its anchor's key, the name of that part; none for groups."""
    if block.unit in _HASHED:
        return {}
    keys = relation_keys(spec, tables, block.anchor.relation)
    return {ANCHOR.format(number): name for number, (name, _) in enumerate(keys)}


def _table_of(
    spec: Refreshed, tables: Mapping[str, Table], block: Block, columns: Typed, numbers: Typed, *, hashed: bool
) -> Table:
    """Returns the table of a block: one row per row of it.

    Args:
        spec: the pipeline.
        tables: those of the pipeline that it reads, by name.
        block: the block.
        columns: its columns with their types.
        numbers: the hidden columns of groups that are kept by arithmetic.
        hashed: whether its rows are told apart by a hash, beside the key of the anchor (`_is_hashed`).
    """
    anchors: Typed = ()
    if block.unit not in _HASHED:
        keys = relation_keys(spec, tables, block.anchor.relation)
        anchors = tuple((ANCHOR.format(number), dtype) for number, (_, dtype) in enumerate(keys))
    key = (*anchors, *(((ROW, "BINARY"),) if hashed else ()))
    part = ((PART, "BINARY"),) if block.unit in (Unit.PARTITION, Unit.UNION) else ()
    secret = {column for column in block.columns if _is_secret(spec, tables, reads_of(block, column))}
    secret |= _secret_sums(spec, tables, block)
    return Table(
        block.name,
        (*key, *part, (s.HASH, "BINARY"), (s.BATCH, "INT"), (s.CHANGED_AT, "TIMESTAMP"), *numbers, *columns),
        skip_by=(s.BATCH, *skippable(anchors)),
        keys=tuple(name for name, _ in key),
        properties={**MERGED, s.CHANGE_FEED: "true"},
        sensitive=frozenset(secret),
    )


def _is_hashed(spec: Refreshed, declared: Mapping[str, Table], block: Block) -> bool:
    """Returns whether the key of the anchor does not identify a joined row, as far as the pipeline file alone tells.

    It does if each other table is joined by its whole key, to values of the same type: a row of the anchor is joined to
    one row of it at most.
    """
    if block.unit in _HASHED or block.laterals:
        return True
    dtypes = {alias.name: _types(spec, declared, alias.relation) for alias in block.aliases}
    for alias in [alias for alias in block.aliases[1:] if not alias.is_single]:
        own, others = dtypes[alias.name], dtypes[alias.parent]
        by = {name for name, of in alias.equal if own[name] == others[of] and is_compared_as_stored(own[name])}
        if not {name.lower() for name, _ in relation_keys(spec, declared, alias.relation)} <= by:
            return True
    return False


def _types(spec: Refreshed, tables: Mapping[str, Table], relation: str) -> dict[str, str]:
    """Returns the types of the columns of a relation, by their names in lower case."""
    side = spec.inputs.get(relation)
    columns = tables[relation].columns if side is None else typed_columns(side.columns)
    return {name.lower(): dtype.upper() for name, dtype in columns}


_COMPARED = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING", "BINARY", "DATE", "TIMESTAMP", "BOOLEAN")


def is_compared_as_stored(dtype: str) -> bool:
    """Returns whether two values of a type, in upper case, are equal if, and only if, they are stored alike."""
    return dtype.split("(", 1)[0] in _COMPARED


def _is_secret(spec: Refreshed, tables: Mapping[str, Table], reads: Iterable[tuple[str, str]]) -> bool:
    """Returns whether one of some columns (relation, column) is sensitive."""
    return any(read.lower() in _sensitive(spec, tables, name) for name, read in reads)


def _secret_sums(spec: Refreshed, tables: Mapping[str, Table], block: Block) -> set[str]:
    """Returns the hidden columns with sums of sensitive values: that of a group of one row is the value."""
    sums = sums_of(block)
    summed = {} if sums is None else {SUM.format(number): sums.arguments[number] for number in sums.summed}
    return {name for name, sql in summed.items() if _is_secret(spec, tables, reads_of_sql(block, sql))}


def _sensitive(spec: Refreshed, tables: Mapping[str, Table], relation: str) -> set[str]:
    """Returns the sensitive columns of an input, or of a table of the pipeline, in lower case."""
    sensitive = spec.inputs[relation].sensitive if relation in spec.inputs else tables[relation].sensitive
    return {name.lower() for name in sensitive}


def analysed_table(
    spec: Refreshed,
    tables: Mapping[str, Table],
    block: Block,
    rows: Mapping[str, DataFrame],
    *,
    hashed: bool,
    written: str = "query",
) -> Table:
    """Returns the table of a block; Spark analyses the block over empty tables.

    Args:
        spec: the pipeline.
        tables: those of the pipeline that it reads, by name.
        block: the block.
        rows: what it reads, without rows, by name.
        hashed: whether its rows have `ROW`, as in its `declared_table`: what needs no Spark must know the keys, too.
        written: where in the pipeline file the block is written, for errors.

    Raises:
        PipelineFileError: Spark refuses the block.
    """
    sums = sums_of(block)
    dtypes = _analysed(spec, block, rows, sums.analysed() if sums is not None else {}, written)
    columns = tuple((name, dtypes[name]) for name in block.columns)
    types = {name: dtype for name, dtype in dtypes.items() if name not in block.columns}
    numbers = () if sums is None or not is_exact(types) else number_columns(sums, types)
    return _table_of(spec, tables, block, columns, numbers, hashed=hashed)


def declared_table(spec: Refreshed, tables: Mapping[str, Table], block: Block) -> Table:
    """Returns the table of a block as far as the pipeline file alone tells: the type of an expression is `expression`.

    `tables` are those of the pipeline that the block reads, by name.
    """
    columns = tuple((name, _declared(spec, tables, block, name)) for name in block.columns)
    numbers, hashed = _declared_numbers(spec, tables, block), _is_hashed(spec, tables, block)
    return _table_of(spec, tables, block, columns, numbers, hashed=hashed)


def number_columns(sums: Sums, types: Mapping[str, str]) -> Typed:
    """Returns the hidden columns of groups that are kept by arithmetic, with their types."""
    return tuple((name, types.get(name, "BIGINT")) for name in sums.numbers(types))


def means_of(session: SparkSession, sums: Sums, types: Mapping[str, str]) -> dict[str, str]:
    """Returns the types that Spark gives to averages of summed arguments, which follow from those of the sums."""
    means = {}
    for number in sums.averaged:
        dtype = types[SUM.format(number)].upper()
        if not dtype.startswith("DECIMAL"):
            means[MEAN.format(number)] = "DOUBLE"
            continue
        precision, scale = map(int, dtype.removeprefix("DECIMAL(").rstrip(")").split(","))
        argument = f"CAST(NULL AS DECIMAL({max(1, precision - 10)}, {scale}))"
        mean = session.sql(f"SELECT AVG({argument}) AS mean").schema["mean"].dataType
        means[MEAN.format(number)] = mean.simpleString()
    return means


def _analysed(
    spec: Refreshed,
    block: Block,
    rows: Mapping[str, DataFrame],
    more: Mapping[str, str],
    written: str,
) -> dict[str, str]:
    """Returns the types of the columns of a block, and of more columns (name, SQL), as Spark finds them."""
    try:
        frames = {alias.name: rows[alias.relation] for alias in block.aliases}
        fields = sql_over(frames, lambda tables: block.of(tables, more)).schema.fields
        row_hash((field.name, field.dataType) for field in fields)  # refuses a type that cannot be hashed
    except (PySparkException, TypeError) as error:
        place = file_and_line(spec.file, written.split(",", maxsplit=1)[0], "")
        raise PipelineFileError(f"{written}: {first_line(error)}", where=place) from None
    return {field.name: field.dataType.simpleString() for field in fields}


def _declared(spec: Refreshed, tables: Mapping[str, Table], block: Block, column: str) -> str:
    plain = plain_read(block, column)
    if plain is None:
        return UNKNOWN_TYPE
    relation, name = plain
    if relation in spec.inputs:
        return spec.inputs[relation].type_of((name,)) or UNKNOWN_TYPE
    return {of.lower(): dtype for of, dtype in tables[relation].columns}[name.lower()]


def _declared_numbers(spec: Refreshed, tables: Mapping[str, Table], block: Block) -> Typed:
    """Returns the hidden columns of groups that are probably kept by arithmetic."""
    sums = sums_of(block)
    if sums is None or declared_exact(spec, tables, block, sums) is False:
        return ()
    sized = {SUM.format(number): UNKNOWN_TYPE for number in sums.summed}
    return number_columns(sums, sized)


def declared_exact(spec: Refreshed, tables: Mapping[str, Table], block: Block, sums: Sums) -> bool | None:
    """Returns whether arithmetic is exact (`is_exact`), as far as the pipeline file tells; None if it does not.

    `tables` are those of the pipeline that the block reads, by name.
    """
    types = {  # a STRING is a DOUBLE, as SUM has it
        (alias.name, column): exp.DataType.build("DOUBLE" if dtype == "STRING" else dtype, dialect=DIALECT)
        for alias in block.aliases
        for column, dtype in _types(spec, tables, alias.relation).items()
        if dtype != UNKNOWN_TYPE.upper()
    }
    dtypes = {number: type_of_sum(known_type(sums.arguments[number], types)) for number in sorted(sums.summed)}
    unknown = {
        number for number, dtype in dtypes.items() if not dtype or (dtype == "DECIMAL" and number in sums.averaged)
    }
    known = {
        SUM.format(number): dtype for number, dtype in dtypes.items() if number not in unknown and dtype != "DECIMAL"
    }
    if not is_exact(known | {MEAN.format(number): "" for number in sums.averaged}):
        return False
    return None if unknown else True
