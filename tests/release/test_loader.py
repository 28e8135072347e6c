"""Loading releases: directories, manifests, and every error at once with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog_migrate.errors import InvalidRelease, UnsupportedFormat
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.release.digest import hash_file, hash_of
from catalog_migrate.release.loader import load_manifest, load_release, load_texts
from catalog_migrate.release.manifest import encode_manifest

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "postgres_catalog"

ORDERS = """
CREATE TYPE shop.money AS decimal(18, 2);
CREATE TABLE shop.orders (id BIGINT NOT NULL, total shop.money, extra STRUCT<paid: money>);
CREATE FUNCTION shop.vat(x shop.money) RETURNS shop.money RETURN x * 0.2;
"""
BIG = "CREATE VIEW Big (id LONG, tax Money) AS SELECT id, vat(total) FROM orders WHERE id > 1;"


def problems_of(*texts: str, default_schema: str | None = None) -> list[tuple[object, ...]]:
    """(file, line, column, code, message, remedy) of each problem."""
    with pytest.raises(InvalidRelease) as caught:
        load_texts(
            [(f"{chr(97 + number)}.sql", text) for number, text in enumerate(texts)],
            name="r", default_schema=default_schema,
        )
    return [
        (one.file, one.line, one.column, one.code, one.message, one.remedy)
        for one in caught.value.problems
    ]


@pytest.mark.parametrize(("version", "objects"), [("15", 208), ("16", 209), ("18", 213)])
def test_real_catalogs_load(version: str, objects: int) -> None:
    """PostgreSQL's own catalogs are valid releases, named by their manifests."""
    release = load_release(REAL / f"{version}.json")
    assert (release.name, len(release.objects)) == (version, objects)
    assert release.uses["relation", "information_schema", "_pg_foreign_data_wrappers"] == (
        ("relation", "pg_catalog", "pg_authid"),
        ("relation", "pg_catalog", "pg_foreign_data_wrapper"),
    )


def test_directory_is_resolved(tmp_path: Path) -> None:
    """Names get the default schema, user types are expanded, uses are identities."""
    (tmp_path / "nested").mkdir()
    (tmp_path / "a.sql").write_text(BIG, encoding="utf-8")
    (tmp_path / "nested" / "b.sql").write_text(ORDERS, encoding="utf-8")
    (tmp_path / "release.toml").write_text('name = "1.2"\ndefault_schema = "shop"\n')
    release = load_release(tmp_path)
    assert release.name == "1.2"
    big = release.by_identity["relation", "shop", "big"]
    assert [(column.name, column.type) for column in big.columns] == [
        ("id", "BIGINT"), ("tax", "DECIMAL(18,2)")
    ]
    assert big.sql == "SELECT id, shop.vat(total) FROM shop.orders WHERE id > 1"
    assert release.uses[big.identity] == (
        ("function", "shop", "vat"), ("relation", "shop", "orders"), ("type", "shop", "money")
    )
    assert release.places[big.identity] == ("a.sql", 1, 13)
    orders = release.by_identity["relation", "shop", "orders"]
    assert [column.type for column in orders.columns][1:] == [
        "DECIMAL(18,2)", "STRUCT<paid: DECIMAL(18,2)>"
    ]


def test_hash_ignores_order_and_blanks() -> None:
    """The manifest hash is that of the content: files, order and blanks play no role."""
    one = load_texts([("a", ORDERS + BIG)], name="r", default_schema="shop")
    spread = [("b", "-- c\n" + BIG.replace(") AS", ")\nAS")), ("a", ORDERS.replace(", ", " , "))]
    other = load_texts(spread, name="r", default_schema="shop")
    changed = load_texts([("a", ORDERS + BIG.replace("> 1", "> 2"))], name="r",
                         default_schema="shop")
    assert one.manifest_hash == other.manifest_hash != changed.manifest_hash


