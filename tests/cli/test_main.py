"""The command line without Spark: exit codes, streams, help, and what is imported."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.catalog.records import RECONCILE, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.cli.group import GROUPS, VERBS
from catalog_migrate.cli.main import main
from catalog_migrate.errors import CatalogMigrateError
from tests.decisions import Changes, commit


class Answer(NamedTuple):
    """What a call left."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs a command line in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Answer:
        capsys.readouterr()
        code = main(args)
        return Answer(code, *capsys.readouterr())

    return run


def manifest(path: Path, name: str, columns: list[tuple[str, str]]) -> str:
    """Write a manifest of one table and return its path."""
    path.write_text(json.dumps({
        "format_version": "1.1", "release": name,
        "objects": [{
            "schema": "s", "kind": "table", "name": "t",
            "columns": [{"name": column, "type": kind} for column, kind in columns],
        }],
    }))
    return str(path)


def bring_in_force(place: Path, release: str, warehouse: str = "warehouse") -> None:
    """A catalog in ``<place>/c`` with this release, its names simulated, its tables empty."""
    from catalog_migrate.catalog.clock import SystemClock
    from catalog_migrate.catalog.opening import open_log
    from catalog_migrate.engine.port import ShardSpec
    from catalog_migrate.engine.spark.shards import Shards
    from catalog_migrate.release.loader import load_release
    from catalog_migrate.testing.engine import SimulatedEngine
    from catalog_migrate.testing.starts import migrate

    engine = SimulatedEngine(persistent=True)
    migrate(
        engine, open_log(str(place / "c")), load_release(release),
        warehouse=str(place / warehouse), clock=SystemClock(), holder="a test",
    )
    for path, shard in engine.world.shards.items():
        Shards(None).create_shard(ShardSpec(path, shard.versions[-1].columns))


