"""The newest state as one object beside the log, by which an unchanged log is opened.

It is that of a commit, whose id it has, and is never needed: what it lacks is read from the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from catalog_migrate.catalog.state import LARGE, Answers, State
from catalog_migrate.version import __version__


class KeptState(msgspec.Struct, frozen=True):
    """The state at the commit ``commit_id``: collection -> key -> JSON text.

    ``files`` are those of the log with their sizes, where they can be looked at for next to
    nothing; then the large collections are left to the log. ``tool_version`` is of the tool that
    kept it: another one may mean something else by ``answers``.
    """

    tool_version: str
    commit_id: str
    files: Mapping[str, int]
    collections: Mapping[str, Mapping[str, str]]
    answers: Answers


_DECODER = msgspec.json.Decoder(KeptState)


def encode_kept(state: State, commit_id: str, files: Mapping[str, int]) -> bytes:
    """Return the bytes to keep; whole and compressed where there are no ``files``."""
    collections = {
        name: texts for name, texts in state.raw.items()
        if texts and not (files and name in LARGE)
    }
    data = msgspec.json.encode(KeptState(__version__, commit_id, files, collections, state.answers))
    return data if files else zlib.compress(data, 1)


def decode_kept(data: bytes) -> KeptState | None:
    """Read what was kept; None for what is damaged, or was kept by another version of the tool."""
    try:
        kept = _DECODER.decode(data if data.startswith(b"{") else zlib.decompress(data))
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return kept if kept.tool_version == __version__ else None
