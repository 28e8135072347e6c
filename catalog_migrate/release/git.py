"""A release as a commit of a git repository has it: ``git:REF:PATH``, read without a checkout.

Nothing is written and no working tree is touched: the files are read from the object store, and
messages name them as ``REF:PATH``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import PurePosixPath

from catalog_migrate.errors import InvalidRelease, PrerequisiteMissing
from catalog_migrate.policy import Policy
from catalog_migrate.release.loader import (
    SETTINGS_FILE,
    FindContracts,
    SourceFiles,
    decoded,
    load_files,
    load_manifest,
    load_texts,
)
from catalog_migrate.release.release import Release

PREFIX = "git:"
_TIME_LIMIT = 120.0
_FILE_MODES = ("100644", "100755")


def is_git(place: str) -> bool:
    """Return whether ``place`` names a release in a repository."""
    return place.startswith(PREFIX)


def load_git(
    place: str, *, name: str | None = None, default_schema: str | None = None,
    contracts: bool = True, directory: str | None = None, policy: Policy | None = None,
    find: FindContracts | None = None,
) -> Release:
    """The release at ``git:REF:PATH`` of the repository around ``directory`` (default: here).

    PATH is a directory of ``*.sql`` files, one SQL file or a manifest, from the top of the
    repository; ``./PATH`` from here. Raises InvalidRelease and UnsupportedFormat as
    :func:`~catalog_migrate.release.loader.load_release`, with places as ``REF:PATH``, and
    PrerequisiteMissing without git.
    """
    ref, colon, path = place[len(PREFIX):].partition(":")
    if not ref or not colon or ref.startswith("-"):
        raise InvalidRelease(
            f"{place} does not say which commit and which path",
            remedy="write git:REF:PATH, for example git:origin/main:release",
        )
    repository = _Repository(place, directory)
    commit = repository.commit(ref)
    path = path.rstrip("/")
    spoken = f"{ref}:{path}"
    kind = repository.kind(f"{commit}:{path}")
    file = PurePosixPath(path)
    if kind == "blob":
        data = repository.blobs([f"{commit}:{path}"])[0]
        if file.suffix.lower() == ".sql":
            return load_texts(
                [(spoken, decoded(data, spoken))], name=name or file.stem,
                default_schema=default_schema, contracts=contracts, policy=policy, find=find,
            )
        return load_manifest(
            data, file=spoken, name=name, default_schema=default_schema, contracts=contracts,
            policy=policy,
        )
    entries = repository.files(f"{commit}:{path}")
    names = [entry for entry, _ in entries]
    contents = repository.blobs([blob for _, blob in entries])
    files = SourceFiles(
        dict(zip(names, contents, strict=True)), place, file.name or ref,
        lambda each: f"{spoken}/{each}" if path else f"{spoken}{each}",
    )
    return load_files(
        files, name=name, default_schema=default_schema, contracts=contracts, policy=policy,
        find=find,
    )


class _Repository:
    """Reads objects of the repository that a directory lies in."""

    def __init__(self, place: str, directory: str | None) -> None:
        self._place = place
        self._directory = directory

    def commit(self, ref: str) -> str:
        """Return the commit that a branch, tag or hash names now."""
        wanted = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"]
        found = self._git(wanted, allowed=(0, 1))
        if found.returncode != 0:
            raise InvalidRelease(
                f"release {self._place} cannot be read: the repository has no commit {ref}",
                remedy=f"fetch it first (git fetch origin {ref.removeprefix('origin/')}); a"
                " continuous integration often clones one commit only",
            )
        return found.stdout.decode().strip()

    def kind(self, name: str) -> str:
        """``tree`` or ``blob``."""
        found = self._git(["cat-file", "-t", name], allowed=(0, 128))
        kind = found.stdout.decode().strip()
        if kind not in ("tree", "blob"):
            raise InvalidRelease(
                f"release {self._place} cannot be read: that commit has no such file or directory",
                remedy="name a path from the top of the repository, or ./PATH from here",
            )
        return kind

    def files(self, tree: str) -> list[tuple[str, str]]:
        """(path below the tree, object) of its SQL files and settings, hidden ones left out."""
        listed = self._git(["ls-tree", "-r", "-z", "--full-tree", tree]).stdout
        found = []
        for line in listed.split(b"\0"):
            head, _, raw = line.partition(b"\t")
            path = PurePosixPath(raw.decode(errors="surrogateescape"))
            ours = path.suffix == ".sql" or str(path) == SETTINGS_FILE
            hidden = any(part.startswith(".") for part in path.parts)
            if ours and not hidden and head[:6].decode() in _FILE_MODES:
                found.append((str(path), head.split()[2].decode()))
        return found

    def blobs(self, names: Sequence[str]) -> list[bytes]:
        """Return the contents of objects, in the order of their names, by one process."""
        if not names:
            return []
        asked = "".join(f"{name}\n" for name in names).encode(errors="surrogateescape")
        answer = self._git(["cat-file", "--batch"], stdin=asked).stdout
        contents: list[bytes] = []
        start = 0
        for _ in names:
            end = answer.index(b"\n", start)
            size = int(answer[start:end].split()[-1])
            contents.append(answer[end + 1 : end + 1 + size])
            start = end + size + 2
        return contents

    def _git(
        self, arguments: Sequence[str], *, stdin: bytes = b"", allowed: tuple[int, ...] = (0,)
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            done = subprocess.run(
                ["git", *arguments], input=stdin, capture_output=True, check=False,
                cwd=self._directory, timeout=_TIME_LIMIT,
            )
        except FileNotFoundError as error:
            raise PrerequisiteMissing(
                f"{self._place} needs git, which is not installed", remedy="install git"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise InvalidRelease(
                f"release {self._place} cannot be read: git did not answer in {_TIME_LIMIT:.0f} s",
                remedy="try `git fsck` in the repository",
            ) from error
        if done.returncode not in allowed or b"not a git repository" in done.stderr:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise InvalidRelease(
                f"release {self._place} cannot be read: {said[0]}",
                remedy="run this inside the repository that the release is kept in",
            )
        return done