def test_version_imports_nothing_heavy() -> None:
    """Neither form of the question imports click, msgspec or any verb."""
    code = (
        "import sys; from catalog_migrate.cli.main import main; main(['--version']);"
        "main(['version']);"
        "print(sorted({'click', 'msgspec', 'pyspark', 'deltalake'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines() == ["catalog-migrate 0.1.0", "catalog-migrate 0.1.0", "[]"]


def test_nothing_is_collected_at_the_end() -> None:
    """What a verb has made and imported is out of the collector's sight when the process ends:
    looking for cycles then takes a sixth of a short verb."""
    code = (
        "import atexit, gc; atexit.register(lambda: print(len(gc.get_objects()) < 1_000));"
        "from catalog_migrate.cli.main import main; main(['config', '--help'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines()[-1] == "True"


def test_planning_imports_no_spark(tmp_path: Path) -> None:
    """`diff` runs to its end without pyspark, deltalake, networkx or rich."""
    old = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    code = (
        "import sys; from catalog_migrate.cli.main import main;"
        f"main(['diff', {old!r}, {old!r}]);"
        "heavy = {'pyspark', 'deltalake', 'networkx', 'rich', 'pyarrow'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_release_in_force_is_planned_without_reading_it(tmp_path: Path) -> None:
    """The plan of the manifest in force says that nothing changes and loads no release."""
    release = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    bring_in_force(tmp_path, release)
    code = (
        "import sys; from catalog_migrate.cli.main import main;"
        f"main(['plan', '--release', {release!r}, '--catalog', {str(tmp_path / 'c')!r}]);"
        "heavy = {'catalog_migrate.release.loader', 'catalog_migrate.planner.planning'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines() == [
        "NOTHING TO DO: 1 object unchanged", "from 1 (serial 1) to 1", "[]"
    ]


def test_looking_at_a_catalog_needs_neither_the_graph_library_nor_streams(tmp_path: Path) -> None:
    """`status` and `show` of a catalog of tables, and a plan whose release changes nothing."""
    release = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    bring_in_force(tmp_path, release)
    again = manifest(tmp_path / "again.json", "again", [("a", "INT")])
    code = (
        "import sys; from catalog_migrate.cli.main import main;"
        f"at = ['--catalog', {str(tmp_path / 'c')!r}];"
        f"main(['status', *at]); main(['show', 's.t', *at]);"
        f"main(['plan', '--release', {again!r}, *at]);"
        "print([m for m in sys.modules if m == 'networkx' or m.startswith("
        "'catalog_migrate.streams.') and not m.endswith('.migrations')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_plan_says_that_a_start_has_not_finished(call: Call, tmp_path: Path) -> None:
    """Ctrl-C after a commit: names may be absent, though no object of the release changes."""
    release = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    bring_in_force(tmp_path, release)
    at = ("--catalog", str(tmp_path / "c"), "--release", release)
    assert "has not finished" not in call("plan", *at).err

    def interrupted(_: State) -> Changes:
        changes = Changes()
        changes.put("operation", RECONCILE, OperationRecord(kind="reconcile", state="pending"))
        return changes

    commit(open_log(str(tmp_path / "c")), interrupted, kind="test")
    answer = call("plan", *at)
    assert (answer.code, "NOTHING TO DO" in answer.out) == (0, True)
    assert "a start was interrupted, or has not finished" in answer.err

    where = ("status", "--catalog", str(tmp_path / "c"))
    finish = "catalog-migrate bootstrap, or start the application"
    with acquire(open_log(str(tmp_path / "c")), holder="p", clock=SystemClock()).keep():
        assert call(*where).out.splitlines()[-1] == (
            f"next       wait for the holder of the lease; if it has ended, {finish}"
        )
    assert call(*where).out.splitlines()[-1] == f"next       {finish}"


def test_a_changed_manifest_is_planned_in_full(call: Call, tmp_path: Path) -> None:
    """Another manifest, a broken one, one that is gone: each is read, and told."""
    release = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    bring_in_force(tmp_path, release)
    arguments = ("plan", "--release", release, "--catalog", "c")
    manifest(tmp_path / "1.json", "1", [("a", "INT"), ("b", "INT")])
    assert call(*arguments, "--detailed-exitcode").code == 2
    (tmp_path / "1.json").write_text("{")
    assert "CM0108" in call(*arguments).err
    (tmp_path / "1.json").unlink()
    assert "No such file" in call(*arguments).err


@pytest.mark.parametrize("verb", [*VERBS, "release compile", "config show"])
def test_every_verb_helps_with_an_example(verb: str, call: Call) -> None:
    """--help of each verb exits 0 and shows a command line to copy."""
    answer = call(*verb.split(), "--help")
    assert answer.code == 0
    assert "Example:\n    catalog-migrate " in answer.out


def test_help_lists_every_verb_in_order(call: Call) -> None:
    """The group's help names all verbs below what they are for, and the exit codes."""
    out = call("--help").out
    places = [
        out.index(line) for title, verbs in GROUPS.items()
        for line in (f"\n{title}:\n", *(f"\n  {verb} " for verb in verbs))
    ]
    assert places == sorted(places)
    assert "Exit codes: 0 done" in out


def test_the_lines_of_all_groups_begin_in_one_column(call: Call) -> None:
    """The list is read as one, though it has headings."""
    lines = call("--help").out.splitlines()
    starts = {
        next(line for line in lines if line.startswith(f"  {verb} ")).index(text.split(" ")[0])
        for verb, text in VERBS.items()
    }
    assert starts == {len("  completion  ")}


def test_run_says_first_that_it_runs_streams(call: Call) -> None:
    """In the list of verbs, in its help and in its first line; it is no verb of upgrades."""
    listed = next(line for line in call("--help").out.splitlines() if line.startswith("  run "))
    assert listed.split(maxsplit=1)[1].startswith("Run streams: ")
    assert call("run", "--help").out.splitlines()[2].startswith("  Run streams: ")
    first, *_ = call("run", "--catalog", "nowhere", "--cluster", "c").err.splitlines()
    assert first.partition(" ")[2] == "running streams: the sources and sinks of cluster c"


def test_an_unknown_verb_or_option_is_a_usage_error(call: Call) -> None:
    """Exit 64 with the nearest verb on stderr and nothing on stdout."""
    answer = call("plna")
    assert (answer.code, answer.out) == (64, "")
    assert "Did you mean 'plan'?" in answer.err
    assert call("plan", "--dry-run").code == 64


def test_a_configuration_error_exits_78(call: Call, tmp_path: Path) -> None:
    """An unknown key is told with its suggestion before anything is done."""
    (tmp_path / "catalog_migrate.toml").write_text('[catalog]\nurl = "x"\n')
    answer = call("status")
    assert answer.code == 78
    assert "did you mean catalog.uri?" in answer.err


def test_what_is_missing_is_named_with_its_flag(call: Call) -> None:
    """Without a catalog, status says which flag and key give one (exit 64)."""
    answer = call("status")
    assert answer == Answer(64, "", (
        "error CM0601: catalog.uri is not set\n"
        "  remedy: give --catalog URI, or set catalog.uri in catalog_migrate.toml\n"
    ))


def test_users_objects_are_looked_at_alone(call: Call, tmp_path: Path) -> None:
    """`status --users` takes none of the others' flags; where no name outlives a session it says so
    and starts no Spark."""
    for also in (("--streams",), ("--serial", "1"), ("--detailed-exitcode",)):
        answer = call("status", "--users", "--catalog", "c", *also)
        assert (answer.code, answer.out) == (64, "")
        assert "--users says how users' objects are now" in answer.err
    create_catalog(open_log(str(tmp_path / "c")), warehouse=str(tmp_path / "w"))
    answer = call("status", "--users", "--catalog", "c")
    assert answer.code == 0
    assert "no names outlive the session here" in answer.err
    assert json.loads(call("status", "--users", "--catalog", "c", "--format", "json").out) == {
        "users": [], "failures": [],
    }


def test_an_absent_catalog_is_an_error(call: Call) -> None:
    """Looking at a catalog that is not there exits 1 with its code."""
    answer = call("status", "--catalog", "nowhere")
    assert answer.code == 1
    assert answer.err.startswith("error CM0200: ")


def test_a_lease_of_a_process_that_is_gone_is_told_as_such(call: Call, tmp_path: Path) -> None:
    """Who looks at night need not wait for it, nor unlock anything."""
    bring_in_force(tmp_path, manifest(tmp_path / "1.json", "1", [("a", "INT")]))
    take = (
        "import sys; from catalog_migrate.catalog.clock import SystemClock;"
        "from catalog_migrate.catalog.lease import acquire;"
        "from catalog_migrate.catalog.opening import open_log;"
        "acquire(open_log(sys.argv[1]), holder='a start', clock=SystemClock())"
    )
    subprocess.run([sys.executable, "-c", take, str(tmp_path / "c")], check=True)
    status = ("status", "--catalog", "c")
    assert "; that process has ended: the next that needs the lease takes it\n" in call(*status).out
    assert json.loads(call(*status, "--format", "json").out)["lease"]["gone"] is True


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("config", "show"), "run the same command again"),
        (("apply", "--yes"), "run the same command again"),
        (("plan", "--bind"), "interrupted: nothing was changed\n"),
        (("diff", "old", "new"), "interrupted: nothing was changed\n"),
    ],
)
def test_interruption_exits_130_and_says_what_is_left(
    call: Call, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], said: str
) -> None:
    """Ctrl-C is answered with a sentence, not a traceback; a verb that only looks left nothing."""
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("catalog_migrate.cli.options.settings", interrupted)
    answer = call(*args)
    assert answer.code == 130
    assert said in answer.err


