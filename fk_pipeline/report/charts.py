"""Charts as SVG to stand in a page, drawn by leather; the style sheet of the page gives them their colours."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from decimal import Decimal

import leather

WIDTH, HEIGHT = 360, 200
"""Units of the drawing, about pixels on a phone; the page scales it."""

SHORT, LONG = "var(--accent)", "var(--second)"
"""The colours of what is drawn, as the page has them: of the first, and of the second series."""

Points = Sequence[tuple[float, float]]
"""Pairs of x and y, by x."""


def lines(*series: tuple[str, Points], about: str) -> str:
    """Returns lines over numbers of batches or runs; empty where there are fewer than two points.

    Args:
        series: at most two; each with its name and points.
        about: what is drawn, for those who do not see it.
    """
    drawn = [(name, points) for name, points in series if len(points) > 1]
    if not drawn:
        return ""
    chart = leather.Chart()
    for (name, points), colour in zip(drawn, (SHORT, LONG), strict=False):
        chart.add_line([*points], name=name, stroke_color=colour, width=2)
    every = [point for _, points in drawn for point in points]
    first, last = min(x for x, _ in every), max(x for x, _ in every)
    chart.add_x_scale(first, last)
    chart.add_x_axis(ticks=[first, last], tick_formatter=_tick)
    _count(chart, max(y for _, y in every))
    return _svg(chart, HEIGHT, about)


def bars(numbers: Sequence[tuple[str, float]], about: str) -> str:
    """Returns a bar per name, the first one on top; empty where there are none."""
    if not numbers:
        return ""
    chart = leather.Chart()
    chart.add_bars([(number, name) for name, number in numbers], fill_color=SHORT)
    most = max(number for _, number in numbers) or 1
    chart.add_x_scale(0, most)
    chart.add_x_axis(ticks=[0, most], tick_formatter=_tick)
    return _svg(chart, 70 + 28 * len(numbers), about)


def _count(chart: leather.Chart, most: float) -> None:
    """Lets the y axis begin at 0, with few ticks."""
    top = most or 1
    chart.add_y_scale(0, top)
    chart.add_y_axis(ticks=[0, top / 2, top] if top > 1 else [0, top], tick_formatter=_tick)


def _tick(value: float | Decimal, _: int, __: int) -> str:
    """Returns a number in few characters: `1.2 M`."""
    number = float(value)
    for size, sign in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(number) >= size:
            return f"{number / (1e3 if sign == ' k' else size):.3g}{sign}"
    return f"{number:,.0f}" if number == int(number) else f"{number:.3g}"


def _svg(chart: leather.Chart, height: int, about: str) -> str:
    root = ET.Element("svg", {"viewBox": f"0 0 {WIDTH} {height}", "role": "img", "aria-label": about})
    root.append(chart.to_svg_group(WIDTH, height))
    return ET.tostring(root, encoding="unicode")
