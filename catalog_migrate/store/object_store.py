"""An object store, by obstore: read, listed, put on a condition, deleted.

obstore is the Python face of the same Rust library that delta-rs reads and commits with, so options
and variables mean the same to both. Nothing here is imported while all addresses are on disks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from itertools import repeat
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from catalog_migrate.errors import CatalogMigrateError, PrerequisiteMissing, StoreFailure
from catalog_migrate.retry import retry
from catalog_migrate.store.address import Storage, plainly

_CLIENT = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type",
    "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle", "http2_max_frame_size", "http2_only", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url",
    "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent",
})
"""Options of the HTTP client, which obstore takes apart from those of the store."""
_SECONDS = re.compile(r"(\d+) ?s(?:ec)?(?:ond)?s?")
_ENDPOINTS = ("endpoint_url_s3", "endpoint_url", "endpoint")
_ROLES = ("iam_role_arn", "s3_assume_role_arn")
"""What delta-rs calls a role to take; ``aws_role_arn`` goes with a web identity, as obstore has it.
"""
PROBES = ("probe-", "doctor-")
"""How names begin that are tried out and removed; a process may be killed in between."""
_ROLE_SESSIONS = ("iam_role_session_name", "s3_role_session_name")
_ASKED_AGAIN = timedelta(minutes=10)
"""So long credentials are taken for good; botocore renews them before they expire."""
_NO_BUCKET = "NoSuchBucket"
_BROKEN_OFF = "response body"
"""What obstore says of an answer that ended in the middle."""
_AT_ONCE = 16
"""Requests side by side where many objects are read or put."""
_CONFLICTS = 10
"""How often a put is sent that the store refuses while nothing stands against it."""
_PAUSE = 0.05
"""Seconds that each further try waits longer, for as long as another request is carried out."""
_Found = TypeVar("_Found")


class _CameToNothing(Exception):
    """A put was refused for a request of another that is not there either: it is sent again."""


class ObjectStore:
    """The objects below an address (``s3://bucket/path`` and the like)."""

    __slots__ = ("_opened", "_storage", "address")

    def __init__(self, address: str, storage: Storage) -> None:
        self.address = address.rstrip("/")
        self._storage = storage
        self._opened: tuple[Any, Any] | None = None

    def place(self, name: str) -> str:
        return f"{self.address}/{name}" if name else self.address

    def read(self, name: str) -> bytes:
        """By one request."""
        return self.read_tagged(name)[0]

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """The tag is the ETag of the answer."""
        with self._objects() as (obstore, objects):
            found = obstore.get(objects, name)
            return bytes(found.bytes()), str(found.meta["e_tag"])

    def size(self, name: str) -> int:
        """By one request."""
        with self._objects() as (obstore, objects):
            return int(obstore.head(objects, name)["size"])

    def exists(self, name: str) -> bool:
        """By one request. A folder is there when anything is in it."""
        if not name or name.endswith("/"):
            return self._listing(
                lambda obstore, objects: any(map(len, obstore.list(objects, name.rstrip("/"))))
            )
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str = "", after: str = "") -> Iterator[str]:
        """By a listing, a request for every thousand that come ``after``."""
        if after:
            return self._after(folder.rstrip("/"), after)
        found = self._list(folder)
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        marker = folder.rstrip("/")  # an object of the folder's own name, of Hadoop
        return (path.rpartition("/")[2] for path in paths if path != marker)

    def tree(self, folder: str = "") -> Iterator[str]:
        """By a listing, a request for every thousand."""
        return iter(self._listing(lambda obstore, objects: [
            each["path"] for some in obstore.list(objects, folder.rstrip("/") or None)
            for each in some if each["size"]
        ]))

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """By one request for each, many at once."""
        return dict(self._at_once(lambda name: (name, self.read(name)), names))

    def _after(self, folder: str, after: str) -> Iterator[str]:
        start = len(folder) + 1 if folder else 0
        offset = f"{folder}/{after}".lstrip("/")
        paths = self._listing(lambda obstore, objects: [
            each["path"] for some in obstore.list(objects, folder or None, offset=offset)
            for each in some
        ])
        return iter(dict.fromkeys(path[start:].partition("/")[0] for path in paths))

    def tags(self, folder: str) -> dict[str, str]:
        """Return the ETag of each object directly in a folder, by the same listing."""
        return {_last(each): str(each["e_tag"]) for each in self._list(folder)["objects"]}

    def sizes(self, folder: str) -> dict[str, int]:
        """By the same listing."""
        return {_last(each): int(each["size"]) for each in self._list(folder)["objects"]}

    def folders(self, folder: str = "") -> Iterator[str]:
        """By the same listing."""
        return (path.rpartition("/")[2] for path in self._list(folder)["common_prefixes"])

    def put_if_absent(self, name: str, data: bytes, *, durable: bool = True) -> bool:  # noqa: ARG002 (it always is)
        """By ``If-None-Match: *``, which the store itself refuses where an object is."""
        return self._put(name, data, "create")

    def put_if_match(self, name: str, data: bytes, tag: str, *, durable: bool = True) -> bool:  # noqa: ARG002 (it always is)
        """By ``If-Match``, which the store itself refuses where another object is."""
        return self._put(name, data, {"e_tag": tag})

    def put_all(self, contents: Mapping[str, bytes], *, durable: bool = True) -> None:  # noqa: ARG002 (they always are)
        """By one request for each, many at once."""

        def put(name: str) -> None:
            with self._objects() as (obstore, objects):
                obstore.put(objects, name, contents[name])

        self._at_once(put, contents)

    @staticmethod
    def _at_once(act: Callable[[str], _Found], names: Iterable[str]) -> list[_Found]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_AT_ONCE, "objects") as pool:
            return list(pool.map(act, names))

    def _put(self, name: str, data: bytes, mode: Any) -> bool:
        """Whether the bytes are there by this call, also where only its answer was lost.

        A request whose answer was lost is sent again, and is refused then for its own object. One
        that comes while another is carried out may be refused (409 ConditionalRequestConflict)
        although that one comes to nothing: it is sent again too.
        """
        try:
            return retry(
                lambda: self._put_once(name, data, mode), _CameToNothing,
                (_PAUSE * number for number in range(1, _CONFLICTS)),
            )
        except _CameToNothing as error:
            raise StoreFailure(
                f"the object store of {self.address} refused {name} {_CONFLICTS} times for requests"
                " that came to nothing",
                remedy="try again",
            ) from error

    def _put_once(self, name: str, data: bytes, mode: Any) -> bool:
        with self._objects() as (obstore, objects):
            exceptions = obstore.exceptions
            try:
                obstore.put(objects, name, data, mode=mode)
                return True
            except FileNotFoundError as error:
                if mode == "create" or _NO_BUCKET in str(error):
                    raise
                return False
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                found, tag = self._get(name)
            except exceptions.BaseError:
                if self._get(name)[0] == data:
                    return True
                raise
        if found == data:
            return True
        exists = found is not None
        if exists is (mode == "create"):
            return False
        if mode != "create" and mode["e_tag"] != tag:
            return False
        raise _CameToNothing

    def _get(self, name: str) -> tuple[bytes | None, str]:
        """What is under a name and its tag, None where nothing is."""
        try:
            return self.read_tagged(name)
        except FileNotFoundError:
            return None, ""

    def move(self, name: str, to: str) -> NoReturn:
        """StoreFailure: an object store moves nothing at once."""
        raise StoreFailure(
            f"cannot move {name} to {to} in {self.address}: an object store moves nothing at once",
            remedy="copy it with a tool of the store, and name the new place",
        )

    def make_folder(
        self, name: str = "", *, above: bool = False, durable: bool = False
    ) -> None:
        """An object store has no folders."""

    def remove_folder(self, name: str) -> None:
        """An object store has no folders."""

    def delete(self, name: str = "", *, durable: bool = False) -> None:  # noqa: ARG002 (it always is)
        """The object, and everything in the folder, of this name; a request for every thousand."""
        name = name.rstrip("/")
        with self._objects() as (obstore, objects):
            for listed in obstore.list(objects, name):
                obstore.delete(objects, [each["path"] for each in listed])
        if name:
            self.delete_one(name)

    def delete_one(self, name: str) -> None:
        """The object of this name alone, if it is there; by one request."""
        with suppress(FileNotFoundError), self._objects() as (obstore, objects):
            obstore.delete(objects, name)

    def _open(self) -> tuple[Any, Any]:
        """obstore, and its store here; the simulation has one of its own."""
        opened = _open(self.address, self._storage.options())
        import obstore

        return obstore, opened

    def _list(self, folder: str) -> Any:
        return self._listing(
            lambda obstore, objects: obstore.list_with_delimiter(objects, folder.rstrip("/"))
        )

    def _listing(self, ask: Callable[[Any, Any], _Found]) -> _Found:
        """What ``ask`` (of obstore and its store) lists; asked once more where the answer broke
        off: obstore repeats a request that failed, but not one whose answer ends in the middle."""
        with self._objects() as (obstore, objects):
            try:
                return ask(obstore, objects)
            except obstore.exceptions.BaseError as error:
                if _BROKEN_OFF not in str(error):
                    raise
                return ask(obstore, objects)

    @contextmanager
    def _objects(self) -> Iterator[tuple[Any, Any]]:
        """obstore and its store here; what they raise but a missing object is a StoreFailure."""
        try:
            if self._opened is None:
                self._opened = self._open()
            yield self._opened
        except FileNotFoundError as error:
            if _NO_BUCKET in str(error):
                cause = self._storage.cause(error)
                raise store_error(self.address, error, self._storage) from cause
            raise FileNotFoundError(self.address) from self._storage.cause(error)
        except CatalogMigrateError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again without what is secret
            raise store_error(self.address, error, self._storage) from self._storage.cause(error)