def test_relations_outside_are_ignored() -> None:
    """A relation of a schema that is not the release's is external, CTE names are no relations."""
    release = load_texts(
        [("a", "CREATE VIEW s.v (x INT) AS WITH q AS (SELECT x FROM ext.t) SELECT x FROM q")],
        name="r",
    )
    assert release.uses == {("relation", "s", "v"): ()}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE s.t (a INTT)",
         (1, 19, "CM0120", "column a of s.t has the unknown type INTT", "did you mean INT?")),
        ("CREATE TABLE s.t (a INT, A STRING)",
         (1, 14, "CM0103", "column A of s.t stands there twice",
          "names compare without case: keep one, or rename one")),
        ("CREATE TABLE s.t (a INT);\nCREATE VIEW S.T (a INT) AS SELECT 1",
         (2, 13, "CM0102", "S.T is declared twice, as table and as view, first in a.sql:1",
          "keep one, or rename one")),
        ("CREATE TABLE s.orders (a INT);\nCREATE VIEW s.v (a INT) AS\n  SELECT a FROM s.order",
         (3, 17, "CM0104", "s.v uses relation s.order, which the release does not declare",
          "did you mean s.orders?")),
        ("CREATE VIEW s.v (a INT) AS SELECT s.f(1)",
         (1, 35, "CM0104", "s.v uses function s.f, which the release does not declare",
          "declare the function")),
        ("CREATE VIEW s.v (a INT) AS SELECT a FROM t",
         (1, 42, "CM0109", "s.v uses t without a schema",
          "write schema.t, or set default_schema in release.toml")),
        ("CREATE VIEW s.v (a INT, b INT) AS SELECT a FROM x.t",
         (1, 35, "CM0105", "view s.v declares 2 columns, its query selects 1",
          "make the column list and the SELECT list equally long")),
        ("CREATE VIEW s.v AS SELECT a FROM x.t",
         (1, 13, "CM0107", "view s.v has no typed column list",
          "write the list, or have Spark do it: `catalog-migrate release compile --write DIR`")),
        ("CREATE VIEW s.a (x INT) AS SELECT x FROM s.b;"
         "CREATE VIEW s.b (x INT) AS SELECT x FROM s.c;"
         "CREATE VIEW s.c (x INT) AS SELECT x FROM s.a",
         (1, 13, "CM0130", "objects use each other: s.a -> s.b -> s.c -> s.a",
          "break the circle: one of them must not read the next")),
        ("CREATE VIEW s.a (x INT) AS SELECT x FROM s.a",
         (1, 13, "CM0130", "objects use each other: s.a -> s.a",
          "break the circle: one of them must not read the next")),
        ("CREATE TABLE s.t (a INT) DROPPED (A)",
         (1, 14, "CM0106", "s.t drops column A, which it also declares",
          "take the column out of the list, or out of DROPPED")),
        ("CREATE TABLE s.t (a INT RENAMED FROM b, b INT)",
         (1, 19, "CM0106", "column a of s.t is renamed from b, which s.t still declares",
          "take b out of the list, or RENAMED FROM")),
        ("CREATE TABLE s.t (a INT RENAMED FROM c, b INT RENAMED FROM c)",
         (1, 41, "CM0106", "columns a and b of s.t are both renamed from c",
          "one column can have only one successor")),
        ("CREATE TABLE s.t (a INT) RENAMED FROM s.T",
         (1, 14, "CM0106", "s.t is renamed from itself", "leave it out of RENAMED FROM")),
        ("CREATE TABLE s.t (a INT) RENAMED FROM s.x; CREATE TABLE s.u (a INT) RENAMED FROM x",
         (1, 57, "CM0106", "s.t and s.u are both renamed from x",
          "an object can have only one successor: take the name out of one of them")),
        ("CREATE TABLE s.t (a INT) PARTITIONED BY (b)",
         (1, 14, "CM0106", "s.t is partitioned by b, which is not one of its columns",
          "name a column of the table")),
        ("-- nothing", (None, None, "CM0112", "the release declares nothing",
                        "add a CREATE statement")),
    ],
)
def test_one_problem(sql: str, expected: tuple[object, ...]) -> None:
    """Each kind of mistake is reported once, at its place, with what to write instead."""
    problem, = problems_of(sql)
    assert problem[1:] == expected


def test_all_problems_of_all_files_at_once() -> None:
    """Syntax errors, unknown names, unknown types and circles of all files come together."""
    found = problems_of(
        "CREATE TABEL s.x (a INT);\nCREATE TABLE s.t (a NUMBERS);",
        "CREATE TYPE s.m AS s.n; CREATE TYPE s.n AS ARRAY<s.m>;\n"
        "CREATE VIEW s.v (a INT) AS SELECT a FROM s.v; "
        "CREATE VIEW s.w (a INT) AS SELECT a FROM s.q",
    )
    assert [(file, line, code) for file, line, _, code, *_ in found] == [
        ("a.sql", 1, "CM0101"), ("a.sql", 2, "CM0120"), ("b.sql", 1, "CM0130"),
        ("b.sql", 2, "CM0130"), ("b.sql", 2, "CM0104"),
    ]


