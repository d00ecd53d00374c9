"""Clocks as inputs of queries: their steps, what a pipeline file may say of them, and how a look becomes a batch."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fk_pipeline.blocks.landed_versions import newest_version
from fk_pipeline.cdc import landing
from fk_pipeline.cli import main
from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.identity import Side
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.clock import Clock, moment_of

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def steps(clock: Clock, first: str, last: str) -> list[str]:
    """The starts of the steps between two moments in UTC, as the clock on the wall shows them."""
    found, moment = list[int](), at(first)
    while moment < at(last):
        step = clock.step(moment)
        found += [step] if step not in found[-1:] else []
        moment += timedelta(minutes=5)
    assert found == sorted(found), "a clock does not run backwards"
    assert [clock.step(datetime.fromtimestamp(one, UTC)) for one in found] == found
    return [clock.shown(one) for one in found]


def test_days_begin_at_midnight_of_the_zone_also_when_the_clocks_change() -> None:
    days = Clock.of("1 day", BERLIN)
    assert days.step(at("2026-03-28T22:59:59")) == at("2026-03-27T23:00").timestamp()
    assert days.step(at("2026-03-28T23:00:00")) == at("2026-03-28T23:00").timestamp()
    assert days.step(at("2026-03-29T22:00:00")) == at("2026-03-29T22:00").timestamp(), "23 hours later"
    assert days.step(at("2026-10-25T22:59:00")) == at("2026-10-24T22:00").timestamp(), "25 hours"
    assert days.day(days.step(at("2026-10-25T22:59:00"))) == date(2026, 10, 25)
    assert Clock.of("1 day", "UTC").day(days.step(at("2026-10-25T12:00"))) == date(2026, 10, 24)
    assert steps(days, "2026-03-28T12:00", "2026-03-30T12:00") == ["2026-03-28", "2026-03-29", "2026-03-30"]
    cairo = Clock.of("1 day", "Africa/Cairo")  # where the day in April on which the clocks change begins at 1:00
    begins = cairo.step(at("2026-04-24T12:00"))
    assert (begins, cairo.day(begins)) == (at("2026-04-23T22:00").timestamp(), date(2026, 4, 24))


def test_weeks_begin_on_monday() -> None:
    weeks = Clock.of("7 days", BERLIN)
    assert weeks == Clock.of("1 week", BERLIN)
    shown = steps(weeks, "2026-03-20T00:00", "2026-04-08T00:00")
    assert shown == ["2026-03-16", "2026-03-23", "2026-03-30", "2026-04-06"]
    assert {date.fromisoformat(one).weekday() for one in shown} == {0}


def test_hours_and_minutes_count_from_midnight_on_the_wall() -> None:
    spring = steps(Clock.of("6 hours", BERLIN), "2026-03-28T23:00", "2026-03-29T22:00")
    assert [one[11:] for one in spring] == ["00:00+01:00", "06:00+02:00", "12:00+02:00", "18:00+02:00"]
    autumn = steps(Clock.of("1 hour", BERLIN), "2026-10-24T23:00", "2026-10-25T03:00")
    assert [one[11:] for one in autumn] == ["01:00+02:00", "02:00+02:00", "02:00+01:00", "03:00+01:00"]
    assert len(steps(Clock.of("12 hours", BERLIN), "2026-03-28T23:00", "2026-03-30T22:00")) == 4
    two = steps(Clock.of("2 hours", BERLIN), "2026-10-24T23:00", "2026-10-25T04:00")
    assert [one[11:] for one in two] == ["00:00+02:00", "02:00+02:00", "02:00+01:00", "04:00+01:00"]
    quarters = Clock.of("20 minutes", "Australia/Lord_Howe")  # where they change by half an hour
    found = [datetime.fromisoformat(one) for one in steps(quarters, "2026-04-04T12:00", "2026-04-04T18:00")]
    assert {later - earlier for earlier, later in pairwise(found)} <= {timedelta(minutes=n) for n in (20, 10, 30)}


def test_a_moment_without_an_offset_is_of_the_zone() -> None:
    days = Clock.of("1 day", BERLIN)
    assert days.step(moment_of("2026-05-01")) == at("2026-04-30T22:00").timestamp()
    assert days.step(moment_of("2026-05-01T13:00")) == days.step(moment_of("2026-05-01"))
    assert days.step(moment_of("2026-05-01T23:00Z")) == days.step(moment_of("2026-05-02"))
    assert Clock.at(days.place) == days
    with pytest.raises(ValueError, match="before 1970"):
        days.step(moment_of("1969-05-01"))
    with pytest.raises(ValueError, match=r"'May' is no day and no time; write 2026-05-01"):
        moment_of("May")


ORDERS = 'name: orders\nkind: table\ninput: {path: landing, format: rows, schema: "id INT, day DATE", key: id}\n'
QUERY = """\
name: recent
kind: query
inputs:
  orders: {pipeline: orders.yaml}
  now: {clock: 1 day, zone: Europe/Berlin}