_REGISTERED: dict[str, Callable[[str, Storage], ObjectStore]] = {}


@contextmanager
def register(
    prefix: str, make: Callable[[str, Storage], ObjectStore]
) -> Iterator[None]:
    """Have what ``make`` makes of an address and its options serve all that begins with ``prefix``,
    in this whole process, as fsspec's ``register_implementation`` does for a protocol."""
    _REGISTERED[prefix] = make
    try:
        yield
    finally:
        del _REGISTERED[prefix]


def object_store_at(address: str, storage: Storage) -> ObjectStore:
    """Return the store at an address, of the implementation that is registered for it."""
    for prefix, make in _REGISTERED.items():
        if address.startswith(prefix):
            return make(address, storage)
    return ObjectStore(address, storage)


def _last(found: Any) -> str:
    """The last part of an object's name."""
    return str(found["path"]).rpartition("/")[2]


_REFUSALS = (
    (("NoSuchBucket",), "make the bucket, or correct the address"),
    (
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"),
        "the store does not know these keys: correct them",
    ),
    (("ExpiredToken",), "the credentials have expired: get new ones"),
    (
        ("RequestTimeTooSkewed",),
        "set the clock of this machine: the store refuses what is signed 15 minutes off",
    ),
    (
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraint"),
        "give the bucket's own region (aws_region)",
    ),
    (
        ("<Code>AccessDenied", "(code: AccessDenied)", "):AccessDenied"),
        "have these credentials list the bucket, and get, put and delete what is in it",
    ),
    # without a code: the answer to HEAD has no body
    (
        ("AccessDenied", "403 Forbidden", "Status Code: 403"),
        "correct these keys, or have them list the bucket, and get, put and delete what is in it",
    ),
    (
        ("400 Bad Request", "Status Code: 400"),
        "get new credentials if these have expired, and give the bucket's own region (aws_region)",
    ),
)
"""What to do, by what S3 refuses for good, and S3A, obstore or delta-rs tell of it (Amazon S3 API
Reference, *Error responses*)."""
_THROTTLED = (
    ("SlowDown", "503 Service Unavailable"),
    "the store is throttling requests: try again later, or let them be repeated for longer"
    " (retry_timeout)",
)