def test_swapped_names_are_no_problem() -> None:
    """Two columns may swap their names: each is renamed from the other."""
    text = "CREATE TABLE s.t (a INT RENAMED FROM b, b INT RENAMED FROM a)"
    assert len(load_texts([("a", text)], name="r").objects) == 1


def test_one_earlier_name_of_two_is_no_problem_where_each_can_have_one() -> None:
    """After a swap a name may be in two lists: of who had it first, and of who got it."""
    text = (
        "CREATE TABLE s.c (x INT RENAMED FROM (y, z), z INT RENAMED FROM y)"
        " RENAMED FROM (a, b); CREATE TABLE s.b (a INT) RENAMED FROM a"
    )
    assert len(load_texts([("a", text)], name="r").objects) == 2


@pytest.mark.parametrize(
    ("data", "line", "column", "start"),
    [
        (b'{"format_version": "1.0",\n "release": x}', 2, 13, "not JSON: JSON is malformed"),
        (b'{"format_version": "1.0", "release"', 1, 36, "not JSON: Input data was truncated"),
        (b'{"format_version": "1.0", "release": "1"}', None, None,
         "Object missing required field `objects`"),
        (b'{"format_version": "x", "release": "1", "objects": []}', None, None,
         "format_version 'x' is not a version"),
        (b'{"format_version": "1.0", "release": "1", "objects": [{"schema": "s", "kind": "table",'
         b' "name": "t", "columns": [{"name": 1, "type": "INT"}]}]}', None, None,
         "Expected `str`, got `int` - at `$.objects[0].columns[0].name`"),
    ],
)
def test_unreadable_manifest(
    data: bytes, line: int | None, column: int | None, start: str
) -> None:
    """A broken manifest says where: line and column, or the path of the value."""
    with pytest.raises(InvalidRelease) as caught:
        load_manifest(data, file="m.json")
    problem, = caught.value.problems
    assert (problem.code, problem.file, problem.line, problem.column) == (
        "CM0108", "m.json", line, column
    )
    assert problem.message.startswith(start)


def test_newer_major_is_refused_and_newer_minor_read() -> None:
    """A manifest of a newer major version is refused whatever else it holds; a minor one is not."""
    with pytest.raises(UnsupportedFormat, match=r"m\.json has format_version 3\.0"):
        load_manifest(b'{"format_version": "3.0", "things": []}', file="m.json")
    data = {
        "format_version": "1.7", "release": "1", "news": 1,
        "objects": [{"schema": "s", "kind": "table", "name": "t", "other": {},
                     "columns": [{"name": "a", "type": "integer", "new": None}]}],
    }
    release = load_manifest(json.dumps(data).encode())
    assert release.objects[0].columns[0].type == "INT"


@pytest.mark.parametrize(("text", "version"), [
    ("CREATE TABLE t (a INT); CREATE FUNCTION f(x INT) RETURNS INT RETURN x;", "1.0"),
    ("CREATE TABLE t (a INT); CREATE FUNCTION f(x INT) RETURN x;", "2.0"),
    ("CREATE TABLE t (a INT) FILLED FROM (SELECT a FROM u);", "2.0"),
])
def test_what_older_tools_would_misread_is_of_format_2(text: str, version: str) -> None:
    """A manifest has the oldest format whose readers misread nothing in it, and is read back."""
    release = load_texts([("all.sql", text)], name="1", default_schema="s")
    data = encode_manifest("1", release.objects)
    assert json.loads(data)["format_version"] == version
    assert encode_manifest("1", load_manifest(data).objects) == data


def test_declared_dependencies_win_and_bare_names_are_relations() -> None:
    """``depends_on`` stands above the SQL; unknown names of the release's schemas are problems."""
    view = {"schema": "s", "kind": "view", "name": "v", "columns": [{"name": "a", "type": "INT"}],
            "sql": "SELECT a FROM s.other", "depends_on": ["s.T", "ext.x"]}
    table = {"schema": "s", "kind": "table", "name": "t", "columns": [{"name": "a", "type": "INT"}]}
    data = {"format_version": "1.0", "release": "1", "objects": [view, table]}
    release = load_manifest(json.dumps(data).encode())
    assert release.uses["relation", "s", "v"] == (("relation", "s", "t"),)
    view["depends_on"] = ["s.tt"]
    with pytest.raises(InvalidRelease, match=r"s\.v uses relation s\.tt"):
        load_manifest(json.dumps(data).encode())


