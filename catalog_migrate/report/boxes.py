"""Which boxes a picture opens with, and the arrows between them: an object, or many as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Literal

import msgspec

from catalog_migrate.report.layering import generations, without_circles
from catalog_migrate.report.report import Edge, Node, Picture

Side = Literal["both", "old", "new"]

MOST = 300
"""How many boxes are drawn at once."""
_FEW = 25
"""So many objects are all opened, whatever changes."""
_GROUPS = 100
"""So many groups have a box of their own; the smallest of more are one."""
OTHERS = "\0"
"""The group of what is in a group without a box of its own: no schema is called so."""


class Box(msgspec.Struct, frozen=True):
    """An object, or those of ``group`` that are collapsed, as positions in the nodes.

    ``node`` is None where it is a group; ``whole`` says that no other object of the group is shown.
    ``rank`` is the mean of the layers that its objects are in when all are shown.
    """

    group: str
    members: tuple[int, ...]
    node: int | None = None
    whole: bool = True
    rank: float = 0.0


class Arrow(msgspec.Struct, frozen=True):
    """All uses between two boxes: positions in the boxes, how many, on which side, and as what."""

    used: int
    user: int
    count: int
    old: bool
    new: bool
    labels: tuple[str, ...] = ()


def is_changed(node: Node) -> bool:
    """Return whether the plan does something with the object."""
    return node.action != "unchanged" or node.old != node.new


def is_on(part: Node | Edge, side: Side) -> bool:
    """Return whether an object or a use is there on the side that is shown."""
    return side == "both" or (part.old if side == "old" else part.new)


def open_boxes(
    picture: Picture, side: Side = "both", focus: str | None = None
) -> tuple[list[Box], list[Arrow]]:
    """Choose at most :data:`MOST` boxes, earlier layers first, and the arrows between them.

    What changes and one hop round it are objects, with ``focus`` what has that name and one hop
    round it; a few objects, and those of a catalog where nothing changes, are all. The others
    collapse to one box a group. Where that is still too much, the objects of the biggest groups
    collapse, too: those that do not change before those that do.
    """
    visible = [place for place, node in enumerate(picture.nodes) if is_on(node, side)]
    groups = group_nodes(picture.nodes)
    shown = _choose(picture, visible, side, focus)
    return join_boxes(picture, side, _reduce(picture, visible, groups, shown), groups)


def group_nodes(nodes: Collection[Node]) -> list[str]:
    """Return the group of each node; :data:`OTHERS` for the smallest of very many groups."""
    weights: dict[str, list[int]] = {}
    for node in nodes:
        weight = weights.setdefault(node.group, [0, 0])
        weight[0] -= is_changed(node)
        weight[1] -= 1
    if len(weights) <= _GROUPS:
        return [node.group for node in nodes]
    kept = set(sorted(weights, key=weights.__getitem__)[: _GROUPS - 1])
    return [node.group if node.group in kept else OTHERS for node in nodes]


def join_boxes(
    picture: Picture, side: Side, shown: Collection[int], groups: list[str]
) -> tuple[list[Box], list[Arrow]]:
    """Make a box of each object shown and of the rest of each group, and join their arrows."""
    rest: dict[str, list[int]] = {}
    parts = set()
    for place, node in enumerate(picture.nodes):
        if place in shown:
            parts.add(groups[place])
        elif is_on(node, side):
            rest.setdefault(groups[place], []).append(place)
    ranks = _rank(picture, side)
    boxes = [Box(groups[place], (place,), place, True, ranks[place]) for place in shown]
    boxes += [
        Box(
            group, tuple(members), None, group not in parts,
            sum(ranks[place] for place in members) / len(members),
        )
        for group, members in rest.items()
    ]
    boxes.sort(key=lambda box: (box.rank, box.members[0]))
    return boxes, _join_arrows(picture, side, boxes)


def _join_arrows(picture: Picture, side: Side, boxes: list[Box]) -> list[Arrow]:
    box_of = {place: number for number, box in enumerate(boxes) for place in box.members}
    joined: dict[tuple[int, int], list[Edge]] = {}
    for edge in picture.edges:
        ends = box_of.get(edge.used), box_of.get(edge.user)
        if is_on(edge, side) and ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
            joined.setdefault((ends[0], ends[1]), []).append(edge)
    return [
        Arrow(
            used, user, len(edges), any(edge.old for edge in edges),
            any(edge.new for edge in edges),
            tuple(sorted({edge.label for edge in edges if edge.label})),
        )
        for (used, user), edges in joined.items()
    ]


def _choose(
    picture: Picture, visible: list[int], side: Side, focus: str | None
) -> set[int]:
    """What is to be shown as objects, however many they are."""
    nodes = picture.nodes
    if len(visible) <= (_FEW if any(map(is_changed, nodes)) else MOST):
        return set(visible)
    start = {place for place in visible if nodes[place].name == focus} or {
        place for place in visible if is_changed(nodes[place])
    }
    near = set(start)
    for edge in picture.edges:
        if is_on(edge, side):
            if edge.used in start:
                near.add(edge.user)
            if edge.user in start:
                near.add(edge.used)
    return near.intersection(visible)


def _reduce(
    picture: Picture, visible: list[int], groups: list[str], shown: set[int]
) -> set[int]:
    """Those of ``shown`` that stay objects, so that there are not too many boxes."""
    hidden = Counter(groups[place] for place in visible if place not in shown)
    # a box for the one other object of a group says less than the object
    alone = {group for group, count in hidden.items() if count == 1}
    shown = shown | {place for place in visible if groups[place] in alone}
    boxes = len(shown) + len(hidden.keys() - alone)
    collapsed = set(hidden.keys() - alone)
    for changed in (False, True):
        of_group: dict[str, set[int]] = {}
        for place in shown:
            if is_changed(picture.nodes[place]) == changed:
                of_group.setdefault(groups[place], set()).add(place)
        for group in sorted(of_group, key=lambda each: (-len(of_group[each]), min(of_group[each]))):
            if boxes <= MOST:
                return shown
            boxes -= len(of_group[group]) - (group not in collapsed)
            collapsed.add(group)
            shown = shown - of_group[group]
    return shown


def _rank(picture: Picture, side: Side) -> list[int]:
    """The layer of each node when all are objects."""
    found = [0] * len(picture.nodes)
    seen = [edge for edge in picture.edges if is_on(edge, side)]
    firm = [(edge.used, edge.user) for edge in seen if edge.new or side == "old"]
    soft = [(edge.used, edge.user) for edge in seen if not (edge.new or side == "old")]
    kept = without_circles(len(found), firm, soft)
    for number, layer in enumerate(generations(len(found), kept)):
        for place in layer:
            found[place] = number
    return found
