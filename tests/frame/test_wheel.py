"""The wheel, installed into an environment of its own, carries all that the product needs."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "fixtures" / "examples"


def _run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the working tree without downloading anything."""
    directory = tmp_path_factory.mktemp("wheel")
    hatchling = (sys.executable, "-m", "hatchling")
    built = _run(*hatchling, "build", "-t", "wheel", "-d", str(directory), cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (found,) = directory.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; its dependencies are lent by this one, by a .pth file.

    The .pth files of the lender are not read, so our editable install stays out of it.
    """
    home = tmp_path_factory.mktemp("environment") / "venv"
    uv = (sys.executable, "-m", "uv")
    made = _run(*uv, "venv", "--offline", "--python", sys.executable, str(home), cwd=home.parent)
    assert made.returncode == 0, made.stderr
    python = str(home / "bin" / "python")
    options = ("--offline", "--no-deps", "--python", python)
    installed = _run(*uv, "pip", "install", *options, str(wheel), cwd=home.parent)
    assert installed.returncode == 0, installed.stderr
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return home


def test_the_wheel_holds_the_built_ins_the_lock_and_the_type_marker(wheel: Path) -> None:
    """Exactly the SQL files of builtins/ lie in it, beside py.typed and the jars' lock."""
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {
        f"catalog_migrate/builtins/{file.relative_to(ROOT / 'builtins').as_posix()}"
        for file in (ROOT / "builtins").rglob("*.sql")
    }
    assert ours
    assert {name for name in names if name.startswith("catalog_migrate/builtins/")} == ours
    assert {
        "catalog_migrate/py.typed",
        "catalog_migrate/engine/spark/jars-4.0.1.lock.json",
        "catalog_migrate/engine/spark/jars-4.1.1.lock.json",
        "catalog_migrate/engine/spark/jars-4.2.0.lock.json",
        "catalog_migrate/engine/spark/object_stores/s3-4.1.1.lock.json",
        "catalog_migrate/engine/spark/object_stores/s3-4.2.0.lock.json",
        "catalog_migrate/engine/spark/object_stores/catalog-migrate-spark.jar",
        "catalog_migrate/engine/spark/log4j2.properties",
        "catalog_migrate/report/page/page.css",
        "catalog_migrate/report/page/page.js",
        "catalog_migrate/report/page/graph.js",
    } <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "catalog_migrate"
    }


def test_the_installed_command_answers_its_version(environment: Path, tmp_path: Path) -> None:
    """``catalog-migrate version`` runs from the wheel, not from the working tree."""
    answer = _run(str(environment / "bin" / "catalog-migrate"), "version", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "0.1.0" in answer.stdout
    python = str(environment / "bin" / "python")
    program = "import catalog_migrate; print(catalog_migrate.__file__)"
    where = _run(python, "-c", program, cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(environment)


def test_every_module_of_the_wheel_imports_without_the_checkout(
    environment: Path, tmp_path: Path
) -> None:
    """Nothing in the package needs the tests or the examples, not even for types at run time."""
    program = (
        "import importlib, pkgutil, catalog_migrate as root\n"
        "found = pkgutil.walk_packages(root.__path__, root.__name__ + '.')\n"
        "found = [each.name for each in found]\n"
        "for name in found: importlib.import_module(name)\n"
        "print(len(found))\n"
    )
    answer = _run(str(environment / "bin" / "python"), "-c", program, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) > 200


def test_the_demonstrations_are_the_checkouts(environment: Path, tmp_path: Path) -> None:
    """An installed package has none, and says where they are."""
    answer = _run(str(environment / "bin" / "catalog-migrate"), "demo", cwd=tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.splitlines() == [
        "error CM0500: the demonstrations are not in an installed package",
        "  remedy: run them from a checkout: `make demo`, `make demo-streams`",
    ]


@pytest.mark.spark
def test_the_installed_wheel_upgrades_as_the_readme_says(
    spark: Any, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The application starts on 1.0, the script upgrades to 2.0, the old application is refused.

    The application runs in the session of the tests; the script in processes of the installed
    wheel, with a Spark of its own.
    """
    catalog = str(tmp_path / "catalog")
    command = str(environment / "bin" / "catalog-migrate")
    monkeypatch.setenv("PATH", os.pathsep.join([str(environment / "bin"), os.environ["PATH"]]))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    monkeypatch.setattr(sys, "argv", ["app.py", str(EXAMPLES / "v1"), catalog])
    capsys.readouterr()

    runpy.run_path(str(EXAMPLES / "app.py"), run_name="__main__")
    assert capsys.readouterr().out == "initialized 1.0 1 orders\n"

    with monkeypatch.context() as patch:
        patch.delenv("PYSPARK_SUBMIT_ARGS")  # what users have
        script = ("sh", str(EXAMPLES / "upgrade.sh"), str(EXAMPLES / "v2"), catalog)
        upgrade = _run(*script, cwd=tmp_path)
    assert upgrade.returncode == 0, upgrade.stderr
    assert upgrade.stdout.startswith(
        "LOSSES DECIDED: 3 migrated; 0 unchanged; "
        "rows or values of 1 table are lost or converted\nfrom 1.0 "
    )
    assert "column remark renamed to note" in upgrade.stdout
    assert "migrated: release 2.0" in upgrade.stdout
    assert "1 row copied" in upgrade.stdout

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / "app.py"), run_name="__main__")
    # a text: Python prints it on stderr and ends with 1
    assert str(ended.value.code).startswith("release 1.0 was replaced by 2.0")

    show = _run(command, "show", "shop.orders", "--catalog", catalog, "--format", "json",
                cwd=tmp_path)
    assert rows_of(json.loads(show.stdout)["location"]) == [
        {"id": 1, "customer_id": 7, "total": None, "note": None}
    ]
    status = _run(command, "status", "--catalog", catalog, "--format", "json", cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    assert '"lineage"' in status.stdout


def rows_of(location: str) -> list[dict[str, object]]:
    """The rows of a shard, read without Spark."""
    from deltalake import DeltaTable

    table = DeltaTable(location).to_pyarrow_table()
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


@pytest.mark.soak
@pytest.mark.spark
def test_the_installed_wheel_bootstraps_an_empty_warehouse(
    environment: Path, tmp_path: Path
) -> None:
    """A release of one table and one view is bootstrapped, then there is nothing left to do."""
    release = tmp_path / "release"
    release.mkdir()
    (release / "shop.sql").write_text(
        "CREATE TABLE shop.orders (id BIGINT NOT NULL, total DECIMAL(18,2));\n"
        "CREATE VIEW shop.big (id BIGINT) AS SELECT id FROM shop.orders WHERE total > 100;\n",
        encoding="utf-8",
    )
    command = (
        str(environment / "bin" / "catalog-migrate"),
        "bootstrap",
        "--catalog",
        str(tmp_path / "catalog"),
        "--warehouse",
        str(tmp_path / "warehouse"),
        "--release",
        str(release),
    )
    first = _run(*command, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    status = _run(
        str(environment / "bin" / "catalog-migrate"),
        "status",
        "--catalog",
        str(tmp_path / "catalog"),
        "--format",
        "json",
        cwd=tmp_path,
    )
    assert status.returncode == 0, status.stderr
    assert '"lineage"' in status.stdout
