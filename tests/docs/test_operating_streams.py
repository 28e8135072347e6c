"""docs/operating-streams.md says what there is: metrics, states, and a call that works."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import click
import yaml

from catalog_migrate.cli.group import cli
from catalog_migrate.config import KEYS
from catalog_migrate.streams.ddl.health import NO_RUNTIME
from catalog_migrate.streams.runtime.exposition import PREFIX, families
from catalog_migrate.streams.runtime.http_endpoint import parse_address
from catalog_migrate.streams.runtime.observation import STATES, Observation

PAGE = (Path(__file__).parents[2] / "docs" / "operating-streams.md").read_text()
FAMILIES = families(Observation(), cluster="c", started=0, lags={})


def block(language: str) -> str:
    """The one code block of a language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_every_metric_is_listed() -> None:
    """Name, type and meaning are those of /metrics, in its order."""
    rows = re.findall(rf"^\| `{PREFIX}(\w+)` \((\w+)\) \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(each.name, each.type, each.about) for each in FAMILIES]


def test_alerts_ask_for_what_there_is() -> None:
    """Each rule has a name, an expression of metrics that exist, and states that there are."""
    (group,) = yaml.safe_load(block("yaml"))["groups"]
    names = {PREFIX + each.name for each in FAMILIES}
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for"}
        used = set(re.findall(rf"{PREFIX}\w+", rule["expr"]))
        assert used
        assert used <= names
        for matched in re.findall(r'state=~?"([^"]*)"', rule["expr"]):
            assert set(matched.split("|")) <= set(STATES)
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["expr"].count("{") == rule["expr"].count("}")
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])


def test_every_state_has_its_row() -> None:
    """What a runtime reports, and what is said where there is none."""
    table = PAGE[PAGE.index("## What each state means"):PAGE.index("## How far behind")]
    assert sorted(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == sorted(
        (*STATES, NO_RUNTIME)
    )


def test_the_unit_of_systemd_calls_what_there_is() -> None:
    """Options and values parse; the process gets longer than its batches to end."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(block("ini"))
    service = unit["Service"]
    program, option, _, verb, *arguments = shlex.split(service["ExecStart"])
    assert (Path(program).name, option, verb) == ("catalog-migrate", "--config", "run")
    with cli.make_context("catalog-migrate", [verb]) as context:
        command = cli.get_command(context, verb)
        assert isinstance(command, click.Command)
        command.make_context(verb, [*arguments], parent=context).close()
    assert parse_address(arguments[arguments.index("--http") + 1]).host == "127.0.0.1"
    drain = next(key.default for key in KEYS if key.path == "streams.drain")
    assert isinstance(drain, float)
    assert float(service["TimeoutStopSec"]) > drain
    assert service["KillMode"] == "mixed"
