"""The form of a table (its protocol and metadata), empty tables made in one, and its properties."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from catalog_migrate.delta.commits import encode, read_actions
from catalog_migrate.delta.log import LOG, checksum_name, commit_name
from catalog_migrate.delta.table import open_table, shard_version
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.store import store_at

if TYPE_CHECKING:
    from deltalake import DeltaTable

_APPEND_ONLY_ATTEMPTS = 20
"""Races for the next version that are lost before a table counts as too busy."""

ELSEWHERE = frozenset({"clustering", "domainMetadata"})
"""Writer features whose state is in actions of their own, of which a form says nothing."""
IN_EVERY_COMMIT = frozenset({"inCommitTimestamp"})
"""Writer features that ask something of each commit, which ours and delta-rs' do not give."""


_EMPTY: dict[str, Any] = {
    "tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1, "setTransactions": [],
    "domainMetadata": [], "allFiles": [],
}
_CARRIED = frozenset({"commitInfo", "metaData", "protocol"})
_IN_COMMIT_TIMESTAMP = "delta.enableInCommitTimestamps"


@dataclass(frozen=True)
class Form:
    """Two actions of the Delta protocol, *Protocol Evolution* and *Change Metadata*, as JSON.

    Equal forms are the same table but for its data: lists of features are sorted, and so are the
    keys of the schema, which delta-rs writes in any order. ``identity`` (id, name, time of
    creation) stays the table's own whatever form it takes.
    """

    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def configuration(self) -> Mapping[str, str]:
        """Properties and CHECK constraints."""
        found: Mapping[str, str] = self.metadata["configuration"]
        return found

    @property
    def features(self) -> frozenset[str]:
        """Writer features by name; none where the protocol is by version alone."""
        return frozenset(self.protocol.get("writerFeatures", ()))

    def with_features(self, features: frozenset[str]) -> Form:
        """This form with these writer features, where its protocol names any."""
        if features == self.features:
            return self
        return replace(self, protocol={**self.protocol, "writerFeatures": sorted(features)})

    def with_configuration(self, configuration: Mapping[str, str]) -> Form:
        """This form with these properties and CHECK constraints."""
        return replace(self, metadata={**self.metadata, "configuration": dict(configuration)})

    def actions(self, standing: Form | None = None) -> list[dict[str, Any]]:
        """The actions that give a table this form: all for a new one, else what is missing of it.

        ``standing`` is what the table is now, and keeps its identity.
        """
        identity = self.identity if standing is None else standing.identity
        found: list[dict[str, Any]] = []
        if standing is None or standing.protocol != self.protocol:
            found.append({"protocol": dict(self.protocol)})
        if standing is None or standing.metadata != self.metadata:
            found.append({"metaData": {**identity, **self.metadata}})
        return found


def form_of(table: DeltaTable) -> Form:
    """The form of an open table at its version."""
    protocol, metadata = table.protocol(), table.metadata()
    versions: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    if protocol.min_reader_version >= 3:
        versions["readerFeatures"] = sorted(protocol.reader_features or ())
    if protocol.min_writer_version >= 7:
        versions["writerFeatures"] = sorted(protocol.writer_features or ())
    described: dict[str, Any] = {
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(
            json.loads(table.schema().to_json()), sort_keys=True, separators=(",", ":")
        ),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
    }
    if metadata.description:
        described["description"] = metadata.description
    identity = {"id": str(metadata.id), "name": metadata.name, "createdTime": metadata.created_time}
    known = {name: value for name, value in identity.items() if value is not None}
    return Form(versions, described, known)


def create_empty(path: str, form: Form) -> None:
    """Make an empty table of a form, unless one is there, with an identity of its own.

    Its log is one commit with the form's own actions, which no API of either library writes.
    """
    own = replace(form, identity={"id": str(uuid.uuid4()), "createdTime": int(time.time() * 1000)})
    table = store_at(path)
    table.make_folder(LOG, above=True)
    table.put_if_absent(commit_name(0), encode(own.actions()), durable=False)
    write_checksum(path, 0)


