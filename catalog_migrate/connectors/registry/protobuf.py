"""Protocol Buffers against columns: a schema's text becomes classes, their messages become rows.

Messages are decoded in Python, because Spark's own decoder cannot be had. A message is read by the
very schema that it was written with, so that a field which this one does not know is no newer
field, but a sign that it is no such message.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timezone
from decimal import Decimal as Number
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from catalog_migrate.errors import PrerequisiteMissing
from catalog_migrate.model.names import quote_part
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import Array, Atomic, Decimal, Map, Sized, Struct, Type, parse_type

FILE = "catalog_migrate_schema.proto"
"""The name that a schema's own text gets beside those that it imports."""

_COMPILE = 60.0
_COMPLAINT = re.compile(r"\S+\.proto:")
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset({
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
})
_FITTING: Mapping[str, frozenset[str]] = {
    "BOOLEAN": frozenset({"bool"}),
    "INT": frozenset({"int32"}),
    "BIGINT": frozenset({"int32", "uint32", "int64"}),
    "FLOAT": frozenset({"float"}),
    "DOUBLE": frozenset({"float", "double", "int32", "uint32"}),
    "STRING": frozenset({"string", "enum"}),
    "BINARY": frozenset({"bytes"}),
    "TIMESTAMP": frozenset({_TIMESTAMP}),
}
"""By Spark's type the types of a field, by what they are in memory, that it holds exactly."""

_DIGITS = {"int32": 10, "uint32": 10, "int64": 19, "uint64": 20}
Conversion = Callable[[Any], Any]


class UnfitMessage(ValueError):
    """A schema that is none, or whose messages cannot become rows of the columns; says why."""


def compiled(text: str, references: Mapping[str, str]) -> bytes:
    """The descriptors of a schema and of what it imports, serialised.

    Runs the compiler of grpcio-tools as a process of its own. Raises :class:`UnfitMessage` with
    its complaint, :class:`PrerequisiteMissing` where it is not installed.
    """
    try:
        import grpc_tools  # type: ignore[import-untyped]
    except ImportError:
        raise PrerequisiteMissing(
            "FORMAT PROTOBUF needs grpcio-tools, which is not installed",
            remedy="pip install 'catalog_migrate[registry]' where the cluster runs",
        ) from None
    known = Path(str(grpc_tools.__file__)).with_name("_proto")
    with tempfile.TemporaryDirectory(prefix="catalog-migrate-proto-") as place:
        for name, content in {**references, FILE: text}.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise UnfitMessage(f"it imports {name}, which is no name of a schema")
            path = Path(place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        out = Path(place, "descriptors")
        ended = _compiled(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", f"-I{known}",
             "--include_imports", f"--descriptor_set_out={out}", FILE], place,
        )  # fmt: skip
        if ended.returncode:
            lines = [each for each in ended.stderr.splitlines() if _COMPLAINT.match(each)]
            said = " ".join(lines or ended.stderr.splitlines()[-1:]).replace(f"{place}/", "")[:300]
            raise UnfitMessage(f"its schema does not compile: {said}")
        return out.read_bytes()


