"""The root of every error, the errors that several packages raise, and where the others stand.

One root, :class:`CatalogMigrateError`; each error also derives from the nearest builtin, so that
``except ValueError`` keeps working for callers who do not know this package. The code (``CM0123``)
never changes its meaning, the exit code of the command line neither.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class CatalogMigrateError(Exception):
    """Root of all errors: what happened, where, and what to do next.

    ``message`` says what happened and where, ``remedy`` what to do next; ``data`` holds whatever a
    program would want to read back (names, serials, holders).
    """

    code: ClassVar[str] = "CM0000"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str | None = None, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.data = data

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.remedy, self.data))


def _rebuild(
    kind: type[CatalogMigrateError], message: str, remedy: str | None, data: dict[str, Any]
) -> CatalogMigrateError:
    """Unpickle an error whose data are keyword arguments."""
    error = kind.__new__(kind)
    CatalogMigrateError.__init__(error, message, remedy=remedy, **data)
    for name, value in data.items():
        if not hasattr(error, name):
            setattr(error, name, value)
    return error


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: place, stable code, what, and what to write instead."""

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    text: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
            if self.column is not None:
                place += f":{self.column}"
        head = f"{place}: {self.code} {self.message}" if place else f"{self.code} {self.message}"
        if self.text:
            head += f"\n    {self.text}"
        if self.remedy:
            head += f"\n    remedy: {self.remedy}"
        return head


class WithProblems(CatalogMigrateError):
    """Base of errors whose ``problems`` list everything that is wrong, not the first."""

    def __init__(
        self, message: str, *, problems: Sequence[Problem] = (), remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, problems=tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(str(problem) for problem in self.problems)])


class InvalidRelease(WithProblems, ValueError):
    """A release that cannot be used."""

    code = "CM0100"


class UnsupportedFormat(CatalogMigrateError, ValueError):
    """A file or catalog of a format version newer than this tool knows."""

    code = "CM0110"


class CatalogWriteRefused(CatalogMigrateError, PermissionError):
    """The store refused a write (permissions, read-only mode, full disk)."""

    code = "CM0203"


class Refusal(WithProblems, ValueError):
    """Something that is asked for as a whole and cannot be."""

    code = "CM0809"
    exit_code = 3


class FencedOut(CatalogMigrateError, RuntimeError):
    """The release asked for was replaced by a later one."""

    code = "CM0222"
    exit_code = 5


DECISION_CODES = frozenset({
    "CM0301", "CM0302", "CM0303", "CM0304", "CM0305", "CM0309", "CM0334", "CM0338", "CM0341",
    "CM0342",
})
"""Reasons of a blocked plan that a word in the release or an approval cures; every other one needs
another target, another release or another state of the world (a taken name, a view that does not
bind or has no text, values that are gone)."""


class MigrationBlocked(CatalogMigrateError, RuntimeError):
    """The plan needs decisions; ``plan`` carries all of them. Nothing was touched."""

    code = "CM0300"
    exit_code = 3

    def __init__(self, message: str, *, plan: Any = None, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy, plan=plan)
        self.plan = plan

    def __str__(self) -> str:
        entries = self.plan.blocked if self.plan is not None else ()
        lines = [super().__str__()]
        # first: a rename that is said answers the decisions on both names, and loses nothing
        for question in self.plan.questions[:20] if entries else ():
            new = f"{question.name}.{question.column}" if question.column else question.name
            lines.append(f"  is {new} the former {question.old_name}? write: {question.remedy}")
        for entry in entries[:20]:
            where = f"{entry.name}.{entry.column}" if entry.column else entry.name
            cure = "write" if entry.code in DECISION_CODES else "remedy"
            lines += [f"  {where}: {entry.reason} [{entry.code}]", f"    {cure}: {entry.remedy}"]
        if len(entries) > 20:
            lines.append(f"  … and {len(entries) - 20} more (catalog-migrate plan lists all)")
        return "\n".join(lines)


class EngineFailure(CatalogMigrateError, RuntimeError):
    """The engine refused a statement; ``condition`` is Spark's error class where there is one."""

    code = "CM0400"

    def __init__(
        self, message: str, *, condition: str | None = None, transient: bool = False,
        remedy: str | None = None, **data: Any,
    ) -> None:
        super().__init__(
            message, remedy=remedy, condition=condition, transient=transient, **data
        )
        self.condition = condition
        self.transient = transient


class MetastoreFailure(EngineFailure):
    """A shared metastore does not answer, or refuses to change a name; ``metastore`` is where."""

    code = "CM0404"

    def __init__(
        self, message: str, *, metastore: str, condition: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, condition=condition, remedy=remedy)
        self.metastore = metastore


