"""The screenshots of README and documentation: ``make screenshots`` writes them to docs/images."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.report.report import Report
from tests.browser import reports
from tests.browser.conftest import Open
from tests.report.stages import explain_alter

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def scroll_to(selector: str) -> Callable[[Page], None]:
    """Scroll so that an element is at the top, below the contents."""
    return lambda page: page.locator(selector).evaluate(
        "each => each.scrollIntoView({behavior: 'instant'})"
    )


def stay(page: Page) -> None:
    """Show the page as it opens."""


SHOTS: dict[str, tuple[Callable[[], Report], Callable[[Page], None], dict[str, object]]] = {
    "report": (reports.readme, stay, {"viewport": {"width": 1120, "height": 1000}}),
    "report-graph": (
        reports.postgres, scroll_to("#graph-part"), {"viewport": {"width": 1000, "height": 480}}
    ),
    "report-changes": (
        reports.small, scroll_to("#changes"), {"viewport": {"width": 1120, "height": 820}}
    ),
    "report-dark": (
        reports.postgres, scroll_to("#objects"),
        {"viewport": {"width": 1120, "height": 700}, "color_scheme": "dark"},
    ),
    "report-explain": (explain_alter, stay, {"viewport": {"width": 1120, "height": 830}}),
    "report-phone": (reports.readme, stay, {"viewport": {"width": 390, "height": 760}}),
}


def test_the_images_are_those_that_are_written_here() -> None:
    """No image of a page that nothing draws any more stays behind."""
    assert {each.stem for each in IMAGES.glob("report*.png")} == set(SHOTS)


@pytest.mark.parametrize("name", SHOTS)
def test_a_screenshot_is_small_and_of_its_size(open_page: Open, name: str) -> None:
    """At most 150 kB. UPDATE_SNAPSHOTS=1 writes it; look at it before committing."""
    make, prepare, settings = SHOTS[name]
    page = open_page(make(), reduced_motion="reduce", **settings)
    prepare(page)
    taken = page.screenshot()
    assert len(taken) <= 150_000
    file = IMAGES / f"{name}.png"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(taken)
    size = struct.unpack(">II", file.read_bytes()[16:24])
    assert settings["viewport"] == dict(zip(("width", "height"), size, strict=True))
