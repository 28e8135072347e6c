"""Every error that the product raises: one root, a code, an exit code and a remedy each.

One root, :class:`CatalogMigrateError`; each error also derives from the nearest builtin, so that
``except ValueError`` keeps working for callers who do not know this package. The code (``CM0123``)
never changes its meaning, the exit code of the command line neither.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple


class CatalogMigrateError(Exception):
    """Root of all errors: what happened, where, and what to do next.

    ``message`` says what happened and where, ``remedy`` what to do next; ``data`` holds whatever a
    program would want to read back (names, serials, holders).
    """

    code: ClassVar[str] = "CM0000"
    exit_code: ClassVar[int] = 1
    carries: ClassVar[tuple[str, ...]] = ()
    """Names in ``data`` that are attributes as well; the class has their defaults."""

    listed: ClassVar[str] = ""
    """The one of these, a tuple, that the text lists in lines of the form ``entry``."""

    entry: ClassVar[str] = "  {}"

    def __init__(self, message: str, *, remedy: str | None = None, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.data = data
        for name in (*self.carries, self.listed) if self.listed else self.carries:
            default = getattr(self, name)
            value = data.get(name, default)
            data[name] = tuple(value) if default == () else value
            setattr(self, name, data[name])

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}"]
        if self.remedy:
            lines.append(f"  remedy: {self.remedy}")
        if self.listed:
            lines += [self.entry.format(each) for each in self.data[self.listed]]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(type(self), self.message, remedy=self.remedy, **self.data), ())


class Problem(NamedTuple):
    """One thing wrong with an input: place, stable code, what, and what to write instead; of an
    option of a statement also which one."""

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    text: str | None = None
    remedy: str | None = None
    option: str | None = None

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


def suggest(
    word: str, known: Iterable[str], otherwise: str, *, most: int = 1, cutoff: float = 0.6
) -> str:
    """Return the remedy for a word that is none: the known ones most like it, else ``otherwise``.

    Of a mapping the values are shown.
    """
    from difflib import get_close_matches

    shown = known if isinstance(known, Mapping) else {}
    near = [shown.get(each, each) for each in get_close_matches(word, list(known), most, cutoff)]
    return f"did you mean {' or '.join(near)}?" if near else otherwise


class WithProblems(CatalogMigrateError):
    """Base of errors whose ``problems`` list everything that is wrong, not the first."""

    problems: tuple[Problem, ...] = ()
    listed = "problems"
    entry = "{}"


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

    plan: Any = None
    carries = ("plan",)

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
    """The engine refused a statement; ``condition`` is Spark's error class where there is one,
    ``reason`` its words, without what was attempted."""

    code = "CM0400"

    condition: str | None = None
    transient: bool = False
    reason: str = ""
    carries: ClassVar[tuple[str, ...]] = ("condition", "transient", "reason")


class MetastoreFailure(EngineFailure):
    """A shared metastore does not answer, or refuses to change a name; ``metastore`` is where."""

    code = "CM0404"

    metastore: str = ""
    carries = (*EngineFailure.carries, "metastore")


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


class InvalidArguments(UsageError, TypeError):
    """Arguments that a start does not take; ``data["problems"]`` lists all that is wrong."""

    code = "CM0604"


# -- releases, names and types ---------------------------------------------------------------------


class StaleManifest(CatalogMigrateError, ValueError):
    """``release compile --check``: the manifest is not what the sources say."""

    code = "CM0140"


class DependencyCycle(CatalogMigrateError, ValueError):
    """Objects that use each other in a circle; ``path`` starts and ends with the same name."""

    code = "CM0130"

    path: tuple[str, ...] = ()
    carries = ("path",)


class InvalidName(CatalogMigrateError, ValueError):
    """A text that is not a name, or not a name of the kind wanted."""

    code = "CM0121"


class UnknownType(CatalogMigrateError, ValueError):
    """A column type that is neither a Spark type nor a type of the release."""

    code = "CM0120"


# -- the durable catalog ---------------------------------------------------------------------------


class CatalogNotFound(CatalogMigrateError, FileNotFoundError):
    """No catalog at the address given."""

    code = "CM0200"


class NotACatalog(CatalogMigrateError, ValueError):
    """Something else lies at the catalog's address."""

    code = "CM0201"


