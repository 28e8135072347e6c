"""Shell completion: what is printed works in the shell, and asks for no more than it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from catalog_migrate.cli.environment import VARIABLE
from catalog_migrate.cli.group import cli
from catalog_migrate.cli.main import main


def offered(args: list[str], incomplete: str) -> list[str]:
    """What is offered after these words."""
    complete = ShellComplete(cli, {}, "catalog-migrate", VARIABLE)
    return [item.value for item in complete.get_completions(args, incomplete)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_lines(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They call this program with the variable that makes it answer."""
    assert main(["completion", shell]) == 0
    assert f"{VARIABLE}={shell}_complete" in capsys.readouterr().out


def test_another_shell_is_a_usage_error() -> None:
    """Exit 64, as for any wrong word."""
    assert main(["completion", "tcsh"]) == 64


def test_verbs_options_and_values_are_offered() -> None:
    """At each place what may stand there."""
    assert offered([], "co") == ["config", "completion"]
    assert offered(["config"], "") == ["show"]
    assert "--approve" in offered(["plan"], "--a")
    assert offered(["plan", "--format"], "m") == ["markdown"]
    assert "--log-format" in offered([], "--log")


def test_completing_a_verb_imports_none() -> None:
    """Pressing the key must not cost a second."""
    code = (
        "import sys; from catalog_migrate.cli.group import cli;"
        "from click.shell_completion import ShellComplete;"
        f"ShellComplete(cli, {{}}, 'catalog-migrate', '{VARIABLE}').get_completions([], '');"
        "print(sorted({'msgspec', 'deltalake', 'pyspark'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "[]"


def test_bash_takes_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """bash knows the function afterwards."""
    main(["completion", "bash"])
    script = capsys.readouterr().out + "\ncomplete -p catalog-migrate\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("catalog-migrate")
