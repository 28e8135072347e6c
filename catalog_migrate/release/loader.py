"""Reading a release: a directory of SQL files or a manifest, into one resolved :class:`Release`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from catalog_migrate.errors import InvalidName, InvalidRelease, Problem, suggest
from catalog_migrate.model.collector import collector_paused
from catalog_migrate.model.names import Identity, parse_reference, quote_part, split_name
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.policy import Policy
from catalog_migrate.release.bundled_streams import canonical_statements
from catalog_migrate.release.digest import hash_of, overriding
from catalog_migrate.release.manifest import (
    UNREADABLE,
    decode_manifest,
    encode_manifest,
)
from catalog_migrate.release.release import Declared, Place, Release, inside
from catalog_migrate.release.validation import BAD_DECISION, NO_CONTRACT, Resolved, resolve
from catalog_migrate.sql.release_dialect import Statement, parse
from catalog_migrate.sql.tokens import LineIndex
from catalog_migrate.store.local import read_file

SETTINGS_FILE = "release.toml"
BAD_SETTINGS = "CM0113"
_SETTINGS = ("name", "default_schema")
_KEYS = (*_SETTINGS, "schema")

FindContracts = Callable[[Release], Mapping[Identity, "Sequence[Column] | str"]]
"""Given a release, the columns of its views without a typed list, or why Spark finds none; views
that read one of the latter are left out."""

_REMEDY = "name a directory of *.sql files or a manifest (*.json)"


def load_release(
    path: str | os.PathLike[str], *, name: str | None = None, default_schema: str | None = None,
    contracts: bool = True, policy: Policy | None = None, find: FindContracts | None = None,
) -> Release:
    """Load a release from a directory of ``*.sql`` (nested at will), one SQL file or a manifest.

    ``name`` and ``default_schema`` stand above what the release itself says. ``contracts=False``
    lets views without a typed column list pass, for ``release compile``; ``find`` is asked for the
    lists that are missing in SQL, once and only then. ``policy`` may allow properties that Delta is
    not known to have. Raises InvalidRelease with every problem found,
    UnsupportedFormat for a manifest of a newer major version.
    """
    source = Path(path)
    try:
        if source.is_dir():
            return _load_directory(source, name, default_schema, contracts, policy, find)
        data = read_file(source)
    except OSError as error:
        place = os.fspath(path)
        at = f"{error.filename}: " if error.filename not in (None, place) else ""
        raise InvalidRelease(
            f"release {place} cannot be read: {at}{error.strerror or error}", remedy=_REMEDY
        ) from error
    if source.suffix.lower() == ".sql":
        text = decoded(data, str(source))
        return load_texts(
            [(str(source), text)], name=name or source.stem, default_schema=default_schema,
            contracts=contracts, policy=policy, find=find,
        )
    return load_manifest(
        data, file=str(source), name=name, default_schema=default_schema, contracts=contracts,
        policy=policy,
    )


@collector_paused()
def load_manifest(
    data: bytes, *, file: str | None = None, name: str | None = None,
    default_schema: str | None = None, contracts: bool = True, policy: Policy | None = None,
) -> Release:
    """Return a release from the bytes of a manifest; see :func:`load_release`."""
    manifest = decode_manifest(data, file=file)
    place = Place(file)
    title = name or manifest.release
    schema = default_schema or manifest.default_schema
    written = [(text, Place(file)) for text in manifest.statements]
    bundled, problems = canonical_statements(written, default_schema=schema)
    declared = [Declared(definition, place, {}, place) for definition in manifest.objects]
    if declared or not bundled:
        resolved = resolve(declared, default_schema=schema, contracts=contracts, policy=policy)
    else:
        resolved = Resolved((), {}, [])
    dropped, contrary = _dropped_tables(
        [(text, place) for text in manifest.dropped], _tables(declared), schema
    )
    _refuse(title, [*resolved.problems, *problems, *contrary], declared)
    hashed = hash_of(data, default_schema=overriding(default_schema, manifest.default_schema))
    return Release(
        title, resolved.objects, hashed, resolved.uses, {}, bundled, tuple(declared), dropped
    )


def load_texts(
    texts: Iterable[tuple[str, str]], *, name: str, default_schema: str | None = None,
    contracts: bool = True, own: bool = False, schemas: Mapping[str, tuple[str, ...]] = {},
    policy: Policy | None = None, find: FindContracts | None = None,
) -> Release:
    """Return a release from (file name, SQL text) pairs; see :func:`load_release`.

    ``own``: these are our own views, for which a schema is reserved. ``schemas`` are earlier names
    of schemas, by folded name.
    """
    declared: list[Declared] = []
    problems: list[Problem] = []
    written: list[tuple[str, Place]] = []
    gone: list[tuple[str, Place]] = []
    unread: list[Identity] = []
    for file, text in texts:
        parsed = parse(text, file=file, default_schema=default_schema)
        declared.extend(_declared(statement, file, schemas) for statement in parsed.statements)
        problems.extend(parsed.problems)
        unread += parsed.unread
        written += [(each, Place(file, line, column)) for each, line, column in parsed.others]
        gone += [(str(each), Place(file, line, column)) for each, line, column in parsed.dropped]
    problems.extend(_renamed_in_vain(schemas, declared))
    bundled, more = canonical_statements(written, default_schema=default_schema)
    problems.extend(more)
    dropped, contrary = _dropped_tables(gone, _tables(declared), default_schema)
    problems.extend(contrary)
    resolved = Resolved((), {}, problems)
    if declared or not (problems or bundled):
        lacking = find is not None and any(
            each.definition.kind == "view" and not each.definition.columns for each in declared
        )
        resolved = resolve(
            declared, default_schema=default_schema, contracts=contracts and not lacking, own=own,
            policy=policy, unread=unread,
        )
        problems.extend(resolved.problems)
        if find is not None and lacking and not problems:
            bare = Release(name, resolved.objects, "", resolved.uses, {}, written=tuple(declared))
            declared = _with_contracts(declared, find(bare), problems)
            if not problems:
                resolved = resolve(
                    declared, default_schema=default_schema, own=own, policy=policy
                )
                problems.extend(resolved.problems)
    _refuse(name, problems, declared)
    objects = resolved.objects
    return Release(
        name, objects,
        hash_of(
            encode_manifest(name, objects, statements=bundled, dropped=dropped, pretty=False)
        ),
        resolved.uses, {entry.definition.identity: entry.place for entry in declared}, bundled,
        tuple(declared), dropped,
    )


def _renamed_in_vain(
    schemas: Mapping[str, tuple[str, ...]], declared: Sequence[Declared]
) -> Iterator[Problem]:
    """A problem for each schema that has earlier names and no object."""
    nowhere = set(schemas).difference(entry.definition.schema.lower() for entry in declared)
    for schema in sorted(nowhere):
        yield Problem(
            BAD_SETTINGS, f"schema {schema} is renamed, and the release has nothing in it",
            file=SETTINGS_FILE, text=f"schema.{schema}",
            remedy="name the schema that the objects have now",
        )


def _load_directory(
    directory: Path, name: str | None, default_schema: str | None, contracts: bool,
    policy: Policy | None, find: FindContracts | None,
) -> Release:
    paths = [
        path for path in directory.rglob("*.sql")
        if not any(part.startswith(".") for part in path.relative_to(directory).parts)
    ]
    if os.path.lexists(directory / SETTINGS_FILE):  # what is no file is told when it is read
        paths.append(directory / SETTINGS_FILE)
    files = SourceFiles(
        {path.relative_to(directory).as_posix(): read_file(path) for path in paths},
        str(directory), directory.resolve().name,
    )
    return load_files(
        files, name=name, default_schema=default_schema, contracts=contracts, policy=policy,
        find=find,
    )


class SourceFiles(NamedTuple):
    """The contents of a release's files, named from its directory ``place``.

    ``title`` is the release's name where nothing else says one, ``spoken`` how messages call a
    file.
    """

    contents: Mapping[str, bytes]
    place: str
    title: str
    spoken: Callable[[str], str] = str


def load_files(
    files: SourceFiles, *, name: str | None = None, default_schema: str | None = None,
    contracts: bool = True, policy: Policy | None = None, find: FindContracts | None = None,
) -> Release:
    """Make a release of its ``*.sql`` files and its ``release.toml``; see :func:`load_release`."""
    contents, spoken = files.contents, files.spoken
    written = contents.get(SETTINGS_FILE)
    settings = _NOTHING if written is None else _settings(written, spoken(SETTINGS_FILE))
    texts = [
        (spoken(path), decoded(contents[path], spoken(path)))
        for path in sorted(contents, key=lambda path: PurePosixPath(path).parts)
        if path != SETTINGS_FILE
    ]
    if not texts:
        raise InvalidRelease(f"release {files.place} holds no *.sql file", remedy=_REMEDY)
    return load_texts(
        texts, name=name or settings.name or files.title,
        default_schema=default_schema or settings.default_schema, contracts=contracts,
        schemas=settings.schemas, policy=policy, find=find,
    )


def _with_contracts(
    declared: Sequence[Declared], found: Mapping[Identity, Sequence[Column] | str],
    problems: list[Problem],
) -> list[Declared]:
    """The objects with the lists that were found; what was not found goes to ``problems``."""
    listed: list[Declared] = []
    for entry in declared:
        columns = found.get(entry.definition.identity, ())
        if isinstance(columns, str):
            problems.append(
                Problem(
                    NO_CONTRACT, f"view {entry.definition.key} has no typed column list, and Spark"
                    f" finds none: {columns}", *entry.place,
                    remedy="correct the query, or write the list",
                )
            )
        elif columns:
            filled = msgspec.structs.replace(entry.definition, columns=tuple(columns))
            entry = entry._replace(definition=filled)
        listed.append(entry)
    return listed


def decoded(data: bytes, file: str) -> str:
    """UTF-8 text, with or without its mark; InvalidRelease with the line that is none."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, _ = LineIndex(data[: error.start].decode("utf-8-sig")).place(error.start)
        raise InvalidRelease(
            f"{file} cannot be read",
            problems=[
                Problem(UNREADABLE, "not UTF-8", file=file, line=line, remedy="save it as UTF-8")
            ],
        ) from error