class CatalogCorrupt(CatalogMigrateError, RuntimeError):
    """The durable log cannot be read whole, or its records contradict each other."""

    code = "CM0202"


class UnknownObject(CatalogMigrateError, KeyError):
    """A name that nothing in the catalog has."""

    code = "CM0204"


class UnknownSerial(CatalogMigrateError, LookupError):
    """A serial that the catalog never had."""

    code = "CM0205"


class CommitConflict(CatalogMigrateError, RuntimeError):
    """Another writer changed what this commit was computed from (SQLSTATE 40001)."""

    code = "CM0210"
    sqlstate: ClassVar[str] = "40001"

    def __str__(self) -> str:
        head = f"{self.code}: "
        return super().__str__().replace(head, f"{self.code} (SQLSTATE {self.sqlstate}): ", 1)


class CommitOutcomeUnknown(CatalogMigrateError, RuntimeError):
    """A commit neither found in the log nor surely refused."""

    code = "CM0211"


class CheckFailed(CatalogMigrateError, RuntimeError):
    """A commit would break an invariant of the catalog; nothing was written."""

    code = "CM0212"


class LeaseHeld(CatalogMigrateError, RuntimeError):
    """A living process holds the lease; holder, host, process and since when are in ``data``."""

    code = "CM0220"
    exit_code = 5


class LeaseLost(CatalogMigrateError, RuntimeError):
    """The lease was taken over: this process' epoch is older than the catalog's."""

    code = "CM0221"
    exit_code = 5


class LeaseExpired(LeaseLost):
    """The lease was renewed too long ago to act under it; whether another process has it is not
    known. Renewing it decides that: it is taken again, or lost."""


class UnknownSession(CatalogMigrateError, KeyError):
    """A session was named that the catalog has no row of."""

    code = "CM0610"


class StoreFailure(CatalogMigrateError, OSError):
    """An object store that did not answer, or refused; no option of it is in the message."""

    code = "CM0230"


# -- plans and starts ------------------------------------------------------------------------------


class StalePlan(CatalogMigrateError, RuntimeError):
    """The catalog moved on since the plan was made; ``changes`` says so object by object."""

    code = "CM0310"
    exit_code = 4

    changes: tuple[str, ...] = ()
    listed = "changes"


class EditedPlan(CatalogMigrateError, ValueError):
    """A plan file whose contents do not match its hash."""

    code = "CM0311"


class PrepareFailed(CatalogMigrateError, RuntimeError):
    """Building the new state failed; the old release stays in force."""

    code = "CM0320"


class NotReconciled(CatalogMigrateError, RuntimeError):
    """Committed, but the world does not match yet; run again. ``failures`` names each step."""

    code = "CM0410"
    exit_code = 6

    failures: tuple[Any, ...] = ()
    carries = ("failures",)


# -- sessions of Spark -----------------------------------------------------------------------------


class UnsuitableSession(CatalogMigrateError, ValueError):
    """A Spark session that lacks what the product needs (Delta, its catalog, its own JVM)."""

    code = "CM0401"


class CatalogUnfit(UnsuitableSession):
    """A catalog that cannot have our names; ``probe`` is what was tried on it."""

    code = "CM0405"

    probe: Any = None
    carries = ("probe",)


class ServerUnreachable(CatalogMigrateError, ConnectionError):
    """A Spark Connect server that does not answer, or refuses the caller."""

    code = "CM0403"


class UnsafeCommits(CatalogMigrateError, RuntimeError):
    """A session whose commits write over those of other processes."""

    code = "CM0402"