query: |
  SELECT o.id, o.day FROM orders o, now WHERE o.day >= now.day - INTERVAL 30 DAYS
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The pipeline file of a query over orders and a clock."""
    (tmp_path / "orders.yaml").write_text(ORDERS)
    (tmp_path / "recent.yaml").write_text(QUERY)
    return tmp_path / "recent.yaml"


def edit(file: Path, old: str, new: str) -> Path:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    return file


def test_a_clock_has_a_time_and_a_day_and_nothing_else_that_a_query_reads(file: Path) -> None:
    spec = load_spec(file)
    assert spec.clocks[Side("now")].of_wall == Clock(timedelta(days=1), BERLIN)
    edit(file, "o.id, o.day", "o.id, now.*")
    assert [one.name for one in load_spec(file).outputs] == ["id", "at", "day"]
    edit(file, ", zone: Europe/Berlin", "")
    assert load_spec(file).clocks[Side("now")].zone == "UTC"
    edit(file, "now.*", "now.clock")
    with pytest.raises(PipelineFileError, match="clock is no column; now has at, day"):
        load_spec(file)


POSSIBLE = "write 1 week, 1 day, or whole minutes or hours of which a day is a multiple"

REFUSED = {
    "{clock: 1 day, key: day}": "inputs.now.key: a clock has the keys clock and zone, and no key",
    "{clock: 1 day, table: lake}": "inputs.now.table: a clock has the keys clock and zone, and no table",
    "{clock: 1 day, path: landing}": "inputs.now.path: a clock has the keys clock and zone, and no path",
    "{clock: 1 day, pipeline: orders.yaml}": "inputs.now.pipeline: a clock has the keys clock and zone",
    "{clock: 1 day, zone: Mars}": "inputs.now.zone: 'Mars' is no time zone; write one as Europe/Berlin",
    "{clock: 1 day, zone: '+01:00'}": "inputs.now.zone: '+01:00' is no time zone",
    "{clock: 0 days}": f"inputs.now.clock: '0 days' is no step of a clock; {POSSIBLE}",
    "{clock: -1 day}": "inputs.now.clock: '-1 day' is no span of time; write a whole number and a unit",
    "{clock: 5 hours}": f"inputs.now.clock: '5 hours' is no step of a clock; {POSSIBLE}",
    "{clock: 90 seconds}": "inputs.now.clock: '90 seconds' is no step of a clock",
    "{clock: 2 days}": "inputs.now.clock: '2 days' is no step of a clock",
    "{clock: 2 weeks}": "inputs.now.clock: '2 weeks' is no step of a clock",
    "{clock: 86400}": "inputs.now.clock: Input should be a valid string, not 86400",
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_no_clock_is_refused_with_its_line(file: Path, given: str) -> None:
    edit(file, "{clock: 1 day, zone: Europe/Berlin}", given)
    with pytest.raises(PipelineFileError) as refused:
        load_spec(file)
    assert f"{file}:5: {REFUSED[given]}" in str(refused.value)


def test_a_clock_that_is_not_read_is_left_out_and_one_of_another_kind_refused(file: Path) -> None:
    edit(file.with_name("orders.yaml"), "{path: landing", "{clock: 1 day, path: landing")
    with pytest.raises(
        PipelineFileError, match=r"input.clock: only a query \(kind: query\) has inputs that are clocks"
    ):
        load_spec(file.with_name("orders.yaml"))
    file.with_name("orders.yaml").write_text(ORDERS)
    edit(file, ", now WHERE o.day >= now.day - INTERVAL 30 DAYS", "")
    assert "now" not in load_spec(file).sides


TIMES = ("current_date", "curdate()", "now()", "current_timestamp()", "unix_timestamp()")


@pytest.mark.parametrize("time", TIMES)
def test_functions_that_know_the_time_are_refused_with_a_clock_to_write(file: Path, time: str) -> None:
    edit(file, "now.day - INTERVAL 30 DAYS", time)
    with pytest.raises(PipelineFileError, match=r"knows the time: .* inputs: \{now: \{clock: 1 day\}\}.* now\.day"):
        load_spec(file)


class Wall:
    """The clock on the wall of the tests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shows = at("2026-05-01T12:00")
        monkeypatch.setattr(landing, "datetime", type("Then", (datetime,), {"now": lambda _: self.shows}))


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    return Wall(monkeypatch)


@pytest.fixture
def pipeline(file: Path, wall: Wall) -> Pipeline:
    """The query, after its orders have a result: a Delta table that has nothing new."""
    assert wall
    (file.parent / "lake").mkdir()
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = pa.table({"id": pa.array([1], pa.int32()), "day": pa.array([date(2026, 4, 20)])})
    write_deltalake(str(file.parent / "lake"), rows)
    edit(file, "{pipeline: orders.yaml}", "{table: lake, key: id}")
    return Pipeline(load_spec(file))


