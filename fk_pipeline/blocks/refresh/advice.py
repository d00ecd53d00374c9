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
    own = list(dict.fromkeys(_partition(window) for window in windows))
    if len(own) > 1 and not any({*partition} == {*block.values} for partition in own):
        shared = f"by {plain(', '.join(block.values))}" if block.values else "of all rows"
        each = " and ".join(plain(", ".join(partition)) or "nothing" for partition in own)
        yield (
            f"{block.name}: its window functions have different PARTITION BY ({each}), so what a change computes again "
            f"is the partition that they share, {shared}: right, but dear. Cheaper: each in a CTE of its own, joined "
            "by the key of the rows"
        )
    for window in windows:
        text = _on_ties(spec, block, window)
        if text:
            yield text


def _partition(window: exp.Expr) -> tuple[str, ...]:
    return tuple(value.sql(DIALECT) for value in window.args.get("partition_by") or ())


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
    by = [term.this for term in order.expressions]
    columns = (*by, *(window.args.get("partition_by") or ()))
    given = {_named(column) for column in columns if isinstance(column, exp.Column)}
    missing = _undetermined(spec, block, given)
    if not missing:
        return ""
    limited = block.keep is not None and block.anchor.name == "_rows" and block.tree.selects[-1].alias == "_fk_rank"
    shown = [_source(spec, block, value) for value in by]
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


def _source(spec: Refreshed, block: Block, value: exp.Expr) -> str:
    """Returns an expression as the user wrote it, as far as that is known: a column of LIMIT's own as what it is of."""
    if isinstance(value, exp.Column):
        relation = next((alias.relation for alias in block.aliases if alias.name == value.table), "")
        inner = next((of for of in spec.blocks.blocks if of.name == relation), None)
        if inner is not None and value.name.startswith("_fk_order_"):
            return plain(sql_of(inner, value.name))
        if value.table == "_rows":
            return value.name
    return plain(value.sql(DIALECT))


def plain(sql: str) -> str:
    """Returns SQL without the marks that are put around names."""
    return sql.replace("`", "")


def _hidden(spec: Refreshed, block: Block) -> list[str]:
    """Returns the columns that an earlier block must give so that its rows can be told apart; none if unknown."""
    for inner in (
        earlier for earlier in spec.blocks.blocks if earlier.name in block.relations and earlier.unit is not Unit.GROUP
    ):
        made = (expression_of(inner, name) for name in inner.columns)
        given = {_named(value) for value in made if isinstance(value, exp.Column)}
        lacking = _undetermined(spec, inner, given)
        return [name if name == _BY_POSEXPLODE else f"{of}.{name}" for of, name in lacking if name != "*"]
    return []


def _undetermined(spec: Refreshed, block: Block, given: Iterable[_Named]) -> list[_Named]:
    """Returns columns that are lacking to tell the joined rows of a block apart; none if `given` does."""
    known, rows = _determined(spec, block, given)
    lacking = [alias for alias in block.aliases if alias.name not in rows][:1]
    columns = [(alias.name, column) for alias in lacking for column in _key(spec, alias.relation) or ("*",)]
    positions = [position_of(lateral) for lateral in block.laterals]
    return columns + [
        _position(position) for position in positions if position is not None and _named(position) not in known
    ]


def _position(column: exp.Column) -> _Named:
    return column.table, _BY_POSEXPLODE if column.name == POSITION else column.name.lower()


def _determined(spec: Refreshed, block: Block, given: Iterable[_Named]) -> tuple[set[_Named], set[str]]:
    """Returns the columns, and the tables of a FROM, that have one value, or one row, for given values of some columns.

    A table has one row if all columns of its key have one value. Then so have all its columns, and what equals them.
    """
    known, rows = {*given}, set[str]()
    keys = {alias.name: _key(spec, alias.relation) for alias in block.aliases}
    while True:
        before = len(known) + len(rows)
        for alias in block.aliases:
            key = keys[alias.name]
            if key is not None and {(alias.name, column) for column in key} <= known:
                rows.add(alias.name)
            for own, its in alias.equal:
                if (alias.parent, its.lower()) in known or alias.parent in rows:
                    known.add((alias.name, own.lower()))
                if not alias.how and ((alias.name, own.lower()) in known or alias.name in rows):
                    known.add((alias.parent, its.lower()))
            known |= {
                (alias.name, same) for same in _same(spec, alias.relation, {c for n, c in known if n == alias.name})
            }
        if len(known) + len(rows) == before:
            return known, rows


def _same(spec: Refreshed, relation: str, known: set[str]) -> set[str]:
    """Returns the columns of an earlier block that are made as known ones are."""
    block = next((earlier for earlier in spec.blocks.blocks if earlier.name == relation), None)
    if block is None or not known:
        return set()
    made = {column.lower(): sql_of(block, column) for column in block.columns}
    expressions = {made[column] for column in known if column in made}
    return {column for column, sql in made.items() if sql in expressions}


def _key(spec: Refreshed, relation: str) -> tuple[str, ...] | None:
    """Returns columns of an input or block, in lower case, in which no two rows are equal; None if none are known."""
    if relation in spec.clocks:
        return ()
    if relation in spec.inputs:
        return tuple(column.name.lower() for column in spec.inputs[relation].key_columns)
    block = next((earlier for earlier in spec.blocks.blocks if earlier.name == relation), None)
    if block is None or block.branches:
        return None
    made = {name: expression_of(block, name) for name in block.columns}
    columns = {name: _named(expression) for name, expression in made.items() if isinstance(expression, exp.Column)}
    if block.unit is Unit.GROUP:
        of = [next((name for name, expression in made.items() if expression == value), None) for value in block.by]
        if None in of:
            return None
        key = [str(name) for name in of]
    elif _undetermined(spec, block, columns.values()):
        return None
    else:
        key = [*columns]
    for name in [*key]:  # those that follow from the others are left out
        rest = {columns[other] for other in key if other != name and other in columns}
        known, rows = _determined(spec, block, rest)
        implied = name in columns and (columns[name] in known or columns[name][0] in rows)
        if implied if block.unit is Unit.GROUP else not _undetermined(spec, block, rest):
            key.remove(name)
    return tuple(name.lower() for name in key)


def _named(column: exp.Column) -> _Named:
    return column.table, column.name.lower()
