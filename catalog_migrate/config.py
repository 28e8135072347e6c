"""Configuration: one table of keys, four layers (default, file, environment, flag), origins kept.

The file is ``catalog_migrate.toml``, or ``[tool.catalog-migrate]`` of ``pyproject.toml``, of the
nearest directory upwards that has one. Relative paths in a file are taken from its directory,
those in the environment and on the command line from where the process stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from catalog_migrate.errors import InvalidConfiguration, Problem, suggest
from catalog_migrate.policy import RULE_KEYS, Rule, read_rules
from catalog_migrate.store.address import Storage
from catalog_migrate.store.local import read_file

FILE_NAME = "catalog_migrate.toml"
ENV_PREFIX = "CATALOG_MIGRATE__"
_PYPROJECT_TABLE = "catalog-migrate"

ValueType = Literal["text", "path", "uri", "integer", "seconds", "choice"]


class Key(msgspec.Struct, frozen=True):
    """One documented key; ``default`` None means "not set"."""

    section: str
    name: str
    type: ValueType
    default: str | int | float | None
    about: str
    flag: str | None = None
    choices: tuple[str, ...] = ()
    minimum: int = 0
    variable: str | None = None

    @property
    def path(self) -> str:
        """``section.name``, as errors and ``config show`` write it."""
        return f"{self.section}.{self.name}"

    @property
    def env(self) -> str:
        """The environment variable that sets it."""
        return self.variable or f"{ENV_PREFIX}{self.section.upper()}__{self.name.upper()}"


KEYS: tuple[Key, ...] = (
    Key("catalog", "uri", "uri", None,
        "Directory of the durable catalog, or its address on an object store (`s3://…`, `gs://…`,"
        " `az://…`): its log is the Delta table `log` in it.", "--catalog"),
    Key("catalog", "warehouse", "uri", None,
        "Directory the tables' rows are kept in, or their address on an object store (`s3://…`,"
        " `s3a://…`). Written into the catalog when it is created; needed only then.",
        "--warehouse"),
    Key("release", "path", "path", None,
        "The release to put in force: a directory of `*.sql` files or a manifest `.json`.",
        "--release"),
    Key("release", "name", "text", None,
        "Name of a release that is a directory; a manifest carries its own."),
    Key("release", "default_schema", "text", None,
        "Schema of names that are written without one."),
    Key("bootstrap", "timeout", "seconds", 600.0,
        "Seconds to wait for another process that migrates.", "--timeout"),
    Key("spark", "warehouse_dir", "path", None,
        "`spark.sql.warehouse.dir` of the local session that the command line starts."),
    Key("spark", "metastore", "path", None,
        "Directory of an embedded Derby metastore that keeps names between sessions; not set:"
        " names live in the session."),
    Key("spark", "catalog", "text", None,
        "The catalog of the session that has the names, when it is not the session's current one"
        " (`spark.sql.catalog.NAME` among the settings of Spark defines it)."),
    Key("spark", "remote", "text", None,
        "Address of a Spark Connect server (`sc://host:port`), whose session is used instead of a"
        " local one; `catalog-migrate run` needs a local one."),
    Key("spark", "threads", "integer", 4,
        "Statements that the command line sends to Spark at once.", minimum=1),
    Key("storage", "require_safe_commits", "choice", "true",
        "Whether a start refuses a session whose commits to an object store can write over those"
        " of another process; `false` says so and goes on.",
        choices=("true", "false")),
    Key("storage", "safe_log_stores", "text", None,
        "Classes of LogStores, with commas between them, whose commits to an object store are taken"
        " for safe without a race that shows it."),
    Key("storage", "untried_stores", "text", None,
        "Schemes of object stores that may have rows although they were not tried, with commas"
        " between them: `gs`, `abfss`."),
    Key("streams", "drain", "seconds", 30.0,
        "Seconds that a batch may take to end when its query is stopped."),
    Key("streams", "limit", "seconds", 60.0,
        "Seconds that queries have to become healthy after an ALTER, before it is rolled back."),
    Key("streams", "lease_ttl", "seconds", 30.0,
        "Seconds without a heartbeat after which a runtime that may be alive is taken over;"
        " the same for all runtimes of a cluster."),
    Key("streams", "lease_margin", "seconds", 10.0,
        "Seconds before the end of `streams.lease_ttl` at which a runtime that could not renew its"
        " lease stops, and that its successor waits."),
    Key("streams", "starts_at_once", "integer", None,
        "Sources and sinks that a runtime starts at once, each until its first progress; the others"
        " wait for their turn. Not set: two for each core of the runtime's machine.", minimum=1),
    Key("streams", "enable_unsafe_ops", "choice", "false",
        "Whether a runtime started with it carries out unsafe operations on its sources and sinks:"
        " they can double, skip and lose records.",
        choices=("false", "true")),
    Key("streams", "upstream_columns", "choice", "evolve",
        "What becomes of a column that is added to a table that a source on PostgreSQL reads, where"
        " the source's own UPSTREAM COLUMNS says nothing.",
        choices=("evolve", "hold", "ignore")),
    Key("streams", "lag_records", "integer", None,
        "Records that a source or sink may be behind (of a sink: rows of its table); with more,"
        " `status --streams` and `status --detailed-exitcode` end with 7. Not set: no limit."),
    Key("streams", "lag_bytes", "integer", None,
        "The same for the bytes of the server's log that a source on PostgreSQL has not read."),
    Key("streams", "lag_seconds", "seconds", None,
        "The same for the age of the oldest change that a source on PostgreSQL has not read."),
    Key("streams", "show_values", "choice", "false",
        "Whether errors of sources and sinks, and stderr, may quote the values of rows, for a"
        " search for a fault.", choices=("false", "true")),
    Key("streams", "hold_after", "integer", 8,
        "Failures of the same cause in a row after which a source or sink is held: RESUME starts it"
        " again. A connection that is down is tried on.", minimum=1),
    Key("users", "schemas", "text", None,
        "Schemas, with commas between them, whose views and functions are looked at for those of"
        " users that read a release's objects. Not set: every schema of the session's catalog."),
    Key("users", "exclude", "text", None,
        "Schemas (`scratch_*`) and objects (`team.old_*`), with commas between them, that are not"
        " looked at; `*` is any text and `?` any character, upper and lower case alike."),
    Key("users", "threads", "integer", 4,
        "Statements about users' views and functions that are sent to Spark at once.", minimum=1),
    Key("users", "repair", "choice", "false",
        "Whether a start writes the text again of users' views and functions that only need to be"
        " bound again, or in which a column or table is to be called as the release renames it.",
        choices=("false", "true")),
    Key("output", "color", "choice", "auto",
        "Colours in reports: `auto` is on a terminal without `NO_COLOR`.",
        choices=("auto", "always", "never")),
    Key("output", "log_format", "choice", "text",
        "Lines on stderr (progress, notes, errors): sentences, or a JSON object each.",
        "--log-format", choices=("text", "json")),
    Key("output", "width", "integer", 100,
        "Columns of a text report.", minimum=40),
)
"""Every key that has one value."""

POLICY = "policy"
POLICY_VARIABLE = f"{ENV_PREFIX}POLICY"

LISTED: tuple[Key, ...] = tuple(
    Key(f"[{POLICY}]", name, "text", "*" if name == "name" else None, about,
        variable=POLICY_VARIABLE)
    for name, about in RULE_KEYS.items()
)
"""Keys of the entries of lists. The variable holds the whole list, as TOML writes it in a line."""

STORAGE = "storage_options"
SPARK_CONF = "spark_conf"
REDACTED = (
    r"(?i)secret|password|token|access[.]?key|account[.]key|encryption[.]key|private[. ]?key"
    r"|credential$|[.]sas([.]|$)|jaas|keystore"
)
"""Settings and options that Spark shows as ``***``, by their names or values.