def _compiled(command: list[str], place: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=_COMPILE, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnfitMessage(f"its schema did not compile within {_COMPILE:.0f} s") from None


class MessageReader:
    """Messages of one schema as rows of the columns, by name."""

    def __init__(
        self, descriptors: bytes, columns: Sequence[Column], *, exact: bool = False
    ) -> None:
        from google.protobuf import (  # type: ignore[import-untyped]
            descriptor_pb2,
            descriptor_pool,
        )

        self._columns = columns
        self._exact = exact
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            self._pool.AddSerializedFile(file.SerializeToString())
        self._known: dict[tuple[int, ...], tuple[Any, dict[str, Conversion | None]]] = {}

    def row(self, body: bytes) -> dict[str, Any]:
        """What is behind a schema's number: which of its messages it is, and the message.

        Raises :class:`UnfitMessage` for what is no such message, or fits no column.
        """
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

        path, begins = _path(body)
        made, conversions = self.conversions(path)
        try:
            message = made.FromString(body[begins:])
        except (DecodeError, UnicodeDecodeError):
            raise UnfitMessage("it is not one whole message of its schema") from None
        if len(UnknownFieldSet(message)):
            raise UnfitMessage("it holds fields that its schema has not")
        return {
            name: None if convert is None else convert(message)
            for name, convert in conversions.items()
        }

    def conversions(
        self, path: tuple[int, ...] = (0,)
    ) -> tuple[Any, dict[str, Conversion | None]]:
        """The class of a message of the schema and by column how a message gives its value."""
        from google.protobuf import message_factory

        if path not in self._known:
            file = self._pool.FindFileByName(FILE)
            messages = list(file.message_types_by_name.values())
            found = None
            for index in path:
                if index >= len(messages):
                    raise UnfitMessage("it names a message that its schema has not")
                found = messages[index]
                messages = list(found.nested_types)
            fields = {field.name: field for field in found.fields}  # type: ignore[union-attr]
            conversions = {
                column.name: _field(
                    fields[column.name], parse_type(column.type), column.name, exact=self._exact
                )
                if column.name in fields else None
                for column in self._columns
            }
            self._known[path] = message_factory.GetMessageClass(found), conversions
        return self._known[path]


@lru_cache(maxsize=64)
def reader_of(
    descriptors: bytes, columns: tuple[Column, ...], *, exact: bool = False
) -> MessageReader:
    """A reader that a process keeps from batch to batch."""
    return MessageReader(descriptors, columns, exact=exact)


def decoded(
    batches: Iterable[Any], schemas: Mapping[int, bytes], columns: tuple[Column, ...],
    names: tuple[str, str], *, exact: bool = False,
) -> Iterator[Any]:
    """Batches of Arrow with two columns more: the row of a message, and what is wrong.

    Runs where Spark's tasks do. ``schemas`` are descriptors by number; of other records, and of
    those without a number, both are null. ``exact``: a moment between two microseconds is wrong.
    """
    import pyarrow as pa

    row = pa.struct([(column.name, _arrow(parse_type(column.type))) for column in columns])
    for batch in batches:
        rows: list[dict[str, Any] | None] = []
        problems: list[str | None] = []
        for value in batch.column("value").to_pylist():
            found, problem = None, None
            descriptors = None
            if value is not None and len(value) >= 5 and value[0] == 0:
                number = int.from_bytes(value[1:5], "big")
                descriptors = schemas.get(number)
            if descriptors is not None:
                try:
                    found = reader_of(descriptors, columns, exact=exact).row(value[5:])
                except UnfitMessage as error:
                    problem = str(error)
                except ValueError:
                    problem = "a time of it lies outside of the years 1 to 9999"
            rows.append(found)
            problems.append(problem)
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(rows, row), pa.array(problems, pa.string())],
            names=[*batch.schema.names, *names],
        )


