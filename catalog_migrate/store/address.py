"""Addresses of directories and object stores, and the options of a store, which are never shown.

Options are handed through to delta-rs:
``[storage_options]`` of the configuration, or delta-rs's own variables (``AWS_…``, ``AZURE_…``,
``GOOGLE_…``). Each text of delta-rs or a server passes :meth:`Storage.hide_options`
before it is printed or recorded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePath
from urllib.parse import unquote, urlsplit

from catalog_migrate.errors import UsageError

HIDDEN = "***"
SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
"""Object stores whose put-if-absent delta-rs commits with."""

TRIED = ("s3", "s3a")
"""Object stores whose rows were tried with Spark."""
UNTRIED = ("gs", "abfss")
"""Those that Spark and delta-rs both name so, which need to be enabled by name."""
_S3 = ("s3", "s3a")

_VARIABLES = re.compile(
    r"(?:AWS|AZURE|GOOGLE|GCP|GCS)_\w*(?:KEY|SECRET|TOKEN|SAS|PASSW|CREDENTIAL)"
)
_UNSAFE = re.compile(r"(?:aws_)?(?:s3_)?allow_unsafe_rename\Z")
_CONDITIONAL = re.compile(r"(?:aws_)?conditional_put\Z")
_LOGIN = re.compile(r"(\w://)[^/@\s]+@")
_SIGNATURE = re.compile(r"([?&](?:sig|X-Amz-\w+|token|code)=)[^&\s\"'<>]+", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z0-9._=@/-]+")
_FALSE = ("", "false", "0", "no")
_SHORTEST = 4
"""Shorter values (``true``, a number) are no secrets, and would be hidden in the midst of words."""


def show_address(uri: str) -> str:
    """Return an address as it may be printed: no login in it, and no value of its query."""
    scheme, remote, rest = uri.partition("://")
    if not remote:
        return uri
    login, has_login, place = rest.rpartition("@")
    container = scheme.lower().startswith("abfs") and ":" not in login  # CONTAINER@ACCOUNT
    # a secret may hold slashes, which end the login for whoever reads it as a URL
    if has_login and not container and (":" in login or "/" not in login):
        rest = f"{HIDDEN}@{place}"
    path, asked, query = rest.partition("?")
    return f"{scheme}://{path}{asked}" + re.sub(r"=[^&]+", f"={HIDDEN}", query)


def refuse_login(uri: str) -> None:
    """UsageError for an address with a login or a signature, which would be printed with it."""
    parts = urlsplit(uri)
    s3 = parts.scheme.startswith("s3")
    login = parts.password is not None or (s3 and (parts.username or ":" in parts.netloc))
    if login or "=" in parts.query:
        raise UsageError(
            "the catalog's address holds a login, which would be shown with it",
            remedy="put it into [storage_options] of the configuration, or the environment",
        )


def is_remote(uri: str) -> bool:
    """Return whether an address is on an object store."""
    return "://" in uri and not uri.startswith("file:")


def local_path(location: str) -> str:
    """Return a location without the scheme of the local file system: ``file:/a`` becomes ``/a``."""
    if location.startswith("file:"):
        location = location[len("file:") :]
        if location.startswith("//"):
            location = "/" + location.lstrip("/")
    return location.rstrip("/") or "/"


def directory_of(uri: str) -> str:
    """The directory that a path or a ``file:`` URI names; UsageError for another machine's."""
    if not uri.startswith("file:"):
        return str(Path(uri))
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(
            f"a catalog cannot lie at {uri!r}", remedy="give a local directory or a file: URI"
        )
    return str(Path(unquote(parts.path)))


def resolved(address: str) -> str:
    """Return the one address of a place, whatever links or spelling it is reached by."""
    return normalise(address) if is_remote(address) else os.path.realpath(local_path(address))


