"""SQL is built from names, types and texts through the quoting functions alone.

Two things are looked for in the source of every module: an f-string that begins like a statement
and puts in something that no quoting function made, and a statement handed to Spark, PostgreSQL or
DataFusion that was put together by ``%``, ``+`` or ``str.format``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "catalog_migrate"
STATEMENT = re.compile(
    r"\s*\(?(SELECT|INSERT|CREATE|DROP|ALTER|UPDATE|DELETE|DESCRIBE|SHOW|MERGE|TRUNCATE|USE|EXPLAIN"
    r"|REFRESH|RESTORE|COPY|GRANT|VACUUM|SET\s+\w+)\s"
)
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*\Z")
QUOTING = {
    "quote_sql", "quote_part", "string_literal", "by_path", "at_version", "column_definition",
    "select", "_names", "_comment", "_properties", "_argument", "_fitted_body", "_fitted", "_like",
    "_literal", "_path", "_name", "int", "len", "canonical_type", "quoted_name", "violate",
    "quote_datafusion",
}
"""Functions whose result is safe in a statement."""

SAFE_PARTS = {
    # made by the quoting functions on the lines above, in the same function
    "engine/spark/statements.py": {
        "columns", "partitioned", "clustered", "place", "pair", "items", "body", "positions",
        "tables", "source", "feature", "expression", "head", "held", "text", "type_",
        "query", "names", "pairs",
    },
    # the release's own query and views, lists of quoted names, a FROM clause of at_version
    "engine/spark/fills.py": {"items", "positions", "query", "source", "text"},
    # a number, a constant, a FROM clause of statements.at_version, the release's own expression
    "engine/spark/shards.py": {
        "numbered", "low", "high", "rows", "expression", "source", "columns", "stored",
    },
    # a constant word by the kind of a registration; a literal of string_literal
    "engine/spark/registrations.py": {"kind", "pattern", "marked"},
    # a user's query in brackets, which is analysed and never run; a FROM clause of quoted names
    "engine/spark/analysis.py": {"sql", "of", "source"},
    # a user's own view or function by its quoted name, with NULLs of types that Spark has printed
    "engine/port.py": {"source"},
    "engine/spark/definitions.py": {"query"},
    # the text of a user's view as its owner wrote it, but for columns by their new names
    "engine/spark/replacement.py": {"text"},
    # the body of the release's own view
    "release/manifest.py": {"sql"},
    # conditions and lists of literals
    "streams/catalog/tables.py": {"where", "names"},
    # conditions and lists of quoted names, made in the same function
    "streams/spark/postgres_source.py": {"target", "source", "keys", "clauses"},
    # quoted lists and a filter of the server's own; the name that the server gave a snapshot
    "connectors/postgres/snapshot.py": {"listed", "only", "query", "snapshot"},
    # quoted columns and a condition over them, made in the same function
    "streams/ddl/validation.py": {"listed", "where"},
    # the column, or NULL in its place
    "streams/catalog/cluster_log.py": {"failure"},
    # names of the log's own columns, an id of ours (i<n>), a time and a number
    "streams/ddl/log_entries.py": {"shown", "item_id", "after", "limit"},
    # a number of seconds from our own settings
    "connectors/postgres/probe.py": {"seconds"},
}
"""Names that may stand in a statement because of how they are made; a reviewed list."""

TALK = {
    # text for people: remedies, the language's own printer
    "connectors/options.py",
    "model/table_features.py",
    "report/statements.py",
    "report/user_objects.py",
    "sql/printer.py",
    "streams/catalog/failures.py",
    "streams/ddl/show.py",
    "streams/positions/requests.py",
    "streams/positions/positions.py",
    "streams/catalog/upstream_tables.py",
}
REMEDIES = {
    "connectors/postgres/probe.py", "connectors/postgres/drift.py",
    "connectors/postgres/preflight.py",
    "connectors/postgres/sessions.py",
    "streams/spark/file_lines.py", "streams/spark/moved_rows.py",
    "connectors/postgres/sink.py",
    "streams/spark/postgres_source.py",
    "streams/ddl/validation.py",
}
"""Modules whose statements in f-strings are remedies, unless they are handed to ``execute``."""


def modules() -> list[Path]:
    """Every module that ships, those for tests apart."""
    return [path for path in sorted(ROOT.rglob("*.py")) if "testing" not in path.parts]


def text_of(node: ast.JoinedStr) -> str:
    """The text with a mark for what is put in."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values
    )


def is_safe(value: ast.expr, allowed: set[str]) -> bool:
    """Whether an expression put into a statement is known to be quoted."""
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.Name):
        return value.id in allowed or CONSTANT.match(value.id) is not None
    if isinstance(value, ast.Attribute):
        return value.attr == "sql"
    if isinstance(value, ast.IfExp):
        return is_safe(value.body, allowed) and is_safe(value.orelse, allowed)
    if isinstance(value, ast.Call):
        function = value.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "join" and len(value.args) == 1:
            inner = value.args[0]
            return (
                isinstance(inner, ast.Call) and getattr(inner.func, "id", "") == "map"
                and getattr(inner.args[0], "id", "") in QUOTING
            )
        return name in QUOTING
    return False


def is_put_together(node: ast.AST) -> bool:
    """Whether an expression is text and something else, joined by ``%``, ``+`` or ``format``."""
    if isinstance(node, ast.BinOp):
        return True
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format" and isinstance(node.func.value, ast.Constant)
    )


def raw_parts(
    tree: ast.AST, allowed: set[str], *, executed_only: bool
) -> Iterator[tuple[int, str]]:
    """(line, expression) of everything raw in a statement."""
    executed = {
        id(argument)
        for node in ast.walk(tree) if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute) and node.func.attr in ("sql", "execute")
        for argument in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and STATEMENT.match(text_of(node)):
            if executed_only and id(node) not in executed:
                continue
            for part in node.values:
                if isinstance(part, ast.FormattedValue) and not is_safe(part.value, allowed):
                    yield node.lineno, ast.unparse(part.value)
        elif id(node) in executed and is_put_together(node):
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_raw_name_is_in_a_statement(path: Path) -> None:
    """What is put into a statement went through a quoting function, or is on the reviewed list."""
    name = path.relative_to(ROOT).as_posix()
    if name in TALK:
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = raw_parts(tree, SAFE_PARTS.get(name, set()), executed_only=name in REMEDIES)
    assert [f"{name}:{line}: {text}" for line, text in found] == []


@pytest.mark.parametrize(
    ("code", "raw"),
    [
        ('spark.sql(f"SELECT * FROM {name}")', ["name"]),
        ('x = f"DROP TABLE IF EXISTS {schema}.{table}"', ["schema", "table"]),
        ('spark.sql("DROP TABLE " + name)', ["'DROP TABLE ' + name"]),
        ('spark.sql("DROP TABLE %s" % name)', ["'DROP TABLE %s' % name"]),
        ('spark.sql("DROP TABLE {}".format(name))', ["'DROP TABLE {}'.format(name)"]),
        ('f"CREATE TABLE {name.upper()} (a INT)"', ["name.upper()"]),
        ('f"SELECT {quote_sql(a)} FROM {view.name.sql}, {by_path(p)}"', []),
        ('f"created {name}"', []),
    ],
)
def test_the_look_finds_what_it_should(code: str, raw: list[str]) -> None:
    """Each way to put a raw name in is seen, and quoted ones are not."""
    found = [text for _, text in raw_parts(ast.parse(code), set(), executed_only=False)]
    assert found == raw
