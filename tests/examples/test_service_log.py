"""examples/service_log: errors beside those of last week, while a day is late and an hour is corrected."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    Definitions,
    evaluate_automation_conditions,
    materialize,
)

import fk_pipeline as fk
from fk_pipeline.resources import FkSparkResource

FILES = ("errors.yaml", "week_over_week.yaml", "anomalies.yaml")
MINUTES, WEEK, HOUR = timedelta(minutes=5), timedelta(days=7), timedelta(hours=1)

Key = tuple[str, datetime]


class Step(NamedTuple):
    """What was exported after a step, and what the files then say."""

    exported: Mapping[Key, tuple[int, int, float]]
    expected: Mapping[Key, tuple[int, int, float]]


def windows_by_hand(log: Path) -> dict[Key, int]:
    """The errors of each service and window that has lines, in plain Python."""
    found: dict[Key, int] = {}
    for file in log.iterdir():
        for line in map(json.loads, file.read_text().splitlines()):
            at = datetime.fromisoformat(line["logged_at"])
            last = at.replace(minute=at.minute // 5 * 5, second=0, microsecond=0)
            for start in (last, last - MINUTES):
                key = line["service"], start
                found[key] = found.get(key, 0) + (line["level"] == "ERROR")
    return found


def anomalies_by_hand(log: Path) -> dict[Key, tuple[int, int, float]]:
    """Per service and hour: windows far above last week, the most errors of a window, the largest distance."""
    windows = windows_by_hand(log)
    hours: dict[Key, list[tuple[int, float]]] = {}
    for (service, start), errors in windows.items():
        before = windows.get((service, start - WEEK))
        distance = -math.inf
        if before is not None and errors + before:
            distance = (errors - before) / math.sqrt(errors + before)
        hours.setdefault((service, start.replace(minute=0)), []).append((errors, distance))
    found = {
        hour: (sum(distance > 3 for _, distance in each), max(errors for errors, _ in each), max(d for _, d in each))
        for hour, each in hours.items()
    }
    return {hour: values for hour, values in found.items() if values[0] >= 3}


def exported(folder: Path, spark: Any) -> dict[Key, tuple[int, int, float]]:
    """The rows of the last pipeline, as it writes them to a file."""
    pipeline(folder, "anomalies.yaml", spark).export(folder / "anomalies.csv")
    with (folder / "anomalies.csv").open(newline="") as file:
        return {
            (row["service"], datetime.fromisoformat(row["hour"])): (
                int(row["windows"]),
                int(row["errors"]),
                float(row["deviations"]),
            )
            for row in csv.DictReader(file)
        }


def pipeline(folder: Path, name: str, spark: Any) -> fk.Pipeline:
    return fk.Pipeline(fk.load(folder / name).spec, spark)


@pytest.fixture(scope="module")
def made(example: Callable[[str], Path], loaded: Callable[[Path], ModuleType]) -> tuple[Path, ModuleType]:
    """The example with a log of one service, of the days that matter to it; and what makes the log."""
    folder = example("service_log")
    data = loaded(folder / "make_data.py")
    days = {one.day for one in (*data.INCIDENTS, data.SENT_AGAIN) if one.service == "web"}
    data.make(folder, sorted(days | {day - 7 for day in days}), ["web"])
    return folder, data


@pytest.fixture(scope="module")
def steps(made: tuple[Path, ModuleType], spark: Any) -> list[Step]:
    """The example after its three steps."""
    folder, found = made[0], []
    for lands in ("", "later", "corrected"):
        if lands:
            shutil.copytree(folder / lands, folder / "landing" / "log", dirs_exist_ok=True)
        for name in FILES:
            pipeline(folder, name, spark).run()
        found.append(Step(exported(folder, spark), anomalies_by_hand(folder / "landing" / "log")))
    return found


@pytest.mark.docs
@pytest.mark.spark
def test_each_step_has_the_anomalies_of_the_files_that_are_there(steps: list[Step]) -> None:
    for step in steps:
        assert {key: row[:2] for key, row in step.exported.items()} == {
            key: row[:2] for key, row in step.expected.items()
        }
        for key, row in step.exported.items():
            assert row[2] == pytest.approx(step.expected[key][2], abs=0.0501)


@pytest.mark.docs
@pytest.mark.spark
def test_anomalies_come_and_go_as_the_log_is_made(steps: list[Step], made: tuple[Path, ModuleType]) -> None:
    data = made[1]

    def hours(*some: Any) -> set[datetime]:
        return {
            data.FIRST_DAY + timedelta(days=one.day, hours=hour) for one in some for hour in range(one.first, one.last)
        }

    deploy, after_late, after_again = (one for one in data.INCIDENTS if one.service == "web")
    assert [{hour for _, hour in step.exported} for step in steps] == [
        hours(deploy, data.SENT_AGAIN),
        hours(deploy, data.SENT_AGAIN, after_late),
        hours(deploy, after_late, after_again),
    ]


@pytest.mark.docs
@pytest.mark.spark
def test_the_results_are_proved(steps: list[Step], made: tuple[Path, ModuleType], spark: Any) -> None:
    assert all(pipeline(made[0], name, spark).verify().ok for name in FILES)
    last = max(start for _, start in steps[-1].exported)
    story = pipeline(made[0], "anomalies.yaml", spark).explain(f"service=web,hour={last.isoformat()}")
    assert story.as_expected
    assert story.rows == 12


def test_the_corrected_day_has_the_lines_of_an_hour_once(made: tuple[Path, ModuleType]) -> None:
    folder, data = made
    day = data.SENT_AGAIN.day
    lines = data.lines_of(day, ["web"])
    assert (folder / "corrected" / data.file_name(day)).read_text() == "".join(line.text for line in lines)
    more = Counter(data.with_lines_again(lines)) - Counter(lines)
    hour = [line for line in lines if line.logged_at.hour == data.SENT_AGAIN.first]
    assert more == Counter(2 * hour)
    assert len(hour) > 100


@pytest.fixture
def dagster(made: tuple[Path, ModuleType], loaded: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("FK_EXAMPLE", str(made[0]))
    module: ModuleType = loaded(made[0] / "definitions.py")
    return module


@pytest.mark.filterwarnings("ignore:Parameter .include_sources.")  # what Dagster's own function says
def test_the_picture_follows_the_last_result(dagster: ModuleType) -> None:
    Definitions.validate_loadable(dagster.defs)
    key, result = AssetKey(["anomalies", "picture"]), AssetKey("anomalies")
    graph = dagster.defs.get_repository_def().asset_graph
    assert graph.get(key).parent_keys == {result}
    compared = {AssetKey(["week_over_week", side]) for side in ("left", "right")}
    assert all(graph.get(one).parent_keys == {AssetKey("errors")} for one in compared)
    with DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("anomalies_batches", ["b00000000", "b00000001"])
        seen = evaluate_automation_conditions(dagster.defs, instance)
        assert seen.get_num_requested(key) == 0
        instance.report_runless_asset_event(AssetMaterialization(result, partition="b00000001"))
        seen = evaluate_automation_conditions(dagster.defs, instance, cursor=seen.cursor)
        assert seen.get_num_requested(key) == 1, "batch 0 ran without Dagster"


@pytest.mark.docs
@pytest.mark.spark
def test_a_materialisation_has_the_numbers_and_the_picture(
    steps: list[Step], made: tuple[Path, ModuleType], dagster: ModuleType, spark: Any
) -> None:
    with DagsterInstance.ephemeral() as instance:
        done = materialize([dagster.picture], instance=instance, resources={"spark": FkSparkResource().use(spark)})
    [event] = done.asset_materializations_for_node("anomalies__picture")
    told = {name: value.value for name, value in event.metadata.items()}
    windows = windows_by_hand(made[0] / "landing" / "log")
    assert told["anomalies"] == len(steps[-1].expected)
    assert told["errors"] * 2 == sum(windows.values())
    unknown = [start for service, start in windows if (service, start - WEEK) not in windows]
    assert told["windows without last week"] == len(unknown)
    if find_spec("matplotlib") is None:
        assert told["picture"] == "left out: matplotlib is not installed"
    else:
        assert told["picture"].startswith("![errors](data:image/svg+xml;base64,")
        assert len(told["picture"]) < 150_000


def test_the_band_of_last_week_ends_where_an_anomaly_begins(made: tuple[Path, ModuleType], loaded: Any) -> None:
    plot = loaded(made[0] / "plot.py")
    for before in range(200):
        low, high = plot.limits(before)
        within = [errors for errors in range(500) if abs(errors - before) <= 3 * math.sqrt(errors + before)]
        assert within == [errors for errors in range(500) if low - 1e-9 <= errors <= high + 1e-9]
    assert all(map(math.isnan, plot.limits(None)))


def test_a_picture_has_no_line_across_a_lost_day(made: tuple[Path, ModuleType], loaded: Any) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="benchmarks/requirements.txt brings matplotlib")
    plot, first = loaded(made[0] / "plot.py"), made[1].FIRST_DAY
    hours = [first + HOUR * hour for hour in range(72) if hour // 24 != 1]
    drawn = plot.Panel("web", {hour: plot.Window(5, None) for hour in hours}, hours[:1])
    axes = figure.Figure().subplots()
    plot.draw(drawn, axes)
    [line] = [one for one in axes.lines if one.get_label() == "errors"]
    assert sum(map(math.isnan, line.get_ydata())) == 24
    assert plot.picture([drawn]) == plot.picture([drawn])
