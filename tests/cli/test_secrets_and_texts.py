"""Logins in addresses are shown nowhere; statements come whole from wherever they are given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog_migrate.cli.main import main
from catalog_migrate.store.address import show_address
from tests.cli.test_main import bring_in_force, manifest


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://KEY:SECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://KEY:SEC/RET@bucket/x", "s3://***@bucket/x"),
        ("s3://TOKEN@bucket/x", "s3://***@bucket/x"),
        ("https://a.example/x?sig=SECRET&sv=2", "https://a.example/x?sig=***&sv=***"),
        ("abfss://rows@account.example/x", "abfss://rows@account.example/x"),
        ("s3://bucket/a@b", "s3://bucket/a@b"), ("s3://bucket/day=1&a=2", "s3://bucket/day=1&a=2"),
        ("/a:b@c?d=e", "/a:b@c?d=e"),
    ],
)
def test_an_address_as_it_is_shown(address: str, shown: str) -> None:
    """Logins and values of a query are hidden, what only looks like them stays."""
    assert show_address(address) == shown


@pytest.mark.parametrize(
    "address",
    ["s3://KEY:HUSHHUSH@bucket/x", "s3://KEY:HUSH/HUSH@bucket/x", "s3://bucket/x?sig=HUSHHUSH"],
)
def test_a_login_in_the_address(capsys: pytest.CaptureFixture[str], address: str) -> None:
    """``config show`` hides it, and every verb that would use the address refuses it with 64."""
    for form in ("text", "json"):
        assert main(["config", "show", "--catalog", address, "--warehouse", address,
                     "--format", form]) == 0
    for line in (["doctor", "--no-spark"], ["status"]):
        assert main([*line, "--catalog", address]) == 64
    told = capsys.readouterr()
    assert "HUSH" not in told.out + told.err
    assert told.err.count("the catalog's address holds a login") == 2


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog in the directory that the test stands in, which the configuration names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CATALOG_MIGRATE__CATALOG__URI", "c")
    bring_in_force(tmp_path, manifest(tmp_path / "1.json", "1", [("a", "INT")]))


@pytest.mark.usefixtures("catalog")
def test_several_commands_are_carried_out_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """Every ``-c`` counts, also one that ends in a semicolon or a comment."""
    assert main([
        "sql", "-c", "CREATE SECRET a AS 'env:X';", "-c", "CREATE SECRET b AS 'env:X' -- why",
        "-c", "SHOW SECRETS", "--format", "json",
    ]) == 0
    assert '"default.a"' in (out := capsys.readouterr().out)
    assert '"default.b"' in out


@pytest.mark.usefixtures("catalog")
def test_statements_that_are_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes that are not UTF-8 are a usage error with the line, and nothing is carried out."""
    file = tmp_path / "a.sql"
    file.write_bytes(b"CREATE SECRET a AS 'env:X';\nCREATE SECRET b AS '\xff';")
    assert main(["sql", "-f", str(file)]) == 64
    assert f"{file}:2: byte 0xff is not UTF-8" in capsys.readouterr().err
    assert main(["sql", "-c", "SHOW SECRETS", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.usefixtures("catalog")
def test_more_entries_than_there_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    """A limit beyond any number of entries lists all of them."""
    assert main(["history"]) == 0
    every = capsys.readouterr().out
    assert main(["history", "--limit", "9" * 20]) == 0
    assert capsys.readouterr().out == every
