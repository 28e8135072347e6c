"""The log in memory: for simulations and tests, with every place where a process can die."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from catalog_migrate.catalog.history import Entry, entries
from catalog_migrate.catalog.log import LogRow
from catalog_migrate.catalog.state import State, sum_rows
from catalog_migrate.delta.log import Commit
from catalog_migrate.errors import CatalogNotFound, CommitConflict, CommitOutcomeUnknown
from catalog_migrate.store.address import Storage


class InFlight(Exception):
    """Raised by a hook at ``append``: the caller hears nothing certain of its commit.

    The commit stays under way; :meth:`MemoryLog.land` lets it arrive, if its version is then still
    free, as a store may do with a request whose sender has given up.
    """


class MemoryLog:
    """A :class:`~catalog_migrate.catalog.log.CatalogLog` of this process alone.

    ``on_call`` hears ``<method>`` before and ``<method>.done`` after every call that reads or
    writes, and may raise there. An :class:`OSError` raised at ``append.done`` is a commit that
    landed while its reply was lost: the log finds it by its id, as the contract wants. Anything
    else that is raised goes to the caller, like the death of its process. Several users of one
    log, each with its own hook, are made by :meth:`attach`. ``about`` says, while a hook is told
    of a commit, what kind of commit it is.
    """

    def __init__(
        self, uri: str = "memory", *, on_call: Callable[[str], None] | None = None
    ) -> None:
        self._uri = uri
        self.on_call = on_call
        self.about = ""
        self._store = _Store()

    def attach(self, on_call: Callable[[str], None] | None = None) -> MemoryLog:
        """Another user's view of the same log, with a hook of its own."""
        other = MemoryLog(self._uri, on_call=on_call)
        other._store = self._store
        return other

    def copy_from(self, other: MemoryLog) -> None:
        """Hold what another log holds now, for this view and those attached to it."""
        held, theirs = self._store, other._store
        with theirs.lock:
            held.commits[:] = theirs.commits
            held.rows[:] = theirs.rows
            held.ends[:] = theirs.ends
            held.audit[:] = theirs.audit
            held.beats.update(theirs.beats)
            held.compacted = theirs.compacted
            held.kept = theirs.kept

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def home(self) -> str | None:
        """Memory cannot be copied behind our back."""
        return None

    @property
    def storage(self) -> Storage:
        """None are needed."""
        return Storage()

    def exists(self) -> bool:
        return bool(self._store.commits)

    def create(self, rows: Sequence[LogRow], *, commit_id: str) -> int:
        return self._write("create", rows, -1, commit_id, {"kind": "create"})

    def version(self) -> int:
        with self._store.lock:
            return self._newest()

    def read(self) -> State:
        self._announce("read")
        with self._store.lock:
            self._newest()
            state = self._store.read()
        self._announce("read.done")
        return state

    @property
    def state(self) -> State | None:
        """The newest state, for those who look on: no hook hears of it. None before the first."""
        if not self._store.commits:
            return None
        with self._store.lock:
            return self._store.read()

    @property
    def rows(self) -> Sequence[LogRow]:
        """Every row that was ever written, in order."""
        return self._store.rows

    @property
    def history(self) -> Sequence[tuple[str, Mapping[str, str]]]:
        """Commit id and metadata of every version, in order; it grows with the log."""
        return self._store.commits

    def replay(self) -> State:
        """Return the newest state summed from the very first row, with nothing remembered of it.

        What a check reads by, so that it does not rest on what :meth:`read` carries forward.
        """
        with self._store.lock:
            return State.from_rows(self._newest(), sum_rows(self._store.rows))

    def read_at(self, version: int) -> State:
        with self._store.lock:
            rows = self._store.rows[: self._store.ends[version]]
        return State.from_rows(version, sum_rows(rows))

    def commits(self, *, upto: int | None = None) -> Iterator[Commit]:
        with self._store.lock:
            held = list(self._store.commits[: None if upto is None else upto + 1])
        return iter([
            Commit(version, f"{self._uri}@{version}", commit_id, None, metadata)
            for version, (commit_id, metadata) in enumerate(held)
        ][::-1])

    def keep_audit(self) -> int:
        self._announce("audit")
        with self._store.lock:
            done = len(self._store.audit)
        fresh = list(entries(self, down_to=done))[::-1]
        with self._store.lock:
            if len(self._store.audit) == done:
                self._store.audit.extend(fresh)
        self._announce("audit.done")
        return len(fresh)

    @property
    def audit(self) -> Sequence[Entry]:
        """What stands in the audit table, oldest first."""
        return tuple(self._store.audit)

    def append(
        self, rows: Sequence[LogRow], *, follows: int, commit_id: str,
        metadata: Mapping[str, str], state: State | None = None,
    ) -> int:
        return self._write("append", rows, follows, commit_id, metadata, state)

    def find_commit(self, commit_id: str, *, after: int) -> int | None:
        with self._store.lock:
            ids = [entry[0] for entry in self._store.commits]
        versions = range(max(after + 1, 0), len(ids))
        return next((version for version in versions if ids[version] == commit_id), None)

    def live_files(self) -> int:
        """Commits since the last compaction, as a read of files would see them."""
        with self._store.lock:
            return len(self._store.commits) - self._store.compacted

    def compact(self, *, follows: int, commit_id: str) -> int:
        """Return a version that changes nothing."""
        version = self._write("compact", (), follows, commit_id, {"kind": "compact"})
        with self._store.lock:
            self._store.compacted = version
        return version

    def renew(self, key: str, beat: str) -> None:
        self._announce("renew")
        self._store.beats[key] = beat
        self._announce("renew.done")

    def heartbeat(self, key: str) -> str | None:
        return self._store.beats.get(key)

    def keep_state(self) -> None:
        """Nothing: what is in memory is read as it is."""

    @property
    def longest_pause(self) -> float:
        """See :meth:`CatalogLog.longest_pause`."""
        return 0.01

    def wait(self, seconds: float) -> None:
        """Let others go first: a hook decides who, without one time passes."""
        if self.on_call is None:
            time.sleep(seconds)
        else:
            self.on_call("wait")

    def land(self) -> int:
        """Let commits arrive that are under way; how many found their version still free."""
        landed = 0
        with self._store.lock:
            for follows, rows, commit_id, metadata, state in self._store.in_flight:
                if len(self._store.commits) == follows + 1:
                    self._store.add(rows, commit_id, metadata, state)
                    landed += 1
            self._store.in_flight.clear()
        return landed

    def _announce(self, call: str) -> None:
        if self.on_call is not None:
            self.on_call(call)

    def _newest(self) -> int:
        if not self._store.commits:
            raise CatalogNotFound(
                f"there is no catalog at {self._uri}", remedy="create it: catalog-migrate init"
            )
        return len(self._store.commits) - 1

    def _write(
        self, method: str, rows: Sequence[LogRow], follows: int, commit_id: str,
        metadata: Mapping[str, str], state: State | None = None,
    ) -> int:
        self.about = metadata.get("kind", method)
        try:
            self._announce(method)
        except InFlight:
            self._store.in_flight.append((follows, rows, commit_id, metadata, state))
            raise CommitOutcomeUnknown(
                f"a commit to {self._uri} got no answer and is not in the log",
                remedy="run again: what was meant is computed afresh", commit_id=commit_id,
            ) from None
        with self._store.lock:
            if len(self._store.commits) != follows + 1:
                raise CommitConflict(
                    f"version {follows + 1} of {self._uri} exists already",
                    remedy="read again and decide again", version=follows + 1,
                )
            self._store.add(rows, commit_id, metadata, state)
        try:
            self._announce(f"{method}.done")
        except OSError:
            found = self.find_commit(commit_id, after=follows)
            if found is None:
                raise
        return follows + 1


class _Store:
    """What all users of one log share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.commits: list[tuple[str, dict[str, str]]] = []
        self.beats: dict[str, str] = {}
        self.compacted = 0
        self.rows: list[LogRow] = []
        self.ends: list[int] = []
        self.audit: list[Entry] = []
        self.in_flight: list[
            tuple[int, Sequence[LogRow], str, Mapping[str, str], State | None]
        ] = []
        self.kept: State | None = None

    def add(
        self, rows: Sequence[LogRow], commit_id: str, metadata: Mapping[str, str],
        state: State | None,
    ) -> None:
        """Append one commit; ``state`` is what came of it, where its writer knows."""
        self.commits.append((commit_id, dict(metadata)))
        self.rows.extend(rows)
        self.ends.append(len(self.rows))
        self.kept = state

    def read(self) -> State:
        """Return the sum of all rows; kept, and replaced by every commit."""
        if self.kept is None:
            self.kept = State.from_rows(len(self.commits) - 1, sum_rows(self.rows))
        return self.kept
