"""The fenced blocks of a page, and what is said about them beside the reader's view.

A page is a story that starts in an empty folder; its blocks run in order:

* `sh` is run by bash, `python` by this process, one namespace per page;
* a block with a title (`yaml title="orders.yaml"`) is the content of that file;
* `yaml` without a title is part of a pipeline file, `json` is one value, or one per line;
* any other language, or none, is something to look at: output, SQL, a diagram, somebody else's configuration.

In comments of the page: `<!-- run`, lines, `-->` is run and not shown; `<!-- file: NAME`, lines, `-->` is a file that
is not shown; `<!-- not run: reason -->` before a block skips
it; `<!-- exits 1 -->` before a block says with which status it ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_NOT_RUN = re.compile(r"^\s*<!-- not run: (.*?) -->\s*$")
_EXITS = re.compile(r"^\s*<!-- exits (\d+) -->\s*$")
_HIDDEN = re.compile(r"^\s*<!-- (?:run|file: (\S+))\s*$")


@dataclass(frozen=True)
class Block:
    """A block: where it begins, its language, its text; the file that it is, why it is not run, how it ends."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""
    not_run: str | None = None
    exits: int = 0

    @property
    def runs(self) -> bool:
        """Whether the test has anything to do with it."""
        return self.not_run is None and bool(self.title or self.language in ("sh", "python", "yaml", "json"))

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").split("\n")
    found: list[Block] = []
    before = ""
    i = 0
    while i < len(lines):
        start, fence = i, _FENCE.match(lines[i])
        if hidden := _HIDDEN.match(lines[i]):
            i = _index(lines, i + 1, "-->")
            found.append(Block(page, start + 1, "sh", "\n".join(lines[start + 1 : i]), hidden[1] or ""))
        elif fence:
            i = _index(lines, i + 1, fence["ticks"])
            indent = len(fence["indent"])
            text = "\n".join(line[indent:] for line in lines[start + 1 : i])
            title = _TITLE.search(fence["info"])
            reason, exits = _NOT_RUN.match(before), _EXITS.match(before)
            found.append(
                Block(
                    page,
                    start + 1,
                    (fence["info"].split() or [""])[0],
                    text,
                    title[1] if title else "",
                    reason[1] if reason else None,
                    int(exits[1]) if exits else 0,
                )
            )
        if lines[i].strip():
            before = lines[i]
        i += 1
    return found


def _index(lines: list[str], start: int, end: str) -> int:
    return next(i for i in range(start, len(lines)) if lines[i].strip() == end)


def pages() -> list[Path]:
    """The README, the documentation, and what stands beside the examples."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
