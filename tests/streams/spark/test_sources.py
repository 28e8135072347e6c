"""Settings of the queries' session, beside the caller's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from catalog_migrate.config import REDACTED
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.engine.spark.session import session_conf
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import External

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_redaction_of_the_application() -> None:
    """The application hides what the options of a connection may hold; its JVM logs so too."""
    conf = session_conf([])
    assert conf["spark.redaction.regex"] == REDACTED
    assert conf["spark.sql.redaction.options.regex"] == REDACTED


@pytest.mark.spark
def test_session_of_the_queries(spark: SparkSession) -> None:
    """Queries get settings of their own; the caller's session keeps its."""
    from catalog_migrate.streams.spark.sources import query_session

    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        session = query_session(spark)
        assert session.conf.get("spark.sql.session.timeZone") == "UTC"
        assert session.conf.get("spark.sql.streaming.noDataProgressEventInterval") == "300"
        assert session.conf.get("spark.sql.redaction.options.regex") == REDACTED
        assert spark.conf.get("spark.sql.streaming.noDataProgressEventInterval") == "10000ms"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.unset("spark.sql.shuffle.partitions")


@pytest.mark.spark
def test_token_endpoints_that_the_jvm_allows(spark: SparkSession) -> None:
    """A JVM with a list that lacks the endpoint is named with what to start it with."""
    from catalog_migrate.connectors.kafka.reader import ALLOWED_ENDPOINTS, require_allowed_endpoint

    spec = QuerySpec(
        item_id="i1", name=ItemName("s", "orders"), kind="source",
        external=External(connector="KAFKA"), columns=(), shard="", checkpoint="",
        connection={"OAUTH TOKEN ENDPOINT": "https://t/token"},
    )
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    require_allowed_endpoint(spark, spec)
    try:
        system.setProperty(ALLOWED_ENDPOINTS, "https://a/token, https://t/token")
        require_allowed_endpoint(spark, spec)
        system.setProperty(ALLOWED_ENDPOINTS, "https://a/token")
        with pytest.raises(EngineFailure, match="option OAUTH TOKEN ENDPOINT: the JVM") as caught:
            require_allowed_endpoint(spark, spec)
    finally:
        system.clearProperty(ALLOWED_ENDPOINTS)
    assert f"-D{ALLOWED_ENDPOINTS}=https://t/token,…" in (caught.value.remedy or "")