def test_init_writes_a_release_that_plans_and_never_overwrites(call: Call, tmp_path: Path) -> None:
    """The sample is three objects and SAFE; a second init touches nothing and exits 64."""
    assert call("init").code == 0
    answer = call("plan")
    assert answer.code == 0
    assert answer.out.startswith("SAFE, NOT PROVEN: 3 created; 0 unchanged\n")
    assert "applying creates it" in answer.err
    assert not (tmp_path / "catalog").exists()
    (tmp_path / "release" / "orders.sql").write_text("mine")
    again = call("init")
    assert again.code == 64
    assert "release/big_orders.sql exist already; nothing was written" in again.err
    assert (tmp_path / "release" / "orders.sql").read_text() == "mine"


@pytest.mark.parametrize("name", ["catalog_migrate.toml", "release/orders.sql"])
def test_init_does_not_write_through_a_link_that_leads_nowhere(
    call: Call, tmp_path: Path, name: str
) -> None:
    """A dangling link is something that exists: nothing is written, least of all elsewhere."""
    link = tmp_path / "place" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    answer = call("init", "place")
    assert (answer.code, str(Path("place") / name) in answer.err) == (64, True)
    assert not (tmp_path / "elsewhere").exists()
    assert [path for path in (tmp_path / "place").rglob("*") if path.is_file()] == []


