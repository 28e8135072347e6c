"""Directories of files as a connector."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from catalog_migrate.connectors.base import Connector, Frame, Identity, Session, Source
from catalog_migrate.connectors.common_options import DECODING
from catalog_migrate.connectors.files import options
from catalog_migrate.connectors.files.client import files_directory
from catalog_migrate.connectors.findings import TookTooLong, failed, within
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import InvalidOptions, Problem
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import Column, External, OptionValue

if TYPE_CHECKING:
    from catalog_migrate.connectors.query import QuerySpec


class Files(Connector):
    """Directories below one that every process of the cluster sees."""

    name = "FILES"
    help = "A directory of files that every process of the cluster sees under the same path."
    connection = options.CONNECTION
    without_sink = "files are read only; write to a table, KAFKA or POSTGRES"

    def __init__(self) -> None:
        self.source = FilesSource()

    def check(
        self, resolved: Resolved, *, subject: str, timeout: float
    ) -> tuple[Finding, ...]:
        """Look whether the directory can be listed."""
        return (_directory_finding(resolved, None, subject, timeout),)

    def identify(
        self, resolved: Resolved, names: Sequence[str] = (), *, subject: str, timeout: float,
        reads: bool = False,
    ) -> Identity:
        """Return the real path."""
        del names, reads
        finding = _directory_finding(resolved, None, subject, timeout)
        if not finding.ok:
            raise failed(finding)
        return Identity(self.name, str(files_directory(resolved).resolve()))


class FilesSource(Source):
    """Each file of a directory once; which were read is in the checkpoint, by path."""

    section = options.SOURCE
    has_server = False

    def problems(
        self, external: External, connection: Mapping[str, OptionValue]
    ) -> Iterator[Problem]:
        """DECODING 'exact' reads JSON line by line."""
        written = str(connection.get("FORMAT", "json"))
        if external.options.get(DECODING) == "exact" and written == "json":
            for name in options.options_not_of_lines(connection):
                yield Problem(
                    "CM0751",
                    f"DECODING 'exact' reads JSON by lines of UTF-8, its connection says {name}",
                    remedy="write DECODING 'lenient' for the source, or take "
                    f"{name} from the connection",
                )

    def check(
        self, resolved: Resolved, external: External, columns: Sequence[Column], *, subject: str,
        timeout: float,
    ) -> tuple[Finding, ...]:
        """Look whether its directory can be listed."""
        del columns
        sub = external.options.get("PATH")
        return (_directory_finding(resolved, None if sub is None else str(sub), subject, timeout),)

    def reader(self, spark: Session, spec: QuerySpec) -> Frame:
        """Return the rows of the files."""
        return resolve_name("catalog_migrate.streams.spark.sources:file_rows")(spark, spec)


CONNECTOR = Files()


def _directory_finding(
    resolved: Resolved, sub: str | None, subject: str, timeout: float
) -> Finding:
    """Whether a directory is there and can be listed."""
    try:
        path = within(timeout, lambda: files_directory(resolved, sub))
        problem = within(timeout, lambda: _unreadable(path))
    except InvalidOptions as error:
        return Finding(subject, "PATH", "error", error.message, error.remedy)
    except TookTooLong:
        return Finding(
            subject, "PATH", "error", f"no answer from the file system within {timeout:.0f} s",
            "check the server of that directory",
        )
    if problem is not None:
        return Finding(
            subject, "PATH", "error", f"{path} {problem}",
            "every process of the cluster must see it under this path, and may read it",
        )
    return Finding(subject, "PATH", "ok", f"{path} can be read")


def _unreadable(path: Path) -> str | None:
    if not path.exists():
        return "is not there"
    if not path.is_dir():
        return "is no directory"
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except PermissionError:
        return "may not be listed by this process"
    return None
