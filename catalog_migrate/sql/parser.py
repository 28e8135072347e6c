"""Text to statements, by recursive descent over tables of keywords.

Every error is a :class:`SyntaxProblem` with its place in the whole text; a
text with an error gives no statement at all, so that nothing of it is ever carried out. Names,
options and columns are in ``clauses``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from catalog_migrate.model.objects import External
from catalog_migrate.sql import clauses
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.cursor import Cursor, ParseError, Source
from catalog_migrate.sql.statements import (
    BASE_CONNECTION,
    INCLUDED,
    KINDS,
    LISTINGS,
    PAUSED,
    QUERY_KINDS,
    Kind,
    QueryKind,
)
from catalog_migrate.sql.tokens import Token, split_statements, tokenise

_LIKENESS = 0.85
_VALIDATED: Mapping[str, Kind] = {"CONNECTION": "connection", "SOURCE": "source"}
"""What can be validated."""
One = TypeVar("One")


class Parsed(msgspec.Struct, frozen=True):
    """One statement, the offset at which it starts, and its text without the closing ``;``."""

    statement: st.Statement
    start: int
    text: str


def parse(text: str) -> tuple[Parsed, ...]:
    """All statements of a text, separated by ``;``; comments and empty statements are left out.

    Raises :class:`SyntaxProblem` for the first place that no statement can have.
    """
    return tuple(_parsed(text, group) for group in split_statements(_tokens(text)))


def parse_one(text: str) -> st.Statement:
    """Return the one statement of a text.

    Raises :class:`SyntaxProblem` also when there is none, or more than one.
    """
    tokens = _tokens(text)
    groups = split_statements(tokens) or [[]]
    if len(groups) > 1:
        raise Source(text, tokens).problem(ParseError(
            groups[1][0].start, "only one statement can stand here",
            remedy="send the statements one by one",
        ))
    return _parsed(text, groups[0]).statement


def _tokens(text: str) -> list[Token]:
    tokens = tokenise(text)
    if tokens and tokens[-1].kind == "error":
        open_ = tokens[-1]
        quote = re.search("['\"]", text)
        masked_from = open_.start if quote is None else min(quote.start(), open_.start)
        refused = ParseError(open_.start, open_.value, remedy="close it")
        raise Source(text).problem(refused, masked_from=masked_from)
    return tokens


def _parsed(text: str, tokens: Sequence[Token]) -> Parsed:
    cursor = Cursor(text, tokens)
    try:
        statement = _statement(cursor)
        cursor.need_end()
    except ParseError as refused:
        raise Source(text, tokenise(text)).problem(refused) from None
    start, end = tokens[0].start, tokens[-1].end
    return Parsed(statement, start, text[start:end])


def _statement(cursor: Cursor) -> st.Statement:
    if cursor.accept("EXPLAIN"):
        return st.Explain(cursor.choose(_STATEMENTS)(cursor))
    return cursor.choose(_STATEMENTS)(cursor)


def _drop(cursor: Cursor) -> st.Drop:
    kind = cursor.choose(KINDS)
    if_exists = cursor.accept("IF", "EXISTS")
    name = clauses.item_name(cursor, f"a {kind}")
    cascade = cursor.may_choose({"RESTRICT": False, "CASCADE": True})
    return st.Drop(kind, name, if_exists, bool(cascade))


def _show(cursor: Cursor) -> st.Show | st.ShowCreate | st.ShowLog:
    if cursor.accept("CREATE"):
        kind = cursor.choose(KINDS)
        return st.ShowCreate(kind, clauses.item_name(cursor, f"a {kind}"))
    listing = cursor.may_choose(LISTINGS)
    if listing is not None:
        return st.Show(listing)
    of = cursor.choose(QUERY_KINDS)
    name = clauses.item_name(cursor, f"a {of} (SHOW {of.upper()}S lists them)")
    cursor.need("LOG")
    limit = _whole(cursor, "a number of rows") if cursor.accept("LIMIT") else None
    return st.ShowLog(of, name, limit)


def _whole(cursor: Cursor, what: str) -> int:
    if cursor.token.kind != "number" or not cursor.token.text.isdecimal():
        raise cursor.unexpected(what)
    return int(cursor.advance().text)


def _validate(cursor: Cursor) -> st.ValidateConnection | st.ValidateSource:
    kind = cursor.choose(_VALIDATED)
    name = clauses.item_name(cursor, f"a {kind}")
    if kind == "connection":
        return st.ValidateConnection(name)
    return st.ValidateSource(name, clauses.settings(cursor) if cursor.accept("WITH") else {})


def _comment(cursor: Cursor) -> st.Comment:
    cursor.need("ON")
    kind = cursor.choose(KINDS)
    name = clauses.item_name(cursor, f"a {kind}")
    cursor.need("IS")
    text = None if cursor.accept("NULL") else cursor.need_string("a comment")
    return st.Comment(kind, name, text)


def _held(statement: type[st.Pause] | type[st.Resume]) -> Callable[[Cursor], st.Explainable]:
    """PAUSE and RESUME read alike."""

    def read(cursor: Cursor) -> st.Explainable:
        kind = cursor.choose(QUERY_KINDS)
        name = clauses.item_name(cursor, f"a {kind}")
        reason = cursor.need_string("a reason") if cursor.accept("REASON") else None
        return statement(kind, name, reason)

    return read


# -- CREATE ---------------------------------------------------------------------------------------

Fields = dict[str, Any]
Clause = Callable[[Cursor], Fields]
"""Reads what follows the clause's first keyword and gives the fields that it sets."""


