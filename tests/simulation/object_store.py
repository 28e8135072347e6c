"""An object store in memory, below the product's own :class:`~catalog_migrate.store.object_store
.ObjectStore`: what obstore does on S3 is done on a dictionary.

There is no rename, no lock and no folder. Every request is announced before it is carried out, and
one that changes something again afterwards: there the process that sent it may be killed or
suspended, and what it hears may be a lie: see :class:`SlowDown`, :class:`Conflict`,
:class:`InFlight` and :class:`ReplyLost`, which whoever hears of the request raises.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import md5
from random import Random
from threading import Lock
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from obstore import exceptions

from catalog_migrate.store.address import Storage
from catalog_migrate.store.object_store import ObjectStore, register
from tests.simulation.crashes import SimulatedCrash

ADDRESS = "s3://simulated"
"""The bucket."""

REQUEST = "store: "
"""What every request is announced with; then ``get``, ``list``, ``put``, ``put.done`` and so on,
and the name, relative to the address that the process asks at."""

READS = (f"{REQUEST}get", f"{REQUEST}list")
"""The requests that change nothing."""

_Found = TypeVar("_Found")
_Names = list[str]
"""Names of objects; inside of the class ``list`` is a request."""


class SlowDown(exceptions.GenericError):
    """The request was not carried out, however often the client has repeated it."""

    def __init__(self) -> None:
        super().__init__("503 Service Unavailable: SlowDown")


class Conflict(exceptions.AlreadyExistsError):
    """A put where nothing is was refused for another request, which came to nothing (409)."""


class InFlight(SimulatedCrash):
    """The process is killed with its request on the way, which arrives so many seconds later.

    One that arrives after its client gave up is not played: clients wait for longer than that.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__("killed with a request on the way")
        self.seconds = seconds


class ReplyLost(Exception):
    """The request was carried out and its answer lost: the client sends it again, or gives up."""

    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.again = again


def _timed_out() -> Exception:
    error: Exception = exceptions.GenericError("error sending request: operation timed out")
    return error


