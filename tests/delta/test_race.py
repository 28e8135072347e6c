"""A race of another writer against delta-rs tells whether its commits are safe, and real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from catalog_migrate.delta.race import HeldCommit, race_against


class Writer:
    """A commit that is written when it is released, by ``put``; True where it went through."""

    def __init__(self, put: Callable[[Path, bytes], bool], file: str, *lines: bytes) -> None:
        self._put = put
        self._file = Path(file)
        self._lines = lines
        self._won: bool | None = None

    def begin(self) -> None:
        """It looks at nothing before it is released."""

    def release(self) -> None:
        if self._won is None:
            self._won = self._put(self._file, b"".join(self._lines))

    def join(self) -> bool:
        assert self._won is not None
        return self._won


def if_absent(file: Path, data: bytes) -> bool:
    try:
        with file.open("xb") as opened:
            opened.write(data)
    except FileExistsError:
        return False
    return True


def unanswered(file: Path, data: bytes) -> bool:
    """Of every second commit the answer is lost: asked again, the store says that one is there."""
    return if_absent(file, data) and (file.stem.endswith(("1", "3", "5")))


def over_others(file: Path, data: bytes) -> bool:
    file.write_bytes(data)
    return True


def not_at_all(file: Path, data: bytes) -> bool:
    return False


@pytest.mark.parametrize(
    ("put", "safe"),
    [(if_absent, True), (unanswered, True), (over_others, False), (not_at_all, False)],
)
def test_a_writer(put: Callable[[Path, bytes], bool], safe: bool, tmp_path: Path) -> None:
    """One that loses every race because it can write nothing proves nothing."""

    def writer(file: str, first: bytes, second: bytes) -> HeldCommit:
        return Writer(put, file, first, second)

    assert race_against(writer, str(tmp_path)) is safe
    assert list(tmp_path.iterdir()) == []
