"""What a probe found, and calls to the outside that end in time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, Queue
from typing import TypeVar

import msgspec

from catalog_migrate.connectors.secrets import Redactor
from catalog_migrate.errors import ConnectionFailed

Result = TypeVar("Result")


class Finding(msgspec.Struct, frozen=True):
    """One thing that was tried: on what, by which option, whether it went well, and if not, why.

    No text of a finding holds the value of a secret. ``item_id`` is there where the subject is an
    object of the catalog. ``unresolved``: a secret has no value in this process; in the runtime's
    it may have one. ``final``: positions belong to another cluster, which no waiting changes.
    """

    subject: str
    option: str | None
    ok: bool
    message: str
    remedy: str | None = None
    item_id: str = ""
    unresolved: bool = False
    final: bool = False

    @property
    def is_query(self) -> bool:
        """Whether it is of a source or a sink, not of a connection."""
        return self.subject.startswith(("source ", "sink "))

    @property
    def text(self) -> str:
        """The subject, the option and the message, without the remedy."""
        where = f"{self.subject}, option {self.option}" if self.option else self.subject
        message = self.message.removeprefix(f"{self.subject}: ")
        # it names the subject itself
        begins = not self.option and message.startswith(f"{self.subject} ")
        return message if begins else f"{where}: {message}"

    def __str__(self) -> str:
        remedied = self.remedy and not self.ok
        return f"{self.text} (remedy: {self.remedy})" if remedied else self.text

    def of_item(self, item_id: str, name: str, redactor: Redactor) -> Finding:
        """Return it as one of an object of the catalog, without its secrets."""
        return msgspec.structs.replace(
            self, subject=name, item_id=item_id, message=redactor.scrub(self.message),
            remedy=redactor.scrub(self.remedy or "") or None,
        )


class TookTooLong(Exception):
    """A call that did not end within its time; its thread is left behind."""


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """The result of ``call`` on a thread of its own, or :class:`TookTooLong`.

    For what has no time limit itself: name resolution, a directory on a server that is gone.
    """
    outcome: Queue[tuple[bool, Result | BaseException]] = Queue()

    def run() -> None:
        try:
            outcome.put((True, call()))
        except BaseException as error:
            outcome.put((False, error))
            if not isinstance(error, Exception):
                raise

    threading.Thread(target=run, daemon=True, name="catalog_migrate probe").start()
    try:
        went_well, result = outcome.get(timeout=max(seconds, 0.001))
    except Empty as error:
        raise TookTooLong(f"no end after {seconds:.1f} s") from error
    if went_well:
        return result  # type: ignore[return-value]
    assert isinstance(result, BaseException)
    raise result


def failed(*findings: Finding) -> ConnectionFailed:
    """The error for who cannot go on without an answer."""
    bad = [finding for finding in findings if not finding.ok]
    return ConnectionFailed(
        "; ".join(f"{finding.subject}: {finding.message}" for finding in bad), findings=findings,
        remedy=next((finding.remedy for finding in bad if finding.remedy), None),
    )
