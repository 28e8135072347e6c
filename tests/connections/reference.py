"""The page ``docs/connections.md``, made from the tables: ``python -m`` this module prints it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from catalog_migrate.connectors.base import Connector, connector_names, find_connector
from catalog_migrate.connectors.postgres.ledger import LEDGER
from catalog_migrate.connectors.sections import Section, SectionName
from catalog_migrate.connectors.values import Option

_INTRODUCTION = """\
# Options of connections, sources and sinks

Which options each type of connection, source and sink takes, which are needed, what they default
to, and which may be altered. The page is printed from the tables that statements are checked
against: `python -m tests.connections.reference > docs/connections.md`.

- Names of options are compared without case; an underscore is as good as a blank.
- Where a secret is asked for, write `OPTION SECRET name`, after `CREATE SECRET name AS 'env:NAME'`
  or `'file:/path'`. Only the reference is stored. The process that needs the value reads it when it
  needs it, without the last line end of a file.
- `SET` writes a value; `DROP` and `RESET` both remove it, and neither minds an option that was not
  set. Then the value of the base holds (`USING CONNECTION base`), else the default, else none.
- The result is checked like a `CREATE`: a required option cannot be dropped, and options that
  exclude each other cannot be set one after the other.
- A connection inherits from its base what it does not set; both have the same type. Rules between
  options apply to the sum of both.
- An option that may not be altered is fixed by `CREATE`; the reason says what to do instead.
- `VALIDATE CONNECTION c` asks the real server, in less than 15 seconds, and writes nothing.
"""

_LEDGER = f"""\
A sink records each batch in the table `{LEDGER}`, in the schema of the table that it
writes, so that each row arrives once. The sink creates it. For a role that may not create tables
there, create it once:

```sql
CREATE TABLE IF NOT EXISTS the_schema.{LEDGER} (
  query_id text NOT NULL,
  batch bigint NOT NULL,
  item text NOT NULL,
  written_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (query_id, batch)
);
GRANT SELECT, INSERT, DELETE ON the_schema.{LEDGER} TO the_role;
```
"""

_VALUES = {
    "addresses": "`host:port`, several by commas",
    "boolean": "`true` or `false`",
    "connection": "a connection",
    "duration": "a duration, as `1 second`",
    "host": "one host",
    "host key": "a public key or `SHA256:…`",
    "integer": "a whole number",
    "pairs": "`name=value`, by commas",
    "path": "a path",
    "pem": "PEM",
    "position": "`earliest`, `latest` or a time with its offset",
    "splits": "`('topic:0' = target, …)`",
    "table": "a table",
    "text": "text",
    "topic": "a topic",
    "topics": "topics, by commas",
    "url": "a URL",
}


def page() -> str:
    """The whole page, Markdown."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    for connector in map(find_connector, connector_names()):
        yield f"## {connector.name}\n"
        yield f"{connector.help}\n"
        yield from _section(connector, "connection", f"CREATE CONNECTION c TO {connector.name} (…)")
        yield from _section(
            connector, "source", f"CREATE SOURCE s FROM {connector.name} CONNECTION c (…)"
        )
        yield from _section(
            connector, "sink", f"CREATE SINK k FROM t INTO {connector.name} CONNECTION c (…)"
        )
        if connector.name == "POSTGRES":
            yield _LEDGER


def _section(connector: Connector, name: SectionName, statement: str) -> Iterator[str]:
    section = connector.section(name)
    if section is None:
        why = connector.without_source if name == "source" else connector.without_sink
        yield f"There are no {connector.name} {name}s: {why}.\n"
        return
    yield f"### `{statement}`\n"
    yield from _table("Option", section.options)
    yield from _table("Setting, after `WITH`", section.settings)
    if section.formats:
        yield "`FORMAT` is " + " or ".join(f"`{each}`" for each in section.formats) + ".\n"
    if section.registered_formats:
        formats = " or ".join(f"`{each}`" for each in section.registered_formats)
        yield f"With `USING SCHEMA REGISTRY CONNECTION r` `FORMAT` is {formats}.\n"
    if section.key_formats:
        formats = " or ".join(f"`{each}`" for each in section.key_formats)
        yield f"Behind that `KEY FORMAT` is {formats}.\n"
    if section.includes:
        yield "`INCLUDE` takes " + ", ".join(f"`{each}`" for each in section.includes) + ".\n"
    yield from _open_options(section)


def _table(head: str, options: tuple[Option, ...]) -> Iterator[str]:
    if not options:
        return
    yield f"| {head} | Value | Secret | Needed | Default | May be altered | What it is for |"
    yield "|---|---|---|---|---|---|---|"
    for option in options:
        cells = (
            f"`{option.name}`",
            ", ".join(f"`{choice}`" for choice in option.choices) or _VALUES[option.value],
            {"never": "no", "must": "always", "may": "or text"}[option.secret],
            _needed(option),
            f"`{option.default}`" if option.default is not None else "",
            "yes" if option.alterable else f"no: {option.fixed_because}",
            option.help,
        )
        yield "| " + " | ".join(cells) + " |"
    yield ""


def _needed(option: Option) -> str:
    if option.required:
        return "always"
    parts = []
    if option.required_when:
        parts.append("when " + ", or ".join(str(when) for when in option.required_when))
    if option.exclusive_with:
        parts.append("not when " + ", or ".join(str(when) for when in option.exclusive_with))
    return "; ".join(parts)


def _open_options(section: Section) -> Iterator[str]:
    if section.open_prefix is None:
        return
    yield f"`{section.open_prefix}*`: {section.open_help} Not free are:\n"
    for entry in section.reserved:
        names = ", ".join(f"`{section.open_prefix}{pattern}`" for pattern in entry.patterns)
        yield f"- {names} — use {entry.instead}"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
