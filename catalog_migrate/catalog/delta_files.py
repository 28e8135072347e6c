"""The commit files of a Delta table on a local path, read without delta-rs.

A listing tells the newest version for a tenth of a millisecond, and a look into each new file finds
what delta-rs would pass over in silence: a commit file cut off between two actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from catalog_migrate.catalog.log import Commit
from catalog_migrate.delta.log import CHECKPOINT, COMMIT, LOG, commit_name
from catalog_migrate.errors import CatalogCorrupt
from catalog_migrate.storage import plainly

_OURS = "catalog_migrate."
COMMIT_KEY = _OURS + "commit"
"""Key of the commit id in a commit's own metadata."""

_DECODER = msgspec.json.Decoder()

_RESTORE = (
    "restore this file from a backup, or the whole catalog directory; nothing was written"
)
_NOT_ALLOWED = (
    "permission denied", "operation not permitted", "os error 13)", "os error 1)",
)
_FAILING = ("input/output error", "os error 5)")


class CommitFiles:
    """The directory ``_delta_log`` of one table; remembers which versions it found whole."""

    __slots__ = ("_verified", "directory")

    def __init__(self, table: Path) -> None:
        self.directory = table / LOG
        self._verified = -1

    def newest(self) -> int | None:
        """The newest version, None when there is no commit.

        Raises :class:`CatalogCorrupt` when a version before it is missing.
        """
        return self._scan()[1]

    def verify(self) -> int | None:
        """Like :meth:`newest`, after a look into every commit file not yet found whole."""
        first, newest = self._scan()
        if newest is None:
            return None
        for version in range(max(first, self._verified + 1), newest + 1):
            self.actions(version)
        self._verified = newest
        return newest

    def commit_id(self, version: int) -> str | None:
        """The commit id that a version carries, None for a version or an id that is not there."""
        if not self.path(version).exists():
            return None
        for action in self.actions(version):
            info = action.get("commitInfo")
            if info is not None:
                found = info.get(COMMIT_KEY)
                return found if isinstance(found, str) else None
        return None

    def commit(self, version: int) -> Commit:
        """One commit with what it says about itself."""
        path = self.path(version)
        info: dict[str, Any] = next(
            action["commitInfo"] for action in self.actions(version) if "commitInfo" in action
        )
        return commit_of(version, str(path), info)

    def whole(self) -> int | None:
        """The newest version, after a listing that shows every commit since the very first.

        History needs the files that a checkpoint makes superfluous for reading the state.
        """
        newest = self._scan()[1]
        if newest is None:
            return None
        present = {
            int(match[1]) for entry in self.directory.iterdir()
            if (match := COMMIT.match(entry.name))
        }
        for version in range(newest + 1):
            if version not in present:
                _corrupt(self.path(version), "is missing")
        return newest

    def path(self, version: int) -> Path:
        """The file of one version."""
        return self.directory / commit_name(version)

    def actions(self, version: int) -> list[dict[str, Any]]:
        """The actions of one commit; :class:`CatalogCorrupt` names its file if it is not whole."""
        path = self.path(version)
        try:
            lines = path.read_bytes().splitlines()
            actions: list[dict[str, Any]] = [_DECODER.decode(line) for line in lines if line]
        except FileNotFoundError as error:
            _corrupt(path, "is missing", error)
        except OSError as error:
            _corrupt(path, f"cannot be read: {error.strerror}", error)
        except (msgspec.DecodeError, RecursionError) as error:
            _corrupt(path, f"is truncated or damaged: {error}", error)
        for action in actions:
            if not isinstance(action, dict) or not all(map(_is_action, action.items())):
                _corrupt(path, "is damaged: it holds something else than actions")
        info = next((a["commitInfo"] for a in actions if "commitInfo" in a), None)
        if info is None:
            _corrupt(path, "is truncated or damaged: it holds no commit")
        metrics = info.get("operationMetrics")
        if not isinstance(metrics, dict | None):
            _corrupt(path, f"is damaged: its metrics are {metrics!r}")
        promised = (metrics or {}).get("num_added_files")
        added = sum("add" in action for action in actions)
        if promised is not None:
            number = _number(promised)
            if number is None:
                _corrupt(path, f"is damaged: it names {promised!r} data files")
            if number != added:
                _corrupt(path, f"is truncated: {added} of {promised} data files are named")
        return actions

    def _scan(self) -> tuple[int, int | None]:
        """(first version whose commit file is needed, newest version)."""
        try:
            names = [entry.name for entry in self.directory.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return 0, None
        except OSError as error:
            _corrupt(self.directory, f"cannot be read: {error.strerror}", error)
        versions = {int(match[1]) for name in names if (match := COMMIT.match(name))}
        checkpoints = [int(match[1]) for name in names if (match := CHECKPOINT.match(name))]
        if not versions and not checkpoints:
            return 0, None
        first = max(checkpoints) + 1 if checkpoints else 0
        newest = max([*versions, *checkpoints])
        # the commit file of the checkpoint itself carries the commit id and is wanted too
        needed = range(max(first - 1, 0), newest + 1)
        for version in needed:
            if version not in versions:
                _corrupt(self.path(version), "is missing")
        return first, newest


def commit_of(version: int, place: str, info: Mapping[str, Any]) -> Commit:
    """A commit from its ``commitInfo``; :class:`CatalogCorrupt` names ``place`` if it is odd."""
    said: dict[str, str] = {}
    for name, value in info.items():
        if name.startswith(_OURS):
            if not isinstance(value, str):
                _corrupt(place, f"is damaged: its {name} is {value!r}")
            said[name.removeprefix(_OURS)] = value
    milliseconds = info.get("timestamp")
    if milliseconds is not None and _number(milliseconds) is None:
        _corrupt(place, f"is damaged: its timestamp is {milliseconds!r}")
    return Commit(
        version, place, said.pop("commit", None),
        None if milliseconds is None else _number(milliseconds), said,
    )


def _is_action(pair: tuple[Any, Any]) -> bool:
    """Whether one member of a commit's line has the shape that every Delta action has."""
    return isinstance(pair[1], dict)


def _number(value: Any) -> int | None:
    """A count as delta-rs (a number) and Spark (a text) write it, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _corrupt(path: Path | str, what: str, cause: Exception | None = None) -> NoReturn:
    raise CatalogCorrupt(
        f"the file {path} of the catalog's log {what}",
        remedy=remedy_unreadable(cause, _RESTORE), file=str(path),
    ) from cause


def is_withheld(error: BaseException | None) -> bool:
    """Whether the cause of a failed read is the system's, and says nothing of the log itself.

    A file of another user, a directory without its mode bits, a mount that does not answer: the
    log may be whole. Only what is not there, or holds something else, is lost.
    """
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return False
    if isinstance(error, OSError) and error.errno is not None:
        return True
    return error is not None and any(
        each in plainly(error).lower() for each in (*_NOT_ALLOWED, *_FAILING)
    )


def remedy_unreadable(error: BaseException | None, otherwise: str) -> str:
    """What to do about a file of the catalog that cannot be read because of ``error``.

    A backup put over a log that merely may not be read would forget what was committed since.
    """
    if not is_withheld(error):
        return otherwise
    if isinstance(error, PermissionError) or any(
        each in plainly(error or OSError()).lower() for each in _NOT_ALLOWED
    ):
        from catalog_migrate.catalog.process import this_user

        return (
            f"make it readable for this user ({this_user()}): the log may well be whole, do not "
            "restore or rebuild it; nothing was written"
        )
    return (
        "see that its disk or mount answers and try again: the log may well be whole; only if the "
        "file is lost restore it from a backup; nothing was written"
    )