# -- the command line ------------------------------------------------------------------------------


class InvalidConfiguration(WithProblems, ValueError):
    """Configuration with unknown keys or values."""

    code = "CM0600"
    exit_code = 78


class OutputFailed(CatalogMigrateError, OSError):
    """The result could not be written where ``--out`` says, or printed on stdout."""

    code = "CM0602"


# -- administration --------------------------------------------------------------------------------


class AdoptionRefused(Refusal):
    """Tables that cannot be taken over where they lie."""

    code = "CM0810"


class AdoptedElsewhere(AdoptionRefused):
    """A table belongs to another installation."""

    code = "CM0817"


class NotSettled(CatalogMigrateError, RuntimeError):
    """Something is unfinished that must be finished first; ``pending`` lists it."""

    code = "CM0803"

    pending: tuple[str, ...] = ()
    listed = "pending"


class RelocationRefused(Refusal):
    """The shards are not where the catalog is to look for them."""

    code = "CM0820"


class RebuildRefused(Refusal):
    """What is left of an installation leaves a question that only people can answer."""

    code = "CM0830"


class CatalogLost(CatalogMigrateError, RuntimeError):
    """There is no catalog, but there are shards of the one that was at this very address."""

    code = "CM0804"


class CatalogMoved(CatalogMigrateError, RuntimeError):
    """The catalog is not where it is at home: it was moved, or it is a copy of another."""

    code = "CM0801"


class CatalogExported(CatalogMigrateError, RuntimeError):
    """The catalog's tables were exported as plain registrations; it is not used any more."""

    code = "CM0802"


# -- connections -----------------------------------------------------------------------------------


class InvalidOptions(WithProblems, ValueError):
    """Options that a connection, source or sink cannot have.

    No message holds the value of an option that may be a secret.
    """

    code = "CM0710"
    exit_code = 3


class ConnectorMissing(InvalidOptions):
    """A connector that no installed package has; what uses it is kept as it is."""

    code = "CM0722"

    connector: str = ""
    carries = ("connector",)


class UnresolvedSecret(CatalogMigrateError, LookupError):
    """A secret's reference that leads to no value in this process; ``reference`` says which."""

    code = "CM0720"

    reference: str = ""
    carries = ("reference",)


class ConnectionFailed(CatalogMigrateError, RuntimeError):
    """A server that could not be asked, or said no; ``findings`` holds what each probe saw."""

    code = "CM0721"
    exit_code = 6

    findings: tuple[Any, ...] = ()
    carries = ("findings",)


# -- statements on streams, and the runtime --------------------------------------------------------


class SyntaxProblem(CatalogMigrateError, ValueError):
    """A text that is no statement of the language, with the place and what could stand there.

    ``line`` and ``column`` count from 1; ``source_line`` is that line with what is in quotes
    masked (it may be a password) and ``caret`` the mark to print under it. ``expected`` lists what
    could stand there, ``found`` says what does, ``nearest`` is the keyword that was likely meant.
    """

    code = "CM0700"
    exit_code = 64

    line: int = 0
    column: int = 0
    source_line: str = ""
    caret: str = ""
    expected: tuple[str, ...] = ()
    found: str = ""
    nearest: str | None = None
    carries = ("line", "column", "source_line", "caret", "expected", "found", "nearest")

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}\n    {self.source_line}\n    {self.caret}"
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text


class UnknownItem(CatalogMigrateError, KeyError):
    """A statement names an object that is not there, or one of another kind."""

    code = "CM0750"


class RefusedStatement(CatalogMigrateError, ValueError):
    """A statement that is well written and cannot be carried out on this catalog."""

    code = "CM0751"


class UpstreamChanged(CatalogMigrateError, RuntimeError):
    """The cluster or topic that positions belong to is not the one that is there now."""

    code = "CM0752"