def remedy_of_refusal(said: str) -> str | None:
    """Return what to do about what a store refused, by any library; None for another failure.

    What was refused was not carried out, and is not carried out later either.
    """
    return _remedy(said, _REFUSALS)


def _remedy(said: str, known: Iterable[tuple[tuple[str, ...], str]]) -> str | None:
    return next((cure for codes, cure in known if any(code in said for code in codes)), None)


def store_error(address: str, error: BaseException, storage: Storage) -> StoreFailure:
    """Return the typed error for a store that did not answer, or said no."""
    said = storage.hidden(plainly(error))
    remedy = _remedy(said, (*_REFUSALS, _THROTTLED)) or (
        "check the address, the network and permissions"
    )
    return StoreFailure(
        f"the object store of {address} did not do what was requested: {said}",
        remedy=f"{remedy}; options are those of [storage_options] or the store's own variables, and"
        " nothing was changed that is not in the log",
    )


def require_fit(address: str, storage: Storage) -> None:
    """StoreFailure for a store that cannot keep commits: by five requests, of which nothing stays.

    One that lets nobody delete keeps every attempt for good; one without conditional writes would
    have two processes commit the same version.
    """
    store = object_store_at(address, storage)
    name = f"{PROBES[0]}{uuid4().hex}"
    with _telling("delete what is in it", address):
        store.delete_one(name)  # permission is looked at first, and there is nothing yet
    with _telling("put where nothing is (a conditional write)", address):
        first = store.put_if_absent(name, uuid4().bytes)
    try:
        with _telling("read what is in it", address):
            store.read(name)
        with _telling("put where nothing is (a conditional write)", address):
            second = store.put_if_absent(name, uuid4().bytes)
    finally:
        store.delete_one(name)
    if not first or second:
        raise StoreFailure(
            f"the object store of {address} ignores If-None-Match: of two commits at one version"
            " both would go through",
            remedy="keep catalog and rows on a store with conditional writes (If-None-Match)",
        )


