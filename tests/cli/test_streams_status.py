"""``status`` and ``source log`` on a catalog of streams: what they print and how they end."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.catalog.process import this_process
from catalog_migrate.catalog.records import (
    RECONCILE,
    ClusterRecord,
    LeaseRecord,
    OperationRecord,
)
from catalog_migrate.cli.main import main
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import ClusterLog, QueryStatus, log_path
from tests.decisions import Changes, commit

Call = Callable[..., tuple[int, str, str]]

STREAMS = """
CREATE CLUSTER main;
CREATE CONNECTION files TO FILES (PATH '{path}');
CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM FILES CONNECTION files (PATH 'in') FORMAT JSON;
CREATE CONNECTION pg TO POSTGRES (HOST 'db.example.com', DATABASE 'shop', USER 'app')
  WITH (VALIDATE = false);
CREATE SINK k IN CLUSTER main FROM s INTO POSTGRES CONNECTION pg (TABLE 't')
"""


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs a command line beside a catalog with a source on files and a sink below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CATALOG_MIGRATE__CATALOG__URI", str(tmp_path / "c"))
    (tmp_path / "in").mkdir()

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(args)
        return code, *capsys.readouterr()

    assert run("init", "--empty", "--catalog", str(tmp_path / "c"))[0] == 0
    for statement in STREAMS.format(path=tmp_path).split(";"):
        code, _, err = run("sql", "-c", statement)
        assert code == 0, err
    return run


def put(directory: Path, *records: tuple[str, str, Any]) -> None:
    """Commit records to the catalog."""
    def changes(_: object) -> Changes:
        made = Changes()
        for record in records:
            made.put(*record)
        return made

    commit(open_log(str(directory / "c")), changes, kind="test")


def run_by_this_process(
    directory: Path, *reported: tuple[str, dict[str, Any]], sink: bool = True
) -> None:
    """A runtime that lives has reported so of the source, in this order."""
    log = open_log(str(directory / "c"))
    me = this_process()
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    cluster = dependencies.find(read_state(log), "cluster", "main").item_id
    lease = LeaseRecord(
        epoch=1, holder="here", host=me.host, boot_id=me.boot_id, pid=me.pid, started=me.started,
        since=since,
    )
    put(directory, ("lease", f"cluster/{cluster}", lease), ("cluster", cluster, ClusterRecord()))
    state = read_state(log)
    written = ClusterLog(log_path(state, cluster), "here")
    item = dependencies.find(state, "source", "s").item_id
    if sink:
        below = dependencies.find(state, "sink", "k").item_id
        written.write([QueryStatus(below, "default.k", "sink", "running")])
    for name, more in reported:
        written.write([QueryStatus(item, "default.s", "source", name, **more)])


def test_what_needs_nobody_ends_with_0(call: Call, tmp_path: Path) -> None:
    """Of a cluster that was never run, and of queries that run."""
    assert call("status", "--streams")[0] == 0
    run_by_this_process(tmp_path, ("running", {"batch": 3, "rows": 12}))
    code, out, err = call("status", "--streams", "--format", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["ok"] is True
    assert [(each["name"], each["state"], each["batch"]) for each in document["streams"]] == [
        ("default.s", "running", 3), ("default.k", "running", None),
    ]
    assert document["streams"][1]["lag"]["records"] == 0
    assert call("status", "--detailed-exitcode")[0] == 0


@pytest.mark.parametrize("hold", [True, False], ids=["held", "backing off"])
def test_what_needs_somebody_ends_with_7(call: Call, tmp_path: Path, hold: bool) -> None:
    """Both forms, with and without work that is pending; a plain status stays 0."""
    run_by_this_process(tmp_path, (
        "running" if hold else "backing_off", {"error": None if hold else "no route to host"},
    ))
    if hold:
        assert call("sql", "-c", "PAUSE SINK k REASON 'disk'")[0] == 0
    code, out, _ = call("status", "--streams")
    assert code == 7
    shown = out[out.index("runtime of default.main: here since "):].splitlines()[1:]
    assert shown == (
        ["sink default.k: held", shown[1],
         '  next: catalog-migrate sql -c "RESUME SINK default.k"'] if hold
        else ["source default.s: backing_off", "  no route to host", shown[2]]
    )
    assert call("status", "--detailed-exitcode")[0] == 7
    assert call("status", "--streams", "--detailed-exitcode", "--format", "json")[0] == 7
    assert call("status")[0] == 0


def test_7_goes_before_2(call: Call, tmp_path: Path) -> None:
    """Work is pending: 2 where all sources and sinks run, 7 where one does not."""
    run_by_this_process(tmp_path, ("running", {}))
    pending = OperationRecord(kind=RECONCILE, state="pending", detail={"step": "create s.v"})
    put(tmp_path, ("operation", RECONCILE, pending))
    assert call("status", "--detailed-exitcode")[0] == 2
    assert call("status", "--streams", "--detailed-exitcode")[0] == 2
    assert call("status", "--streams")[0] == 0
    assert call("sql", "-c", "PAUSE SOURCE s")[0] == 0
    assert call("status", "--detailed-exitcode")[0] == 7
    assert call("status", "--streams", "--detailed-exitcode")[0] == 7


@pytest.mark.parametrize(("limit", "code"), [("0", 7), ("4", 0)])
def test_a_limit_of_lag(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, code: int
) -> None:
    """Declared in the configuration; without one nothing is too much."""
    run_by_this_process(tmp_path, ("running", {"lag": 4}))
    assert call("status", "--streams")[0] == 0
    monkeypatch.setenv("CATALOG_MIGRATE__STREAMS__LAG_RECORDS", limit)
    assert call("status", "--streams")[0] == code
    assert call("status", "--detailed-exitcode")[0] == code


def test_the_past_has_no_streams(call: Call) -> None:
    """What runs is not on record of another serial."""
    code, out, err = call("status", "--streams", "--serial", "0")
    assert (code, out) == (64, "")
    assert "leave --serial or --streams out" in err


def test_the_log_of_a_source(call: Call, tmp_path: Path) -> None:
    """The newest last, as text and as JSON, by time and number; SHOW has the same."""
    run_by_this_process(
        tmp_path, ("starting", {}), ("running", {"batch": 1}), ("backing_off", {"error": "no"}),
    )
    code, out, err = call("source", "log", "s", "--format", "json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert [(row["state"], row["batch"], row["error"]) for row in rows] == [
        ("starting", None, None), ("running", 1, None), ("backing_off", None, "no"),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", row["at"]) for row in rows)
    code, out, _ = call("source", "log", "s", "--since", "1h", "--limit", "1")
    head, line = out.splitlines()
    assert head.split()[:3] == ["at", "state", "run_id"]
    assert line.split()[1] == "backing_off"
    assert json.loads(call("source", "log", "k", "--sink", "--format", "json")[1])[0]["state"] == (
        "running"
    )
    assert json.loads(call("sql", "-c", "SHOW SOURCE s LOG", "--format", "json")[1]) == rows
    code, out, err = call("source", "log", "nothing")
    assert (code, out) == (1, "")
    assert "nothing" in err
    assert call("source", "log", "s", "--since", "yesterday")[0] == 64


def test_lines_of_a_runtime_have_times(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line on stderr begins with the time in UTC; JSON lines have it as a field alone."""
    code, out, err = call("run", "--cluster", "nowhere")
    assert (code, out) == (1, "")
    first, second, _ = err.splitlines()
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(moment + " running streams: .* of cluster nowhere", first)
    assert re.match(moment + r" error CM\d{4}: ", second)
    _, _, err = call("--log-format", "json", "run", "--cluster", "nowhere")
    assert [json.loads(line)["message"].partition(":")[0] for line in err.splitlines()] == [
        "running streams", "there is no cluster called nowhere",
    ]
    assert not re.match(r"\d{4}", call("sql", "-c", "SHOW SOURCE nowhere LOG")[2])


