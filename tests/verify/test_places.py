"""The line of a landing file that brought a version is found by the reader of `verify --inputs`. No Spark."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fk_pipeline.blocks.story import JsonRow, Origin
from fk_pipeline.identity import Side
from fk_pipeline.pipeline import load
from fk_pipeline.verify.inputs import places
from fk_pipeline.verify.inputs.places import LandedPlaces

PIPELINE = """\
name: p
join: left
left:
  path: landing/left
  format: rows
  schema: "id INT, at TIMESTAMP, day DATE, seen STRING"
  key: [id, at]
  foreign_key: CAST(day AS STRING)
  op_column: op
right: {path: landing/right, format: csv, schema: "day STRING, n INT", key: day}
"""
NOON = '"at": "2026-01-01T12:00:00Z"'
LEFT = f"""\
{{"op": "c", "id": 1, {NOON}}}
{{"op": "c", "id": 2, {NOON}}}

{{"op": "u", "id": 1, {NOON}}}
{{"op": "u", "id": 1, "at": "2026-01-01T12:00:00.5Z"}}
no json
{{"op": "t"}}
"""
KEY: JsonRow = {"id": 1, "at": "2026-01-01T12:00:00.000000Z"}


@pytest.fixture
def found(tmp_path: Path) -> LandedPlaces:
    """Tells places in a pipeline with a batch on both sides, that of the left one packed as well."""
    for side, name, text in (("left", "1.jsonl", LEFT), ("right", "1.csv", "day,n\n2026-01-01,1\n2026-01-02,2\n")):
        folder = tmp_path / "landing" / side
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
    (tmp_path / "landing" / "left" / "2.jsonl.gz").write_bytes(gzip.compress(LEFT.encode()))
    (tmp_path / "p.yaml").write_text(PIPELINE)
    made = load(tmp_path / "p.yaml")
    made.discover()
    return LandedPlaces(made.spec, made.ledger())


@pytest.mark.parametrize(
    ("origin", "place"),
    [
        (Origin(Side.LEFT, 1, "landing/left/1.jsonl", KEY), "landing/left/1.jsonl, line 4"),
        (
            Origin(Side.LEFT, 1, "landing/left/1.jsonl", KEY | {"at": "2026-01-01T12:00:00.500000Z"}),
            "landing/left/1.jsonl, line 5",
        ),
        (Origin(Side.LEFT, 2, "landing/left/2.jsonl.gz", KEY | {"id": 2}), "landing/left/2.jsonl.gz, line 2"),
        (Origin(Side.LEFT, 1, "landing/left/1.jsonl", None), "landing/left/1.jsonl, line 7"),
        (Origin(Side.RIGHT, 1, "landing/right/1.csv", {"day": "2026-01-02"}), "landing/right/1.csv, row 2"),
        (Origin(Side.RIGHT, 1, "landing/right/1.csv", {"day": "never"}), "landing/right/1.csv"),
        (Origin(Side.RIGHT, 7, "landing/right/gone.csv", {"day": "2026-01-02"}), "landing/right/gone.csv"),
    ],
)
def test_the_last_record_of_a_key_is_the_one(found: LandedPlaces, origin: Origin, place: str) -> None:
    assert found(origin) == place


def test_no_line_is_told_that_is_not_certain(
    found: LandedPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, file = Origin(Side.LEFT, 1, "landing/left/1.jsonl", KEY), tmp_path / "landing" / "left" / "1.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(places, "MOST_BYTES", 10)
        assert found(origin) == origin.file, "a large file"
    file.write_text(LEFT + "{}\n")
    assert found(origin) == origin.file, "it has changed since it was read"
    file.unlink()
    assert found(origin) == origin.file, "it is gone"