class ValidationFailed(CatalogMigrateError, ValueError):
    """Connection or dependents do not work with the new options; nothing was committed."""

    code = "CM0753"

    findings: tuple[Any, ...] = ()
    listed = "findings"


class AlterRolledBack(CatalogMigrateError, RuntimeError):
    """The queries did not become healthy on the new definition; the old one is back and works."""

    code = "CM0754"


class AlterFailed(CatalogMigrateError, RuntimeError):
    """Neither the new nor the old definition works now; the old one is committed."""

    code = "CM0755"
    exit_code = 6


class AlterUnfinished(CatalogMigrateError, RuntimeError):
    """An ALTER without an end that is known to be good: its new definition is in force and not all
    queries were healthy on it, or no process carries it on until the next runtime starts."""

    code = "CM0758"
    exit_code = 6


class PositionLost(CatalogMigrateError, RuntimeError):
    """A sink stands in a shard from which no committed shard leads on."""

    code = "CM0756"


class NotFencedOut(CatalogMigrateError, RuntimeError):
    """A query is held: an earlier runtime, not proven dead, cannot be kept out of its destination.

    It is tried again until it works; no other query waits for it.
    """

    code = "CM0757"


class LedgerMismatch(CatalogMigrateError, RuntimeError):
    """A server's ledger and a sink's checkpoint disagree: another database, or a lagging one."""

    code = "CM0745"


class QueryFenced(CatalogMigrateError, RuntimeError):
    """Another runtime took a query over and keeps this one from writing."""

    code = "CM0746"
    exit_code = 5


class RowRefused(CatalogMigrateError, ValueError):
    """The destination of a sink does not take a row; ``table`` or ``topic``, and where they are
    known ``column``, ``key`` (a hash), and the row's own ``partition`` and ``offset``."""

    code = "CM0747"


class ShardGone(CatalogMigrateError, FileNotFoundError):
    """The directory of a table that rows were written to is not there any more."""

    code = "CM0805"


class EndpointFailed(CatalogMigrateError, OSError):
    """The address at which a runtime is to answer over HTTP cannot be bound."""

    code = "CM0603"


# -- unsafe operations -----------------------------------------------------------------------------


class UnsafeRefused(CatalogMigrateError, PermissionError):
    """An unsafe operation is not allowed, or something that it needs was not said: all of it."""

    code = "CM0760"
    exit_code = 3

    missing: tuple[str, ...] = ()
    listed = "missing"
    entry = "  missing: {}"


class UnsafeBlocked(CatalogMigrateError, ValueError):
    """An unsafe operation whose targets or properties do not fit what is there; nothing changed."""

    code = "CM0761"
    exit_code = 3

    problems: tuple[str, ...] = ()
    listed = "problems"


class SourceDiffers(CatalogMigrateError, RuntimeError):
    """A mirror is not what its tables are upstream; ``differences`` has a line for each table."""

    code = "CM0788"
    exit_code = 8

    differences: tuple[str, ...] = ()
    listed = "differences"


class SourceNotCompared(CatalogMigrateError, RuntimeError):
    """Whether a mirror is what its tables are upstream could not be told, or not of all rows."""

    code = "CM0789"


# -- checkpoints -----------------------------------------------------------------------------------


class CheckpointCorrupt(CatalogMigrateError, ValueError):
    """A file of a streaming checkpoint that Spark did not write so; ``file`` and ``found``."""

    code = "CM0730"

    file: str = ""
    found: str = ""
    carries = ("file", "found")


class UnsupportedCheckpoint(CatalogMigrateError, ValueError):
    """A checkpoint log of a version that this tool does not know; nothing was changed."""

    code = "CM0731"


class ForeignCheckpoint(CatalogMigrateError, ValueError):
    """A checkpoint directory that belongs to another item, or to an unknown one."""

    code = "CM0732"


class UnsettledCheckpoint(CatalogMigrateError, RuntimeError):
    """A checkpoint with an uncommitted entry, or broken; it must be settled before an edit."""

    code = "CM0734"