class _Settings(NamedTuple):
    """The keys of ``release.toml``; ``schemas`` are earlier names of schemas, by folded name."""

    name: str | None = None
    default_schema: str | None = None
    schemas: Mapping[str, tuple[str, ...]] = {}


_NOTHING = _Settings()


def _settings(data: bytes, file: str) -> _Settings:
    """The keys of ``release.toml``."""
    # the standard library has it from 3.11 on, before that the package of the same interface
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        values = toml.loads(decoded(data, file))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidRelease):
            raise
        raise InvalidRelease(
            f"{file} cannot be read", problems=[Problem(BAD_SETTINGS, str(error), file=file)]
        ) from error
    problems: list[Problem] = []
    known: dict[str, str] = {}
    schemas = _earlier_schemas(values.pop("schema", {}), file, problems)
    for key, value in values.items():
        if key not in _SETTINGS:
            remedy = suggest(key, _KEYS, "known keys: " + ", ".join(_KEYS))
            problems.append(
                Problem(BAD_SETTINGS, f"unknown key {key}", file=file, text=key, remedy=remedy)
            )
        elif not isinstance(value, str) or not value:
            problems.append(
                Problem(
                    BAD_SETTINGS, f"{key} is not a text", file=file, text=f"{key} = {value!r}",
                    remedy=f'write {key} = "..."',
                )
            )
        else:
            known[key] = value
    if problems:
        raise InvalidRelease(f"{file} cannot be used", problems=problems)
    return _Settings(known.get("name"), known.get("default_schema"), schemas)