Its own default knows neither a login of Kafka, nor a key in PEM, nor the options of a streaming
relation in EXPLAIN.
"""

SPARK_CONF_VARIABLE = f"{ENV_PREFIX}{SPARK_CONF.upper()}"
"""The variable has a setting a line, as ``spark.master=local[2]``."""
_REFERENCE = re.compile(r"[a-z][a-z0-9+.-]*:.")
_LOGIN = re.compile(r"(?i)\b(?:password|pwd|secret)=|//[^/@:\s]+:[^/@\s]+@")
"""A login in an address, whatever the setting is called."""

NAMED: tuple[Key, ...] = (
    Key(STORAGE, "*", "text", None,
        "Any option of the catalog's object store, as delta-rs calls it (`aws_endpoint_url`,"
        " `aws_secret_access_key`, …): handed through, shown nowhere. delta-rs reads the store's"
        " own variables (`AWS_…`, `AZURE_…`, `GOOGLE_…`) too.",
        variable=f"{ENV_PREFIX}{STORAGE.upper()}__*"),
    Key(SPARK_CONF, "*", "text", None,
        "Any setting of the command line's own Spark session, as Spark calls it (`spark.master`,"
        " `spark.jars`, `spark.hadoop.hive.metastore.uris`, …). One that is a secret is a reference"
        " (`env:NAME`, `file:/path`).", "--conf",
        variable=SPARK_CONF_VARIABLE),
)
"""Sections whose keys are somebody else's."""

