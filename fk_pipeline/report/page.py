"""The page of a report: one HTML file, made of the document alone; it loads nothing and runs nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fk_pipeline.errors import escaped
from fk_pipeline.report import charts
from fk_pipeline.report.document import Document, PipelineFacts

TEMPLATE = "page.html.jinja"

DOCUMENT_ID = "the-document"
"""The id of the element of the page that has the document, as JSON; no pipeline can be called so."""

STAGES_DRAWN = 12
"""The most stages in the chart of the slowest."""

NOTHING = "-"
"""What stands for no value."""

CHANGES = {"insert": "inserted", "update": "updated", "delete": "deleted"}
"""Kinds of changes of the change feed, in words."""


def page_of(document: Document) -> str:
    """Returns the page. Every text in it is escaped, but our own style sheet, the charts, and the document itself."""
    folder = Path(__file__).parent
    page = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)
    page.trim_blocks = page.lstrip_blocks = True
    page.filters |= {function.__name__: function for function in (number, numbers, seconds, shown, label, when)}
    drawn = {facts["pipeline"]: charts_of(facts) for facts in document["pipelines"]}
    style, text = (folder / "page.css").read_text(encoding="utf-8"), embedded(document)
    return page.get_template(TEMPLATE).render(
        document=document, charts=drawn, style=style, embedded=text, id=DOCUMENT_ID, changes=CHANGES
    )


def embedded(document: Document) -> str:
    """Returns the document as JSON that may stand in a script element: no character of it ends the element."""
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def charts_of(facts: PipelineFacts) -> dict[str, Any]:
    """Returns the charts of a pipeline as SVG: per number of the series, of the seconds, of the stages."""
    points, batches = facts["series"]["points"], [*facts["older"][::-1], *facts["batches"][::-1]]
    over_time: dict[str, str] = {}
    for name in facts["series"]["names"]:
        own = [(float(point["last"] or 0), float(point[name] or 0)) for point in points]
        over_time[name] = charts.lines((name, own), about=f"{name}, by batch")
    by_batch = [(float(batch["last"]), batch["seconds"] / batch["number"]) for batch in batches]
    runs = [run for run in reversed(facts["runs"]) if run["predicted_seconds"] is not None]
    taken = [(float(i), run["seconds"]) for i, run in enumerate(runs, 1)]
    predicted = [(float(i), run["predicted_seconds"] or 0.0) for i, run in enumerate(runs, 1)]
    stages = [(stage["stage"], stage["seconds"]) for stage in facts["stages"][:STAGES_DRAWN]]
    return {
        "over_time": over_time,
        "seconds": charts.lines(("seconds", by_batch), about="seconds by batch"),
        "predicted": charts.lines(("taken", taken), ("predicted", predicted), about="seconds by run"),
        "stages": charts.bars(stages, about="seconds by stage"),
    }


def number(value: float | None) -> str:
    """Returns a number with separators of thousands; a dash for None."""
    if value is None:
        return NOTHING
    return f"{int(value):,}" if math.isfinite(value) and value == int(value) else f"{value:,}"


def numbers(values: dict[str, int]) -> str:
    """Returns numbers with their names: `12 joined, 3 retracted`."""
    return ", ".join(f"{value:,} {name}" for name, value in values.items()) or NOTHING


def seconds(value: float | None) -> str:
    """Returns seconds with their unit; a dash for None."""
    if value is None:
        return NOTHING
    return f"{value:,.0f} s" if value >= 100 else f"{value:.1f} s"


def shown(value: Any) -> str:
    """Returns a value as text, its control characters as the command shows them; jinja escapes the markup in it."""
    return "NULL" if value is None else escaped(str(value))


def label(name: str) -> str:
    """Returns what a box is called: the only input of a pipeline, which is called so, is `input`."""
    return "input" if name == "input input" else name


def when(value: str | None) -> str:
    """Returns a time for people: `2026-05-01 13:00:00`, in UTC; a dash for None."""
    return NOTHING if value is None else value[:19].replace("T", " ")
