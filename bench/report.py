"""The page of a report with ten thousand objects in headless Chromium, beside one with three."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Cost, Measure, paired
from catalog_migrate.report import lay_out
from tests.browser import reports

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROUNDS = 7
_SECONDS = 3.0
_BYTES = 5_000_000
_PAINT = """() => new Promise((done) => {
  const look = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (paint) done(paint.startTime); else requestAnimationFrame(look);
  };
  look();
})"""


def measures(directory: Path) -> Iterator[Measure]:
    """How long until something is seen, and how long until all of the page is ready for a click."""
    from playwright.sync_api import sync_playwright

    pages = {"large": reports.large(), "small": reports.small()}
    made = {}
    files = {}
    for name, report in pages.items():
        since = time.perf_counter()
        text = lay_out(report, "html")
        made[name] = time.perf_counter() - since
        files[name] = directory / f"{name}.html"
        files[name].write_text(text, encoding="utf-8")
    size = files["large"].stat().st_size
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        painted = paired(
            lambda: _paint(browser, files["large"]), lambda: _paint(browser, files["small"]),
            rounds=ROUNDS,
        )
        ready = paired(
            lambda: _load(browser, files["large"]), lambda: _load(browser, files["small"]),
            rounds=ROUNDS,
        )
        browser.close()
    told = f"{size / 1e6:.1f} MB, laid out in {made['large']:.2f} s"
    yield Measure(
        "page of 10,000 objects, 6,000 of them changed: first paint in headless Chromium",
        painted[0], "page of 3 objects", painted[1], f"≤ {_SECONDS:g} s and ≤ 5 MB",
        painted[0].wall <= _SECONDS and size <= _BYTES, told,
    )
    yield Measure(
        "page of 10,000 objects: ready to be clicked", ready[0], "page of 3 objects", ready[1],
        f"≤ {_SECONDS:g} s", ready[0].wall <= _SECONDS,
    )


def _paint(browser: Browser, file: Path) -> Cost:
    page = browser.new_page()
    page.goto(file.as_uri())
    milliseconds = page.evaluate(_PAINT)
    page.close()
    return Cost(milliseconds / 1_000)


def _load(browser: Browser, file: Path) -> Cost:
    """Until the table has its first rows and the graph its controls: the script has ended then."""
    page = browser.new_page()
    since = time.perf_counter()
    page.goto(file.as_uri())
    page.locator("#table tbody tr").first.wait_for()
    seconds = time.perf_counter() - since
    page.close()
    return Cost(seconds)
