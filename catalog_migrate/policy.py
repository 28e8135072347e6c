"""Policy: which risks may be taken, by kind and name; an ordered list of rules, the first decides.

A rule says ``refuse`` (never, whatever the release or an approval says), ``approve`` (only with an
approval at the call, even where the release has decided) or ``allow`` (no word is needed). Where no
rule fits, what a loss needs is a word in the release or an approval, and what merely costs is free.
Pure; the planner applies it, the configuration reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from catalog_migrate.errors import Problem, suggest

RISKS: Mapping[str, str] = {
    "drop_table": "a table goes with its rows",
    "drop_column": "a column goes with its values",
    "drop_in_place": "a column goes in place and no rollback brings it back; where a rule does not"
    " let it, nothing is blocked: the table is copied, and the old one kept",
    "convert": "values are converted in a way that may lose some of them, or what they mean",
    "not_null": "a column becomes NOT NULL and the copy fails if a row holds NULL",
    "copy": "the rows of a table are copied (time, and space twice)",
    "refill": "a derived table is emptied and filled again",
    "start_empty": "a new table starts empty, as what its FILLED FROM reads is not in force",
    "drop": "an object without rows goes: view, function, type, derived table",
    "downgrade": "a release is applied that is older than the one in force",
    "break_user_object": "a view or SQL function of a user, which no release ships, no longer"
    " binds; `name` is its own. Where no rule fits, a command asks and a start of the software goes"
    " on",
    "unknown_property": "a table gets a `delta.` property that this tool does not know; `name` is"
    " its key, and only `allow` changes anything",
}
"""Every kind of risk and what it is."""

ANY = "any"
ACTIONS = ("refuse", "approve", "allow")
RULE_KEYS: Mapping[str, str] = {
    "risk": f"Kind of risk that the rule is about: {', '.join(f'`{r}`' for r in RISKS)} or"
    f" `{ANY}`. Needed.",
    "name": "Which names: `schema.table` or `schema.table.column` where `*` is any text and `?` any"
    " character, upper and lower case alike; for `downgrade` the release's name, for"
    " `unknown_property` the property's key, for `break_user_object` the user's object.",
    "action": "`refuse` never, whatever else says so; `approve` only with `--approve`, even where"
    " the release has decided; `allow` without a word. Needed. The first rule that fits decides.",
}
"""Keys of one ``[[policy]]`` entry and their documentation."""

_BAD = "CM0600"


@dataclass(frozen=True, slots=True)
class Rule:
    """What is said about one kind of risk (or ``any``) for the names that fit ``name``.

    ``origin`` says where the rule is written, for messages.
    """

    risk: str
    action: str
    name: str = "*"
    origin: str = field(default="the policy", compare=False)

    def fits(self, risk: str, names: Iterable[str]) -> bool:
        """Return whether this rule is about this risk of something that has one of these names."""
        return self.risk in (ANY, risk) and any(map(name_pattern(self.name).match, names))

    def __str__(self) -> str:
        return f"{self.origin}: {self.action} {self.risk} of {self.name}"


class Policy(msgspec.Struct, frozen=True):
    """What may be done without asking.

    ``allow_downgrade`` lets an older release be applied (a flag of the call); ``rules`` are looked
    through in order, the first that fits decides. ``checks_properties`` is off for a release that
    another one is only compared with: it may be from before the properties were checked.
    """

    allow_downgrade: bool = False
    rules: tuple[Rule, ...] = ()
    checks_properties: bool = True

    def judge(self, risk: str, *names: str) -> Rule | None:
        """The first rule about this risk of something with these names; None: nothing is said."""
        return next((rule for rule in self.rules if rule.fits(risk, names)), None)

    def says(self, action: str, risk: str, *names: str) -> bool:
        """Return whether the first rule that fits says ``action``."""
        rule = self.judge(risk, *names)
        return rule is not None and rule.action == action


def read_rules(
    raw: Any, *, origin: str, file: str | None = None
) -> tuple[tuple[Rule, ...], list[Problem]]:
    """The rules of a ``[[policy]]`` list as TOML gives it, and everything that is wrong with it."""
    if not isinstance(raw, list) or not all(isinstance(entry, dict) for entry in raw):
        remedy = 'write [[policy]] with risk = "...", name = "..." and action = "..." below it'
        return (), [Problem(_BAD, "policy is not a list of rules", file=file, remedy=remedy)]
    rules: list[Rule] = []
    problems: list[Problem] = []
    for number, entry in enumerate(raw, 1):
        found = list(_wrong(entry, number, file))
        problems += found
        if not found:
            rules.append(
                Rule(entry["risk"], entry["action"], entry.get("name", "*"),
                     f"{origin}, policy {number}")
            )
    return tuple(rules), problems


def _wrong(entry: Mapping[str, Any], number: int, file: str | None) -> Iterable[Problem]:
    for key in entry:
        if key not in RULE_KEYS:
            yield Problem(
                _BAD, f"policy {number}: {key} is not a key of a rule", file=file,
                remedy=suggest(str(key), list(RULE_KEYS), f"a rule has {', '.join(RULE_KEYS)}"),
            )
    for key, words in (("risk", (*RISKS, ANY)), ("action", ACTIONS)):
        value = entry.get(key)
        if value in words:
            continue
        what = "is missing" if key not in entry else f"is {value!r}, which is none"
        yield Problem(
            _BAD, f"policy {number}: {key} {what}", file=file,
            remedy=suggest(str(value), words, f"write one of {', '.join(words)}"),
        )
    name = entry.get("name", "*")
    if not isinstance(name, str) or not name.strip():
        yield Problem(
            _BAD, f"policy {number}: name is {name!r}, which is no pattern", file=file,
            remedy='write name = "schema.*", or leave it out for every name',
        )


def name_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of names: ``*`` and ``?`` are wild, upper and lower case alike.

    Nothing else is wild; a line break in a name is a character too.
    """
    wild = {"*": ".*", "?": "."}
    body = "".join(wild.get(character) or re.escape(character) for character in text)
    return re.compile(f"{body}\\Z", re.IGNORECASE | re.DOTALL)
