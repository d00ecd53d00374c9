"""Every code block of the README, the documentation and the examples is run, or says why it is not."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.spec import load_spec
from tests.docs.blocks import ROOT, Block, blocks_of, pages
from tests.docs.fragments import load_fragment
from tests.docs.warm import Shell

STORIES = [page for page in pages() if any(b.runs for b in blocks_of(page))]
LIGHT = [page for page in STORIES if all(b.language in ("yaml", "json") or b.title for b in blocks_of(page) if b.runs)]
"""Pages whose blocks are only read."""
LONG = {"examples/every_join/README.md", "examples/flights/README.md", "examples/python/README.md"}
"""Pages that take minutes."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", LIGHT, ids=name_of)
def test_what_a_page_shows_can_be_read(page: Path, tmp_path: Path) -> None:
    for block in blocks_of(page):
        if block.runs:
            tell(page, tmp_path, None, block, {})
    for file in tmp_path.glob("*.yaml"):
        load_spec(file)


@pytest.mark.filterwarnings("ignore:.*map_(resolved_)?asset_specs")  # a preview of Dagster
@pytest.mark.usefixtures("python_on_executors")  # a reader makes frames of Python rows
@pytest.mark.spark
@pytest.mark.docs
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if name_of(page) in LONG else ())
        for page in STORIES
        if page not in LIGHT
    ],
    ids=name_of,
)
def test_a_page_can_be_done_as_it_says(
    page: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tools = tmp_path / "folder", tmp_path / "tools"
    folder.mkdir()
    if page.is_relative_to(ROOT / "examples"):  # they are read in a checkout
        shutil.copytree(ROOT / "examples", folder / "examples")
    tools.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    shell, names = Shell(folder, tools), {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.runs:
            tell(page, folder, shell, block, names)


def tell(page: Path, folder: Path, shell: Shell | None, block: Block, names: dict[str, Any]) -> None:
    """Does what a block says."""
    if block.title:
        file = folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text + "\n", encoding="utf-8")
    elif block.language == "json":
        read_json(block)
    elif block.language == "yaml":
        load_fragment(block.text, folder)
    elif block.language == "sh" and shell is not None:
        status, said = shell.run(block.text)
        assert status == block.exits, f"{block}: exit status {status}\n{said}"
    elif block.language == "python":
        run_python(block, names)


def read_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError:
        for line in filter(None, block.text.split("\n")):
            json.loads(line)


def run_python(block: Block, names: dict[str, Any]) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)
        except Exception:  # noqa: BLE001 - whatever it is, the page is wrong
            pytest.fail(f"{block}\n{traceback.format_exc()}\n{said.getvalue()}", pytrace=False)
    for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(str(Path.cwd()))]:
        del sys.modules[name]


def test_what_is_not_run_says_why() -> None:
    reasons = {str(b): b.not_run for page in pages() for b in blocks_of(page) if b.not_run is not None}
    assert all(len(reason.split()) > 1 for reason in reasons.values()), reasons


def test_blocks_are_found_with_what_is_said_about_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- run\necho 1\n-->\n\n<!-- not run: needs a bucket -->\n```sh\na\n```\n\n<!-- exits 2 -->\n```sh\nb\n```\n"
        '1. item\n\n    ```yaml title="x/y.yaml"\n    k: 1\n      m: 2\n    ```\n\n````text\n```sh\nno\n```\n````\n'
    )
    found = [(b.line, b.language, b.text, b.title, b.not_run, b.exits) for b in blocks_of(page)]
    assert found == [
        (1, "sh", "echo 1", "", None, 0),
        (6, "sh", "a", "", "needs a bucket", 0),
        (11, "sh", "b", "", None, 2),
        (16, "yaml", "k: 1\n  m: 2", "x/y.yaml", None, 0),
        (21, "text", "```sh\nno\n```", "", None, 0),
    ]
