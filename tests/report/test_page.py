"""The page as HTML, without a browser: its structure, what is in it, what could never run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from catalog_migrate.planner.plan import Action, Plan
from catalog_migrate.report import lay_out, render
from catalog_migrate.report.page_data import TEXT_LIMIT
from catalog_migrate.report.report import (
    Difference,
    Entry,
    Node,
    Picture,
    Report,
    ReportObject,
    Section,
)
from catalog_migrate.report.svg import encode_picture
from catalog_migrate.report.verdict import Verdict
from tests.browser import reports
from tests.report.test_report import CASES

EMPTY = {"meta", "br", "hr", "input", "link", "img"}


class Page(HTMLParser):
    """A page that was parsed: its elements with attributes, their texts, and how they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def text(self, inside: str) -> str:
        """The text in elements of one name, those below included."""
        return "".join(text for path, text in self.texts if inside in path)

    def having(self, attribute: str) -> list[str | None]:
        return [found[attribute] for _, found in self.elements if attribute in found]


def data_of(text: str) -> dict[str, Any]:
    """The block of JSON that the script lays out."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return dict(json.loads(found))


PAGES: dict[str, Plan | Report] = {
    **CASES, "small": reports.small(), "hostile": reports.hostile(), "none": reports.nothing(),
    "hostile_release": reports.hostile_release(),
}


def page_of(value: Plan | Report) -> str:
    """The text of the page of a plan or a report."""
    return lay_out(value, "html") if isinstance(value, Report) else render(value, "html")


every_page = pytest.mark.parametrize("name", PAGES)


@every_page
def test_elements_nest_and_ids_are_unique(name: str) -> None:
    """Every element is closed in its turn, and every link of the contents leads to an id."""
    page = Page(page_of(PAGES[name]))
    assert page.open == []
    ids = page.having("id")
    assert len(ids) == len(set(ids))
    fragments = {str(link)[1:] for link in page.having("href") if not str(link).startswith("#pic")}
    assert fragments - set(ids) == set()
    assert set(page.having("aria-labelledby")) - {*ids, "picture-title picture-desc"} == set()


@every_page
def test_nothing_is_loaded_and_one_script_runs(name: str) -> None:
    """The content policy allows the script whose hash it has; nothing refers to elsewhere."""
    text = page_of(PAGES[name])
    page = Page(text)
    (policy,) = (
        attributes["content"] for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert [each.get("type") for each in scripts] == ["application/json", "application/json", None]
    (code,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert policy == (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'"
    )
    assert [each for each in page.having("href") if not str(each).startswith("#")] == []
    assert page.having("src") == []
    assert [name for _, each in page.elements for name in each if name.startswith("on")] == []


@pytest.mark.parametrize("name", CASES)
def test_what_is_first_in_the_text_is_not_folded_in_the_page(name: str) -> None:
    """Title, verdict, route and the losses are there without script, and no element folds."""
    page = Page(page_of(CASES[name]))
    text = render(CASES[name], "text").splitlines()
    assert page.text("title") in page.text("h1") + ": " + page.text("strong")
    assert f"{page.text('strong').split(chr(10))[0]}".startswith(text[0].partition(":")[0])
    assert text[1] in page.text("header")
    assert "details" not in {tag for tag, _ in page.elements}
    if "What could be lost" in text:
        assert "What could be lost" in page.text("h2")


def test_parts_come_in_one_order() -> None:
    """What decides comes first, then decisions, graph, objects, changes, program, the rest."""
    page = Page(page_of(reports.small()))
    titles = [text for path, text in page.texts if path[-1:] == ("h2",)]
    assert titles == [
        "What could be lost", "Users' objects", "Point of no return", "How to decide", "Graph",
        "Objects", "What will happen", "Steps, in this order", "What is not touched", "Validation",
    ]


def test_a_page_lists_what_a_text_only_counts() -> None:
    """Of 63 absent names a text has 12, the page all; of thousands the page counts the others."""
    text = lay_out(reports.postgres(), "text")
    assert "  … and 51 more (--format json lists all)\n" in text
    page = page_of(reports.postgres())
    assert page.count(" steps)</div></li>") + page.count(" step)</div></li>") == 63
    section = Section("Which", (Entry("first"),), more=2_000, rest=(Entry("other"),) * 2_000)
    report = replace(reports.nothing(), sections=(section,))
    assert page_of(report).count("<div>other</div>") == 500
    assert "… and 1,500 more (--format json lists all)" in page_of(report)


def test_obstacles_and_decisions_are_one_part() -> None:
    """Both sections of the text are there, in its order, each text once."""
    page = Page(page_of(CASES["blocked"]))
    titles = [text for path, text in page.texts if path[-1:] == ("h2",)]
    assert "What is in the way and how to decide" in titles
    texts = [text for path, text in page.texts if path[-1:] == ("pre",)]
    assert texts == ["rename or drop that object", "DROPPED (flag)"]
    assert page.text("main").count("[UNRESOLVED_COLUMN] flag, line 1") == 1


def test_a_text_to_write_is_one_block() -> None:
    """Its lines are lines there, without what marks them in the text."""
    page = Page(page_of(reports.small()))
    texts = [text for path, text in page.texts if path[-1:] == ("pre",)]
    assert texts == [
        "ALTER VIEW team.cities AS\nSELECT buyer_id FROM shop.orders", "DROPPED (customer_id)",
        "buyer_id BIGINT NOT NULL USING <expression over the old columns>",
    ]


def test_hostile_texts_are_texts() -> None:
    """No name, comment or reason makes an element or ends a script; hidden letters are shown."""
    text = page_of(reports.hostile())
    page = Page(text)
    known = {tag for tag, _ in Page(page_of(reports.small())).elements}
    assert {tag for tag, _ in page.elements} - known == set()
    for hidden in ("\u202e", "\u2066", "\u2028", "\x07", "\x1b"):
        assert hidden not in text
        assert f"\\u{ord(hidden):04x}" in text
    assert data_of(text)["objects"][0][0] == reports.HOSTILE[0]


def test_no_hidden_letter_of_a_release_is_left() -> None:
    """Nowhere in the page of a plan is a letter that cannot be seen, and each can be read."""
    text = page_of(reports.hostile_release())
    assert [hidden for hidden in "\u202e\u2066\u2028\x07\x1b" if hidden in text] == []
    differences = data_of(text)["objects"][0][6]["differences"]
    assert [each[1] for each in differences if not each[1].isprintable()] == []
    assert "right\\u202eleft\\u2066" in [each[1] for each in differences]
    comment = "</script><script>window.hit=1</script>\\u202e\\u001b"
    assert comment in [each[3] for each in differences]


def test_words_and_names_are_numbers() -> None:
    """A kind, an action, and the name of an object elsewhere are positions."""
    data = data_of(page_of(reports.small()))
    words = data["words"]
    name, kind, action, risk, rows, size, more = data["objects"][1]
    assert (name, words[kind], words[action], words[risk], rows, size) == (
        "shop.big_orders", "view", "migrate", "absent", None, None
    )
    assert more == {
        "because": [0, 1], "absent": "from step 3 to step 6 (3 steps)",
        "differences": [[words.index("query"), "", (
            " SELECT\n-  customer_id,\n+  buyer_id,\n   total\n FROM shop.orders\n"
            " WHERE total > 1000"
        )]],
    }
    assert data["objects"][0][6]["decisions"] == [1, 2]
    (measured,) = [each[6] for each in data["objects"] if each[5] == 412_000_000]
    assert (measured["size"], measured["duration"]) == ("392.9 MiB", "about 74 s")
    assert data["waves"] == [[[]]] * 6


def test_signs_are_those_of_every_report() -> None:
    """Objects and boxes of the page have the sign that text has; the scripts have no table."""
    actions = (*get_args(Action), "unchanged")
    objects = tuple(ReportObject(f"s.{each}", "view", "s", each) for each in actions)
    picture = Picture(tuple(Node(each.name, "view", "s", each.action) for each in objects))
    signs = {
        "create": "+", "drop": "\N{MINUS SIGN}", "migrate": "~", "redefine": "*", "update": "*",
        "refresh": "*", "restart": "*", "unchanged": "",
    }
    safe = Verdict("safe", "SAFE", "SAFE")
    page = page_of(Report("t", safe, "r", objects=objects, picture=picture))
    assert data_of(page)["signs"] == signs
    nodes = json.loads(encode_picture(picture))["nodes"]
    assert {node[3]: node[6] for node in nodes} == signs


def test_a_long_text_is_cut_and_that_is_said() -> None:
    """A definition of 5 MB has 20,000 characters in the page, and the length of the whole."""
    text = page_of(reports.wide())
    assert len(text) < 250_000
    lines, comment = data_of(text)["objects"][1][6]["differences"]
    assert comment[3] == (
        "x" * TEXT_LIMIT + " … cut here, after 20,000 of 5,000,000 characters; --format json has"
        " all of it"
    )
    assert lines[2].splitlines()[-1].startswith("@ … cut here, after 20,000 of ")
    assert len(lines[2]) < TEXT_LIMIT + 120


def test_ten_thousand_objects_fit_into_five_megabytes() -> None:
    """Six thousand of them change; with texts of 20 kB each, all texts are cut shorter."""
    assert len(page_of(reports.large()).encode()) <= 5_000_000
    report = reports.large()
    long = (Difference("query", lines=(" x" * 10_000,)),)
    many = tuple(Difference("column", f"c{number}", "INT", None) for number in range(60))
    objects = tuple(
        replace(each, differences=long if number % 2 else many)
        for number, each in enumerate(report.objects)
    )
    text = page_of(replace(report, objects=objects))
    assert len(text.encode()) <= 5_000_000
    assert "cut here, after " in text
    assert '"left":' in text
