"""What is refused, and what a dry run needs, without a broker that answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.catalog.records import OperationRecord, UnsafeAct
from catalog_migrate.cli import logs
from catalog_migrate.cli.main import main
from catalog_migrate.connectors.kafka import probe as kafka_probe
from catalog_migrate.errors import UnsafeBlocked
from catalog_migrate.streams.positions.positions_file import read_exported, targets_of
from tests.cli.test_main import bring_in_force, manifest
from tests.decisions import Changes
from tests.services.left_behind import leave


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Source ``s`` on a port where nobody listens, believed at once; its gate is closed."""
    monkeypatch.setattr(kafka_probe, "_SETTLED_SECONDS", 0.0)
    create_catalog(open_log(str(tmp_path / "catalog")), warehouse=str(tmp_path / "warehouse"))
    monkeypatch.setenv("CATALOG_MIGRATE__CATALOG__URI", str(tmp_path / "catalog"))
    monkeypatch.chdir(tmp_path)
    assert main([
        "sql", "-c",
        "CREATE CLUSTER main; CREATE CONNECTION c TO KAFKA (BROKER '127.0.0.1:1') "
        "WITH (VALIDATE = false); CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA "
        "CONNECTION c (TOPIC 't') FORMAT JSON",
    ]) == 0
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["unsafe", "reset-splits", "s", "--plan"],
        ["sql", "-c", "EXPLAIN ALTER SOURCE s UNSAFE INJECT OFFSETS (TO latest)"],
    ],
)
def test_a_broker_that_does_not_answer(
    unreachable: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """A dry run ends with a typed error and exit 1; it needs neither reason nor yes."""
    capsys.readouterr()
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "CM0400: source default.s: " in said
    assert "nothing was done" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["unsafe", "reset-splits", "s"], False),
        (["sql", "-c", "ALTER SOURCE s RESET SPLITS"], True),
        (["sql", "-c", "ALTER SOURCE s INJECT OFFSETS (TO latest)"], True),
    ],
)
def test_all_that_is_missing_at_once(
    unreachable: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], word: bool
) -> None:
    """Gate, word, reason and confirmation in one message; the broker was not asked."""
    capsys.readouterr()
    assert main(arguments) == 3
    said = capsys.readouterr().err
    for each in ("the gate of cluster default.main is closed", "a reason", "the confirmation"):
        assert f"missing: {each}" in said
    assert ("missing: the word: UNSAFE" in said) is word
    assert "127.0.0.1" not in said


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "latest", "--file", "FILE"], 64, "--file and --to cannot both be given"),
        (["--to", "timestamp 2026-01-31T00:00:00"], 1, "a time needs its offset"),
        (["--partition", "t:0=-5"], 1, "is negative"),
        (["--partition", "t:0=1.5"], 1, "is no position"),
        (["--to", "shift"], 1, "is no position"),
        (["--to", "duration 2h"], 1, "a duration as PT2H"),
        (["--partition", "t:x=3"], 1, "is no partition"),
        (["--partition", "t:0=many"], 1, "many"),
        (["--to", "latest", "--backfill", "--chunk", "0"], 64, "chunk"),
        (["--partition", "t:0=5", "--partition", "t:0=6"], 64, "--partition t:0 is given twice"),
        (["--partition", "t:0=5", "--partition", "t:00=6"], 64, "--partition t:0 is given twice"),
        (["--file", "FILE", "--partition", "t:0=6"], 64, "--partition t:0 is given twice"),
        (["--file", "FILE", "--file", "FILE"], 64, "--file is given twice"),
        (["--to", "earliest", "--to", "latest"], 64, "--to is given twice"),
    ],
)
def test_bad_input(
    unreachable: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int,
    message: str,
) -> None:
    """What cannot be asked at all is said with the exit code of its kind."""
    file = unreachable / "offsets.json"
    file.write_text('{"positions": {"t": {"0": 1}}}')
    capsys.readouterr()
    given = [str(file) if each == "FILE" else each for each in arguments]
    version = open_log(str(unreachable / "catalog")).version()
    assert main(["unsafe", "inject-offsets", "s", "--reason", "r", "--yes", *given]) == code
    assert message in capsys.readouterr().err
    assert open_log(str(unreachable / "catalog")).version() == version


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"positions": {"t": {"0": 5, "0": 6}}}', "'0' is given twice"),
        ('{"positions": {"t": {"0": 5}, "t": {"1": 6}}}', "'t' is given twice"),
        ('{"positions": {"t": {"0": 5, "00": 6}}}', "t:0 is given twice"),
        ("t,0,5\nt,1,7\nt,0,6\n", "line 3: t:0 is given twice"),
        ("a,t,0,5\nb,t,1,7\n", "line 2: it is of another consumer group, b"),
        ("t,0\n", "line 1: topic, partition and offset are expected"),
        ("t,0,many\n", "line 1: topic, partition and offset are expected"),
        ("TOPIC PARTITION NEW-OFFSET\nt 0 5\n", "line 1: topic, partition and offset are"),
        ("", "names no partition"),
        ("[]", "is no file of positions"),
    ],
)
def test_a_bad_file(
    unreachable: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    """A file of positions that says two things of one partition, or none, is refused."""
    file = unreachable / "offsets"
    file.write_text(text)
    assert main([
        "unsafe", "inject-offsets", "s", "--file", str(file), "--reason", "r", "--plan",
    ]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert str(file) in said


@pytest.mark.parametrize(
    "data",
    [
        b"t,0,5\nt,1,0\norders.of-the-shop.in-the-north,0,9223372036854775807\n",
        b't,0,5\r\nt,1,0\r\n"orders.of-the-shop.in-the-north",0,9223372036854775807\r\n',
        b'g,t,0,5\ng,t,1,0\n\ng,"orders.of-the-shop.in-the-north",0,9223372036854775807',
    ],
)
def test_the_csv_of_kafka(data: bytes) -> None:
    """What ``kafka-consumer-groups --reset-offsets --export`` prints: of one group, with or
    without its name, long names in quotes."""
    north = "orders.of-the-shop.in-the-north"
    exported = read_exported(data, "offsets.csv")
    assert exported.positions == {"t": {"0": 5, "1": 0}, north: {"0": 2**63 - 1}}
    assert targets_of(exported, "offsets.csv", {}, other_topics=False) == {
        "t:0": "5", "t:1": "0", f"{north}:0": str(2**63 - 1),
    }


@pytest.mark.parametrize(
    "sets",
    [
        ["--set", "kafka.client.id=a", "--set", "kafka.client.id=b"],
        ["--set", "SASL USERNAME=a", "--set-secret", "SASL USERNAME=b"],
        ["--set", "SASL USERNAME=a", "--set", "sasl_username=b"],
    ],
)
def test_an_option_twice(
    unreachable: Path, capsys: pytest.CaptureFixture[str], sets: list[str]
) -> None:
    """One option with two values is refused, however it is written."""
    version = open_log(str(unreachable / "catalog")).version()
    assert main(["unsafe", "alter", "s", *sets, "--reason", "r", "--plan"]) in (3, 64)
    assert "twice" in capsys.readouterr().err
    assert open_log(str(unreachable / "catalog")).version() == version


@pytest.mark.parametrize("written", ["t:00", "t:0"])
def test_a_partition_twice_in_a_statement(
    unreachable: Path, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    """INJECT OFFSETS does not take two targets for one partition, however they are written."""
    assert unreachable.is_dir()
    statement = f"EXPLAIN ALTER SOURCE s UNSAFE INJECT OFFSETS ('t:0' = 5), " \
                f"INJECT OFFSETS ('{written}' = 6)"
    assert main(["sql", "-c", statement]) == 1
    assert "t:0 is given twice" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["relocate", "rebuild"])
def test_a_table_twice(
    unreachable: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """Where one table lies is said once."""
    there = str(unreachable)
    tables = ["--table", f"s.t={there}/a", "--table", f"s.t={there}/b"]
    assert main([verb, *tables, "--dry-run"]) == 64
    assert "--table s.t is given twice" in capsys.readouterr().err


def test_refused_by_validation(
    unreachable: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run that says REFUSED exits with 3, printed, as a program's, saved and shown again."""
    line = ["unsafe", "alter", "s", "--set", "kafka.client.id=x", "--reason", "r"]
    file = str(unreachable / "plan.json")
    for more in (["--plan"], ["--plan", "--format", "json"], ["--out", file], ["--out", "-"]):
        assert main([*line, *more]) == 3, more
    said = capsys.readouterr()
    assert said.out.count("REFUSED by validation: source default.s") == 2
    assert "it would be refused as it is" in said.err
    assert "to do it" not in said.err
    assert main(["unsafe", "plan", file]) == 3
    assert main([*line, "--skip-validate", "--plan"]) == 0
    assert "REFUSED" not in capsys.readouterr().err


@pytest.mark.parametrize("way", ["text", "json"])
def test_problems_that_are_sentences(
    unreachable: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """What is refused is told with all its problems, in text and as a line of JSON."""
    capsys.readouterr()
    assert main([
        "--log-format", way, "unsafe", "alter", "s", "--set", "TOPIC=x", "--reason", "r", "--yes",
    ]) == 3
    said = capsys.readouterr().err
    assert "add: , RESET SPLITS" in said
    error = UnsafeBlocked("it cannot be put there", problems=["t:9 does not exist"])
    logs.log_error(error)
    assert "t:9 does not exist" in capsys.readouterr().err


def test_only_records_can_be_read_afterwards(
    unreachable: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BACKFILL of a sink is refused by name."""
    main([
        "sql", "-c",
        "CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id) "
        "FORMAT JSON",
    ])
    capsys.readouterr()
    statement = "EXPLAIN ALTER SINK k UNSAFE INJECT VERSION 1 WITH (BACKFILL = true)"
    assert main(["sql", "-c", statement]) == 3
    assert "sink default.k has no records to read afterwards" in capsys.readouterr().err


def test_what_stands_still(unreachable: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`status` names it with its holds and the next command."""
    main(["sql", "-c", "PAUSE SOURCE s REASON 'cleaning'"])
    capsys.readouterr()
    assert main(["status"]) == 0
    said = capsys.readouterr().out
    assert "still      source default.s: held\n" in said
    assert "operator: cleaning" in said
    assert 'next: catalog-migrate sql -c "RESUME SOURCE default.s"' in said


def test_an_operation_as_text(unreachable: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``unsafe list OPERATION`` has each partition that was put elsewhere on a line of its own."""
    log = open_log(str(unreachable / "catalog"))
    act = UnsafeAct(
        who="w", host="h", at="2026-01-31T00:00:00+00:00", reason="r", request="",
        sources=("default.s",), injected=2, partitions=("t:0 from 6 to 2", "t:1 from 7 to 3"),
    )
    changes = Changes()
    changes.put("operation", "op1", OperationRecord(kind="unsafe", state="done", unsafe=act))
    leave(log, changes)
    capsys.readouterr()
    assert main(["unsafe", "list", "op1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("partitions"))
    assert lines[first].split(None, 1) == ["partitions", "t:0 from 6 to 2"]
    assert lines[first + 1].strip() == "t:1 from 7 to 3"
    assert lines[first + 1].index("t:1") == lines[first].index("t:0")


class TestStreamsAlone:
    """A catalog without a release or Spark: ``init --empty``."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An empty directory that the test stands in."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("CATALOG_MIGRATE__CATALOG__URI", raising=False)
        return tmp_path

    def test_made_and_used(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Statements go on from there; a release may still come in later; it is made once."""
        assert main(["init", "--empty", "--catalog", "c", "--warehouse", "w"]) == 0
        assert f"its rows go below {place / 'w'}" in capsys.readouterr().out
        statement = "CREATE SECRET pw AS 'env:PW'; CREATE CLUSTER main"
        assert main(["sql", "-c", statement, "--catalog", "c"]) == 0
        assert main(["status", "--catalog", "c"]) == 0
        bring_in_force(place, manifest(place / "1.json", "1", [("a", "BIGINT")]), warehouse="w")
        capsys.readouterr()
        assert main(["sql", "-c", "SHOW CLUSTERS", "--catalog", "c"]) == 0
        assert "default.main" in capsys.readouterr().out
        assert main(["init", "--empty", "--catalog", "c", "--warehouse", "w"]) == 1
        assert "there is a catalog" in capsys.readouterr().err

    @pytest.mark.parametrize("more", [["--adopt"], ["--release", "r"], ["--dry-run"]])
    def test_with_what_it_does_not_take(
        self, place: Path, capsys: pytest.CaptureFixture[str], more: list[str]
    ) -> None:
        """It is a usage error, and nothing is written."""
        assert main(["init", "--empty", "--catalog", "c", *more]) == 64
        assert "--empty takes --catalog and --warehouse alone" in capsys.readouterr().err
        assert main(["init", "--empty"]) == 64
        assert list(place.iterdir()) == []
