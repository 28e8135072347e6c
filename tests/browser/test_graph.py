"""The picture in a page: it is laid out as Python does, and opens, closes, turns and is walked."""

from __future__ import annotations

import random
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.model.wording import one_line
from catalog_migrate.report.layering import arrange
from catalog_migrate.report.report import Edge, Node, Picture
from catalog_migrate.report.svg import draw_picture, encode_picture

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

SCRIPT = files("catalog_migrate.report").joinpath("page", "graph.js").read_text("utf-8")
START = (
    "window.chosen = []; window.graph = startGraph(document.getElementById('graph'),"
    " JSON.parse(document.getElementById('picture').textContent),"
    " {onSelect: (node) => window.chosen.push(node)})"
)
DRAWN = """() => ({
  boxes: [...document.querySelectorAll('.box')].map((box) => [
    box.dataset.node ?? null, box.getAttribute('transform'), box.getAttribute('class'),
    box.querySelector('title').textContent, box.querySelector('use').getAttribute('href'),
    [...box.querySelectorAll('text')].map((text) => text.textContent),
  ]),
  arrows: [...document.querySelectorAll('.arrows .arrow')].map((arrow) => [
    arrow.getAttribute('class'), arrow.querySelector('path').getAttribute('d'),
    arrow.querySelector('title').textContent, arrow.querySelector('text')?.textContent ?? null,
  ]),
  size: document.querySelector('svg.picture').getAttribute('viewBox'),
})"""


def page_of(picture: Picture, *, start: bool = True, **options: Any) -> str:
    """A page with nothing but the picture and its script."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>graph</title>'
        "<style>.graph-view{overflow:auto}</style></head>"
        f'<body><div id="graph">{draw_picture(picture, **options)}</div>'
        f'<script type="application/json" id="picture">{encode_picture(picture)}</script>'
        f"<script>{SCRIPT}</script><script>{START if start else ''}</script></body></html>"
    )


def chain(size: int, groups: int, changed: set[int]) -> Picture:
    """Objects of which each uses the one before it, in so many schemas."""
    nodes = tuple(
        Node(f"s{place % groups}.t{place}", "view" if place % 3 else "table", f"s{place % groups}",
             "migrate" if place in changed else "unchanged")
        for place in range(size)
    )
    return Picture(nodes, tuple(Edge(place, place + 1) for place in range(size - 1)))


def mixed(seed: int) -> Picture:
    """Objects of all kinds in a graph with circles, of which some are in OLD or NEW alone."""
    drawn = random.Random(seed)
    kinds = ("table", "view", "function", "type", "source", "odd <kind>")
    nodes = []
    for place in range(drawn.choice((40, 150, 700))):
        old, new = drawn.choice(((True, True),) * 8 + ((True, False), (False, True)))
        action = {(True, True): drawn.choice(("unchanged",) * 9 + ("migrate", "update")),
                  (True, False): "drop", (False, True): "create"}[old, new]
        group = f"g{drawn.randrange(7)}"
        nodes.append(Node(f"{group}.表_object_with_a_long_name_{place}", drawn.choice(kinds), group,
                          action, old, new))
    edges = {}
    for _ in range(int(len(nodes) * 1.5)):
        used, user = drawn.sample(range(len(nodes)), 2)
        old, new = drawn.choice(((True, True),) * 6 + ((True, False), (False, True)))
        if old and new and used > user:
            used, user = user, used
        edges[used, user] = Edge(used, user, drawn.choice(("",) * 40 + ("reads",)), old, new)
    # one object that stays outside of what is open, so that no group is shown as a whole
    rest = tuple(Node(f"g{group}.rest{place}", "table", f"g{group}")
                 for group in range(7) for place in range(2))
    return Picture((*nodes, *rest), tuple(edges.values()))


def focused(page: Page) -> str:
    """What a screen reader says of the box that has the focus."""
    return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))


def names(page: Page) -> list[str]:
    """What is written in the boxes."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.box')].map((box) =>"
        " box.querySelectorAll('text')[1].textContent)"
    )
    return found


def test_layers_and_order_are_those_of_python(open_page: Callable[..., Page]) -> None:
    """For random graphs, with circles and without, both give the same layers in the same order."""
    page = open_page(page_of(Picture(), start=False))
    drawn = random.Random(40)
    for number in range(150):
        size = drawn.choice((1, 5, 30, 200))
        edges, soft = (
            [(drawn.randrange(size), drawn.randrange(size))
             for _ in range(drawn.randrange(size * 2))]
            for _ in range(2)
        )
        if number % 2:
            edges = [(min(edge), max(edge)) for edge in edges]
        rank = [drawn.randrange(4) for _ in range(size)] if number % 3 else None
        found = page.evaluate(
            "([size, edges, soft, rank]) => graphLayers.arrange(size, edges, soft, rank)",
            [size, edges, soft, rank],
        )
        assert found == arrange(size, edges, soft, rank)


