"""The pages as an operator uses them, in a real browser, and as the tutorial says that they are.

Graph, runs, backfill, sensor, plots, checks green and red.

Screenshots of every step lie in FK_SCREENSHOTS (default: a temporary folder that pytest names).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fk_pipeline.identity import BatchId
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY
from tests.dagster.graphql import wait
from tests.dagster.servers import ASSETS, CHECKS, LANDED, PIPELINE, RESULT, SENSOR, Served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.servers,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]

ENDED = ("SUCCESS", "FAILURE", "CANCELED")

REQUESTED_WITHIN = 15
"""Seconds until the sensor requests a run for what has landed, as the tutorial says."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    made.land(0, 1, 2)
    made.up()
    yield made
    made.down()


WITHOUT = """folder => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "");
}"""
"""Takes a folder out of all texts of a page."""


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
        self.page.get_by_text(text, exact=False).first.wait_for()

    def add_partition(self, partition: str) -> None:
        """Adds a partition in the dialog of the whole graph, and closes it: whether it chooses what it added varies."""
        self.page.get_by_role("button", name="Materialize all").click()
        self.page.get_by_text("Add a partition").first.click()
        self.page.get_by_placeholder("name").fill(partition)
        self.page.get_by_role("button", name="Save").click()
        wait(lambda: self.served.dagster.partitions(RESULT) == [partition])
        self.page.reload()

    def materialise_all(self, screenshot: str) -> None:
        """Launches all partitions in the dialog of the whole graph."""
        self.page.get_by_role("button", name="Materialize all").click()
        self.page.get_by_role("button", name="All", exact=True).click()
        self.keep(screenshot)
        self.page.get_by_role("button", name=re.compile("^Launch (backfill|1 run)$")).click()

    def keep(self, name: str) -> None:
        self.number += 1
        self.page.wait_for_timeout(700)  # what moves has come to rest
        self.page.evaluate(WITHOUT, f"{self.served.demo}/")  # the documentation has some of these pictures
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
        page.set_default_timeout(120_000)
        yield Browser(page, served, folder)
        page.screenshot(path=folder / "last.png")
        chromium.close()


def finished(served: Served, number: int) -> None:
    """Waits until so many runs have ended, all of them well."""
    wait(lambda: sum(run["status"] in ENDED for run in served.dagster.runs()) >= number, 200)
    assert {run["status"] for run in served.dagster.runs()} == {"SUCCESS"}


def test_an_afternoon_of_an_operator(served: Served, browser: Browser) -> None:
    page = browser.page
    group = f"/locations/fk_pipeline.definitions/asset-groups/{PIPELINE}/lineage"

    assert sorted(served.dagster.assets(PIPELINE)) == sorted([*ASSETS, *LANDED])
    browser.open(group)
    for asset in ASSETS:
        browser.sees(asset[-1])
    browser.add_partition(BatchId(0).key)
    browser.materialise_all("first")
    finished(served, 1)
    steps = served.dagster.steps(served.dagster.runs()[0]["runId"])
    for asset, stage in zip(ASSETS, FOREIGN_KEY.stages, strict=True):
        for before in stage.upstream:
            checked = steps[f"{PIPELINE}__{before}__expectations"][1]
            assert checked <= steps["__".join(asset)][0], f"{stage.name} began before {before} was checked"

    # The run has added the partitions of the other batches that have landed.
    assert served.dagster.partitions(RESULT) == [BatchId(batch).key for batch in range(3)]
    browser.open(group)
    browser.materialise_all("backfill")
    wait(lambda: len(served.dagster.runs()) == 2)
    finished(served, 2)
    assert served.nothing_due()

    browser.open(f"/locations/fk_pipeline.definitions/sensors/{SENSOR}")
    page.locator("input[type=checkbox]").first.dispatch_event("click")
    for batches in [(4,), (3,), (6, 5)]:  # a batch that comes late, and one that may do so
        number = len(served.dagster.runs())
        for batch in batches:
            served.land(batch)
        wait(lambda known=number: len(served.dagster.runs()) > known, REQUESTED_WITHIN)
        wait(served.nothing_due, 200)
        wait(lambda: all(run["status"] in ENDED for run in served.dagster.runs()))
    runs = len(served.dagster.runs())
    finished(served, runs)
    wait(lambda: all(served.dagster.green(asset) for asset in ASSETS))
    for asset in (*ASSETS, *LANDED):
        assert served.dagster.partitions(asset) == [BatchId(batch).key for batch in range(7)], asset
    assert {tick["status"] for tick in served.dagster.ticks(SENSOR)} <= {"SUCCESS", "SKIPPED", "STARTED"}
    browser.open(f"/locations/fk_pipeline.definitions/sensors/{SENSOR}")
    browser.sees("Latest tick")
    browser.keep("sensor")
    page.locator("input[type=checkbox]").first.dispatch_event("click")

    green = served.dagster.checks(RESULT)
    assert {name for name, status in green.items() if status != "SUCCEEDED"} == {"rows_are_those_of_the_join"}
    browser.open(group)
    browser.sees("subscription_store")
    browser.keep("graph")
    browser.open(f"/assets/{PIPELINE}?view=overview")
    browser.sees("both of its hashes are still current")
    browser.keep("asset")
    page.get_by_role("button", name="Plots").first.click()
    page.locator("canvas").first.wait_for()
    assert page.locator("canvas").count() == 1, "one number is a plot"
    browser.open(f"/assets/{PIPELINE}?view=events")
    for text in ("joined", "figures", "half-joined", "Delta version of resolved_join", "strategy"):
        browser.sees(text)
    browser.keep("batches")

    # A row of the result is damaged; the nightly checks find it.
    result_path = f"delta.`{served.pipeline().spec.home}/resolved_join`"
    ((key,),) = served.sql(f"SELECT MIN(_fk_pk_id) FROM {result_path} WHERE _fk_right_hash IS NOT NULL")
    served.sql(f"UPDATE {result_path} SET _fk_right_hash = X'00' WHERE _fk_pk_id = {key}")
    served.dagster.launch(CHECKS)
    wait(lambda: len(served.dagster.runs()) == runs + 1)
    wait(lambda: served.dagster.runs()[0]["status"] in ENDED, 200)
    assert served.dagster.checks(RESULT)["no_stale_row"] == "FAILED"
    browser.open(f"/assets/{PIPELINE}?view=checks&checkDetail=no_stale_row")
    browser.sees("1 row(s) violate it")
    browser.sees("resolved_join makes it anew")  # the fix
    browser.sees('{"id":')  # the sample
    browser.keep("red-check")
    assert len(list(browser.folder.glob("[1-7]-*.png"))) == 7
