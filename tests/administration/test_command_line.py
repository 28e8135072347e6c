"""``relocate``, ``rebuild``, ``export`` and ``unlock`` as an operator types them; no Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.catalog.records import SessionRecord
from catalog_migrate.cli.main import main
from tests.decisions import Changes, commit

from .conftest import ORDERS, Place

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs a command line in the directory of the place; (exit code, stdout, stderr)."""
    monkeypatch.chdir(place.home)

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(args))
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def release(place: Place) -> Path:
    """A directory with the release that was in force."""
    directory = place.home / "release"
    directory.mkdir()
    (directory / "orders.sql").write_text(ORDERS, encoding="utf-8")
    return directory


def test_relocate_of_a_moved_warehouse(place: Place, call: Call) -> None:
    """A dry run says what is found and writes nothing; then it is followed."""
    place.installed()
    (place.home / "catalog" / "warehouse").rename(place.home / "elsewhere")
    command = ("relocate", "--catalog", "catalog", "--warehouse", "elsewhere")
    code, out, _ = call(*command, "--dry-run")
    assert (code, "nothing was written" in out) == (0, True)
    assert place.state().setting("warehouse") == place.warehouse()
    code, out, _ = call(*command, "--format", "json")
    said = json.loads(out)
    assert (code, said["changed"], said["tables"]) == (0, True, 1)
    assert said["warehouse"] == str(place.home / "elsewhere")
    assert place.state().setting("warehouse") == str(place.home / "elsewhere")
    code, out, _ = call("relocate", "--catalog", "catalog")
    assert (code, "nothing to do" in out) == (0, True)


def test_relocate_of_a_copy(place: Place, call: Call) -> None:
    """What a copy needs is named; with a lineage of its own it may be written."""
    before = place.installed()
    shutil.copytree(place.home / "catalog", place.home / "copy")
    code, _, err = call("unlock", "--catalog", "copy", "--if-holder", "nobody")
    assert code != 0
    assert "relocate" in err
    code, out, _ = call("relocate", "--catalog", "copy", "--new-lineage")
    lineage = place.state("copy").lineage
    assert (code, f"new lineage {lineage}" in out) == (0, True)
    assert lineage != before.lineage == place.state().lineage


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--names-too",), "--new-lineage"),
        (("--table", "shop.orders"), "--table schema.name=PATH"),
        (("--warehouse", "nowhere"), "shop.orders"),
    ],
)
def test_relocate_refuses(
    place: Place, call: Call, arguments: tuple[str, ...], told: str
) -> None:
    """Exit code, what is wrong and what to write instead; no byte is written."""
    place.installed()
    before = place.files()
    code, out, err = call("relocate", "--catalog", "catalog", *arguments)
    assert code != 0
    assert (out, told in err) == ("", True)
    assert place.files() == before


@pytest.mark.usefixtures("release")
def test_rebuild_of_a_lost_log(place: Place, call: Call) -> None:
    """A dry run lists table, id and shard; then the catalog is there again."""
    before = place.installed()
    shutil.rmtree(place.home / "catalog" / "log")
    files = place.files()
    command = ("rebuild", "--catalog", "catalog", "--release", "release")
    code, out, _ = call(*command, "--dry-run")
    assert (code, "shop.orders" in out, "nothing was written" in out) == (0, True, True)
    assert place.files() == files
    code, out, _ = call(*command, "--format", "json")
    said = json.loads(out)
    assert (code, said["written"], said["lineage"]) == (0, True, before.lineage)
    assert [(t["name"], t["item_id"]) for t in said["tables"]] == [("shop.orders", "i1")]
    assert place.state().items["i1"].shard == before.items["i1"].shard
    code, _, err = call(*command)
    assert code != 0  # a whole catalog is never made again
    assert "CM" in err


@pytest.mark.usefixtures("release")
def test_rebuild_beside_a_catalog_that_is_whole(place: Place, call: Call) -> None:
    """A mistyped address: exit 3, the right one is named, and nothing is written."""
    place.installed()
    before = place.files()
    code, out, err = call("rebuild", "--catalog", "catlog", "--release", "release",
                          "--warehouse", "catalog/warehouse")
    assert (code, out, place.files()) == (3, "", before)
    assert f"use it: --catalog {place.home / 'catalog'}" in err


