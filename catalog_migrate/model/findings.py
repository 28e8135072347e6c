"""What a check says of one thing, from the probe to the record and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeVar

import msgspec

from catalog_migrate.errors import CatalogMigrateError, UnresolvedSecret, UpstreamChanged

What = TypeVar("What", contravariant=True)

Severity = Literal["ok", "warning", "error"]
"""``warning``: it is wrong, and nothing is refused for it."""

MISSING = "missing"
"""The code of an object that is not there upstream."""

FORBIDDEN = "forbidden"
"""The code of an object that this user may not see or use."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at: on what, by which option, how it went, and what to do about it.

    No text of a finding holds the value of a secret. ``code`` is that of the error that it was, or
    a word for what is wrong; ``item_id`` is there where the subject is an object of the catalog.
    """

    subject: str
    option: str | None
    severity: Severity
    message: str
    remedy: str | None = None
    item_id: str = ""
    code: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.severity == "ok"

    @property
    def unresolved(self) -> bool:
        """Whether a secret has no value in this process; in the runtime's it may have one."""
        return self.code == UnresolvedSecret.code

    @property
    def final(self) -> bool:
        """Whether no waiting changes it: positions belong to another upstream."""
        return self.code == UpstreamChanged.code

    @property
    def text(self) -> str:
        """The subject, the option and the message, without the remedy."""
        if self.final:  # its sentence is about the subject
            return self.message
        where = f"{self.subject}, option {self.option}" if self.option else self.subject
        return f"{where}: {self.message}" if where else self.message

    def __str__(self) -> str:
        remedied = self.remedy and not self.ok
        return f"{self.text} (remedy: {self.remedy})" if remedied else self.text

    def of_item(self, item_id: str, name: str, scrub: Callable[[str], str]) -> Finding:
        """Return it as one of an object of the catalog, without its secrets."""
        return msgspec.structs.replace(
            self, subject=name, item_id=item_id, message=scrub(self.message),
            remedy=scrub(self.remedy or "") or None,
        )


class Check(Protocol[What]):
    """Looks at one thing and writes nothing; an error of ours that it raises is found, too."""

    def __call__(self, what: What, /) -> Iterable[Finding]:
        """Return what it finds."""


def run_check(check: Check[What], what: What, subject: str) -> tuple[Finding, ...]:
    """Return what a check of one thing finds; ``subject`` is what an error is about."""
    found: list[Finding] = []
    try:
        found.extend(check(what))
    except CatalogMigrateError as error:
        found += findings_of(error, subject)
    return tuple(found)


def findings_of(error: CatalogMigrateError, subject: str) -> tuple[Finding, ...]:
    """Return the findings that an error carries, else itself as one."""
    carried = error.data.get("findings", ())
    return tuple(carried) or (
        Finding(subject, None, "error", error.message, error.remedy, code=error.code),
    )


def list_findings(error: CatalogMigrateError) -> list[Finding]:
    """Return the lines that an error lists, each as a finding."""
    return [
        each if isinstance(each, Finding) else Finding("", None, "error", str(each))
        for each in error.data.get(error.listed, ())
    ]
