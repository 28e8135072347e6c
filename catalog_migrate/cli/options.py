"""Options that several verbs share, and the settings that result from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from catalog_migrate.cli import logs
from catalog_migrate.config import Settings, load
from catalog_migrate.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")

catalog_option = click.option(
    "--catalog", metavar="URI", help="The durable catalog (configuration: catalog.uri)."
)
warehouse_option = click.option(
    "--warehouse", metavar="DIR",
    help="Where a new catalog keeps its rows (configuration: catalog.warehouse).",
)
release_option = click.option(
    "--release", metavar="PATH",
    help="Directory of *.sql files or manifest .json (configuration: release.path).",
)
approve_option = click.option(
    "--approve", multiple=True, metavar="NAME[.COLUMN]",
    help="Approve one loss: a table that goes, or a column. May be given several times.",
)
downgrade_option = click.option(
    "--allow-downgrade", is_flag=True, help="Go back to a release that is older, or was replaced."
)
detailed_option = click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 2 instead of 0 when changes are pending."
)
bind_option = click.option(
    "--bind", is_flag=True, help="Bind every view by Spark's analyser (starts Spark)."
)


class NewFile(click.Path):
    """A file to write; an empty text (of a variable that is not set) is a usage error."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click, which takes an empty text for the current directory."""
        if isinstance(value, str) and not value.strip():
            self.fail("The name of the file is empty; is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


out_option = click.option(
    "--out", metavar="FILE", type=NewFile(), help="Write the result to FILE (- for stdout)."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
no_input_option = click.option("--no-input", is_flag=True, help="Never ask: fail instead.")
serial_option = click.option(
    "--serial", type=click.IntRange(min=0), metavar="N",
    help="As it was at serial N (catalog-migrate history lists them).",
)
timeout_option = click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(min=0),
    help="How long to wait for another process (configuration: bootstrap.timeout).",
)


def format_option(*formats: str) -> Callable[[Function], Function]:
    """``--format`` with the given choices; the first is the default."""
    return click.option(
        "--format", "format_", type=click.Choice(formats), default=formats[0], show_default=True,
        help="Form of the result.",
    )


def settings_of(
    ctx: click.Context,
    *,
    catalog: str | None = None,
    warehouse: str | None = None,
    release: str | None = None,
    timeout: float | None = None,
) -> Settings:
    """The configuration with this call's flags on top."""
    file = ctx.find_root().obj
    settings = load(
        file=Path(file) if file else None,
        flags={
            "catalog.uri": catalog,
            "catalog.warehouse": warehouse,
            "release.path": release,
            "bootstrap.timeout": timeout,
        },
    )
    logs.choose(settings.text("output.log_format"), given=False)
    return settings


def one_of(_: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Callback of an option that is ``multiple`` for this: a second value is a usage error."""
    if len(values) > 1:
        raise UsageError(f"{param.opts[0]} is given twice", remedy="leave one of them out")
    return values[0] if values else None


def put_once(into: dict[str, Value], key: str, value: Value, what: str) -> None:
    """Note what is given for a key; UsageError where it is given twice, the last would win."""
    if key in into:
        raise UsageError(f"{what} is given twice", remedy="leave one of them out")
    into[key] = value