@pytest.mark.parametrize("seed", range(6))
def test_the_first_state_is_what_python_drew(open_page: Callable[..., Page], seed: int) -> None:
    """Boxes, arrows and words of the script are those of the drawing that it replaces."""
    page = open_page(page_of(mixed(seed), start=False))
    before = page.evaluate(DRAWN)
    page.evaluate(START)
    after = page.evaluate(DRAWN)
    assert after["boxes"] == before["boxes"]
    assert after == before


def test_what_has_no_schema_is_not_what_has_no_box(open_page: Callable[..., Page]) -> None:
    """Of very many groups the smallest are one; connections and secrets are a group of theirs."""
    nodes = [Node(f"s{place % 130}.t{place}", "table", f"s{place % 130}") for place in range(520)]
    nodes += [Node(f"connection:c{place}", "connection", "") for place in range(6)]
    page = open_page(page_of(Picture(tuple(nodes)), start=False))
    for script in ("", START):
        page.evaluate(script or "0")
        assert len(names(page)) == 100
        assert {"without a schema", "other groups", "s0"} <= set(names(page))


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_side_is_what_python_draws_of_it(open_page: Callable[..., Page], side: str) -> None:
    """Before and after show what is there, as a picture of that side alone does."""
    picture = mixed(3)
    page = open_page(page_of(picture))
    page.get_by_role("button", name={"old": "Before", "new": "After"}[side]).click()
    drawn = page.evaluate(DRAWN)
    shown = {int(place) for place, *_ in drawn["boxes"] if place is not None}
    assert shown
    assert shown <= {place for place, node in enumerate(picture.nodes) if getattr(node, side)}
    assert {style.split()[1] for style, *_ in drawn["arrows"]} == {"kept"}
    members = sum(getattr(node, side) for node in picture.nodes)
    rest = sum(int(text[0].split()[0]) for place, *_, text in drawn["boxes"] if place is None)
    assert len(shown) + rest == members
    page.get_by_role("button", name="Both").click()
    assert page.get_by_role("button", name="Both").get_attribute("aria-pressed") == "true"


def test_a_click_opens_a_group_and_closes_it(open_page: Callable[..., Page]) -> None:
    """The rest of a schema becomes boxes, its own box closes it again."""
    page = open_page(page_of(chain(90, 3, {40})))
    assert names(page).count("s0") == 1
    assert page.locator(".box").count() == 6
    page.get_by_role("button", name="s0: 29 objects").click()
    assert page.locator(".box").count() == 6 + 29
    assert "t0" in names(page)
    assert page.get_by_role("status").inner_text() == "s0 opened: 30 objects"
    box = page.get_by_role("button", name="s0: 30 objects shown")
    assert box.get_attribute("aria-expanded") == "true"
    box.click()
    assert page.locator(".box").count() == 6
    assert focused(page) == "s0: 29 objects"


def test_a_group_of_thousands_opens_as_far_as_300_boxes_go(open_page: Callable[..., Page]) -> None:
    """What changes comes first, the rest stays one box, and the page says so."""
    page = open_page(page_of(chain(9_000, 3, {40})))
    page.get_by_role("button", name="s0: 2,999 objects").click()
    assert page.locator(".box").count() <= 300
    assert "the first" in page.get_by_role("status").inner_text()
    assert "of 3,000 objects" in page.get_by_role("status").inner_text()


def test_it_is_walked_with_keys(open_page: Callable[..., Page]) -> None:
    """Tab leads to one box, arrows to its neighbours, Enter chooses an object or opens a group."""
    page = open_page(page_of(chain(31, 1, set(range(31)))))
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('box')"):
            break
    assert focused(page) == "s0.t0 (table): migrate; uses 0, used by 1"
    page.keyboard.press("ArrowRight")
    assert focused(page) == "s0.t1 (view): migrate; uses 1, used by 1"
    page.keyboard.press("Enter")
    assert page.evaluate("window.chosen") == [1]
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("End")
    assert focused(page) == "s0: 31 objects shown"
    page.keyboard.press("Enter")
    assert focused(page) == "s0: 31 objects, 31 migrate"
    page.keyboard.press(" ")
    assert page.locator(".box").count() == 32
    assert page.locator(".box[tabindex='0']").count() == 1


