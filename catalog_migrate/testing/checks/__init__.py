"""Checks of a team's own releases, to run in its own CI.

A *chain* of releases is brought up one after the other on a *platform* (the simulated engine, in
memory and quick, or a real Spark session): after each release the invariants of the product are
looked at, the team's :class:`Check` validates and writes, and a restart must find nothing to do.
Then the chain is rolled back, one release at a time.

    from catalog_migrate.testing.checks import Check, SimulatedPlatform, run_chain

    class Orders(Check):
        def write(self, platform, release):
            platform.append("shop.orders", [{"id": 1}])

        def validate(self, platform, release):
            assert platform.rows("shop.orders")

    def test_upgrades():
        run_chain(SimulatedPlatform(), ["releases/1.0", "releases/1.1"], checks=[Orders()])

The shape (initialise, write, upgrade, validate, restart, validate) is that of Materialize's
platform checks. The pytest plugin of this package gives the same as fixtures.
"""

from catalog_migrate.testing.checks.chain import (
    ChainReport,
    Check,
    CheckFailed,
    Platform,
    SampleRows,
    chains_of,
    run_chain,
)
from catalog_migrate.testing.checks.platforms import SimulatedPlatform, SparkPlatform

__all__ = [
    "ChainReport",
    "Check",
    "CheckFailed",
    "Platform",
    "SampleRows",
    "SimulatedPlatform",
    "SparkPlatform",
    "chains_of",
    "run_chain",
]
