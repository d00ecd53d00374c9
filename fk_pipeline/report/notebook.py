"""A pipeline as one line, and as HTML for a notebook: how it stands, and rows of its result. Read without Spark.

Nothing here raises: what cannot be read is left out, and a line says so.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

from fk_pipeline.arrow_text import json_lines
from fk_pipeline.errors import FkPipelineError, escaped
from fk_pipeline.readable import ReadablePipeline
from fk_pipeline.report.state import state_of
from fk_pipeline.result_rows import rows_of
from fk_pipeline.words import counted

ROWS = 10
"""The rows of the result that a notebook shows."""


def line_of(pipeline: ReadablePipeline) -> str:
    """Returns name, kind, file and state of a pipeline in one line."""
    return escaped(f"pipeline {pipeline.spec.name} ({pipeline.spec.kind}) of {pipeline.spec.file}. {_state(pipeline)}")


def html_of(pipeline: ReadablePipeline) -> str:
    """Returns the line of a pipeline, and rows of its result as a table. Sensitive values are tokens."""
    return f"<p>{_safe(line_of(pipeline))}</p>{_rows(pipeline)}"


def _state(pipeline: ReadablePipeline) -> str:
    """Returns how a pipeline stands by its ledger, in a sentence."""
    try:
        return state_of(pipeline, looks=False)["sentence"]
    except Exception as error:  # noqa: BLE001 - a line about a pipeline never raises
        why = error.what if isinstance(error, FkPipelineError) else type(error).__name__
        return f"Its state cannot be read: {why}."


def _rows(pipeline: ReadablePipeline) -> str:
    """Returns rows of the result as a table; empty if there are none, or if this process cannot read them."""
    from fk_pipeline.report.tokens import Tokens  # they import pyspark, and the line needs none
    from fk_pipeline.store.rows_in_process import RowRequest

    spec = pipeline.spec
    names, result = [output.name for output in spec.outputs], spec.definition.result.name
    try:
        rows = pipeline.relation(result).read(RowRequest(names, limit=ROWS))
        number = rows_of(pipeline.ledger(), f"{spec.home}/{result}")
        tokens = Tokens(spec, pipeline.ledger())
        shown = [tokens.row(json.loads(line)) for line in json_lines(rows, hexadecimal=True)]
    except Exception:  # noqa: BLE001 - the state of the pipeline says what is wrong, or only Spark reads the rows
        return ""
    if not shown:
        return ""
    below = counted(len(shown), "row") if number is None else f"{len(shown)} of {counted(number, 'row')}"
    return _table(names, [[row[name] for name in names] for row in shown]) + f"<p>{below}</p>"


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a table in HTML; None is NULL in italics."""
    header = "".join(f"<th>{_safe(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    from fk_pipeline.report.rows import as_text

    text = as_text(value)
    return "<i>NULL</i>" if text is None else _safe(text)


def _safe(text: str) -> str:
    """Returns a text that is no markup, and whose control characters are shown."""
    return html.escape(escaped(text))