class InvalidPosition(CatalogMigrateError, ValueError):
    """A stream position that is malformed, no number, or outside what the source holds."""

    code = "CM0735"


class EditConflict(CatalogMigrateError, RuntimeError):
    """A checkpoint holds neither the lines before a committed edit nor those after it, or another
    process has written a file of it since that was read; nothing was written over it."""

    code = "CM0736"


class BehindSink(CatalogMigrateError, RuntimeError):
    """A checkpoint's newest batch is, or would be, below what a sink has: rows would be lost."""

    code = "CM0737"


class SnapshotNotFound(CatalogMigrateError, LookupError):
    """No snapshot of a checkpoint has this number."""

    code = "CM0738"


class SourcesChanged(CatalogMigrateError, ValueError):
    """A query's sources are others, or in another order, than those of its checkpoint."""

    code = "CM0739"


# -- sources on PostgreSQL -------------------------------------------------------------------------


class ReplicationFailed(CatalogMigrateError, RuntimeError):
    """The server would not give its changes, for a reason that has no class of its own."""

    code = "CM0770"
    exit_code = 6


class PublicationMissing(ReplicationFailed, LookupError):
    """There is no publication of that name in the database."""

    code = "CM0771"


class ReplicationNotAllowed(ReplicationFailed, PermissionError):
    """The role may not read changes: it lacks REPLICATION."""

    code = "CM0772"


class SlotInUse(ReplicationFailed):
    """Another process reads from the slot."""

    code = "CM0773"


class SlotLost(ReplicationFailed):
    """The server threw away the log that the slot needs (``max_slot_wal_keep_size``)."""

    code = "CM0774"


class SlotMissing(ReplicationFailed, LookupError):
    """There is no slot of that name: it was dropped, or a promotion did not bring it along."""

    code = "CM0775"


class SlotAhead(ReplicationFailed):
    """The slot was advanced past the position to read from: what lies between is not to be had."""

    code = "CM0776"


class OtherServer(ReplicationFailed):
    """The position belongs to a server with another system identifier."""

    code = "CM0777"


class OtherTimeline(ReplicationFailed):
    """The server was promoted or restored before the position: its log went another way there."""

    code = "CM0778"


class TableChanged(ReplicationFailed):
    """A table upstream has other columns than expected.

    ``old`` and ``new`` are :class:`~catalog_migrate.connectors.postgres.types.Column` values.
    """

    code = "CM0779"

    table: str = ""
    old: tuple[Any, ...] = ()
    new: tuple[Any, ...] = ()
    carries = ("table", "old", "new")


class UnreadableMessage(ReplicationFailed, ValueError):
    """A message of pgoutput that cannot be decoded, or one of a protocol that is not asked for."""

    code = "CM0780"


class ChangesMissing(ReplicationFailed):
    """What a source depends on was altered upstream, so that changes may be missing."""

    code = "CM0781"


class RowsHidden(ReplicationFailed, PermissionError):
    """Row level security would leave the role some of the rows of a table only."""

    code = "CM0782"


class UnfitValue(ReplicationFailed, ValueError):
    """A value upstream that our table cannot have as it is: it does not fit the column, is no text,
    or was never sent. ``table``, and where they are known ``column``, ``lsn`` and ``key``, a hash.
    """

    code = "CM0783"


_RENAMED = {"LostTrail": PositionLost, "CatalogGivenBack": CatalogExported}
"""Old names of public exceptions; each is the same class."""

if not TYPE_CHECKING:  # for a checker there is no module attribute that is not written here

    def __getattr__(name: str) -> type[CatalogMigrateError]:
        if name not in _RENAMED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        new = _RENAMED[name]
        warnings.warn(
            f"errors.{name} is now errors.{new.__name__}", DeprecationWarning, stacklevel=2
        )
        return new
