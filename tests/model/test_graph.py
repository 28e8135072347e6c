from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.errors import DependencyCycle, UsageError
from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.names import Identity, ItemKey
from catalog_migrate.model.objects import order_key


def build(uses: Mapping[str, str], kinds: Mapping[str, str] | None = None) -> DependencyGraph:
    """A graph of one schema ``s`` from ``{"v": "a b"}``: v uses a and b (kind view by default)."""
    names = dict.fromkeys([*uses, *(used for text in uses.values() for used in text.split())])
    keys = {name: ItemKey("s", (kinds or {}).get(name, "view"), name) for name in names}
    return DependencyGraph(
        {keys[n].identity: [keys[u].identity for u in text.split()] for n, text in uses.items()},
        {key.identity: key for key in keys.values()},
    )


def node(name: str) -> Identity:
    return "relation", "s", name


def short(nodes: Iterable[Identity]) -> str:
    return " ".join(identity[2] for identity in nodes)


#   orders     rates     customers        tables
#     |  \      /           |
#     |  priced             |             views
#     |  /    \             |
#    daily    billed -------+
#      \      /
#       report        alone
SHOP = build(
    {
        "priced": "orders rates",
        "daily": "orders priced",
        "billed": "priced customers",
        "report": "daily billed",
        "alone": "",
    },
    {"orders": "table", "rates": "table", "customers": "table"},
)


def test_the_order_puts_what_is_used_first_and_is_lexicographic() -> None:
    """Tables come before views that could come next, too; within a kind the name decides."""
    expected = "customers orders rates alone priced billed daily report"
    assert short(SHOP.topological()) == expected
    assert short(SHOP.topological()[::-1]) == " ".join(reversed(expected.split()))
    assert len(SHOP) == 8
    assert node("daily") in SHOP
    assert node("nobody") not in SHOP


def test_direct_neighbours_are_ranked() -> None:
    """uses and used_by answer in rank order, and with nothing for a stranger."""
    assert short(SHOP.uses(node("daily"))) == "orders priced"
    assert short(SHOP.users_of(node("orders"))) == "daily priced"
    assert SHOP.uses(node("nobody")) == ()
    assert SHOP.users_of(node("nobody")) == ()


def test_waves_are_levels_of_the_longest_path() -> None:
    """Each wave only uses earlier ones and nothing waits longer than it must."""
    assert [short(wave) for wave in SHOP.waves()] == [
        "customers orders rates alone", "priced", "billed daily", "report",
    ]  # fmt: skip


def test_waves_of_a_subset_respect_paths_through_the_rest() -> None:
    """report uses orders only through objects outside the subset and still comes after it."""
    subset = [node("report"), node("orders"), node("alone"), node("nobody")]
    assert [short(wave) for wave in SHOP.waves(subset)] == ["orders alone", "report"]
    assert SHOP.waves([]) == ()


def test_dependents_are_transitive_without_the_roots_themselves() -> None:
    """A root is among the dependents only when it uses another root."""
    assert SHOP.dependents([node("rates")]) == {
        node(name) for name in ("priced", "daily", "billed", "report")
    }
    assert SHOP.dependents([node("rates"), node("daily")]) == {
        node(name) for name in ("priced", "daily", "billed", "report")
    }
    assert SHOP.dependents([node("report"), node("nobody")]) == frozenset()


def test_because_is_the_shortest_path_and_the_first_by_name() -> None:
    """The shortest path counts; among equally short ones the display names decide."""
    roots = frozenset({node("orders")})
    assert short(SHOP.because(roots, node("daily"))) == "orders daily"
    assert short(SHOP.because(roots, node("report"))) == "orders daily report"
    assert short(SHOP.because([node("rates")], node("report"))) == "rates priced billed report"
    both = frozenset({node("rates"), node("orders")})
    assert short(SHOP.because(both, node("priced"))) == "orders priced"
    assert short(SHOP.because(roots, node("orders"))) == "orders"
    assert SHOP.because(roots, node("alone")) == ()
    assert SHOP.because(frozenset({node("nobody")}), node("alone")) == ()


def test_because_compares_whole_paths_from_the_root() -> None:
    """The earlier step decides, not the last one."""
    # a -> z -> x        b -> c -> x, both shortest: the one that starts with a is taken.
    graph = build({"z": "a", "c": "b", "x": "z c"})
    roots = frozenset({node("a"), node("b")})
    assert short(graph.because(roots, node("x"))) == "a z x"


