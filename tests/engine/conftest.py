"""What of the contract suite runs on Spark Connect in every run; all of it does in `make soak`."""

from __future__ import annotations

import pytest

ALWAYS = frozenset({
    "test_a_users_function_is_analysed_by_its_body",
    "test_what_a_users_query_does_not_find_is_named_with_its_place",
    "test_a_failing_expression_names_table_column_and_row",
    "test_a_view_binds_with_a_function_of_the_new_state",
    "test_only_what_was_seen_is_replaced_or_dropped",
    "test_those_that_are_dropped_together_are_each_looked_at",
})  # fmt: skip
"""Those that see what differs there: errors with their causes, plans that a server analyses."""


def pytest_itemcollected(item: pytest.Item) -> None:
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("kit") != "spark_connect":
        return
    if getattr(item, "originalname", "") not in ALWAYS:
        item.add_marker(pytest.mark.soak)
