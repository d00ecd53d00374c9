"""The pages as an operator uses them, in a real browser: graph, runs, backfill, sensor, checks green and red.

Screenshots of every step lie in FK_SCREENSHOTS (default: a temporary folder that pytest names).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dagster.servers import Served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.servers,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]

ENDED = ("SUCCESS", "FAILURE", "CANCELED")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    made.land(0, 1, 2)
    made.up()
    yield made
    made.down()


class Browser:
    """A page, and a screenshot of it where one is wanted."""

    def __init__(self, page: object, served: Served, folder: Path) -> None:
        from playwright.sync_api import Page

        assert isinstance(page, Page)
        self.page, self.served, self.folder = page, served, folder
        self.number = 0

    def open(self, path: str) -> None:
        self.page.goto(f"{self.served.dagster.url}{path}")
        self.page.wait_for_load_state("networkidle")

    def sees(self, text: str) -> None:
        """Waits until a text is on the page."""
        self.page.get_by_text(text, exact=False).first.wait_for(timeout=30_000)

    def keep(self, name: str) -> None:
        self.number += 1
        self.page.wait_for_timeout(700)  # what moves has come to rest
        self.page.screenshot(path=self.folder / f"{self.number}-{name}.png")


@pytest.fixture
def browser(served: Served, tmp_path: Path) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    folder = Path(os.environ.get("FK_SCREENSHOTS") or tmp_path / "screenshots").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = chromium.new_page(viewport={"width": 1440, "height": 900})
        yield Browser(page, served, folder)
        chromium.close()