def test_a_cycle_is_an_error_that_prints_the_path() -> None:
    """The path starts at the lowest-ranked object on a cycle; each uses the next."""
    graph = build({"before": "c", "c": "b", "b": "a", "a": "c", "after": "", "z": "y", "y": "z"})
    with pytest.raises(DependencyCycle) as caught:
        graph.topological()
    assert str(caught.value) == (
        "CM0130: objects use each other in a circle: s.a -> s.c -> s.b -> s.a\n"
        "  remedy: take one of these references out"
    )
    assert caught.value.path == ("s.a", "s.c", "s.b", "s.a")
    assert short(graph.cycle()) == "a c b a"
    with pytest.raises(DependencyCycle):
        graph.waves()


def test_an_object_that_uses_itself_is_a_cycle() -> None:
    """A view of itself is the shortest circle."""
    with pytest.raises(DependencyCycle, match=r"circle: s\.v -> s\.v\n"):
        build({"v": "v t", "w": "v"}).topological()


def test_a_loop_is_the_shortest_way_back_to_one_object() -> None:
    """What merely waits behind a cycle is on none; each object of the path uses the next."""
    graph = build({"a": "b d", "b": "c", "c": "a", "d": "a", "behind": "a", "z": ""})
    assert short(graph.loop(node("c"))) == "c a b c"
    assert short(graph.loop(node("a"))) == "a d a"
    assert short(graph.loop(node("behind"))) == ""
    assert short(graph.loop(node("z"))) == ""
    assert short(build({"v": "v"}).loop(node("v"))) == "v v"


#   secret      cluster
#     |            / \
#    base         /   \          connections
#     |          /     \
#    kafka -----/-----  \
#       \      /      \  \
#        orders -------- copy     a source, and the sink that reads it
#                         |
#                        dead     table
STREAMS = DependencyGraph(
    {
        node("base"): [node("secret")],
        node("kafka"): [node("base")],
        node("orders"): [node("kafka"), node("cluster")],
        node("copy"): [node("orders"), node("kafka"), node("cluster"), node("dead")],
    },
    {
        node(name): ItemKey("s", kind, name)
        for name, kind in (
            ("secret", "secret"), ("base", "connection"), ("kafka", "connection"),
            ("cluster", "cluster"), ("orders", "source"), ("copy", "sink"), ("dead", "table"),
        )
    },
    {
        node("base"): {"secret:PASSWORD": node("secret"), "secret:USER": node("secret")},
        node("kafka"): {"connection": node("base")},
        node("orders"): {"connection": node("kafka"), "cluster": node("cluster")},
        node("copy"): {
            "reads": node("orders"), "connection": node("kafka"), "cluster": node("cluster"),
            "dead_letters": node("dead"),
        },
    },
)


def test_an_edge_has_the_roles_by_which_it_is_used() -> None:
    """Two options may name one secret; an edge of a view has no role."""
    assert STREAMS.roles(node("base"), node("secret")) == ("secret:PASSWORD", "secret:USER")
    assert STREAMS.roles(node("copy"), node("orders")) == ("reads",)
    assert STREAMS.roles(node("copy"), node("base")) == ()
    assert SHOP.roles(node("daily"), node("orders")) == ()


def test_dependents_by_role_pass_over_other_edges() -> None:
    """Whom a connection reaches by inheritance, and who reads a source, are two questions."""

    def by(role: str) -> Callable[[Identity, Identity], bool]:
        return lambda used, user: role in STREAMS.roles(user, used)

    by_connection = STREAMS.dependents([node("base")], edge=by("connection"))
    assert by_connection == {node("kafka"), node("orders"), node("copy")}
    assert STREAMS.dependents([node("cluster")], edge=by("connection")) == frozenset()
    assert STREAMS.dependents([node("orders")], edge=by("reads")) == {node("copy")}


def test_queries_are_ordered_by_what_they_read() -> None:
    """A source starts before the sink that reads it, whatever else both use."""
    assert [short(wave) for wave in STREAMS.waves([node("copy"), node("orders")])] == [
        "orders", "copy",
    ]  # fmt: skip


