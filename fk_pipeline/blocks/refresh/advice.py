"""What a user must know of a block that is not as it may seem: ties, wide partitions. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from fk_pipeline.blocks.refresh.refreshed import Refreshed
from fk_pipeline.blocks.select.block import Block, Unit
from fk_pipeline.blocks.select.generators import POSITION, position_of
from fk_pipeline.blocks.select.lineage import expression_of, sql_of
from fk_pipeline.spec.sql import DIALECT

_BY_PLACE = ("ROW_NUMBER", "NTILE", "LAG", "LEAD", "FIRST", "FIRST_VALUE", "LAST", "LAST_VALUE", "NTH_VALUE")
"""Window functions whose value depends on which of two rows with the same values in ORDER BY comes first."""

_BY_POSEXPLODE = "the position, by posexplode"
"""What tells the rows of explode apart."""

_Named = tuple[str, str]
"""An alias of a FROM, and a column of it in lower case."""


def advice_on(spec: Refreshed, block: Block) -> Iterator[str]:
    """Yields sentences about a block."""
    windows = list(block.tree.find_all(exp.Window))
    own = list(dict.fromkeys(_partition(one) for one in windows))
    if len(own) > 1 and not any({*one} == {*block.values} for one in own):
        shared = f"by {plain(', '.join(block.values))}" if block.values else "of all rows"
        each = " and ".join(plain(", ".join(one)) or "nothing" for one in own)
        yield (
            f"{block.name}: its window functions have different PARTITION BY ({each}), so what a change computes again "
            f"is the partition that they share, {shared}: right, but dear. Cheaper: each in a CTE of its own, joined "
            "by the key of the rows"
        )
    for one in windows:
        text = _on_ties(spec, block, one)
        if text:
            yield text


def _partition(window: exp.Expr) -> tuple[str, ...]:
    return tuple(one.sql(DIALECT) for one in window.args.get("partition_by") or ())


def _on_ties(spec: Refreshed, block: Block, window: exp.Expr) -> str:
    """Returns a sentence about a window function if rows that are equal in ORDER BY may swap its value; else empty."""
    order, frame = window.args.get("order"), window.args.get("spec")
    counts_rows = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
    call = window.this
    while isinstance(call, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        call = call.this
    function = call.sql(DIALECT).partition("(")[0].upper()
    if order is None or not (function in _BY_PLACE or counts_rows):
        return ""
    by = [one.this for one in order.expressions]
    columns = (*by, *(window.args.get("partition_by") or ()))
    given = {_named(one) for one in columns if isinstance(one, exp.Column)}
    missing = _undetermined(spec, block, given)
    if not missing:
        return ""
    limited = block.keep is not None and block.anchor.name == "_rows" and block.tree.selects[-1].alias == "_fk_rank"
    shown = [_source(spec, block, one) for one in by]
    what = "ORDER BY with LIMIT" if limited else function
    add = [
        name if name == _BY_POSEXPLODE else _source(spec, block, exp.column(name, of))
        for of, name in missing
        if name != "*"
    ] or _hidden(spec, block)
    return (
        f"{block.name}: {what} by {', '.join(shown)}: of rows that are equal there Spark may take another first each "
        f"time, and verify may differ. Add to ORDER BY what tells them apart: {', '.join(add) or 'the key of the rows'}"
    )


def _source(spec: Refreshed, block: Block, one: exp.Expr) -> str:
    """Returns an expression as the user wrote it, as far as that is known: a column of LIMIT's own as what it is of."""
    if isinstance(one, exp.Column):
        relation = next((alias.relation for alias in block.aliases if alias.name == one.table), "")
        inner = next((of for of in spec.blocks.blocks if of.name == relation), None)
        if inner is not None and one.name.startswith("_fk_order_"):
            return plain(sql_of(inner, one.name))
        if one.table == "_rows":
            return one.name
    return plain(one.sql(DIALECT))


def plain(sql: str) -> str:
    """Returns SQL without the marks that are put around names."""
    return sql.replace("`", "")