def _create(cursor: Cursor) -> st.Explainable:
    """What follows CREATE."""
    if cursor.sees("OR", "REPLACE"):
        raise cursor.problem(
            "OR REPLACE has no meaning here",
            remedy="write ALTER to change it, or CREATE … IF NOT EXISTS",
        )
    return cursor.choose(_CREATED)(cursor)


def _secret(cursor: Cursor) -> st.CreateSecret:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = clauses.item_name(cursor, "a secret")
    cursor.need("AS")
    reference = cursor.need_string("a reference")
    return st.CreateSecret(
        name, reference, if_not_exists, **_in_any_order(cursor, {"COMMENT": _comment_clause})
    )


def _cluster(cursor: Cursor) -> st.CreateCluster:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    return st.CreateCluster(clauses.item_name(cursor, "a cluster"), if_not_exists)


def _connection(cursor: Cursor) -> st.CreateConnection:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = clauses.item_name(cursor, "a connection")
    cursor.need("TO")
    connector = clauses.connector(cursor)
    options = clauses.options(cursor, base=True)
    base = options.pop(BASE_CONNECTION, None)
    external = External(
        connector=connector, connection=base if isinstance(base, str) else None, options=options
    )
    fields = _in_any_order(cursor, {"COMMENT": _comment_clause, "WITH": _validation})
    return st.CreateConnection(name, external, if_not_exists, **fields)


def _source(cursor: Cursor) -> st.CreateSource:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = clauses.item_name(cursor, "a source")
    columns = clauses.columns(cursor)
    cluster = _cluster_clause(cursor)
    cursor.need("FROM")
    endpoint = _endpoint(cursor)
    fields = _in_any_order(
        cursor,
        {
            "FORMAT": _format, "INCLUDE": _include, "ON": _on_error, "COMMENT": _comment_clause,
            "PAUSED": _paused, "WITH": _settings,
        },
    )
    outside = {name: fields.pop(name, None) for name in ("comment", "paused")}
    external = External(cluster=cluster, **endpoint, **fields)
    return st.CreateSource(name, columns, external, if_not_exists, **outside)


def _sink(cursor: Cursor) -> st.CreateSink:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = clauses.item_name(cursor, "a sink")
    cluster = _cluster_clause(cursor)
    cursor.need("FROM")
    reads = clauses.item_name(cursor, "a table or source")
    cursor.need("INTO")
    endpoint = _endpoint(cursor)
    fields = _in_any_order(
        cursor,
        {
            "KEY": _key, "FORMAT": _format, "ON": _on_error, "COMMENT": _comment_clause,
            "PAUSED": _paused, "WITH": _settings,
        },
    )
    outside = {name: fields.pop(name, None) for name in ("comment", "paused")}
    external = External(reads=reads, cluster=cluster, **endpoint, **fields)
    return st.CreateSink(name, external, if_not_exists, **outside)


