"""The verbs that need Spark, one after the other on one catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.cli.main import main
from catalog_migrate.errors import InvalidRelease
from catalog_migrate.hook import bootstrap

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.spark
def test_a_release_is_applied_looked_at_and_applied_again(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """init, apply, status, show, sql, plan --bind, apply PLAN, apply it again, stale: all exits."""
    assert spark.version
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(args), *capsys.readouterr()

    assert call("init")[0] == 0
    code, out, _ = call("apply", "--yes", "--format", "json", "--reason", "the first of all")
    assert code == 0
    assert json.loads(out)["outcome"] == "initialized"
    status = json.loads(call("status", "--format", "json")[1])
    assert (status["release"], status["pending"]) == ("1.0", 0)
    reasons = [
        (entry["verb"], entry["reason"])
        for entry in json.loads(call("history", "--format", "json")[1])
    ]
    assert reasons[-2:] == [("migrate", "the first of all"), ("create", None)]
    assert call("plan", "--detailed-exitcode")[0] == 0
    shown = json.loads(call("show", "shop.orders", "--format", "json")[1])
    assert shown["location"].startswith(f"{tmp_path}/warehouse/shop/orders/")
    spark.sql("INSERT INTO shop.customers VALUES (1, 'x')")
    assert call("sql", "-c", "SELECT name, id FROM shop.customers", "--format", "json")[:2] == (
        0, '[\n  {\n    "name": "x",\n    "id": 1\n  }\n]\n'
    )
    assert call("sql", "-c", "SELECT nothing FROM shop.customers")[0] == 1
    code, told, _ = call("drift", "--detailed-exitcode")
    assert code == 0
    assert told.startswith("NOTHING TO DO: no names outlive the session: nothing can drift\n")

    release = tmp_path / "release"
    (release / "release.toml").write_text('name = "1.1"\ndefault_schema = "shop"\n')
    (release / "vip.sql").write_text("CREATE VIEW vip (id BIGINT) AS SELECT id FROM customers;\n")
    code, out, _ = call("plan", "--bind", "--detailed-exitcode")
    assert code == 2
    assert "bound: Spark's analyser accepted" in out
    assert call("plan", "--out", "plan.json")[0] == 0
    assert call("apply", "plan.json", "--yes")[1].startswith("migrated: release 1.1, ")
    assert call("apply", "plan.json", "--yes")[1].startswith("unchanged: release 1.1, ")
    (release / "vip.sql").unlink()
    assert call("apply", "plan.json", "--yes")[0] == 4

    (release / "vip.sql").write_text("CREATE VIEW vip AS SELECT * FROM customers;\n")
    assert call("release", "compile", "release")[0] == 0
    vip = next(
        each for each in json.loads((tmp_path / "release.json").read_text())["objects"]
        if each["name"] == "vip"
    )
    assert [(each["name"], each["type"]) for each in vip["columns"]] == [
        ("id", "BIGINT"), ("name", "STRING"),
    ]
    _lists_are_left_to_spark(release, call, spark)
    for schema in ("shop", "catalog_migrate"):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def _lists_are_left_to_spark(release: Path, call: Call, spark: Any) -> None:
    """With Spark at hand views need no list; --write gives files that lead to the same release."""
    vip = release / "vip.sql"
    bare = (
        b"\xef\xbb\xbf-- caf\xc3\xa9 (\r\nCREATE VIEW vip -- who\r\n  AS SELECT *, 1 AS one"
        b" FROM customers;\r\nCREATE VIEW `first` AS SELECT max(id) AS top, one FROM vip GROUP BY"
        b" one;\r\n"
    )
    broken = bare + (
        b"CREATE VIEW bad AS SELECT nothing FROM vip;\nCREATE VIEW worse AS SELECT * FROM bad;\n"
    )
    vip.write_bytes(broken)
    code, _, err = call("release", "compile", "release", "--write")
    assert code == 1
    assert "vip.sql:5:13: CM0107 view shop.bad has no typed column list, and Spark finds" in err
    assert "worse" not in err
    assert vip.read_bytes() == broken

    vip.write_bytes(bare)
    code, _, err = call("check", "release")
    assert code == 1
    assert "vip.sql:2:13: CM0107 view shop.vip has no typed column list" in err
    assert "catalog-migrate release compile --write DIR" in err
    assert call("check", "release", "--bind")[0] == 0
    assert call("plan", "--bind", "--out", "plan.json")[0] == 0
    for command in ("bootstrap", "apply"):
        code, _, err = call(command)
        assert (code, "CM0107 view shop.vip has no typed column list" in err) == (1, True)
    with pytest.raises(InvalidRelease, match=r"release compile --write DIR"):
        bootstrap(spark, release=release, catalog="catalog", warehouse="warehouse")

    code, _, err = call("release", "compile", "release", "--write")
    assert code == 0
    assert "vip.sql: the typed column list of shop.vip, shop.first\n" in err
    written = vip.read_bytes()
    assert written == bare.replace(
        b"VIEW vip", b"VIEW vip (id BIGINT NOT NULL, name STRING, one INT NOT NULL)"
    ).replace(b"VIEW `first`", b"VIEW `first` (top BIGINT, one INT NOT NULL)")
    code, _, err = call("release", "compile", "release", "--write")
    assert (code, vip.read_bytes()) == (0, written)
    assert err.endswith("Z every view has its typed column list: nothing is written\n")
    assert call("apply", "plan.json", "--yes")[1].startswith("migrated: release 1.1, ")
