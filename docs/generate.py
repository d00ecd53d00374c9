"""Writes the parts of the reference that the code says itself: `python docs/generate.py`, or `make docs-reference`.

Such a part stands in its page between two comments, and nobody edits it by hand:

    <!--generated:keys.settings-->

    ...

    <!--end-->

`--check` writes nothing and tells what differs; `tests/docs/test_generated.py` does the same.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]  # the code of this checkout, whatever is installed

SOURCES = ("pipeline_file", "command", "tables", "dagster_metadata", "expectations_suites", "errors", "layers")
"""The modules of `blocks/`; each gives texts by the names of their blocks."""

BLOCK = re.compile(r"(?<=<!--generated:)(?P<name>[^\n]+?)-->\n.*?(?=<!--end-->)", re.DOTALL)


def made() -> dict[str, str]:
    """Every block as the code says it, by name."""
    found: dict[str, str] = {}
    for source in SOURCES:
        found |= import_module(f"blocks.{source}").blocks()
    return found


def renewed(page: str, blocks: dict[str, str]) -> str:
    """A page with its blocks as the code says them.

    Raises:
        LookupError: the page names a block that nothing makes.
    """

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in blocks:
            raise LookupError(f"nothing makes the block {name!r}; there are {', '.join(blocks)}")
        return f"{name}-->\n\n{blocks[name]}\n\n"

    return BLOCK.sub(block, page)


def main(arguments: list[str] | None = None) -> int:
    """Writes or checks all pages; 1 if one differs, or if a block is in no page or in two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; say what differs")
    check = parser.parse_args(arguments).check
    blocks, places = made(), []
    wrong = False
    for file in sorted(DOCS.rglob("*.md")):
        old = file.read_text(encoding="utf-8")
        new = renewed(old, blocks)
        places += [match["name"] for match in BLOCK.finditer(new)]
        if new != old and check:
            wrong = True
            name = str(file.relative_to(DOCS))
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "the code"))
        elif new != old:
            file.write_text(new, encoding="utf-8")
            print(f"written: {file}")
    for name in blocks:
        if places.count(name) != 1:
            wrong = True
            print(f"the block {name!r} is in {places.count(name)} pages, not in one")
    if wrong and check:
        print("make docs-reference writes the pages anew")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
