"""The form of a table (its protocol and metadata), and empty tables that are made in one."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from catalog_migrate.delta.log import (
    LOG,
    checksum_name,
    commit_name,
    encode,
    versions_of,
    write_checksum,
)
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.store import store_at

if TYPE_CHECKING:
    from catalog_migrate.delta.table import TableView

ELSEWHERE = frozenset({"clustering", "domainMetadata"})
"""Writer features whose state is in actions of their own, of which a form says nothing."""
IN_EVERY_COMMIT = frozenset({"inCommitTimestamp"})
"""Writer features that ask something of each commit, which ours and delta-rs' do not give."""


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


def form_of(table: TableView) -> Form:
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


def publish(here: str, address: str) -> bool:
    """Put the log of a table without rows, made on this machine, where none is; whether it was.

    Commit by commit, each with its checksum: as if it had been made there, by a tenth of the
    requests that delta-rs makes of it.
    """
    made, there = store_at(here), store_at(address)
    for version in sorted(versions_of(made.names(LOG))[0]):
        if not there.put_if_absent(commit_name(version), made.read(commit_name(version))):
            return False
        if made.exists(checksum_name(version)):
            there.put_if_absent(checksum_name(version), made.read(checksum_name(version)))
    return True


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
