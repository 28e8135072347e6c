"""Every form of the reports of ``sql`` (EXPLAIN), ``unsafe`` and ``drift``, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.cli.main import main
from catalog_migrate.connectors.kafka import probe as kafka_probe

SET_UP = (
    "CREATE CLUSTER main; CREATE SECRET pw AS 'env:PW_OF_TEST';"
    "CREATE CONNECTION c TO KAFKA (BROKER '127.0.0.1:1') WITH (VALIDATE = false);"
    "CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON"
)
EXPLAIN = "EXPLAIN ALTER CONNECTION c SET (BROKER = '127.0.0.1:2')"
MARKS = {
    "text": "REFUSED BY VALIDATION: 2 of 2 objects would not work",
    "markdown": "**REFUSED BY VALIDATION**: 2 of 2 objects",
    "html": "<!doctype html>", "svg": "<svg ",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog with a source of a broker that does not answer."""
    monkeypatch.setattr(kafka_probe, "_SETTLED_SECONDS", 0.0)
    monkeypatch.setenv("PW_OF_TEST", "hunter2-of-the-secret")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog_migrate.toml").write_text('[catalog]\nuri = "catalog"\n')
    create_catalog(open_log("catalog"), warehouse=str(tmp_path / "warehouse"))
    assert main(["sql", "-c", SET_UP]) == 0
    return tmp_path


@pytest.mark.parametrize("form", MARKS)
def test_explain_in_every_form(capsys: pytest.CaptureFixture[str], form: str) -> None:
    """On stdout, with the verdict first; nothing is changed by it."""
    capsys.readouterr()
    assert main(["sql", "-c", EXPLAIN, "--format", form]) == 0
    told = capsys.readouterr().out
    assert told.startswith(MARKS[form])
    assert "127.0.0.1:2" in told or form == "svg"
    main(["sql", "-c", "SHOW CREATE CONNECTION c"])
    assert "127.0.0.1:1" in capsys.readouterr().out