def _earlier_schemas(raw: object, file: str, problems: list[Problem]) -> dict[str, tuple[str, ...]]:
    """``[schema.new]`` with ``renamed_from``: folded new name -> earlier ones, newest first."""
    found: dict[str, tuple[str, ...]] = {}
    for schema, about in raw.items() if isinstance(raw, dict) else [("…", raw)]:
        earlier = about.get("renamed_from") if isinstance(about, dict) else None
        names = [earlier] if isinstance(earlier, str) else earlier
        if not isinstance(about, dict) or set(about) != {"renamed_from"} or not (
            isinstance(names, list) and names
            and all(isinstance(name, str) and name.strip() for name in names)
        ):
            problems.append(
                Problem(
                    BAD_SETTINGS, f"schema {schema} is not told what it was", file=file,
                    text=f"schema.{schema}",
                    remedy=f'write renamed_from = "..." (or a list) below [schema.{schema}]',
                )
            )
        elif schema.lower() in (name.lower() for name in names):
            problems.append(
                Problem(
                    BAD_SETTINGS, f"schema {schema} is renamed from itself", file=file,
                    text=f"schema.{schema}", remedy="leave it out",
                )
            )
        else:
            found[schema.lower()] = tuple(names)
    return found


def _moved(
    definition: ObjectDefinition, schemas: Mapping[str, tuple[str, ...]]
) -> ObjectDefinition:
    """An object of a schema that was renamed, with its names there as earlier ones of its own.

    A name without a schema is looked for in this schema and in the earlier ones.
    """
    earlier = schemas.get(definition.schema.lower())
    if earlier is None:
        return definition
    names: list[str] = []
    for name in definition.earlier_names:
        names.append(name)
        schema, bare = split_name(name)
        if schema is None:
            names += [f"{quote_part(each)}.{quote_part(bare)}" for each in earlier]
    names += [f"{quote_part(each)}.{quote_part(definition.name)}" for each in earlier]
    return msgspec.structs.replace(definition, renamed_from=tuple(dict.fromkeys(names)))


