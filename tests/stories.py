"""The one real story that `make test` has of each mechanism; its other tests with a JVM are in
`make test-all`."""

from __future__ import annotations

STORIES = {
    "a migration with rows and kills": (
        "tests/crash/test_kill_at_every_step.py::test_killed_four_times_in_a_row"
    ),
    "ALTER CONNECTION on a broker": (
        "tests/streams/running/test_alter_under_queries.py::test_rotation"
    ),
    "an unsafe operation": (
        "tests/streams/running/test_unsafe_under_queries.py::test_back_and_forward"
    ),
    "a PostgreSQL source": "tests/streams/running/test_postgres_source.py::test_a_bank[a mirror]",
    "rows and catalog on S3": "tests/bootstrap/test_on_s3.py::test_a_life",
    "Spark Connect": (
        "tests/bootstrap/test_spark_connect.py::test_a_shop_is_upgraded_repaired_and_rolled_back"
    ),
}
"""Mechanism to test, by node id."""