class Bucket:
    """What outlives every process: all objects by their names in the bucket.

    ``heard`` hears of every request. A page of a listing has ``page`` names; between two of them
    others go on. Requests that are sent side by side come in an order that ``seed`` decides.
    """

    exceptions = exceptions
    client: ClassVar[type[SimulatedObjectStore]]

    def __init__(
        self, heard: Callable[[str], None] = lambda _: None, *, page: int = 1000, seed: int = 0
    ) -> None:
        self.objects: dict[str, bytes] = {}
        self.heard = heard
        self._page = page
        self._random = Random(seed)
        self._late: list[tuple[float, str, Callable[[], None]]] = []
        self._now = 0.0
        self._lock = Lock()  # of its contract's tests, whose threads are real

    # -- processes ----------------------------------------------------------------------------
    def store(self, address: str, storage: Storage | None = None) -> SimulatedObjectStore:
        """The store at an address, as :class:`ObjectStore` is made."""
        return self.client(address, storage or Storage(), self)

    @contextmanager
    def served(self) -> Iterator[None]:
        """Have every address in the bucket lead here, in this whole process."""
        with register(ADDRESS, self.store):
            yield

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Let somebody look who is no process of the schedule."""
        heard, self.heard = self.heard, lambda _: None
        try:
            yield
        finally:
            self.heard = heard

    def side_by_side(self, act: Callable[[str], _Found], names: Iterable[str]) -> list[_Found]:
        """Send requests in some order."""
        drawn = list(names)
        self._random.shuffle(drawn)
        return [act(name) for name in drawn]

    def arrive(self, now: float | None = None) -> list[str]:
        """Carry out what was in flight until now (None: all of it)."""
        if now is not None:
            self._now = now
        due = [each for each in self._late if now is None or each[0] <= now]
        for each in due:
            self._late.remove(each)
            try:
                each[2]()
            except (FileNotFoundError, exceptions.BaseError):
                continue  # nobody hears the refusal
        return [name for _, name, _ in due]

    # -- requests, as obstore has them ----------------------------------------------------------
    def get(self, above: str, name: str) -> Any:
        """An object and its tag."""
        self.heard(f"{REQUEST}get {name}")
        data = self._at(above + name)
        return SimpleNamespace(bytes=lambda: data, meta={"e_tag": _tag(data)})

    def head(self, above: str, name: str) -> Any:
        """What is told of an object."""
        self.heard(f"{REQUEST}get {name}")
        return {"size": len(self._at(above + name))}

    def list(
        self, above: str, folder: str | None = None, offset: str | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        """All objects in a folder and those below it, a page at a time."""
        below = above + (f"{folder}/" if folder else "")
        for page in self._pages(folder or "", below, above + (offset or "")):
            if page:
                yield [self._told(above, key) for key in page]

    def list_with_delimiter(self, above: str, folder: str) -> Any:
        """Objects and folders directly in a folder."""
        below = above + (f"{folder}/" if folder else "")
        keys = [key for page in self._pages(folder, below, below, "/") for key in page]
        return {
            "objects": [
                self._told(above, key) for key in keys if key[-1] != "/" and key in self.objects
            ],
            "common_prefixes": [key[len(above) : -1] for key in keys if key[-1] == "/"],
        }

    def put(self, above: str, name: str, data: bytes, *, mode: Any = None) -> None:
        """Put an object: anyhow, where none is ("create"), or in place of one with a tag."""
        self._carry_out("put", name, partial(self._put, above + name, bytes(data), mode))

    def delete(self, above: str, names: str | _Names) -> None:
        """Delete objects, by one request."""
        each = [names] if isinstance(names, str) else names
        self._carry_out("delete", each[0], partial(self._delete, [above + one for one in each]))

    # ---------------------------------------------------------------------------------------
    def _carry_out(self, verb: str, name: str, act: Callable[[], None]) -> None:
        try:
            self.heard(f"{REQUEST}{verb} {name}")
        except InFlight as late:
            self._late.append((self._now + late.seconds, f"{verb} {name}", act))
            raise
        act()
        try:
            self.heard(f"{REQUEST}{verb}.done {name}")
        except ReplyLost as lost:
            if not lost.again:
                raise _timed_out() from None
            act()

    def _at(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise FileNotFoundError(key) from None

    def _put(self, key: str, data: bytes, mode: Any) -> None:
        with self._lock:
            if mode == "create" and key in self.objects:
                raise exceptions.AlreadyExistsError(f"412 Precondition Failed: {key}")
            if isinstance(mode, dict) and _tag(self._at(key)) != mode["e_tag"]:
                raise exceptions.PreconditionError(f"412 Precondition Failed: {key}")
            self.objects[key] = data

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def _pages(
        self, folder: str, below: str, after: str, delimiter: str = ""
    ) -> Iterator[_Names]:
        """The keys below a prefix and behind one, in order; a folder's once, as far as it is."""
        while True:
            self.heard(f"{REQUEST}list {folder}")
            listed: dict[str, None] = {}
            keys = sorted(key for key in self.objects if key.startswith(below))
            for key in keys[bisect_right(keys, after) :]:
                if len(listed) > self._page:
                    break
                inside, slash, _ = key[len(below) :].partition("/")
                listed[f"{below}{inside}/" if slash and delimiter else key] = None
            page = list(listed)[: self._page]
            yield page
            if len(listed) <= self._page:
                return
            # behind all that is in a folder that was told as one
            after = page[-1] + ("\U0010ffff" if page[-1].endswith("/") else "")

    def _told(self, above: str, key: str) -> dict[str, Any]:
        data = self.objects[key]
        return {"path": key[len(above) :], "size": len(data), "e_tag": _tag(data)}


class SimulatedObjectStore(ObjectStore):
    """The product's client of a bucket in memory."""

    __slots__ = ("_bucket",)

    def __init__(self, address: str, storage: Storage, bucket: Bucket) -> None:
        super().__init__(address, storage)
        self._bucket = bucket

    def _open(self) -> tuple[Any, Any]:
        above = self.address.removeprefix(ADDRESS).lstrip("/")
        return self._bucket, above and f"{above}/"

    def _at_once(  # type: ignore[override]
        self, act: Callable[[str], _Found], names: Iterable[str]
    ) -> list[_Found]:
        return self._bucket.side_by_side(act, names)


Bucket.client = SimulatedObjectStore


def _tag(data: bytes) -> str:
    """As S3 has it: the same for the same bytes."""
    return md5(data, usedforsecurity=False).hexdigest()
