"""Pages of EXPLAIN and of dry runs in headless Chromium, of statements on a simulated runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog_migrate.report.report import Report
from tests.browser.conftest import Open, expect
from tests.report.stages import ALTER, report_of, wide_stage
from tests.streams.test_operations import Stage

ACCESSIBILITY = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
PHONE = {"viewport": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A connection with ten dependents."""
    return wide_stage(tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="module")
def alter(stage: Stage) -> Report:
    """The report of an ALTER CONNECTION with ten dependents."""
    return report_of(stage, ALTER)


def test_ten_dependents(open_page: Open, alter: Report) -> None:
    """The graph shows each as restarting, the table lists them, a panel says why and how long."""
    page = open_page(alter)
    expect(page.locator("h1")).to_have_text("EXPLAIN ALTER CONNECTION c")
    expect(page.locator(".verdict strong")).to_have_text("RESTARTS 10 QUERIES")
    expect(page.locator("#graph g.box.update")).to_have_count(11)
    expect(page.locator("#table tbody tr")).to_have_count(12)
    page.get_by_label("Action").select_option("restart")
    expect(page.locator("#table tbody tr")).to_have_count(10)
    page.locator("#table tbody tr", has_text="sink:default.k3").get_by_role("link").first.click()
    panel = page.locator("#panels details[open]", has_text="sink:default.k3").last
    expect(panel).to_contain_text("stopped from step 17 to step 41")
    expect(panel).to_contain_text("connection:default.c")
    waves = page.locator("ol.waves > li")
    expect(waves).to_have_count(7)
    expect(waves.nth(2)).to_contain_text("Stopped after this: 10 names")


def test_a_refusal_says_what_to_do(open_page: Open, stage: Stage) -> None:
    """Each finding with its remedy to copy, before anything else."""
    page = open_page(report_of(stage, "ALTER CONNECTION c SET (BROKER 'nowhere:9092')"))
    expect(page.locator(".verdict.blocked strong")).to_have_text("REFUSED BY VALIDATION")
    first = page.locator("main > section").first
    expect(first.locator("h2")).to_have_text("What is in the way")
    expect(first.locator("ol.decisions > li")).to_have_count(11)
    expect(first.locator("pre").first).to_have_text("another address")


def test_positions(open_page: Open, stage: Stage) -> None:
    """A dry run's positions are a table with heads for rows and columns."""
    page = open_page(report_of(
        stage, "ALTER SOURCE s0 UNSAFE INJECT OFFSETS ('t:0' = 1) REASON 'read again'"
    ))
    rows = page.locator("table.cells tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first.get_by_role("rowheader")).to_have_text("t:0")
    expect(page.locator("table.cells").get_by_role("columnheader", name="doubled")).to_be_visible()


@pytest.mark.parametrize(
    "statement",
    [ALTER, "ALTER SOURCE s0 UNSAFE INJECT OFFSETS ('t:0' = 1)", "DROP CONNECTION c CASCADE",
     "ALTER CONNECTION c SET (kafka.client.id '</script><script>window.hit=1</script>\u202e')"],
)
def test_on_a_phone(open_page: Open, stage: Stage, statement: str) -> None:
    """No fault, no request; 390 px are wide enough, and what is in an option is not executed."""
    page = open_page(report_of(stage, statement), **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("window.hit") is None


@pytest.mark.parametrize(
    "statement",
    [ALTER, "ALTER CONNECTION c SET (BROKER 'nowhere:9092')",
     "ALTER SOURCE s0 UNSAFE INJECT OFFSETS ('t:0' = 1)"],
)
def test_for_everybody(open_page: Open, stage: Stage, statement: str) -> None:
    """Every colour can be told from what is behind; what has a role has a name."""
    page = open_page(report_of(stage, statement))
    for media, scheme in (("print", "dark"), ("screen", "dark"), ("screen", "light")):
        page.emulate_media(media=media, color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate(ACCESSIBILITY)["faults"] == []
    session = page.context.new_cdp_session(page)
    unnamed = [
        node["role"]["value"]
        for node in session.send("Accessibility.getFullAXTree")["nodes"]
        if not node.get("ignored") and not str(node.get("name", {}).get("value", "")).strip()
    ]
    assert not {"table", "region", "columnheader", "rowheader", "link", "button"} & set(unnamed)