def test_the_written_configuration_names_every_key(call: Call) -> None:
    """init's file loads as it stands, and config show says that three values came from it."""
    call("init")
    shown = json.loads(call("config", "show", "--format", "json").out)
    from_file = {key for key, value in shown.items() if value["origin"].endswith(".toml")}
    assert from_file == {"catalog.uri", "catalog.warehouse", "release.path"}


def test_diff_exit_codes(call: Call, tmp_path: Path) -> None:
    """0 for equal releases, 2 for changes when asked, 3 for missing decisions."""
    one = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    two = manifest(tmp_path / "2.json", "2", [("a", "INT"), ("b", "STRING")])
    assert call("diff", one, one, "--detailed-exitcode").code == 0
    assert call("diff", one, two).code == 0
    assert call("diff", one, two, "--detailed-exitcode").code == 2
    blocked = call("diff", two, one)
    assert blocked.code == 3
    assert blocked.out.startswith("NEEDS 1 DECISION: ")
    assert "write: DROPPED (b)" in blocked.out
    assert call("diff", two, one, "--approve", "s.t.b").code == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.enableChangeDataFeeed", "true"), ("delta.logRetentionDuration", "abc"),
        ("delta.constraints.c", "a > 0"), ("delta.minReaderVersion", "3"),
        ("delta.columnMapping.mode", "nmae"), ("delta.feature.X", "supported"),
        ("location", "/x"), ("delta.dataSkippingStatsColumns", "nope"),
    ],
)
def test_properties_of_the_older_release_are_taken_as_they_are(
    call: Call, tmp_path: Path, key: str, value: str
) -> None:
    """It may be from before they were checked, as a manifest or a directory; the newer may not."""
    sound = tmp_path / "sound"
    wrong = tmp_path / "wrong"
    for place, clause in ((sound, ""), (wrong, f" WITH ('{key}' = '{value}')")):
        place.mkdir()
        (place / "t.sql").write_text(f"CREATE TABLE s.t (a INT){clause};")
    new = manifest(tmp_path / "new.json", "new", [("a", "INT")])
    old = json.loads(Path(new).read_text())
    old["objects"][0]["properties"] = {key: value}
    (tmp_path / "old.json").write_text(json.dumps(old))

    for one in (str(wrong), str(tmp_path / "old.json")):
        found = call("diff", one, new)
        assert (found.code, f"property {key}: drop" in found.out) == (0, True), found
        assert call("check", str(sound), "--against", one).code == 0
        assert key in call("diff", new, one).err
        refused = call("diff", one, one)
        assert (refused.code, key in refused.err) == (call("diff", new, one).code, True)
        assert refused.code not in (0, 2)


def test_diff_of_what_no_decision_cures_is_exit_3(call: Call, tmp_path: Path) -> None:
    """A verdict of BLOCKED is no success, as in plan and check: a view without its SQL."""
    one = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    two = json.loads(Path(one).read_text())
    two["objects"].append({
        "schema": "s", "kind": "view", "name": "v", "depends_on": ["s.t"],
        "columns": [{"name": "a", "type": "INT"}],
    })
    (tmp_path / "2.json").write_text(json.dumps(two))
    found = call("diff", one, str(tmp_path / "2.json"))
    assert (found.code, found.out.partition(":")[0]) == (3, "BLOCKED")
    assert call("plan", "--release", str(tmp_path / "2.json"), "--catalog", "none").code == 3


def test_a_blocked_plan_is_saved_and_refused(call: Call, tmp_path: Path) -> None:
    """diff --out writes the plan even when blocked; apply of it exits 3 and touches nothing."""
    one = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    two = manifest(tmp_path / "2.json", "2", [("a", "INT"), ("b", "STRING")])
    assert call("diff", two, one, "--out", "plan.json").code == 3
    saved = json.loads((tmp_path / "plan.json").read_text())
    assert saved["applyable"] is False
    answer = call("apply", "plan.json", "--release", one, "--catalog", "c", "--yes")
    assert answer.code == 3
    assert answer.out.startswith("NEEDS 1 DECISION: ")
    assert not (tmp_path / "c").exists()