@contextmanager
def _telling(what: str, address: str) -> Iterator[None]:
    """Say of a refusal what was refused."""
    try:
        yield
    except StoreFailure as error:
        raise StoreFailure(
            f"the object store of {address} does not let these credentials {what}: {error.message}",
            remedy=error.remedy,
        ) from error.__cause__


# -- options ---------------------------------------------------------------------------------------


def _open(address: str, options: dict[str, str]) -> Any:
    """obstore's store at an address, with options as delta-rs calls them.

    Options that only delta-rs has, for its commits or its own credentials, are passed over.
    """
    try:
        from obstore import store
        from obstore.exceptions import UnknownConfigurationKeyError
    except ImportError as error:
        raise PrerequisiteMissing(
            f"{address} is on an object store, for which the package obstore is needed",
            remedy="pip install 'catalog_migrate[s3]'",
        ) from error
    config: dict[str, Any] = {name.lower(): value for name, value in options.items()}
    client = {"allow_http": os.environ["AWS_ALLOW_HTTP"]} if "AWS_ALLOW_HTTP" in os.environ else {}
    for name in tuple(config):
        plain = name.removeprefix("aws_")
        if plain in _CLIENT:
            client[plain] = config.pop(name)
    patience = _patience(config)
    more: dict[str, Any] = {"retry_config": patience} if patience else {}
    if urlsplit(address).scheme.startswith("s3"):
        endpoint = _take_option(config, *_ENDPOINTS)
        if endpoint is not None:
            config["aws_endpoint_url"] = endpoint
        if (provider := _provider(config)) is not None:
            more["credential_provider"] = provider
    opened: Any = store.from_url  # its overloads are one for each kind of store

    def pass_over(error: Exception) -> bool:
        # it tells some names without their prefix
        unknown = [
            name for name in config
            if any(f"'{each}'" in str(error) for each in (name, name.removeprefix("aws_")))
        ]
        for name in unknown:
            del config[name]
        return bool(unknown)

    return retry(
        lambda: opened(address, config=config, client_options=client, **more),
        UnknownConfigurationKeyError, repeat(0), when=pass_over,
    )


def _patience(config: dict[str, Any]) -> dict[str, Any]:
    """How often and how long is retried; the options of it are taken out."""
    patience: dict[str, Any] = {}
    if (times := config.pop("max_retries", "")).isdecimal():
        patience["max_retries"] = int(times)
    if seconds := _SECONDS.fullmatch(config.pop("retry_timeout", "")):
        patience["retry_timeout"] = timedelta(seconds=int(seconds[1]))
    return patience


def _take_option(config: dict[str, Any], *names: str) -> str | None:
    """The first of some options, with or without ``aws_`` before them; all are taken out.

    Without any, that of the process' variables.
    """
    found = [
        str(config.pop(each)) for name in names for each in (f"aws_{name}", name) if each in config
    ]
    variables = (os.environ.get(f"AWS_{name.upper()}") for name in names)
    return next(filter(None, (*found, *variables)), None)


def _provider(config: dict[str, Any]) -> Callable[[], dict[str, str | datetime | None]] | None:
    """The credentials of a profile of the AWS command line, or of a role; None for any other.

    botocore knows how to read the one and take the other. PrerequisiteMissing without it.
    """
    profile = _take_option(config, "profile")
    keys = tuple(
        config.get(f"aws_{name}", config.get(name))
        for name in ("access_key_id", "secret_access_key", "session_token")
    )
    role, session_name = _take_option(config, *_ROLES), _take_option(config, *_ROLE_SESSIONS)
    sts = _take_option(config, "endpoint_url_sts")
    if role is None and (profile is None or keys[0]):
        return None
    try:
        import botocore.session
        from botocore import credentials
    except ModuleNotFoundError as error:
        raise PrerequisiteMissing(
            "credentials of a role or a profile of the AWS command line need the package botocore",
            remedy="pip install botocore, or give the keys themselves",
        ) from error
    session = botocore.session.Session(profile=None if keys[0] else profile)
    if keys[0]:
        session.set_credentials(*keys)
    found = session.get_credentials()
    if role is not None:
        region = config.get("aws_region") or config.get("region") or os.environ.get("AWS_REGION")

        def client(*arguments: Any, **given: Any) -> Any:
            return session.create_client(
                *arguments, **given, endpoint_url=sts, region_name=region or "us-east-1"
            )

        found = credentials.DeferredRefreshableCredentials(
            method="assume-role",
            refresh_using=credentials.AssumeRoleCredentialFetcher(
                client_creator=client, source_credentials=found, role_arn=role,
                extra_args={"RoleSessionName": session_name or "catalog-migrate"},
            ).fetch_credentials,
        )

    def current() -> dict[str, str | datetime | None]:
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key,
            "token": frozen.token, "expires_at": datetime.now(timezone.utc) + _ASKED_AGAIN,
        }

    return current