def create_shadow_table(path: str, form: Form) -> None:
    """Make an empty table that takes and refuses the statements which the one of ``form`` does.

    Raises EngineFailure for a form that says not all of the table it is of.
    """
    beyond = (ELSEWHERE | IN_EVERY_COMMIT) & form.features
    if beyond:
        raise EngineFailure(
            f"a table with {', '.join(sorted(beyond))} has no shadow table to try statements on",
            condition="NO_SHADOW_TABLE",
        )
    with failing(f"create the shadow table {path}"):
        create_empty(path, form)


def make_append_only(path: str) -> bool:
    """Refuse UPDATE, DELETE and MERGE in a shard from now on; whether that is new. No Spark.

    Appends under way go on: what they race for is only the next version.
    """
    from deltalake.exceptions import CommitFailedError

    for attempt in range(_APPEND_ONLY_ATTEMPTS):
        table = open_table(path)
        if table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
            return False
        with failing(f"make {path} append-only"):
            try:
                table.alter.set_table_properties(
                    {"delta.appendOnly": "true"}, raise_if_not_exists=False
                )
            except CommitFailedError:
                if attempt == _APPEND_ONLY_ATTEMPTS - 1:
                    raise
                continue
        return True
    return False


def set_properties_after(path: str, properties: dict[str, str], *, follows: int) -> int | None:
    """Set properties at exactly version ``follows + 1``; None when another writer took it."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    table = open_table(path, version=follows)
    if shard_version(path) != follows:
        return None
    with failing(f"mark {path}"):
        try:
            table.alter.set_table_properties(
                properties, raise_if_not_exists=False,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            if shard_version(path) == follows:
                raise  # no race: the table has a feature that cannot be written
            return None
    if table.version() != follows + 1:
        return None
    return follows + 1


# -- version checksums -----------------------------------------------------------------------------

# Files beside commits (Delta protocol, *Version Checksum File*). Spark writes one with each commit
# and reads it instead of replaying the log; delta-rs writes none, so that the first touch of a
# shard that it created costs Spark three to seven jobs. A new table's is known, and a commit that
# touches no data file carries the one of the version before it over. They are for tables that
# nobody else knows of yet: readers believe a checksum, also beside a commit that a Spark has since
# written over.


def write_checksum(path: str, version: int) -> bool:
    """Write the checksum of a version whose commit changes metadata or protocol alone.

    Returns whether one was written: not where the version before has none, where the commit does
    anything else, and where Spark has written its own. It is never needed, only fast.
    """
    checksum = _checksum(path, version)
    if checksum is None:
        return False
    data = json.dumps(checksum, separators=(",", ":")) + "\n"
    try:
        return store_at(path).put_if_absent(
            checksum_name(version), data.encode(), durable=False
        )
    except OSError:
        return False  # the log is whole without it


def _checksum(path: str, version: int) -> dict[str, Any] | None:
    """The checksum of a version, None where it does not follow from the one before it."""
    try:
        if version == 0:
            checksum = dict(_EMPTY)
        else:
            checksum = json.loads(store_at(path).read(checksum_name(version - 1)))
        actions = read_actions(path, version)
    except (OSError, ValueError, EngineFailure):
        return None
    checksum.pop("txnId", None)
    for action in actions:
        if not action.keys() <= _CARRIED:
            return None
        if "metaData" in action:
            checksum["metadata"] = action["metaData"]
        if "protocol" in action:
            checksum["protocol"] = action["protocol"]
    metadata = checksum.get("metadata")
    if metadata is None or "protocol" not in checksum:
        return None
    configuration: dict[str, str] = metadata.get("configuration") or {}
    # then every commit and every checksum carries a time of its own
    return None if configuration.get(_IN_COMMIT_TIMESTAMP, "").lower() == "true" else checksum