def test_apply_without_a_terminal_needs_yes(call: Call, tmp_path: Path) -> None:
    """Nobody to ask: exit 64, the report on stderr, nothing written."""
    one = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    answer = call("apply", "--release", one, "--catalog", "c", "--no-input")
    assert (answer.code, answer.out) == (64, "")
    assert "add --yes" in answer.err
    assert not (tmp_path / "c").exists()


def test_an_edited_plan_is_refused(call: Call, tmp_path: Path) -> None:
    """One changed character in the file: CM0311."""
    one = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    call("plan", "--release", one, "--catalog", "c", "--out", "plan.json")
    path = tmp_path / "plan.json"
    path.write_text(path.read_text().replace('"s.t"', '"s.u"'))
    answer = call("apply", "plan.json", "--release", one, "--catalog", "c", "--yes")
    assert answer.code == 1
    assert "CM0311" in answer.err


def test_a_plan_of_another_release_is_stale(call: Call, tmp_path: Path) -> None:
    """The release changed after the plan: exit 4 before Spark is started."""
    one = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    call("plan", "--release", one, "--catalog", "c", "--out", "plan.json")
    manifest(tmp_path / "1.json", "1", [("a", "INT"), ("b", "INT")])
    answer = call("apply", "plan.json", "--release", one, "--catalog", "c", "--yes")
    assert answer.code == 4
    assert "CM0310: the contents of release" in answer.err
    assert "changed since the plan was made" in answer.err
    assert "--release" in answer.err


def test_formats_of_a_plan(call: Call, tmp_path: Path) -> None:
    """json is the plan file with two blanks of indentation, markdown and html start as such."""
    one = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    base = ("plan", "--release", one, "--catalog", "c", "--format")
    assert call(*base, "json").out.startswith('{\n  "format_version": "1.4",\n')
    assert call(*base, "markdown").out.startswith("**SAFE**: 1 created")
    assert call(*base, "html").out.startswith("<!doctype html>")


def test_a_result_that_cannot_be_written_is_told(call: Call, tmp_path: Path) -> None:
    """--out into a directory that is not there: CM0602, and no half file."""
    one = manifest(tmp_path / "1.json", "1", [("a", "INT")])
    answer = call("plan", "--release", one, "--catalog", "c", "--out", "no/where.json")
    assert answer.code == 1
    assert "error CM0602: no/where.json cannot be written" in answer.err


def test_check_names_what_is_wrong_in_a_release(call: Call, tmp_path: Path) -> None:
    """A sound release says so; an unsound one exits 1 with file and line."""
    call("init")
    assert call("check", "release", "--format", "json").code == 0
    (tmp_path / "release" / "bad.sql").write_text("CREATE TABLE shop.x (a NOTYPE);\n")
    answer = call("check", "release")
    assert answer.code == 1
    assert "bad.sql:1:" in answer.err


def test_graph_of_a_release_in_every_form(call: Call) -> None:
    """Names with what they use; NAME leaves only what is connected with it."""
    call("init")
    assert call("graph", "--release", "release").out == (
        "shop.big_orders <- shop.customers, shop.orders\nshop.customers\nshop.orders\n"
    )
    assert call("graph", "shop.orders", "--release", "release", "--format", "mermaid").out == (
        'flowchart LR\n  subgraph g0["shop"]\n    n0("shop.big_orders")\n    n1["shop.orders"]\n'
        "  end\n  n1 --> n0\n"
    )
    dot = call("graph", "--release", "release", "--format", "dot").out
    assert '  "shop.orders" -> "shop.big_orders";\n' in dot
    found = json.loads(call("graph", "--release", "release", "--format", "json").out)
    assert found["objects"][1] == {"name": "shop.customers", "uses": []}


