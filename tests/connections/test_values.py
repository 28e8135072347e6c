"""The forms of values: one canonical text for each meaning, a clear refusal for the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors.base import connector_names, find_connector
from catalog_migrate.connectors.values import (
    BadValue,
    Option,
    addresses_of,
    canonical_value,
    milliseconds,
    start_of,
    table_of,
    topics_of,
)


def option(value: str, **more: object) -> Option:
    """An option of that form."""
    return Option("O", value, "Help.", "x", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "written", "kept"),
    [
        ("text", " a b ", " a b "),
        ("integer", " 007 ", "7"),
        ("boolean", "ON", "true"),
        ("boolean", "0", "false"),
        ("duration", "1 second", "1 second"),
        ("duration", "1000 ms", "1 second"),
        ("duration", "INTERVAL '90' SECONDS", "90 seconds"),
        ("duration", "120s", "2 minutes"),
        ("duration", "0 seconds", "0 milliseconds"),
        ("duration", "1 milliseconds", "1 millisecond"),
        ("addresses", " a.example.com:9092 , [::1]:9093", "a.example.com:9092,[::1]:9093"),
        ("host", " db_1.example.com ", "db_1.example.com"),
        ("topic", "t-1.a_b", "t-1.a_b"),
        ("topics", "a, b", "a,b"),
        ("table", "Orders", "orders"),
        ("table", 'public."Orders ""x"""', 'public."Orders ""x"""'),
        ("table", '"plain"', "plain"),
        ("position", "EARLIEST", "earliest"),
        ("position", "2026-01-31T02:00:00+02:00", "2026-01-31T00:00:00.000Z"),
        ("position", "2026-01-31T00:00:00.5Z", "2026-01-31T00:00:00.500Z"),
        ("position", "2026-01-31 01:00+01:00", "2026-01-31T00:00:00.000Z"),
        ("splits", "b.c:10 = 007 , a-b:1=LATEST", "a-b:1=latest,b.c:10=7"),
        ("splits", "t:0=timestamp 2026-01-31 01:00+01:00", "t:0=2026-01-31T00:00:00.000Z"),
        ("path", "sub//dir/", "sub/dir"),
        ("pem", "\n-----BEGIN CERTIFICATE-----\nx\n", "-----BEGIN CERTIFICATE-----\nx\n"),
    ],
)
def test_canonical(kind: str, written: str, kept: str) -> None:
    """What means the same is kept as the same text, so that it counts as unchanged."""
    assert canonical_value(option(kind), written) == kept
    assert canonical_value(option(kind), kept) == kept


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("text", ""),
        ("text", "a\0b"),
        ("integer", "1.5"),
        ("integer", "-1"),
        ("integer", "٣"),
        ("boolean", "maybe"),
        ("duration", "soon"),
        ("duration", "1 fortnight"),
        ("duration", "-1 second"),
        ("addresses", "a"),
        ("addresses", "a:0"),
        ("addresses", "a:65536"),
        ("addresses", "u:p@a:9092"),
        ("addresses", "a:1,,b:2"),
        ("addresses", "a:1,a:1"),
        ("addresses", "SSL://a:1"),
        ("host", "db:5432"),
        ("host", "a b"),
        ("topic", "a,b"),
        ("topic", ".."),
        ("topics", "a b"),
        ("topics", "x" * 250),
        ("topics", "a,"),
        ("table", "a.b.c"),
        ("table", "a."),
        ("table", '"a'),
        ("table", "a; DROP TABLE b"),
        ("position", "yesterday"),
        ("position", "2026-02-30T00:00:00Z"),
        ("position", "2026-01-31T00:00:00"),
        ("position", "1960-01-01T00:00:00Z"),
        ("splits", "t:0"),
        ("splits", "t=5"),
        ("splits", "t:0=-1"),
        ("splits", "t:0=1,t:00=2"),
        ("splits", "t:0=shift 5"),
        ("path", "../other"),
        ("path", "a/../../b"),
        ("path", "/from/the/root"),
        ("path", " "),
        ("pem", "/etc/ssl/ca.pem"),
    ],
)
def test_refused(kind: str, written: str) -> None:
    """What has another form is refused, and the refusal does not repeat the value."""
    with pytest.raises(BadValue) as caught:
        canonical_value(option(kind), written)
    assert len(written.strip()) < 4 or written not in str(caught.value)


def test_repeated_topic_is_named() -> None:
    """A topic that appears twice is refused by name."""
    with pytest.raises(BadValue, match="topic a appears twice"):
        topics_of("a, b ,a")


def test_bounds_of_integers() -> None:
    """A port ends at 65535 and begins at 1."""
    port = find_connector("POSTGRES").connection.find("port")
    assert port is not None
    assert canonical_value(port, "65535") == "65535"
    for text in ("0", "65536"):
        with pytest.raises(BadValue, match="at least 1 and at most 65535"):
            canonical_value(port, text)


def test_path_of_connection_begins_at_the_root() -> None:
    """A connection's directory is absolute, a source's is below it."""
    path = find_connector("FILES").connection.find("PATH")
    assert path is not None
    assert canonical_value(path, "/data/in/") == "/data/in"
    with pytest.raises(BadValue, match="from the root"):
        canonical_value(path, "data/in")


def test_parts() -> None:
    """Values are taken apart for those who use them."""
    assert addresses_of("[::1]:9092,b:1") == (("::1", 9092), ("b", 1))
    assert table_of('S."T t"') == ("s", "T t")
    assert table_of("T") == (None, "t")
    assert milliseconds("2 minutes") == 120_000
    assert start_of("latest") is None
    moment = start_of("2026-01-31T00:00:00Z")
    assert moment is not None
    assert moment.timestamp() == 1769817600


@given(
    st.sampled_from([
        option for name in connector_names() for option in find_connector(name).connection.options
    ]),
    st.text(),
)
def test_canonical_twice_is_canonical_once(declared: Option, text: str) -> None:
    """Whatever text is accepted, its canonical form is accepted and stays as it is."""
    try:
        kept = canonical_value(declared, text)
    except BadValue:
        return
    assert canonical_value(declared, kept) == kept
