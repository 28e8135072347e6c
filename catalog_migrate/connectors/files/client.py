"""The directory of a FILES connection, and what Spark's readers of files are given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import reveal
from catalog_migrate.errors import InvalidOptions
from catalog_migrate.model.objects import OptionValue


def files_directory(resolved: Resolved, sub: str | None = None) -> Path:
    """The directory of a FILES connection, or one below it.

    Raises InvalidOptions when ``sub`` leads out of the connection's directory, by a symbolic link
    too.
    """
    root = Path(option_of(resolved, "FILES", "PATH") or "")
    if sub is None:
        return root
    path = root / sub
    if ".." in Path(sub).parts or not path.resolve().is_relative_to(root.resolve()):
        raise InvalidOptions(
            f"option PATH: {sub} leads out of the connection's directory",
            remedy="name a directory below it",
        )
    return path


def spark_files_options(
    resolved: Resolved, options: Mapping[str, OptionValue], settings: Mapping[str, str]
) -> dict[str, str]:
    """Everything for ``readStream.format(…)`` of a FILES source but format, schema and path."""
    prefix = "files."
    result = {
        name[len(prefix) :]: reveal(value)
        for name, value in resolved.items()
        if name.startswith(prefix)
    }
    if "PATTERN" in options:
        result["pathGlobFilter"] = str(options["PATTERN"])
    if "MAX FILES PER TRIGGER" in settings:
        result["maxFilesPerTrigger"] = settings["MAX FILES PER TRIGGER"]
    return result
