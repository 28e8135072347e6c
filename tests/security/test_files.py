"""Files that we create: the umask holds, links and devices are not replaced, long names fit."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.cli.output import save
from catalog_migrate.errors import OutputFailed
from catalog_migrate.model.paths import shard_path

SCRIPT = """
import os
import sys
from catalog_migrate.testing.starts import migrate
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.cli.main import main
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.release.loader import load_release
from catalog_migrate.testing.engine import SimulatedEngine

assert main(["init", "."]) == 0
log = open_log("catalog")
engine = SimulatedEngine(persistent=True)
migrate(engine, log, load_release("release"), warehouse=os.path.abspath("warehouse"),
        clock=SystemClock(), holder="a test")
log.renew("migration", "1")
for path, shard in engine.world.shards.items():
    Shards(None).create_shard(ShardSpec(path, shard.versions[-1].columns))
assert main(["plan", "--out", "plan.json"]) == 0
assert main(["check", "release", "--format", "markdown", "--out", "comment.md"]) == 0
"""


@pytest.mark.parametrize(("umask", "forbidden"), [("077", 0o077), ("022", 0o022), ("027", 0o027)])
def test_the_umask_holds_for_everything_we_write(
    tmp_path: Path, umask: str, forbidden: int
) -> None:
    """Configuration, release, catalog, heartbeats, shards, plan and comment: none is wider."""
    subprocess.run(
        ["sh", "-c", f"umask {umask} && exec \"$0\" -c \"$1\"", sys.executable, SCRIPT],
        cwd=tmp_path, check=True, capture_output=True,
    )
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.rglob("*")
    }
    assert {"plan.json", "comment.md", "catalog/renewals", "warehouse/shop/orders"} <= set(modes)
    assert {name: oct(mode) for name, mode in modes.items() if mode & forbidden} == {}


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    """A plan that was made private stays private; a new one is what the umask leaves."""
    file = tmp_path / "plan.json"
    save(str(file), "one")
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~_umask()
    file.chmod(0o600)
    save(str(file), "two")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_links_and_devices_are_written_through(tmp_path: Path) -> None:
    """--out /dev/null must not replace the device by a file, nor a link by its target's text."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "null").symlink_to(os.devnull)
    for name in ("link", "null"):
        save(str(tmp_path / name), "text")
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "real").read_text() == "text"
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(OutputFailed, match="cannot be written"):
        save(str(tmp_path), "text")


def test_a_full_device_is_a_typed_error() -> None:
    """No room: said with a remedy, exit 1."""
    with pytest.raises(OutputFailed, match="No space left on device") as caught:
        save("/dev/full", "text")
    assert "room on its disk" in str(caught.value)


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_a_shard_stays_within_its_warehouse_and_fits(schema: str, name: str) -> None:
    """Whatever the names hold: three parts, none of them odd, none longer than a directory's."""
    parts = shard_path(schema, name, "token").split("/")
    assert len(parts) == 3
    assert parts[2] == "token"
    for part in parts:
        assert 0 < len(part.encode()) <= 255
        assert set(part) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-=")


def test_a_long_part_is_cut_and_told_apart() -> None:
    """Two long names with one beginning get two directories; a short one is as it was."""
    first, second = (shard_path("s", "ä" * 254 + end, "t").split("/")[1] for end in "ab")
    assert first != second
    assert first.startswith("=c3=a4")
    assert shard_path("s", "ab", "t") == "s/ab/t"


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now
