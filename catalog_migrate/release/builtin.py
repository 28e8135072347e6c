"""Our own built-ins: the schema ``catalog_migrate``, views over the durable log (DESIGN 5)."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import catalog_migrate
from catalog_migrate.errors import PrerequisiteMissing
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release

SYSTEM_SCHEMA = "catalog_migrate"
PLACEHOLDER = "${catalog_log}"


def system_release(catalog_uri: str) -> Release:
    """Our built-ins for the catalog at ``catalog_uri``: its log is put in as a Delta path.

    Raises PrerequisiteMissing when the SQL files were not installed.
    """
    log = "`" + (catalog_uri.rstrip("/") + "/log").replace("`", "``") + "`"
    directory = builtins_directory()
    texts = [
        (path.name, path.read_text(encoding="utf-8").replace(PLACEHOLDER, log))
        for path in sorted(directory.glob("*.sql"))
    ]
    return load_texts(
        texts, name=f"catalog_migrate {tool_version()}", default_schema=SYSTEM_SCHEMA
    )


def builtins_directory() -> Path:
    """Where the SQL files lie: inside the installed package, or beside it in a checkout."""
    package = Path(catalog_migrate.__path__[0])
    for directory in (package / "builtins", package.parent / "builtins"):
        if any(directory.glob("*.sql")):
            return directory
    raise PrerequisiteMissing(
        "the built-in SQL files are not there", remedy="install catalog-migrate again"
    )


def tool_version() -> str:
    """The installed version of this tool; ``0`` in a checkout that was never installed."""
    try:
        return version("catalog-migrate")
    except PackageNotFoundError:
        return "0"
