"""Fixtures for a team's tests of its own releases; pytest finds them by the entry point.

The releases, oldest first, stand in the ini file (``catalog_migrate_releases``) or on the command
line (``--catalog-release``, once each). A test that asks for ``release_chain`` runs for every pair
of them, and for the whole chain:

    def test_upgrades(simulated_platform, release_chain):
        run_chain(simulated_platform, release_chain, checks=[SampleRows()])

``spark_platform`` needs a fixture ``spark`` of the team's: a session with Delta.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from catalog_migrate.testing.checks import SimulatedPlatform, SparkPlatform

_INI = "catalog_migrate_releases"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--catalog-release PATH``, repeatable, and the ini key of the same meaning."""
    group = parser.getgroup("catalog-migrate")
    group.addoption(
        "--catalog-release", action="append", default=[], metavar="PATH",
        help="a release (directory of *.sql, or manifest) to check; repeat it, oldest first",
    )
    parser.addini(_INI, "releases to check, oldest first", type="paths", default=[])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a chain, for tests that ask for ``release_chain``."""
    if "release_chain" not in metafunc.fixturenames:
        return
    config = metafunc.config
    releases: list[Path] = [Path(one) for one in config.getoption("--catalog-release")]
    releases = releases or list(config.getini(_INI))
    missing = [str(path) for path in releases if not path.exists()]
    if len(releases) < 2 or missing:
        raise pytest.UsageError(
            f"no such release: {', '.join(missing)}" if missing else
            f"release_chain needs two releases or more: set {_INI} in the ini file, or give"
            " --catalog-release OLD --catalog-release NEW"
        )
    from catalog_migrate.testing.checks.chain import chains_of

    chains = chains_of(releases)
    names = [" to ".join(Path(str(one)).stem for one in chain) for chain in chains]
    metafunc.parametrize("release_chain", chains, ids=names)


@pytest.fixture
def simulated_platform() -> SimulatedPlatform:
    """An empty installation on the simulated engine."""
    from catalog_migrate.testing.checks import SimulatedPlatform

    return SimulatedPlatform()


@pytest.fixture
def spark_platform(request: pytest.FixtureRequest, tmp_path: Path) -> SparkPlatform:
    """An empty installation on the session of the team's fixture ``spark``."""
    from catalog_migrate.testing.checks import SparkPlatform

    return SparkPlatform(request.getfixturevalue("spark"), tmp_path / "installation")