def test_a_part_has_the_edges_between_its_objects() -> None:
    """Roles come along; what is reached through others only is not reached in it."""
    part = STREAMS.part([node("kafka"), node("copy"), node("secret"), node("nobody")])
    assert short(part) == "kafka secret copy"
    assert part.uses(node("copy")) == (node("kafka"),)
    assert part.roles(node("copy"), node("kafka")) == ("connection",)
    assert part.dependents([node("secret")]) == frozenset()


def test_an_object_without_a_key_is_refused() -> None:
    """An identity that is used but has no key is a mistake of the caller, said by name."""
    key = ItemKey("s", "view", "v")
    with pytest.raises(UsageError, match="nobody"):
        DependencyGraph({key.identity: [node("nobody")]}, {key.identity: key})


KINDS = ("type", "function", "table", "view", "topic")


@st.composite
def dags(draw: st.DrawFn) -> tuple[dict[Identity, list[Identity]], dict[Identity, ItemKey]]:
    """Random acyclic graphs of up to 12 objects of all kinds, in random order of definition."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=12))
    labels = draw(st.permutations(range(len(kinds))))
    keys = [ItemKey("S", kind, f"O{label}") for kind, label in zip(kinds, labels, strict=True)]
    uses = {
        key.identity: [
            other.identity for other in draw(st.sets(st.sampled_from(keys[:place])))
        ] if place else []
        for place, key in enumerate(keys)
    }  # fmt: skip
    return uses, {key.identity: key for key in keys}


@given(dags())
def test_orders_waves_and_dependents_of_random_graphs_are_right(
    dag: tuple[dict[Identity, list[Identity]], dict[Identity, ItemKey]],
) -> None:
    """I1: what is used comes first, the lowest free object is next, waves and reach agree."""
    uses, keys = dag
    graph = DependencyGraph(uses, keys)
    order = graph.topological()
    assert sorted(order) == sorted(keys)
    assert graph.cycle() == ()
    done: set[Identity] = set()
    for current in order:
        free = [n for n in keys if n not in done and done.issuperset(uses[n])]
        assert current == min(free, key=lambda n: order_key(keys[n]))
        done.add(current)
    level = {n: number for number, wave in enumerate(graph.waves()) for n in wave}
    assert level == {n: max((level[used] + 1 for used in uses[n]), default=0) for n in keys}
    for root in keys:
        roots = frozenset({root})
        reach = graph.dependents(roots)
        for n in keys:
            path = graph.because(roots, n)
            assert bool(path) == (n in reach or n == root)
            assert all(a in uses[b] for a, b in itertools.pairwise(path))
            assert path == () or (path[0], path[-1]) == (root, n)


@given(dags(), st.randoms(use_true_random=False))
def test_nothing_depends_on_the_order_of_the_input(
    dag: tuple[dict[Identity, list[Identity]], dict[Identity, ItemKey]], chance: random.Random
) -> None:
    """I2: any permutation of objects and references gives the very same answers."""
    uses, keys = dag
    names = list(keys)
    roots = frozenset(chance.sample(names, k=1 + len(names) // 3))
    expected = DependencyGraph(uses, keys)
    chance.shuffle(names)
    shuffled = DependencyGraph(
        {n: chance.sample(uses[n], k=len(uses[n])) for n in names}, {n: keys[n] for n in names}
    )
    assert shuffled.topological() == expected.topological()
    assert shuffled.waves() == expected.waves()
    assert shuffled.waves(roots) == expected.waves(roots)
    for n in names:
        assert shuffled.because(roots, n) == expected.because(set(roots), n)
        assert shuffled.uses(n) == expected.uses(n)
        assert shuffled.users_of(n) == expected.users_of(n)


def test_ten_thousand_objects_are_ordered_and_explained() -> None:
    """A large graph needs no recursion: every object is ordered, and reached by a path."""
    chance = random.Random(7)
    keys = [ItemKey("s", "view", f"o{number}") for number in range(10_000)]
    names = [key.identity for key in keys]
    uses = {
        n: [names[chance.randrange(place)] for _ in range(3)] if place else []
        for place, n in enumerate(names)
    }
    graph = DependencyGraph(uses, dict(zip(names, keys, strict=True)))
    assert len(graph.topological()) == 10_000
    roots = frozenset(names[:1])
    reach = graph.dependents(roots)
    assert len(reach) == 9_999
    assert all(graph.because(roots, n)[0] == names[0] for n in reach)
