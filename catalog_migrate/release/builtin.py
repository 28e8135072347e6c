"""Our own built-ins: the schema ``catalog_migrate``, views over the durable log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, files, version
from itertools import count
from pathlib import Path

from catalog_migrate.model.hashes import text_hash
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.release import Release
from catalog_migrate.release.validation import SYSTEM_SCHEMA as SYSTEM_SCHEMA
from catalog_migrate.store.local import damaged_package_error

CATALOG_LOG = "${catalog_log}"
CATALOG_AUDIT = "${catalog_audit}"
OPERATIONS_LOG = "${operations_log}"
CLUSTER_LOGS = "${cluster_logs}"

_NO_LOG = (
    "(SELECT CAST(NULL AS TIMESTAMP) AS at, '' AS item_id, '' AS state, '' AS run_id,"
    " '' AS query_id, 0L AS batch, 0L AS rows, 0L AS lag, '' AS error, 0L AS restarts,"
    " '' AS runtime WHERE false)"
)


def system_release(
    catalog_uri: str, cluster_logs: Sequence[str] = (), schema: str = SYSTEM_SCHEMA
) -> Release:
    """Our built-ins for the catalog at ``catalog_uri``: its log is put in as a Delta path.

    ``cluster_logs`` are the absolute directories of the clusters' logs, ``schema`` is where the
    views are: one of :func:`schemas_of_views`. Raises PrerequisiteMissing when the SQL files were
    not installed.
    """
    root = catalog_uri.rstrip("/")
    logs = " UNION ALL ".join(f"SELECT * FROM delta.{_path(each)}" for each in cluster_logs)
    put_in = {
        CATALOG_LOG: _path(f"{root}/log"),
        CATALOG_AUDIT: _path(f"{root}/audit"),
        OPERATIONS_LOG: _path(f"{root}/operations_log"),
        CLUSTER_LOGS: f"({logs})" if logs else _NO_LOG,
    }
    texts = []
    for path in sorted(builtins_directory().glob("*.sql")):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise damaged_package_error(f"its file {path.name} cannot be read: {error}") from error
        for placeholder, value in put_in.items():
            text = text.replace(placeholder, value)
        if schema != SYSTEM_SCHEMA:
            text = text.replace(SYSTEM_SCHEMA + ".", schema + ".")
        texts.append((path.name, text))
    return load_texts(
        texts, name=f"catalog_migrate {tool_version()}", default_schema=schema, own=True
    )


def schemas_of_views(catalog_uri: str) -> Iterator[str]:
    """The schemas that our built-ins may have, the usual one first; the same at every call.

    The second is named after the catalog's address, for where another installation has the first.
    """
    address = catalog_uri.rstrip("/")
    yield SYSTEM_SCHEMA
    yield f"{SYSTEM_SCHEMA}_{text_hash(address)[2:10]}"
    for number in count(2):  # a catalog that was at this address before may have that one too
        yield f"{SYSTEM_SCHEMA}_{text_hash(f'{address}#{number}')[2:10]}"


def _path(directory: str) -> str:
    return "`" + directory.replace("`", "``") + "`"


def builtins_directory() -> Path:
    """Where the SQL files lie: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    _refuse_incomplete(package)
    for directory in (package / "builtins", package.parent / "builtins"):
        if any(directory.glob("*.sql")):
            return directory
    raise damaged_package_error("its built-in SQL files are not there")


def _refuse_incomplete(package: Path) -> None:
    """PrerequisiteMissing when a file that was installed is gone: fewer views are no release."""
    try:
        installed = files("catalog-migrate") or ()
    except PackageNotFoundError:
        return
    below = f"{package.name}/builtins/"
    for each in installed:
        if each.as_posix().startswith(below) and not Path(str(each.locate())).is_file():
            raise damaged_package_error(f"its file {each.as_posix()} is not there")


def tool_version() -> str:
    """Return the installed version of this tool; ``0`` in a checkout that was never installed."""
    try:
        return version("catalog-migrate")
    except PackageNotFoundError:
        return "0"
