"""A small pipeline for the tests of what a command says before it computes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

PIPELINE = (
    'name: p\njoin: left\nleft: {path: landing/left, format: rows, schema: "id INT, fk STRING", key: id, '
    'foreign_key: fk}\nright: {path: landing/right, format: rows, schema: "k STRING", key: k}\n'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline file of a left join, with one row landed on each side."""
    for side, line in (("left", '{"id": 1, "fk": "a"}'), ("right", '{"k": "a"}')):
        (tmp_path / "landing" / side).mkdir(parents=True)
        (tmp_path / "landing" / side / "0.jsonl").write_text(line + "\n")
    (tmp_path / "p.yaml").write_text(PIPELINE)
    return tmp_path / "p.yaml"
