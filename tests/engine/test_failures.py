"""Errors of Spark and delta-rs as engine failures."""

from __future__ import annotations

import logging

import pytest

from catalog_migrate import engine_failures
from catalog_migrate.engine_failures import condition_of, failing, is_transient, short_message
from catalog_migrate.errors import EngineFailure, MetastoreFailure


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


class FromServer(Exception):
    """An error as PySpark's client of Spark Connect raises it."""

    def __init__(self, message: str, condition: str | None, stack: str) -> None:
        super().__init__(message)
        self._condition, self._stack = condition, stack

    def getCondition(self) -> str | None:  # noqa: N802
        return self._condition

    def getStackTrace(self) -> str:  # noqa: N802
        return self._stack


def test_what_a_server_says_was_the_cause_counts():
    """Spark Connect tells where a write failed; what failed stands in the server's stack."""
    stack = (
        "org.apache.spark.SparkException\n\tat a.TimeoutException(A.scala:1)\n"
        "Caused by: java.lang.NumberFormatException: [CAST_INVALID_INPUT] The value 'x'"
    )
    error = FromServer("[TASK_WRITE_FAILED] Task failed", "TASK_WRITE_FAILED", stack)
    assert condition_of(error) == "CAST_INVALID_INPUT"
    assert not is_transient(error, None)
    lost = FromServer("it failed", None, "x\nCaused by: java.net.SocketTimeoutException: 5 s")
    assert is_transient(lost, None)
    assert condition_of(FromServer("no more", "TASK_WRITE_FAILED", "")) == "TASK_WRITE_FAILED"


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("Generic S3 error: Error performing GET http://x/b: error sending request", True),
        ("Generic S3 error: Server returned non-2xx status code: 503 Service Unavailable", True),
        ("Call From a to b:9000 failed: Connection refused", True),
        ("Generic S3 error: Server returned non-2xx status code: 403 AccessDenied", False),
        ("Generic S3 error: missing bucket name", False),
    ],
)
def test_an_outage_of_a_store_passes(text, passes):
    """A store that does not answer may answer a moment later; one that refuses does not."""
    assert is_transient(RuntimeError(text), None) is passes


def test_of_a_call_that_got_no_answer_the_details_are_told():
    """What gRPC has for its own developers is left out."""
    text = (
        "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
        '\tdetails = "failed to connect: Connection refused"\n\tdebug_error_string = "x"\n>'
    )
    assert short_message(ValueError(text)) == "failed to connect: Connection refused"


class FromHive(ValueError):
    """An error as PySpark raises it for Spark's client of a metastore: its causes are apart."""

    def __init__(self, message: str, stack: str) -> None:
        super().__init__(message)
        self._stackTrace = stack


@pytest.mark.parametrize(("said", "stack", "condition", "told"), [
    (
        "Unable to instantiate org.apache.hadoop.hive.ql.metadata.SessionHiveMetaStoreClient",
        "Caused by: MetaException(message:Could not connect to meta store using any of the URIs",
        "METASTORE_UNREACHABLE", "the metastore thrift://m:9083 does not answer",
    ),
    (
        "org.apache.hadoop.hive.ql.metadata.HiveException: MetaException(message:ERROR: permission"
        " denied for table TBLS)", "", "METASTORE_REFUSED",
        "the metastore thrift://m:9083 refuses: org.apache.hadoop.hive.ql.metadata.HiveException:"
        " MetaException(message:ERROR: permission denied for table TBLS)",
    ),
])
def test_a_metastore_is_named(
    monkeypatch: pytest.MonkeyPatch, said: str, stack: str, condition: str, told: str
) -> None:
    """Where it is and what to do; without an address (embedded) the error stays Spark's."""
    monkeypatch.setattr(engine_failures, "_metastore_address", lambda: "thrift://m:9083")
    with pytest.raises(MetastoreFailure) as caught, failing("create the view s.v"):
        raise FromHive(said, stack)
    assert (caught.value.condition, caught.value.metastore) == (condition, "thrift://m:9083")
    assert caught.value.message == f"cannot create the view s.v: {told}"
    assert caught.value.remedy is not None
    monkeypatch.undo()
    with pytest.raises(EngineFailure) as plain, failing("create the view s.v"):
        raise FromHive(said, stack)
    assert not isinstance(plain.value, MetastoreFailure)


def test_a_mistake_on_a_metastore_is_no_failure_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Hive says of a table is told as it is; so is a refused file without any metastore."""
    monkeypatch.setattr(engine_failures, "_metastore_address", lambda: "thrift://m:9083")
    for said in (
        "org.apache.hadoop.hive.ql.metadata.HiveException: AlreadyExistsException(message:t)",
        "java.io.IOException: permission denied: /w/t",
    ):
        with pytest.raises(EngineFailure) as caught, failing("register s.t"):
            raise ValueError(said)
        assert caught.value.code == "CM0400"
