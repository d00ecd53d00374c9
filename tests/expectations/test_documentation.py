"""`docs/reference/expectations.md` says what turns red when as the tests have it; the suites are generated."""

from __future__ import annotations

from pathlib import Path

from tests.expectations.test_mutations import CASES

PAGE = (Path(__file__).parents[2] / "docs/reference/expectations.md").read_text().splitlines()


def test_the_page_says_what_turns_red_when() -> None:
    start = PAGE.index("## What turns red when")
    rows = PAGE[start : PAGE.index("## Your own expectations")]
    listed = {}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if row.startswith("| ") and len(cells) == 4:
            others = {other.strip(" `") for other in cells[3].split(",")} - {"-"}
            listed[cells[0]] = (cells[1].strip("`"), cells[2].strip("`"), others)
    listed.pop("what is wrong")
    assert listed == {name: (case.table, case.check, set(case.others)) for name, case in CASES.items()}