def test_explain_as_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What was there before stays; verdict, objects and decisions are beside it."""
    capsys.readouterr()
    assert main(["sql", "-c", EXPLAIN, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"].startswith("would be: connection default.c altered")
    assert {"restarted", "operation", "notices", "steps", "executed"} <= found.keys()
    assert found["explained"]["verdict"]["word"] == "REFUSED BY VALIDATION"
    connection, source = found["explained"]["objects"][:2]
    assert connection["differences"][0] == {
        "aspect": "option", "name": "BROKER", "before": "127.0.0.1:1", "after": "127.0.0.1:2",
        "lines": [],
    }
    assert source["because"] == ["connection:default.c", "default.s"]
    assert found["explained"]["decisions"][0]["verb"] == "remedy"


@pytest.mark.parametrize(
    ("name", "begins"), [("e.html", "<!doctype"), ("e.md", "**REF"), ("e.txt", "REF"),
                         ("e.json", "{\n"), ("e.svg", "<svg ")],
)
def test_explain_is_saved_in_the_form_of_its_name(
    place: Path, capsys: pytest.CaptureFixture[str], name: str, begins: str
) -> None:
    """And printed as text."""
    capsys.readouterr()
    assert main(["sql", "-c", EXPLAIN, "--out", name]) == 0
    assert (place / name).read_text(encoding="utf-8").startswith(begins)
    told = capsys.readouterr()
    assert told.out.startswith(MARKS["text"])
    assert f"saved to {name}" in told.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "SHOW SOURCES", "--format", "html"],
        ["-c", "DROP SOURCE s", "--format", "markdown"],
        ["-c", "DROP SOURCE s", "--out", "e.html"],
        ["-c", EXPLAIN, "-c", "DROP SOURCE s", "--format", "svg"],
        ["-c", "SELECT 1", "--format", "html"],
        ["-c", "EXPLAIN SELECT 1", "--format", "html"],
    ],
)
def test_what_is_no_explain_has_no_report(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """It is refused before anything is done, with what helps."""
    capsys.readouterr()
    assert main(["sql", *arguments]) == 64
    told = capsys.readouterr()
    assert "is for the report of one EXPLAIN of a statement on streams" in told.err
    assert "--format text or json" in told.err
    assert not (place / "e.html").exists()
    main(["sql", "-c", "SHOW SOURCES"])
    assert "default.s" in capsys.readouterr().out


def test_an_unknown_connection(capsys: pytest.CaptureFixture[str]) -> None:
    """A typed error with the nearest name, whatever form was asked for; no empty page."""
    capsys.readouterr()
    statement = "EXPLAIN ALTER CONNECTION d SET (BROKER = 'x:1')"
    for form in MARKS:
        assert main(["sql", "-c", statement, "--format", form]) != 0
        told = capsys.readouterr()
        assert told.out == ""
        assert "there is no connection called d" in told.err


def test_no_value_of_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """A secret is told by its name, in every form."""
    capsys.readouterr()
    statement = (
        "EXPLAIN ALTER CONNECTION c SET (SECURITY PROTOCOL = 'SASL_PLAINTEXT', SASL MECHANISMS ="
        " 'SCRAM-SHA-512', SASL USERNAME = 'u', SASL PASSWORD = SECRET pw)"
    )
    for form in (*MARKS, "json"):
        assert main(["sql", "-c", statement, "--format", form]) == 0
        told = capsys.readouterr()
        assert "hunter2" not in told.out + told.err
        assert "SECRET default.pw" in told.out or form == "svg"


ALTER = ["unsafe", "alter", "s", "--set", "kafka.client.id=x", "--reason", "r"]


@pytest.mark.parametrize("form", MARKS)
def test_a_dry_run_in_every_form(capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Printed, or from its saved plan."""
    capsys.readouterr()
    assert main([*ALTER, "--skip-validate", "--plan", "--format", form]) == 0
    first = capsys.readouterr().out
    assert main([*ALTER, "--skip-validate", "--out", "plan.json"]) == 0
    assert main(["unsafe", "apply", "plan.html", "--yes"]) != 0
    capsys.readouterr()
    assert main(["unsafe", "plan", "plan.json", "--format", form]) == 0
    again = capsys.readouterr().out
    begins = {
        **MARKS, "text": "NO RECORD DOUBLED OR SKIPPED\n",
        "markdown": "**NO RECORD DOUBLED OR SKIPPED**\n",
    }[form]
    assert first.startswith(begins)
    assert again.startswith(begins)


def test_a_dry_run_is_saved_as_plan_or_page(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan is applied; a page is looked at, and is not said to be applied."""
    assert main([*ALTER, "--skip-validate", "--out", "plan.html"]) == 0
    told = capsys.readouterr()
    assert (place / "plan.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "unsafe apply" not in told.err
    assert main([*ALTER, "--skip-validate", "--out", "plan.json"]) == 0
    assert "unsafe apply plan.json" in capsys.readouterr().err
    assert main(["unsafe", "plan", "plan.json", "--out", "shown.html"]) == 0
    assert "default.s" in (place / "shown.html").read_text(encoding="utf-8")


def test_a_page_of_what_is_done_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --plan nothing is begun: the report is of a dry run."""
    capsys.readouterr()
    assert main([*ALTER, "--yes", "--format", "html"]) == 64
    assert "--format html is for the report of a dry run" in capsys.readouterr().err


@pytest.mark.parametrize("form", MARKS)
def test_drift_in_every_form(capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Also where no name outlives the session; a picture of no names is refused, not empty."""
    capsys.readouterr()
    if form == "svg":
        assert main(["drift", "--format", form]) == 64
        told = capsys.readouterr()
        assert told.out == ""
        assert "this report has no picture" in told.err
        assert "use --format html" in told.err
        return
    assert main(["drift", "--format", form]) == 0
    begins = {**MARKS, "text": "NOTHING TO DO: no names", "markdown": "**NOTHING TO DO**"}[form]
    assert capsys.readouterr().out.startswith(begins)
