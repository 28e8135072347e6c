"""A headless Chromium for the pages that we make; it takes about a second to start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.report import lay_out
from catalog_migrate.report.report import Report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, LocatorAssertions, Page

Open = Callable[..., "Page"]

_PATIENCE = 30_000
"""Milliseconds that a test waits for what it names before it fails: machines may be busy."""

_REMEDY = (
    "install it (Debian and Ubuntu: apt-get install chromium; elsewhere:"
    " .venv/bin/python -m playwright install chromium)"
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The one browser of a run; skips where there is none, fails there with REQUIRE_BROWSER=1."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ModuleNotFoundError as error:
        _refuse(f"{error}; make install installs it")
    with sync_playwright() as playwright:
        executable = shutil.which("chromium") or shutil.which("google-chrome")
        try:
            # a container has no user namespaces for the sandbox; what is opened is our own
            started = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        except Error as error:
            _refuse(f"Chromium does not start: {error.message.splitlines()[0]}; {_REMEDY}")
        yield started
        started.close()


def expect(locator: Locator) -> LocatorAssertions:
    """Playwright's assertions, which wait; imported when a test runs, so that others may skip."""
    from playwright.sync_api import expect

    expect.set_options(timeout=_PATIENCE)
    return expect(locator)


def _refuse(reason: str) -> None:
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(f"REQUIRE_BROWSER=1, and {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open a report (or the text of a page) as a file, offline; ``settings`` are the context's.

    A test fails when the page asks for anything over the network, or has an error or a message of
    the content policy in its console.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_(report: Report | str, **settings: object) -> Page:
        file = tmp_path / f"page{len(contexts)}.html"
        text = report if isinstance(report, str) else lay_out(report, "html")
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(offline=True, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text))
        page.on("request", lambda request: None if request.url == file.as_uri()
                else faults.append(request.url))
        page.set_default_timeout(_PATIENCE)
        page.goto(file.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert faults == []
