"""A full disk, a read-only one, and files that are gone or cut off: refused by a typed error, the
release in force whole, and after the cause is fixed the next start succeeds."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.cli.output import save
from catalog_migrate.errors import OutputFailed

pytestmark = pytest.mark.crash

MANY = int(os.environ.get("CRASH_FAULTS", "1"))
ROOM = [0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128]
"""KiB that are left on the disk: each ends the upgrade at another step."""


@pytest.fixture
def small(disk: Path, sites: Any) -> Any:
    """Release 1 with its rows on the small disk."""
    return sites(disk)


def leave(disk: Path, kibibytes: int) -> Path:
    """Fill the disk but for so much; the file that fills it."""
    ballast = disk / "ballast"
    facts = os.statvfs(disk)
    free = facts.f_bavail * facts.f_frsize - kibibytes * 1024
    with ballast.open("wb") as file:
        file.write(b"x" * max(free, 0))
    return ballast


@pytest.mark.parametrize("room", ROOM if MANY > 1 else random.Random(6).sample(ROOM[:8], 2))
def test_a_full_disk_ends_an_upgrade_and_space_lets_it_go_on(
    small: Any, disk: Path, room: int
) -> None:
    """Whatever step finds no room, it is an error that names what it could not do; with room again
    the next start migrates, and no row is lost."""
    ballast = leave(disk, room)
    # in a process of its own: the lease that it may have no room to give back is a dead one's
    said = small.end(small.launch("2"))
    assert "error" in said or said["outcome"] == "migrated", said
    ballast.unlink()
    assert small.start("2")["outcome"] in {"migrated", "resumed", "unchanged"}
    small.append(1, [1, 2])
    small.verify("2")


def test_a_read_only_disk_serves_the_release_in_force_and_refuses_an_upgrade(
    small: Any, disk: Path
) -> None:
    """A start with nothing to do writes nothing, so it succeeds; an upgrade is refused."""
    before = snapshot(disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert small.start("1")["outcome"] == "unchanged"
    said = small.start("2")
    assert "error" in said, said
    assert snapshot(disk) == before
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert small.start("2")["outcome"] == "migrated"
    small.verify("2")


@pytest.mark.parametrize("standing", [False, True])
def test_a_report_for_a_read_only_disk_is_refused_with_the_reason(
    disk: Path, standing: bool
) -> None:
    """Nothing can be removed there either, not even what could not be made."""
    report = disk / "plan.json"
    if standing:
        report.write_text("before")
    before = snapshot(disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(OutputFailed, match=r"plan\.json cannot be written: Read-only file system"):
        save(str(report), "after")
    assert snapshot(disk) == before


def snapshot(directory: Path) -> dict[str, int]:
    """Every file below a directory with its size."""
    return {str(p): p.stat().st_size for p in directory.rglob("*") if p.is_file()}


def removed(file: Path) -> None:
    """The file is gone."""
    file.unlink()


def cut_off(file: Path) -> None:
    """Half of the file is left."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def emptied(file: Path) -> None:
    """Nothing is left of it but its name."""
    file.write_bytes(b"")


DAMAGE = [removed, cut_off, emptied]


def commits(directory: Path) -> list[Path]:
    """The commits of a Delta table, in order."""
    return sorted((directory / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("damage", DAMAGE if MANY > 1 else [cut_off])
@pytest.mark.parametrize("which", ["first", "middle", "data"] if MANY > 1 else ["middle", "data"])
def test_a_damaged_catalog_is_refused_and_nothing_is_written(
    site: Any, damage: Callable[[Path], None], which: str
) -> None:
    """A commit or a data file of the log that is gone or cut off: an error, and not one byte."""
    if which == "data":
        file = sorted((site.catalog / "log").glob("*.parquet"))[0]
    else:
        found = commits(site.catalog / "log")
        file = found[0] if which == "first" else found[len(found) // 2]
    content = file.read_bytes()
    damage(file)
    before = snapshot(site.catalog)
    for release in ("1", "2"):
        said = site.start(release)
        assert "error" in said, said
        assert said["message"]
    assert snapshot(site.catalog) == before
    file.write_bytes(content)
    assert site.start("2")["outcome"] == "migrated"
    site.verify("2")


@pytest.mark.parametrize("damage", DAMAGE if MANY > 1 else [removed])
@pytest.mark.parametrize("which", ["commit", "data"] if MANY > 1 else ["data"])
def test_a_damaged_shard_keeps_the_old_release_in_force(
    site: Any, damage: Callable[[Path], None], which: str
) -> None:
    """What cannot be copied ends the upgrade before its commit; mended, the next start migrates."""
    shard = Path(site.shard("t"))
    file = commits(shard)[-1] if which == "commit" else next(shard.glob("*.parquet"))
    content = file.read_bytes()
    damage(file)
    said = site.start("2")
    if which == "commit" and damage is removed:
        # a log without its newest commit is a whole log of an earlier version: nobody can tell
        assert said["outcome"] == "migrated", said
        return
    assert "error" in said, said
    file.write_bytes(content)
    assert site.start("1")["outcome"] in {"unchanged", "resumed"}
    assert site.start("2")["outcome"] == "migrated"
    site.verify("2")
