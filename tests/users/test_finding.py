"""Which users' views and functions read ours: by text, through each other, in circles."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.config import load
from catalog_migrate.engine.port import UserDefinition, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.names import ItemKey, ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.users.finding import Readers, find_readers, list_definitions
from catalog_migrate.users.settings import UserSettings, users_of

ORDERS = ("relation", "shop", "orders")
TAX = ("function", "shop", "tax")
OURS = frozenset({ORDERS, TAX})


def view(name: str, sql: str, **more) -> UserDefinition:
    """A user's view ``team.name``, or ``schema.name`` where that is written."""
    schema, _, bare = name.rpartition(".")
    return UserDefinition(ItemName(schema or "team", bare), "view", sql, **more)


def function(name: str, sql: str, **more) -> UserDefinition:
    """A user's function ``team.name``."""
    return UserDefinition(ItemName("team", name), "function", sql, **more)


def shown(found: Readers) -> dict[str, str]:
    """The names of what reads ours, and of what each reads directly."""
    return {
        str(found.graph.key(node).item_name): " ".join(
            str(found.graph.key(used).item_name) for used in found.graph.uses(node)
        )
        for node in found.definitions
    }


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM shop.orders",
        "SELECT * FROM SHOP.`Orders` AS o",
        "SELECT * FROM spark_catalog.shop.orders",
        "SELECT 1 AS a, (SELECT max(id) FROM shop.orders) AS b",
        "WITH o AS (SELECT * FROM shop.orders) SELECT * FROM o",
        "SELECT * FROM range(3) AS r JOIN shop.orders AS o ON r.id = o.id",
        "SELECT * FROM range(3) WHERE id IN (SELECT id FROM shop.orders)",
        "SELECT shop.tax(1) AS t",
        "SELECT * FROM shop.tax(1)",
        "SELECT * FROM VALUES (1), (2) AS v(a) UNION ALL TABLE shop.orders",
        "FROM shop.orders |> WHERE id > 1 |> SELECT id",
        "SELECT transform(array(1), x -> shop.tax(x)) AS t",
        "SELECT * FROM IDENTIFIER('shop' || '.orders')",
        "SELECT /* shop.other */ id -- shop.other\nFROM shop.orders",
    ],
)
def test_a_text_that_names_one_of_ours_reads_it(sql):
    """Wherever a query may name a relation or function, and however the name is written."""
    assert list(find_readers([view("v", sql)], OURS).definitions) == [("relation", "team", "v")]


@pytest.mark.parametrize(
    ("sql", "more"),
    [
        ("SELECT 'shop.orders' AS name -- FROM shop.orders", {}),
        ("SELECT * FROM other.shop.orders", {}),
        ("SELECT * FROM orders", {}),
        ("SELECT * FROM shop.orders", {"namespace": ""}),
        ("WITH orders AS (SELECT 1 AS a) SELECT * FROM orders", {"namespace": "shop"}),
        ("SELECT orders.shop, shop.orders FROM team.t AS shop", {}),
        ("SELECT CAST(1 AS INT) AS orders", {"namespace": "shop"}),
        ("SELECT tax(1) AS t, team.tax(2) AS u", {"namespace": "team"}),
        ("SELECT * FROM team.orders JOIN shop_old.orders", {}),
        ("SELECT * FROM delta.`/rows/shop.orders`", {}),
    ],
)
def test_a_text_that_has_the_words_alone_reads_nothing_of_ours(sql, more):
    """In a string, a comment or a column, of another catalog or namespace, a name is another."""
    assert not find_readers([view("v", sql, **more)], OURS).definitions


def test_a_name_without_a_schema_is_of_the_views_namespace():
    """As Spark resolves it, whatever the session's schema is, functions alike."""
    read = view("v", "SELECT tax(id) FROM orders", namespace="SHOP")
    assert shown(find_readers([read], OURS)) == {"team.v": "shop.tax shop.orders"}


