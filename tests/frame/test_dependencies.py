"""What pyproject.toml requires against what the package imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import pytest

from catalog_migrate import errors

ROOT = Path(__file__).parents[2]

UNIMPORTED = {
    "delta-spark": "its version chooses Delta's jars",
    "pandas": "PySpark hands rows over by it",
    "pyspark[connect]": "the client of Spark Connect is part of pyspark",
}
"""Requirements that no module names, and what they are for."""

ON_DEMAND = {"botocore", "pytest", "typing_extensions"}
"""Packages of no extra: AWS logins, the plugin for a team's own tests, what type checkers know."""

BY_ANOTHER = {"py4j": "pyspark", "numpy": "pandas"}
"""Packages that come with a requirement and belong to it."""


def _section(name: str) -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.split(r"^\[", text.split(f"\n[{name}]\n", 1)[1], maxsplit=1, flags=re.M)[0]


def _requirements(text: str) -> list[str]:
    """Names with their extras, of strings as ``"name[extra]>=1,<2"``."""
    return re.findall(r'"([A-Za-z0-9\-]+(?:\[[a-z,]+\])?)[^"]*"', text)


def _extras() -> dict[str, list[str]]:
    return {
        name: _requirements(found)
        for name, found in re.findall(
            r"^(\w+) = \[(.*)\]$", _section("project.optional-dependencies"), re.M
        )
    }


def _required() -> list[str]:
    return _requirements(_section("project").split("dependencies = [", 1)[1].split("\n]", 1)[0])


def _imported() -> Iterator[str]:
    """The first part of every absolute import of the package, those inside functions included."""
    for file in (ROOT / "catalog_migrate").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


@lru_cache
def _foreign() -> set[str]:
    return set(_imported()) - set(sys.stdlib_module_names) - {"catalog_migrate"}


@lru_cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _packages_of(requirement: str) -> set[str]:
    """The import names that a requirement installs itself."""
    name = requirement.partition("[")[0]
    return {
        package for package, owners in _distributions().items()
        if name in (re.sub(r"[-_.]+", "-", owner).lower() for owner in owners)
    }  # fmt: skip


def test_what_is_imported_is_required() -> None:
    """Each package that a module imports is a requirement of the wheel or of one of its extras."""
    required = [*_required(), *(one for each in _extras().values() for one in each)]
    installed = {package for one in required for package in _packages_of(one)}
    assert len(_foreign()) > 15
    assert {
        package for package in _foreign()
        if BY_ANOTHER.get(package, package) not in installed | {"tomllib"}
    } - ON_DEMAND == set()  # fmt: skip


def test_what_is_required_is_imported() -> None:
    """Each requirement is there for a module that imports it, or for a reason on record."""
    required = [*_required(), *(one for each in _extras().values() for one in each)]
    idle = {
        one for one in required
        if sys.version_info < (3, 11) or one != "tomli"
        if not _packages_of(one) & _foreign()
    }  # fmt: skip
    assert idle <= set(UNIMPORTED)


@pytest.mark.parametrize("extra", ["spark", "streams", "registry", "tunnel", "telemetry", "s3"])
def test_an_extra_is_named_for_the_packages_it_installs(extra: str) -> None:
    """What an extra requires and a module imports is told by that extra when it is missing."""
    packages = {
        package for one in _extras()[extra] for package in _packages_of(one) & _foreign()
    }
    assert packages
    told = {package: errors._EXTRAS.get(package) for package in packages}
    assert told == dict.fromkeys(packages, extra)


def test_no_extra_is_named_for_what_is_not_imported() -> None:
    """The table of packages and extras has nothing that an import cannot miss."""
    told = {package for package in errors._EXTRAS if package not in _foreign()}
    # PySpark's own imports of these reach the caller
    assert told == {"delta", "grpc", "pandas"}


def test_nothing_cites_a_document_that_is_not_in_the_repository() -> None:
    """A docstring says the thing itself: no reader has the notes that it was designed by."""
    cited = re.compile(r"\b(?:DESIG[N]|STAC[K])\b")
    files = [
        file for folder in ("catalog_migrate", "tests", "examples", "bench", "docs", "builtins")
        for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".md", ".sql", ".pyi")
    ]
    assert len(files) > 500
    assert [str(one) for one in files if cited.search(one.read_text(encoding="utf-8"))] == []
