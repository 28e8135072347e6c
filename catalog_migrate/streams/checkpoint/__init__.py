"""Everything that touches a Spark Structured Streaming checkpoint goes through this package.

Pure Python on the files of a :class:`~catalog_migrate.store.Store`, a directory or an object store:
Spark is never imported, delta-rs only where a Delta table is asked. Read in this order: ``files``
(writes that survive a crash, and the mark that says whose a checkpoint is), ``directory`` (what it
holds and how it stands), ``codecs`` (positions of each source type), ``targets`` (the forms in
which people write one), ``edit`` (the rule for changing it, an uncommitted entry), ``snapshots``,
``delta_tables`` (what a Delta table knows about a query; a new query id, the old one fenced),
``guards`` (what must hold before a start).

Rules that hold everywhere: only while the query is stopped; batch ids are never added or used
again; a file is replaced as a whole, where it is still the one that was read, and at every moment
Spark could read it.
"""

from catalog_migrate.streams.checkpoint.directory import Checkpoint, OffsetEntry, State
from catalog_migrate.streams.checkpoint.edit import Edit, OffsetEdit
from catalog_migrate.streams.checkpoint.snapshots import Snapshot, Snapshots

__all__ = ["Checkpoint", "Edit", "OffsetEdit", "OffsetEntry", "Snapshot", "Snapshots", "State"]