def test_ours_is_what_the_sessions_catalog_has():
    """In a catalog of another name, ``spark_catalog`` is a foreign one."""
    views = [view("a", "SELECT * FROM glue.shop.orders"),
             view("b", "SELECT * FROM spark_catalog.shop.orders"),
             view("c", "SELECT * FROM shop.orders")]
    assert list(shown(find_readers(views, OURS, catalog="GLUE"))) == ["team.a", "team.c"]


#   shop.orders <- team.a <- team.b <- team.c      team.f <- team.d      team.alone
#       ^                      |
#       +----------------------+
def test_what_reads_a_users_view_that_reads_ours_is_found_too():
    """Through any number of views and functions of users; only what leads to ours is kept."""
    definitions = [
        view("c", "SELECT * FROM team.b"), view("b", "SELECT * FROM team.a, shop.orders"),
        view("a", "SELECT * FROM shop.orders"), function("f", "(SELECT max(id) FROM team.c)"),
        view("d", "SELECT team.f() AS f"), view("alone", "SELECT * FROM team.nothing"),
    ]
    found = find_readers(definitions, OURS)
    assert shown(found) == {
        "team.f": "team.c", "team.a": "shop.orders", "team.b": "shop.orders team.a",
        "team.c": "team.b", "team.d": "team.f",
    }
    assert [" ".join(node[2] for node in wave) for wave in found.waves] == ["a", "b", "c", "f", "d"]
    assert not found.in_circles
    because = found.graph.because(frozenset({ORDERS}), ("relation", "team", "d"))
    assert [node[2] for node in because] == ["orders", "b", "c", "f", "d"]


def test_edges_among_ours_are_kept():
    """A user's view over a view of ours is explained from the table that changes."""
    keys = [ItemKey("shop", "table", "orders"), ItemKey("shop", "view", "open")]
    ours = DependencyGraph(
        {keys[1].identity: [keys[0].identity]}, {key.identity: key for key in keys}
    )
    found = find_readers([view("v", "SELECT * FROM shop.open")], ours)
    because = found.graph.because(frozenset({ORDERS}), ("relation", "team", "v"))
    assert [str(found.graph.key(node)) for node in because] == [
        "shop.orders", "shop.open", "team.v",
    ]
    assert list(found.definitions) == [("relation", "team", "v")]


def test_circles_among_users_objects_are_the_last_wave():
    """Two that read each other, one that reads itself, and what reads them, have no order."""
    definitions = [
        view("a", "SELECT * FROM team.b, shop.orders"), view("b", "SELECT * FROM team.a"),
        view("self", "SELECT * FROM team.self JOIN shop.orders"),
        view("on", "SELECT * FROM team.b"), view("plain", "SELECT * FROM shop.orders"),
        view("other", "SELECT * FROM team.else"), view("else", "SELECT * FROM team.other"),
    ]
    found = find_readers(definitions, OURS)
    assert sorted(node[2] for node in found.definitions) == ["a", "b", "on", "plain", "self"]
    assert sorted(node[2] for node in found.in_circles) == ["a", "b", "on", "self"]
    assert [[node[2] for node in wave] for wave in found.waves] == [
        ["plain"], ["a", "b", "on", "self"],
    ]