def test_a_small_picture_has_no_box_to_close_a_group(open_page: Callable[..., Page]) -> None:
    """Of thirty objects all are shown, and nothing else is."""
    page = open_page(page_of(chain(30, 1, set(range(30)))))
    assert page.locator(".box").count() == 30


def test_a_click_chooses_an_object(open_page: Callable[..., Page]) -> None:
    """The page is told which, and the box is marked."""
    page = open_page(page_of(chain(12, 1, {4})))
    page.get_by_role("button", name="s0.t5 (view)").click()
    assert page.evaluate("window.chosen") == [5]
    assert page.locator(".box[aria-current='true']").get_attribute("data-node") == "5"


def test_an_object_is_shown_wherever_it_is(open_page: Callable[..., Page]) -> None:
    """show opens round an object in a group."""
    page = open_page(page_of(chain(900, 3, {40})))
    page.evaluate("graph.show(600)")
    assert focused(page) == "s0.t600 (table); uses 1, used by 1"
    assert {"t599", "t600", "t601"} <= set(names(page))
    page.get_by_role("button", name="Start over").click()
    assert {"t39", "t40", "t41"} <= set(names(page))


def test_what_a_box_is_joined_with_stands_out(open_page: Callable[..., Page]) -> None:
    """Its arrows and their other ends are near, the rest is dimmed, until the pointer leaves."""
    page = open_page(page_of(chain(12, 1, {4})))
    page.get_by_role("button", name="s0.t5 (view)").hover()
    assert page.locator("svg.picture.lit").count() == 1
    near = page.locator(".box.near").evaluate_all("boxes => boxes.map((box) => box.dataset.node)")
    assert near == ["4", "5", "6"]
    assert page.locator(".arrow.near").count() == 2
    page.mouse.move(0, 0)
    assert page.locator("svg.picture.lit").count() == 0


def test_the_size_changes_and_fits(open_page: Callable[..., Page]) -> None:
    """Larger, smaller and fit change how large it is drawn, not what is drawn."""
    picture = chain(12, 4, set(range(12)))
    page = open_page(page_of(picture), viewport={"width": 900, "height": 700})
    width = "Number(document.querySelector('svg.picture').getAttribute('width'))"
    first = page.evaluate(width)
    page.get_by_role("button", name="Larger").click()
    assert page.evaluate(width) == pytest.approx(first * 1.25)
    page.get_by_role("button", name="Smaller").click()
    assert page.evaluate(width) == pytest.approx(first)
    page.get_by_role("button", name="Fit the width").click()
    assert page.evaluate(width) <= 900


def test_the_wheel_and_a_drag(open_page: Callable[..., Page]) -> None:
    """With Ctrl the wheel changes the size, without it scrolls; the background can be dragged."""
    page = open_page(page_of(chain(12, 4, set(range(12)))), viewport={"width": 900, "height": 700})
    width = "Number(document.querySelector('svg.picture').getAttribute('width'))"
    left = "document.querySelector('.graph-view').scrollLeft"
    first = page.evaluate(width)
    box = page.locator(".graph-view").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 400, box["y"] + 8)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function(f"{width} > {first}")
    before = page.evaluate(left)
    page.mouse.down()
    page.mouse.move(box["x"] + 100, box["y"] + 8)
    page.mouse.up()
    assert page.evaluate(left) == pytest.approx(before + 300, abs=2)


def test_names_are_text(open_page: Callable[..., Page]) -> None:
    """Markup, script and control characters in names, kinds and roles draw and run nothing."""
    odd = [
        "</script><script>window.hit=1</script>", '"><img src=x onerror="window.hit=1">',
        "\u202eright\u2066", "bell\x07 \x1b[31m", "a'b&amp;<!--", "group",
    ]
    shown = list(map(one_line, odd))
    picture = Picture(
        tuple(Node(f"s.{name}", name, name, name) for name in shown) + tuple(
            Node(f"{shown[0]}.t{place}", "table", shown[0]) for place in range(40)
        ),
        tuple(Edge(0, place, shown[0]) for place in range(1, len(shown))),
    )
    page = open_page(page_of(picture))
    page.locator(".box.group").first.click()
    assert page.evaluate("window.hit") is None
    assert page.locator("img").count() == 0
    page.evaluate("graph.show(1)")
    page.keyboard.press("Enter")
    assert page.evaluate("window.chosen") == [1]
