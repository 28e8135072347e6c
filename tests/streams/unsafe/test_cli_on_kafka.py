"""The verbs `unsafe` and `source` on a durable catalog and a real broker, without a runtime."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.cli.main import main

from .conftest import Stage

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services
Run = Callable[..., int]


@pytest.fixture
def stage(tmp_path: Path, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The same stage on a catalog in a directory."""
    log = open_log(str(tmp_path / "catalog"))
    create_catalog(log, warehouse=str(tmp_path / "warehouse"))
    monkeypatch.setenv("STAGE_PW", kafka.users["app"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CATALOG_MIGRATE__CATALOG__URI", str(tmp_path / "catalog"))
    return Stage(log, tmp_path / "warehouse", kafka)  # type: ignore[arg-type]


def test_export_and_inject(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is exported is accepted back; a changed number is a dry run, then a position."""
    topic = stage.topic("t", [10, 5])
    stage.source(topic)
    stage.started(topic, {0: 8, 1: 4})
    stage.open_gate()
    assert main(["source", "positions", "s", "--format", "json"]) == 0
    exported = json.loads(capsys.readouterr().out)
    assert exported["positions"] == {topic: {"0": 8, "1": 4}}
    file = tmp_path / "offsets.json"
    inject = ["unsafe", "inject-offsets", "s", "--file", str(file), "--reason", "test"]

    file.write_text(json.dumps(exported))
    assert main([*inject, "--yes"]) == 0
    assert "nothing changes" in capsys.readouterr().out

    exported["positions"][topic]["0"] = 5
    file.write_text(json.dumps(exported))
    assert main([*inject, "--plan"]) == 0
    out = capsys.readouterr().out
    assert "Positions are the next record to read." in out
    assert "3 records doubled, 0 skipped; 0 already expired" in out
    assert stage.positions() == {0: 8, 1: 4}
    assert main(inject) == 3  # nobody said yes
    assert "missing: the confirmation" in capsys.readouterr().err
    assert main([*inject, "--yes"]) == 0
    assert stage.positions() == {0: 5, 1: 4}
    assert "operation" in capsys.readouterr().out

    assert main(["status", "--format", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["unsafe"]
    assert (listed["sources"], listed["reason"]) == ("default.s", "test")
    assert (listed["kind"], listed["partitions"], listed["doubled"]) == ("inject", 1, 3)
    key = listed["operation"]
    for _ in range(2):  # under one id it is done once, however often it is said
        assert main(["unsafe", "undo", key, "--reason", "back", "--yes", "--id", "undo-1"]) == 0
    assert stage.positions() == {0: 8, 1: 4}
    capsys.readouterr()
    assert main(["status", "--format", "json"]) == 0
    (undo,) = json.loads(capsys.readouterr().out)["unsafe"]  # what was taken back needs no look
    assert (undo["kind"], undo["undoes"]) == ("undo", key)
    assert main(["unsafe", "acknowledge", undo["operation"]]) == 0
    capsys.readouterr()
    assert main(["status", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["unsafe"] == []

    assert main(["unsafe", "list", "--format", "json"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert [(each["operation"], each["kind"], each["reason"]) for each in kept] == [
        (key, "inject", "test"), (undo["operation"], "undo", "back")
    ]
    assert kept[0]["partitions"] == [f"{topic}:0 from 8 to 5"]
    assert main(["unsafe", "list", key, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == kept[0]
    assert main(["unsafe", "list"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "kind", "inject", "undo"
    ]
    assert main(["sql", "-c", "SHOW OPERATIONS", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(each["kind"], each["reason"], each["outcome"]) for each in shown] == [
        ("unsafe inject", "test", None), ("unsafe undo", "back", None)
    ]


class Terminal(io.StringIO):
    """Standard input where a person types."""

    def isatty(self) -> bool:
        return True


def test_typed_on_a_terminal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person is shown the plan and types the source's name; anything else does nothing."""
    topic = stage.topic("t", [10])
    stage.source(topic)
    stage.started(topic, {0: 6})
    stage.open_gate()
    inject = ["unsafe", "inject-offsets", "s", "--to", "earliest", "--reason", "test"]
    for typed, code, wanted in (("s\n", 3, 6), ("yes\n", 3, 6), ("default.s\n", 0, 0)):
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        capsys.readouterr()
        assert main(inject) == code
        said = capsys.readouterr()
        assert "6 records doubled" in said.err
        assert "type default.s to go on" in said.out + said.err
        assert stage.positions() == {0: wanted}


def test_saved_plan(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan in a file is applied; by hand changed ones and stale ones are not (exit 4)."""
    topic = stage.topic("t", [10])
    stage.source(topic)
    stage.started(topic, {0: 6})
    stage.open_gate()
    plan = tmp_path / "plan.json"
    dry = ["unsafe", "reset-splits", "s", "--out", str(plan)]
    assert main(dry) == 0
    said = capsys.readouterr().err
    assert f"the plan is saved in {plan}, nothing was done" in said
    assert f"to do it: catalog-migrate unsafe apply {plan} --reason 'WHY'" in said
    assert main(["unsafe", "apply", str(plan), "--yes"]) == 3
    assert "missing: a reason" in capsys.readouterr().err
    assert main([*dry, "--reason", "test"]) == 0
    assert capsys.readouterr().err.endswith(f"to do it: catalog-migrate unsafe apply {plan}\n")
    assert main(["unsafe", "plan", str(plan)]) == 0
    assert "6 records doubled" in capsys.readouterr().out
    assert main([*dry[:-1], "-", "--reason", "test"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["plan"]["items"] == json.loads(plan.read_text())["plan"]["items"]
    edited = tmp_path / "edited.json"
    edited.write_text(plan.read_text().replace('"doubled": 6', '"doubled": 9'))
    assert main(["unsafe", "apply", str(edited), "--yes"]) == 1
    assert main(["unsafe", "apply", str(plan), "--yes"]) == 0
    assert stage.positions() == {0: 0}
    assert main(["unsafe", "apply", str(plan), "--yes"]) == 4


def test_forms(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each way to say it on the command line; sources below a connection move all or none."""
    topic, other = stage.topic("t", [10, 5]), stage.topic("o", [3])
    stage.source(topic)
    stage.started(topic, {0: 8, 1: 4})
    stage.open_gate()
    why = ("--reason", "test", "--yes")

    def unsafe(*arguments: str) -> int:
        capsys.readouterr()
        return main(["unsafe", *arguments, *why])

    def inject(*arguments: str) -> int:
        return unsafe("inject-offsets", "s", *arguments)

    assert inject("--partition", f"{topic}:0=3", "--partition", f"{topic}:1=shift -3") == 0
    assert stage.positions() == {0: 3, 1: 1}
    for form, wanted in (
        ("latest", {0: 10, 1: 5}), ("shift -2", {0: 8, 1: 3}), ("duration PT2H", {0: 0, 1: 0}),
        ("timestamp 2020-01-01T00:00:00Z", {0: 0, 1: 0}), ("committed", {0: 0, 1: 0}),
    ):
        assert inject("--to", form) == 0, form
        assert stage.positions() == wanted
    assert inject("--partition", f"{topic}:0=99", "--policy", "clamp") == 0
    assert "clamped to 10" in capsys.readouterr().err
    assert stage.positions() == {0: 10, 1: 0}
    assert inject("--partition", f"{topic}:0=null") == 0
    assert stage.positions() == {0: 0, 1: 0}
    assert inject("--to", "latest") == 0
    dry = ["unsafe", "inject-offsets", "s", "--to", "earliest", "--with-times", "--plan"]
    assert main(dry) == 0
    assert "written at unknown times" in capsys.readouterr().out
    assert unsafe("reset-splits", "s", "--partition", f"{topic}:1") == 0
    assert stage.positions() == {0: 10, 1: 0}
    assert inject("--to", "shift 1", "--tolerance", "0", "--partition", f"{topic}:0=10") == 0

    stage.run(f"CREATE SOURCE s2 (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c "
              f"(TOPIC '{other}') FORMAT JSON")
    before = stage.lines()
    assert unsafe("inject-offsets", "--below", "c", "--partition", f"{other}:0=2") == 3
    assert f"the topics read are {topic}" in capsys.readouterr().err
    assert stage.lines() == before
    assert unsafe("inject-offsets", "--below", "c", "--to", "earliest") == 0
    assert "default.s, default.s2" in capsys.readouterr().out
    assert unsafe("inject-offsets", "s", "s2", "--to", "latest") == 0
    assert stage.positions() == {0: 10, 1: 5}

    monkeypatch.setenv("STAGE_OTHER", "MARKER-of-nobody")
    stage.run("CREATE SECRET wrong AS 'env:STAGE_OTHER'")
    password = ("alter", "s", "--set-secret", "SASL PASSWORD=wrong")
    assert unsafe(*password) == 1
    said = capsys.readouterr()
    assert "validation" in said.err
    assert unsafe(*password, "--skip-validate") == 0
    assert "MARKER" not in said.err + said.out + "".join(capsys.readouterr())
    assert unsafe("alter", "s", "--drop", "SASL PASSWORD", "--set", "kafka.client.id=x") == 0
    assert main(["sql", "-c", "SHOW CREATE SOURCE s"]) == 0
    assert "SET (kafka.client.id = 'x')" in capsys.readouterr().out


BAD_FILES = [
    ('{"positions": {"TOPIC": {"0": "five"}}}', "is no number"),
    ('{"positions": {"TOPIC": {"0": -1}}}', "out of range"),
    ('{"positions": {"TOPIC": {"9": 1}}}', "partition TOPIC:9 does not exist"),
    ('{"positions": {"wrong": {"0": 1}}}', "partition wrong:0 does not exist"),
    ('{"offsets": {}}', "unknown field `offsets`"),
    ('{"positions": {}}', "names no partition"),
    ("no json", "is no file of positions"),
    ('{"positions": {"TOPIC": {"0": 1}}, "topics": {"TOPIC": "x"}}', "another topic TOPIC"),
]
BAD_CALLS = [
    (["reset-splits", "nope", "--reason", "r"], 1, "there is no source called nope"),
    (["reset-splits", "other.s", "--reason", "r"], 1, "did you mean default.s?"),
    (["reset-splits", "ss", "--reason", "r"], 1, "did you mean default.s?"),
    (["reset-splits", "k", "--reason", "r"], 1, "it is a sink; the sources of"),
    (["reset-splits", "s", "--below", "d", "--reason", "r"], 1, "no connection called d"),
    (["reset-splits", "s"], 3, "missing: a reason"),
    (["inject-offsets", "s", "--reason", "r"], 64, "no position is given"),
    (["inject-offsets", "s", "--reason", "r", "--to", "-3"], 1, "is negative"),
    (["undo", "nope", "--reason", "r"], 3, "there is no unsafe operation nope"),
    (["alter", "s", "--set", "TOPIC", "--reason", "r"], 64, "KEY=VALUE is expected"),
    (["alter", "s", "--set", "TOPIC=x", "--reason", "r"], 3, "add: , RESET SPLITS"),
]


def test_bad_files_and_calls(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is wrong is refused with its place; what is missing or unknown is named, with
    the exit code of its kind. Nothing changes."""
    topic = stage.topic("t", [10])
    stage.source(topic)
    stage.started(topic, {0: 6})
    stage.open_gate()
    file = tmp_path / "offsets.json"
    for document, message in BAD_FILES:
        file.write_text(document.replace("TOPIC", topic))
        capsys.readouterr()
        arguments = ["unsafe", "inject-offsets", "s", "--file", str(file), "--reason", "r", "--yes"]
        assert main(arguments) in (1, 3), document
        assert message.replace("TOPIC", topic) in capsys.readouterr().err
        assert not stage.state.operations
    stage.open_gate(False)
    stage.run(
        "CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id) "
        "FORMAT JSON"
    )
    version = stage.log.version()
    for call, code, message in BAD_CALLS:
        capsys.readouterr()
        assert main(["unsafe", *call]) == code, call
        said = capsys.readouterr().err
        assert message in said
        assert ("remedy: " in said) or code == 64
        assert stage.log.version() == version
