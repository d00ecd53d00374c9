"""Which files there are and which batch each belongs to. No Spark."""

from __future__ import annotations

import errno
import gzip
import re
from pathlib import Path

import pytest

from fk_pipeline.cdc.landing import batch_of
from fk_pipeline.cdc.names import linked, strange
from fk_pipeline.environment.storage import opened
from fk_pipeline.errors import LandingError
from fk_pipeline.identity import Side
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import SideSpec, load_spec


def side(**changes: str) -> SideSpec:
    return SideSpec.model_validate({"path": "x", "schema": "id INT", "key": "id"} | changes)


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("00000042.jsonl", 42),
        ("42.jsonl.gz", 42),
        ("orders-2026-11-20-00000007.json", 7),
        ("part3_of9.ndjson", 9),
        ("arrived.jsonl", None),
        (r"latin-\xe9.jsonl", None),  # how a byte is written down
        (r"latin-\x5cxe9.jsonl", 9),
        ("99999999.jsonl", 99999999),
    ],
)
def test_the_batch_is_the_last_number_in_the_name(name: str, batch: int | None) -> None:
    assert batch_of(f"/landing/5/{name}", side()) == batch


@pytest.mark.parametrize("name", ["20260101123000.jsonl", "100000000.jsonl"])
def test_a_number_of_more_than_eight_digits_is_refused_with_the_cure(name: str) -> None:
    with pytest.raises(LandingError, match="at most 8 digits") as caught:
        batch_of(name, side())
    assert "batch_by" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("orders-9a1c2f7e-1d5b-4a5e-9d0a-0c6b3f2e7a41.jsonl", "a UUID: 41"),
        ("9A1C2F7E1D5B4A5E9D0A0C6B3F2E7A41.jsonl", "a UUID: 41"),
        ("12-d41d8cd98f00b204e9800998ecf8427e0a1b2c3d.jsonl", "a hash: 3"),
        ("7_00000000000000af.jsonl.gz", "a hash: 00000000000000"),
    ],
)
def test_a_number_within_an_identifier_is_refused_with_the_cure(name: str, what: str) -> None:
    with pytest.raises(LandingError, match=what) as caught:
        batch_of(name, side())
    assert "batch_by: arrival takes files as they come" in str(caught.value)
    assert batch_of(name, side(batch_by="arrival")) is None
    with pytest.raises(LandingError) as caught:
        batch_of(name, side(contents="snapshot", format="rows"))
    assert "arrival" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "orders_00017_v2.jsonl",
        "orders_00017 (1).jsonl",
        "17-retry1.jsonl",
        "00000042.part3.jsonl",
        "crm2_7_Copy 2.jsonl.gz",
    ],
)
def test_the_number_of_a_copy_is_refused_with_the_cure(name: str) -> None:
    with pytest.raises(LandingError, match="of a copy, a version or a part") as caught:
        batch_of(name, side())
    [cure] = re.findall(r"batch_by: '(.*)'", str(caught.value))
    assert batch_of(name, side(batch_by=cure)) in (1, 2, 3)


@pytest.mark.parametrize(
    ("name", "batch"),
    [("orders_v2.jsonl", 2), ("v2_00017.jsonl", 17), ("part-0-17.jsonl", 17), ("crm2-part-1.jsonl", 1)],
)
def test_a_number_that_is_no_copy_of_another_is_the_batch(name: str, batch: int) -> None:
    assert batch_of(name, side()) == batch


@pytest.mark.parametrize(
    ("name", "batch"),
    [("9a1c2f7e-1d5b-4a5e-9d0a-0c6b3f2e7a41-7.jsonl", 7), ("cafe12.jsonl", 12), ("feedbackloops-0042.jsonl", 42)],
)
def test_a_number_beside_an_identifier_is_the_batch(name: str, batch: int) -> None:
    assert batch_of(name, side()) == batch


def test_batch_by_says_which_number_counts() -> None:
    assert batch_of("b12-part-3.jsonl", side(batch_by=r"b(\d+)-")) == 12
    assert batch_of("b12-part-3.jsonl", side(batch_by="arrival")) is None
    with pytest.raises(LandingError, match="does not match"):
        batch_of("x.jsonl", side(batch_by=r"b(\d+)-"))


