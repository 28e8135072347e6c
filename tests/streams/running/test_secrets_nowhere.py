"""I9: a password is in no file, output, error, log, plan, setting or command line."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.services]

MARKED_RUN = Path(__file__).with_name("marked_run.py")
LIMIT = 900.0
ROWS = 5

KAFKA = "ZqkMark7\"w'v\\x %41=,;$mark{a}"
POSTGRES = "ZqpMark8'\"w\\n %2B=,;$mark@:/?#"
WRONG = "ZqwMark9\"u't\\ end=;"
PLAIN = "ZqvMark3\"u't\\ end=;"
MARKERS = {"kafka": KAFKA, "postgres": POSTGRES, "wrong": WRONG, "plain": PLAIN}


def forms(value: str) -> set[bytes]:
    """How a value may be spelled: raw, escaped for JSON, SQL, Java or a URL, and in base64."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    texts = {
        value, escaped, escaped.replace("\\", "\\\\"), value.replace("\\", "\\\\"),
        value.replace("'", "''"), value.replace('"', '""'), value.replace("'", "\\'"),
        json.dumps(value)[1:-1], json.dumps(escaped)[1:-1], repr(value)[1:-1],
        quote(value, safe=""), quote(value), quote_plus(value),
        # the beginning is enough: no spelling changes it
        value[:8],
    }
    whole = {value, f"\0app\0{value}", f"app:{value}"}
    encoded = {base64.b64encode(text.encode()) for text in whole}
    encoded |= {base64.urlsafe_b64encode(text.encode()) for text in whole}
    # within a longer text base64 begins at any of three places; what is cut off is the end
    encoded |= {base64.b64encode(b"x" * pad + value.encode())[4:-4] for pad in (1, 2)}
    encoded |= {value.encode("utf-16-le"), value.encode("utf-16-be")}
    return {text.encode() for text in texts} | encoded


def found_in(data: bytes) -> list[str]:
    return sorted({name for name, value in MARKERS.items()
                   for form in forms(value) if form in data})


def command_lines() -> bytes:
    lines = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                lines.append((process / "cmdline").read_bytes())
            except OSError:
                continue  # it ended meanwhile
    return b"\n".join(lines)


def test_the_search_finds_what_is_there() -> None:
    """Each spelling is recognised, or the test below would prove nothing."""
    for name, value in MARKERS.items():
        for text in (value, json.dumps(value), quote(value), repr(value)):
            assert name in found_in(f"before {text} after".encode())
        assert name in found_in(base64.b64encode(f"user:xy{value}".encode()))
    assert found_in(b"SASL PASSWORD SECRET kafka ***") == []


def test_a_password_is_nowhere(tmp_path: Path, kafka: Any, postgres: Any) -> None:
    """Statements, validation, failures, set-back, EXPLAIN, views and settings, logs at DEBUG."""
    user = "marked"
    kafka.set_password(user, KAFKA)
    postgres.create_user(user, POSTGRES)
    for topic in ("marked-in", "marked-out"):
        kafka.create_topic(topic, 1)
        kafka.allow(user, topic, "READ", "WRITE", "DESCRIBE")
    kafka.produce("marked-in", [(str(n), json.dumps({"id": n})) for n in range(ROWS)])
    with postgres.connect(database="shop") as connection:
        # a schema of its own: the ledger beside other tests' tables belongs to another role
        connection.execute("CREATE SCHEMA marked")
        connection.execute("CREATE TABLE marked.marked_rows (id bigint)")
        connection.execute(f"GRANT ALL ON marked.marked_rows TO {user}")
        connection.execute(f"GRANT ALL ON SCHEMA marked TO {user}")
    kept = tmp_path / "secrets"
    kept.mkdir()
    (kept / "postgres").write_text(POSTGRES)
    (kept / "again").write_text(KAFKA)
    seen = tmp_path / "seen"
    seen.mkdir()
    (seen / "setting.json").write_text(json.dumps({
        "references": {
            "kafka": "env:MARKED_KAFKA", "postgres": f"file:{kept / 'postgres'}",
            "again": f"file:{kept / 'again'}", "wrong": "env:MARKED_WRONG",
        },
        "broker": kafka.bootstrap, "user": user, "rows": ROWS, "topic": "marked-in",
        "out": "marked-out", "table": "marked.marked_rows",
        "port": postgres.parameters(user, "shop")["port"],
    }))
    output = seen / "output"
    environment = {
        **os.environ, "MARKED_KAFKA": KAFKA, "MARKED_WRONG": WRONG, "MARKED_PLAIN": PLAIN,
    }
    with output.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, str(MARKED_RUN), str(seen)], env=environment, stdout=stream,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + LIMIT
            while child.poll() is None:
                assert time.monotonic() < deadline, output.read_text()[-3000:]
                assert found_in(command_lines()) == []
                time.sleep(0.5)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
    said = output.read_text()
    assert child.returncode == 0, said[-5000:]
    assert said.endswith("the end\n")
    assert postgres.execute("SELECT count(*) FROM marked.marked_rows", database="shop") == [(ROWS,)]

    files = [path for path in seen.rglob("*") if path.is_file()]
    leaks = {
        str(path.relative_to(seen)): names
        for path in files if (names := found_in(path.read_bytes()))
    }
    assert leaks == {}
    # the logs were really at DEBUG, and what was unpacked is the catalog
    assert b" DEBUG " in (seen / "logs" / "spark.log").read_bytes()
    assert "DEBUG:py4j" in (seen / "logs" / "python.log").read_text()
    assert any("env:MARKED_KAFKA" in path.read_text() for path in (seen / "unpacked").iterdir())
