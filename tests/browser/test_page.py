"""The page of a report in headless Chromium: click, filter, sort, tab, copy and print."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from msgspec.structs import replace

from catalog_migrate.report.report import Report, Wave
from catalog_migrate.report.verdict import Kind, Verdict
from tests.browser import reports
from tests.browser.conftest import Open, expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

ACCESSIBILITY = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
PHONE = {"viewport": {"width": 390, "height": 844}}
ROWS = "#table tbody tr"


MADE = {
    "small": reports.small, "hostile": reports.hostile, "wide": reports.wide,
    "nothing": reports.nothing, "postgres": reports.postgres, "readme": reports.readme,
    "hostile_release": reports.hostile_release, "large": reports.large, "colours": reports.colours,
}
every_report = pytest.mark.parametrize("name", MADE)


def names(page: Page) -> list[str]:
    """The names in the rows of the table that are shown."""
    return page.locator(f"{ROWS} th").all_text_contents()


@every_report
def test_a_page_opens_without_a_fault_and_fits_a_phone(open_page: Open, name: str) -> None:
    """No error, no request, nothing refused by the policy; 390 px are wide enough for all of it."""
    page = open_page(MADE[name](), **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("window.hit") is None
    shown = page.locator("header .verdict")
    assert shown.text_content() is not None
    assert shown.bounding_box()["y"] < 300  # type: ignore[index]


def test_without_script_all_that_matters_is_there(open_page: Open) -> None:
    """Verdict, losses, texts to write and the graph are; what is missing is said."""
    page = open_page(reports.small(), java_script_enabled=False)
    text = page.inner_text("body")
    for part in (
        "NEEDS 2 DECISIONS", "the values of column customer_id go", "DROPPED (customer_id)",
        "ALTER VIEW team.cities AS", "seven days after the commit", "drop view shop.big_orders",
        "The table of 3 objects, 2 of them changed, and what changes in each, needs script.",
    ):
        assert part in text
    assert page.locator("#graph svg").is_visible()
    assert page.locator("button:visible").count() == 0


def test_the_filter_leaves_rows_and_panels_of_what_it_finds(open_page: Open) -> None:
    """By name, kind, action and risk, together; the number found is said; Clear takes it back."""
    page = open_page(reports.postgres())
    said = page.locator("#found")
    assert said.text_content() == "209 objects"
    page.fill("#filter-name", "PG_SUB")
    assert names(page) == ["pg_catalog.pg_subscription", "pg_catalog.pg_subscription_rel"]
    assert said.text_content() == "2 of 209 objects"
    assert page.locator("#panels .panel .name").first.text_content() == "pg_catalog.pg_subscription"
    page.fill("#filter-name", "")
    page.select_option("#filter-action", "create")
    assert names(page) == ["pg_catalog.pg_stat_io"]
    page.select_option("#filter-action", "changed")
    assert said.text_content() == "66 of 209 objects"
    page.select_option("#filter-kind", "table")
    page.select_option("#filter-risk", "loses")
    assert names(page) == [
        "pg_catalog.pg_attribute", "pg_catalog.pg_constraint", "pg_catalog.pg_subscription"
    ]
    page.fill("#filter-name", "no such name")
    assert names(page) == []
    assert page.locator("#none").is_visible()
    page.get_by_role("button", name="Clear").click()
    assert said.text_content() == "209 objects"


def test_the_heads_sort_and_say_so(open_page: Open) -> None:
    """Once up, once down, then as the plan has it; figures begin with the largest."""
    page = open_page(reports.small())
    planned = ["shop.orders", "shop.big_orders", "shop.customers"]
    head = page.locator("#table th", has_text="Object")
    assert (names(page), head.get_attribute("aria-sort")) == (planned, "none")
    head.get_by_role("button").click()
    assert names(page) == ["shop.big_orders", "shop.customers", "shop.orders"]
    assert head.get_attribute("aria-sort") == "ascending"
    head.get_by_role("button").click()
    assert names(page) == ["shop.orders", "shop.customers", "shop.big_orders"]
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    assert (names(page), head.get_attribute("aria-sort")) == (planned, "none")
    assert page.locator(f"{ROWS} td:last-child").all_text_contents() == [
        "3 columns, 1 check, partitioning, comment; rows are copied into a new table", "query", "",
    ]
    absent = page.locator("#table th", has_text="Absent")
    absent.get_by_role("button").click()
    assert names(page) == ["shop.big_orders", "shop.orders", "shop.customers"]
    rows = page.locator("#table th", has_text="Rows")
    rows.get_by_role("button").click()
    assert names(page) == ["shop.orders", "shop.customers", "shop.big_orders"]
    assert rows.get_attribute("aria-sort") == "descending"


def test_a_row_leads_to_the_panel_of_its_object(open_page: Open) -> None:
    """It is opened and has the focus; what it says is what the report says."""
    page = open_page(reports.small())
    page.locator("#table").get_by_role("link", name="shop.customers").click()
    panel = page.locator("#object-2")
    assert panel.evaluate("panel => panel.open && panel.contains(document.activeElement)")
    assert "nothing of it changes" in panel.inner_text()
    orders = page.locator("#object-0")
    rows = orders.locator(".pairs").first.locator("tbody tr").all()
    assert [row.locator("th, td").all_text_contents() for row in rows] == [
        ["+", "buyer_id", "—absent", "BIGINT NOT NULL"],
        ["−", "customer_id", "BIGINT", "—absent"],
        ["~", "total", "DECIMAL(10,2)", "DECIMAL(12,2)"],
    ]
    text = orders.inner_text()
    for part in (
        "the values of column customer_id go", "rows are copied into a new table",
        "1,250,000 rows, 392.9 MiB, 38 files", "about 74 s", "from step 4 to step 5",
        "DROPPED (customer_id)", "its own definition changes",
    ):
        assert part in text
    view = page.locator("#object-1")
    assert view.locator("ins").all_text_contents() == ["+  buyer_id,\n"]
    assert view.locator("del").all_text_contents() == ["-  customer_id,\n"]
    assert "shop.orders → shop.big_orders" in view.inner_text()


def test_a_link_in_a_panel_leads_to_another_object(open_page: Open) -> None:
    """And the address of a panel, kept as a bookmark, opens it."""
    page = open_page(reports.postgres())
    page.locator("#object-0").get_by_role("link", name="information_schema.columns").first.click()
    opened = page.evaluate("document.activeElement.parentElement.id")
    assert page.locator(f"#{opened} .name").first.text_content() == "information_schema.columns"
    assert page.evaluate("location.hash") == f"#{opened}"
    page.reload()
    assert page.evaluate("document.activeElement.parentElement.id") == opened


def test_a_panel_leads_to_the_graph(open_page: Open) -> None:
    """Which then shows the object and what is next to it."""
    page = open_page(reports.postgres())
    page.locator("#object-2").get_by_role("button", name="Show in the graph").click()
    expect(page.locator("#graph .focus")).to_have_count(1)
    expect(page.locator("#graph .focus")).to_be_in_viewport()
    assert "pg_collation" in str(page.locator("#graph .focus").text_content())


def test_a_box_leads_to_the_panel_of_its_object(open_page: Open) -> None:
    """A click on it opens the panel, which has the focus."""
    page = open_page(reports.small())
    page.locator("#graph .box", has_text="big_orders").click()
    panel = page.locator("#object-1")
    assert panel.evaluate("panel => panel.open && panel.contains(document.activeElement)")


def test_two_objects_of_one_name_are_two(open_page: Open) -> None:
    """A view that goes and a table that comes under its name: boxes and links lead to each."""
    page = open_page(reports.twice())
    box = page.locator("#graph .box")
    for kind, number in (("table", 1), ("view", 0)):
        box.and_(page.locator(f"[aria-label*='s.v ({kind})']")).click()
        assert page.evaluate("document.activeElement.parentElement.id") == f"object-{number}"
        assert page.locator(f"#object-{number} .kind").first.text_content() == kind
    wiring = page.locator("#object-2 .wiring")
    page.locator("#object-2").evaluate("panel => { panel.open = true; }")
    assert wiring.locator("a").evaluate_all("found => found.map(each => each.hash)") == [
        "#object-0", "#object-1",
    ]
    why = page.locator("#object-2 .facts").first.locator("a")
    assert why.first.get_attribute("href") == "#object-1"
    for number in (0, 1):
        page.locator(f"#object-{number}").get_by_role("button", name="Show in the graph").click()
        expect(page.locator("#graph .focus")).to_have_count(1)
        assert page.locator("#graph .focus").get_attribute("data-node") == str(1 - number)


def test_a_picture_has_its_objects_but_no_actions(open_page: Open) -> None:
    """The page of a graph has no verdict; a row opens what its object uses and who uses it."""
    report = reports.small()
    objects = tuple(replace(each, action="unchanged", risk="") for each in report.objects)
    page = open_page(Report(
        "What uses what", Verdict("nothing", "", ""), "3 objects", objects=objects,
        picture=report.picture,
    ))
    assert page.locator(".verdict").count() == 0
    heads = [text.strip() for text in page.locator("#table thead th").all_text_contents()]
    assert heads[:2] == ["Object", "Kind"]
    assert "Action" not in heads
    assert page.locator("#panels .panel").count() == 0
    page.locator("#table").get_by_role("link", name="shop.big_orders").click()
    assert "shop.orders" in page.locator("#object-1 .wiring").inner_text()


def test_a_text_is_copied_by_keyboard_and_that_is_said(open_page: Open) -> None:
    """The clipboard has exactly what is to be written; the button and a live region say so."""
    page = open_page(reports.small(), permissions=["clipboard-read", "clipboard-write"])
    button = page.locator("#decision-2").get_by_role("button")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#live")).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == (
        "buyer_id BIGINT NOT NULL USING <expression over the old columns>"
    )
    assert button.inner_text() == "Copied"


def test_what_cannot_be_copied_is_selected(open_page: Open) -> None:
    """Where the browser refuses, the text is selected, and a live region says what to do."""
    page = open_page(reports.small())
    page.evaluate(
        "() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no'));"
        " document.execCommand = () => false; }"
    )
    page.locator("#decision-1").get_by_role("button").click()
    expect(page.locator("#live")).to_have_text("selected; copy it with the keyboard")
    assert page.evaluate("getSelection().toString()") == "DROPPED (customer_id)"


def test_all_is_reached_by_keyboard_in_the_order_of_the_page(open_page: Open) -> None:
    """The first Tab shows the way past the contents; each stop is visible and has a name."""
    page = open_page(reports.small())
    page.keyboard.press("Tab")
    skip = page.locator(".skip")
    assert skip.evaluate("link => link === document.activeElement")
    expect(skip).to_be_in_viewport(ratio=1)
    stops = []
    for _ in range(80):
        page.keyboard.press("Tab")
        stop = page.evaluate(
            "() => { const at = document.activeElement; return at === document.body ? null :"
            " [at.tagName, Math.round(at.getBoundingClientRect().height),"
            " getComputedStyle(at).outlineStyle, (at.closest('section') || at.closest('nav') ||"
            " {}).id || 'contents']; }"
        )
        if stop is None:
            break
        stops.append(stop)
    assert stop is None
    assert all(height > 0 and outline != "none" for _, height, outline, _ in stops)
    places = list(dict.fromkeys(place for *_, place in stops))
    assert [place for place in places if not place.startswith("section-")] == [
        each for each in ("contents", "decisions", "graph-part", "objects", "changes")
        if each in places
    ]
    assert {"contents", "decisions", "objects", "changes"} <= set(places)


def test_only_what_is_known_is_said_of_why(open_page: Open) -> None:
    """A name that is missing, and positions that move, are no change of a definition."""
    small = reports.small()
    page = open_page(replace(small, objects=tuple(replace(each, why="") for each in small.objects)))
    facts = page.locator("#object-0 .facts dt")
    assert facts.all_text_contents() == ["Rows", "Now has", "Copy takes", "Absent", "Used by"]


def test_absences_are_sorted_by_step(open_page: Open) -> None:
    """What is absent for a moment, and without a number, comes behind those with one."""
    small = reports.small()
    table, view, other = small.objects
    moment = replace(table, absent="for a moment, on a metastore")
    late = replace(other, absent="from step 1,004 to step 1,005 (1 step)")
    page = open_page(replace(small, objects=(moment, late, view)))
    page.locator("#table th", has_text="Absent").get_by_role("button").click()
    assert names(page) == ["shop.big_orders", "shop.customers", "shop.orders"]


def test_a_late_wave_says_what_is_stopped(open_page: Open) -> None:
    """Beyond those that are there at once the waves of queries say stopped, not absent."""
    wave = Wave("wave", ((1, "-", "stop source s.a"),), ("s.a",), word="stopped")
    page = open_page(replace(reports.small(), waves=(wave,) * 62))
    page.get_by_role("button", name="Show 2 further waves").click()
    assert set(page.locator(".wave .absent p").all_text_contents()) == {
        "Stopped after this: 1 name",
    }
    assert page.locator(".wave .absent p").count() == 62


def test_what_was_left_out_is_shown_when_asked_for(open_page: Open) -> None:
    """Further steps and rows come in their place, and the first of them has the focus."""
    page = open_page(reports.postgres())
    wave = page.locator("#wave-3")
    before = wave.locator(".steps li").count()
    wave.get_by_role("button", name="Show 37 further steps").click()
    assert (before, wave.locator(".steps li").count()) == (12, 49)
    assert page.evaluate("document.activeElement.tagName") == "LI"
    absent = wave.locator(".names li").all_inner_texts()
    assert absent[-1] == "… and 28 more; each object says from when to when it is"
    assert len(absent) == 21
    assert len(names(page)) == 100
    page.get_by_role("button", name="further rows").click()
    assert len(names(page)) == 209


def test_ten_thousand_objects_are_found_and_sorted(open_page: Open) -> None:
    """The first rows are there; the last object is found by its name. How long: make bench."""
    page = open_page(reports.large())
    assert len(names(page)) == 100
    assert page.locator("#table table").get_attribute("aria-rowcount") == "10001"
    page.fill("#filter-name", "object_09999")
    assert names(page) == ["schema_39.object_09999"]
    page.fill("#filter-name", "")
    page.locator("#table th", has_text="Size").get_by_role("button").click()
    assert names(page)[0] == "schema_39.object_09999"
    page.locator("#table").evaluate("table => table.querySelector('.tall').scrollTop = 1e6")
    expect(page.locator(ROWS)).to_have_count(200)
    page.get_by_role("button", name="Show 2 further waves").click()
    assert page.locator(".wave").count() == 62


def test_a_large_table_and_a_long_text_can_be_read(open_page: Open) -> None:
    """All 200 columns are there; the text that is cut says so; neither widens the page."""
    page = open_page(reports.wide())
    assert page.locator("#object-0 .pairs tbody tr").count() == 200
    cut = page.locator("#object-1 .lines .cut")
    assert cut.text_content() is not None
    assert re.match(r"@ … cut here, after 20,000 of [\d,]+ characters", str(cut.text_content()))


def test_hostile_names_are_read_as_they_are(open_page: Open) -> None:
    """They make no element and run nothing, wherever they are shown; hidden letters are seen."""
    page = open_page(reports.hostile())
    assert names(page)[:3] == list(reports.HOSTILE[:3])
    for panel in page.locator("#panels .panel").all():
        panel.evaluate("panel => { panel.open = true; }")
    assert page.locator("main img, main b, main iframe").count() == 0
    assert page.evaluate("window.hit") is None
    shown = page.inner_text("#panels")
    assert "shop.`right\\u202eleft\\u2066`" in shown
    assert "shop.`bell\\u0007 escape\\u001b[31m line\\u2028`" in shown


def test_paper_has_every_change_and_no_controls(open_page: Open, tmp_path: Path) -> None:
    """Printing shows all steps, unfolds the panels of all that changes, and folds them again."""
    page = open_page(reports.postgres())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#panels .panel").count() == 66
    assert page.locator("#panels .panel:not([open])").count() == 0
    assert page.locator(".steps li").count() == 137
    for hidden in (".contents", ".filters", "button"):
        assert page.locator(f"{hidden}:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#panels .panel:not([open])").count() > 0
    written = page.pdf(format="A4")
    assert written.startswith(b"%PDF")
    assert 10 <= len(re.findall(rb"/Type\s*/Page\b", written)) <= 60


@pytest.mark.parametrize("name", ["small", "colours"])
def test_every_colour_can_be_told_from_what_is_behind(open_page: Open, name: str) -> None:
    """4.5 to 1 for texts and 3 to 1 for the borders of controls, light, dark and on paper."""
    page = open_page(MADE[name]())
    for media, scheme in (("screen", "light"), ("screen", "dark"), ("print", "dark")):
        page.emulate_media(media=media, color_scheme=scheme)
        found: dict[str, Any] = page.evaluate(ACCESSIBILITY)
        assert found["faults"] == []
        assert found["pairs"] > 50
        for kind in get_args(Kind):
            page.locator(".verdict").evaluate(f"each => {{ each.className = 'verdict {kind}'; }}")
            assert page.evaluate(ACCESSIBILITY)["faults"] == []


def test_the_accessibility_tree_has_roles_and_names(open_page: Open) -> None:
    """Landmarks, headings in order, and a name for whatever takes the focus or has a role."""
    page = open_page(reports.small())
    session = page.context.new_cdp_session(page)
    nodes = [
        (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")), {
            each["name"]: each["value"].get("value") for each in node.get("properties", ())
        })
        for node in session.send("Accessibility.getFullAXTree")["nodes"]
        if not node.get("ignored")
    ]
    roles = [role for role, _, _ in nodes]
    for landmark in ("banner", "main", "contentinfo", "navigation", "search"):
        assert roles.count(landmark) == 1, landmark
    named = {
        "button", "link", "searchbox", "combobox", "table", "region", "navigation", "search",
        "img", "image", "columnheader", "rowheader", "DisclosureTriangle",
    }
    assert [(role, name) for role, name, _ in nodes if role in named and not name.strip()] == []
    assert [
        (role, name) for role, name, properties in nodes
        if properties.get("focusable") and not name.strip()
        and role not in {"RootWebArea", "main"}
    ] == []
    levels = [properties["level"] for role, _, properties in nodes if role == "heading"]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert "status" in roles


def test_motion_is_only_for_those_who_want_it(open_page: Open) -> None:
    """The page scrolls at once where less motion is asked for."""
    page = open_page(reports.small(), reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "smooth"