def normalise(address: str) -> str:
    """An address of an object store by the one spelling that is compared: ``s3a`` is ``s3``."""
    scheme, _, place = address.partition("://")
    scheme = scheme.lower()
    bucket, _, path = place.partition("/")
    parts = [part for part in path.split("/") if part]
    return f"{'s3' if scheme in _S3 else scheme}://{'/'.join([bucket, *parts])}"


def is_same_place(one: str, other: str) -> bool:
    """Return whether two addresses are of one place, by spelling or by links."""
    if is_remote(one) or is_remote(other):
        return is_remote(one) and is_remote(other) and normalise(one) == normalise(other)
    one, other = local_path(one), local_path(other)
    if os.path.normpath(one) == os.path.normpath(other):
        return True
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def is_within(address: str, folder: str) -> bool:
    """Return whether an address is, by its spelling, that of a folder or of anything in it."""
    return address == folder or address.startswith(folder.rstrip("/") + "/")


def folders_above(address: str) -> Iterator[str]:
    """The folders that an address lies in, the innermost first; of a store down to its bucket."""
    if not is_remote(address):
        yield from map(str, PurePath(address).parents)
        return
    scheme, _, place = address.rstrip("/").partition("://")
    while "/" in place:
        place = place.rpartition("/")[0]
        yield f"{scheme}://{place}"


def move_address(address: str, old: str, new: str) -> str:
    """Where what lay inside the directory ``old`` is once that is ``new``; else as it was."""
    if is_remote(address) or is_remote(old):
        inside, folder = normalise(address), normalise(old)
        within = inside != folder and is_within(inside, folder)
        return new.rstrip("/") + inside[len(folder):] if within else address
    inside, folder = os.path.normpath(address), os.path.normpath(old)
    return new + inside[len(folder):] if inside.startswith(folder + os.sep) else address


def catalog_address(uri: str | os.PathLike[str]) -> str:
    """Where a catalog is: an absolute directory, or an address as it was given."""
    text = os.fspath(uri)
    return text if "://" in text else os.path.abspath(text)


def rows_address(text: str, untried: Collection[str] = ()) -> str:
    """Where rows are to lie: the absolute directory that a path or ``file:`` URI names, or an
    address on an object store.

    UsageError for what is neither, and for a store whose scheme is not among the ``untried`` ones
    that are enabled where it was not tried.
    """
    if is_remote(text):
        return _rows_on_a_store(text, untried)
    if not text.strip():
        raise UsageError(
            "the directory of rows is named by an empty text",
            remedy="name a directory; is a variable not set?",
        )
    return os.path.abspath(local_path(text) if text.startswith("file:") else text)


def _rows_on_a_store(text: str, untried: Collection[str]) -> str:
    refuse_login(text)
    scheme, _, place = text.partition("://")
    scheme = scheme.lower()
    if scheme not in (*TRIED, *UNTRIED):
        raise UsageError(
            f"rows cannot lie at {show_address(text)}",
            remedy="give a directory, a file: URI, or one of "
            + ", ".join(f"{each}://" for each in (*TRIED, *UNTRIED)),
        )
    if scheme in UNTRIED and scheme not in untried:
        raise UsageError(
            f"{show_address(text)} is on a store that was not tried: {scheme}",
            remedy=f'enable it by name: untried_stores = "{scheme}" in [storage] of the '
            "configuration, or untried_stores of bootstrap()",
        )
    bucket, _, path = place.partition("/")
    parts = [part for part in path.split("/") if part]
    # Spark takes such names as they stand, delta-rs as a URL
    if not bucket or {".", ".."} & {*parts} or not _PLAIN.fullmatch(place):
        raise UsageError(
            f"rows cannot lie at {show_address(text)}: a bucket and a path of letters, digits and"
            " . _ - = are needed",
            remedy="name another path in the bucket",
        )
    return f"{scheme}://{'/'.join([bucket, *parts])}"


