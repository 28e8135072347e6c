"""The jar of our Java in the package is what its sources say."""

from __future__ import annotations

import zipfile

import pytest

from catalog_migrate.engine.spark.jars import LOCKED_PYSPARK, pyspark_version
from tests.engine.spark.java_build import JAR, SOURCES, built, jdk, recorded_jdk


def test_the_jar_has_a_class_of_each_source() -> None:
    """Whoever has only a JRE gets each class, with the bytes of Java 17 and no time of a build."""
    jar = zipfile.ZipFile(JAR)
    classes = {name for name in jar.namelist() if name.endswith(".class")}
    assert {f"catalogmigrate/{source.stem}.class" for source in SOURCES.glob("*.java")} <= classes
    for name in classes:
        assert jar.read(name)[:8] == b"\xca\xfe\xba\xbe\0\0\0\x3d"  # 61 is Java 17
    assert {entry.date_time[0] for entry in jar.infolist()} == {1980}


@pytest.mark.spark
def test_the_sources_give_the_jar_again() -> None:
    """Built again by the JDK that its manifest names, the jar is the same, byte for byte."""
    if pyspark_version() != LOCKED_PYSPARK[-1]:
        pytest.skip("the jar is built against the newest Spark")
    if jdk() != recorded_jdk():
        pytest.skip(f"the jar is of JDK {recorded_jdk()}, here is {jdk() or 'no javac'}")
    assert built() == JAR.read_bytes(), "the sources were edited: make java"
