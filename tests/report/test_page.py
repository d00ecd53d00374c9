"""The page in a real browser: it says what the document says, and neither loads, runs nor breaks anything.

Screenshots lie in FK_SCREENSHOTS, if it is set.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.report.document import Effort, document_of, facts_of
from fk_pipeline.report.page import DOCUMENT_ID, number, page_of
from tests.report.world import HOSTILE, joined, people

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

WIDTHS = (375, 768, 1440)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a join and a table, with hostile values."""
    folder = tmp_path_factory.mktemp("page")
    pipelines = [joined(folder / "a", 60, rows=1230), people(folder / "b", "[iban]", rows=40)]
    made = document_of([facts_of(one, Effort()) for one in pipelines], time.monotonic())
    page = folder / "report.html"
    page.write_text(page_of(made))
    return page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: it is in the extra dev"
    )
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


def keep(page: Any, name: str) -> None:
    """Keeps a screenshot."""
    folder = os.environ.get("FK_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"report-{name}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(chromium: Any, file: Path, scheme: str) -> None:
    page = chromium.new_page(color_scheme=scheme, viewport={"width": WIDTHS[-1], "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())

    document = json.loads(page.locator(f"#{DOCUMENT_ID}").text_content())
    for facts in document["pipelines"]:
        section = page.locator(f"#{facts['pipeline']}")
        assert section.locator(".sentence").inner_text() == facts["state"]["sentence"]
        totals = facts["totals"]
        values = [totals[name] for name in ("rows", "matched", "unmatched") if totals[name] is not None]
        shown = section.locator(".totals b").all_inner_texts()
        assert shown == [number(value) for value in [*values, totals["quarantined"], totals["batches"]]]
        arrows = [f"{number(arrow['rows'])} rows" for arrow in facts["graph"]["arrows"]]
        shown = section.locator(".in b").all_inner_texts()
        assert sorted(text.split(",  ")[0].split(", last")[0] for text in shown) == sorted(arrows)
        assert section.locator("details.row").count() == len(facts["rows"]["rows"])
        assert section.locator(".chart svg").count() > 0

    row = page.locator("#people details.row").last
    assert not row.locator(".story").is_visible()
    row.locator("summary").click()
    assert row.locator(".story").is_visible()
    assert HOSTILE in row.locator("summary").inner_text()
    colours = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    assert colours == (["rgb(18, 22, 28)", "rgb(228, 232, 238)"] if scheme == "dark" else
                       ["rgb(245, 247, 249)", "rgb(28, 33, 40)"])  # fmt: skip
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "it scrolls sideways"
        keep(page, f"{scheme}-{width}")
    assert said == []
    assert requests == [file.as_uri()]
    page.close()