_CREATED: Mapping[str, Callable[[Cursor], st.Explainable]] = {
    "SECRET": _secret,
    "CONNECTION": _connection,
    "SOURCE": _source,
    "SINK": _sink,
    "CLUSTER": _cluster,
}


def _endpoint(cursor: Cursor) -> Fields:
    """``KAFKA CONNECTION c (…)``: the other side of a source or sink."""
    connector = clauses.connector(cursor)
    cursor.need("CONNECTION")
    connection = clauses.item_name(cursor, "a connection")
    options, tables = clauses.endpoint_options(cursor)
    return {
        "connector": connector, "connection": connection, "options": options, "tables": tables
    }


def _cluster_clause(cursor: Cursor) -> str | None:
    return clauses.item_name(cursor, "a cluster") if cursor.accept("IN", "CLUSTER") else None


def _in_any_order(cursor: Cursor, table: Mapping[str, Clause]) -> Fields:
    """The optional clauses up to the end of the statement, each at most once."""
    fields: Fields = {}
    left = dict(table)
    while not cursor.ended:
        token = cursor.token
        clause = cursor.may_choose(left)
        if clause is None:
            if token.keyword in table:
                raise cursor.problem(
                    f"{token.keyword} is given twice", remedy="leave one of them out"
                )
            raise cursor.unexpected("the end of the statement")
        del left[token.keyword]
        fields.update(clause(cursor))
    for word in left:
        cursor.note(word)
    return fields


def _comment_clause(cursor: Cursor) -> Fields:
    return {"comment": cursor.need_string("a comment")}


def _paused(cursor: Cursor) -> Fields:
    return {"paused": cursor.need_string("a reason") if cursor.accept("REASON") else PAUSED}


def _settings(cursor: Cursor) -> Fields:
    return {"settings": clauses.settings(cursor)}


def _validation(cursor: Cursor) -> Fields:
    return {"validate": clauses.validation(cursor)}


def _format(cursor: Cursor) -> Fields:
    if not cursor.token.keyword:
        raise cursor.unexpected("a format such as JSON, TEXT or BYTES")
    fields: Fields = {"format": cursor.advance().keyword}
    if fields["format"] == "JSON" and cursor.accept("SCHEMA"):
        fields["format"] = "JSON SCHEMA"
    if cursor.accept("USING", "SCHEMA", "REGISTRY", "CONNECTION"):
        fields["registry"] = clauses.item_name(cursor, "a connection")
    if cursor.sees("KEY", "FORMAT"):  # KEY alone is a clause of sinks
        cursor.need("KEY", "FORMAT")
        if not cursor.token.keyword:
            raise cursor.unexpected("a format such as AVRO, TEXT or BYTES")
        fields["key_format"] = cursor.advance().keyword
    return fields


def _on_error(cursor: Cursor) -> Fields:
    cursor.need("ERROR")
    if cursor.accept("FAIL"):
        return {"dead_letters": None}
    cursor.need("INTO")
    return {"dead_letters": clauses.item_name(cursor, "a table")}


def _include(cursor: Cursor) -> Fields:
    include: dict[str, str] = {}
    while True:
        token = cursor.token
        column = cursor.choose(INCLUDED)
        if token.keyword in include:
            raise cursor.problem(
                f"{token.keyword} is included twice", token=token, remedy="leave one of them out"
            )
        if cursor.accept("AS"):
            column = cursor.need_part("the name of a column")
        include[token.keyword] = column
        if not cursor.accept_mark(","):
            return {"include": include}


def _key(cursor: Cursor) -> Fields:
    fields: Fields = {"key": clauses.column_names(cursor)}
    if cursor.accept("ORDER", "BY"):
        fields["order_by"] = clauses.column_names(cursor)
    return fields


# -- ALTER: options, connection, name, reference, UNSAFE -------------------------------------------

# what may follow the name is one table for each kind of item; a further verb is one more row

class Target(NamedTuple):
    """What is altered: ``ALTER kind [IF EXISTS] name``."""

    kind: Kind
    name: str
    if_exists: bool


Verb = Callable[[Cursor, Target], st.Explainable]
"""Reads a statement from the verb's own keyword on."""


