"""Ctrl-C in the middle of an upgrade by the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.crash]

PROGRAM = Path(__file__).with_name("interrupted_cli.py")
SECONDS = 600.0


def test_ctrl_c_while_rows_are_copied_leaves_the_old_release_and_a_second_run_succeeds(
    upgrade: Any,
) -> None:
    """Exit code 130, release 15 still in force and untouched, then the next start migrates."""
    from catalog_migrate.api import Catalog

    done = subprocess.run(
        [
            sys.executable, str(PROGRAM), "bootstrap",
            "--catalog", str(upgrade.catalog), "--release", str(upgrade.release),
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        start_new_session=True, cwd=upgrade.home, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "rows are being copied" in done.stderr
    assert "run the same command again" in done.stderr
    assert "Traceback" not in done.stderr

    after = Catalog.open(upgrade.catalog)
    assert after.status().release == "15"
    assert upgrade.bootstrap("15").outcome in {"unchanged", "resumed"}
    assert upgrade.finish_and_verify().outcome == "migrated"
