"""Aggregates: groups and windows that follow changed, corrected, late and withdrawn rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.blocks import changelog
from fk_pipeline.blocks.times import FARTHEST
from fk_pipeline.errors import PipelineFileError, StageError, UsageError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.aggregate.block import block_of
from fk_pipeline.kinds.aggregate.kind import AT, PANE, START, AggregateStage
from fk_pipeline.kinds.aggregate.placing import spread
from fk_pipeline.kinds.aggregate.proof import _windowed
from fk_pipeline.kinds.aggregate.spec import AggregateSpec, TimeWindow
from fk_pipeline.kinds.aggregate.windows import DAY_MICROS, Windows
from fk_pipeline.store import faults
from fk_pipeline.store.settings import settings, suiting
from tests.any_order.subjects import WAYS
from tests.deaths import Killed, dies_at
from tests.expectations.world import mutated
from tests.kinds.aggregate.grouped import AGGREGATES, EVENTS, Content, Grouped, expected, random_rows
from tests.mutations import Update

pytestmark = pytest.mark.spark

Result = tuple[Any, ...]
"""A row of the result."""

ROW = {"op": "u", "at": 1, "v": 2, "note": "x"}
"""A row without its key and its group."""

STALE = ("hash_is_that_of_the_row", "row_is_that_of_the_table")
"""The checks that a changed value breaks."""

QUICK = "window: {time: at, size: 10 milliseconds, every: 4 milliseconds}", "by the driver"
"""The window and the way with which the longest test is not slow."""

WINDOWS = {
    "": (None, None),
    "window: {time: at, size: 10 milliseconds}": (10, 10),
    "window: {time: at, size: 10 milliseconds, every: 4 milliseconds}": (10, 4),
}


@pytest.mark.parametrize(
    ("window", "way"),
    [
        pytest.param(window, way, marks=() if (window, way) == QUICK else pytest.mark.slow)
        for window in WINDOWS
        for way in WAYS
    ],
)
def test_groups_follow_late_corrected_and_withdrawn_batches(
    grouped: Callable[..., Grouped], window: str, way: str
) -> None:
    settings = "{strategy: full}" if way == "whole tables" else "{}"
    made, random = grouped(WAYS[way], window=window, settings=settings), Random(f"{way} {window}")
    for batches in ([5], [2, 8], [1, 2, 7]):
        for batch in batches:
            made.land(batch, random_rows(random, 8))
        made.pipeline.run()
        assert made.result() == expected(made.rows(), *WINDOWS[window])
    made.land(2, [])  # it is taken back
    made.land(8, [{"op": "d", "id": number} for number in range(1, 7)])
    made.pipeline.run()
    assert made.result() == expected(made.rows(), *WINDOWS[window])
    # The run of batch 2 reads the store of both batches: computing all groups, it changes those of batch 8, too.
    changes = [made.pipeline.changes(batch).select("_change_type").collect() for batch in (2, 8)]
    assert "delete" in {row[0] for rows in changes for row in rows}
    assert made.red() == set()


ODD_TEXTS = ["count_if(note = 'O''Brien') AS quoted", "sum(id & v << 1) AS shifted", "sum(v) AS total"]
"""Aggregates that could be read otherwise."""


@pytest.fixture(scope="module")
def counted(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> tuple[Grouped, list[Result], list[Result]]:
    """Returns a pipeline of events without a key that ran twice, and its rows after each run; it is only read.

    The rows of user `q` are for aggregates that could be read otherwise.
    """
    texts = ", ".join(map(json.dumps, ["count(*) AS n", *ODD_TEXTS]))
    made = Grouped(tmp_path_factory.mktemp("counted"), spark, contents=EVENTS, aggregates=f"[{texts}]")
    event, odd = {"user": "a", "at": 1, "v": 2, "note": "x"}, {"user": "q", "at": 1, "v": 1}
    made.land(0, [event, event, {**odd, "id": 2, "note": "O'Brien"}, {**odd, "id": 1}])
    made.land(1, [event, {**event, "user": None}])
    made.pipeline.run()
    first = made.result()
    made.land(0, [event, {**odd, "id": 2, "note": "O'Brien"}, {**odd, "id": 1}])
    made.land(2, [{**odd, "id": 3, "note": "O'Brien"}])
    made.pipeline.run()
    return made, first, made.result()


def test_events_without_a_key_count_each(counted: tuple[Grouped, list[Result], list[Result]]) -> None:
    found = [[(user, n, total) for user, n, *_, total in rows if user != "q"] for rows in counted[1:]]
    assert found == [[("a", 3, 6), (None, 1, 2)], [("a", 2, 4), (None, 1, 2)]]


def test_an_aggregate_is_what_is_written_also_where_it_could_be_read_otherwise(
    counted: tuple[Grouped, list[Result], list[Result]],
) -> None:
    made, *results = counted
    found = [[(user, *odd) for user, _, *odd in rows if user == "q"] for rows in results]
    assert found == [[("q", 1, 2, 2)], [("q", 2, 4, 3)]]
    assert made.pipeline.verify().ok


DEATHS = [f"{when} commit of {table}" for table in ("table", "aggregated") for when in ("before", "after")]


@pytest.mark.slow  # what a run left in the state reaches the result: kinds/table/test_table.py
def test_a_run_that_dies_before_or_after_a_commit_loses_no_group(grouped: Callable[..., Grouped]) -> None:
    made, random = grouped(), Random(3)

    def rows_of(batch: int) -> Content:
        """Returns rows of the keys and groups of a batch: no other batch mends what is lost of them."""
        rows = random_rows(random, 6)
        return [{**row, "id": 100 * batch + row["id"], "user": f"{row['user']} of {batch}"} for row in rows]

    deaths = dict(enumerate(DEATHS, 1))
    made.land(0, [row for batch in deaths for row in (*rows_of(batch), *rows_of(batch))])
    made.pipeline.run()
    for batch, point in deaths.items():
        made.land(batch, rows_of(batch))
        with faults.listening(dies_at(point)), pytest.raises(Killed):
            made.pipeline.run()
        made.land(batch, rows_of(batch))  # the batch is rewritten before anybody runs again
    made.pipeline.run()
    assert made.result() == expected(made.rows())
    assert made.pipeline.verify().ok


@pytest.mark.slow
def test_a_row_without_a_time_of_the_range_is_quarantined_and_its_ends_have_a_window(
    grouped: Callable[..., Grouped],
) -> None:
    made = grouped(window="window: {time: at, size: 10 milliseconds}", aggregates="[count(*) AS n]")
    row = {"op": "u", "user": "a", "v": 1, "note": "x"}
    times = [None, -FARTHEST, FARTHEST, 5, -FARTHEST - 1, FARTHEST + 1, -(2**63), 2**63 - 1]
    made.land(0, [{**row, "id": i, "at": at} for i, at in enumerate(times)])
    made.pipeline.run()
    records = made.pipeline.quarantined().select("side", "reason").orderBy("line").collect()
    outside = f"window.time at is not between {-FARTHEST} and {FARTHEST}"
    assert [tuple(record) for record in records] == [
        ("input", reason) for reason in ("window.time at is null", *[outside] * 4)
    ]
    assert [(end - start, n) for _, start, end, n in made.result()] == [(10, 1)] * 3
    assert made.pipeline.verify().ok
    made.land(1, [{**row, "id": 2, "op": "d"}])
    made.pipeline.run()
    assert len(made.result()) == 2
    assert made.red() == set()


@pytest.mark.slow
def test_times_that_an_older_version_let_in_count_at_the_ends_until_the_landing_files_are_read_again(
    grouped: Callable[..., Grouped], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grouped(
        window="window: {time: CAST(at AS TIMESTAMP), size: 2 days, every: 1 day, zone: Europe/Berlin}",
        time="DATE",
        contents=EVENTS,
        aggregates="[count(*) AS n]",
    )
    # Two have a time at an end of TIMESTAMP, two are too far away to have one.
    days = ["2026-05-01", "+294247-01-10", "-290308-12-22", "+5881580-07-11", "-5877641-06-23"]
    made.land(0, [{"user": "a", "at": day, "v": 1} for day in days])
    with monkeypatch.context() as older:
        older.setattr(changelog, "unfit", lambda time, *_: f"IF({time} IS NULL, 'null', NULL)")
        made.pipeline.run()
    number = "CAST(date_diff(window_end, '1970-01-01') AS INT)"
    ends = made.pipeline.table("aggregated").selectExpr(f"{number} AS end", "n").orderBy("end").collect()
    assert [tuple(row) for row in ends] == [
        (day + i, 1) for day in (-FARTHEST // DAY_MICROS, 20574, FARTHEST // DAY_MICROS) for i in range(2)
    ]
    assert made.pipeline.verify().ok
    made.pipeline.rebuild("landing")
    assert made.pipeline.quarantined().count() == 4
    assert made.pipeline.table("aggregated").count() == 2


@pytest.mark.parametrize("size", ["1 hour", "25 minutes"])
def test_rows_of_a_window_are_found_by_the_numbers_that_are_near(spark: SparkSession, size: str) -> None:
    window = TimeWindow(time="at", size=size, every="10 minutes")
    windows = Windows.of(window, "BIGINT")
    spec = AggregateSpec.model_construct(group_by=(), window=window, aggregates=("count(*) AS n",), having=None)
    near = block_of(spec, windows).near
    assert near is not None
    times = "EXPLODE(SEQUENCE(-9000000L, 9000000L, 100000L))"
    rows = spark.sql(f"SELECT at AS {AT}, {windows.pane('at')} AS {PANE} FROM (SELECT {times} AS at)")
    found = spread(rows, windows).where(f"({PANE} - _fk_window) DIV {near.step} NOT BETWEEN 0 AND {near.count - 1}")
    assert found.count() == 0
    assert spread(rows, windows).where(f"({PANE} - _fk_window) % {near.step} <> 0").count() == 0


@pytest.mark.parametrize(
    ("window", "kind"),
    [
        (TimeWindow(time="at", size="10 milliseconds", every="4 milliseconds"), "BIGINT"),
        (TimeWindow(time="at", size="2500000 days"), "BIGINT"),
        (TimeWindow(time="at", size="1 hour", every="25 minutes"), "TIMESTAMP"),
        (TimeWindow(time="at", size="2500000 days", every="700001 days"), "TIMESTAMP"),
        (TimeWindow(time="at", size="2 days", every="1 day", zone="Pacific/Kiritimati"), "TIMESTAMP"),
        (TimeWindow(time="at", size="2500000 days", every="700001 days", zone="Pacific/Niue"), "TIMESTAMP"),
    ],
)
def test_stage_and_proof_have_the_same_windows_for_every_time(
    spark: SparkSession, window: TimeWindow, kind: str
) -> None:
    numbers = [0, -1, 1_777_593_600_000_000, 253_402_300_799_999_999]
    for end in (FARTHEST, 2**63 - 1):
        numbers += [-end - 1, -end, end - 1, end]
    values = ", ".join("-" * (number < 0) + f"{abs(number)}L" for number in numbers)
    at = "n" if kind == "BIGINT" else "TIMESTAMP_MICROS(n)"
    rows = spark.sql(f"SELECT n, {at} AS at, {at} AS {AT} FROM (SELECT EXPLODE(ARRAY(NULL, {values})) AS n)")
    windows = Windows.of(window, kind)
    counted = spread(rows, windows).selectExpr("n", START, f"{windows.end('_fk_window')} AS until")
    rows.createOrReplaceTempView("rows_at_the_ends")
    proved = spark.sql(f"SELECT n, _fk_from, _fk_to FROM ({_windowed('rows_at_the_ends', window, kind.lower())})")
    texts = ["n", "CAST({} AS STRING)", "CAST({} AS STRING)"]
    found, wanted = (
        sorted(map(tuple, frame.selectExpr(*map(str.format, texts, frame.columns)).collect()))
        for frame in (counted, proved)
    )
    assert found == wanted
    assert {row[0] for row in found} == {*numbers}


@pytest.mark.slow
def test_a_row_on_which_an_aggregate_fails_is_quarantined_and_the_others_count(grouped: Callable[..., Grouped]) -> None:
    measures = "[sum(10 / v) FILTER (WHERE v <> 1) AS parts, 'max(struct(CAST(note AS INT), id)).id AS best']"
    made = grouped(aggregates=measures)
    row = {"op": "u", "user": "a", "at": 1}
    values = [(0, "7"), (1, "5"), (2, "6"), (5, "x"), (None, "4"), (None, "y")]
    made.land(0, [{**row, "id": i, "v": v, "note": note} for i, (v, note) in enumerate(values)])
    made.pipeline.run()
    records = made.pipeline.quarantined().select("line", "reason").collect()
    assert sorted(tuple(record) for record in records) == [
        (1, "aggregates IF(v <> 1, 10 / v, NULL) fails on this row"),
        (4, "aggregates CAST(note AS INT) fails on this row"),
        (6, "aggregates CAST(note AS INT) fails on this row"),
    ]
    assert made.result() == [("a", 5.0, 2)]
    assert made.pipeline.verify().ok
    assert made.red() == set()
    made.edit(aggregates="[sum(10 / (v + 1)) AS parts]")
    with pytest.raises(UsageError, match="in the quarantine on which the old aggregates failed"):
        made.pipeline.rebuild("changelog")
    made.pipeline.rebuild("landing")
    made.pipeline.run()
    assert made.result()[0][1] == pytest.approx(10 + 5 + 10 / 3 + 10 / 6)


def test_an_aggregate_that_fails_on_a_group_stops_the_stage_and_loses_nothing(grouped: Callable[..., Grouped]) -> None:
    made = grouped(aggregates="[sum(id) AS total]")
    made.land(0, [{"op": "u", "id": 2**63 - 1 - i, "user": "a", "at": 1, "v": 1, "note": ""} for i in range(2)])
    with pytest.raises(StageError, match="try_sum"):
        made.pipeline.run()
    assert made.pipeline.due()["aggregated"]
    assert made.pipeline.table("table").count() == 2


@pytest.mark.slow
def test_with_an_aggregate_that_does_not_fail_it_goes_on(grouped: Callable[..., Grouped]) -> None:
    made = grouped(aggregates="[sum(id) AS total]")
    made.land(0, [{"op": "u", "id": 2**63 - 1 - i, "user": "a", "at": 1, "v": 1, "note": ""} for i in range(2)])
    with pytest.raises(StageError, match="try_sum"):
        made.pipeline.run()
    made.edit(aggregates="[try_sum(id) AS total]")
    made.pipeline.rebuild("changelog")
    made.pipeline.run()
    assert made.result() == [("a", None)]


@pytest.mark.slow  # what is not touched: test_what_is_not_touched_is_not_written
def test_a_correction_of_a_first_load_computes_only_what_it_touches(grouped: Callable[..., Grouped]) -> None:
    made = grouped()
    made.land(0, [{**ROW, "id": number, "user": "abc"[number % 3]} for number in range(9)])
    made.land(1, [{**ROW, "id": 9, "user": "a"}])
    made.pipeline.run()
    for rows, users in (
        ([{**ROW, "id": 0, "user": "c"}, {**ROW, "id": 1, "user": "b"}], "abc"),  # the others are taken back
        ([{**ROW, "id": 0, "user": "c"}, {**ROW, "id": 1, "user": "c"}], "bc"),
    ):
        made.land(0, rows)
        made.pipeline.run()
        assert _written(made) == {*users}
        assert made.result() == expected(made.rows())
    assert made.pipeline.explain("user=b").touched_by == ()
    assert made.pipeline.explain("user=c").touched_by == (0,)
    made.pipeline.runner.run(AggregateStage.AGGREGATED, BatchRange.of(1))
    assert _written(made) == {*users}, "the result stands for it, so nothing is written"
    assert made.red() == set()


@pytest.mark.slow
def test_a_result_that_lost_commits_is_compared_whole(grouped: Callable[..., Grouped]) -> None:
    made = grouped()
    made.land(0, [{**ROW, "id": 0, "user": "a"}])
    made.pipeline.run()
    for users in ("b", "c", "cd"):
        made.land(1, [{**ROW, "id": "abcd".index(user), "user": user} for user in users])
        made.pipeline.run()
    assert _written(made) == {"d"}
    home = made.pipeline.spec.home
    made.session.sql(f"RESTORE TABLE delta.`{home}/aggregated` TO VERSION AS OF 1")  # with b
    made.edit()  # a new process
    assert [user for user, *_ in made.result()] == ["a", "b"]
    made.pipeline.run()
    assert made.result() == expected(made.rows())
    made.edit(options="having: n < 10")
    made.pipeline.rebuild("changelog")  # of the result alone
    assert made.result() == expected(made.rows())
    assert made.pipeline.verify().ok


def _written(made: Grouped) -> set[str | None]:
    """The users whose rows the last commit of the result has written, or removed."""
    path = f"{made.pipeline.spec.home}/{AggregateStage.AGGREGATED}"
    last = made.session.sql(f"DESCRIBE HISTORY delta.`{path}`").agg({"version": "max"}).collect()[0][0]
    feed = made.session.read.option("readChangeFeed", True).option("startingVersion", last).format("delta").load(path)
    return {row[0] for row in feed.select("user").collect()}


@pytest.fixture(scope="module")
def two_batches(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Grouped:
    """Returns a pipeline that ran for batch 0, then for batch 4. It is only read."""
    made = Grouped(tmp_path_factory.mktemp("grouped"), spark)
    made.land(0, [{**ROW, "id": id_, "user": user} for id_, user in ((1, "a"), (2, None), (11, "b"), (12, "c"))])
    made.pipeline.run()
    made.land(
        4,
        [
            {**ROW, "id": 3, "user": "a", "v": 7},
            {**ROW, "id": 11, "user": "b", "note": "no aggregate reads it"},
            {**ROW, "id": 13, "user": "d"},
        ],
    )
    made.pipeline.run()
    return made


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Grouped:
    """Returns a pipeline with windows that ran for one batch. It is only read."""
    made = Grouped(tmp_path_factory.mktemp("windowed"), spark, window="window: {time: at, size: 10 milliseconds}")
    made.land(0, random_rows(Random(1), 12))
    made.pipeline.run()
    return made


def test_what_is_not_touched_is_not_written(two_batches: Grouped) -> None:
    changes = two_batches.pipeline.changes(4).select("user", "_change_type").collect()
    assert sorted(tuple(row) for row in changes) == [("a", "update"), ("d", "insert")]


@pytest.mark.connect
def test_having_and_select_are_of_the_groups(grouped: Callable[..., Grouped]) -> None:
    made = grouped(
        options="having: n > 1\nselect: [user AS who, total / n AS mean, n * 10 AS tens, hour(window_start) AS h]",
        window="window: {time: at, size: 1 hour}",
        time="TIMESTAMP",
        aggregates="[count(*) AS n, sum(v) AS total]",
    )
    row = {"op": "u", "user": "a", "v": 2, "note": "x"}
    made.land(0, [{**row, "id": n, "at": f"2024-05-01T0{n // 3}:30:00Z"} for n in range(1, 5)])
    made.pipeline.run()
    assert made.result() == [("a", 2.0, 20, 0), ("a", 2.0, 20, 1)]
    made.land(1, [{"op": "d", "id": 1}])
    made.pipeline.run()
    assert made.result() == [("a", 2.0, 20, 1)]
    assert made.red() == set()
    story = made.pipeline.explain("user=a,window_start=2024-05-01 00:00:00")
    assert story.as_expected
    assert "`having` keeps it out of the result." in story.sentences()


def test_days_of_a_time_zone_have_23_or_25_hours(grouped: Callable[..., Grouped]) -> None:
    made = grouped(
        window="window: {time: at, size: 2 days, every: 1 day, zone: Europe/Berlin}",
        time="TIMESTAMP",
        contents=EVENTS,
        aggregates="[count(*) AS n]",
    )
    start = datetime(2024, 3, 29, tzinfo=UTC)
    times = [start + timedelta(hours=hour) for hour in range(72)]
    autumn = datetime(2024, 10, 26, tzinfo=UTC)
    times += [autumn + timedelta(hours=hour) for hour in range(48)]
    made.land(0, [{"user": "a", "at": one.isoformat(), "v": 1} for one in times])
    made.pipeline.run()
    zone, wanted = ZoneInfo("Europe/Berlin"), {}
    for one in times:
        day = one.astimezone(zone).date()
        for first in (day, day - timedelta(days=1)):
            bounds = [datetime.combine(d, datetime.min.time(), zone) for d in (first, first + timedelta(days=2))]
            key = "a", *(bound.astimezone(UTC).replace(tzinfo=None) for bound in bounds)
            wanted[key] = wanted.get(key, 0) + 1
    assert {row[:3]: row[3] for row in made.result()} == wanted
    assert {end - start for _, start, end in wanted} == {timedelta(hours=hours) for hours in (47, 48, 49)}
    assert made.pipeline.verify().ok


ODD_DAYS = {
    "a day that was skipped": ("Pacific/Apia", date(2011, 12, 30)),
    "a day that was skipped, and noon was midnight": ("Pacific/Kwajalein", date(1993, 8, 21)),
    "midnight comes twice": ("America/Havana", date(2024, 11, 3)),
    "the hour before midnight comes twice": ("Asia/Beirut", date(2024, 10, 27)),
    "midnight comes twice, and the day before between": ("America/St_Johns", date(2010, 11, 7)),
    "there is no midnight": ("America/Havana", date(2024, 3, 10)),
}


@pytest.mark.parametrize(
    ("size", "every"),
    [(2, 1), (3, 2), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 1), (2, 2), (3, 1)))],
)
def test_windows_of_days_of_every_kind_have_a_key_of_their_own(spark: SparkSession, size: int, every: int) -> None:
    """A model of them in Python, which knows the days of a zone from another data base of zones."""
    counted, proved, wanted = [], [], []
    for zone, odd in ODD_DAYS.values():
        window = TimeWindow(time="at", size=f"{size} days", every=f"{every} days", zone=zone)
        noon, windows = datetime.combine(odd, time(12), UTC), Windows.of(window, "TIMESTAMP")
        times = [noon + timedelta(minutes=30 * i) for i in range(-48 * 5, 48 * 5)]
        wanted += [(zone, *found) for found in _windows_of(times, ZoneInfo(zone), size, every)]
        numbers = f"SELECT EXPLODE(SEQUENCE({_micros(times[0])}L, {_micros(times[-1])}L, 1800000000L)) AS n"
        rows = spark.sql(f"SELECT n, TIMESTAMP_MICROS(n) AS at, TIMESTAMP_MICROS(n) AS {AT} FROM ({numbers})")
        rows.createOrReplaceTempView("rows_of_odd_days")
        bounds = [f"{windows.start('_fk_window')} AS start", f"{windows.end('_fk_window')} AS _fk_to"]
        counted.append(spread(rows, windows).selectExpr(f"'{zone}'", "n", *bounds, START))
        query = _windowed("rows_of_odd_days", window, "timestamp")
        proved.append(spark.sql(f"SELECT '{zone}', n, _fk_from, _fk_to, _fk_key FROM ({query})"))
    for frames in (counted, proved):
        both = reduce(DataFrame.union, frames).toDF("zone", "n", "start", "end", "key")
        found = both.selectExpr("zone", "n", *(f"UNIX_MICROS({name})" for name in ("start", "end", "key"))).collect()
        assert sorted(tuple(row)[:4] for row in found) == sorted(wanted)
        windows_by_key = {(zone, key): (start, end) for zone, _, start, end, key in found}
        assert len(windows_by_key) == len({(zone, start, end) for zone, _, start, end in wanted})


def _micros(one: datetime) -> int:
    return int(one.timestamp()) * 1_000_000


def _windows_of(times: list[datetime], zone: ZoneInfo, size: int, every: int) -> Iterator[tuple[int, int, int]]:
    """Yields, per time, the bounds of the windows in which it counts, all in microseconds."""

    def start(number: int) -> int:
        return _micros(datetime.combine(date(1970, 1, 1) + timedelta(number), time(), zone))

    for one in times:
        day = (one.astimezone(zone).date() - date(1970, 1, 1)).days
        for number in range(day - size + 1, day + 1):
            if number % every == 0:
                yield _micros(one), start(number), start(number + size)


@pytest.mark.slow
def test_two_windows_that_begin_together_are_two_rows_in_any_order_of_batches(grouped: Callable[..., Grouped]) -> None:
    """Samoa had no 30 December 2011: two days from it begin when two days from the 31st do."""
    made = grouped(
        window="window: {time: at, size: 2 days, every: 1 day, zone: Pacific/Apia}",
        time="TIMESTAMP",
        contents=EVENTS,
        aggregates="[count(*) AS n]",
    )
    first = datetime(2011, 12, 28, 11, tzinfo=UTC)
    times = [first + timedelta(hours=6 * i) for i in range(20)]
    for batch, number in ((2, 0), (1, 1), (3, 2)):
        made.land(batch, [{"id": i, "user": "a", "at": times[i].isoformat(), "v": 1} for i in range(number, 20, 3)])
        made.pipeline.run()
    counts: dict[tuple[int, int], int] = {}
    for _, *bounds in _windows_of(times, ZoneInfo("Pacific/Apia"), 2, 1):
        counts[bounds[0], bounds[1]] = counts.get((bounds[0], bounds[1]), 0) + 1
    found = {
        (_micros(start.replace(tzinfo=UTC)), _micros(end.replace(tzinfo=UTC))): n for _, start, end, n in made.result()
    }
    assert found == counts
    assert made.pipeline.verify().ok
    assert made.red() == set()
    story = made.pipeline.explain("user=a,window_start=2011-12-30 10:00:00")
    assert story.sentences()[2] == f"{found[1325239200_000_000, 1325412000_000_000]} rows count in it."


@pytest.mark.slow
def test_a_time_after_2262_hides_no_row_after_a_checkpoint_by_another_session(
    grouped: Callable[..., Grouped],
) -> None:
    """Spark itself writes times of 96 bits into it, and they are read as nanoseconds of 64 bits without Spark."""
    made = grouped(time="TIMESTAMP", contents=EVENTS, window="window: {time: at, size: 1 hour}")
    far = {"user": "far", "at": "9999-12-31T23:59:59.999Z", "v": 7}
    made.land(1, [{"id": 1, "user": "a", "at": "2026-05-01T10:00:01Z", "v": 2}, {"id": 2, **far}])
    made.pipeline.run()
    store = f"{made.pipeline.spec.home}/{AggregateStage.TABLE}"
    with settings(made.session, suiting(0) | {"spark.sql.parquet.outputTimestampType": "INT96"}):
        for commits in (1, 50):
            made.session.sql(
                f"ALTER TABLE delta.`{store}` SET TBLPROPERTIES ('delta.checkpointInterval' = '{commits}')"
            )
    made.land(2, [{"id": 3, "user": "a", "at": "2026-05-01T10:40:00Z", "v": 8}])
    made.pipeline.run(stages=[*made.pipeline.spec.definition.stage_names][:-1])
    made.edit()  # the last stage in another process: after a death, in Dagster, in a backfill
    made.pipeline.run()
    found = {
        row.user: (row.n, row.total) for row in made.pipeline.table("aggregated").select("user", "n", "total").collect()
    }
    assert found == {"a": (2, 10), "far": (1, 7)}


def test_explain_tells_which_rows_count_and_which_batches_moved_a_group(two_batches: Grouped) -> None:
    pipeline = two_batches.pipeline
    story = pipeline.explain("a")
    conclusion, row, counting, *origins = story.sentences()
    assert conclusion == "The result has it since batch 4, as it should."
    assert row.startswith("user=a, ")
    assert counting == "2 rows count in it."
    landed = {event[0]: event[3] for event in story.events() if event[1] == "row"}
    assert all(landed.values())
    assert origins == [f"Row {key} is of batch {batch}: {landed[batch]}." for key, batch in ((3, 4), (1, 0))]
    assert [event[:3] for event in story.events()] == [
        (0, "row", "1: v=2"), (0, "touched", ""), (4, "row", "3: v=7"), (4, "touched", ""),
    ]  # fmt: skip
    assert pipeline.explain("null").sentences()[2] == "1 row counts in it."
    assert pipeline.explain("nobody").as_expected
    with pytest.raises(UsageError, match="no right side"):
        pipeline.impact("a")


def test_a_corrupted_group_is_found(windowed: Grouped, monkeypatch: pytest.MonkeyPatch) -> None:
    made = windowed
    with mutated(monkeypatch, {"aggregated": Update("n = 1", {"n": "2"})}):
        assert made.red() == {f"aggregated: {name}" for name in (*STALE, "rows_are_those_of_the_join")}
    with mutated(monkeypatch, {"aggregated": Update("n = 1", {"total": "total + 1"})}):
        report = made.pipeline.verify()
        assert not report.ok
        assert report.stale == report.rows - sum(row[3] > 1 for row in made.result())


@pytest.mark.slow  # beside the same check in the test before
def test_a_group_without_a_hash_is_found(windowed: Grouped, monkeypatch: pytest.MonkeyPatch) -> None:
    with mutated(monkeypatch, {"aggregated": Update("n = 1", {"_fk_hash": "NULL"})}):
        assert windowed.red() == {"aggregated: hash_is_that_of_the_row"}


def test_the_check_of_a_batch_of_a_large_table_finds_the_group_that_a_row_left(
    grouped: Callable[..., Grouped], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grouped(WAYS["by keys on Spark"])
    made.land(0, [{**ROW, "id": id_, "user": user} for id_, user in ((1, "a"), (2, "a"), (3, "b"))])
    made.pipeline.run()
    made.land(1, [{**ROW, "id": 1, "user": "b"}])
    made.pipeline.run()
    as_it_was = Update("user = 'a'", {"n": "2", "total": "4", "_fk_batch": "0"})
    for mutation, wrong in (({}, 0), ({"aggregated": as_it_was}, 1)):
        with mutated(monkeypatch, mutation):
            found = violations(made.pipeline, AggregateStage.AGGREGATED, BatchRange.of(1)).findings
            assert found["row_is_that_of_the_table"].value == wrong


def test_what_is_computed_of_floating_sums_may_differ_as_if_they_were_added_otherwise(
    grouped: Callable[..., Grouped], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grouped(
        aggregates="[floor(sum(v / 10D) * 10 + 0.5D) AS tenths, sum(v / 10) AS total, max(v / 10) AS most]",
        options="select: [tenths, total, most, CAST(TOTAL AS STRING) AS text]",
    )
    made.land(0, [{**ROW, "id": v, "user": "a", "v": v} for v in (1, 2, 3)])
    made.pipeline.run()
    for by, is_right in {"1": True, "2": False}.items():
        moved = {"tenths": f"tenths + {by}", "total": f"total + {by}e-16", "text": "CONCAT(text, '1')"}
        with mutated(monkeypatch, {"aggregated": Update("TRUE", moved)}):
            assert made.pipeline.verify().ok is is_right
    with mutated(monkeypatch, {"aggregated": Update("TRUE", {"most": "most + 0.1"})}):
        assert not made.pipeline.verify().ok
    assert made.pipeline.explain("a").is_current


@pytest.mark.slow
def test_another_aggregate_is_built_from_the_changelog_also_after_a_compaction(grouped: Callable[..., Grouped]) -> None:
    made, random = grouped(settings="{fold_after_hours: 0, retention_hours: 0}"), Random(5)
    for batch in range(3):
        made.land(batch, random_rows(random, 6))
        made.pipeline.run()
    made.pipeline.compact()
    made.edit(options="having: n >= 1")
    made.pipeline.rebuild("changelog")
    assert made.result() == expected(made.rows())
    made.edit(aggregates=f"{AGGREGATES[:-1]}, min(note) AS least]")
    made.pipeline.rebuild("changelog")
    assert [row[:-1] for row in made.result()] == expected(made.rows())
    made.land(3, random_rows(random, 6))
    made.pipeline.run()
    assert [row[:-1] for row in made.result()] == expected(made.rows())
    assert made.pipeline.verify().ok


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"group_by": "[CAST(v AS DOUBLE) AS d]"}, "cannot be told apart as keys"),
        ({"window": "window: {time: user, size: 1 hour}"}, "window.time is STRING, which is no time"),
        ({"window": "window: {time: at, size: 1 day, zone: Europe/Berlin}"}, "window.time is BIGINT"),
        ({"aggregates": "[sum(v) + v AS s]"}, "aggregates, having or select"),
    ],
)
def test_types_that_do_not_fit_are_refused(
    grouped: Callable[..., Grouped], parts: dict[str, str], message: str
) -> None:
    made = grouped(**parts)
    made.land(0, [])
    with pytest.raises(PipelineFileError, match=message):
        made.pipeline.run()
