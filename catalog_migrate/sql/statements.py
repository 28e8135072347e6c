"""The statement parser: CREATE TYPE, TABLE, VIEW and FUNCTION by recursive descent over tokens.

Expressions and queries are not parsed: their text is cut out of the source as written. A statement
with an error is skipped up to the next ``;``, so that one pass finds the errors of a whole file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from catalog_migrate.errors import Problem
from catalog_migrate.model.names import ItemName, quote_part
from catalog_migrate.model.objects import Argument, Check, Column, ObjectDefinition
from catalog_migrate.sql.tokens import LineIndex, Token, string_value, tokenise

SYNTAX = "CM0101"
NO_SCHEMA = "CM0109"

_KINDS = ("table", "view", "function", "type")
_CLAUSES: Mapping[str, tuple[str, ...]] = {
    "table": (
        "DROPPED", "PARTITIONED BY", "CLUSTER BY", "COMMENT", "WITH", "RENAMED FROM", "WAS VIEW"
    ),
    "view": ("COMMENT", "WITH", "RENAMED FROM", "WAS TABLE"),
    "function": ("COMMENT", "RENAMED FROM"),
    "type": ("COMMENT", "RENAMED FROM"),
}


class Statement(msgspec.Struct, frozen=True):
    """One parsed statement: what it declares, where it stands and where its columns stand.

    Places are (line, column), both from 1; ``columns`` is keyed by the folded column name and
    ``text`` is where the query or body starts (where there is none, the name).
    """

    definition: ObjectDefinition
    line: int
    column: int
    columns: Mapping[str, tuple[int, int]]
    text: tuple[int, int]


_OF_STREAMS = ("secret", "connection", "source", "sink", "cluster")


class Parsed(msgspec.Struct, frozen=True):
    """What one text holds: its statements and everything that is wrong with it.

    ``others`` are the statements of the language of streams (CREATE CONNECTION and its like), as
    (text, line, column): they are not of this dialect and are not looked into here. ``dropped`` are
    the tables that DROPPED TABLE gives up, as (name, line, column).
    """

    statements: tuple[Statement, ...]
    problems: tuple[Problem, ...]
    others: tuple[tuple[str, int, int], ...] = ()
    dropped: tuple[tuple[ItemName, int, int], ...] = ()


class _Refused(Exception):
    """A syntax error at a token; caught where statements are told apart."""

    def __init__(self, token: Token, message: str, remedy: str | None, code: str) -> None:
        super().__init__(message)
        self.token, self.message, self.remedy, self.code = token, message, remedy, code


def parse(text: str, *, file: str | None = None, default_schema: str | None = None) -> Parsed:
    """Parse the statements of one file.

    ``file`` is only named in the problems; ``default_schema`` is the schema of names without one.
    Where there is none, such names are a problem each, and theirs is the empty schema.
    """
    lines = LineIndex(text)
    statements: list[Statement] = []
    problems: list[Problem] = []
    others: list[tuple[str, int, int]] = []
    dropped: list[tuple[ItemName, int, int]] = []
    for tokens in _split(tokenise(text)):
        if len(tokens) > 1 and tokens[0].is_word("create") and tokens[1].is_word(*_OF_STREAMS):
            place = lines.place(tokens[0].start)
            others.append((text[tokens[0].start : tokens[-1].end], *place))
            continue
        parser = _Parser(text, tokens, lines, default_schema)
        try:
            if tokens[0].is_word("dropped"):
                dropped += parser.dropped_tables()
            else:
                statements.append(parser.statement())
        except _Refused as error:
            parser.nameless.append(error)
        for refusal in parser.nameless:
            line, column = lines.place(refusal.token.start)
            problems.append(
                Problem(
                    code=refusal.code, message=refusal.message, file=file, line=line,
                    column=column, text=_source_line(text, tokens, refusal.token.start),
                    remedy=refusal.remedy,
                )
            )
    return Parsed(tuple(statements), tuple(problems), tuple(others), tuple(dropped))


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each statement; empty statements are left out."""
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_operator(";"):
            groups.append([])
        else:
            groups[-1].append(token)
    return [group for group in groups if group]


