"""Links of the pages lead somewhere, and the pages are read alike by the site and by the pages of a code host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *DOCS, *sorted((ROOT / "examples").rglob("*.md"))]

FENCE = re.compile(r" *(```+|~~~+)")
LINK = re.compile(r"\]\((<[^>]*>|[^)\s]+)(?: +\"[^\"]*\")?\)")
ITEM = re.compile(r"( *)([*+-]|\d+[.)]) ")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a page that are not code and not comments."""
    text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), page.read_text(), flags=re.DOTALL)
    fence = None
    for number, line in enumerate(text.split("\n"), 1):
        mark = FENCE.match(line)
        if fence is None and not mark:
            yield number, line
        elif fence is None and mark:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = None


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts and `pymdownx.slugs.slugify(case="lower")` make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """What can follow the # of a link to a page. Of two headings with one text the first counts: the hosts differ."""
    found = set()
    for _, line in prose(page):
        if heading := re.match(r"#{1,6} +(.*?)(?: +#+)?$", line):
            found.add(slug(heading[1]))
        found.update(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", line))
    return frozenset(found)


def broken(page: Path, link: str) -> str | None:
    """Why a link on a page leads nowhere."""
    path, _, anchor = unquote(link.strip("<>")).partition("#")
    target = (page.parent / path).resolve() if path else page
    if path.startswith("/"):
        return "it starts at the root of a host"
    if not target.is_relative_to(ROOT):
        return "it leads out of the repository"
    if not target.exists():
        return "there is no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{name(target)} has no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = [
        f"{name(page)}:{number}: {link}: {why}"
        for number, line in prose(page)
        for link in LINK.findall(re.sub(r"`[^`]*`(?!\])", "", line))
        if not ELSEWHERE.match(link) and (why := broken(page, link))
    ]
    assert wrong == []


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_lists_tables_and_code_are_written_so_that_the_site_sees_them_too(page: Path) -> None:
    """Python-Markdown asks for more than others: a blank line before a list or a table, and four blanks a level."""
    wrong, before = [], ""
    for number, line in prose(page):
        item = ITEM.match(line)
        if item and len(item[1]) % 4:
            wrong.append(f"{name(page)}:{number}: an item of an inner list stands four blanks further in")
        if item and before.strip() and not ITEM.match(before) and not before.startswith(" "):
            wrong.append(f"{name(page)}:{number}: a list needs a blank line before it")
        if line.startswith("|") and before.strip() and not before.startswith("|"):
            wrong.append(f"{name(page)}:{number}: a table needs a blank line before it")
        before = line
    for number, line in enumerate(page.read_text().split("\n"), 1):
        if FENCE.match(line) and (len(line) - len(line.lstrip())) % 4:
            wrong.append(f"{name(page)}:{number}: code in a list stands four blanks further in")
    assert wrong == []


def test_an_anchor_is_that_of_its_heading() -> None:
    assert slug("Why it converges") == "why-it-converges"
    assert slug("`left.foreign_key`, and [select](x.md)") == "leftforeign_key-and-select"
    assert slug("up, down, recover") == "up-down-recover"
    assert slug("A - B: c's & d") == "a---b-cs--d"


def test_a_link_that_leads_nowhere_is_found() -> None:
    page = ROOT / "docs" / "reference" / "command.md"
    assert broken(page, "errors.md#stageerror") is None
    assert broken(page, "#counts") is None
    assert broken(page, "../../README.md") is None
    assert broken(page, "errors.md#no-such-error") == "docs/reference/errors.md has no such heading"
    assert broken(page, "error.md") == "there is no such file"
    assert broken(page, "../../../x.md") == "it leads out of the repository"
    assert broken(page, "/docs/x.md") == "it starts at the root of a host"
