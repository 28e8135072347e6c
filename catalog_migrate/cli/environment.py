"""``config``, ``doctor``, ``demo``, ``completion``, ``version``: what is set and found here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

import catalog_migrate
from catalog_migrate.api.doctor import examine
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_columns, as_json, emit, note, pick
from catalog_migrate.config import SPARK_CONF, STORAGE, Settings
from catalog_migrate.errors import PrerequisiteMissing
from catalog_migrate.store.address import HIDDEN, show_address
from catalog_migrate.version import __version__


@click.group("config")
def config() -> None:
    """Look at the configuration.

    \b
    Example:
      catalog-migrate config show
    """


@config.command("show")
@options.catalog
@options.warehouse
@options.release
@options.timeout
@options.format_("text", "json")
def show(format_: str) -> None:
    """Print every key with its value and where that came from.

    \b
    Example:
      catalog-migrate config show --format json
    """
    settings = options.settings()
    if format_ == "json":
        rules = [pick(rule, "risk", "name", "action") for rule in settings.policy]
        emit(as_json({
            **{path: {"value": value, "origin": origin} for path, value, origin in _keys(settings)},
            "policy": {"value": rules, "origin": settings.policy_origin},
            **{path: {"value": value, "origin": origin} for path, value, origin in _open(settings)},
        }))
        return
    policy = [
        (f"policy.{number}", f"{rule.action} {rule.risk} of {rule.name}", rule.origin)
        for number, rule in enumerate(settings.policy, 1)
    ]
    emit(as_columns([
        (path, "-" if value is None else str(value), origin)
        for path, value, origin in (*_keys(settings), *policy, *_open(settings))
    ]))


Row = tuple[str, "str | float | None", str]
"""A key with its value, as it may be printed, and where that came from."""


def _keys(settings: Settings) -> Iterator[Row]:
    for path, setting in settings.settings.items():
        yield path, _show(path, setting.value), setting.origin


def _open(settings: Settings) -> Iterator[Row]:
    """What is given under names of others: options of the store, settings of Spark."""
    for name in settings.storage.names:
        yield f"{STORAGE}.{name}", HIDDEN, settings.storage_origins[name]
    for name, setting in sorted(settings.spark_conf.items()):
        yield f"{SPARK_CONF}.{name}", setting.value, setting.origin


def _show(path: str, value: str | float | None) -> str | float | None:
    """A value as it may be printed: an address that is refused for its login is looked at here."""
    if not isinstance(value, str):
        return value
    shown = show_address(value)
    if path == "spark.remote":  # its parameters stand behind a semicolon, a token among them
        server, parameters, _ = shown.partition(";")
        return f"{server};{HIDDEN}" if parameters else server
    return shown


@click.command("doctor")
@options.catalog
@options.conf
@click.option("--no-spark", is_flag=True, help="Leave the Spark session out (10 s).")
@options.format_("text", "json")
def doctor(no_spark: bool, format_: str) -> int:
    """Try Java, jars, the catalog, its lease, commits against each other, and a Delta session.

    Of streams: runtimes and their leases, connections, replication slots and the log that they
    keep, checkpoints, and every source or sink that is held, fails or does not start.
    What the session's catalog of names can do is tried in a schema that is dropped again.
    Exit 1 when anything fails.

    \b
    Example:
      catalog-migrate doctor --catalog catalog
    """
    findings = examine(options.settings(), spark=not no_spark, on_note=note)
    if format_ == "json":
        emit(as_json([
            {
                "name": each.subject, "ok": each.ok, "text": f"{each.code} {each.message}".lstrip(),
                "remedy": each.remedy,
            }
            for each in findings
        ]))
    else:
        for found in findings:
            text = f"{found.code} {found.message}".lstrip()
            emit(f"{'ok  ' if found.ok else 'FAIL'}  {found.subject:<8} {text}\n")
            if found.remedy:
                emit(f"                remedy: {found.remedy}\n")
    return 0 if all(found.ok for found in findings) else 1


@click.command("demo")
@click.option(
    "--directory", metavar="DIR", type=click.Path(file_okay=False),
    help="Where to put its catalog and report (default: build/demo, emptied before).",
)
@click.option(
    "--streams", is_flag=True,
    help="The demonstration of sources and sinks: a password rotated, a broker moved.",
)
@click.option("--keep", is_flag=True, help="With --streams: leave catalog and tables there.")
@click.option(
    "--warehouse", metavar="ADDRESS",
    help="Where on S3 catalog and rows are to lie; for s3://demo a server is started (checkout).",
)
def demo(directory: str | None, streams: bool, keep: bool, warehouse: str | None) -> None:
    """Upgrade a real catalog of 208 objects twice, killed in the middle, every row compared.

    Ends with the report of the upgrade as a file, and leaves the catalog to look at.

    \b
    Example:
      catalog-migrate demo
      catalog-migrate demo --streams
      catalog-migrate demo --warehouse s3://demo
    """
    from catalog_migrate.engine.spark.jars import prefer_short_runs

    # the chapters are processes of their own, which inherit it
    prefer_short_runs(os.environ)
    if streams:
        _example("demo_streams").run(keep=keep)
    else:
        place = Path(directory) if directory else None
        _example("demo").run(place, warehouse=warehouse)


def _example(name: str) -> ModuleType:
    """A module of the checkout's ``examples``."""
    checkout = Path(catalog_migrate.__file__).resolve().parents[1]
    if not (checkout / "examples" / f"{name}.py").is_file():
        raise PrerequisiteMissing(
            "the demonstrations are not in an installed package",
            remedy="run them from a checkout: `make demo`, `make demo-streams`",
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return import_module(f"examples.{name}")


VARIABLE = "_CATALOG_MIGRATE_COMPLETE"
"""What the printed lines set when they ask this program for what could follow."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete verbs, options and their values.

    In ~/.bashrc or ~/.zshrc: eval "$(catalog-migrate completion bash)", or zsh for bash.
    For fish: catalog-migrate completion fish > ~/.config/fish/completions/catalog-migrate.fish

    \b
    Example:
      catalog-migrate completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "catalog-migrate", VARIABLE).source())


@click.command("version")
def version() -> None:
    """Print the version; nothing heavy is imported for it.

    \b
    Example:
      catalog-migrate version
    """
    click.echo(f"catalog-migrate {__version__}")
