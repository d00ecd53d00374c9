"""Corrections: a bad line is read as somebody corrected it, in its place, and the landing file stays as it is."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.errors import UsageError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from tests.deaths import Killed

pytestmark = pytest.mark.spark

BAD = '{"op": "u", "id": "x", "fk": "a", "v": "old"}'
GOOD = '{"op": "u", "id": 1, "fk": "a", "v": "old"}'


def exported(made: Any, edits: dict[str, str], name: str = "bad.jsonl") -> Path:
    """Exports the quarantine, and edits the texts of some records."""
    file: Path = made.folder / name
    made.pipeline.export_quarantine(file)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert edits.keys() <= {record["raw"] for record in records}
    for record in records:
        record["raw"] = edits.get(record["raw"], record["raw"])
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def counts(made: Any, batch: int = 0, stage: Stage = Stage.LEFT_CHANGELOG) -> dict[str, int]:
    return dict(made.pipeline.ledger().state(stage, batch).counts)


def raws(made: Any) -> list[str]:
    return [row["raw"] for row in made.pipeline.quarantined().collect()]


def stored(replay: Any) -> tuple[int, int, int]:
    return replay.corrections, replay.known, replay.unchanged


@pytest.fixture(scope="module")
def corrected(rows_pipeline: Callable[..., Any]) -> tuple[Any, Path]:
    """A bad line before a good one of its key, one after, one not needed, and one that stays; three corrected."""
    made = rows_pipeline("left")
    late = BAD.replace("old", "late").replace('"x"', '"y"')
    made.land(0, [BAD, (1, "a", "new"), (2, "b", "older"), late, "{dropped", "{stays"], [("a", "A"), "[]"])
    made.pipeline.run()
    assert made.result() == {1: ("new", "A"), 2: ("older", None)}
    file = exported(made, {BAD: GOOD, late: late.replace('"y"', "2"), "{dropped": ""})
    landed = (made.folder / "landing" / "left" / "00000000.jsonl").read_bytes()
    assert stored(made.pipeline.correct(file)) == (3, 0, 2)
    assert {stage: batches for stage, batches in made.pipeline.due().items() if batches} == {"left_changelog": [0]}
    assert made.pipeline.ledger().due.why("left_changelog", 0) == "lines of it were corrected"
    made.pipeline.run()
    assert (made.folder / "landing" / "left" / "00000000.jsonl").read_bytes() == landed
    return made, file


def test_a_corrected_record_takes_its_own_place_in_the_order(corrected: tuple[Any, Path]) -> None:
    made, _ = corrected
    assert made.result() == {1: ("new", "A"), 2: ("late", "A")}
    assert counts(made) == {
        "corrected": 3, "read": 6, "events": 4, "rows": 2, "superseded": 2, "ignored: empty line": 1, "quarantined": 1,
        "rows without column note": 4,
    }  # fmt: skip
    assert [(*tuple(row)[:4], row["raw"]) for row in made.pipeline.quarantined().collect()] == [
        (0, "left", "landing/left/00000000.jsonl", 6, "{stays"),
        (0, "right", "landing/right/00000000.jsonl", 2, "[]"),
    ]


def test_replaying_a_file_again_does_nothing(corrected: tuple[Any, Path]) -> None:
    made, file = corrected
    assert stored(made.pipeline.correct(file)) == (0, 3, 2)
    assert not any(made.pipeline.due().values())


@pytest.mark.slow
def test_a_rebuild_from_the_landing_files_and_verify_know_the_corrections(corrected: tuple[Any, Path]) -> None:
    made, _ = corrected
    before, quarantined = made.result(), raws(made)
    made.pipeline.rebuild("landing")
    assert (made.result(), raws(made)) == (before, quarantined)
    assert not any(made.pipeline.due().values())
    assert counts(made)["corrected"] == 3
    report = Pipeline(load_spec(made.file), made.pipeline.session).verify()
    assert (report.ok, report.due) == (True, 0)
    made.pipeline.run("0")
    assert made.result() == before


@pytest.mark.slow
def test_a_file_that_was_corrected_itself_is_read_as_it_is(corrected: tuple[Any, Path]) -> None:
    made, _ = corrected
    made.land(1, ["{dropped", BAD, (3, "a", "v")])
    made.pipeline.run()
    assert sorted(raws(made)) == ["[]", BAD, "{dropped", "{stays"], "corrections are about the lines of one file"
    made.land(1, [(3, "a", "w")])
    made.pipeline.run()
    assert made.result()[3] == ("w", "A")
    assert "corrected" not in counts(made, 1)


@pytest.mark.slow
def test_a_corrected_text_that_is_bad_again_is_corrected_again(rows_pipeline: Callable[..., Any]) -> None:
    made = rows_pipeline("inner")
    made.land(0, [BAD], [("a", "A")])
    made.pipeline.run()
    worse = BAD.replace('"x"', '"1x"')
    first = exported(made, {BAD: worse}, "first.jsonl")
    made.pipeline.correct(first)
    made.pipeline.run()
    [again] = made.pipeline.quarantined().collect()
    assert (again["line"], again["reason"], again["raw"]) == (1, "column id: 1x is not INT", worse)
    second = exported(made, {worse: GOOD}, "second.jsonl")
    made.pipeline.correct(second)
    made.pipeline.run()
    assert made.result() == {1: ("old", "A")}
    assert raws(made) == []
    assert stored(made.pipeline.correct(first)) == (0, 1, 0), "an older file takes nothing back"
    record = json.loads(first.read_text())
    first.write_text(json.dumps(record | {"raw": GOOD.replace("old", "best")}))
    assert stored(made.pipeline.correct(first)) == (1, 0, 0), "another correction of the same text replaces it"
    made.pipeline.run()
    assert made.result() == {1: ("best", "A")}
    assert made.pipeline.verify().ok


TEXTS = [b'{"id": "\xff", "v": "a,""b"\r', b'\xc3\xa9, "q"', BAD.encode(), b"{", BAD.encode()]
"""The lines of a left file, none of which can be read; two have one text."""


@pytest.fixture(scope="module")
def unread(rows_pipeline: Callable[..., Any]) -> Any:
    """A pipeline whose first left file was looked at, and has bad lines only."""
    made = rows_pipeline("left", right_extra="  sequence_by: note\n")
    (made.folder / "landing" / "left" / "00000000.jsonl").write_bytes(b"".join(line + b"\n" for line in TEXTS))
    made.pipeline.run(stages=[Stage.LEFT_CHANGELOG])
    return made


@pytest.mark.slow
def test_texts_come_back_from_csv_as_they_were(unread: Any, copy_of: Any) -> None:
    made = copy_of(unread)
    file = made.folder / "bad.csv"
    assert made.pipeline.export_quarantine(file) == 5
    assert stored(made.pipeline.correct(file)) == (0, 0, 5)
    with file.open(newline="", encoding="utf-8") as stream:
        names, *rows = csv.reader(stream)
    assert names == ["batch", "side", "file", "line", "reason", "raw", "digest"]
    rows = rows[:3]
    for row in rows:
        row[5] = GOOD.replace("1", row[3])
    with file.open("w", newline="", encoding="utf-8-sig") as stream:
        csv.writer(stream).writerows([names, *rows])
    assert stored(made.pipeline.correct(file)) == (3, 0, 0)
    made.pipeline.run(stages=[Stage.LEFT_CHANGELOG])
    assert sorted(row["id"] for row in made.pipeline.table("left_changelog").collect()) == [1, 2, 3]
    assert raws(made) == ["{"]


def test_who_dies_when_corrections_are_stored_has_made_their_batch_due(unread: Any, copy_of: Any) -> None:
    made = copy_of(unread)
    file = exported(made, {"{": GOOD})

    def die(point: str) -> None:
        if point == "after entry in corrections":
            raise Killed(point)

    with faults.listening(die), pytest.raises(Killed):
        made.pipeline.correct(file)
    again = Pipeline(load_spec(made.file), made.pipeline.session)
    assert again.due()[Stage.LEFT_CHANGELOG] == [0]
    assert stored(again.correct(file)) == (0, 1, 4)


@pytest.mark.slow
def test_replay_reads_the_batches_again_that_have_bad_records(rows_pipeline: Callable[..., Any]) -> None:
    made = rows_pipeline("left", select="[id, v, 'string(1 / id) AS name']")
    made.land(0, [(1, "a", "v"), "{"])
    made.land(1, [(0, "a", "v")], [("a", "A"), "["])
    made.land(2, [(2, "a", "v")])
    made.pipeline.run()
    assert made.pipeline.replay("2") == []
    assert made.pipeline.replay("0..1", "right") == [1]
    assert made.pipeline.ledger().due.why("right_table", 1) == "its quarantined records are to be read again"
    assert made.pipeline.replay() == [0, 1]
    due = {stage: batches for stage, batches in made.pipeline.due().items() if batches}
    assert due == {"left_changelog": [0], "right_table": [1], "resolved_join": [1]}
    made.pipeline.run()
    assert not any(made.pipeline.due().values())
    assert [row["side"] for row in made.pipeline.quarantined().collect()] == ["join", "left", "right"]
    with pytest.raises(UsageError, match="a pair of rows cannot be corrected by its text"):
        made.pipeline.correct(edited(made, "join", raw="{}"))
    with pytest.raises(UsageError, match="'elsewhere' is no landing file of side left") as caught:
        made.pipeline.correct(edited(made, "left", raw="x", file="elsewhere"))
    assert caught.value.where.endswith("bad.jsonl:2")
    (made.folder / "landing" / "right" / "00000001.jsonl").unlink()
    with pytest.raises(UsageError, match=r"landing/right/00000001\.jsonl is gone from the landing folder"):
        made.pipeline.correct(edited(made, "right", raw="x"))
    assert not any(made.pipeline.due().values()), "nothing was stored"


def edited(made: Any, side: str, **values: str) -> Path:
    """An export in which the record of a side has other values."""
    file = exported(made, {})
    records = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(r | (values if r["side"] == side else {})) + "\n" for r in records))
    return file


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.parquet", "", "the file ends in neither .csv nor .jsonl"),
        ("none.jsonl", None, "No such file"),
        ("bad.jsonl", "{", "Expecting property name"),
        ("bad.jsonl", "[]", "a record has no text in raw or digest"),
        ("bad.csv", "raw\nx\n", "a record has no text in raw or digest"),
    ],
)
def test_a_file_that_was_not_exported_is_refused(
    rows_pipeline: Callable[..., Any], name: str, content: str | None, message: str
) -> None:
    made = rows_pipeline("left")
    if content is not None:
        (made.folder / name).write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        made.pipeline.correct(made.folder / name)
    assert caught.value.fix


@pytest.mark.slow
def test_lines_with_one_text_are_corrected_alike(unread: Any, copy_of: Any) -> None:
    made = copy_of(unread)
    file = exported(made, {})
    *others, first, unlike, alike = file.read_text().splitlines()
    assert [json.loads(line)["line"] for line in (first, unlike, alike)] == [3, 4, 5]
    file.write_text("\n\n".join([*others, json.dumps(json.loads(first) | {"raw": GOOD}), unlike, alike]))
    assert stored(made.pipeline.correct(file)) == (1, 0, 4)
    made.pipeline.run(stages=[Stage.LEFT_CHANGELOG])
    assert (counts(made)["corrected"], raws(made)) == (2, [json.loads(line)["raw"] for line in (*others, unlike)])
    records = [json.loads(first) | {"raw": raw} for raw in ("one", "other")]
    file.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(UsageError, match=r"lines of landing/left/00000000\.jsonl with one text are corrected to"):
        made.pipeline.correct(file)
