"""Paths of the pipeline file, as places: one way to name each, and where a glob begins."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from fk_pipeline.spec import paths
from fk_pipeline.spec.paths import place_of


def test_the_examples_hold() -> None:
    assert doctest.testmod(paths).failed == 0


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("/a/b", "/a/b"), ("/a//b/", "/a/b"), ("/a/./b/.", "/a/b"), ("/a/..b/c..", "/a/..b/c.."), ("/", "/"),
        ("/a/b/../c", "/a/c"), ("/a/../../b", "/b"), ("/a/b/..", "/a"), ("x/../y", "HERE/y"), ("x", "HERE/x"),
        ("HERE/link/../x", "HERE/there/x"), ("HERE/link/x", "HERE/link/x"),
        ("HERE/link/../link/x", "HERE/there/link/x"),
    ],
)  # fmt: skip
def test_a_path_with_two_dots_is_the_place_that_it_leads_to(
    given: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there" / "deeper").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "deeper")
    monkeypatch.chdir(tmp_path)
    assert place_of(given.replace("HERE", str(tmp_path))) == place.replace("HERE", str(tmp_path))
