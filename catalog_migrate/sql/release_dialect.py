"""The grammar of a release: CREATE TYPE, TABLE, VIEW and FUNCTION, and DROPPED TABLE.

Expressions and queries are not parsed: their text is cut out of the source as written. A statement
with an error is skipped up to the next ``;``, so that one pass finds the errors of a whole file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from catalog_migrate.errors import Problem
from catalog_migrate.model.names import Identity, ItemName, identity_of, quote_part
from catalog_migrate.model.objects import Argument, Check, Column, ObjectDefinition
from catalog_migrate.sql.cursor import Cursor, ParseError
from catalog_migrate.sql.statements import KINDS
from catalog_migrate.sql.tokens import LineIndex, Token, split_statements, tokenise

SYNTAX = "CM0101"
NO_SCHEMA = "CM0109"

One = TypeVar("One")

_KINDS = ("table", "view", "function", "type")
_CLAUSES: Mapping[str, tuple[str, ...]] = {
    "table": (
        "DROPPED", "PARTITIONED BY", "CLUSTER BY", "COMMENT", "WITH", "RENAMED FROM", "WAS VIEW",
        "FILLED FROM",
    ),
    "view": ("COMMENT", "WITH", "RENAMED FROM", "WAS TABLE"),
    "function": ("COMMENT", "RENAMED FROM"),
    "type": ("COMMENT", "RENAMED FROM"),
}


class Statement(msgspec.Struct, frozen=True):
    """One parsed statement: what it declares, where it stands and where its columns stand.

    Places are (line, column), both from 1; ``columns`` is keyed by the folded column name,
    ``properties`` by the key as written, and ``text`` is where the query or body starts (where
    there is none, the name). ``name_end`` is the offset behind the object's name.
    """

    definition: ObjectDefinition
    line: int
    column: int
    columns: Mapping[str, tuple[int, int]]
    text: tuple[int, int]
    properties: Mapping[str, tuple[int, int]] = {}
    name_end: int = 0


class Parsed(msgspec.Struct, frozen=True):
    """What one text holds: its statements and everything that is wrong with it.

    ``others`` are the statements of the language of streams (CREATE CONNECTION and its like), as
    (text, line, column): they are not of this dialect and are not looked into here. ``dropped`` are
    the tables that DROPPED TABLE gives up, as (name, line, column). ``unread`` is what statements
    declare that have an error behind the name.
    """

    statements: tuple[Statement, ...]
    problems: tuple[Problem, ...]
    others: tuple[tuple[str, int, int], ...] = ()
    dropped: tuple[tuple[ItemName, int, int], ...] = ()
    unread: tuple[Identity, ...] = ()


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
    unread: list[Identity] = []
    for tokens, is_ended in _at_creates(_at_open_parentheses(split_statements(tokenise(text)))):
        parser = _Parser(text, tokens, lines, default_schema)
        if not is_ended:
            parser.problems.append((SYNTAX, parser.problem(
                "a `;` is missing before this statement", token=tokens[0],
                remedy="write ; behind the statement before it",
            )))
        if parser.sees("CREATE") and parser.peek(1).keyword in KINDS:
            place = lines.place(tokens[0].start)
            others.append((text[tokens[0].start : tokens[-1].end], *place))
            continue
        try:
            if parser.sees("DROPPED"):
                dropped += parser.dropped_tables()
            else:
                statements.append(parser.statement())
        except ParseError as error:
            parser.problems.append((SYNTAX, error))
            if parser.declares is not None:
                unread.append(parser.declares)
        for code, refused in parser.problems:
            line, column = lines.place(refused.offset)
            problems.append(
                Problem(
                    code=code, message=refused.message, file=file, line=line, column=column,
                    text=_source_line(text, lines, tokens, refused.offset), remedy=refused.remedy,
                )
            )
    return Parsed(
        tuple(statements), tuple(problems), tuple(others), tuple(dropped), tuple(unread)
    )


def with_column_lists(text: str, lists: Mapping[tuple[int, int], Sequence[Column]]) -> str:
    """Return the text of a file with the typed column lists of views that have none; else as it is.

    ``lists`` is keyed by the place (line, column) of the view's name.
    """
    written: list[str] = []
    taken = 0
    for statement in parse(text, default_schema="-").statements:
        columns = lists.get((statement.line, statement.column))
        if columns is None or statement.definition.kind != "view" or statement.definition.columns:
            continue
        listed = ", ".join(
            f"{quote_part(column.name)} {column.type}" + ("" if column.nullable else " NOT NULL")
            for column in columns
        )
        written += [text[taken : statement.name_end], f" ({listed})"]
        taken = statement.name_end
    return "".join([*written, text[taken:]])


_SEMICOLON = "a `;` ends the statement while a `(` is open"
_OPTIONS = {
    "USING": "USING", "DEFAULT": "DEFAULT", "RENAMED": "RENAMED FROM", "COMMENT": "COMMENT",
    "GENERATED": "GENERATED ALWAYS AS",
}
"""Options of a column, by their first word."""
_TYPES = frozenset({
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float",
    "real", "double", "string", "binary", "date", "timestamp", "timestamp_ntz", "timestamp_ltz",
    "variant",
})
"""Types of one word: a name behind one of them belongs to the next column."""
_NO_KEYS = "leave it out: Delta enforces no keys; NOT NULL and CHECK (…) are enforced"
_ELSEWHERE = {
    "PRIMARY": _NO_KEYS, "FOREIGN": _NO_KEYS, "UNIQUE": _NO_KEYS, "REFERENCES": _NO_KEYS,
    "IDENTITY": "leave it out: a release has no identity columns; fill the column when writing",
    "AUTO_INCREMENT": "leave it out: a release has no identity columns; fill the column when "
    "writing",
    "AUTOINCREMENT": "leave it out: a release has no identity columns; fill the column when "
    "writing",
}
"""What other databases have in a list of columns, and what to do here."""
_KINDS_ELSEWHERE = {
    "TEMP": "leave it out: a release holds what stays; the session that needs it makes it",
    "TEMPORARY": "leave it out: a release holds what stays; the session that needs it makes it",
    "GLOBAL": "leave it out: a release holds what stays; the session that needs it makes it",
    "EXTERNAL": "leave it out: the place of a table follows from the warehouse",
    "MATERIALIZED": "leave it out: Spark has no such views; a table may be contents = 'derived'",
}
_CLAUSES_ELSEWHERE = {
    "TBLPROPERTIES": "write WITH (…)",
    "OPTIONS": "write properties of the table in WITH (…)",
    "LOCATION": "leave it out: the place of a table follows from the warehouse",
    "STORED": "leave it out: every table is a Delta table",
    "USING": "leave it out: every table is a Delta table",
    "CLUSTERED": "write CLUSTER BY (…): a Delta table has no buckets",
    "ENGINE": "leave it out: every table is a Delta table",
}


def _at_open_parentheses(statements: Sequence[list[Token]]) -> list[list[Token]]:
    """The statements, those put together that a ``;`` within parentheses takes apart.

    An error is the first token behind it then, at which reading ends.
    """
    found: list[list[Token]] = []
    is_open = False
    for tokens in statements:
        if is_open and not tokens[0].is_word("create", "dropped"):
            found[-1] = [*found[-1], tokens[0]._replace(kind="error", value=_SEMICOLON), *tokens]
        else:
            found.append(tokens)
        marks = [token.text for token in found[-1] if token.kind == "operator"]
        is_open = marks.count("(") > marks.count(")")
    return found


def _at_creates(statements: Sequence[list[Token]]) -> list[tuple[list[Token], bool]]:
    """The statements, cut before a CREATE that no ``;`` separates from what is before it.

    With each: whether the one before it ended with a ``;``.
    """
    found: list[tuple[list[Token], bool]] = []
    for tokens in statements:
        start = depth = 0
        for at, token in enumerate(tokens):
            if token.kind == "operator":
                depth += (token.text == "(") - (token.text == ")")
            elif (
                at > start and depth == 0 and token.is_word("create") and len(tokens) > at + 2
                and tokens[at + 1].is_word(*_KINDS) and tokens[at + 2].is_name
                and not tokens[at - 1].is_word("as") and not tokens[at - 1].is_operator(".", ",")
            ):
                found.append((tokens[start:at], start == 0))
                start = at
        found.append((tokens[start:], start == 0))
    return found


def _source_line(text: str, lines: LineIndex, tokens: Sequence[Token], offset: int) -> str:
    """The line of ``offset``; of a statement about a secret, nothing behind that word."""
    start, end = lines.span(offset)
    told = next((token.end for token in tokens[:4] if token.is_word("secret")), end)
    return text[start : min(end, max(start, told))].strip()


class _Parser(Cursor):
    """Recursive descent over the tokens of one statement.

    ``problems`` are those behind which the statement is read on, for what else is wrong with it,
    each with its code; ``declares`` is known as soon as the object's name is read.
    """

    __slots__ = (
        "declares", "default_schema", "lines", "places", "problems", "property_places",
        "text_place",
    )

    def __init__(
        self, text: str, tokens: Sequence[Token], lines: LineIndex, default_schema: str | None
    ) -> None:
        super().__init__(text, tokens)
        self.lines, self.default_schema = lines, default_schema
        self.places: dict[str, tuple[int, int]] = {}
        self.property_places: dict[str, tuple[int, int]] = {}
        self.text_place: tuple[int, int] | None = None
        self.problems: list[tuple[str, ParseError]] = []
        self.declares: Identity | None = None

    # -- text as written -----------------------------------------------------------------------

    def slice_until(self, stop: Callable[[], bool], what: str, *, angles: bool = False) -> str:
        """Return the source text up to a comma, a closing parenthesis or where ``stop`` holds."""
        opening, closing = ("([{<", ")]}>") if angles else ("([{", ")]}")
        start, depth = self.at, 0
        while not self.ended:
            token = self.token
            if token.kind == "error":
                raise self.expected(what)
            if token.kind != "operator":
                if depth == 0 and self.at > start and stop():
                    break
            elif depth == 0 and token.text in (",", ")"):
                break
            else:
                depth += (token.text in opening) - (token.text in closing)
            self.advance()
        if self.at == start:
            raise self.expected(what)
        if depth > 0:
            raise self.expected("`)`")
        return self.taken(start)

    def rest(self, what: str) -> str:
        """Return the source text up to the end of the statement."""
        if self.ended:
            raise self.expected(what)
        broken = next((token for token in self.tokens[self.at :] if token.kind == "error"), None)
        if broken is not None:
            raise self.problem(broken.value, token=broken, remedy="close it")
        self.text_place = self.lines.place(self.token.start)
        start, self.at = self.at, len(self.tokens) - 1
        return self.taken(start)

    # -- statements ----------------------------------------------------------------------------

    def statement(self) -> Statement:
        for token in self.tokens:
            if token.text.startswith("\ufeff"):
                raise self.problem(
                    "there is an invisible sign here (U+FEFF, a byte order mark)", token=token,
                    remedy="leave it out: it belongs at the start of a file only",
                )
        if not self.accept("CREATE"):
            raise self.expected(
                "CREATE", remedy="a release holds CREATE TYPE, TABLE, VIEW and FUNCTION only, and "
                "DROPPED TABLE",
            )
        if self.sees("OR", "REPLACE"):
            refused = self.problem(
                "OR REPLACE has no meaning here", remedy="write CREATE: a release says what is, "
                "the plan finds out what changes",
            )
            if not self.peek(2).is_word(*_KINDS):
                raise refused
            self.problems.append((SYNTAX, refused))
            self.at += 2
        kind = self.token.keyword.lower()
        if kind not in _KINDS:
            if kind.upper() in _KINDS_ELSEWHERE:
                raise self.problem(
                    f"{kind.upper()} has no meaning here", remedy=_KINDS_ELSEWHERE[kind.upper()]
                )
            near = difflib.get_close_matches(kind, _KINDS, 1)
            remedy = f"write CREATE {near[0].upper()}" if near else None
            raise self.expected("TABLE, VIEW, FUNCTION or TYPE", remedy=remedy)
        self.advance()
        if self.sees("IF", "NOT", "EXISTS"):
            self.problems.append((SYNTAX, self.problem(
                "IF NOT EXISTS has no meaning here", remedy="leave it out"
            )))
            self.at += 3
        name_token = self.token
        schema, name = self.object_name(kind)
        self.declares = identity_of(kind, schema, name)
        name_end = self.tokens[self.at - 1].end
        rest: Callable[[], dict[str, Any]] = getattr(self, f"_{kind}")
        fields = rest()
        if not self.ended:
            raise self.unknown_clause(kind)
        definition = ObjectDefinition(schema=schema, kind=kind, name=name, **fields)
        line, column = self.lines.place(name_token.start)
        return Statement(
            definition, line, column, self.places, self.text_place or (line, column),
            self.property_places, name_end,
        )

    def dropped_tables(self) -> list[tuple[ItemName, int, int]]:
        self.need("DROPPED", "TABLE")
        found: list[tuple[ItemName, int, int]] = []
        while True:
            place = self.lines.place(self.token.start)
            name = ItemName(*self.object_name("table"))
            if name.schema:
                found.append((name, *place))
            if not self.accept_mark(","):
                break
        if not self.ended:
            raise self.expected("`,` or the end of the statement")
        return found

    def object_name(self, kind: str) -> tuple[str, str]:
        token = self.token
        name = self.need_part(f"the name of the {kind}")
        schema = self.default_schema
        if self.accept_mark("."):
            schema, name = name, self.need_part(f"the name of the {kind}")
        if self.sees_mark("-"):
            raise self.problem(
                f"{name}- is no name: a name has letters, digits and _",
                remedy=f"write {name}_{self.peek(1).text}" if self.peek(1).is_name else
                "write _ in its place",
            )
        if self.sees_mark("."):
            raise self.expected(
                "a name of two parts", remedy="write schema.name, without a catalog"
            )
        if schema is None:
            self.problems.append((NO_SCHEMA, self.problem(
                f"{name} has no schema", token=token,
                remedy=f"write schema.{name}, or set default_schema in release.toml",
            )))
        return schema or "", name

    def unknown_clause(self, kind: str) -> ParseError:
        broken = self.peek(1)
        if broken.kind == "error":  # the clause's text: its quote is not closed
            return self.problem(broken.value, token=broken, remedy="close it")
        known = _CLAUSES[kind]
        word = self.token.text.upper()
        near = [] if word in _CLAUSES_ELSEWHERE else difflib.get_close_matches(
            word, [clause.split()[0] for clause in known], 1
        )
        if near:
            remedy = "write " + next(clause for clause in known if clause.split()[0] == near[0])
        elif kind in ("table", "view") and word in _CLAUSES_ELSEWHERE:
            remedy = _CLAUSES_ELSEWHERE[word]
        elif kind == "table" and word == "AS":
            remedy = "write CREATE VIEW, or list the columns"
        else:
            remedy = "known here: " + ", ".join(known)
        return self.expected(f"a clause of CREATE {kind.upper()}", remedy=remedy)

    def _type(self) -> dict[str, Any]:
        self.need("AS")
        stop = lambda: self.sees("RENAMED", "FROM") or self.comment_follows()  # noqa: E731
        fields: dict[str, Any] = {"definition": self.slice_until(stop, "a type", angles=True)}
        return self.clauses("type", fields)

    def _table(self) -> dict[str, Any]:
        checks: list[tuple[str | None, str]] = []
        columns = self.listed(
            lambda: self.column_or_check(checks),
            remedy="write the columns in parentheses: (id INT, …)",
        )
        return self.clauses("table", {
            "columns": tuple(column for column in columns if column is not None),
            "checks": _named(checks),
        })

    def column_or_check(self, checks: list[tuple[str | None, str]]) -> Column | None:
        """Return a column of a table; a CHECK among them goes to ``checks``."""
        name = None
        if self.sees("CONSTRAINT") and self.peek(2).keyword == "CHECK":
            self.advance()
            name = self.need_part("the name of the constraint")
        elif not self.sees("CHECK") or not self.peek(1).is_operator("("):
            self.refuse_key()
            self.refuse_bare_check()
            return self.table_column()
        self.need("CHECK")
        checks.append((name, self.parenthesised("a condition")))
        return None

    def refuse_comma(self) -> None:
        """Fail at a comma that nothing stands before, or nothing behind."""
        behind = self.tokens[self.at - 1].is_operator(",") and self.sees_mark(")")
        if behind or self.sees_mark(","):
            raise self.problem("a `,` is too much before this" if behind else
                               "a `,` is too much here", remedy="leave the , out")

    def refuse_bare_check(self) -> None:
        """Fail at a CHECK without parentheses; a column may be named so."""
        if self.sees("CHECK") and not self.peek(1).is_word(*_TYPES) and self.peek(2).kind == (
            "operator"
        ) and not self.peek(2).is_operator(",", ")", "(", "."):
            raise self.problem(
                "the condition of CHECK has no parentheses", remedy="write CHECK (…)"
            )

    def refuse_key(self) -> None:
        """Fail at a key among the columns of a table."""
        at = 2 if self.sees("CONSTRAINT") else 0
        word, following = self.peek(at), self.peek(at + 1)
        if (
            following.is_word("key") and word.is_word("primary", "foreign")
        ) or (word.is_word("unique") and following.is_operator("(")):
            what = word.keyword + (" KEY" if following.is_word("key") else "")
            raise self.problem(f"{what} has no meaning here", token=word, remedy=_NO_KEYS)

    def _view(self) -> dict[str, Any]:
        columns = self.listed(self.view_column) if self.sees_mark("(") else ()
        fields = self.clauses("view", {"columns": columns})
        if self.sees("SELECT") or self.sees("FROM") or self.sees("VALUES"):
            raise self.problem(
                "AS is missing before the query", remedy=f"write AS {self.token.keyword}"
            )
        if not self.sees("AS"):
            raise self.unknown_clause("view")
        self.advance()
        fields["sql"] = self.rest("a query")
        return fields

    def _function(self) -> dict[str, Any]:
        arguments: list[Argument] = []
        self.need_mark("(")
        while not self.sees_mark(")"):
            self.refuse_comma()
            name = self.need_part("the name of an argument")
            stops = lambda: self.sees("DEFAULT") or self.comment_follows()  # noqa: E731
            kind = self.slice_until(stops, "a type", angles=True)
            default = comment = None
            while not self.sees_mark(",", ")"):
                if self.accept("DEFAULT"):
                    default = self.slice_until(self.comment_follows, "an expression")
                elif self.comment_follows():
                    comment = self.comment()
                else:
                    raise self.expected("`,`, `)`, DEFAULT or COMMENT")
            arguments.append(
                Argument(name=name, type=kind, default=default, comment=comment)
            )
            if not self.accept_mark(","):
                break
            self.refuse_comma()
        self.need_mark(")")
        fields: dict[str, Any] = self.clauses("function", {"arguments": tuple(arguments)})
        if self.accept("RETURNS"):
            fields["returns"] = self.returned()
            fields = self.clauses("function", fields)
        if self.ended or self.sees("AS"):
            raise self.problem(
                "RETURN is missing", remedy="write RETURN and the body behind the clauses"
            )
        if not self.sees("RETURN"):
            raise self.unknown_clause("function")
        self.advance()
        fields["body"] = self.rest("an expression or a query")
        return fields

    def returned(self) -> str | tuple[Column, ...]:
        if self.sees("TABLE"):
            if not self.peek(1).is_operator("(") or self.peek(2).is_operator(")"):
                raise self.problem(
                    "RETURNS TABLE has no columns", remedy="write RETURNS TABLE (name TYPE, …)"
                )
            self.advance()
            return self.listed(self.view_column)
        stop = lambda: (  # noqa: E731
            self.sees("RETURN") or self.comment_follows() or self.sees("RENAMED", "FROM")
            or self.token.is_word("language", "deterministic", "not", "contains", "reads", "sql")
        )
        return self.slice_until(stop, "a type", angles=True)

    # -- columns and clauses -------------------------------------------------------------------

    def mark_column(self) -> str:
        self.refuse_comma()
        token = self.token
        name = self.need_part("the name of a column")
        if self.sees_mark("-") and self.peek(1).is_name:
            raise self.problem(
                "a name with other signs than letters, digits and _ is written in backticks",
                token=token, remedy=f"write `{name}-{self.peek(1).text}`",
            )
        self.places.setdefault(name.lower(), self.lines.place(token.start))
        return name

    def comment_follows(self) -> bool:
        return self.sees("COMMENT") and self.peek(1).is_string

    def option_follows(self) -> bool:
        if self.sees("NOT", "NULL"):
            return self.tokens[self.at - 1].keyword != "IS"
        return (
            self.sees("USING") or self.sees("DEFAULT") or self.sees("RENAMED", "FROM")
            or self.sees("GENERATED") or self.comment_follows()
            or self.token.keyword in _ELSEWHERE or self.is_next_column()
        )

    def is_next_column(self) -> bool:
        """Whether a name and its type begin here, right behind the type of another column."""
        before = self.tokens[self.at - 1]
        return before.is_word(*_TYPES) and self.token.is_name and self.peek(1).is_name and not (
            self.token.is_word("with", "without", "collate", "not", "comment")
        )

    def column_type(self, name: str) -> str:
        stop = lambda: (  # noqa: E731
            self.option_follows() or self.token.is_word("not", "notnull", "check", "constraint")
            or self.misspelt_option() is not None
        )
        return self.slice_until(stop, f"the type of column {quote_part(name)}", angles=True)

    def misspelt_option(self) -> str | None:
        """The option of a column that was meant here; None before what may be another column."""
        if not self.token.is_name or self.peek(1).is_word(*_TYPES):
            return None
        near = difflib.get_close_matches(self.token.text.upper(), _OPTIONS, 1, 0.75)
        return _OPTIONS[near[0]] if near else None

    def refuse_not_null(self) -> None:
        """Fail at what was to be NOT NULL."""
        if self.token.is_word("not", "notnull") and not self.sees("NOT", "NULL"):
            written = self.token.text
            if self.token.is_word("not") and self.peek(1).is_name:
                written += f" {self.peek(1).text}"
            raise self.problem(f"{written} has no meaning here", remedy="write NOT NULL")

    def table_column(self) -> Column:
        name = self.mark_column()
        fields: dict[str, Any] = {"type": self.column_type(name)}
        while not self.sees_mark(",", ")"):
            self.refuse_not_null()
            option = self.token
            key, value = self.column_option()
            self.set_once(fields, key, value, option)
        return Column(name=name, **fields)

    def column_option(self) -> tuple[str, Any]:
        """Return what the option here sets, and to which value."""
        if self.accept("NOT", "NULL"):
            return "nullable", False
        if self.comment_follows():
            return "comment", self.comment()
        if self.sees("GENERATED") and any(
            self.peek(ahead).is_word("identity") for ahead in (3, 4, 5)
        ):
            raise self.problem("IDENTITY has no meaning here", remedy=_ELSEWHERE["IDENTITY"])
        for words, (key, read) in _OPTION_VALUES.items():
            if self.accept(*words.split()):
                return key, read(self)
        raise self.no_option()

    def no_option(self) -> ParseError:
        """Return the error for what is no option of a column."""
        if self.token.keyword in _ELSEWHERE:
            what = self.token.keyword + (" KEY" if self.peek(1).is_word("key") else "")
            return self.problem(
                f"{what} has no meaning here", remedy=_ELSEWHERE[self.token.keyword]
            )
        if self.token.is_word("check", "constraint") and not self.peek(1).is_word(*_TYPES):
            return self.problem(
                f"{self.token.keyword} has no meaning behind the type of a column",
                remedy="write , CHECK (…): it is a condition of the whole table",
            )
        if (option_meant := self.misspelt_option()) is not None:
            return self.problem(
                f"{self.token.text} has no meaning here", remedy=f"write {option_meant}"
            )
        if self.token.is_name and self.peek(1).is_name and not self.sees("NOT"):
            return self.problem(
                f"a `,` is missing before {self.token.text}",
                remedy=f"write , before {self.token.text}",
            )
        return self.expected(
            "`,`, `)` or an option of the column",
            remedy=f"known here: NOT NULL, {', '.join(_OPTIONS.values())}",
        )

    def expression(self) -> str:
        return self.slice_until(self.option_follows, "an expression")

    def view_column(self) -> Column:
        name = self.mark_column()
        if self.sees_mark(",", ")"):
            raise self.expected(
                f"the type of column {quote_part(name)}",
                remedy="write the types too, or leave the whole list to `release compile`",
            )
        kind = self.column_type(name)
        self.refuse_not_null()
        nullable = not self.accept("NOT", "NULL")
        comment = self.comment() if self.comment_follows() else None
        return Column(name=name, type=kind, nullable=nullable, comment=comment)

    def clauses(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        while self.clause(kind, fields):
            pass
        return fields

    def clause(self, kind: str, fields: dict[str, Any]) -> bool:
        """Take one clause into ``fields``, if one comes next."""
        start = self.token
        if self.comment_follows():
            self.set_once(fields, "comment", self.comment(), start)
            return True
        if kind == "view" and self.sees("WITH", "SCHEMA"):
            raise self.problem(
                "WITH SCHEMA has no meaning here",
                remedy="leave it out: the typed column list is what the view keeps to",
            )
        taken = next((each for each in _CLAUSES[kind] if self.sees(each.split()[0])), "COMMENT")
        if taken == "COMMENT":
            return kind == "function" and self.accept_characteristic()
        self.need(*taken.split())
        if taken == "WITH":
            self.properties(kind, fields, start)
        elif taken == "DROPPED":
            # what plans offer, one clause a column, may be written one behind the other
            fields["dropped"] = (*fields.get("dropped", ()), *self.name_list())
        else:
            key, read = _CLAUSE_VALUES[taken]
            self.set_once(fields, key, read(self), start)
        return True

    def filling(self) -> str:
        if self.sees_mark("("):
            self.text_place = self.lines.place(self.peek(1).start)
        return self.parenthesised("a query")

    def comment(self) -> str:
        self.need("COMMENT")
        return self.need_string("a comment")

    def accept_characteristic(self) -> bool:
        """Take what a function says of itself and Spark finds out from its body."""
        if self.sees("LANGUAGE"):
            if not self.peek(1).is_word("sql"):
                raise self.problem(
                    "only functions in SQL are part of a release",
                    remedy="write LANGUAGE SQL, or register it in the application",
                )
            self.need("LANGUAGE", "SQL")
        elif self.sees("SQL", "SECURITY", "INVOKER"):
            raise self.problem(
                "Spark has no SQL SECURITY INVOKER for functions", remedy="leave it out"
            )
        else:
            for words in (
                ("NOT", "DETERMINISTIC"), ("DETERMINISTIC",), ("CONTAINS", "SQL"),
                ("READS", "SQL", "DATA"), ("SQL", "SECURITY", "DEFINER"),
            ):
                if self.sees(*words):
                    self.need(*words)
                    return True
            return False
        return True

    def set_once(self, fields: dict[str, Any], key: str, value: Any, token: Token) -> None:
        if key in fields:
            raise self.problem(f"{token.text.upper()} stands here twice", token=token)
        fields[key] = value

    def properties(self, kind: str, fields: dict[str, Any], start: Token) -> None:
        properties: dict[str, str] = {}

        def one() -> None:
            token = self.token
            key = self.property_key()
            self.need_mark("=")
            value = self.property_value()
            if key.lower() == "contents":
                if kind != "table" or value not in ("retained", "derived"):
                    raise self.problem(
                        f"contents = '{value}' has no meaning for a {kind}", token=token,
                        remedy="a table has contents = 'retained' or 'derived'",
                    )
                self.set_once(fields, "contents", value, token)
            elif key in properties:
                raise self.problem(f"property {key} stands here twice", token=token)
            else:
                properties[key] = value
                self.property_places[key] = self.lines.place(token.start)

        self.listed(one)
        if properties:
            self.set_once(fields, "properties", properties, start)

    def property_key(self) -> str:
        if self.token.is_string:
            return self.need_string("the name of a property")
        parts = [self.need_part("the name of a property")]
        while self.accept_mark("."):
            parts.append(self.need_part("the name of a property"))
        return ".".join(parts)

    def property_value(self) -> str:
        token = self.token
        if token.is_string:
            return self.need_string("a value")
        if token.kind in ("number", "word"):
            return self.advance().text
        raise self.expected("a value", remedy="write the value in quotes")

    def parenthesised(self, what: str) -> str:
        self.need_mark("(", remedy=f"write {what} in parentheses: (…)")
        start, depth = self.at, 0
        while self.token.kind not in ("end", "error"):
            token = self.token
            if token.is_operator("("):
                depth += 1
            elif token.is_operator(")"):
                if depth == 0:
                    break
                depth -= 1
            self.advance()
        if self.at == start:
            raise self.expected(what)
        written = self.taken(start)
        self.need_mark(")")
        return written

    def name_list(self) -> tuple[str, ...]:
        return self.listed(
            lambda: self.need_part("the name of a column"),
            remedy="write the names in parentheses: (…)",
        )

    def earlier(self, one: Callable[[], str]) -> str | tuple[str, ...]:
        if self.sees_mark("("):
            return self.listed(one)
        self.note("`(`")
        return one()

    def listed(self, one: Callable[[], One], *, remedy: str | None = None) -> tuple[One, ...]:
        """``(one, …)``, at least one."""
        self.need_mark("(", remedy=remedy)
        found = [one()]
        while self.accept_mark(","):
            found.append(one())
        self.need_mark(")")
        return tuple(found)

    def dotted_name(self) -> str:
        name = quote_part(self.need_part("an earlier name"))
        if self.accept_mark("."):
            name += "." + quote_part(self.need_part("an earlier name"))
        return name


_CLAUSE_VALUES: Mapping[str, tuple[str, Callable[[_Parser], Any]]] = {
    "RENAMED FROM": ("renamed_from", lambda parser: parser.earlier(parser.dotted_name)),
    "WAS VIEW": ("was", lambda _: "view"),
    "WAS TABLE": ("was", lambda _: "table"),
    "FILLED FROM": ("filled_from", _Parser.filling),
    "PARTITIONED BY": ("partitioned_by", _Parser.name_list),
    "CLUSTER BY": ("clustered_by", _Parser.name_list),
}
"""What a clause sets, and how it is read; the others may stand more than once or set more."""
_OPTION_VALUES: Mapping[str, tuple[str, Callable[[_Parser], Any]]] = {
    "USING": ("using", _Parser.expression),
    "DEFAULT": ("default", _Parser.expression),
    "RENAMED FROM": (
        "renamed_from", lambda parser: parser.earlier(lambda: parser.need_part("a column"))
    ),
    "GENERATED ALWAYS AS": ("generated", lambda parser: parser.parenthesised("an expression")),
}


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