def test_a_definition_under_a_name_of_ours_is_no_users():
    """Such a name is compared with the release elsewhere; one of another kind is a user's."""
    definitions = [
        view("shop.orders", "SELECT * FROM team.v"), view("v", "SELECT * FROM shop.orders"),
        view("shop.tax", "SELECT * FROM shop.orders"),
    ]
    assert list(shown(find_readers(definitions, OURS))) == ["shop.tax", "team.v"]


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT "id" FROM "shop"."orders"',
        "SELECT split(n, '\\') AS a FROM shop.orders WHERE n <> '\\'",
        "SELECT * FROM IDENTIFIER(concat(lower('SHOP'), '.ORDERS'))",
        "SELECT * FROM ${where}",
        'SELECT "shop"."tax"(1) AS t',
        "SELECT 1 /* shop.orders",
    ],
)
def test_spark_is_asked_where_it_alone_can_read_the_names(sql):
    """And where it refuses, or nobody is asked, the object is unread with the reason."""
    theirs = view("v", sql)
    found = find_readers([theirs], OURS, relations_read=lambda _: [ItemName("shop", "Orders")])
    assert shown(found) == {"team.v": "shop.orders"}
    assert found.unclear == {("relation", "team", "v")}
    assert not find_readers([theirs], OURS, relations_read=lambda _: []).definitions

    def refuse(_):
        raise EngineFailure("cannot analyse team.v: no such column", condition="UNRESOLVED_COLUMN")

    (unread,) = find_readers([theirs], OURS, relations_read=refuse).unread
    assert unread.unread == (
        "its text has names that only Spark can read, and cannot analyse team.v: no such column"
    )
    (unread,) = find_readers([theirs], OURS).unread
    assert unread.unread == "its text has names that only Spark can read"


@pytest.mark.parametrize(
    ("sql", "unclear"),
    [
        ("SELECT * FROM shop.orders", False),
        ('SELECT "a".id FROM shop.orders AS "a"', False),
        ("SELECT * FROM shop.orders AS a, IDENTIFIER(lower('SHOP.ORDERS')) AS b", True),
        ("SELECT id FROM shop.orders, ${more}", True),
    ],
)
def test_a_name_that_can_be_read_and_one_that_cannot(sql, unclear):
    """What Spark says is read may stand there to be read, and by an expression besides."""
    found = find_readers(
        [view("v", sql)], OURS, relations_read=lambda _: [ItemName("shop", "orders")]
    )
    assert bool(found.unclear) is unclear


def test_spark_is_not_asked_about_what_cannot_read_ours():
    """A text without a word of one of ours, or of what reads ours, costs no analysis."""
    asked = []

    def answer(definition):
        asked.append(definition.name.name)
        below = {"b": "a", "c": "b"}.get(definition.name.name)
        return [] if below is None else [ItemName("team", below), ItemName("shop", "orders")]

    definitions = [
        view("c", 'SELECT * FROM "team"."b"'), view("b", 'SELECT * FROM "team"."a"'),
        view("a", "SELECT * FROM shop.orders"), view("z", 'SELECT * FROM "team"."y"'),
    ]
    found = find_readers(definitions, OURS, relations_read=answer)
    assert asked == ["b", "c"]
    assert list(shown(found)) == ["team.a", "team.b", "team.c"]


def test_what_cannot_be_read_stays_apart():
    """One without a text is neither a reader nor forgotten."""
    closed = view("closed", "", unread="no permission")
    found = find_readers([closed, view("v", "SELECT * FROM shop.orders")], OURS)
    assert list(shown(found)) == ["team.v"]
    assert found.unread == (closed,)


def test_thousands_of_objects_and_a_text_of_5_mb_take_seconds():
    """A chain of 3,000 views, 3,000 that read something else, and one very long text."""
    keys = ", ".join(f"'customer of the year {number:029d}'" for number in range(94_000))
    long = f"SELECT * FROM shop.orders WHERE id IN ({keys})"
    assert len(long) > 5_000_000
    definitions = [view("v0", "SELECT * FROM shop.orders"), view("long", long)]
    definitions += [view(f"v{n}", f"SELECT * FROM team.v{n - 1}") for n in range(1, 3000)]
    definitions += [view(f"w{n}", f"SELECT * FROM team.w{n - 1}") for n in range(3000)]
    began = time.process_time()
    found = find_readers(definitions, OURS)
    assert len(found.definitions) == 3001
    assert len(found.waves) == 3000
    assert time.process_time() - began < 10


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


