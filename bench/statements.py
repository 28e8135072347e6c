"""What one ALTER CONNECTION from the command line takes: ``python -m bench.statements``.

An option of a connection that a source uses changes, on a catalog on files and without a runtime,
so without Spark. Counted are how often a text is parsed as statements, how many files of the
package have the plan's value in hand, as an argument or as what they return, and how often it is
returned from one file to another: a reader follows each of them. The value is the effect that is
planned, what wraps it on its way to the log, and the result on its way to the terminal.
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from catalog_migrate.api.catalog import Catalog
from catalog_migrate.cli.main import main

PACKAGE = "/catalog_migrate/"
PARSES = frozenset({"parse", "parse_one"})
VALUES = frozenset({"Effect", "Planned", "Commit", "Result"})


class Passage:
    """Counts, in all threads, what becomes of a text and of what is planned of it."""

    def __init__(self) -> None:
        self.parses = 0
        self.returns: list[str] = []
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        code, file = frame.f_code, _file_of(frame)
        if not file or event not in {"call", "return"}:
            return
        if event == "call":
            self.parses += file == "sql/parser.py" and code.co_name in PARSES
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(_is_plan(frame.f_locals.get(name)) for name in names):
                self.files.add(file)
        elif _is_plan(value):
            self.files.add(file)
            caller = frame.f_back
            while caller is not None and not _file_of(caller):
                caller = caller.f_back
            if caller is not None and _file_of(caller) != file:
                self.returns.append(f"{file}:{code.co_name}")

    def __enter__(self) -> Passage:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def _file_of(frame: FrameType) -> str:
    """The file of the package that a frame is in; empty for one of another."""
    _, inside, file = frame.f_code.co_filename.rpartition(PACKAGE)
    return file if inside else ""


def _is_plan(value: Any) -> bool:
    """Whether it is such a value, alone or in a collection."""
    found = value if isinstance(value, tuple | list) else (value,)
    return any(
        isinstance(each, msgspec.Struct) and type(each).__name__ in VALUES for each in found
    )


def trace_alter() -> Passage:
    """Trace an ALTER of a connection that a source uses."""
    with tempfile.TemporaryDirectory() as place:
        address = f"{place}/catalog"
        Path(place, "in").mkdir()
        Catalog.create(address).execute(
            f"CREATE CLUSTER main; CREATE CONNECTION c TO FILES (PATH '{place}');"
            "CREATE SOURCE s (id INT) FROM FILES CONNECTION c (PATH 'in') FORMAT JSON"
        )
        said = io.StringIO()
        statement = "ALTER CONNECTION c SET (files.mode 'DROPMALFORMED')"
        with redirect_stdout(said), redirect_stderr(said), Passage() as passage:
            code = main(["sql", "-c", statement, "--catalog", address])
    if code:
        raise RuntimeError(said.getvalue())
    return passage


def describe(passage: Passage) -> str:
    """The figures as a table in Markdown."""
    rows = {
        "parses": passage.parses,
        "files that the plan's value visits": len(passage.files),
        "returns of it from file to file": len(passage.returns),
    }
    return "\n".join([
        "| one ALTER CONNECTION from the command line | |", "|---|---|",
        *(f"| {name} | {number} |" for name, number in rows.items()),
    ])


if __name__ == "__main__":
    found = trace_alter()
    print(describe(found))
    print("Files:", ", ".join(sorted(found.files)))
    print("Returns:", ", ".join(found.returns))
