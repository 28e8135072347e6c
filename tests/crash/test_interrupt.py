"""Ctrl-C in the middle of an upgrade by the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.crash]

SECONDS = 600.0


def test_ctrl_c_while_rows_are_copied_leaves_the_old_release_and_a_second_run_succeeds(
    upgrade: Any,
) -> None:
    """Exit code 130, release 15 still in force and untouched, then the next start migrates."""
    from catalog_migrate.api import Catalog

    command = [
        sys.executable,
        "-m",
        "catalog_migrate.cli.main",
        "bootstrap",
        "--catalog",
        str(upgrade.catalog),
        "--release",
        str(upgrade.release),
    ]
    said: list[str] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=upgrade.home,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if line.startswith("copy rows"):
                os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
                break
        said.append(process.stderr.read())
        status = process.wait(timeout=SECONDS)
    assert status == 130, "".join(said)
    assert "run it again" in said[-1]
    assert "Traceback" not in said[-1]

    after = Catalog.open(upgrade.catalog)
    assert after.status().release == "15"
    assert upgrade.bootstrap("15").outcome in {"unchanged", "resumed"}
    assert upgrade.finish_and_verify().outcome == "migrated"