class UnsupportedTable(EngineFailure):
    """A table with a Delta feature under which nothing may be written to it by path."""

    code = "CM0406"


class RowNotConverted(EngineFailure):
    """A copy met a row on which a column's expression fails, or gives NULL where none may be."""


class PrerequisiteMissing(CatalogMigrateError, RuntimeError):
    """Java, a jar or a package that the product needs is absent, wrong or could not be fetched."""

    code = "CM0500"


_EXTRAS = {
    "pyspark": "spark", "delta": "spark", "pandas": "spark", "pyarrow": "spark", "py4j": "spark",
    "confluent_kafka": "streams", "psycopg": "streams", "grpc_tools": "registry",
    "google": "registry",
    "asyncssh": "tunnel", "opentelemetry": "telemetry", "obstore": "s3", "grpc": "connect",
}
"""Package to the extra of ours that installs it."""


def missing_extra(error: BaseException) -> PrerequisiteMissing | None:
    """The error for a package of an optional feature that is not installed; None for others."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return None
    return PrerequisiteMissing(
        f"the package {package} is not installed in this Python environment",
        remedy=f"pip install 'catalog_migrate[{extra}]'", package=package,
    )


class UsageError(CatalogMigrateError, ValueError):
    """A call with arguments that do not go together."""

    code = "CM0601"
    exit_code = 64


_DEFINED_IN = {
    "administration.adoption": ("AdoptedElsewhere", "AdoptionRefused"),
    "administration.export": ("NotSettled",),
    "administration.relocation": ("RelocationRefused",),
    "administration.survey": ("CatalogLost", "RebuildRefused"),
    "api.releases": ("StaleManifest",),
    "api.status": ("UnknownObject",),
    "catalog.errors": (
        "CatalogCorrupt", "CatalogExported", "CatalogMoved", "CatalogNotFound", "CheckFailed",
        "CommitConflict", "CommitOutcomeUnknown", "LeaseExpired", "LeaseHeld", "LeaseLost",
        "NotACatalog", "UnknownSerial", "UnknownSession",
    ),
    "config": ("InvalidConfiguration",),
    "connections.findings": ("ConnectionFailed",),
    "connections.options": ("InvalidOptions",),
    "connections.secrets": ("UnresolvedSecret",),
    "engine.spark.object_stores.commit_safety": ("UnsafeCommits",),
    "engine.spark.connect": ("ServerUnreachable", "UnsuitableSession"),
    "engine.spark.engine": ("CatalogUnfit",),
    "model.graph": ("DependencyCycle",),
    "model.names": ("InvalidName",),
    "model.types": ("UnknownType",),
    "planner.planfile": ("EditedPlan", "StalePlan"),
    "reconciler.execution_context": ("PrepareFailed",),
    "reconciler.reconcile": ("NotReconciled",),
    "replication.sessions": (
        "ChangesMissing", "OtherServer", "OtherTimeline", "PublicationMissing",
        "ReplicationFailed", "ReplicationNotAllowed", "RowsHidden", "SlotAhead", "SlotInUse",
        "SlotLost", "SlotMissing", "TableChanged", "UnfitValue", "UnreadableMessage",
    ),
    "sql.cursor": ("SyntaxProblem",),
    "store.object_store": ("StoreFailure",),
    "streams.errors": (
        "AlterFailed", "AlterSetBack", "AlterUnfinished", "BehindSink", "CheckpointCorrupt",
        "EditConflict", "EndpointFailed", "ForeignCheckpoint", "InvalidPosition", "LedgerMismatch",
        "NotFencedOut", "PositionLost", "QueryFenced", "QueryRunning", "RefusedStatement",
        "RowRefused", "ShardGone", "SnapshotNotFound", "SourceDiffers", "SourceNotCompared",
        "SourcesChanged", "UnknownItem", "UnsafeBlocked", "UnsafeRefused", "UnsettledCheckpoint",
        "UnsupportedCheckpoint", "UpstreamChanged", "ValidationFailed",
    ),
}
"""Errors that stand beside what raises them, by module; all of them are found here too."""

_RENAMED = {"LostTrail": "PositionLost", "CatalogGivenBack": "CatalogExported"}
"""Old names of public exceptions; each is the same class."""


def __getattr__(name: str) -> type[CatalogMigrateError]:
    if name in _RENAMED:
        warnings.warn(
            f"errors.{name} is now errors.{_RENAMED[name]}", DeprecationWarning, stacklevel=2
        )
        name = _RENAMED[name]
    for module, names in _DEFINED_IN.items():
        if name in names:
            found: type[CatalogMigrateError] = getattr(
                importlib.import_module(f"catalog_migrate.{module}"), name
            )
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _DEFINED_IN.values() for name in names)})