DOCUMENTED = (*KEYS, *LISTED, *NAMED)
"""The one table that documents every key; ``docs/configuration.md`` is generated from it."""

_BY_PATH = {key.path: key for key in KEYS}


class Setting(msgspec.Struct, frozen=True):
    """A value and where it came from: ``default``, ``flag --x``, a variable, or a file."""

    value: str | int | float | None
    origin: str


class Settings(msgspec.Struct, frozen=True):
    """The effective configuration: every key of :data:`KEYS` has a :class:`Setting`."""

    settings: Mapping[str, Setting]
    file: Path | None = None
    policy: tuple[Rule, ...] = ()
    policy_origin: str = "default"
    storage: Storage = msgspec.field(default_factory=Storage)
    storage_origins: Mapping[str, str] = msgspec.field(default_factory=dict)
    spark_conf: Mapping[str, Setting] = msgspec.field(default_factory=dict)

    def text(self, path: str) -> str | None:
        """Return the value of a text, path, uri or choice key; None when not set."""
        value = self.settings[path].value
        return None if value is None else str(value)

    def split_list(self, path: str) -> tuple[str, ...]:
        """Return the pieces of a text key between commas."""
        pieces = (self.text(path) or "").split(",")
        return tuple(piece.strip() for piece in pieces if piece.strip())

    @property
    def untried_stores(self) -> tuple[str, ...]:
        """Schemes of stores that were not tried and may have rows all the same."""
        return tuple((self.text("storage.untried_stores") or "").replace(",", " ").split())

    def number(self, path: str) -> float | None:
        """Return the value of an integer or seconds key; None when not set."""
        value = self.settings[path].value
        return None if value is None else float(value)


def load(
    start: Path | None = None, env: Mapping[str, str] | None = None,
    flags: Mapping[str, str | int | float | None] | None = None, file: Path | None = None,
) -> Settings:
    """Read the configuration that holds in directory ``start`` (default: the current one).

    ``flags`` maps key paths (``catalog.uri``) to what the command line gave (None: not given);
    ``file`` names a configuration file instead of searching for one. Raises InvalidConfiguration
    with every unknown key and unfit value at once.
    """
    directory = (start or Path.cwd()).absolute()
    found = file.absolute() if file is not None else _find(directory)
    loading = _Loading()
    for given in chain(
        () if found is None else _in_file(found, loading.problems),
        _in_variables(os.environ if env is None else env, directory),
        _in_flags(flags or {}, directory),
    ):
        loading.put(given)
    problems = [*loading.problems, *_no_time_left(loading.settings)]
    if problems:
        raise InvalidConfiguration(
            f"the configuration has {len(problems)} problem{'s' if len(problems) > 1 else ''}",
            problems=problems, remedy="docs/configuration.md lists every key",
        )
    return Settings(
        loading.settings, found, loading.policy, loading.policy_origin, Storage(loading.storage),
        loading.storage_origins, loading.spark_conf,
    )


class _Given(NamedTuple):
    """What a layer says of a key; relative paths begin at ``base``."""

    path: str
    raw: Any
    origin: str
    base: Path
    file: str | None = None
    variable: str | None = None

    @property
    def name(self) -> str:
        return self.variable or self.path


def _in_file(file: Path, problems: list[Problem]) -> Iterator[_Given]:
    for path, raw in _read(file, problems):
        yield _Given(path, raw, str(file), file.parent, file=str(file))


