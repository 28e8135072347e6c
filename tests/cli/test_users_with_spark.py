"""Commands that break what users built: they ask, judge again at each start, and take approvals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.cli.main import main
from catalog_migrate.planner.planfile import decode_plan

ONE = "CREATE TABLE shop.orders (id INT, city STRING, n INT);\n"
TWO = "CREATE TABLE shop.orders (id INT, town STRING RENAMED FROM city, n INT);\n"


@pytest.mark.spark
def test_a_command_asks_before_it_breaks_what_users_built(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, with a plan made without a look, with one that was approved, and back again."""
    assert spark.version
    monkeypatch.chdir(tmp_path)
    (tmp_path / "release").mkdir()
    (tmp_path / "catalog_migrate.toml").write_text(
        '[catalog]\nuri = "c"\nwarehouse = "w"\n[release]\npath = "release"\n'
    )

    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(args), *capsys.readouterr()

    def release(name: str, text: str) -> None:
        (tmp_path / "release" / "release.toml").write_text(f'name = "{name}"\n')
        (tmp_path / "release" / "t.sql").write_text(text)

    def in_force() -> str:
        return str(json.loads(call("status", "--format", "json")[1])["release"])

    release("1", ONE)
    assert call("apply", "--yes")[0] == 0
    spark.sql("CREATE SCHEMA team")
    spark.sql("CREATE VIEW team.cities AS SELECT city FROM shop.orders WHERE n > 1")
    spark.sql("CREATE VIEW team.sums AS SELECT id, sum(n) AS n FROM shop.orders GROUP BY id")

    release("2", TWO)
    # a plan that nothing has looked for: the start looks, and nothing is touched
    code, out, _ = call("plan", "--out", "plan.json")
    assert (code, "Not looked at: plan --bind does" in out) == (0, True)
    code, out, err = call("apply", "plan.json", "--yes")
    assert (code, "[CM0338]" in out, "--approve team.cities" in err) == (3, True, True)
    assert "team.cities (view) breaks: " in out
    assert "(UNRESOLVED_COLUMN.WITH_SUGGESTION)" in out
    assert "1 breaks, 1 goes on untouched." in out
    assert in_force() == "1"

    # what a start of the software would do, which goes on
    code, out, _ = call("bootstrap", "--read-only")
    assert (code, "\nUsers' objects\n" in out, in_force()) == (0, True, "1")
    assert "\nBREAKS 1 USER'S OBJECT: " in out
    assert "team.cities (view) breaks: " in out

    # one that is approved holds for what was approved, and not for what users made since
    code, out, _ = call("plan", "--bind", "--approve", "team.cities", "--out", "plan.json")
    saved = decode_plan((tmp_path / "plan.json").read_bytes())
    assert (code, saved.approved) == (0, ("team.cities",))
    assert out.startswith("BREAKS 1 USER'S OBJECT: 1 migrated; 0 unchanged; users' objects: 1")
    spark.sql("CREATE VIEW team.later AS SELECT upper(city) AS city FROM shop.orders")
    code, _, err = call("apply", "plan.json", "--yes")
    assert (code, "team.later: breaks" in err, "team.cities: breaks" in err) == (3, True, False)
    code, out, _ = call("apply", "plan.json", "--approve", "team.later", "--yes")
    assert (code, out.startswith("migrated: release 2")) == (0, True)
    assert in_force() == "2"

    # and back: a view over the new name breaks then
    spark.sql("CREATE VIEW team.towns AS SELECT town FROM shop.orders")
    back = ("rollback", "--to", "1")
    code, out, _ = call(*back, "--yes")
    assert (code, "team.towns (view) breaks: " in out, "[CM0338]" in out) == (3, True, True)
    assert call(*back, "--approve", "team.towns", "--yes")[0] == 0
    assert in_force() == "1"
    for schema in ("team", "shop", "catalog_migrate"):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
