"""Statements as they are written: Spark puts no variable in where one of ours has ``${…}``.

Spark replaces ``${env:HOME}`` and its like in every text that it parses, names, comments and
literals included, unless ``spark.sql.variable.substitute`` is false. A view and a function keep
that setting from their creation, so that whoever reads them later gets what the release says.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTING = "spark.sql.variable.substitute"
_MARK = "${"

_alone = threading.RLock()
"""The setting is the session's: one such statement at a time, so that the last one restores it."""


@contextmanager
def without_substitution(spark: SparkSession, text: str) -> Iterator[None]:
    """Whatever is parsed inside is taken as it stands; costs nothing where ``text`` has no mark."""
    if _MARK not in text:
        yield
        return
    with _alone:
        before = spark.conf.get(_SETTING, "true")
        spark.conf.set(_SETTING, "false")
        try:
            yield
        finally:
            spark.conf.set(_SETTING, before or "true")


def run(spark: SparkSession, text: str) -> DataFrame:
    """Run (or, for a query, analyse) one statement as it is written."""
    with without_substitution(spark, text):
        return spark.sql(text)
