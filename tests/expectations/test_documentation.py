"""`docs/reference/expectations.md` says what the suites say, and what turns red when as the tests have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from expectations.suites import SUITES
from fk_pipeline.identity import Stage
from tests.expectations.test_mutations import CASES

PAGE = (Path(__file__).parents[2] / "docs/reference/expectations.md").read_text().splitlines()


@pytest.mark.parametrize("stage", Stage)
def test_the_page_lists_every_expectation(stage: Stage) -> None:
    start = PAGE.index(f"### {stage}")
    rows = [line for line in PAGE[start : PAGE.index("", start + 2)] if line.startswith("| `")]
    listed = [tuple(cell.strip() for cell in row.strip("|").split("|")[:4]) for row in rows]
    assert listed == [
        (f"`{one.name}`", one.severity, one.cure, "both" if len(one.depths) == 2 else one.depths[0])
        for one in SUITES[stage]
    ]


def test_the_page_says_what_turns_red_when() -> None:
    rows = PAGE[PAGE.index("## What turns red when") :]
    listed = {}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if row.startswith("| ") and len(cells) == 4:
            others = {other.strip(" `") for other in cells[3].split(",")} - {"-"}
            listed[cells[0]] = (cells[1].strip("`"), cells[2].strip("`"), others)
    listed.pop("what is wrong")
    assert listed == {name: (case.table, case.check, set(case.others)) for name, case in CASES.items()}