@pytest.mark.parametrize("address", ["9464", ":9464", "127.0.0.1"])
def test_an_address_that_does_not_say_all(call: Call, address: str) -> None:
    """A usage error with examples; nothing is bound, and no session started."""
    code, out, err = call("run", "--http", address)
    assert (code, out) == (64, "")
    assert "write HOST:PORT: 127.0.0.1:9464 for this machine alone" in err


def test_a_port_that_is_taken(call: Call) -> None:
    """It is told before a session starts, with the address and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = call("run", "--http", f"127.0.0.1:{port}")
    assert (code, out) == (1, "")
    assert f"CM0603: the runtime cannot answer at 127.0.0.1:{port}: Address already in use" in err
    assert "give --http another address" in err


def test_doctor_looks_at_streams(call: Call, tmp_path: Path) -> None:
    """A finding a kind that is well, one for each that is not, with its remedy."""
    assert call("sql", "-c", "DROP SINK k; DROP CONNECTION pg")[0] == 0
    run_by_this_process(tmp_path, ("running", {}), sink=False)
    _, out, _ = call("doctor", "--no-spark", "--format", "json")
    found = {each["name"]: each for each in json.loads(out)}
    assert [found[name]["ok"] for name in ("runtime", "connection", "streams")] == [True] * 3
    assert found["streams"]["text"] == "1 running"
    assert call("sql", "-c", "PAUSE SOURCE s REASON 'disk'")[0] == 0
    code, out, _ = call("doctor", "--no-spark")
    assert code == 1
    lines = out.splitlines()
    place = next(at for at, line in enumerate(lines) if line.startswith("FAIL  source"))
    assert "default.s: held: operator: disk" in lines[place]
    assert lines[place + 1].strip() == (
        'remedy: catalog-migrate sql -c "RESUME SOURCE default.s"'
    )
