"""Which users' objects are looked at, and how (``[users]`` of the configuration)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.model.names import ItemName
from catalog_migrate.policy import name_pattern

if TYPE_CHECKING:
    from catalog_migrate.config import Settings


class UserSettings(msgspec.Struct, frozen=True):
    """Which users' objects are looked at: all of ``schemas`` (empty: every one) but ``exclude``.

    Both are patterns; one of ``exclude`` fits a schema or ``schema.name``. ``threads`` is how many
    statements are sent at once, ``repair`` whether a start repairs what only has to be written
    again.
    """

    schemas: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    threads: int = 4
    repair: bool = False

    def has_schema(self, schema: str) -> bool:
        """Return whether objects of a schema are looked at."""
        wanted = not self.schemas or _fits(schema, self.schemas)
        return wanted and not _fits(schema, self.exclude)

    def has(self, name: ItemName) -> bool:
        """Return whether an object is looked at."""
        full = f"{name.schema}.{name.name}"
        return self.has_schema(name.schema) and not _fits(full, self.exclude)


def users_of(settings: Settings) -> UserSettings:
    """Return the settings as they are configured (``[users]``)."""
    return UserSettings(
        settings.split_list("users.schemas"), settings.split_list("users.exclude"),
        int(settings.number("users.threads") or 4), settings.text("users.repair") == "true",
    )


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    return any(name_pattern(pattern).match(text) for pattern in patterns)