def _source_line(text: str, tokens: Sequence[Token], offset: int) -> str:
    """The line of ``offset``; of a statement about a secret, nothing behind that word."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    told = next((token.end for token in tokens[:4] if token.is_word("secret")), end)
    return text[start : min(end, max(start, told))].strip()


@dataclass(slots=True)
class _Parser:
    """Recursive descent over the tokens of one statement."""

    text: str
    tokens: list[Token]
    lines: LineIndex
    default_schema: str | None
    at: int = 0
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    text_place: tuple[int, int] | None = None
    nameless: list[_Refused] = field(default_factory=list)
    """Names without a schema: told, and the statement is read on, for what else is wrong with it.
    """

    # -- tokens --------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.peek(0)

    def peek(self, ahead: int) -> Token:
        if self.at + ahead < len(self.tokens):
            return self.tokens[self.at + ahead]
        last = self.tokens[-1]
        return Token("end", "", last.end - 1, last.end, "")

    def refuse(
        self, message: str, *, remedy: str | None = None, token: Token | None = None,
        code: str = SYNTAX,
    ) -> _Refused:
        return _Refused(token or self.token, message, remedy, code)

    def expected(self, what: str, *, remedy: str | None = None) -> _Refused:
        token = self.token
        if token.kind == "error":
            return self.refuse(token.value, remedy="close it")
        found = f"`{token.text}`" if token.kind != "end" else "the end of the statement"
        return self.refuse(f"expected {what}, found {found}", remedy=remedy)

    def sees(self, *words: str) -> bool:
        return all(self.peek(n).is_word(word) for n, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        if self.sees(*words):
            self.at += len(words)
            return True
        return False

    def accept_operator(self, text: str) -> bool:
        if self.token.is_operator(text):
            self.at += 1
            return True
        return False

    def need(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.expected(" ".join(words).upper())

    def need_operator(self, text: str) -> None:
        if not self.accept_operator(text):
            raise self.expected(f"`{text}`")

    def need_name(self, what: str) -> str:
        if not self.token.is_name:
            raise self.expected(what)
        self.at += 1
        return self.tokens[self.at - 1].name

    def need_string(self, what: str) -> str:
        if self.token.kind != "string":
            raise self.expected(f"{what} in quotes")
        self.at += 1
        return string_value(self.tokens[self.at - 1].text)

    def slice_until(self, stop: Callable[[], bool], what: str, *, angles: bool = False) -> str:
        """The source text up to a comma, a closing parenthesis or where ``stop`` holds."""
        start, depth = self.at, 0
        while self.token.kind != "end":
            token = self.token
            if token.kind == "error":
                raise self.expected(what)
            if token.kind == "operator":
                if depth == 0 and token.text in (",", ")"):
                    break
                if token.text in "([{" or (angles and token.text == "<"):
                    depth += 1
                elif token.text in ")]}" or (angles and token.text == ">"):
                    depth -= 1
            elif depth == 0 and self.at > start and stop():
                break
            self.at += 1
        if self.at == start:
            raise self.expected(what)
        if depth > 0:
            raise self.expected("`)`")
        return self.text[self.tokens[start].start : self.tokens[self.at - 1].end]

    def rest(self, what: str) -> str:
        """The source text up to the end of the statement."""
        if self.token.kind == "end":
            raise self.expected(what)
        for token in self.tokens[self.at :]:
            if token.kind == "error":
                raise self.refuse(token.value, token=token, remedy="close it")
        start, self.at = self.token.start, len(self.tokens)
        self.text_place = self.lines.place(start)
        return self.text[start : self.tokens[-1].end]

    # -- statements ----------------------------------------------------------------------------

    def statement(self) -> Statement:
        if not self.accept("create"):
            raise self.expected(
                "CREATE", remedy="a release holds CREATE TYPE, TABLE, VIEW and FUNCTION only, and "
                "DROPPED TABLE",
            )
        if self.sees("or", "replace"):
            raise self.refuse(
                "OR REPLACE has no meaning here", remedy="write CREATE: a release says what is, "
                "the plan finds out what changes",
            )
        kind = self.token.value if self.token.kind == "word" else ""
        if kind not in _KINDS:
            near = difflib.get_close_matches(kind, _KINDS, 1)
            remedy = f"write CREATE {near[0].upper()}" if near else None
            raise self.expected("TABLE, VIEW, FUNCTION or TYPE", remedy=remedy)
        self.at += 1
        if self.sees("if", "not", "exists"):
            raise self.refuse("IF NOT EXISTS has no meaning here", remedy="leave it out")
        name_token = self.token
        schema, name = self.object_name(kind)
        rest: Callable[[], dict[str, Any]] = getattr(self, f"_{kind}")
        fields = rest()
        if self.token.kind != "end":
            raise self.unknown_clause(kind)
        definition = ObjectDefinition(schema=schema, kind=kind, name=name, **fields)
        line, column = self.lines.place(name_token.start)
        return Statement(
            definition, line, column, self.places, self.text_place or (line, column)
        )

    def dropped_tables(self) -> list[tuple[ItemName, int, int]]:
        self.need("dropped", "table")
        found: list[tuple[ItemName, int, int]] = []
        while True:
            place = self.lines.place(self.token.start)
            name = ItemName(*self.object_name("table"))
            if name.schema:
                found.append((name, *place))
            if not self.accept_operator(","):
                break
        if self.token.kind != "end":
            raise self.expected("`,` or the end of the statement")
        return found

    def object_name(self, kind: str) -> tuple[str, str]:
        token = self.token
        name = self.need_name(f"the name of the {kind}")
        schema = self.default_schema
        if self.accept_operator("."):
            schema, name = name, self.need_name(f"the name of the {kind}")
        if self.token.is_operator("."):
            raise self.expected(
                "a name of two parts", remedy="write schema.name, without a catalog"
            )
        if schema is None:
            self.nameless.append(self.refuse(
                f"{name} has no schema", token=token, code=NO_SCHEMA,
                remedy=f"write schema.{name}, or set default_schema in release.toml",
            ))
        return schema or "", name

    def unknown_clause(self, kind: str) -> _Refused:
        broken = self.peek(1)
        if broken.kind == "error":  # the clause's text: its quote is not closed
            return self.refuse(broken.value, token=broken, remedy="close it")
        known = _CLAUSES[kind]
        word = self.token.text.upper()
        near = difflib.get_close_matches(word, [clause.split()[0] for clause in known], 1)
        if near:
            remedy = "write " + next(clause for clause in known if clause.split()[0] == near[0])
        elif kind == "table" and word == "USING":
            remedy = "leave it out: every table is a Delta table"
        elif kind == "table" and word == "AS":
            remedy = "write CREATE VIEW, or list the columns"
        else:
            remedy = "known here: " + ", ".join(known)
        return self.expected(f"a clause of CREATE {kind.upper()}", remedy=remedy)

    def _type(self) -> dict[str, Any]:
        self.need("as")
        stop = lambda: self.sees("renamed", "from") or self.comment_follows()  # noqa: E731
        fields: dict[str, Any] = {"definition": self.slice_until(stop, "a type", angles=True)}
        return self.clauses("type", fields)

    def _table(self) -> dict[str, Any]:
        self.need_operator("(")
        columns: list[Column] = []
        checks: list[tuple[str | None, str]] = []
        while True:
            if self.sees("check") and self.peek(1).is_operator("("):
                self.at += 1
                checks.append((None, self.parenthesised("a condition")))
            elif self.sees("constraint") and self.peek(2).is_word("check"):
                self.at += 1
                name = self.need_name("the name of the constraint")
                self.need("check")
                checks.append((name, self.parenthesised("a condition")))
            else:
                columns.append(self.table_column())
            if not self.accept_operator(","):
                break
        self.need_operator(")")
        fields: dict[str, Any] = {"columns": tuple(columns), "checks": _named(checks)}
        return self.clauses("table", fields)

    def _view(self) -> dict[str, Any]:
        columns: list[Column] = []
        if self.accept_operator("("):
            while True:
                columns.append(self.view_column())
                if not self.accept_operator(","):
                    break
            self.need_operator(")")
        fields = self.clauses("view", {"columns": tuple(columns)})
        if not self.sees("as"):
            raise self.unknown_clause("view")
        self.at += 1
        fields["sql"] = self.rest("a query")
        return fields

    def _function(self) -> dict[str, Any]:
        arguments: list[Argument] = []
        self.need_operator("(")
        while not self.token.is_operator(")"):
            name = self.need_name("the name of an argument")
            kind = self.slice_until(lambda: self.sees("default"), "a type", angles=True)
            default = None
            if self.accept("default"):
                default = self.slice_until(lambda: False, "an expression")
            arguments.append(Argument(name=name, type=kind, default=default))
            if not self.accept_operator(","):
                break
        self.need_operator(")")
        self.need("returns")
        returns: str | tuple[Column, ...]
        if self.sees("table") and self.peek(1).is_operator("("):
            self.at += 2
            columns: list[Column] = []
            while True:
                columns.append(self.view_column())
                if not self.accept_operator(","):
                    break
            self.need_operator(")")
            returns = tuple(columns)
        else:
            stop = lambda: (  # noqa: E731
                self.sees("return") or self.comment_follows() or self.sees("renamed", "from")
            )
            returns = self.slice_until(stop, "a type", angles=True)
        fields = self.clauses("function", {"arguments": tuple(arguments), "returns": returns})
        if not self.sees("return"):
            raise self.unknown_clause("function")
        self.at += 1
        fields["body"] = self.rest("an expression or a query")
        return fields

    # -- columns and clauses -------------------------------------------------------------------

    def mark_column(self) -> str:
        token = self.token
        name = self.need_name("the name of a column")
        self.places.setdefault(name.lower(), self.lines.place(token.start))
        return name

    def comment_follows(self) -> bool:
        return self.sees("comment") and self.peek(1).kind == "string"

    def option_follows(self) -> bool:
        if self.sees("not", "null"):
            return not self.tokens[self.at - 1].is_word("is")
        return (
            self.sees("using") or self.sees("default") or self.sees("renamed", "from")
            or self.sees("generated", "always") or self.comment_follows()
        )

    def table_column(self) -> Column:
        name = self.mark_column()
        stop = self.option_follows
        fields: dict[str, Any] = {
            "type": self.slice_until(stop, f"the type of column {quote_part(name)}", angles=True)
        }
        while not (self.token.is_operator(",") or self.token.is_operator(")")):
            option = self.token
            value: bool | str | tuple[str, ...]
            if self.accept("not", "null"):
                key, value = "nullable", False
            elif self.accept("using"):
                key, value = "using", self.slice_until(stop, "an expression")
            elif self.accept("default"):
                key, value = "default", self.slice_until(stop, "an expression")
            elif self.sees("renamed", "from"):
                self.at += 2
                key, value = "renamed_from", self.earlier(lambda: self.need_name("a column"))
            elif self.comment_follows():
                self.at += 1
                key, value = "comment", self.need_string("a comment")
            elif self.accept("generated", "always", "as"):
                key, value = "generated", self.parenthesised("an expression")
            else:
                raise self.expected(
                    "`,`, `)` or an option of the column",
                    remedy="known here: NOT NULL, USING, DEFAULT, RENAMED FROM, COMMENT, "
                    "GENERATED ALWAYS AS",
                )
            self.set_once(fields, key, value, option)
        return Column(name=name, **fields)

    def view_column(self) -> Column:
        name = self.mark_column()
        if self.token.is_operator(",") or self.token.is_operator(")"):
            raise self.expected(
                f"the type of column {quote_part(name)}",
                remedy="write the types too, or leave the whole list to `release compile`",
            )
        kind = self.slice_until(
            self.option_follows, f"the type of column {quote_part(name)}", angles=True
        )
        nullable = not self.accept("not", "null")
        comment = None
        if self.comment_follows():
            self.at += 1
            comment = self.need_string("a comment")
        return Column(name=name, type=kind, nullable=nullable, comment=comment)

    def clauses(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        while True:
            start = self.token
            if self.comment_follows():
                self.at += 1
                self.set_once(fields, "comment", self.need_string("a comment"), start)
            elif self.accept("renamed", "from"):
                self.set_once(fields, "renamed_from", self.earlier(self.dotted_name), start)
            elif kind in ("table", "view") and self.accept("was"):
                other = "view" if kind == "table" else "table"
                self.need(other)
                self.set_once(fields, "was", other, start)
            elif kind in ("table", "view") and self.accept("with"):
                self.properties(kind, fields, start)
            elif kind == "table" and self.accept("dropped"):
                self.set_once(fields, "dropped", self.name_list(), start)
            elif kind == "table" and self.accept("partitioned", "by"):
                self.set_once(fields, "partitioned_by", self.name_list(), start)
            elif kind == "table" and (
                self.accept("cluster", "by") or self.accept("clustered", "by")
            ):
                self.set_once(fields, "clustered_by", self.name_list(), start)
            else:
                return fields

    def set_once(self, fields: dict[str, Any], key: str, value: Any, token: Token) -> None:
        if key in fields:
            raise self.refuse(f"{token.text.upper()} stands here twice", token=token)
        fields[key] = value

    def properties(self, kind: str, fields: dict[str, Any], start: Token) -> None:
        self.need_operator("(")
        properties: dict[str, str] = {}
        while True:
            token = self.token
            key = self.property_key()
            self.need_operator("=")
            value = self.property_value()
            if key.lower() == "contents":
                if kind != "table" or value not in ("retained", "derived"):
                    raise self.refuse(
                        f"contents = '{value}' has no meaning for a {kind}", token=token,
                        remedy="a table has contents = 'retained' or 'derived'",
                    )
                self.set_once(fields, "contents", value, token)
            elif key in properties:
                raise self.refuse(f"property {key} stands here twice", token=token)
            else:
                properties[key] = value
            if not self.accept_operator(","):
                break
        self.need_operator(")")
        if properties:
            self.set_once(fields, "properties", properties, start)

    def property_key(self) -> str:
        if self.token.kind == "string":
            return self.need_string("the name of a property")
        parts = [self.need_name("the name of a property")]
        while self.accept_operator("."):
            parts.append(self.need_name("the name of a property"))
        return ".".join(parts)

    def property_value(self) -> str:
        token = self.token
        if token.kind == "string":
            return self.need_string("a value")
        if token.kind in ("number", "word"):
            self.at += 1
            return token.text
        raise self.expected("a value", remedy="write the value in quotes")

    def parenthesised(self, what: str) -> str:
        self.need_operator("(")
        start, depth = self.at, 0
        while self.token.kind not in ("end", "error"):
            token = self.token
            if token.is_operator("("):
                depth += 1
            elif token.is_operator(")"):
                if depth == 0:
                    break
                depth -= 1
            self.at += 1
        if self.at == start:
            raise self.expected(what)
        self.need_operator(")")
        return self.text[self.tokens[start].start : self.tokens[self.at - 2].end]

    def name_list(self) -> tuple[str, ...]:
        self.need_operator("(")
        names = [self.need_name("the name of a column")]
        while self.accept_operator(","):
            names.append(self.need_name("the name of a column"))
        self.need_operator(")")
        return tuple(names)

    def earlier(self, one: Callable[[], str]) -> str | tuple[str, ...]:
        if not self.accept_operator("("):
            return one()
        names = [one()]
        while self.accept_operator(","):
            names.append(one())
        self.need_operator(")")
        return tuple(names)

    def dotted_name(self) -> str:
        name = quote_part(self.need_name("an earlier name"))
        if self.accept_operator("."):
            name += "." + quote_part(self.need_name("an earlier name"))
        return name


def _named(checks: Sequence[tuple[str | None, str]]) -> tuple[Check, ...]:
    """CHECKs with names: those without one become ``check_1``, ``check_2``, … as they come."""
    taken = {name.lower() for name, _ in checks if name}
    number = 0
    result: list[Check] = []
    for name, expression in checks:
        if name is None:
            number += 1
            while f"check_{number}" in taken:
                number += 1
            name = f"check_{number}"
        result.append(Check(name=name, expression=expression))
    return tuple(result)