def _hidden(spec: Refreshed, block: Block) -> list[str]:
    """Returns the columns that an earlier block must give so that its rows can be told apart; none if unknown."""
    for inner in (one for one in spec.blocks.blocks if one.name in block.relations and one.unit is not Unit.GROUP):
        made = (expression_of(inner, name) for name in inner.columns)
        given = {_named(one) for one in made if isinstance(one, exp.Column)}
        lacking = _undetermined(spec, inner, given)
        return [name if name == _BY_POSEXPLODE else f"{of}.{name}" for of, name in lacking if name != "*"]
    return []


def _undetermined(spec: Refreshed, block: Block, given: Iterable[_Named]) -> list[_Named]:
    """Returns columns that are lacking to tell the joined rows of a block apart; none if `given` does."""
    known, rows = _determined(spec, block, given)
    lacking = [one for one in block.aliases if one.name not in rows][:1]
    found = [(one.name, column) for one in lacking for column in _key(spec, one.relation) or ("*",)]
    positions = [position_of(one) for one in block.laterals]
    return found + [_position(one) for one in positions if one is not None and _named(one) not in known]


def _position(column: exp.Column) -> _Named:
    return column.table, _BY_POSEXPLODE if column.name == POSITION else column.name.lower()


def _determined(spec: Refreshed, block: Block, given: Iterable[_Named]) -> tuple[set[_Named], set[str]]:
    """Returns the columns, and the tables of a FROM, that have one value, or one row, for given values of some columns.

    A table has one row if all columns of its key have one value. Then so have all its columns, and what equals them.
    """
    known, rows = {*given}, set[str]()
    keys = {one.name: _key(spec, one.relation) for one in block.aliases}
    while True:
        before = len(known) + len(rows)
        for one in block.aliases:
            key = keys[one.name]
            if key is not None and {(one.name, column) for column in key} <= known:
                rows.add(one.name)
            for own, its in one.equal:
                if (one.parent, its.lower()) in known or one.parent in rows:
                    known.add((one.name, own.lower()))
                if not one.how and ((one.name, own.lower()) in known or one.name in rows):
                    known.add((one.parent, its.lower()))
            known |= {(one.name, same) for same in _same(spec, one.relation, {c for n, c in known if n == one.name})}
        if len(known) + len(rows) == before:
            return known, rows


def _same(spec: Refreshed, relation: str, known: set[str]) -> set[str]:
    """Returns the columns of an earlier block that are made as known ones are."""
    block = next((one for one in spec.blocks.blocks if one.name == relation), None)
    if block is None or not known:
        return set()
    made = {column.lower(): sql_of(block, column) for column in block.columns}
    wanted = {made[column] for column in known if column in made}
    return {column for column, sql in made.items() if sql in wanted}


def _key(spec: Refreshed, relation: str) -> tuple[str, ...] | None:
    """Returns columns of an input or block, in lower case, in which no two rows are equal; None if none are known."""
    if relation in spec.clocks:
        return ()
    if relation in spec.inputs:
        return tuple(column.name.lower() for column in spec.inputs[relation].key_columns)
    block = next((one for one in spec.blocks.blocks if one.name == relation), None)
    if block is None or block.branches:
        return None
    made = {name: expression_of(block, name) for name in block.columns}
    columns = {name: _named(one) for name, one in made.items() if isinstance(one, exp.Column)}
    if block.unit is Unit.GROUP:
        of = [next((name for name, one in made.items() if one == value), None) for value in block.by]
        if None in of:
            return None
        key = [str(name) for name in of]
    elif _undetermined(spec, block, columns.values()):
        return None
    else:
        key = [*columns]
    for name in [*key]:  # those that follow from the others are left out
        rest = {columns[one] for one in key if one != name and one in columns}
        known, rows = _determined(spec, block, rest)
        implied = name in columns and (columns[name] in known or columns[name][0] in rows)
        if implied if block.unit is Unit.GROUP else not _undetermined(spec, block, rest):
            key.remove(name)
    return tuple(name.lower() for name in key)


def _named(column: exp.Column) -> _Named:
    return column.table, column.name.lower()