def _in_variables(env: Mapping[str, str], directory: Path) -> Iterator[_Given]:
    for variable, raw in sorted(env.items()):
        if variable == POLICY_VARIABLE:
            yield _Given(POLICY, _in_a_line(raw), variable, directory, file=variable)
        elif variable == SPARK_CONF_VARIABLE:
            for setting in filter(str.strip, raw.splitlines()):
                name, equals, value = setting.strip().partition("=")
                yield _Given(
                    f"{SPARK_CONF}.{name}", value if equals else None, variable, directory,
                    variable=variable,
                )
        elif variable.startswith(ENV_PREFIX):
            path = variable[len(ENV_PREFIX):].lower().replace("__", ".", 1)
            yield _Given(path, raw, variable, directory, variable=variable)


def _in_flags(
    flags: Mapping[str, str | int | float | None], directory: Path
) -> Iterator[_Given]:
    for path, raw in flags.items():
        if raw is None:
            continue
        flag = _BY_PATH[path].flag if path in _BY_PATH else None
        if path.startswith(f"{SPARK_CONF}."):
            flag = "--conf"
        yield _Given(path, raw, f"flag {flag or path}", directory)


class _Loading:
    """The configuration while its layers are put in, each over those before it."""

    def __init__(self) -> None:
        self.settings = {key.path: Setting(key.default, "default") for key in KEYS}
        self.problems: list[Problem] = []
        self.policy: tuple[Rule, ...] = ()
        self.policy_origin = "default"
        self.storage: dict[str, str] = {}
        self.storage_origins: dict[str, str] = {}
        self.spark_conf: dict[str, Setting] = {}

    def put(self, given: _Given) -> None:
        section, _, name = given.path.partition(".")
        if given.path == POLICY and given.variable is None:
            self.policy_origin = given.origin
            self.policy, wrong = read_rules(given.raw, origin=given.origin, file=given.file)
            self.problems += wrong
        elif section == SPARK_CONF and isinstance(given.raw, dict):  # a.b = 1 is a table for TOML
            for key, value in given.raw.items():
                self.put(given._replace(path=f"{given.path}.{key}", raw=value))
        elif section in (STORAGE, SPARK_CONF) and name:
            self._put_option(section, name, given)
        else:
            self._put_key(given)

    def _put_option(self, section: str, name: str, given: _Given) -> None:
        text = _option(given.raw)
        if text is None:
            self.problems.append(_unfit_option(given.name, given.file))
        elif section == STORAGE:
            self.storage[name], self.storage_origins[name] = text, given.origin
        elif re.search(REDACTED, name) and not _REFERENCE.match(text):
            self.problems.append(_plain_secret(given.path, given.file))
        elif _LOGIN.search(text):
            self.problems.append(_login(given.path, given.file))
        else:
            self.spark_conf[name] = Setting(text, given.origin)

    def _put_key(self, given: _Given) -> None:
        key = _BY_PATH.get(given.path)
        if key is None:
            self.problems.append(
                _unknown(given.path, file=given.file, variable=given.variable)
            )
            return
        value = _fit(key, given.raw, given.base)
        if value is not None:
            self.settings[given.path] = Setting(value, given.origin)
            return
        wanted = _describe_value(key)
        self.problems.append(Problem(
            "CM0600", f"{given.name} is {given.raw!r}, which is not {wanted}", file=given.file,
            remedy=f"write {wanted}",
        ))


def _no_time_left(settings: Mapping[str, Setting]) -> list[Problem]:
    """A lease whose margin is as long as itself: its runtime would stop as soon as it started."""
    ttl, margin = settings["streams.lease_ttl"], settings["streams.lease_margin"]
    if float(margin.value or 0) < float(ttl.value or 0):
        return []
    return [
        Problem(
            "CM0600",
            f"streams.lease_margin is {margin.value} ({margin.origin}), which is not below"
            f" streams.lease_ttl, {ttl.value} ({ttl.origin})",
            remedy="make the margin shorter, or the time longer",
        )
    ]


def _find(directory: Path) -> Path | None:
    """The nearest configuration file upwards; the toml file stands above pyproject.toml."""
    for folder in (directory, *directory.parents):
        own = folder / FILE_NAME
        if os.path.lexists(own):  # what is there and no file is told when it is read
            return own
        project = folder / "pyproject.toml"
        if os.path.isfile(project) and _mentions_us(project):  # False where it may not look
            return project
    return None


def _mentions_us(project: Path) -> bool:
    """Whether a pyproject.toml may hold our table: spares parsing those of others."""
    try:
        return _PYPROJECT_TABLE.encode() in project.read_bytes()
    except OSError as error:
        raise InvalidConfiguration(
            f"{project} cannot be read: {error.strerror}", remedy="give read permission"
        ) from error


