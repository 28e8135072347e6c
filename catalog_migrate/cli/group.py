"""The command group: verbs are known by name and one line of help, and imported when used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from catalog_migrate.cli import logs
from catalog_migrate.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GROUPS = {
    "Upgrade": {
        "init": "Write a configuration and a sample release, or adopt tables.",
        "plan": "Say what applying a release would do; writes nothing.",
        "apply": "Apply a saved plan, or a release after asking.",
        "check": "Check a release without a catalog, or against one.",
        "status": "Say what is in force and what is pending.",
        "rollback": "Go back to an earlier serial, rows kept; as a plan like any other.",
        "history": "List what was changed: by whom, when, from where, why.",
        "bootstrap": "Do what an application's start-up hook does, with local Spark.",
        "release": "Work on a release: compile writes its manifest.",
    },
    "Look": {
        "show": "Show one object: ids, columns, dependencies, location.",
        "graph": "Print what depends on what.",
        "diff": "Compare two releases; needs no catalog, Spark or network.",
        "drift": "Compare Spark's catalog with what is committed; --repair fixes it.",
        "doctor": "Try everything the product needs on this machine.",
    },
    "Streams": {
        "run": "Run streams: a cluster's sources and sinks, until SIGTERM.",
        "sql": "Run statements: connections, sources, sinks, or one SELECT.",
        "source": "Look at a source or sink: where it is, and what its log has.",
        "unsafe": "Last resort: change any property of a source, and its positions.",
    },
    "Administration": {
        "relocate": "Follow a move, or make a copy an installation of its own.",
        "rebuild": "Make a lost catalog again from shards and the release.",
        "unlock": "Free a lease whose holder is surely dead.",
        "export": "Export every table as a plain registration.",
    },
    "Other": {
        "config": "Look at the configuration: show says where each value came from.",
        "demo": "Watch a real catalog of 208 objects upgraded twice.",
        "completion": "Print what makes bash, zsh or fish complete this command.",
        "version": "Print the version.",
    },
}
"""What people come for, and the verbs of each: verb and its line in the list of verbs."""

VERBS = {verb: line for verbs in GROUPS.values() for verb, line in verbs.items()}
"""All verbs in the order of :data:`GROUPS`."""

LOOKING = frozenset({"plan", "check", "status", "history", "show", "graph", "diff", "source"})
"""Verbs that change nothing, whatever they are given."""

_MODULES = {
    verb: module
    for module, verbs in {
        "administration": ("export", "rebuild", "relocate", "unlock"),
        "environment": ("completion", "config", "demo", "doctor", "version"),
        "inspection": ("drift", "graph", "history", "show", "status"),
        "releases": (
            "apply", "bootstrap", "check", "diff", "plan", "release", "rollback",
        ),
        "streams": ("run", "source", "sql"),
    }.items()
    for verb in verbs
}
"""Verbs that share a module, whose functions are named after them; others have their own."""


class LazyGroup(click.Group):
    """Imports the module of a verb when the verb is run, none for the list of verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All verbs, the first group first."""
        return list(VERBS)

    def get_command(
        self, ctx: click.Context, cmd_name: str  # noqa: ARG002
    ) -> click.Command | None:
        """The command of a verb; None for an unknown one."""
        if cmd_name not in VERBS:
            return None
        shared = _MODULES.get(cmd_name)
        module = import_module(f"catalog_migrate.cli.{shared or cmd_name}")
        command = getattr(module, cmd_name if shared else "command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, with the nearest verb in the message for an unknown one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            if near and "Did you mean" not in error.message:
                raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """As click, but Ctrl-C leaves no empty line among JSON objects."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if logs.is_json():
                raise click.Abort from error
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs from the table alone: a completion must not import them all."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=line)
            for name, line in VERBS.items() if name.startswith(incomplete)
        ]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter  # noqa: ARG002
    ) -> None:
        """The groups of verbs, from the table alone; their lines begin in one column."""
        width = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(width), line) for verb, line in verbs.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 error, 2 changes pending (--detailed-exitcode), 3 blocked,"
    " 4 stale plan, 5 lease held or fenced out, 6 not reconciled, 7 a source or sink is held, backs"
    " off or is behind (status), 8 a mirror differs (VALIDATE SOURCE), 64 usage, 78 configuration,"
    " 130 interrupted.",
)
@click.version_option(__version__, message="catalog-migrate %(version)s")
@click.option(
    "--config", "config_file", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
    help="Configuration file instead of the nearest catalog_migrate.toml or pyproject.toml.",
)
@click.option(
    "--log-format", type=click.Choice(logs.FORMATS), default=None,
    help="Form of the lines on stderr (configuration: output.log_format).",
)
@click.pass_context
def cli(ctx: click.Context, config_file: str | None, log_format: str | None) -> None:
    """Upgrade the tables, views and functions of a Spark catalog, with every row kept.

    \b
    Example:
      catalog-migrate init
      catalog-migrate plan --release release --catalog catalog
      catalog-migrate apply --release release --catalog catalog --yes
    """
    logs.choose(log_format, given=True)
    ctx.obj = config_file
