"""The layers, what an import costs, and what the repository promises beside its code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import grimp
import networkx
import pytest

import catalog_migrate

ROOT = Path(__file__).parents[2]
HEAVY = ("pyspark", "deltalake", "networkx", "pandas", "pyarrow", "rich", "click")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_imports_only_go_down() -> None:
    """import-linter keeps every contract of pyproject.toml."""
    answer = _run(str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
    assert answer.returncode == 0, answer.stdout


def test_no_module_imports_itself_by_others() -> None:
    """Imports for types alone and those inside functions count as well."""
    imports = grimp.build_graph("catalog_migrate", cache_dir=None)
    graph = networkx.DiGraph(
        (module, other)
        for module in imports.modules
        for other in imports.find_modules_directly_imported_by(module)
    )
    assert len(graph) > 200
    circles = [one for one in networkx.strongly_connected_components(graph) if len(one) > 1]
    assert circles == []


def _named_in(module: str) -> list[str]:
    """Return the modules that a module loads by an import string (``package.module:name``)."""
    path = ROOT / Path(*module.split(".")).with_suffix(".py")
    text = path.read_text("utf-8") if path.exists() else ""
    return re.findall(r'"(catalog_migrate\.[\w.]+):\w+"', text)


def test_the_package_has_no_module_that_only_tests_reach() -> None:
    """Verbs, hook, programming interface and what a team tests with reach all the others, also by
    an import string."""
    imports = grimp.build_graph("catalog_migrate", cache_dir=None)
    texts = [path.read_text("utf-8") for path in (ROOT / "catalog_migrate").rglob("*.py")]
    named = {
        found for text in texts for found in re.findall(r'"(catalog_migrate\.[\w.]+):\w+"', text)
    }
    assert "catalog_migrate.connectors.kafka.connector" in named <= imports.modules
    reached, next_ones = set(), ["catalog_migrate", *named] + [
        module for module in imports.modules
        if module.startswith(("catalog_migrate.cli.", "catalog_migrate.testing."))
    ]
    while next_ones:
        module = next_ones.pop()
        if module not in reached:
            reached.add(module)
            next_ones += imports.find_modules_directly_imported_by(module)
            next_ones += _named_in(module)
    packages = {module.rpartition(".")[0] for module in imports.modules}
    assert imports.modules - reached <= packages


def test_the_package_imports_nothing_of_the_tests() -> None:
    """A wheel has neither `tests` nor `examples`; the verb `demo` asks for them by name."""
    found = [
        path.name for path in (ROOT / "catalog_migrate").rglob("*.py")
        if re.search(r"^\s*(from|import) (tests|examples|bench)\b", path.read_text("utf-8"), re.M)
    ]
    assert found == []


def test_only_one_package_knows_the_log_of_a_table() -> None:
    """The names in a Delta log, and the JSON of its commits, are said nowhere else."""
    known = re.compile(
        r"_delta_log|\bLOG\b|commit_name|read_actions|"
        r"[\"'](commitInfo|metaData|txn|dataChange|minReaderVersion)[\"']"
    )
    statement = re.compile(r"SHOW [S{][^\n]* LOG\b|\(\"LOG\"\)")  # of a cluster's log
    package = ROOT / "catalog_migrate"
    found = [
        f"{path.relative_to(package)}: {match[0]}" for path in sorted(package.rglob("*.py"))
        if not path.is_relative_to(package / "delta")
        for match in known.finditer(statement.sub("", path.read_text("utf-8")))
    ]
    assert found == []


def test_only_the_store_asks_the_disk_about_tables() -> None:
    """Who else knows of files: processes, Spark's own, doctor's place."""
    package = ROOT / "catalog_migrate"
    found = {
        str(path.relative_to(package).with_suffix(""))
        for folder in ("administration", "catalog", "delta", "engine")
        for path in (package / folder).rglob("*.py")
        if re.search(r"^\s*(import (os|shutil)|from pathlib import Path)\b", path.read_text(), re.M)
    }
    assert found == {
        "catalog/process", "delta/race", "engine/spark/jars", "engine/spark/session",
    }


@pytest.mark.parametrize(
    "module",
    [
        "catalog_migrate",
        "catalog_migrate.delta.log",
        "catalog_migrate.engine.spark.connect",
        "catalog_migrate.engine.spark.jars",
        "catalog_migrate.engine.spark.session",
        "catalog_migrate.streams.ddl.execute",
        "catalog_migrate.streams.runtime.runtime",
    ],
)
def test_an_import_loads_nothing_heavy(module: str) -> None:
    """What costs time to import is imported where it is used, not with the package."""
    program = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    answer = _run(sys.executable, "-c", program)
    assert answer.stderr == ""
    assert answer.stdout.strip() == ""


def test_a_start_without_streams_loads_none_of_them() -> None:
    """First and further starts reach the streams by their port alone, which imports when asked."""
    program = (
        "import sys\n"
        "import catalog_migrate.hook\n"
        "from catalog_migrate.catalog.memory_log import MemoryLog\n"
        "from catalog_migrate.testing.starts import migrate\n"
        "from catalog_migrate.release.release import Release\n"
        "from catalog_migrate.testing.world import SimulatedClock\n"
        "from catalog_migrate.testing.engine import SimulatedEngine\n"
        "engine, log, release = SimulatedEngine(), MemoryLog(), Release('1', (), 'h', {}, {})\n"
        "for _ in range(2):\n"
        "    migrate(engine, log, release, warehouse='/w', clock=SimulatedClock(), holder='h')\n"
        "print(*(m for m in sys.modules if m.startswith('catalog_migrate.streams.')))\n"
    )
    answer = _run(sys.executable, "-c", program)
    assert answer.stderr == ""
    assert answer.stdout.split() == [
        "catalog_migrate.streams.ddl", "catalog_migrate.streams.ddl.migrations"
    ]


def test_the_hook_loads_what_reads_tables_where_it_is_used() -> None:
    """A start with nothing to do opens no table, so that its import loads nothing for that."""
    program = "import sys, catalog_migrate.hook; print(*sys.modules)"
    assert "catalog_migrate.delta.table" not in _run(sys.executable, "-c", program).stdout.split()


def test_the_locked_requirements_have_hashes_and_name_no_host() -> None:
    """Every requirement is pinned and hashed; no address stands in the lock."""
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text
        assert "--index-url" not in text
        assert "--find-links" not in text
        requirements = re.split(r"\n(?=\S)", text.strip())
        pinned = [entry for entry in requirements if not entry.startswith("#")]
        assert pinned
        assert all(
            re.match(r"[a-z0-9.\-]+==\S", entry) and "--hash=sha256:" in entry for entry in pinned
        )


def test_no_public_name_is_a_submodule() -> None:
    """Importing a submodule puts it into the package, in the place of what has its name."""
    modules = {path.stem for path in (ROOT / "catalog_migrate").iterdir()}
    assert modules & set(catalog_migrate.__all__) == {"errors"}


def test_every_dependency_has_its_decision_record() -> None:
    """Each run-time requirement of pyproject.toml is named by an ADR."""
    section = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = section.split("dependencies = [", 1)[1].split("]", 1)[0]
    names = re.findall(r'"([a-z0-9\-]+)', block)
    slugs = {record.stem[5:] for record in (ROOT / "docs/adr").glob("*.md")}
    assert names
    assert {name for name in names if name not in slugs} == set()


def test_set_up_says_what_to_do_when_python_is_missing() -> None:
    """A Python that is not there is named with the package to install and the way to name one."""
    answer = subprocess.run(
        [str(ROOT / ".ci" / "setup")],
        cwd=ROOT,
        env={**os.environ, "PYTHON": "python-that-is-not-there"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[0] == (
        "set-up: there is no python-that-is-not-there on the PATH"
    )
    assert "make PYTHON=" in answer.stderr