def test_a_file_has_the_hash_of_the_loaded_release(tmp_path: Path) -> None:
    """By its bytes, whatever they say: one more blank makes another hash."""
    table = {"schema": "s", "kind": "table", "name": "t", "columns": [{"name": "a", "type": "INT"}]}
    path = tmp_path / "7.json"
    data = json.dumps({"format_version": "1.0", "release": "7", "objects": [table]}).encode()
    path.write_bytes(data)
    assert hash_file(path) == load_manifest(data).manifest_hash
    path.write_bytes(data + b" ")
    assert hash_file(path) == load_manifest(data + b" ").manifest_hash != hash_of(data)
    path.write_bytes(data[:-1])
    with pytest.raises(InvalidRelease):
        hash_file(path, default_schema="s")


def test_a_large_file_is_hashed_piece_by_piece(tmp_path: Path) -> None:
    """Whatever is larger than the piece that is read at once has the hash of all its bytes."""
    path = tmp_path / "large.json"
    path.write_bytes(data := bytes(range(256)) * 9000)
    assert hash_file(path) == hash_of(data)


def test_another_default_schema_is_another_release(tmp_path: Path) -> None:
    """A default schema from outside changes what names mean, so it changes the hash too."""
    view = {"schema": "s", "kind": "view", "name": "v", "columns": [{"name": "a", "type": "INT"}],
            "sql": "SELECT a FROM t"}
    table = {"schema": "s", "kind": "table", "name": "t", "columns": [{"name": "a", "type": "INT"}]}
    data = json.dumps({
        "format_version": "1.0", "release": "1", "default_schema": "s", "objects": [view, table],
    }).encode()
    own, same, other = (
        load_manifest(data, default_schema=schema).manifest_hash for schema in (None, "s", "x")
    )
    assert own == same != other
    path = tmp_path / "1.json"
    path.write_bytes(data)
    for schema, hashed in ((None, own), ("s", same), ("x", other)):
        assert hash_file(path, default_schema=schema) == hashed


def test_missing_and_empty_paths(tmp_path: Path) -> None:
    """A path with nothing usable at it is said so."""
    with pytest.raises(InvalidRelease, match="No such file or directory"):
        load_release(tmp_path / "none")
    with pytest.raises(InvalidRelease, match=r"holds no \*.sql file"):
        load_release(tmp_path)


def test_unknown_settings_are_errors(tmp_path: Path) -> None:
    """Keys of release.toml that mean nothing are refused with a suggestion."""
    (tmp_path / "a.sql").write_text("CREATE TABLE s.t (a INT);")
    (tmp_path / "release.toml").write_text('default_shema = "s"\n')
    with pytest.raises(InvalidRelease, match=r"did you mean default_schema\?"):
        load_release(tmp_path)


def test_broken_settings_are_said_with_their_place(tmp_path: Path) -> None:
    """A release.toml that is not TOML, or whose values are no texts, is refused by name."""
    (tmp_path / "a.sql").write_text("CREATE TABLE s.t (a INT);")
    (tmp_path / "release.toml").write_text("name = \n")
    with pytest.raises(InvalidRelease, match="line 1"):
        load_release(tmp_path)
    (tmp_path / "release.toml").write_text("name = 3\n")
    with pytest.raises(InvalidRelease, match="name is not a text"):
        load_release(tmp_path)


def test_our_own_schema_is_reserved() -> None:
    """An object there would be in the way of our own views at every start: refused with its place,
    in SQL and in a manifest, also in the schema that a second installation would have."""
    text = (
        "CREATE TABLE shop.t (id BIGINT);\n"
        "CREATE TABLE Catalog_Migrate.t (id BIGINT);\n"
        "CREATE VIEW catalog_migrate_0a1b2c3d.releases (id BIGINT) AS SELECT id FROM shop.t;\n"
        "CREATE TABLE catalog_migrate_shop.t (id BIGINT);\n"
    )
    found = problems_of(text)
    assert [entry[:4] for entry in found] == [
        ("a.sql", 2, 14, "CM0116"), ("a.sql", 3, 13, "CM0116")
    ]
    assert "reserved" in str(found[0][4])
    manifest = {
        "format_version": "1.0", "release": "r", "objects": [{
            "schema": "catalog_migrate", "kind": "table", "name": "t",
            "columns": [{"name": "id", "type": "BIGINT"}],
        }],
    }
    with pytest.raises(InvalidRelease) as caught:
        load_manifest(json.dumps(manifest).encode(), file="r.json")
    assert [(p.code, p.file) for p in caught.value.problems] == [("CM0116", "r.json")]


