"""Which options an item of a connector takes: one table for its connections, sources and sinks.

Validation, documentation and the test matrix are made from these tables; nothing else in the
package knows an option that is not in them.
"""

# ruff: noqa: S105 - a rule, no password

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from catalog_migrate.connectors.values import Option

SectionName = Literal["connection", "source", "sink"]


class Reserved(msgspec.Struct, frozen=True):
    """Names under an open prefix that are not free (shell patterns), and what to write instead.

    ``secrets``: a value under such a name is one, or has one in it.
    """

    patterns: tuple[str, ...]
    instead: str
    secrets: bool = False

    def covers(self, name: str) -> bool:
        """Whether ``name`` (without the prefix) is one of them."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)


class Section(msgspec.Struct, frozen=True):
    """The options of one kind of item (``options`` in parentheses, ``settings`` after WITH).

    ``open_prefix`` lets any option of the client through under that prefix, as plain text, except
    ``reserved``; ``open_names`` are those that the client has, where that is known. ``formats`` and
    ``includes`` are what FORMAT and INCLUDE take, ``registered_formats`` what FORMAT takes with a
    schema registry, ``key_formats`` what KEY FORMAT then does; ``tables`` is whether TABLES (…)
    is among the options, ``dead_letters`` whether there is ON ERROR INTO. ``rotation`` are the
    key in use and the next one, which ROTATE KEYS puts in its place. ``client`` is what an open
    option belongs to, in messages.

    ``default_format`` holds where no FORMAT is written; ``format_from`` is the option of the
    connection that decides it instead. A source with ``records`` gives records, which FORMAT
    decodes: each row carries the place of its own (``_topic``, ``_partition``, ``_offset``,
    ``_timestamp``), and a position is the next record by partition. A sink with ``order_by`` takes
    ORDER BY, one with ``replaces`` keeps the last row of each KEY, and one with ``row_keys`` gives
    each row a key by which consumers recognise a repeat.
    """

    options: tuple[Option, ...]
    settings: tuple[Option, ...] = ()
    open_prefix: str | None = None
    open_help: str = ""
    open_names: frozenset[str] | None = None
    reserved: tuple[Reserved, ...] = ()
    formats: tuple[str, ...] = ()
    registered_formats: tuple[str, ...] = ()
    key_formats: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    tables: bool = False
    dead_letters: bool = False
    rotation: tuple[str, str] | None = None
    client: str = ""
    default_format: str = ""
    format_from: str = ""
    records: bool = False
    order_by: bool = False
    replaces: bool = False
    row_keys: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of options and settings, as declared."""
        return tuple(option.name for option in (*self.options, *self.settings))

    def find(self, name: str) -> Option | None:
        """Return the option or setting that ``name`` means, whatever its case and spacing."""
        wanted = fold_option(name)
        for option in (*self.options, *self.settings):
            if fold_option(option.name) == wanted:
                return option
        return None

    def is_setting(self, name: str) -> bool:
        """Whether ``name`` belongs after WITH."""
        return any(fold_option(setting.name) == fold_option(name) for setting in self.settings)

    def is_open(self, name: str) -> bool:
        """Return whether ``name`` begins with the open prefix and goes on behind it."""
        prefix = self.open_prefix
        return prefix is not None and name.lower().startswith(prefix) and len(name) > len(prefix)

    def knows(self, name: str) -> bool:
        """Whether the client has the open option ``name``, as far as that is known."""
        return self.open_names is None or name.lower()[len(self.open_prefix or ""):] \
            in self.open_names

    def reserved_for(self, name: str) -> Reserved | None:
        """Why the open option ``name`` is not free, None when it is."""
        bare = name.lower()[len(self.open_prefix or "") :]
        return next((entry for entry in self.reserved if entry.covers(bare)), None)

    def holds_secret(self, name: str) -> bool:
        """Whether the value of ``name`` is a secret, so that no plain text may stand there."""
        option = self.find(name)
        if option is not None:
            return option.secret == "must"
        bare = name.lower()[len(self.open_prefix or "") :]
        return self.is_open(name) and any(
            entry.secrets and entry.covers(bare) for entry in self.reserved
        )


def fold_option(name: str) -> str:
    """The form option names are compared in: upper case, blanks and underscores one blank."""
    return " ".join(name.replace("_", " ").upper().split())
