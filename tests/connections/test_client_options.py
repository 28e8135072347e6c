"""The names of options of Kafka's clients: as the clients have them, and what is said of others."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import confluent_kafka
import pyspark
import pytest

from catalog_migrate.connectors.base import find_connector
from catalog_migrate.connectors.kafka.client import _JAVA_TO_LIBRDKAFKA
from catalog_migrate.connectors.kafka.client_options import JAVA, KAFKA_CLIENT_OPTIONS, LIBRDKAFKA
from catalog_migrate.connectors.options import check
from catalog_migrate.engine.spark.jars import cache_directory
from catalog_migrate.errors import InvalidOptions

UNKNOWN = -2
"""What librdkafka answers for a name that it does not have."""

_NAMES = """
import java.util.*;
public class Names {
  public static void main(String[] none) {
    Set<String> all = new TreeSet<>();
    all.addAll(org.apache.kafka.clients.consumer.ConsumerConfig.configNames());
    all.addAll(org.apache.kafka.clients.producer.ProducerConfig.configNames());
    all.addAll(org.apache.kafka.clients.admin.AdminClientConfig.configNames());
    System.out.println(String.join(" ", all));
  }
}
"""


@pytest.fixture(scope="module")
def librdkafka() -> ctypes.CDLL:
    """The very library that confluent-kafka comes with."""
    home = Path(confluent_kafka.__file__).parent
    (found,) = (home.parent / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(found))
    pointer, size = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    for kind in ("conf", "topic_conf"):
        getattr(library, f"rd_kafka_{kind}_new").restype = pointer
        dump = getattr(library, f"rd_kafka_{kind}_dump")
        dump.restype, dump.argtypes = ctypes.POINTER(ctypes.c_char_p), [pointer, size]
    text = ctypes.c_char_p
    library.rd_kafka_conf_set.argtypes = [pointer, text, text, text, ctypes.c_size_t]
    return library


def knows(library: ctypes.CDLL, name: str) -> bool:
    """Whether librdkafka has an option of that name."""
    conf, why = library.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    answer = library.rd_kafka_conf_set(conf, name.encode(), b"\x01", why, len(why))
    return bool(answer != UNKNOWN)


def dumped(library: ctypes.CDLL) -> set[str]:
    """The names of the options that librdkafka has a value for unasked."""
    found: set[str] = set()
    for kind in ("conf", "topic_conf"):
        count = ctypes.c_size_t()
        conf = getattr(library, f"rd_kafka_{kind}_new")()
        entries = getattr(library, f"rd_kafka_{kind}_dump")(conf, ctypes.byref(count))
        found |= {entries[place].decode() for place in range(0, count.value, 2)}
    return found


def test_librdkafka_has_them(librdkafka: ctypes.CDLL) -> None:
    """It knows every name of the list, and none that it shows is missing there."""
    assert [name for name in sorted(LIBRDKAFKA) if not knows(librdkafka, name)] == []
    # those with underscores are for programs in C: callbacks and pointers
    assert {name for name in dumped(librdkafka) if "_" not in name} <= LIBRDKAFKA
    assert not knows(librdkafka, "max.poll.recrods")
    assert set(_JAVA_TO_LIBRDKAFKA.values()) <= LIBRDKAFKA


def test_the_java_clients_have_them(tmp_path: Path) -> None:
    """The list has the names of every version of the clients that is there, and no other."""
    java, jars = shutil.which("java"), sorted(cache_directory().glob("*kafka-clients-*.jar"))
    assert java is not None
    assert jars
    (slf4j,) = (Path(pyspark.__file__).parent / "jars").glob("slf4j-api-*.jar")
    program = tmp_path / "Names.java"
    program.write_text(_NAMES)
    found: set[str] = set()
    for jar in jars:
        said = subprocess.run(
            [java, "-cp", f"{jar}:{slf4j}", str(program)], check=True, capture_output=True,
            text=True,
        ).stdout
        assert set(said.split()) <= JAVA
        found |= set(said.split())
    assert found == JAVA or len(jars) < 2


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("kafka.max.poll.recrods", "did you mean kafka.max.poll.records"),
        ("kafka.linger.sm", "did you mean kafka.linger.ms"),
        ("kafka.client.idd", "did you mean kafka.client.id"),
        ("kafka.socket.timout.ms", "did you mean kafka.socket.timeout.ms"),
        ("kafka.zzz", "the documentation of Kafka's clients lists theirs"),
    ],
)
def test_a_misspelt_name(name: str, remedy: str) -> None:
    """It is refused with the nearest that there are."""
    with pytest.raises(InvalidOptions) as caught:
        check("KAFKA", "connection", {"BROKER": "a.example.com:9092", name: "5"})
    (problem,) = caught.value.problems
    assert problem.code == "CM0711"
    assert str(problem.remedy).startswith(remedy)


def test_one_that_is_there_already_is_let_pass() -> None:
    """An ALTER of something else is not refused for what an earlier version has let in."""
    options = {"BROKER": "a.example.com:9092", "kafka.max.poll.recrods": "5"}
    found, _ = check("KAFKA", "connection", options, before=options)
    assert found == options


def test_every_known_name_is_taken_or_reserved() -> None:
    """Of each name that a client knows."""
    kafka = find_connector("KAFKA").connection
    for name in KAFKA_CLIENT_OPTIONS:
        written = f"kafka.{name}"
        assert kafka.knows(written)
        if kafka.reserved_for(written) is None:
            check("KAFKA", "connection", {"BROKER": "a.example.com:9092", written: "1"})