def _arrow(tree: Type) -> Any:
    """Arrow's type for a type of Spark; what no field fits is always null."""
    import pyarrow as pa

    if isinstance(tree, Array):
        return pa.list_(_arrow(tree.element))
    if isinstance(tree, Map):
        return pa.map_(_arrow(tree.key), _arrow(tree.value))
    if isinstance(tree, Struct):
        return pa.struct([(field.name, _arrow(field.type)) for field in tree.fields])
    if isinstance(tree, Decimal):
        return pa.decimal128(tree.precision, tree.scale)
    simple = {
        "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(),
        "BIGINT": pa.int64(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "BINARY": pa.binary(),
        "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "TIMESTAMP_NTZ": pa.timestamp("us"),
    }  # fmt: skip
    return simple.get(tree.name if isinstance(tree, Atomic) else "", pa.string())


def _path(body: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of a schema it is, by Confluent's framing, and where it begins."""
    count, at = _number(body, 0)
    if count == 0:
        return (0,), at
    path = []
    if not 0 < count <= len(body):
        raise UnfitMessage("it does not say which message of its schema it is")
    for _ in range(count):
        index, at = _number(body, at)
        if index < 0:
            raise UnfitMessage("it does not say which message of its schema it is")
        path.append(index)
    return tuple(path), at


def _number(body: bytes, at: int) -> tuple[int, int]:
    shift = found = 0
    while at < len(body) and shift < 64:
        byte = body[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
    raise UnfitMessage("it does not say which message of its schema it is")


def _field(field: Any, tree: Type, where: str, *, exact: bool = False) -> Conversion:
    """How a message gives one of its fields."""
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not isinstance(tree, Map):
            raise UnfitMessage(f"its field {where} is a map, which does not fit {tree}")
        key = _value(entry.fields_by_name["key"], tree.key, f"{where}{{}}", exact=exact)
        value = _value(entry.fields_by_name["value"], tree.value, f"{where}{{}}", exact=exact)
        return lambda message: [(key(k), value(v)) for k, v in getattr(message, name).items()]
    if field.is_repeated if hasattr(field, "is_repeated") else field.label == 3:
        if not isinstance(tree, Array):
            raise UnfitMessage(f"its field {where} is repeated, which does not fit {tree}")
        one = _value(field, tree.element, f"{where}[]", exact=exact)
        return lambda message: [one(each) for each in getattr(message, name)]
    one = _value(field, tree, where, exact=exact)
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one(getattr(message, name))


def _value(field: Any, tree: Type, where: str, *, exact: bool = False) -> Conversion:
    """How one value of a field becomes one of a type of Spark."""
    kind = _kind(field)
    if kind in _WRAPPERS:
        inner = _value(field.message_type.fields_by_name["value"], tree, where, exact=exact)
        return lambda value: inner(value.value)
    if field.message_type is not None and isinstance(tree, Struct) and kind != _TIMESTAMP:
        return _struct(field.message_type, tree, where, exact=exact)
    if isinstance(tree, Decimal) and kind in _DIGITS and tree.whole >= _DIGITS[kind]:
        return Number
    target = "STRING" if isinstance(tree, Sized) else tree.name if isinstance(tree, Atomic) else ""
    if (kind if field.enum_type is None else "enum") not in _FITTING.get(target, frozenset()):
        raise UnfitMessage(f"its field {where} is {kind}, which does not fit {tree}")
    if kind == _TIMESTAMP:
        return partial(_moment, where=where, exact=exact)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda value: names.get(value, str(value))
    return {"DOUBLE": float, "BINARY": bytes}.get(target, _same)


def _moment(value: Any, *, where: str, exact: bool) -> Any:
    if exact and value.nanos % 1000:
        raise UnfitMessage(f"its {where} lies between two microseconds, which no TIMESTAMP holds")
    return value.ToDatetime(tzinfo=timezone.utc)


def _struct(message: Any, tree: Struct, where: str, *, exact: bool = False) -> Conversion:
    fields = {field.name: field for field in message.fields}
    parts: dict[str, Conversion | None] = {}
    for field in tree.fields:
        inside = f"{where}.{quote_part(field.name)}"
        found = fields.get(field.name)
        if not field.nullable and (found is None or found.has_presence):
            raise UnfitMessage(f"it may lack {inside}, which is NOT NULL")
        parts[field.name] = None if found is None else _field(
            found, field.type, inside, exact=exact
        )

    def convert(value: Any) -> dict[str, Any]:
        from google.protobuf.unknown_fields import UnknownFieldSet

        if len(UnknownFieldSet(value)):
            raise UnfitMessage("it holds fields that its schema has not")
        return {name: None if one is None else one(value) for name, one in parts.items()}

    return convert


def _kind(field: Any) -> str:
    """What a field is: a word for its numbers and texts, else the name of message or enum."""
    if field.message_type is not None:
        return str(field.message_type.full_name)
    if field.enum_type is not None:
        return str(field.enum_type.full_name)
    return "bytes" if field.type == _BYTES else _CPP[field.cpp_type]


_CPP: Mapping[int, str] = {
    1: "int32", 2: "int64", 3: "uint32", 4: "uint64", 5: "double", 6: "float", 7: "bool",
    9: "string",
}  # fmt: skip


_BYTES = 12


def _same(value: Any) -> Any:
    return value
