"""Whoever looks for a slow test finds a command for it in CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

SLOW = [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if re.search(r"mark\.slow\b", file.read_text())]
TABLE = (ROOT / "CONTRIBUTING.md").read_text().partition("### Slow tests")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^\| `\.venv/bin/pytest (?:-m slow )?(.*?)` \|", TABLE, re.MULTILINE)


@pytest.mark.parametrize("file", SLOW, ids=lambda file: file.name)
def test_a_slow_test_is_a_command_of_contributing(file: Path) -> None:
    if "mark.servers" in file.read_text():  # make test-ui
        return
    named = {path for command in COMMANDS for place in command.split() for path in ROOT.glob(place)}
    assert named & {file, *file.parents}
