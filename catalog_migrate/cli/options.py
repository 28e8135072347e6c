"""Options that several verbs share, and the configuration that results from them.

A verb takes them as ``@options.catalog``, and asks for :func:`settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from catalog_migrate.cli import logs
from catalog_migrate.config import SPARK_CONF, Settings, load
from catalog_migrate.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")

_FLAGS = "catalog_migrate.flags"


def given(path: str) -> Any:
    """What this call's flag says for a key of the configuration; None when it was not given."""
    return click.get_current_context().meta.get(_FLAGS, {}).get(path)


def settings(overrides: Mapping[str, str | None] | None = None) -> Settings:
    """The configuration with this call's flags on top, and what is not None of ``overrides``."""
    context = click.get_current_context()
    file = context.find_root().obj
    flags = dict(context.meta.get(_FLAGS, {}))
    flags.update({path: value for path, value in (overrides or {}).items() if value is not None})
    found = load(file=Path(file) if file else None, flags=flags)
    logs.choose(found.text("output.log_format"), given=False)
    return found


def _configured_flag(path: str, flag: str, **attributes: Any) -> Callable[[Function], Function]:
    """A flag for a key of the configuration: no parameter of the verb, :func:`settings` has it."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        context.meta.setdefault(_FLAGS, {})[path] = value

    return click.option(flag, expose_value=False, callback=keep, **attributes)


catalog = _configured_flag(
    "catalog.uri", "--catalog", metavar="URI",
    help="The durable catalog (configuration: catalog.uri).",
)
warehouse = _configured_flag(
    "catalog.warehouse", "--warehouse", metavar="DIR",
    help="Where a new catalog keeps its rows (configuration: catalog.warehouse).",
)
release = _configured_flag(
    "release.path", "--release", metavar="PATH",
    help="Directory of *.sql files or manifest .json (configuration: release.path).",
)
timeout = _configured_flag(
    "bootstrap.timeout", "--timeout", metavar="SECONDS", type=click.FloatRange(min=0),
    help="How long to wait for another process (configuration: bootstrap.timeout).",
)


def _keep_conf(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    flags = context.meta.setdefault(_FLAGS, {})
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"--conf takes NAME=VALUE, and {name!r} has no value",
                remedy="write it as --conf spark.master=local[2]",
            )
        put_once(flags, f"{SPARK_CONF}.{name.strip()}", value, f"--conf {name.strip()}")


conf = click.option(
    "--conf", multiple=True, metavar="NAME=VALUE", expose_value=False, callback=_keep_conf,
    help="A setting of the Spark session (configuration: spark_conf). May be given several times.",
)
approve = click.option(
    "--approve", multiple=True, metavar="NAME[.COLUMN]",
    help="Approve one loss: a table that goes, a column, a user's object that breaks. May be given"
    " several times.",
)
downgrade = click.option(
    "--allow-downgrade", is_flag=True, help="Go back to a release that is older, or was replaced."
)
detailed = click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 2 instead of 0 when changes are pending."
)
STREAMS_NOT_WELL = 7
"""Exit code: a source or sink is held, backs off, has no runtime or is behind a limit of lag."""
bind = click.option(
    "--bind", is_flag=True,
    help="Bind every view by Spark's analyser, users' views over a catalog too (starts Spark).",
)


def _answer(flag: str, text: str) -> Callable[[Function], Function]:
    def keep(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[f"{_FLAGS} {flag}"] = value

    return click.option(flag, is_flag=True, expose_value=False, callback=keep, help=text)


def is_given(flag: str) -> bool:
    """Whether this call has ``--yes`` or ``--no-input``, which concern who asks, not the verb."""
    return bool(click.get_current_context().meta.get(f"{_FLAGS} {flag}"))


def yes(text: str = "Do not ask.") -> Callable[[Function], Function]:
    """``--yes``."""
    return _answer("--yes", text)


def answers(function: Function) -> Function:
    """``--yes`` and ``--no-input``."""
    return yes()(_answer("--no-input", "Never ask: fail instead.")(function))


serial = click.option(
    "--serial", type=click.IntRange(min=0), metavar="N",
    help="As it was at serial N (catalog-migrate history lists them).",
)


def _check_reason(_: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """What was given, without blanks around it; UsageError where that is nothing."""
    if value is not None and not value.strip():
        raise UsageError(
            f"{param.opts[0]} is empty", remedy="say why, or leave it out; is a variable not set?"
        )
    return None if value is None else value.strip()


reason = click.option(
    "--reason", metavar="TEXT", callback=_check_reason,
    help="Why; kept in the history with what is changed.",
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


out = click.option(
    "--out", metavar="FILE", type=NewFile(), help="Write the result to FILE (- for stdout)."
)


def format_(*formats: str) -> Callable[[Function], Function]:
    """``--format`` with the given choices; the first is the default."""
    return click.option(
        "--format", "format_", type=click.Choice(formats), default=formats[0], show_default=True,
        help="Form of the result.",
    )


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