STREAMS = """
CREATE TABLE s.t (id INT);
CREATE SECRET s.pw AS 'env:PW';
CREATE CONNECTION s.base TO KAFKA (BROKER 'b:9092', SECURITY PROTOCOL 'SASL_PLAINTEXT',
  SASL MECHANISMS 'SCRAM-SHA-512', SASL USERNAME 'app', SASL PASSWORD SECRET s.pw);
CREATE CONNECTION s.c TO KAFKA (USING CONNECTION s.base);
CREATE SOURCE s.orders (id INT) FROM KAFKA CONNECTION s.c (TOPIC 'i') FORMAT JSON
  ON ERROR INTO s.bad;
CREATE SINK s.k FROM s.orders INTO KAFKA CONNECTION s.c (TOPIC 'o') KEY (id) FORMAT JSON;
"""


def test_graph_shows_connections_sources_and_sinks(call: Call, tmp_path: Path) -> None:
    """Each with what it uses, and as what, where the two ends do not tell."""
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "all.sql").write_text(STREAMS)
    base = ("graph", "--release", "r", "--format")
    assert call(*base, "text").out == (
        "cluster:default.main <- default.main_log\n"
        "connection:s.base <- secret:s.pw (secret:SASL PASSWORD)\n"
        "connection:s.c <- connection:s.base\n"
        "default.main_log\n"
        "s.bad\n"
        "s.orders <- cluster:default.main, connection:s.c, s.bad (dead_letters)\n"
        "s.t\n"
        "secret:s.pw\n"
        "sink:s.k <- cluster:default.main, connection:s.c, s.orders (reads)\n"
    )
    assert '  "s.orders" -> "sink:s.k" [label="reads"];\n' in call(*base, "dot").out
    assert '  n5 -->|"reads"| n8\n' in call(*base, "mermaid").out
    found = {each["name"]: each for each in json.loads(call(*base, "json").out)["objects"]}
    assert found["sink:s.k"]["roles"] == {"s.orders": "reads"}
    bring_in_force(tmp_path, str(tmp_path / "r"))
    assert call("graph", "--catalog", "c").out == call(*base, "text").out
    svg = call("graph", "--catalog", "c", "--format", "svg").out
    assert "<title>sink:s.k (sink)</title>" in svg
    assert "<title>s.k uses s.orders: reads</title>" in svg
    written = call(*base, "html", "--out", "graph.html")
    assert (written.code, written.out) == (0, "")
    page = (tmp_path / "graph.html").read_text()
    assert "<title>What uses what in release r</title>" in page
    assert "<dt>Made with</dt><dd>catalog-migrate " in page
    page = call("graph", "--catalog", "c", "--format", "html").out
    assert f"<dt>Catalog</dt><dd>{tmp_path / 'c'}</dd>" in page
    serial = json.loads(call("status", "--catalog", "c", "--format", "json").out)["serial"]
    assert f"<dt>Serial</dt><dd>{serial}</dd>" in page
    assert "<dt>Catalog id</dt><dd>" in page
    assert call("graph", "s.none", "--release", "r", "--format", "svg").err.startswith(
        "error CM0121: nothing is called s.none"
    )
    assert "did you mean s.orders?" in call("graph", "s.ordrs", "--release", "r").err
    only = call("graph", "secret:s.pw", "--release", "r").out
    assert [line.split()[0] for line in only.splitlines()] == [
        "connection:s.base", "connection:s.c", "s.orders", "secret:s.pw", "sink:s.k",
    ]