class Storage:
    """Options of an object store; their text form shows names only."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = dict(options or {})

    def __repr__(self) -> str:
        return f"Storage({', '.join(sorted(self._options))})"

    def __bool__(self) -> bool:
        return bool(self._options)

    @property
    def names(self) -> tuple[str, ...]:
        """Which options are set."""
        return tuple(sorted(self._options))

    def options(self) -> dict[str, str]:
        """Names and values, for delta-rs alone."""
        return dict(self._options)

    def hidden(self, text: str) -> str:
        """``text`` without any value of an option, login or signature."""
        values = {*self._options.values(), *_from_environment()}
        for value in sorted(values, key=len, reverse=True):
            if len(value) >= _SHORTEST and value.lower() not in ("true", "false"):
                text = text.replace(value, HIDDEN)
        return _SIGNATURE.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", text))

    def cause(self, error: BaseException) -> Exception:
        """Return an error to raise from in place of ``error``: its kind and its text, hidden."""
        return RuntimeError(f"{type(error).__name__}: {self.hidden(plainly(error))}")

    def refuse_unsafe(self, uri: str) -> None:
        """UsageError for an address or options that cannot keep a catalog.

        A login in the address would be printed with it, and without put-if-absent two processes
        could commit the same version.
        """
        refuse_login(uri)
        if urlsplit(uri).scheme not in SCHEMES:
            raise UsageError(
                f"a catalog cannot lie at {uri!r}",
                remedy="give a directory, a file: URI, or one of "
                + ", ".join(f"{scheme}://" for scheme in SCHEMES),
            )
        for name, value in {**_lower_keys(os.environ), **_lower_keys(self._options)}.items():
            on = value.lower() not in _FALSE
            if (_UNSAFE.match(name) and on) or (
                _CONDITIONAL.match(name) and value.lower() == "disabled"
            ):
                raise UsageError(
                    f"{name} gives up put-if-absent, by which of two commits one is refused",
                    remedy="take it out; a store without put-if-absent cannot keep a catalog",
                )


# Options are given once, with the catalog; whoever opens a table of it has only its address.
_given: dict[str, Storage] = {}


def remember(address: str, storage: Storage) -> None:
    """Have the options of the store at an address found by it: they are those of its bucket.

    Those that were given with a catalog on a disk are for whatever store its rows lie on.
    """
    if storage:
        _given[_bucket(address) if is_remote(address) else ""] = storage


def storage_of(address: str) -> Storage:
    """The options that were given for the bucket of an address; else those of all the others.

    None where these differ among each other: then the store's own variables hold.
    """
    if not is_remote(address):
        return Storage()
    found = _given.get(_bucket(address))
    if found is not None:
        return found
    others = list(_given.values())
    same = others and all(one.options() == others[0].options() for one in others)
    return others[0] if same else Storage()


def hide_options(text: str) -> str:
    """``text`` without the value of any option that was given."""
    for storage in tuple(_given.values()) or (Storage(),):
        text = storage.hidden(text)
    return text


def show_cause(error: BaseException) -> BaseException:
    """``error``, or a copy where its text tells an option that was given."""
    if hide_options(str(error)) == str(error):
        return error
    return RuntimeError(f"{type(error).__name__}: {hide_options(plainly(error))}")


def is_same_bucket(one: str, other: str) -> bool:
    """Return whether two addresses are in one bucket of an object store."""
    return is_remote(one) and is_remote(other) and _bucket(one) == _bucket(other)


def bucket_of(address: str) -> str:
    """Scheme and bucket of an address on an object store, as it is spelled: ``s3a://bucket``."""
    scheme, _, place = address.partition("://")
    return f"{scheme}://{place.partition('/')[0]}"


def _bucket(address: str) -> str:
    return bucket_of(normalise(address))


def plainly(error: BaseException) -> str:
    """An error of delta-rs or obstore on one line, without colours and the debugger's view."""
    said = str(error).partition("\n\nDebug source:")[0]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said).replace("↳", ":")
    return " ".join(plain.split())


def _lower_keys(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _from_environment() -> set[str]:
    return {value for name, value in os.environ.items() if _VARIABLES.match(name.upper())}
