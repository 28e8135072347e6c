"""Statements to text: ``parse_one(render(statement)) == statement`` for every statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from catalog_migrate.model.names import quote_part, split_name
from catalog_migrate.model.objects import Column, External, OptionValue, SecretRef, UpstreamTable
from catalog_migrate.sql import statements as s
from catalog_migrate.sql.statements import (
    BASE_CONNECTION,
    INCLUDED,
    PAUSED,
    RESERVED,
    SPLIT_OPTIONS,
    USED_CONNECTIONS,
    is_plain_option,
)
from catalog_migrate.sql.tokens import string_literal

_WIDTH = 100


class _Block(NamedTuple):
    """A clause with a list in parentheses, which may be broken over several lines."""

    head: str
    items: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.head} ({', '.join(self.items)})".lstrip()

    def broken(self, margin: str) -> str:
        """One item a line, set in behind ``margin``."""
        inner = f",\n{margin}  ".join(self.items)
        return f"{self.head} (\n{margin}  {inner}\n{margin})".lstrip()


_Clauses = list[str | _Block]


def render(statement: s.Statement) -> str:
    """Return the statement as it would be written, ending in ``;``.

    What fits into 100 columns is one line; else every clause starts a line, and the lists that are
    still too long have one entry a line.
    """
    if isinstance(statement, s.Explain):
        return "EXPLAIN " + render(statement.statement)
    clauses: _Clauses = _PRINTERS[type(statement)](statement)
    line = " ".join(map(str, clauses)) + ";"
    if len(line) <= _WIDTH:
        return line
    head, *rest = clauses
    return "\n  ".join([_fitted(head, ""), *(_fitted(clause, "  ") for clause in rest)]) + ";"


def _fitted(clause: str | _Block, margin: str) -> str:
    if isinstance(clause, str) or len(str(clause)) + len(margin) < _WIDTH:
        return str(clause)
    return clause.broken(margin)


# -- parts ---------------------------------------------------------------------------------------


def _name(text: str) -> str:
    """A name in canonical form, with backticks around keywords too."""
    schema, name = split_name(text)
    return ".".join(_part(part) for part in (schema, name) if part is not None)


def _part(part: str) -> str:
    return f"`{part}`" if part.upper() in RESERVED else quote_part(part)


def _option_name(name: str) -> str:
    return name if is_plain_option(name) else "`" + name.replace("`", "``") + "`"


def _option(name: str, value: OptionValue) -> str:
    if isinstance(value, SecretRef):
        return f"{_option_name(name)} = SECRET {_name(value.secret)}"
    if name in USED_CONNECTIONS:
        return f"USING {name} {_name(value)}"
    if name in SPLIT_OPTIONS and all("=" in each for each in value.split(",")):
        targets = (each.partition("=")[::2] for each in value.split(","))
        listed = ", ".join(f"{string_literal(a)} = {string_literal(b)}" for a, b in targets)
        return f"{_option_name(name)} = ({listed})"
    return f"{_option_name(name)} = {string_literal(value)}"


def _options(head: str, options: Mapping[str, OptionValue], base: str | None = None) -> _Block:
    first = [] if base is None else [f"{BASE_CONNECTION} {_name(base)}"]
    return _Block(head, (*first, *(_option(name, value) for name, value in options.items())))


def _settings(settings: Mapping[str, str]) -> _Clauses:
    if not settings:
        return []
    return [_Block("WITH", tuple(_option(name, value) for name, value in settings.items()))]


def _validation(validate: bool | None) -> _Clauses:
    return [] if validate is None else [f"WITH (VALIDATE = {str(validate).lower()})"]


def _comment(text: str | None) -> _Clauses:
    return [] if text is None else [f"COMMENT {string_literal(text)}"]


def _reason(text: str | None) -> _Clauses:
    return [] if text is None else [f"REASON {string_literal(text)}"]


def _paused(reason: str | None) -> _Clauses:
    if reason is None:
        return []
    return ["PAUSED" if reason == PAUSED else f"PAUSED REASON {string_literal(reason)}"]


def _column(column: Column) -> str:
    parts = [quote_part(column.name), column.type]
    if not column.nullable:
        parts.append("NOT NULL")
    if column.comment is not None:
        parts.append(f"COMMENT {string_literal(column.comment)}")
    return " ".join(parts)


def _columns(names: Iterable[str]) -> str:
    return "(" + ", ".join(map(quote_part, names)) + ")"


def _created(word: str, name: str, if_not_exists: bool) -> str:
    return f"CREATE {word} {'IF NOT EXISTS ' * if_not_exists}{_name(name)}"


def _altered(kind: str, name: str, if_exists: bool) -> str:
    return f"ALTER {kind.upper()} {'IF EXISTS ' * if_exists}{_name(name)}"


def _action(action: s.UnsafeAction) -> str | _Block:
    if isinstance(action, s.SetOptions):
        options = dict(action.options)
        base = options.get(BASE_CONNECTION)
        if isinstance(base, str):
            del options[BASE_CONNECTION]
            return _options("SET", options, base)
        return _options("SET", options)
    if isinstance(action, s.DropOptions):
        return _Block("DROP", tuple(map(_option_name, action.names)))
    if isinstance(action, s.ResetOptions):
        return _Block("RESET", tuple(map(_option_name, action.names)))
    if isinstance(action, s.ResetSplits):
        splits = tuple(map(string_literal, action.splits))
        return _Block("RESET SPLITS", splits) if splits else "RESET SPLITS"
    if isinstance(action, s.InjectVersion):
        return f"INJECT VERSION {action.version}"
    if action.everywhere is not None:
        return f"INJECT OFFSETS (TO {string_literal(action.everywhere)})"
    targets = (
        f"{string_literal(split)} = {'NULL' if target is None else string_literal(target)}"
        for split, target in action.targets.items()
    )
    return _Block("INJECT OFFSETS", tuple(targets))


def _actions(actions: Iterable[s.UnsafeAction]) -> _Clauses:
    """The actions with the commas between them."""
    clauses = [_action(action) for action in actions]
    return [_with_comma(clause) for clause in clauses[:-1]] + clauses[-1:]


def _with_comma(clause: str | _Block) -> str:
    return _fitted(clause, "  ") + ","


# -- statements ----------------------------------------------------------------------------------


def _create_secret(x: s.CreateSecret) -> _Clauses:
    head = _created("SECRET", x.name, x.if_not_exists)
    return [f"{head} AS {string_literal(x.reference)}", *_comment(x.comment)]


def _alter_secret(x: s.AlterSecret) -> _Clauses:
    reference = [] if x.reference is None else [f"AS {string_literal(x.reference)}"]
    return [_altered("secret", x.name, x.if_exists), *reference, *_validation(x.validate)]


def _drop(x: s.Drop) -> _Clauses:
    head = f"DROP {x.kind.upper()} {'IF EXISTS ' * x.if_exists}{_name(x.name)}"
    return [head + " CASCADE" * x.cascade]


def _create_connection(x: s.CreateConnection) -> _Clauses:
    head = f"{_created('CONNECTION', x.name, x.if_not_exists)} TO {x.external.connector}"
    return [
        _options(head, x.external.options, x.external.connection),
        *_comment(x.comment),
        *_validation(x.validate),
    ]


def _alter_connection(x: s.AlterConnection) -> _Clauses:
    connector = f" AS {x.connector}" if x.connector else ""
    head = _altered("connection", x.name, x.if_exists) + connector
    rotation = ["ROTATE KEYS" + "," * bool(x.actions)] if x.rotate else []
    return [head, *rotation, *_actions(x.actions), *_validation(x.validate)]


def _alter_item(x: s.AlterItem) -> _Clauses:
    return [_altered(x.kind, x.name, x.if_exists), *_actions(x.actions)]


def _unsafe(x: s.Unsafe) -> _Clauses:
    return [
        _altered(x.kind, x.name, x.if_exists) + (" UNSAFE" if x.said else ""),
        *_actions(x.actions),
        *_settings(x.settings),
        *_reason(x.reason),
    ]


def _set_connection(x: s.SetConnection) -> _Clauses:
    return [f"{_altered(x.kind, x.name, x.if_exists)} SET CONNECTION {_name(x.connection)}"]


def _rename(x: s.Rename) -> _Clauses:
    return [f"{_altered(x.kind, x.name, x.if_exists)} RENAME TO {_name(x.to)}"]


def _cluster(external: External) -> _Clauses:
    return [] if external.cluster is None else [f"IN CLUSTER {_name(external.cluster)}"]


def _endpoint(direction: str, external: External) -> _Block:
    head = f"{direction} {external.connector} CONNECTION {_name(external.connection or '')}"
    options = _options(head, external.options)
    if not external.tables:
        return options
    tables = ", ".join(map(_upstream_table, external.tables))
    return _Block(head, (*options.items, f"TABLES ({tables})"))


def _upstream_table(table: UpstreamTable) -> str:
    schema, name = split_name(table.name)
    # what is not lower case would be read as if it were
    written = ".".join(
        _part(part) if part == part.lower() else "`" + part.replace("`", "``") + "`"
        for part in (schema, name) if part is not None
    )
    same = quote_part(name) == table.into
    return written + ("" if same else f" AS {_name(table.into)}")


def _format(external: External) -> _Clauses:
    if external.format is None:
        return []
    parts = [f"FORMAT {external.format}"]
    if external.registry is not None:
        parts.append(f"USING SCHEMA REGISTRY CONNECTION {_name(external.registry)}")
    if external.key_format is not None:
        parts.append(f"KEY FORMAT {external.key_format}")
    return [" ".join(parts)]


def _on_error(external: External) -> _Clauses:
    dead = external.dead_letters
    return [] if dead is None else [f"ON ERROR INTO {_name(dead)}"]


def _create_source(x: s.CreateSource) -> _Clauses:
    head = _created("SOURCE", x.name, x.if_not_exists)
    columns = tuple(map(_column, x.columns))
    shown = [
        word if INCLUDED.get(word) == column else f"{word} AS {quote_part(column)}"
        for word, column in x.external.include.items()
    ]
    return [
        _Block(head, columns) if columns else head,
        *_cluster(x.external),
        _endpoint("FROM", x.external),
        *_format(x.external),
        *(["INCLUDE " + ", ".join(shown)] if shown else []),
        *_on_error(x.external),
        *_paused(x.paused),
        *_comment(x.comment),
        *_settings(x.external.settings),
    ]


def _create_sink(x: s.CreateSink) -> _Clauses:
    external = x.external
    order_by = f" ORDER BY {_columns(external.order_by)}" if external.order_by else ""
    return [
        _created("SINK", x.name, x.if_not_exists),
        *_cluster(external),
        f"FROM {_name(external.reads or '')}",
        _endpoint("INTO", external),
        *([f"KEY {_columns(external.key)}{order_by}"] if external.key else []),
        *_format(external),
        *_on_error(external),
        *_paused(x.paused),
        *_comment(x.comment),
        *_settings(external.settings),
    ]


def _create_cluster(x: s.CreateCluster) -> _Clauses:
    return [_created("CLUSTER", x.name, x.if_not_exists)]


def _comment_on(x: s.Comment) -> _Clauses:
    text = "NULL" if x.text is None else string_literal(x.text)
    return [f"COMMENT ON {x.kind.upper()} {_name(x.name)} IS {text}"]


_PRINTERS: Mapping[type, Callable[[Any], _Clauses]] = {
    s.CreateSecret: _create_secret,
    s.AlterSecret: _alter_secret,
    s.Drop: _drop,
    s.CreateConnection: _create_connection,
    s.AlterConnection: _alter_connection,
    s.AlterItem: _alter_item,
    s.Unsafe: _unsafe,
    s.SetConnection: _set_connection,
    s.Rename: _rename,
    s.ShowCreate: lambda x: [f"SHOW CREATE {x.kind.upper()} {_name(x.name)}"],
    s.ValidateConnection: lambda x: [f"VALIDATE CONNECTION {_name(x.name)}"],
    s.ValidateSource: lambda x: [f"VALIDATE SOURCE {_name(x.name)}", *_settings(x.settings)],
    s.CreateSource: _create_source,
    s.CreateSink: _create_sink,
    s.CreateCluster: _create_cluster,
    s.Pause: lambda x: [f"PAUSE {x.kind.upper()} {_name(x.name)}", *_reason(x.reason)],
    s.Resume: lambda x: [f"RESUME {x.kind.upper()} {_name(x.name)}", *_reason(x.reason)],
    s.Show: lambda x: [f"SHOW {x.what.upper()}"],
    s.ShowLog: lambda x: [
        f"SHOW {x.kind.upper()} {_name(x.name)} LOG",
        *([] if x.limit is None else [f"LIMIT {x.limit}"]),
    ],
    s.Comment: _comment_on,
}