def _read(file: Path, problems: list[Problem]) -> list[tuple[str, Any]]:
    """The (path, raw value) pairs of a configuration file; what is not a section is a problem."""
    document = _parse(file)
    if file.name == "pyproject.toml":
        tool = document.get("tool")
        document = tool.get(_PYPROJECT_TABLE, {}) if isinstance(tool, dict) else {}
    pairs: list[tuple[str, Any]] = []
    for section, table in document.items():
        if section == POLICY:
            pairs.append((section, table))
        elif isinstance(table, dict):
            pairs.extend((f"{section}.{name}", value) for name, value in table.items())
        else:
            problems.append(_unknown(section, file=str(file)))
    return pairs


def _toml() -> Any:
    import importlib

    try:
        return importlib.import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.10 has the same parser under its earlier name
        return importlib.import_module("tomli")


def _in_a_line(text: str) -> Any:
    """The value that TOML writes so; None when it is none."""
    try:
        return _toml().loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return None


def _parse(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = _toml().loads(read_file(file).decode("utf-8"))
    except OSError as error:
        raise InvalidConfiguration(
            f"{file} cannot be read: {error.strerror}", remedy="check the path and permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfiguration(
            f"{file} is not TOML: {error}", remedy="correct the file at the place named"
        ) from error
    return document


def _option(raw: Any) -> str | None:
    """An option of the store as text; None for what is none."""
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, (int, float)):
        return str(raw)
    return raw if isinstance(raw, str) and raw else None


def _unfit_option(name: str, file: str | None) -> Problem:
    """The value is not told: it may be half a secret."""
    return Problem(
        "CM0600", f"{name} is not a text or a number", file=file, remedy="write it in quotes"
    )


def _plain_secret(path: str, file: str | None) -> Problem:
    """A secret that is written down; it is not told."""
    return Problem(
        "CM0600", f"{path} is a secret: its value is not written down", file=file,
        remedy="write where it is: env:NAME or file:/path",
    )


def _login(path: str, file: str | None) -> Problem:
    """A login within an address; it is not told."""
    return Problem(
        "CM0600", f"{path} has a password in it, which would be shown", file=file,
        remedy="leave it out, and give it by the setting that is made for it (such as"
        " javax.jdo.option.ConnectionPassword), as env:NAME or file:/path",
    )


def _fit(key: Key, raw: Any, base: Path) -> str | int | float | None:
    """``raw`` as a value of ``key``; None when it does not fit."""
    if key.type in ("integer", "seconds"):
        return _fit_number(key, raw)
    if key.type == "choice" and isinstance(raw, bool):
        raw = str(raw).lower()
    if not isinstance(raw, str) or not raw.strip():
        return None
    if key.type == "choice":
        return raw if raw in key.choices else None
    if key.type == "path" or (key.type == "uri" and "://" not in raw):
        return os.path.normpath(base / os.path.expanduser(raw))
    return raw


def _fit_number(key: Key, raw: Any) -> int | float | None:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        return None
    try:
        number = int(raw) if key.type == "integer" else float(raw)
    except ValueError:
        return None
    whole = key.type == "seconds" or not isinstance(raw, float)
    return number if whole and number >= key.minimum else None


def _describe_value(key: Key) -> str:
    if key.choices:
        return "one of " + ", ".join(key.choices)
    return {
        "integer": f"a whole number of at least {key.minimum}",
        "seconds": "a number of seconds, zero or more",
    }.get(key.type, f"a {key.type} in quotes")


def _unknown(path: str, *, file: str | None = None, variable: str | None = None) -> Problem:
    """An unknown key with the nearest known one."""
    if path in (STORAGE, SPARK_CONF) or any(key.section == path for key in KEYS):
        return Problem(
            "CM0600", f"{variable or path} is a section, not a key", file=file,
            remedy=f"write the keys of {path} below it: docs/configuration.md lists them",
        )
    known = {key.env if variable else key.path: key for key in KEYS}
    sections = {key.section for key in KEYS} | {STORAGE, SPARK_CONF}
    remedy = suggest(
        variable or path, [*known, *sections], "docs/configuration.md lists every key", cutoff=0.5
    )
    return Problem("CM0600", f"{variable or path} is not a key", file=file, remedy=remedy)
