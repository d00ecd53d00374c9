"""`docs/reference/expectations.md` says what turns red when as the tests have it; the suites are generated."""

from __future__ import annotations

from pathlib import Path

from tests.expectations.test_mutations import CASES

PAGE = (Path(__file__).parents[2] / "docs/reference/expectations.md").read_text().splitlines()


def test_the_page_says_what_turns_red_when() -> None:
    start = PAGE.index("## What turns red when")
    rows = PAGE[start : PAGE.index("## Your own expectations")]
    listed: dict[str, set[str]] = {}
    for row in rows:
        cells = [{name.strip(" `") for name in cell.split(",")} for cell in row.strip("|").split("|")]
        if row.startswith("| `") and len(cells) == 2:
            listed |= dict.fromkeys(cells[0], cells[1])
    found: dict[str, set[str]] = {}
    for case in CASES.values():
        found.setdefault(case.check, set()).update(case.others)
    assert listed == {check: others for check, others in found.items() if others}