def test_rebuild_of_nothing(place: Place, call: Call, release: Path) -> None:
    """A table of the release without a shard is asked for, by name; nothing is written."""
    (release / "more.sql").write_text("CREATE TABLE shop.more (id BIGINT);", encoding="utf-8")
    place.installed()
    shutil.rmtree(place.home / "catalog" / "log")
    files = place.files()
    code, out, err = call("rebuild", "--catalog", "catalog", "--release", "release")
    assert code != 0
    assert "shop.more" in err
    assert "--missing" in err
    assert (out, place.files()) == ("", files)


@pytest.mark.usefixtures("release")
def test_rebuild_on_an_object_store(place: Place, call: Call) -> None:
    """Refused with what to do instead; it is not taken for a directory of that name."""
    before = place.files()
    code, _, err = call("rebuild", "--catalog", "s3://bucket/catalog", "--release", "release")
    assert (code, "backup" in err) == (64, True)
    assert place.files() == before


def test_export_as_sql(place: Place, call: Call) -> None:
    """Every table as a plain registration, on stdout or in a file; nothing is changed."""
    state = place.installed()
    before = place.files()
    code, out, _ = call("export", "--catalog", "catalog", "--sql", "-")
    shard = state.items["i1"].shard
    assert (code, f"{place.warehouse()}/{shard}" in out) == (0, True)
    assert "catalog_migrate." not in out
    assert place.files() == before
    code, printed, err = call("export", "--catalog", "catalog", "--sql", "names.sql")
    assert (code, printed, "saved to names.sql" in err) == (0, "", True)
    assert (place.home / "names.sql").read_text(encoding="utf-8") == out


def test_unlock_of_sessions(place: Place, call: Call) -> None:
    """One by its id, older ones by a serial; an unknown id is an error that changes nothing."""
    place.installed()
    changes = Changes()
    for key, serial in (("old", 1), ("older", 0), ("now", 7)):
        changes.put("session", key, SessionRecord(
            release="1", serial=serial, holder="app/1", host="elsewhere", boot_id="b", pid=1,
        ))
    commit(place.log(), lambda _: changes, kind="test")
    code, _, err = call("unlock", "--catalog", "catalog", "--session", "nobody")
    assert (code != 0, "nobody" in err) == (True, True)
    assert set(place.state().sessions) == {"old", "older", "now"}
    code, out, _ = call("unlock", "--catalog", "catalog", "--session", "older")
    assert (code, out) == (0, "forgot session older\n")
    code, out, _ = call("unlock", "--catalog", "catalog", "--sessions-before", "7")
    assert (code, out) == (0, "forgot session old\n")
    code, out, _ = call("unlock", "--catalog", "catalog", "--sessions-before", "7")
    assert (code, out) == (0, "no session is that old\n")
    assert set(place.state().sessions) == {"now"}
    code, _, err = call("unlock", "--catalog", "catalog")
    assert (code, "--if-holder" in err) == (64, True)


@pytest.mark.parametrize(
    ("verb", "arguments", "told"),
    [
        ("init", ("--adopt", "--table", "shop.orders=data/orders", "--catalog", "s3://b/c"),
         "CM0230"),
        ("init", ("--adopt", "--table", "shop.orders=data/orders", "--catalog", "new",
                  "--warehouse", "s3://b/c"), "object store"),
        ("init", ("--adopt", "--table", "shop.orders=", "--catalog", "new"), "empty text"),
        ("apply", ("--catalog", "new", "--warehouse", "", "--yes"), "CM0600"),
        ("relocate", ("--catalog", "catalog", "--warehouse", "s3://b/c"), "object store"),
        ("relocate", ("--catalog", "catalog", "--warehouse", ""), "empty text"),
        ("relocate", ("--catalog", "catalog", "--table", "shop.orders="), "empty text"),
        ("rebuild", ("--catalog", "new", "--warehouse", "s3://b/c"), "object store"),
        ("rebuild", ("--catalog", "new", "--table", "shop.orders="), "empty text"),
    ],
)
def test_addresses_that_are_no_directories_of_rows(
    place: Place, call: Call, release: Path, verb: str, arguments: tuple[str, ...], told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An address of an object store, or an empty text of a variable that is not set, is never
    taken for a directory below the present one: refused, nothing written and nothing marked."""
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "y"),
                        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"), ("AWS_REGION", "r"),
                        ("AWS_ALLOW_HTTP", "true"), ("AWS_MAX_RETRIES", "0")):
        monkeypatch.setenv(name, value)
    create_catalog(place.log(), warehouse=place.warehouse())
    place.table("orders")
    before = place.files()
    if verb != "relocate":
        arguments = (*arguments, "--release", str(release))
    code, out, err = call(verb, *arguments)
    assert code != 0
    assert told in out + err
    assert place.files() == before