def _alter(cursor: Cursor) -> st.Explainable:
    """What follows ALTER."""
    kind = cursor.choose(KINDS)
    if_exists = cursor.accept("IF", "EXISTS")
    target = Target(kind, clauses.item_name(cursor, f"a {kind}"), if_exists)
    verb = cursor.look(_VERBS[kind])
    if verb is not None:
        return verb(cursor, target)
    if kind == "secret" and cursor.ended:
        return st.AlterSecret(target.name, None, target.if_exists)
    raise cursor.unexpected(*(["the end of the statement"] if kind == "secret" else []))


def _reference(cursor: Cursor, target: Target) -> st.AlterSecret:
    reference = cursor.need_string("a reference") if cursor.accept("AS") else None
    validate = clauses.validation(cursor) if cursor.accept("WITH") else None
    return st.AlterSecret(target.name, reference, target.if_exists, validate)


def _rename(cursor: Cursor, target: Target) -> st.Rename:
    cursor.need("RENAME", "TO")
    to = clauses.item_name(cursor, f"a {target.kind}")
    return st.Rename(target.kind, target.name, to, target.if_exists)


def _change(cursor: Cursor, target: Target) -> st.AlterConnection:
    connector = clauses.connector(cursor) if cursor.accept("AS") else None
    rotate = cursor.accept("ROTATE", "KEYS")
    more = not rotate or cursor.accept_mark(",")
    taken = _actions(cursor, _CONNECTION_ACTIONS) if more else ()
    validate = clauses.validation(cursor) if cursor.accept("WITH") else None
    return st.AlterConnection(target.name, taken, target.if_exists, connector, validate, rotate)


def _item(kind: QueryKind) -> Verb:
    unsafe = _unsafe(kind)

    def read(cursor: Cursor, target: Target) -> st.Explainable:
        if cursor.sees("SET", "CONNECTION"):
            cursor.need("SET", "CONNECTION")
            connection = clauses.item_name(cursor, "a connection")
            return st.SetConnection(kind, target.name, connection, target.if_exists)
        if cursor.sees("RESET", "SPLITS"):
            return unsafe(cursor, target)
        return st.AlterItem(kind, target.name, _actions(cursor, _ITEM_ACTIONS), target.if_exists)

    return read


def _unsafe(kind: QueryKind) -> Verb:
    def read(cursor: Cursor, target: Target) -> st.Unsafe:
        said = cursor.accept("UNSAFE")  # what is missing is told together, when it would be done
        taken = _actions(cursor, _UNSAFE_ACTIONS)
        settings = clauses.settings(cursor) if cursor.accept("WITH") else {}
        reason = cursor.need_string("a reason") if cursor.accept("REASON") else ""
        return st.Unsafe(kind, target.name, taken, reason, settings, target.if_exists, said)

    return read


def _query_verbs(kind: QueryKind) -> Mapping[str, Verb]:
    item = _item(kind)
    unsafe = _unsafe(kind)
    return {
        "SET": item, "DROP": item, "RESET": item, "RENAME": _rename, "UNSAFE": unsafe,
        "INJECT": unsafe,
    }


def _actions(cursor: Cursor, table: Mapping[str, Callable[[Cursor], One]]) -> tuple[One, ...]:
    """``SET (…), DROP (…), …``: at least one of the actions of the table."""
    found = [cursor.choose(table)(cursor)]
    while cursor.accept_mark(","):
        found.append(cursor.choose(table)(cursor))
    return tuple(found)


# -- actions ------------------------------------------------------------------------------------


def _drop_options(cursor: Cursor) -> st.DropOptions:
    return st.DropOptions(clauses.option_names(cursor))


def _reset_options(cursor: Cursor) -> st.ResetOptions:
    return st.ResetOptions(clauses.option_names(cursor))


_ITEM_ACTIONS: Mapping[str, Callable[[Cursor], st.Action]] = {
    "SET": lambda cursor: st.SetOptions(clauses.options(cursor)),
    "DROP": _drop_options,
    "RESET": _reset_options,
}
"""Of sources and sinks."""

_CONNECTION_ACTIONS: Mapping[str, Callable[[Cursor], st.Action]] = {
    "SET": lambda cursor: st.SetOptions(clauses.options(cursor, base=True)),
    "DROP": _drop_options,
    "RESET": _reset_options,
}
"""Of connections, where SET may name another base with USING CONNECTION."""