@given(st.dictionaries(NAMES, st.sets(st.one_of(NAMES, st.just("shop.orders")), max_size=3)))
def test_found_is_what_leads_to_ours_by_any_way(reads):
    """Whatever reads whatever, circles included: the least set that is closed under reading."""
    definitions = [
        view(name, "SELECT * FROM " + ", ".join(
            other if "." in other else f"team.{other}" for other in sorted(used)
        )) for name, used in reads.items() if used
    ]
    wanted: set[str] = set()
    while more := {
        name for name, used in reads.items() if used & {*wanted, "shop.orders"}
    } - wanted:
        wanted |= more
    found = find_readers(definitions, OURS)
    assert {node[2] for node in found.definitions} == wanted
    waves = found.waves
    assert sorted(node[2] for wave in waves for node in wave) == sorted(wanted)


# -- listing -----------------------------------------------------------------------------------


class Refusing(SimulatedEngine):
    """An engine whose catalog refuses to list the schema ``closed``."""

    def user_definitions(self, schema, *, but=()):
        if schema == "closed":
            raise EngineFailure("cannot list the schema closed: no permission")
        return super().user_definitions(schema, but=but)


@pytest.fixture
def engine():
    """Schemas shop, team, team_old, closed; a view v in each of the first three."""
    engine = Refusing()
    for schema in ("shop", "team", "team_old", "closed"):
        engine.ensure_schema(schema)
    for schema in ("shop", "team", "team_old"):
        name = ItemName(schema, "v")
        engine.create_view(ViewSpec(name, (Column("a", "INT", False),), "SELECT 1 AS a"))
    return engine


@pytest.mark.parametrize(
    ("settings", "names", "unlisted"),
    [
        (UserSettings(), ["shop.v", "team.v", "team_old.v"], ["closed"]),
        (UserSettings(schemas=("TEAM", "shop")), ["shop.v", "team.v"], []),
        (UserSettings(schemas=("team*",), exclude=("team_old",)), ["team.v"], []),
        (UserSettings(exclude=("*.V",)), [], ["closed"]),
        (UserSettings(exclude=("closed", "shop.*"), threads=1), ["team.v", "team_old.v"], []),
        (UserSettings(schemas=("teem", "team")), ["team.v"], ["teem"]),
    ],
)
def test_settings_say_which_schemas_and_objects_are_looked_at(engine, settings, names, unlisted):
    """A schema that is excluded is not asked for; one that is refused or missing is reported."""
    listing = list_definitions(engine, settings)
    assert sorted(str(each.name) for each in listing.definitions) == names
    assert sorted(listing.unlisted) == unlisted


def test_names_of_ours_are_not_looked_at(engine):
    """What is in force under a name costs nothing here."""
    listing = list_definitions(engine, UserSettings(), ours={("relation", "shop", "v")})
    assert sorted(str(each.name) for each in listing.definitions) == ["team.v", "team_old.v"]


def test_a_catalog_that_does_not_list_its_schemas_is_a_line(engine):
    """Nothing is raised: the reason is under the empty name."""

    def refuse(method):
        if method == "schemas":
            raise EngineFailure("cannot list the schemas: the metastore does not answer")

    engine.on_call = refuse
    listing = list_definitions(engine, UserSettings())
    assert listing.definitions == ()
    assert listing.unlisted == {"": "cannot list the schemas: the metastore does not answer"}


def test_the_configuration_says_which(tmp_path):
    """Keys of ``[users]``: lists with commas, a number, a choice that may be a boolean."""
    file = tmp_path / "catalog_migrate.toml"
    file.write_text(
        '[users]\nschemas = "team, lab_*"\nexclude = "lab_x,team.old_*"\nthreads = 2\n'
        "repair = true\n"
    )
    assert users_of(load(tmp_path, env={})) == UserSettings(
        ("team", "lab_*"), ("lab_x", "team.old_*"), 2, True
    )
    file.unlink()
    assert users_of(load(tmp_path, env={})) == UserSettings()