def _dropped_tables(
    names: Iterable[tuple[str, Place]], tables: Mapping[Identity, str], default_schema: str | None
) -> tuple[tuple[str, ...], list[Problem]]:
    """The tables that a release gives up, each once, and everything that is wrong with that.

    ``tables`` are the names of those that it declares.
    """
    found: dict[Identity, str] = {}
    problems: list[Problem] = []
    for name, place in names:
        try:
            identity = parse_reference(name, default_schema)
        except InvalidName as error:
            problems.append(
                Problem(BAD_DECISION, f"DROPPED TABLE: {error.message}", *place, name, error.remedy)
            )
            continue
        if identity[0] != "relation":
            problems.append(
                Problem(
                    BAD_DECISION, f"DROPPED TABLE names {name}, which is no table", *place, name,
                    "leave it out: only tables hold rows",
                )
            )
        elif identity in tables:
            problems.append(
                Problem(
                    BAD_DECISION,
                    f"the release drops table {tables[identity]}, which it also declares", *place,
                    name, "take the CREATE TABLE out, or DROPPED TABLE",
                )
            )
        else:
            found.setdefault(identity, ".".join(map(quote_part, identity[1:])))
    return tuple(sorted(found.values())), problems


def _tables(declared: Iterable[Declared]) -> dict[Identity, str]:
    return {
        entry.definition.identity: str(entry.definition.key)
        for entry in declared if entry.definition.kind == "table"
    }


def _declared(statement: Statement, file: str, schemas: Mapping[str, tuple[str, ...]]) -> Declared:
    return Declared(
        _moved(statement.definition, schemas), Place(file, statement.line, statement.column),
        {name: Place(file, line, column) for name, (line, column) in statement.columns.items()},
        Place(file, *statement.text),
        {key: Place(file, *place) for key, place in statement.properties.items()},
    )


def require_bodies(
    release: Release, only: Collection[Identity] | None = None, *, views: bool = True
) -> list[tuple[str, str, str]]:
    """InvalidRelease with all texts of the objects (``only`` these) that no Spark parses.

    Returns (object, kind, why) of the texts that nobody has parsed. ``views`` False: Spark is to
    read their queries itself.
    """
    kinds = ("table", "view", "function") if views else ("table", "function")
    found = read_bodies(release.written, only, kinds)
    _refuse(release.name, found.problems)
    return found.unparsed


