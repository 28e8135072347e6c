"""What type checkers see of :mod:`catalog_migrate.errors`: every error by its type."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from catalog_migrate.administration.adoption import (
    AdoptedElsewhere as AdoptedElsewhere,
)
from catalog_migrate.administration.adoption import (
    AdoptionRefused as AdoptionRefused,
)
from catalog_migrate.administration.export import NotSettled as NotSettled
from catalog_migrate.administration.relocation import RelocationRefused as RelocationRefused
from catalog_migrate.administration.survey import (
    CatalogLost as CatalogLost,
)
from catalog_migrate.administration.survey import (
    RebuildRefused as RebuildRefused,
)
from catalog_migrate.api.releases import StaleManifest as StaleManifest
from catalog_migrate.api.status import UnknownObject as UnknownObject
from catalog_migrate.catalog.errors import (
    CatalogCorrupt as CatalogCorrupt,
)
from catalog_migrate.catalog.errors import (
    CatalogExported as CatalogExported,
)
from catalog_migrate.catalog.errors import (
    CatalogMoved as CatalogMoved,
)
from catalog_migrate.catalog.errors import (
    CatalogNotFound as CatalogNotFound,
)
from catalog_migrate.catalog.errors import (
    CheckFailed as CheckFailed,
)
from catalog_migrate.catalog.errors import (
    CommitConflict as CommitConflict,
)
from catalog_migrate.catalog.errors import (
    CommitOutcomeUnknown as CommitOutcomeUnknown,
)
from catalog_migrate.catalog.errors import (
    LeaseExpired as LeaseExpired,
)
from catalog_migrate.catalog.errors import (
    LeaseHeld as LeaseHeld,
)
from catalog_migrate.catalog.errors import (
    LeaseLost as LeaseLost,
)
from catalog_migrate.catalog.errors import (
    NotACatalog as NotACatalog,
)
from catalog_migrate.catalog.errors import (
    UnknownSerial as UnknownSerial,
)
from catalog_migrate.catalog.errors import (
    UnknownSession as UnknownSession,
)
from catalog_migrate.config import InvalidConfiguration as InvalidConfiguration
from catalog_migrate.connections.findings import ConnectionFailed as ConnectionFailed
from catalog_migrate.connections.options import InvalidOptions as InvalidOptions
from catalog_migrate.connections.secrets import UnresolvedSecret as UnresolvedSecret
from catalog_migrate.engine.spark.connect import ServerUnreachable as ServerUnreachable
from catalog_migrate.engine.spark.connect import UnsuitableSession as UnsuitableSession
from catalog_migrate.engine.spark.engine import CatalogUnfit as CatalogUnfit
from catalog_migrate.engine.spark.object_stores.commit_safety import (
    UnsafeCommits as UnsafeCommits,
)
from catalog_migrate.model.graph import DependencyCycle as DependencyCycle
from catalog_migrate.model.names import InvalidName as InvalidName
from catalog_migrate.model.types import UnknownType as UnknownType
from catalog_migrate.planner.planfile import (
    EditedPlan as EditedPlan,
)
from catalog_migrate.planner.planfile import (
    StalePlan as StalePlan,
)
from catalog_migrate.reconciler.execution_context import PrepareFailed as PrepareFailed
from catalog_migrate.reconciler.reconcile import NotReconciled as NotReconciled
from catalog_migrate.replication.sessions import (
    ChangesMissing as ChangesMissing,
)
from catalog_migrate.replication.sessions import (
    OtherServer as OtherServer,
)
from catalog_migrate.replication.sessions import (
    OtherTimeline as OtherTimeline,
)
from catalog_migrate.replication.sessions import (
    PublicationMissing as PublicationMissing,
)
from catalog_migrate.replication.sessions import (
    ReplicationFailed as ReplicationFailed,
)
from catalog_migrate.replication.sessions import (
    ReplicationNotAllowed as ReplicationNotAllowed,
)
from catalog_migrate.replication.sessions import (
    RowsHidden as RowsHidden,
)
from catalog_migrate.replication.sessions import (
    SlotAhead as SlotAhead,
)
from catalog_migrate.replication.sessions import (
    SlotInUse as SlotInUse,
)
from catalog_migrate.replication.sessions import (
    SlotLost as SlotLost,
)
from catalog_migrate.replication.sessions import (
    SlotMissing as SlotMissing,
)
from catalog_migrate.replication.sessions import (
    TableChanged as TableChanged,
)
from catalog_migrate.replication.sessions import (
    UnfitValue as UnfitValue,
)
from catalog_migrate.replication.sessions import (
    UnreadableMessage as UnreadableMessage,
)
from catalog_migrate.sql.cursor import SyntaxProblem as SyntaxProblem
from catalog_migrate.store.object_store import StoreFailure as StoreFailure
from catalog_migrate.streams.errors import (
    AlterFailed as AlterFailed,
)
from catalog_migrate.streams.errors import (
    AlterSetBack as AlterSetBack,
)
from catalog_migrate.streams.errors import (
    AlterUnfinished as AlterUnfinished,
)
from catalog_migrate.streams.errors import (
    BehindSink as BehindSink,
)
from catalog_migrate.streams.errors import (
    CheckpointCorrupt as CheckpointCorrupt,
)
from catalog_migrate.streams.errors import (
    EditConflict as EditConflict,
)
from catalog_migrate.streams.errors import (
    EndpointFailed as EndpointFailed,
)
from catalog_migrate.streams.errors import (
    ForeignCheckpoint as ForeignCheckpoint,
)
from catalog_migrate.streams.errors import (
    InvalidPosition as InvalidPosition,
)
from catalog_migrate.streams.errors import (
    LedgerMismatch as LedgerMismatch,
)
from catalog_migrate.streams.errors import (
    NotFencedOut as NotFencedOut,
)
from catalog_migrate.streams.errors import (
    PositionLost as PositionLost,
)
from catalog_migrate.streams.errors import (
    QueryFenced as QueryFenced,
)
from catalog_migrate.streams.errors import (
    QueryRunning as QueryRunning,
)
from catalog_migrate.streams.errors import (
    RefusedStatement as RefusedStatement,
)
from catalog_migrate.streams.errors import (
    RowRefused as RowRefused,
)
from catalog_migrate.streams.errors import (
    ShardGone as ShardGone,
)
from catalog_migrate.streams.errors import (
    SnapshotNotFound as SnapshotNotFound,
)
from catalog_migrate.streams.errors import (
    SourceDiffers as SourceDiffers,
)
from catalog_migrate.streams.errors import (
    SourceNotCompared as SourceNotCompared,
)
from catalog_migrate.streams.errors import (
    SourcesChanged as SourcesChanged,
)
from catalog_migrate.streams.errors import (
    UnknownItem as UnknownItem,
)
from catalog_migrate.streams.errors import (
    UnsafeBlocked as UnsafeBlocked,
)
from catalog_migrate.streams.errors import (
    UnsafeRefused as UnsafeRefused,
)
from catalog_migrate.streams.errors import (
    UnsettledCheckpoint as UnsettledCheckpoint,
)
from catalog_migrate.streams.errors import (
    UnsupportedCheckpoint as UnsupportedCheckpoint,
)
from catalog_migrate.streams.errors import (
    UpstreamChanged as UpstreamChanged,
)
from catalog_migrate.streams.errors import (
    ValidationFailed as ValidationFailed,
)

class CatalogMigrateError(Exception):
    code: ClassVar[str]
    exit_code: ClassVar[int]
    message: str
    remedy: str | None
    data: dict[str, Any]
    def __init__(self, message: str, *, remedy: str | None = None, **data: Any) -> None: ...

@dataclass(frozen=True, slots=True)
class Problem:
    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    text: str | None = None
    remedy: str | None = None

class WithProblems(CatalogMigrateError):
    problems: tuple[Problem, ...]
    def __init__(
        self, message: str, *, problems: Sequence[Problem] = (), remedy: str | None = None
    ) -> None: ...

class InvalidRelease(WithProblems, ValueError): ...

class UnsupportedFormat(CatalogMigrateError, ValueError): ...
class CatalogWriteRefused(CatalogMigrateError, PermissionError): ...

class Refusal(WithProblems, ValueError): ...

class FencedOut(CatalogMigrateError, RuntimeError): ...

DECISION_CODES: frozenset[str]

class MigrationBlocked(CatalogMigrateError, RuntimeError):
    plan: Any
    def __init__(self, message: str, *, plan: Any = None, remedy: str | None = None) -> None: ...

class EngineFailure(CatalogMigrateError, RuntimeError):
    condition: str | None
    transient: bool
    def __init__(
        self,
        message: str,
        *,
        condition: str | None = None,
        transient: bool = False,
        remedy: str | None = None,
        **data: Any,
    ) -> None: ...

class MetastoreFailure(EngineFailure):
    metastore: str
    def __init__(
        self, message: str, *, metastore: str = ..., condition: str | None = None,
        remedy: str | None = None,
    ) -> None: ...

class UnsupportedTable(EngineFailure): ...

class RowNotConverted(EngineFailure): ...
class PrerequisiteMissing(CatalogMigrateError, RuntimeError): ...
class UsageError(CatalogMigrateError, ValueError): ...

def missing_extra(error: BaseException) -> PrerequisiteMissing | None: ...

LostTrail = PositionLost
CatalogGivenBack = CatalogExported