@pytest.fixture(params=["plain", "a strange folder+name, it's ü"])
def pipeline(tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    folder = tmp_path / request.param
    for name in ("left", "right"):
        (folder / "landing" / name).mkdir(parents=True)
    file = folder / "p.yaml"
    file.write_text(
        'name: p\njoin: left\nleft: {path: landing/left, format: rows, schema: "id INT, fk INT", key: id, '
        'foreign_key: fk}\nright: {path: "landing/right/*.jsonl", format: rows, schema: "k INT", key: k}\n'
    )
    return Pipeline(load_spec(file))


def landing(pipeline: Pipeline, name: str) -> Path:
    return pipeline.spec.file.parent / "landing" / name


def test_files_of_both_sides_with_one_number_are_one_batch(pipeline: Pipeline) -> None:
    for name in ("left/0002.jsonl", "right/2.jsonl", "left/a-2.jsonl", "left/7.jsonl"):
        landing(pipeline, name).write_text("{}\n")
    found = pipeline.discover()
    assert sorted(f.path for f in found.discovered) == [
        "landing/left/0002.jsonl", "landing/left/7.jsonl", "landing/left/a-2.jsonl", "landing/right/2.jsonl",
    ]  # fmt: skip
    ledger = pipeline.ledger()
    assert ledger.batches == [2, 7]
    assert [f.path for f in ledger.files.of(2, Side.LEFT)] == ["landing/left/0002.jsonl", "landing/left/a-2.jsonl"]


def test_discovery_is_idempotent_and_ignores_what_is_no_data(pipeline: Pipeline) -> None:
    for name in ("left/1.jsonl", "left/.2.jsonl", "left/_3.jsonl", "left/4.txt", "left/5.jsonl.part"):
        landing(pipeline, name).write_text("{}\n")
    (landing(pipeline, "left") / "6.jsonl").mkdir()
    assert len(pipeline.discover().discovered) == 1
    assert pipeline.discover().batches == ()
    assert pipeline.ledger().batches == [1]


def test_a_changed_file_is_told_by_its_content_and_a_vanished_one_stays(pipeline: Pipeline) -> None:
    file = landing(pipeline, "left/1.jsonl")
    file.write_text("{}\n")
    pipeline.discover()
    file.write_text("{}\n")
    assert pipeline.discover().changed == ()
    file.write_text('{"id": 1}\n')
    assert [f.path for f in pipeline.look().changed] == ["landing/left/1.jsonl"]
    assert pipeline.discover().batches == (1,)
    file.unlink()
    found = pipeline.discover()
    assert [f.path for f in found.vanished] == ["landing/left/1.jsonl"]
    assert found.batches == ()
    assert pipeline.ledger().batches == [1]


def test_files_without_a_number_are_batched_as_they_arrive(pipeline: Pipeline) -> None:
    landing(pipeline, "left/9.jsonl").write_text("{}\n")
    landing(pipeline, "left/new.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
    landing(pipeline, "right/other.jsonl").write_text("{}\n")
    assert pipeline.discover().batches == (9, 10)
    landing(pipeline, "left/newer.jsonl").write_text("{}\n")
    assert pipeline.discover().batches == (11,)


def test_files_of_one_batch_are_read_in_the_order_of_the_numbers_in_their_names(pipeline: Pipeline) -> None:
    for number in (10, 9, 100, 8):
        (landing(pipeline, "left") / f"part-{number}_b1.jsonl").touch()
    pipeline.discover()
    left = [file.path.rsplit("/", 1)[-1] for file in pipeline.ledger().files.of(1, Side.LEFT)]
    assert left == [f"part-{number}_b1.jsonl" for number in (8, 9, 10, 100)]


def test_the_folder_may_be_moved_as_a_whole(pipeline: Pipeline, tmp_path: Path) -> None:
    landing(pipeline, "left/1.jsonl").write_text("{}\n")
    pipeline.discover()
    moved = pipeline.spec.file.parent.rename(tmp_path / "moved")
    again = Pipeline(load_spec(moved / "p.yaml"))
    assert again.discover().batches == ()
    assert again.ledger().batches == [1]


def test_a_file_is_copied_where_a_folder_cannot_have_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(tmp_path / name) for name in ("10:15.jsonl", "é.jsonl.gz", "plain 1.jsonl")]
    for path in paths:
        Path(path).write_text(path)
    assert strange([*paths, "s3a://bucket/10:15.jsonl"]) == paths[:2]
    links = linked(paths[:2], str(tmp_path / "links"))
    assert [Path(link).readlink() for link in links.values()] == [Path(path) for path in links]
    assert linked(paths[:2], str(tmp_path / "links")) == links

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    for folder in (str(tmp_path / "copies"), "memory://copies"):
        copies = linked(paths[:2], folder)
        assert [copy.rsplit("/", 1)[-1] for copy in copies.values()] == ["10-15.jsonl", "-.jsonl.gz"]
        for path, copy in copies.items():
            with opened(copy) as stream:
                assert stream.read().decode() == path