def found(pipeline: Pipeline, now: str | None = None) -> list[int]:
    """The batches of a discovery."""
    return [*map(int, pipeline.discover(now=None if now is None else moment_of(now)).batches)]


def shown(pipeline: Pipeline) -> str:
    """What the clock shows to a run."""
    seen = newest_version(pipeline.spec, pipeline.ledger(), Side("now"))
    assert seen is not None
    return seen.shown


def test_a_step_that_is_over_makes_a_batch_and_none_goes_backwards(pipeline: Pipeline, wall: Wall) -> None:
    assert (found(pipeline), shown(pipeline)) == ([0], "2026-05-01")
    assert {file.side for file in pipeline.ledger().files.known.values()} == {"orders", "now"}
    wall.shows = at("2026-05-01T21:59")
    assert (found(pipeline), shown(pipeline)) == ([], "2026-05-01")
    wall.shows = at("2026-05-01T22:00")
    assert [file.side for file in pipeline.look().discovered] == ["now"], "midnight in Berlin"
    assert (found(pipeline), shown(pipeline)) == ([1], "2026-05-02")
    wall.shows = at("2026-04-30T12:00")
    assert (found(pipeline), shown(pipeline)) == ([], "2026-05-02"), "a clock on the wall that was put back"


def test_a_clock_is_put_back_and_goes_on(pipeline: Pipeline, wall: Wall) -> None:
    assert found(pipeline) == [0]
    for number, day in enumerate(("2026-03-01", "2026-06-01", "2026-03-01", "2026-05-01"), start=1):
        assert (found(pipeline, day), shown(pipeline)) == ([number], day)
        assert found(pipeline, f"{day}T13:00") == [], "the step that it is in"
    wall.shows = at("2026-05-02T12:00")
    assert (found(pipeline), shown(pipeline)) == ([5], "2026-05-02")
    ledger = pipeline.ledger()
    assert not ledger.files.unlisted()
    assert [len(ledger.files.of(batch, Side("now"))) for batch in range(6)] == [1] * 6
    assert len({file.path for file in ledger.files.of_side(Side("now"))}) == 6


def test_a_withdrawn_step_comes_back(pipeline: Pipeline) -> None:
    assert found(pipeline) == [0]
    assert found(pipeline, "2026-06-01") == [1]
    with pytest.raises(UsageError, match="there is no batch 9"):
        pipeline.remove_batch(9)
    pipeline.ledger().files.remove(1)
    assert shown(pipeline) == "2026-05-01"
    assert (found(pipeline, "2026-06-01"), shown(pipeline)) == ([2], "2026-06-01")


def test_another_length_or_zone_is_another_clock(pipeline: Pipeline, file: Path) -> None:
    assert found(pipeline) == [0]
    before = newest_version(pipeline.spec, pipeline.ledger(), Side("now"))
    edit(file, "Europe/Berlin", "America/New_York")
    other = Pipeline(load_spec(file))
    other.check_fingerprints()
    assert (found(other), shown(other)) == ([1], "2026-05-01")
    after = newest_version(other.spec, other.ledger(), Side("now"))
    assert before is not None
    assert after is not None
    assert (before.id, after.id) == ("clock://86400/Europe/Berlin", "clock://86400/America/New_York")
    edit(file, "1 day", "1 hour")
    hours = Pipeline(load_spec(file))
    assert (found(hours), shown(hours)) == ([2], "2026-05-01T08:00-04:00")


def test_no_step_counts_before_there_is_a_table(file: Path, wall: Wall) -> None:
    assert wall
    pipeline = Pipeline(load_spec(file))
    assert found(pipeline) == []
    assert [str(one) for one in pipeline.look().notices] == [
        f"orders: pipeline orders.yaml has no result yet; run it first: fk-pipeline run {file.with_name('orders.yaml')}"
    ]


def test_now_is_refused_without_a_clock_or_with_a_text_that_is_no_time(file: Path) -> None:
    def refused(*args: str) -> str:
        ended = CliRunner().invoke(main.app, ["run", *args])
        assert ended.exit_code != 0
        return str(ended.exception or ended.output)

    assert "pipeline orders has no clock to set" in refused(str(file.with_name("orders.yaml")), "--now", "2026-05-01")
    assert "--now: 'soon' is no day and no time" in refused(str(file), "--now", "soon")
    file.unlink()
    file.with_name("other.yaml").write_text(ORDERS.replace("orders", "other"))
    assert "no pipeline has a clock to set" in refused(str(file.parent), "--now", "2026-05-01")


def test_a_clock_is_not_set_to_a_time_before_1970(pipeline: Pipeline) -> None:
    with pytest.raises(UsageError, match=r"the clock now cannot be set: .* is before 1970"):
        found(pipeline, "1969-12-01")