def test_what_is_given_up_is_not_declared() -> None:
    """DROPPED TABLE names a table that is gone: a declared one, a function, a broken list."""
    for text, code, said in (
        ("DROPPED TABLE s.U;", "CM0106", "the release drops table s.u, which it also declares"),
        ("DROPPED TABLE gone;", "CM0109", "gone has no schema"),
        ("DROPPED TABLE s.a s.b;", "CM0101", "expected `,` or the end of the statement"),
        ("DROPPED VIEW s.a;", "CM0101", "expected TABLE, found 'VIEW'"),
    ):
        with pytest.raises(InvalidRelease) as refused:
            load_texts([("a.sql", "CREATE TABLE s.u (a INT);\n" + text)], name="r")
        (problem,) = refused.value.problems
        assert (problem.code, problem.line) == (code, 2)
        assert said in problem.message
    view = "CREATE TABLE s.u (a INT); CREATE VIEW s.t (a INT) AS SELECT a FROM s.u; "
    assert load_texts([("a.sql", view + "DROPPED TABLE s.t")], name="r").dropped == ("s.t",)


def test_a_release_without_a_default_schema_hides_no_other_problem() -> None:
    """Names without a schema are told one by one, and everything else that is wrong as well."""
    found = problems_of(
        "CREATE TYPE m AS DECIMAL(18,2);\nCREATE TABLE t (a INTT, b m, B m);",
        "CREATE VIEW v (a INT, b INT) AS SELECT a FROM t;\n"
        "CREATE VIEW w (a INT) AS SELECT a FORM t;\nCREATE VIEW x (a INT) AS SELECT a FROM no;",
    )
    assert [(file, line, code) for file, line, _, code, *_ in found] == [
        ("a.sql", 1, "CM0109"), ("a.sql", 2, "CM0103"), ("a.sql", 2, "CM0109"),
        ("a.sql", 2, "CM0120"), ("b.sql", 1, "CM0109"), ("b.sql", 1, "CM0105"),
        ("b.sql", 2, "CM0109"), ("b.sql", 2, "CM0119"), ("b.sql", 3, "CM0109"),
        ("b.sql", 3, "CM0109"),
    ]
    assert found[3][4] == "column a of t has the unknown type INTT"


def test_a_whole_schema_may_be_renamed(tmp_path: Path) -> None:
    """release.toml says it once; a name without a schema is looked for in the earlier one too."""
    (tmp_path / "a.sql").write_text(
        "CREATE TABLE shop.t (a INT);\nCREATE TABLE Shop.u (a INT) RENAMED FROM (was, x.`y z`);\n"
        "CREATE VIEW other.v (a INT) AS SELECT a FROM shop.t;\n"
        "CREATE FUNCTION shop.f(x INT) RETURNS INT RETURN x;"
    )
    (tmp_path / "release.toml").write_text('[schema.SHOP]\nrenamed_from = ["store", "st-1"]\n')
    release = load_release(tmp_path)
    assert {str(one.key): one.earlier_names for one in release.objects} == {
        "shop.t": ("store.t", "`st-1`.t"),
        "Shop.u": ("was", "store.was", "`st-1`.was", "x.`y z`", "store.u", "`st-1`.u"),
        "other.v": (), "function:shop.f": ("store.f", "`st-1`.f"),
    }
    old = load_texts(
        [("a", "CREATE TABLE store.t (a INT); CREATE TABLE store.was (a INT);"
          "CREATE FUNCTION store.f(x INT) RETURNS INT RETURN x;"
          "CREATE VIEW other.v (a INT) AS SELECT a FROM store.t;")], name="1",
    )
    plan = plan_migration(Baseline.from_release(old), release).plan
    assert plan.summary["drop"] == plan.summary["create"] == 0
    assert {one.name: one.old_name for one in plan.changes if one.old_name} == {
        "shop.t": "store.t", "Shop.u": "store.was", "function:shop.f": "function:store.f",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[schema]\nshop = 1", "schema shop is not told what it was"),
        ("[schema.shop]\nrenamed_from = []", "schema shop is not told what it was"),
        ("[schema.shop]\nfrom = 'x'", "schema shop is not told what it was"),
        ("[schema.shop]\nrenamed_from = 'SHOP'", "schema shop is renamed from itself"),
        ("[schema.shp]\nrenamed_from = 'x'", "schema shp is renamed, and the release has nothing"),
        ("schema = 3", "is not told what it was"),
    ],
)
def test_a_schema_that_is_renamed_wrongly(tmp_path: Path, text: str, said: str) -> None:
    """What does not say which schema it was, or means none of the release, is an error."""
    (tmp_path / "a.sql").write_text("CREATE TABLE shop.t (a INT);")
    (tmp_path / "release.toml").write_text(text)
    with pytest.raises(InvalidRelease, match=said):
        load_release(tmp_path)


