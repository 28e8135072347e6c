"""Which messages of Protocol Buffers become which columns."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from catalog_migrate.connectors.registry.protobuf import FILE, MessageReader, UnfitMessage, compiled
from catalog_migrate.model.objects import Column

ORDER = """\
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "inner/line.proto";
message Unused { int32 x = 1; }
enum Kind { NONE = 0; NEW = 1; }
message Order {
  int64 id = 1;
  optional string note = 2;
  Kind kind = 3;
  google.protobuf.Timestamp at = 4;
  repeated shop.Line lines = 5;
  map<string, int32> counts = 6;
  google.protobuf.Int64Value maybe = 7;
  uint64 big = 8;
  bytes raw = 9;
  float ratio = 10;
  message Deep { bool flag = 1; }
  Deep deep = 11;
}
"""
LINE = 'syntax = "proto3";\npackage shop;\nmessage Line { string sku = 1; int32 qty = 2; }\n'
COLUMNS = (
    Column("id", "BIGINT", nullable=False), Column("note", "STRING"), Column("kind", "STRING"),
    Column("at", "TIMESTAMP"), Column("lines", "ARRAY<STRUCT<qty: BIGINT, sku: STRING>>"),
    Column("counts", "MAP<STRING,INT>"), Column("maybe", "BIGINT"), Column("big", "DECIMAL(20,0)"),
    Column("raw", "BINARY"), Column("ratio", "DOUBLE"), Column("deep", "STRUCT<flag: BOOLEAN>"),
    Column("absent", "INT"),
)  # fmt: skip
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def descriptors() -> bytes:
    return compiled(ORDER, {"inner/line.proto": LINE})


def written(reader: MessageReader, path: tuple[int, ...], **fields: Any) -> bytes:
    """A message as Confluent frames it, without the schema's number."""
    head = bytes([0]) if path == (0,) else bytes([len(path) * 2, *(each * 2 for each in path)])
    made, _ = reader.conversions(path)
    message = made(**fields)
    return bytes(head + message.SerializeToString())


def test_values(descriptors: bytes) -> None:
    """Every kind of field comes out; presence decides between NULL and a default."""
    reader = MessageReader(descriptors, COLUMNS)
    body = written(
        reader, (1,), id=7, note="", kind=1, at=MOMENT, lines=[{"sku": "s", "qty": 2}],
        counts={"a": 1}, maybe={"value": 0}, big=2**64 - 1, raw=b"\xff", ratio=0.5,
        deep={"flag": True},
    )
    assert reader.row(body) == {
        "id": 7, "note": "", "kind": "NEW", "at": MOMENT, "lines": [{"qty": 2, "sku": "s"}],
        "counts": [("a", 1)], "maybe": 0, "big": Decimal(2**64 - 1), "raw": b"\xff", "ratio": 0.5,
        "deep": {"flag": True}, "absent": None,
    }
    bare = reader.row(written(reader, (1,)))
    assert (bare["id"], bare["note"], bare["maybe"], bare["at"], bare["lines"]) == (
        0, None, None, None, [],
    )
    assert bare["kind"] == "NONE"


def test_what_is_no_message(descriptors: bytes) -> None:
    """Truncated, of another message of the schema, without or with a wrong path, left over."""
    reader = MessageReader(descriptors, (Column("id", "BIGINT"),))
    body = written(reader, (1,), id=7, note="some text")
    for broken in (body[:-1], b"", b"\x02", b"\x80", b"\x04\x02", b"\x02\x12", b"\x03\x00",
                   b"\x02\x01", body + b"\x07", body + b"\xf8\x3f\x01"):  # fmt: skip
        with pytest.raises(UnfitMessage):
            reader.row(broken)
    with pytest.raises(UnfitMessage, match="fields that its schema has not"):
        reader.row(b"\x00" + body[2:])  # labelled as the first message
    assert reader.row(written(reader, (1,), id=7))["id"] == 7


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("id", "INT"), "its field id is int64, which does not fit INT"),
        (Column("big", "BIGINT"), "its field big is uint64, which does not fit BIGINT"),
        (Column("lines", "STRING"), r"its field lines is repeated, which does not fit STRING"),
        (Column("counts", "STRING"), "its field counts is a map, which does not fit STRING"),
        (Column("lines", "ARRAY<STRUCT<qty: STRING>>"), r"lines\[\].qty is int32"),
        (Column("at", "STRING"), "its field at is google.protobuf.Timestamp"),
        (Column("deep", "STRUCT<other: INT NOT NULL>"), "it may lack deep.other"),
    ],
)
def test_what_does_not_fit(descriptors: bytes, column: Column, message: str) -> None:
    """The field is named, with what it is."""
    with pytest.raises(UnfitMessage, match=message):
        MessageReader(descriptors, (column,)).conversions((1,))


def test_a_moment_between_two_microseconds(descriptors: bytes) -> None:
    """It is cut off, unless values are to be exact: then it is no message of these columns."""
    lenient = MessageReader(descriptors, COLUMNS)
    exact = MessageReader(descriptors, COLUMNS, exact=True)
    whole, between = ({"seconds": 1_767_323_045, "nanos": 678_000_000 + more} for more in (0, 1))
    for reader in (lenient, exact):
        assert reader.row(written(reader, (1,), at=whole))["at"] == MOMENT
    assert lenient.row(written(lenient, (1,), at=between))["at"] == MOMENT
    with pytest.raises(UnfitMessage, match="its at lies between two microseconds"):
        exact.row(written(exact, (1,), at=between))


def test_schemas_that_are_none() -> None:
    """The compiler's complaint is told; a name that leads elsewhere is no import."""
    with pytest.raises(UnfitMessage, match=f"does not compile: {FILE}:1:"):
        compiled("mesage X {}", {})
    with pytest.raises(UnfitMessage, match="no name of a schema"):
        compiled(LINE, {"../x.proto": LINE})
