"""The result of an aggregate as a block: one SELECT over the table, grouped. No Spark.

    SELECT b AS `_fk_by_b`, w AS `_fk_window_start`, outputs
    FROM (SELECT b, w, aggregates FROM table [LATERAL VIEW EXPLODE(windows of the row) AS w] GROUP BY w, b)
    WHERE having

Where a row counts in one window, the number of the window is a column of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from fk_pipeline.blocks.select.block import Alias, Block, Keep, NearNumbers, Unit
from fk_pipeline.blocks.select.trees import aliased, named, text_beside
from fk_pipeline.blocks.select.written import expression_as_written, expression_over, is_written_back, parse_as_written
from fk_pipeline.kinds.aggregate.kind import AT, NUMBER, PANE, START, WINDOW_END, WINDOW_START, AggregateStage, by
from fk_pipeline.kinds.aggregate.windows import Windows
from fk_pipeline.spec.sql import DIALECT, body_of, quote
from fk_pipeline.store import schemas as s

if TYPE_CHECKING:
    from fk_pipeline.kinds.aggregate.spec import AggregateSpec

_ROWS, _MADE, _GROUPS = "_rows", "_made", "_groups"
"""The names of the table, of the windows of its rows, and of their groups, in the SELECT."""

_MOST_NUMBERS = 100
"""In how many windows a row may count, so that rows of a window are looked up by the numbers of all."""


def block_of(spec: AggregateSpec, windows: Windows | None) -> Block:
    """Returns the block; `windows` are those of the pipeline, None if it has none."""
    one_window = windows is not None and windows.per_row == 1
    number = _column(PANE) if one_window else exp.column(named(NUMBER), named(_MADE))
    groups = [_column(by(name)) for name in spec.group_names]
    values = [*([] if windows is None else [number]), *groups]
    keys = [*([] if windows is None else [START]), *(by(name) for name in spec.group_names)]
    outputs = {name: quote(name) for name in keys} | {output.name: body_of(output.sql) for output in spec.outputs}
    select = _from(windows).select(*_selects(spec, windows, number))
    select.set("group", exp.Group(expressions=[value.copy() for value in values]))
    is_near = windows is not None and 1 < windows.per_row <= _MOST_NUMBERS
    near = NearNumbers(PANE, 0, windows.step, windows.per_row) if windows is not None and is_near else None
    return Block(
        AggregateStage.AGGREGATED,
        Unit.GROUP,
        (Alias(_ROWS, AggregateStage.TABLE),),
        select,
        tuple(values),
        tuple(outputs),
        Keep(_GROUPS, tuple(outputs.values()), spec.having or ""),
        near=near,
    )


def _from(windows: Windows | None) -> exp.Select:
    """Returns a SELECT without columns: the living rows, each once per window in which it counts."""
    rows = quote(_ROWS)
    made = ""
    if windows is not None and windows.per_row > 1:
        numbers = windows.numbers(f"{rows}.{quote(AT)}")
        made = f" LATERAL VIEW EXPLODE({numbers}) {quote(_MADE)} AS {quote(NUMBER)}"
    lives = f"{rows}.{quote(s.HASH)} IS NOT NULL"
    placed = "" if windows is None else f" AND {rows}.{quote(PANE)} IS NOT NULL"
    [tree] = parse_as_written(f"SELECT 1 FROM {rows} AS {rows}{made} WHERE {lives}{placed}")
    assert isinstance(tree, exp.Select)
    tree.set("expressions", [])
    return tree


def _selects(spec: AggregateSpec, windows: Windows | None, number: exp.Expr) -> list[exp.Expr]:
    """Returns what `select` and `having` may name, and the key."""
    by_name: dict[str, exp.Expr] = {}
    if windows is not None:
        window = number.sql(DIALECT)
        sql = {START: windows.key(window), WINDOW_START: windows.start(window), WINDOW_END: windows.end(window)}
        by_name |= {name: expression_as_written(text) for name, text in sql.items()}
    for name in spec.group_names:
        by_name |= {by(name): _column(by(name)), name: _column(by(name))}
    by_name |= {str(measure.name): _over_rows(body_of(measure.text)) for measure in spec.measures}
    return [aliased(expression, name) for name, expression in by_name.items()]


def _column(name: str) -> exp.Column:
    return exp.column(named(name), named(_ROWS))


def _over_rows(sql: str) -> exp.Expr:
    """Returns an expression over the input as one over the table.

    One that would not be written back word by word stays the text that it is, beside the columns that it reads.
    """
    value = expression_over(sql, ())
    for column in value.find_all(exp.Column):
        column.set("table", named(_ROWS))
        column.this.set("quoted", True)
    if is_written_back(sql):
        return value
    return text_beside(f"({sql})", [column.copy() for column in value.find_all(exp.Column)])