def test_properties_are_checked_with_their_places(tmp_path: Path) -> None:
    """Wrong properties of tables are told where they stand, in SQL files and in manifests."""
    text = (
        "CREATE TABLE s.t (id INT) WITH ('my.prop' = 'x',\n"
        "  'delta.logRetentionDuration' = 'abc', delta.enableChangeDataFeeed = true,\n"
        "  'content' = 'derived');\n"
        "CREATE VIEW s.v (id INT) WITH ('catalog_migrate.x' = '1', 'content' = 'x')\n"
        "  AS SELECT id FROM s.t"
    )
    assert [(one[1], one[2], one[3]) for one in problems_of(text)] == [
        (2, 3, "CM0124"), (2, 41, "CM0125"), (3, 3, "CM0124"), (4, 32, "CM0124"),
    ]
    manifest = json.dumps({
        "format_version": "1.0", "release": "1", "objects": [{
            "schema": "s", "kind": "table", "name": "t",
            "columns": [{"name": "id", "type": "INT"}],
            "properties": {"delta.minReaderVersion": "3"},
        }],
    })
    file = tmp_path / "release.json"
    file.write_text(manifest, encoding="utf-8")
    with pytest.raises(InvalidRelease) as caught:
        load_release(file)
    (problem,) = caught.value.problems
    assert (problem.file, problem.code, problem.text) == (
        str(file), "CM0124", "delta.minReaderVersion"
    )


def test_the_policy_allows_properties_that_are_not_known(tmp_path: Path) -> None:
    """A rule names the key; nothing else but ``allow`` lets it pass, and no wrong value."""
    (tmp_path / "a.sql").write_text(
        "CREATE TABLE s.t (id INT) WITH ('delta.mine' = 'x', 'DELTA.APPENDONLY' = 'true')"
    )

    def load(action: str, name: str) -> dict[str, str]:
        rules = (Rule("unknown_property", action, name),)
        release = load_release(tmp_path, policy=Policy(rules=rules))
        return release.by_identity["relation", "s", "t"].properties

    assert load("allow", "delta.m*") == {"delta.mine": "x", "delta.appendOnly": "true"}
    for action, name in [("allow", "delta.other"), ("approve", "*"), ("refuse", "*")]:
        with pytest.raises(InvalidRelease, match="CM0125"):
            load(action, name)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_in_spark(end: str) -> None:
    """A ``--`` comment ends with CR as with LF, and places are counted by both."""
    text = end.join((
        "CREATE TABLE s.t (id INT);", "-- c", "CREATE VIEW s.v (id INT) AS SELECT id -- d",
        "FROM s.t;", "CREATE VIEW s.w (id INT) AS SELECT id FROM s.nowhere;",
    ))
    with pytest.raises(InvalidRelease) as caught:
        load_texts([("r.sql", text)], name="r")
    [problem] = caught.value.problems
    assert (problem.code, problem.line, problem.column) == ("CM0104", 5, 44)
    assert len(load_texts([("r.sql", text.replace("nowhere", "t"))], name="r").objects) == 3


def test_a_comment_that_ends_in_a_backslash_goes_on() -> None:
    """The next line belongs to it, unless the line ends with CR LF."""
    for end, objects in (("\n", 1), ("\r\n", 2)):
        text = f"CREATE TABLE s.t (id INT);\n-- c\\{end}CREATE TABLE s.u (id INT);"
        assert len(load_texts([("r.sql", text)], name="r").objects) == objects


def test_a_mark_at_the_start_of_a_file_is_no_text(tmp_path: Path) -> None:
    """A byte order mark is left out; it is no letter of the first word."""
    (tmp_path / "a.sql").write_bytes(b"\xef\xbb\xbfCREATE TABLE s.t (id INT);\r\n")
    assert len(load_release(tmp_path).objects) == 1
