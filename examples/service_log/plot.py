"""Draws the errors of a service beside those of the week before, from the results of the pipelines.

    pip install -r benchmarks/requirements.txt        # brings matplotlib
    python examples/service_log/plot.py FOLDER SERVICE OUT.svg

Two panels: what the first run made, and what the results are now. The first is read from the first version of the
tables, which Delta keeps until `fk-pipeline compact` removes it.
"""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import functions as F

import fk_pipeline as fk

HOUR = timedelta(hours=1)


class Window(NamedTuple):
    """The window of an hour that has the most errors: its errors, and those of last week; None: not known."""

    errors: int
    before: int | None


class Panel(NamedTuple):
    """What is drawn of a service: one window of each hour that has any, and the hours with an anomaly.

    All windows would make a large picture, and one that is not clearer.
    """

    title: str
    windows: Mapping[datetime, Window]
    anomalies: Sequence[datetime]


def panel(compared: Any, anomalies: Any, service: str, title: str) -> Panel:
    """Returns what is to be drawn of a service, given the results of `week_over_week` and `anomalies`."""
    hour = F.expr("unix_seconds(date_trunc('HOUR', window_start))")
    windows = compared.where(compared["service"] == service).groupBy(hour)
    most = windows.agg(F.expr("max(struct(errors, before))")).collect()
    hours = anomalies.where(anomalies["service"] == service).selectExpr("unix_seconds(hour)").collect()
    drawn = {moment(row[0]): Window(*row[1]) for row in most}
    return Panel(title, drawn, sorted(moment(row[0]) for row in hours))


def result(file: Path, version: int | None = None) -> Any:
    """Returns the result of a pipeline as it is, or as it was at a version of its table."""
    pipeline = fk.load(file)
    name = pipeline.spec.definition.result.name
    if version is None:
        return pipeline.table(name)
    return pipeline.session.read.format("delta").option("versionAsOf", version).load(f"{pipeline.spec.home}/{name}")


def moment(seconds: int) -> datetime:
    """Returns a time, given its seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def limits(before: int | None) -> tuple[float, float]:
    """Returns the numbers of errors that are three standard deviations from those of last week.

    They are the solutions e of `abs(e - before) = 3 * sqrt(e + before)`.
    """
    if before is None:
        return math.nan, math.nan
    middle, far = before + 4.5, 3 * math.sqrt(2 * before + 2.25)
    return max(0.0, middle - far), middle + far


def picture(panels: Sequence[Panel]) -> str:
    """Returns panels, one below the other, as SVG.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib as mpl
    from matplotlib.dates import DateFormatter, DayLocator, WeekdayLocator
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "service_log", "font.size": 9}):  # the same every time
        figure = Figure(figsize=(9, 2.6 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), sharex=True, sharey=True, squeeze=False)[:, 0]
        for one, at in zip(panels, axes, strict=True):
            draw(one, at)
        axes[0].xaxis.set_major_locator(WeekdayLocator(byweekday=0, tz=UTC))
        axes[0].xaxis.set_minor_locator(DayLocator(tz=UTC))
        axes[0].xaxis.set_major_formatter(DateFormatter("%d %B", tz=UTC))
        axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, fontsize=8, ncols=3, frameon=False)
        figure.supylabel("errors in ten minutes", fontsize=9)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), out.getvalue())


def draw(one: Panel, axes: Any) -> None:
    """Draws a panel; no line leads across hours without windows."""
    first, last = min(one.windows), max(one.windows)
    hours = [first + HOUR * number for number in range((last - first) // HOUR + 1)]
    drawn = [one.windows.get(hour) for hour in hours]
    errors = [math.nan if window is None else window.errors for window in drawn]
    low, high = zip(*[limits(None if window is None else window.before) for window in drawn], strict=True)
    band = "last week, three standard deviations up and down"
    axes.fill_between(hours, low, high, color="tab:blue", alpha=0.25, linewidth=0, label=band)
    axes.plot(hours, errors, color="black", linewidth=0.6, label="errors")
    peaks = [one.windows[hour].errors for hour in one.anomalies]
    axes.plot(one.anomalies, peaks, "v", color="tab:red", markersize=6, label="hour with an anomaly")
    axes.set_title(one.title, fontsize=9, loc="left")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)


def main(folder: Path, service: str, out: Path) -> None:
    """Draws the results of the first run, and those of now."""
    files = folder / "week_over_week.yaml", folder / "anomalies.yaml"
    first, now = [result(file, version=0) for file in files], [result(file) for file in files]
    panels = [panel(*first, service, f"{service}, after the first run"), panel(*now, service, f"{service}, now")]
    out.write_text(picture(panels), encoding="utf-8")
    print(f"{out}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    if find_spec("matplotlib") is None:
        sys.exit("matplotlib is not installed: pip install -r benchmarks/requirements.txt brings it")
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