def _unsafe_reset(cursor: Cursor) -> st.UnsafeAction:
    if not cursor.accept("SPLITS"):
        return _ITEM_ACTIONS["RESET"](cursor)
    if not cursor.accept_mark("("):
        return st.ResetSplits()
    splits: list[str] = []
    clauses.splits(cursor, splits.append, splits)
    return st.ResetSplits(tuple(splits))


def _inject(cursor: Cursor) -> st.UnsafeAction:
    return cursor.choose(_INJECTIONS)(cursor)


def _offsets(cursor: Cursor) -> st.InjectOffsets:
    targets: dict[str, str | None] = {}
    cursor.need_mark("(")
    if cursor.accept("TO"):
        everywhere = clauses.target(cursor)
        cursor.need_mark(")")
        return st.InjectOffsets(everywhere=everywhere)

    def one(split: str) -> None:
        cursor.accept_mark("=")
        targets[split] = None if cursor.accept("NULL") else clauses.target(cursor)

    clauses.splits(cursor, one, targets)
    return st.InjectOffsets(targets)


def _version(cursor: Cursor) -> st.InjectVersion:
    return st.InjectVersion(_whole(cursor, "the number of a version"))


_INJECTIONS: Mapping[str, Callable[[Cursor], st.UnsafeAction]] = {
    "OFFSETS": _offsets, "VERSION": _version
}
_UNSAFE_ACTIONS: Mapping[str, Callable[[Cursor], st.UnsafeAction]] = {
    **_ITEM_ACTIONS, "RESET": _unsafe_reset, "INJECT": _inject
}

_VERBS: Mapping[Kind, Mapping[str, Verb]] = {
    "secret": {"AS": _reference, "RENAME": _rename, "WITH": _reference},
    "connection": {
        "SET": _change, "DROP": _change, "RESET": _change, "RENAME": _rename,
        "ROTATE KEYS": _change, "AS": _change,
    },
    "source": _query_verbs("source"),
    "sink": _query_verbs("sink"),
    "cluster": {"RENAME": _rename},
}


_STATEMENTS: Mapping[str, Callable[[Cursor], st.Explainable]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "SHOW": _show,
    "VALIDATE": _validate,
    "COMMENT": _comment,
    "PAUSE": _held(st.Pause),
    "RESUME": _held(st.Resume),
}


# -- recognition ---------------------------------------------------------------------------------

_OBJECTS: Mapping[str, frozenset[str]] = {
    "CREATE": frozenset(KINDS),
    "ALTER": frozenset(KINDS),
    "DROP": frozenset(KINDS),
    "VALIDATE": frozenset(_VALIDATED),
    "PAUSE": frozenset(KINDS),
    "RESUME": frozenset(KINDS),
    "SHOW": frozenset({*LISTINGS, *QUERY_KINDS}),
    "COMMENT": frozenset(KINDS),
}
_ONLY_OURS = frozenset({"VALIDATE", "PAUSE", "RESUME"})
"""First words that begin no statement of Spark."""


def is_ours(text: str) -> bool:
    """Return whether the first words make the text a statement of this language.

    A misspelt object (``ALTER CONECTION``) counts as ours, so that its error comes from here and
    names the word meant; so does a text that ends before its object. Nothing else is looked at.
    """
    words = _first_words(text)
    if words[:1] == ["EXPLAIN"]:
        words = words[1:]
    if not words or words[0] not in _OBJECTS:
        return False
    verb, rest = words[0], words[1:]
    if verb in _ONLY_OURS:
        return True
    objects = _OBJECTS[verb]
    if verb == "CREATE" and rest[:2] == ["OR", "REPLACE"]:
        rest = rest[2:]
    elif verb == "SHOW" and rest[:1] == ["CREATE"]:
        rest, objects = rest[1:], frozenset(KINDS)
    elif verb == "COMMENT" and rest[:1] == ["ON"]:
        rest = rest[1:]
    return not rest or bool(difflib.get_close_matches(rest[0], objects, 1, _LIKENESS))


def _first_words(text: str) -> list[str]:
    """The words at the start, in upper case, up to the first other sign."""
    words: list[str] = []
    for token in next(iter(split_statements(tokenise(text))), []):
        if not token.keyword:
            break
        words.append(token.keyword)
    return words
