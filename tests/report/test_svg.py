"""The picture as SVG: which boxes it opens with, how they are told apart, and what is in a name."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest

from catalog_migrate.model.wording import one_line
from catalog_migrate.report.boxes import MOST, OTHERS, open_boxes
from catalog_migrate.report.report import Edge, Node, Picture
from catalog_migrate.report.svg import draw_picture, encode_picture, place_boxes, shorten

SVG = "{http://www.w3.org/2000/svg}"
KINDS = (
    "table", "view", "materialized_view", "function", "type", "connection", "source", "sink",
    "secret", "cluster", "log",
)


def many(size: int, *, groups: int, changed: set[int] | None = None) -> Picture:
    """A chain of objects in so many schemas, of which some migrate."""
    nodes = tuple(
        Node(f"s{place % groups}.t{place}", "table", f"s{place % groups}",
             "migrate" if place in (changed or ()) else "unchanged")
        for place in range(size)
    )
    return Picture(nodes, tuple(Edge(place, place + 1) for place in range(size - 1)))


def shown(picture: Picture, **options: str) -> tuple[list[str], list[tuple[str, int, bool]]]:
    """The names of the objects that have a box, and (group, objects, whether all) of the others."""
    boxes, _ = open_boxes(picture, **options)  # type: ignore[arg-type]
    single = [picture.nodes[box.node].name for box in boxes if box.node is not None]
    return single, sorted(
        (box.group, len(box.members), box.whole) for box in boxes if box.node is None
    )


def texts(svg: str) -> list[str]:
    """What is written in a picture, without titles and legend."""
    root = ElementTree.fromstring(svg)
    boxes = next(each for each in root.iter(f"{SVG}g") if each.get("class") == "boxes")
    return [each.text or "" for each in boxes.iter(f"{SVG}text")]


class TestWhatIsOpen:
    """Which objects have a box of their own."""

    def test_a_change_and_one_hop_round_it(self) -> None:
        """Of a chain of 90 in 3 schemas: 40, which migrates, 39, 41, and a box a schema."""
        single, groups = shown(many(90, groups=3, changed={40}))
        assert single == ["s0.t39", "s1.t40", "s2.t41"]
        assert groups == [("s0", 29, False), ("s1", 29, False), ("s2", 29, False)]

    def test_a_small_release_is_all_open(self) -> None:
        """Of 25 objects each has a box, whatever changes."""
        single, groups = shown(many(25, groups=2, changed={3}))
        assert (len(single), groups) == (25, [])

    def test_the_only_other_object_of_a_schema_has_its_own_box(self) -> None:
        """A box for 1 object says less than the object."""
        picture = many(26, groups=1, changed=set(range(24)))
        assert shown(picture) == ([node.name for node in picture.nodes], [])

    def test_a_catalog_without_changes(self) -> None:
        """Up to 300 objects are all open; of more each schema is one box."""
        assert len(shown(many(MOST, groups=4))[0]) == MOST
        assert shown(many(MOST + 1, groups=2)) == ([], [("s0", 151, True), ("s1", 150, True)])

    def test_more_changes_than_boxes_collapse_the_biggest_schemas_first(self) -> None:
        """400 changes in s0 and 100 in s1: s0 is a box, s1 is open, and there are few boxes."""
        nodes = tuple(
            Node(f"s{place // 400}.t{place}", "table", f"s{place // 400}", "create", False)
            for place in range(500)
        )
        single, groups = shown(Picture(nodes))
        assert single == [f"s1.t{place}" for place in range(400, 500)]
        assert groups == [("s0", 400, True)]

    def test_what_does_not_change_collapses_before_what_does(self) -> None:
        """A table that 600 views use: the views collapse, the table that changes has its box."""
        nodes = (Node("a.t", "table", "a", "migrate"), *(
            Node(f"b.v{place}", "view", "b") for place in range(600)
        ))
        picture = Picture(nodes, tuple(Edge(0, place) for place in range(1, 601)))
        assert shown(picture) == (["a.t"], [("b", 600, True)])

    def test_thousands_of_schemas_are_few_boxes(self) -> None:
        """99 schemas have a box, those of changes first; the others share one."""
        single, groups = shown(many(4_000, groups=2_000))
        assert (len(single), len(groups)) == (0, 100)
        assert groups[0] == (OTHERS, 4_000 - 99 * 2, True)

    def test_old_and_new_show_what_is_there(self) -> None:
        """What is dropped is in OLD alone, what comes in NEW alone."""
        picture = Picture((
            Node("s.a", "table", "s", "drop", True, False),
            Node("s.b", "table", "s", "create", False, True), Node("s.c", "table", "s"),
        ))
        assert shown(picture, side="old")[0] == ["s.a", "s.c"]
        assert shown(picture, side="new")[0] == ["s.b", "s.c"]

    def test_round_a_name(self) -> None:
        """With a focus, that object and one hop round it, although others change."""
        single, _ = shown(many(90, groups=3, changed={40}), focus="s0.t60")
        assert single == ["s2.t59", "s0.t60", "s1.t61"]

    @pytest.mark.parametrize("seed", range(5))
    def test_never_more_than_300_boxes(self, seed: int) -> None:
        """Whatever changes in 10,000 objects: every object is in one box, and boxes are few."""
        drawn = random.Random(seed)
        size, groups = 10_000, drawn.choice((1, 7, 40, 3_000))
        changed = {place for place in range(size) if drawn.random() < drawn.choice((0.001, 0.5))}
        picture = many(size, groups=groups, changed=changed)
        boxes, arrows = open_boxes(picture)
        assert len(boxes) <= MOST
        assert sorted(place for box in boxes for place in box.members) == list(range(size))
        assert all(arrow.used != arrow.user for arrow in arrows)


class TestPlaces:
    """Where boxes are."""

    @pytest.mark.parametrize("picture", [many(60, groups=3), many(500, groups=3, changed={7, 99})])
    def test_no_box_is_on_another(self, picture: Picture) -> None:
        """Boxes keep their distance, and all are within the picture."""
        boxes, arrows = open_boxes(picture)
        layout = place_boxes(boxes, arrows, "both", 50)
        corners = [(place.x, place.y) for place in layout.places]
        for number, (x, y) in enumerate(corners):
            assert 0 <= x <= layout.width - 208
            assert 50 <= y <= layout.height - 40
            for other_x, other_y in corners[:number]:
                assert abs(x - other_x) >= 208 or abs(y - other_y) >= 40

    def test_a_user_is_right_of_what_it_uses(self) -> None:
        """Layers lead from left to right."""
        picture = Picture(
            tuple(Node(f"s.{name}", "view", "s") for name in "abc"), (Edge(2, 0), Edge(0, 1)),
        )
        boxes, arrows = open_boxes(picture)
        places = place_boxes(boxes, arrows, "both", 0).places
        at = {picture.nodes[box.members[0]].name: place.x
              for box, place in zip(boxes, places, strict=True)}
        assert at["s.c"] < at["s.a"] < at["s.b"]

    def test_what_is_not_connected_is_in_a_grid(self) -> None:
        """208 objects without an edge: no strip, but the proportions of a screen."""
        picture = Picture(tuple(Node(f"s.t{place}", "table", "s") for place in range(208)))
        boxes, arrows = open_boxes(picture)
        layout = place_boxes(boxes, arrows, "both", 0)
        assert 1.2 < layout.width / layout.height < 2.2

    def test_schemas_in_a_circle_are_no_strip(self) -> None:
        """40 schemas that all use each other stand in the layers of their objects."""
        picture = many(4_000, groups=40)
        boxes, arrows = open_boxes(picture)
        assert len(boxes) == 40
        layout = place_boxes(boxes, arrows, "both", 0)
        assert len({place.layer for place in layout.places}) <= 40


class TestWhatIsDrawn:
    """Shapes, signs and words."""

    def test_each_kind_has_its_shape(self) -> None:
        """No two kinds, nor one that is unknown, have the same border."""
        svg = draw_picture(Picture(tuple(Node(f"s.{kind}", kind, "s") for kind in KINDS)))
        root = ElementTree.fromstring(svg)
        shapes = {
            each.get("id", ""): "".join(path.get("d", "") for path in each)
            for each in root.iter(f"{SVG}g") if each.get("id", "").startswith("picture-")
        }
        used = [each.get("href", "").lstrip("#") for each in root.iter(f"{SVG}use")]
        assert sorted(used) == sorted(f"picture-{kind}" for kind in KINDS)
        found = [shapes[f"picture-{kind}"] for kind in (*KINDS, "other", "group")]
        assert len(set(found)) == len(found)

    @pytest.mark.parametrize(("action", "sign", "style"), [
        ("create", "+", "create"), ("drop", "\N{MINUS SIGN}", "drop"), ("migrate", "~", "migrate"),
        ("redefine", "*", "update"), ("a newer one", "*", "update"),
    ])
    def test_an_action_is_told_without_its_colour(
        self, action: str, sign: str, style: str
    ) -> None:
        """A sign, a line of its own, and the word for a pointer."""
        svg = draw_picture(Picture((Node("s.t", "table", "s", action),)))
        assert texts(svg)[:3] == ["table · s", "t", sign]
        assert f'class="box {style}"' in svg
        assert f"<title>s.t (table): {action}</title>" in svg
        assert f".picture .{style}{{stroke-width:" in svg

    def test_a_group_counts_what_is_in_it(self) -> None:
        """How many objects, and how many of them have which sign."""
        nodes = tuple(
            Node(f"s.t{place}", "table", "s", "drop" if place < 100 else "create",
                 place < 100, place >= 100)
            for place in range(400)
        )
        svg = draw_picture(Picture(nodes))
        assert "400 objects<tspan class=\"create\" dx=\"7\">+300</tspan>" in svg
        assert "s: 400 objects, 300 create, 100 drop" in svg
        assert ">objects of one schema or cluster</text>" in svg

    def test_edges_of_one_side_look_different(self) -> None:
        """Only before: dashed; only after: thick; with one side shown all are plain."""
        picture = Picture(
            tuple(Node(f"s.{name}", "view", "s") for name in "abcd"),
            (Edge(0, 1), Edge(0, 2, "", True, False), Edge(0, 3, "reads", False, True)),
        )
        svg = draw_picture(picture)
        assert '<g class="arrow before"><title>c uses a (only before)</title>' in svg
        assert '<g class="arrow after"><title>d uses a: reads (only after)</title>' in svg
        assert ">reads</text>" in svg
        assert 'class="arrow before"' not in draw_picture(picture, side="old")

    def test_it_has_a_title_and_a_description(self) -> None:
        """A screen reader says what it is a picture of and how much is in it."""
        root = ElementTree.fromstring(draw_picture(many(400, groups=2, changed={5}), title="Mine"))
        assert root.get("role") == "img"
        ids = (root.get("aria-labelledby") or "").split()
        told = {each.get("id"): each.text for each in root}
        assert [told[each] for each in ids] == ["Mine", (
            "3 objects as boxes, 397 more objects in 2 groups; 1 of 400 objects change."
            " An arrow leads from what is used to what uses it."
        )]

    def test_an_empty_catalog(self) -> None:
        """A picture of nothing is one."""
        assert ElementTree.fromstring(draw_picture(Picture())).get("class") == "picture"


NAMES = (
    "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a'b&amp;<!--]]>",
    "\u202eright to left\u2066", "bell\x07 escape\x1b[31m", "no \ufffe\uffff XML", "x" * 255,
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_draws_nothing_of_its_own(name: str) -> None:
    """Whatever is in a name, kind, schema, action or role: the same elements, and a whole title."""
    def picture(text: str) -> Picture:
        shown = one_line(text)
        return Picture(
            (Node(shown, shown, shown, shown), Node("s.u", "view", "s")), (Edge(0, 1, shown),)
        )

    root = ElementTree.fromstring(draw_picture(picture(name), title=name))
    plain = ElementTree.fromstring(draw_picture(picture("plain"), title="plain"))
    assert [each.tag for each in root.iter()] == [each.tag for each in plain.iter()]
    assert "<" not in encode_picture(picture(name))


@pytest.mark.parametrize(("text", "expected"), [
    ("short", "short"), ("a" * 24, "a" * 24), ("a" * 20 + "b" * 20, "a" * 12 + "…" + "b" * 11),
    ("表" * 12, "表" * 12), ("表" * 13, "表" * 6 + "…" + "表" * 5),
])
def test_long_names_are_shortened_in_the_middle(text: str, expected: str) -> None:
    """The beginning and the end stay; letters of East Asia take the room of two."""
    assert shorten(text) == expected


