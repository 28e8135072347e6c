"""Errors of Spark and delta-rs as engine failures."""

from __future__ import annotations

import logging

import pytest

from catalog_migrate.engine_failures import condition_of, failing, short_message
from catalog_migrate.errors import EngineFailure


def test_a_condition_is_found_in_the_text():
    """Where Spark wraps an error, the inner class counts."""
    error = ValueError("[TASK_WRITE_FAILED] x\n[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK")
    assert condition_of(error) == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert condition_of(ValueError("[not a class]")) is None


def test_a_message_is_short():
    """Search paths, hints and plans go; the place stays."""
    text = (
        "An error\n: [TABLE_OR_VIEW_NOT_FOUND] The table `s`.`a` cannot be found.\n"
        "Search path: [a, b].\nTo tolerate the error on drop use DROP. SQLSTATE: 42P01;"
        " line 3 pos 18;\n'Project [a]\n+- 'UnresolvedRelation"
    )
    assert short_message(ValueError(text)) == (
        "[TABLE_OR_VIEW_NOT_FOUND] The table `s`.`a` cannot be found. (line 3 pos 18)"
    )


def test_what_delta_rs_draws_is_text():
    """Its causes come with colours and arrows, on lines of their own."""
    drawn = ValueError("error\n  \x1b[31m↳\x1b[0m Unable to walk dir\n  \x1b[31m↳\x1b[0m denied")
    assert short_message(drawn) == "error : Unable to walk dir : denied"


def test_only_foreign_errors_are_translated():
    """A file system error becomes an EngineFailure with its cause, a mistake of ours does not."""
    with pytest.raises(EngineFailure) as caught, failing("read"):
        raise ConnectionResetError("Connection reset")
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert caught.value.transient
    with pytest.raises(KeyError), failing("read"):
        raise KeyError("ours")


@pytest.mark.parametrize("name", ["SQLQueryContextLogger", "DataFrameQueryContextLogger"])
def test_our_own_errors_are_not_logged_twice(name):
    """PySpark's logger is mute inside failing() and speaks outside it."""
    pytest.importorskip("pyspark")
    from catalog_migrate.engine_failures import mute_query_errors

    mute_query_errors()
    logger = logging.getLogger(name)
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "x", None, None)
    with failing("try"):
        assert not logger.filter(record)
    assert logger.filter(record)
