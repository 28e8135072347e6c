"""I9 for object stores: no option is in any output, log, error or file, whatever the verb."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MARK = "ZqMarked"
FILE = f"""
[catalog]
uri = "{{uri}}"
warehouse = "rows"
[storage_options]
aws_endpoint_url = "http://127.0.0.1:1/{MARK}-endpoint"
aws_access_key_id = "{MARK}-key"
aws_secret_access_key = "{MARK}-secret/+="
aws_session_token = "{MARK}-token"
aws_allow_http = true
aws_region = "{MARK}-region"
max_retries = 0
[release]
path = "release"
"""
FORMS = ("json", "text")
VARIABLES = {
    "CATALOG_MIGRATE__STORAGE_OPTIONS__AZURE_STORAGE_SAS_KEY": f"{MARK}-sas",
    "AWS_SECRET_ACCESS_KEY": f"{MARK}-variable",
}
CALLS = {
    "bootstrap": ["bootstrap"],
    "drift": ["drift"],
    "export": ["export", "--sql", "-"],
    "relocate": ["relocate"],
    "rollback": ["rollback", "--plan"],
    "run": ["run", "--cluster", "main"],
    "init": ["init", "other"],
    "diff": ["diff", "catalog:", "release"],
    "plan": ["plan", "--out", "plan.json"],
    "apply": ["apply", "--yes"],
    "status": ["status"],
    "history": ["history"],
    "show": ["show", "shop.orders"],
    "graph": ["graph"],
    "check": ["check", "release"],
    "sql": ["sql", "-c", "SHOW SOURCES"],
    "source": ["source", "positions", "shop.orders"],
    "unsafe": ["unsafe", "list"],
    "release": ["release", "compile", "release", "--check"],
    "config": ["config", "show"],
    "doctor": ["doctor", "--no-spark"],
    "unlock": ["unlock", "--yes"],
    "completion": ["completion", "bash"],
    "version": ["version"],
}
SCRIPT = """
import json, logging, os, sys, traceback
from catalog_migrate.cli.main import main
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.api import Catalog
from catalog_migrate.config import load

def play(call):
    logging.debug("begun")
    print("exit", main(call))
    settings = load()
    print(settings)
    try:
        Catalog.open(settings.text("catalog.uri"), storage_options=settings.storage.options())
    except CatalogMigrateError:
        traceback.print_exc()

# each in a directory of its own, with what it and the libraries below it write on 1 and 2
for place, call in json.loads(sys.argv[1]):
    os.chdir(place)
    for number, name in ((1, "out.txt"), (2, "err.txt")):
        file = os.open(name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    logging.basicConfig(level=logging.DEBUG, filename="debug.log", force=True)
    play(call)
    sys.stdout.flush()
    sys.stderr.flush()
"""


def home(places: Path, form: str, verb: str) -> Path:
    """Where one verb is played, with one form of logs."""
    return places / form / verb


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every verb, played in a directory of its own by one process for each form of logs."""
    base = tmp_path_factory.mktemp("verbs")
    for form in FORMS:
        calls = []
        for verb, arguments in CALLS.items():
            place = home(base, form, verb)
            (place / "release").mkdir(parents=True)
            (place / "release" / "t.sql").write_text("CREATE TABLE shop.orders (id INT);")
            config = FILE.replace("{uri}", "s3://bucket/catalog")
            (place / "catalog_migrate.toml").write_text(config)
            calls.append((str(place), ["--log-format", form, *arguments]))
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps(calls)], cwd=base,
            env={**os.environ, **VARIABLES}, check=False, stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, Path(place, "err.txt").read_text()
    return base


@pytest.mark.parametrize("verb", sorted(CALLS))
@pytest.mark.parametrize("form", FORMS)
def test_no_option_is_told(places: Path, verb: str, form: str) -> None:
    """On a store that does not answer: output, DEBUG log, traceback, repr and every file."""
    place = home(places, form, verb)
    said, wrong = (place / "out.txt").read_text(), (place / "err.txt").read_text()
    assert "exit " in said
    if verb not in ("init", "check", "release", "config", "completion", "version", "doctor"):
        assert "exit 0" not in said
    assert "CM0230" in wrong
    config = place / "catalog_migrate.toml"
    written = [path for path in place.rglob("*") if path.is_file() and path != config]
    assert {"out.txt", "err.txt"} <= {path.name for path in written}
    assert [str(path) for path in written if MARK.encode() in path.read_bytes()] == []
    assert "begun" in (place / "debug.log").read_text()


def test_the_configuration_says_that_they_are_set(tmp_path: Path) -> None:
    """Names and origins are shown, values are not; a value that does not fit is not told either."""
    config = tmp_path / "catalog_migrate.toml"
    config.write_text(FILE.replace("{uri}", "c"))
    command = [sys.executable, "-m", "catalog_migrate.cli.main", "config", "show"]
    shown = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **VARIABLES}, capture_output=True, text=True,
        check=True,
    ).stdout
    rows = {line.split()[0]: line.split()[1] for line in shown.splitlines()}
    assert rows["storage_options.aws_secret_access_key"] == "***"
    assert rows["storage_options.azure_storage_sas_key"] == "***"
    assert MARK not in shown
    config.write_text(f'[storage_options]\naws_secret_access_key = ["{MARK}"]\n')
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 78
    assert "storage_options.aws_secret_access_key is not a text or a number" in refused.stderr
    assert MARK not in refused.stderr
