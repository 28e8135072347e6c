"""One call, said in three places: none lacks what another takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from catalog_migrate import hook
from catalog_migrate.api import Catalog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.hook import ReleaseArguments, StartArguments, bootstrap, rollback

OWN = {"spark", "catalog", "plan", "storage_options"}
"""What ``Catalog`` knows itself, or its methods say by themselves."""


@pytest.mark.parametrize(
    ("call", "own", "arguments"),
    [(bootstrap, {"release"}, ReleaseArguments), (rollback, {"to"}, StartArguments)],
    ids=["bootstrap", "rollback"],
)  # fmt: skip
def test_the_arguments_of_a_start(
    call: Callable[..., Any], own: set[str], arguments: type[Any]
) -> None:
    """Every argument of the function is one that the methods of ``Catalog`` take."""
    assert set(inspect.signature(call).parameters) - OWN - own == set(arguments.__annotations__)


@pytest.mark.parametrize(
    ("method", "function", "own", "arguments"),
    [
        ("apply", "bootstrap", {"release": "r"}, ReleaseArguments),
        ("rollback", "rollback", {"to": 7}, StartArguments),
    ],
)
def test_a_catalog_passes_them_all_on(
    method: str, function: str, own: dict[str, Any], arguments: type[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they were said, and nothing that was not: the function's defaults count."""
    heard: list[dict[str, Any]] = []

    def called(spark: Any, **said: Any) -> None:
        heard.append({"spark": spark, **said})

    monkeypatch.setattr(hook, function, called)
    log = MemoryLog()
    catalog = Catalog(log, mode="write")
    said = {name: object() for name in arguments.__annotations__}
    known = {
        "spark": "session", "catalog": log.uri, "plan": None,
        "storage_options": log.storage.options(),
    }
    getattr(catalog, method)(spark="session", **own, **said)
    getattr(catalog, method)(spark="session", **own)
    assert heard == [{**known, **own, **said}, {**known, **own}]


def test_an_argument_that_there_is_none_of() -> None:
    """It is refused as Python refuses it."""
    catalog = Catalog(MemoryLog(), mode="write")
    with pytest.raises(TypeError, match="wharehouse"):
        catalog.apply(spark=None, release="r", wharehouse="w")  # type: ignore[call-arg]
