"""A small pipeline for the tests of what a command says before it computes anything, and the command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fk_pipeline.cli.main import app_main

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


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Returns a function that calls the command as its process does, in this one."""

    def call(*args: Any) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fk-pipeline", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app_main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return call