def _refuse(name: str, problems: list[Problem], declared: Sequence[Declared] = ()) -> None:
    """Raise InvalidRelease with all problems in the order of files and lines, if there are any.

    Where there are, those in the texts of ``declared`` are told as well, which else nobody reads
    before it has to be.
    """
    if not problems:
        return
    if declared:
        problems = [*problems, *read_bodies(declared).problems]
    ordered = sorted(
        problems,
        key=lambda problem: (problem.file or "", problem.line or 0, problem.column or 0,
                             problem.code, problem.message),
    )
    count = f"{len(ordered)} problems" if len(ordered) > 1 else "1 problem"
    raise InvalidRelease(f"release {name} has {count}", problems=ordered)


DOES_NOT_PARSE = "CM0119"
_SHOWN = 60


class Bodies(NamedTuple):
    """What came of reading: the texts that no Spark parses, and those that nobody has parsed.

    ``unparsed`` are (object, kind, why), where the grammar at hand has no opinion.
    """

    problems: list[Problem]
    unparsed: list[tuple[str, str, str]]


class _Text(NamedTuple):
    """One text of an object: what it is, what it may be, where it starts or (not exact) belongs."""

    what: str
    text: str
    starts: tuple[str, ...]
    place: Place
    exact: bool = False


def read_bodies(
    declared: Iterable[Declared], only: Collection[Identity] | None = None,
    kinds: Collection[str] = ("table", "view", "function"),
) -> Bodies:
    """Parse every query and expression of the objects (those of ``kinds``, ``only`` these)."""
    from catalog_migrate.sql.grammar import NotUnderstood, refusal

    found = Bodies([], [])
    for entry in declared:
        definition = entry.definition
        if definition.kind not in kinds or (only is not None and definition.identity not in only):
            continue
        for each in _texts(entry):
            try:
                refused = refusal(each.text, *each.starts)
            except NotUnderstood as error:
                found.unparsed.append(
                    (str(definition.key), definition.kind, f"{each.what}: {error}")
                )
                continue
            if refused is None:
                continue
            place = inside(each.place, each.text, refused.offset) if each.exact else each.place
            said = f"`{refused.token}` is not expected" if refused.token else "it ends too early"
            found.problems.append(
                Problem(
                    DOES_NOT_PARSE,
                    f"{each.what} of {definition.key} is no SQL of Spark: {said}", *place,
                    _line(each.text, refused.offset),
                    f"write {refused.meant}" if refused.meant else
                    "correct it there" + (
                        "; where a newer Spark takes it, plan and check with --bind"
                        if definition.kind == "view" else ""
                    ),
                )
            )
    return found


def _texts(entry: Declared) -> Iterator[_Text]:
    definition = entry.definition
    if definition.sql is not None:
        yield _Text("the query", definition.sql, ("query",), entry.text, exact=True)
    if definition.body is not None:
        starts = ("query", "expression")
        yield _Text("the body", definition.body, starts, entry.text, exact=True)
    for argument in definition.arguments:
        if argument.default is not None:
            what = f"DEFAULT of argument {quote_part(argument.name)}"
            yield _Text(what, argument.default, ("expression",), entry.place)
    for column in definition.columns:
        place = entry.columns.get(column.name.lower(), entry.place)
        for word in ("using", "default", "generated"):
            text = getattr(column, word)
            if text is not None:
                what = f"{word.upper()} of column {quote_part(column.name)}"
                yield _Text(what, text, ("expression",), place)
    if definition.filled_from is not None:
        yield _Text("FILLED FROM", definition.filled_from, ("query",), entry.text, exact=True)
    for check in definition.checks:
        what = f"CHECK {quote_part(check.name)}"
        yield _Text(what, check.expression, ("expression",), entry.place)


def _line(text: str, offset: int) -> str:
    """The line of ``offset``, the part around it where it is long."""
    start, end = LineIndex(text).span(offset)
    line, at = text[start:end], offset - start
    if len(line) <= _SHOWN:
        return line.strip()
    first = max(0, at - _SHOWN // 2)
    return ("…" if first else "") + line[first : first + _SHOWN].strip() + (
        "…" if first + _SHOWN < len(line) else ""
    )
