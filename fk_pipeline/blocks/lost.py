"""Finds columns that place a row, by its key, what it refers to or its group, and that the source no longer sends.

If a source renames such a column, its rows go to the quarantine or refer to nothing, and the batches are done. The
warning proposes the new name, if a name in the rows comes close.
`docs/reference/schema-changes.md` is the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fk_pipeline.blocks.alike import close_names
from fk_pipeline.cdc.records import BAD, EVENT
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.sql import parse_expression, text

GONE = "gone"
"""Column of records (STRING): the placing columns that a row lacks, separated by commas; null if that is not known."""

Lacking = Mapping[int, Mapping[str, int]]
"""Per batch and value of `GONE`, the number of rows."""

NamesIn = Callable[[int, str, bool], Collection[str]]
"""Returns the names of fields in some rows of a batch that have a column (true), or lack it."""


@dataclass(frozen=True)
class Placing:
    """A column that places a row.

    Attributes:
        declared_as: the key of the pipeline file that names it.
        in_key: whether it is part of the key.
        needed: whether a row without it goes to the quarantine.
    """

    declared_as: str
    in_key: bool
    needed: bool


def placing_columns(spec: PipelineSpec, side: Side) -> dict[str, Placing]:
    """Returns the columns of the source by which rows of an input are identified, joined or grouped."""
    declared, kind_input = spec.side(side).as_sent, spec.definition.input(side)
    placing = {column.name: Placing(f"{side}.key", in_key=True, needed=True) for column in declared.key_columns}
    for name, sql in kind_input.derives(spec).items():
        where = f"{side}.{kind_input.derived_as(name).removeprefix(f'{side}.')}"
        for path in parse_expression(sql).reads:
            column = declared.column(path[0])
            if column is not None:
                placing.setdefault(column.name, Placing(where, in_key=False, needed=name in kind_input.times))
    return placing


def gone(placing: Mapping[str, Placing]) -> str:
    """SQL (STRING) of `GONE` over a record with `fields`.

    Of a record that is an event the key is known: Debezium may send it beside the row only.
    """
    lacks = [
        f"IF({'' if not column.in_key else f'kind = {text(BAD)} AND '}NOT ARRAY_CONTAINS(fields, {text(name)}), "
        f"{text(name)}, NULL)"
        for name, column in placing.items()
    ]
    row = f"fields IS NOT NULL AND kind IN ('{EVENT}', '{BAD}') AND NOT COALESCE(deleted, FALSE)"
    return f"IF({row}, CONCAT_WS(',', {', '.join(lacks)}), NULL)" if lacks else "CAST(NULL AS STRING)"


def lost(
    placing: Mapping[str, Placing],
    counted: Lacking,
    names: NamesIn,
    side: Side,
    known: Collection[str],
    *,
    sends_all: bool,
) -> dict[str, str]:
    """Returns a warning for each placing column that rows of some batches lack, by the column.

    Args:
        placing: the columns.
        counted: the numbers of rows.
        names: returns names of fields that may be new.
        side: the side of the rows.
        known: names that older batches have: where a source leaves out nulls, they are not new.
        sends_all: whether a row of the source has all columns, null or not.
    """
    warnings = {}
    for name, column in placing.items():
        certain = sends_all or column.in_key
        rows = {batch: sum(groups.values()) for batch, groups in counted.items()}
        lacking = {batch: _lacking(groups, name) for batch, groups in counted.items()}
        batches = [batch for batch, n in sorted(lacking.items()) if n and (certain or n == rows[batch])]
        if not batches:
            continue
        first = batches[0]
        others = {*names(first, name, False)} - (set() if certain else {*known})
        if lacking[first] < rows[first]:
            others -= {*names(first, name, True)}
        close = close_names(name, others)
        if close or (certain and lacking[first] == rows[first]):
            number = sum(lacking[batch] for batch in batches)
            warnings[name] = _warning(name, column, side, batches, number, close)
    return warnings


def _lacking(groups: Mapping[str, int], name: str) -> int:
    return sum(number for lacks, number in groups.items() if name in lacks.split(","))


def _warning(name: str, column: Placing, side: Side, batches: list[int], rows: int, close: list[str]) -> str:
    of = f"batch {batches[0]}" if len(batches) == 1 else f"{len(batches)} batches, the first of them {batches[0]}"
    then = "they are in the quarantine" if column.needed else "it is null for them"
    message = f"{of}: {rows:,} {side} row(s) have no column {name}, which {column.declared_as} names: {then}"
    if not close:
        return message
    new = close[0]
    fix = (
        f"name it in {side}.schema and {column.declared_as}"
        if column.in_key
        else f"add it to {side}.schema, and write COALESCE({new}, {name}) in {column.declared_as}"
    )
    return f"{message}. They have {' and '.join(close)}: if that is its new name, {fix}"
