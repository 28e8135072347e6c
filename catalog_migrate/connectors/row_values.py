"""Takes the values of rows out of what Spark, PostgreSQL and Python say of a failure.

They are in no message and no line of stderr unless ``[streams] show_values`` says so. What an error
says is kept where its class vouches for it; of others the class is kept, and where it was.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from catalog_migrate.errors import CatalogMigrateError

HIDDEN = "…"
"""In the place of a value."""

_NESTED = re.compile(r"((?:\b[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error)\b)(?::| - ).*", re.DOTALL)
"""Another exception within a text: what it says is reported by the exception itself, if at all."""

_OF_ROWS = ("21", "22", "23", "38", "39", "XX")
"""Classes of SQLSTATE of which the message may quote a row: data, constraints, functions."""

_OURS = frozenset({"USER_RAISED_EXCEPTION", "STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE"})
"""Spark's error classes whose text is ours, or that come before any row."""

_SAFE_PARAMETERS = re.compile(
    r"(?i)\A(?!.*(?:value|expr|record|row|reason|message))"
    r".*(?:type|column|field|table|relation|constraint|config|function|format|length|limit"
    r"|precision|scale|mode|path|file|signature|routine|id)\w*\Z"
)
"""Parameters of Spark's messages that are no values: types, names, settings."""

_VOUCHED_PACKAGES = (
    "org.apache.kafka.", "java.net.", "java.nio.", "java.util.concurrent.", "javax.net.",
    "javax.security.", "java.security.", "org.apache.hadoop.", "software.amazon.",
)
"""Of the JVM's exceptions without an error class, those of clients and files."""

_VOUCHED_CLASSES = frozenset({
    "java.io.IOException", "java.io.FileNotFoundException", "java.io.EOFException",
    "java.lang.InterruptedException", "java.lang.OutOfMemoryError",
    "java.lang.ClassNotFoundException", "java.lang.NoClassDefFoundError",
})

_OF_DELTA = re.compile(r"invariant|cast error|violated|arrow error|parser error", re.IGNORECASE)
"""What delta-rs says of rows and not of a log."""

_COPIED = re.compile(
    r"COPY (?P<table>.+?), line \d+(?:, column (?P<column>.+?)(?:: |$))?", re.MULTILINE
)
_FUNCTION = re.compile(r"PL/\w+ function [^\n]*")


def hash_key(key: bytes | Sequence[str | None]) -> str:
    """Return what an error has in the place of a row's key: a SHA-256 of its bytes, or of its text;
    of several columns that of a JSON array."""
    if not isinstance(key, bytes):
        key = (key[0] if len(key) == 1 and key[0] is not None else json.dumps(list(key))).encode()
    return hashlib.sha256(key).hexdigest()[:16]


def without_nested(text: str) -> str:
    """A text up to the message of an exception that it quotes."""
    return _NESTED.sub(r"\1", text)


def of_spark(
    text: str, condition: str | None, sqlstate: str | None, parameters: Mapping[str, str]
) -> str:
    """What an exception with an error class of Spark says, without values.

    Its parameters are taken out of the text where they may be some.
    """
    if condition is None or condition in _OURS or condition.startswith("KAFKA_"):
        return text if condition is not None else without_nested(text)
    if sqlstate is not None and sqlstate.startswith(_OF_ROWS):
        unsafe = {
            value for name, value in parameters.items()
            if value and not _SAFE_PARAMETERS.match(name)
        }
        head = f"[{condition}]"
        rest = text.removeprefix(head)
        for value in sorted(unsafe, key=len, reverse=True):
            rest = rest.replace(value, HIDDEN)
        text = (head if text.startswith(head) else "") + rest
    return without_nested(text)


def of_java(name: str, text: str) -> str:
    """What another exception of the JVM says, by its class' full name."""
    if name in _VOUCHED_CLASSES or name.startswith(_VOUCHED_PACKAGES):
        return without_nested(text)
    # Spark's own without an error class wrap others
    return without_nested(text) if name.startswith("org.apache.spark.") else HIDDEN


def of_python(error: BaseException) -> str:
    """What an exception of Python says, without values."""
    if isinstance(error, CatalogMigrateError):
        doing = error.data.get("doing")
        # what it quotes is its cause, which is asked itself
        return error.message if doing is None else f"cannot {doing}"
    if _is(error, "psycopg"):
        return of_postgres(error)
    if isinstance(error, OSError) or _is(error, "confluent_kafka", "cimpl", "py4j"):
        return str(error)
    if _is(error, "deltalake", "_internal") and not _OF_DELTA.search(str(error)):
        return str(error)
    return HIDDEN


def of_postgres(error: Any) -> str:
    """What PostgreSQL says, without the values that it quotes; where it was is kept."""
    diag = error.diag
    state, primary = diag.sqlstate or "", diag.message_primary
    if primary is None:  # no server said it
        return str(error)
    if not state.startswith(("22", "P0", "38", "39", "XX")):
        return str(primary)
    context = diag.context or ""
    copied, function = _COPIED.search(context), _FUNCTION.search(context)
    where = [f"{what} {name}" for what, name in (
        ("table", diag.table_name or (copied and copied["table"])),
        ("column", diag.column_name or (copied and copied["column"])),
        ("type", diag.datatype_name), ("constraint", diag.constraint_name),
    ) if name]
    where += [function[0]] if function is not None else []
    return f"{type(error).__name__} ({state}){': ' * bool(where)}{', '.join(where)}"


def place_in(error: Any) -> dict[str, str]:
    """The table and column that an error of PostgreSQL names."""
    diag = error.diag
    copied = _COPIED.search(diag.context or "")
    found = {
        "table": diag.table_name or (copied and copied["table"]),
        "column": diag.column_name or (copied and copied["column"]),
    }
    return {name: str(value) for name, value in found.items() if value}


def _is(error: BaseException, *homes: str) -> bool:
    """Whether the class of an error, or one above it, is of one of those packages."""
    return any(kind.__module__.partition(".")[0] in homes for kind in type(error).__mro__)