def test_graph_of_the_program_of_a_plan(call: Call, tmp_path: Path) -> None:
    """The steps with their numbers in the report, wave by wave; a plan without steps says so."""
    for number, text in enumerate((
        "CREATE TABLE s.old (a INT); CREATE VIEW s.v (a INT) AS SELECT a FROM s.old;",
        "CREATE TABLE s.new (a INT); CREATE VIEW s.v (a INT) AS SELECT a FROM s.new;",
    ), 1):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "all.sql").write_text(text)
    call("diff", "1", "2", "--out", "plan.json", "--approve", "s.old")
    base = ("graph", "--program", "plan.json", "--format")
    assert call(*base, "text").out == (
        "wave 1: prepare\n  +   1  build table s.new\n"
        "wave 2: prepare\n  ~   2  seal table s.old\n"
        "wave 3: names\n  +   3  register table s.new\n"
        "wave 4: names\n  ~   4  replace view s.v\n"
        "wave 5: names\n  -   5  unregister table s.old\n"
    )
    plan_hash = json.loads((tmp_path / "plan.json").read_text())["plan_hash"]
    dot = call(*base, "dot").out
    assert (
        '    s4 [label="4 ~ replace view s.v", color="#7d4e00", fillcolor="#fff3c4", penwidth=2];\n'
    ) in dot
    assert "  s3 -> s4 [ltail=cluster_2, lhead=cluster_3];\n" in dot
    assert "<title>step 4: replace view s.v</title>" in call(*base, "svg").out
    page = call(*base, "html").out
    assert "<title>The program of a plan</title>" in page
    assert "<title>step 4: replace view s.v</title>" in page
    assert f"<dt>Plan hash</dt><dd>{plan_hash}</dd>" in page
    mermaid = call(*base, "mermaid").out
    assert '  subgraph w3["wave 4: names"]\n    s4["4 ~ replace view s.v"]\n  end\n' in mermaid
    assert "  w2 --> w3\n" in mermaid
    found = json.loads(call(*base, "json").out)
    assert found["steps"] == json.loads((tmp_path / "plan.json").read_text())["steps"]
    assert found["waves"] == [[1], [2], [3], [4], [5]]
    call("diff", "1", "1", "--out", "none.json")
    assert call("graph", "--program", "none.json").out == "no steps\n"
    assert call("graph", "s.v", "--program", "plan.json").code == 64
    steps = (tmp_path / "plan.json").read_text().replace('"wave": 4', '"wave": 3')
    (tmp_path / "plan.json").write_text(steps)
    assert "error CM0311" in call("graph", "--program", "plan.json").err


def test_compile_writes_a_manifest_and_check_finds_it_stale(call: Call, tmp_path: Path) -> None:
    """A release with typed views compiles without Spark; a later change makes --check exit 1."""
    call("init")
    assert call("release", "compile", "release").code == 0
    assert json.loads((tmp_path / "release.json").read_text())["release"] == "1.0"
    assert call("release", "compile", "release", "--check").code == 0
    assert call("diff", "release", "release.json", "--detailed-exitcode").code == 0
    (tmp_path / "release" / "more.sql").write_text("CREATE TABLE shop.more (a INT);\n")
    answer = call("release", "compile", "release", "--check")
    assert answer.code == 1
    assert "CM0140" in answer.err


def test_lists_are_written_into_sql_files_alone(call: Call, tmp_path: Path) -> None:
    """A manifest, a commit, --check and --out are usage errors; without need nothing happens."""
    call("init")
    assert call("release", "compile", "release").code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for path in ("release.json", "git:HEAD:release"):
        answer = call("release", "compile", path, "--write")
        assert answer.code == 64
        assert f"{path} is no directory of them" in answer.err
    for flags in (["--check"], ["--out", "other.json"]):
        assert call("release", "compile", "release", "--write", *flags).code == 64
    answer = call("release", "compile", "release", "--write")
    assert (answer.code, "nothing is written" in answer.err) == (0, True)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_doctor_races_commits_and_leaves_nothing(call: Call, tmp_path: Path) -> None:
    """The scratch log is raced for and removed."""
    from catalog_migrate.api.doctor import race

    (tmp_path / "c").mkdir()
    assert race(str(tmp_path / "c")).endswith("one of each two was refused")
    assert list((tmp_path / "c").iterdir()) == []


def test_a_failed_check_is_a_finding_not_a_crash() -> None:
    """doctor tells our errors with their remedy, behind what was found before, and goes on."""
    from catalog_migrate.model.findings import Finding, run_check

    well = Finding("y", None, "ok", "fine")

    def fails(_: str) -> Iterator[Finding]:
        yield well
        raise CatalogMigrateError("no luck", remedy="try again")

    failed = Finding("x", None, "error", "no luck", "try again", code="CM0000")
    assert run_check(fails, "what is checked", "x") == (well, failed)


