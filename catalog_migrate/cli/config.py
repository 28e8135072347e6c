"""``config``: what the configuration is, and where each value came from."""

from __future__ import annotations

import click

from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_columns, as_json, emit
from catalog_migrate.config import STORAGE
from catalog_migrate.store.address import HIDDEN, shown_address


@click.group("config")
def command() -> None:
    """Look at the configuration.

    \b
    Example:
      catalog-migrate config show
    """


@command.command("show")
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
        shown: dict[str, object] = {
            path: {"value": _shown(setting.value), "origin": setting.origin}
            for path, setting in settings.settings.items()
        }
        shown["policy"] = {
            "value": [
                {"risk": rule.risk, "name": rule.name, "action": rule.action}
                for rule in settings.policy
            ],
            "origin": settings.policy_origin,
        }
        for name in settings.storage.names:
            shown[f"{STORAGE}.{name}"] = {
                "value": HIDDEN, "origin": settings.storage_origins[name]
            }
        emit(as_json(shown))
        return
    emit(as_columns([
        *(
            (path, "-" if setting.value is None else str(_shown(setting.value)), setting.origin)
            for path, setting in settings.settings.items()
        ),
        *(
            (f"policy.{number}", f"{rule.action} {rule.risk} of {rule.name}", rule.origin)
            for number, rule in enumerate(settings.policy, 1)
        ),
        *(
            (f"{STORAGE}.{name}", HIDDEN, settings.storage_origins[name])
            for name in settings.storage.names
        ),
    ]))


def _shown(value: str | float | None) -> str | float | None:
    """A value as it may be printed: an address that is refused for its login is looked at here."""
    return shown_address(value) if isinstance(value, str) else value