def test_what_needs_a_failed_trial_is_not_tried(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cause is one finding with a remedy: no catalog, no Java."""
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    done = call("doctor", "--catalog", str(tmp_path / "none"), "--format", "json")
    found = {each["name"]: (each["text"], each["remedy"]) for each in json.loads(done.out)}
    assert done.code == 1
    assert found["catalog"][0].startswith("CM0200 ")
    assert found["lease"] == found["secrets"] == ("not tried: catalog failed", None)
    assert found["spark"] == ("not tried: java failed", None)


def test_the_policy_of_the_configuration_holds_in_every_verb(call: Call, tmp_path: Path) -> None:
    """plan, diff and check exit with 3 where a rule refuses, and the report names the rule."""
    old = manifest(tmp_path / "1.json", "1", [("a", "BIGINT")])
    new = manifest(tmp_path / "2.json", "2", [("a", "INT")])
    bring_in_force(tmp_path, old)
    file = tmp_path / "catalog_migrate.toml"
    rule = f"refused by {file}, policy 1: refuse convert of s.*"
    for action, code in (("refuse", 3), ("allow", 0)):
        file.write_text(f'[[policy]]\nrisk = "convert"\nname = "s.*"\naction = "{action}"\n')
        answers = [
            call("plan", "--release", new, "--catalog", "c"),
            call("diff", old, new),
            call("check", new, "--catalog", "c"),
        ]
        assert [answer.code for answer in answers] == [code] * 3
        texts = [" ".join(answer.out.split()) for answer in answers]  # its lines are wrapped
        assert (rule in texts[2]) is (action == "refuse")
        assert all("policy 1" in text for text in texts) is (action == "refuse")
    assert "allow convert of s.*" in call("config", "show").out


def test_diff_compares_what_releases_ship(call: Call, tmp_path: Path) -> None:
    """Connections, sources and sinks of both releases are compared, tables under them included."""
    texts = {
        "old": "CREATE TABLE s.t (id BIGINT);"
               "CREATE CONNECTION s.c TO KAFKA (BROKER 'a.example.com:9092');"
               "CREATE SINK s.k FROM s.t INTO KAFKA CONNECTION s.c (TOPIC 'o') KEY (id);",
        "new": "CREATE TABLE s.t (id BIGINT); CREATE TABLE s.more (id BIGINT);"
               "CREATE CONNECTION s.c TO KAFKA (BROKER 'b.example.com:9092');"
               "CREATE SINK s.k FROM s.t INTO KAFKA CONNECTION s.c (TOPIC 'o') KEY (id);"
               "CREATE SINK s.m FROM s.more INTO KAFKA CONNECTION s.c (TOPIC 'm') KEY (id);",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.sql").write_text(text)
    found = json.loads(call("diff", "old", "new", "--format", "json").out)
    assert found["shipments"] == [
        "alter connection s.c: its definition changes with this release",
        "create sink s.m: new in this release",
    ]
    back = json.loads(call("diff", "new", "old", "--approve", "s.more", "--format", "json").out)
    assert back["shipments"][0].startswith("quarantine sink s.m: s.more went with release")
    assert back["shipments"][1].startswith("alter connection s.c")
    assert call("diff", "old", "old", "--detailed-exitcode").code == 0


def test_a_verb_decides_nothing() -> None:
    """It parses, calls a function of the programming interface and prints what comes back.

    At run time it imports that, reports, files, values of the model and of SQL, and how a plan is
    shown; what plans, commits or talks to Spark is not among them.
    """
    packages = ("api", "cli", "config", "errors", "model", "report", "sql", "store", "version")
    shown = {
        "catalog_migrate.delta.log",  # a directory that no result is written into
        "catalog_migrate.engine.spark.jars",  # the demonstration's own processes
        "catalog_migrate.operations.steps",  # how steps are numbered and described
        "catalog_migrate.streams.positions.client",
        "catalog_migrate.streams.positions.plan",
        "catalog_migrate.streams.positions.render",
        "catalog_migrate.streams.positions.requests",
    }
    verbs = Path(__file__).parents[2] / "catalog_migrate" / "cli"
    others = {
        (path.stem, name) for path in verbs.glob("*.py") for name in _imported(path)
        if name.split(".")[1:2] not in [[package] for package in packages]
    }
    assert {name for _, name in others} <= shown, sorted(others)


def _imported(path: Path) -> set[str]:
    """Modules of the package that a module imports, those for types alone left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner) for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    return {
        node.module for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types
        and node.module is not None and node.module.startswith("catalog_migrate.")
    }
