"""What a start takes, as one value that every entry point passes on whole.

A new option is a field of :class:`BootstrapOptions`, a keyword of :class:`BootstrapArguments` and a
line of ``_TAKEN``; no call that takes or passes on options changes for it.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from catalog_migrate.catalog.opening import USUAL_SESSIONS, SessionSettings
from catalog_migrate.errors import EditedPlan, InvalidArguments
from catalog_migrate.policy import Policy
from catalog_migrate.store.address import rows_address
from catalog_migrate.store.local import read_file
from catalog_migrate.users.settings import UserSettings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from catalog_migrate.model.progress import OnProgress
    from catalog_migrate.planner.plan import Plan


class CallArguments(TypedDict, total=False):
    """The options that only a call can say: no key of the configuration has them."""

    approve: Collection[str]
    on_progress: OnProgress | None
    populate: Callable[[Any, str, str], None] | None
    read_only: bool
    reason: str | None
    session: bool


class BootstrapArguments(CallArguments, total=False):
    """All options, as keyword arguments; :func:`~catalog_migrate.hook.bootstrap` says what each is.

    None stands for what counts where an option is not given.
    """

    policy: Policy | None
    require_safe_commits: bool
    safe_log_stores: Collection[str]
    threads: int
    timeout: float | None
    untried_stores: Collection[str]
    users: UserSettings | None
    warehouse: str | os.PathLike[str] | None


class BootstrapOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a start is to be done, as one value: what its caller said and what its process adds.

    The first fields are those of :class:`BootstrapArguments`, read; ``plan`` is an approved plan:
    anything else is refused. ``timeout`` None waits for the lease as
    :func:`~catalog_migrate.catalog.lease.acquire` does without one.

    Of the process: ``ttl`` and ``margin`` are the lease's, ``holder`` its name. A catalog that is
    created now remembers ``sessions``; ``token`` names new shards.
    ``asks_for_users`` blocks a plan that breaks a user's object without an approval, as a command
    does where a person can answer; else it is reported.
    """

    approve: tuple[str, ...] = ()
    on_progress: OnProgress | None = None
    plan: Plan | None = None
    policy: Policy = Policy()
    populate: Callable[..., None] | None = None
    read_only: bool = False
    reason: str | None = None
    require_safe_commits: bool = True
    safe_log_stores: tuple[str, ...] = ()
    session: bool = False
    threads: int = 4
    timeout: float | None = 600.0
    untried_stores: tuple[str, ...] = ()
    users: UserSettings = UserSettings()
    warehouse: str | None = None

    asks_for_users: bool = False
    holder: str = ""
    margin: float = 10.0
    sessions: SessionSettings = USUAL_SESSIONS
    token: Callable[[], str] | None = None
    ttl: float = 30.0

    @property
    def approvals(self) -> tuple[str, ...]:
        """What is approved: an approved plan says it all."""
        return self.approve if self.plan is None else self.plan.approved

    @property
    def approvals_of_users(self) -> tuple[str, ...]:
        """What is approved of users' objects: they may be others than when a plan was approved."""
        return (*self.approve, *(() if self.plan is None else self.plan.approved))


def read_arguments(
    base: BootstrapOptions, plan: Plan | str | os.PathLike[str] | None = None, /,
    **arguments: Unpack[BootstrapArguments],
) -> BootstrapOptions:
    """Return ``base`` with what a call says, ``plan`` (or its file) approved.

    Raises InvalidArguments with everything that is wrong with the arguments, UsageError for a
    warehouse where rows cannot be, EditedPlan for a file that is no plan.
    """
    return _read(base, {"plan": plan, **arguments}, _TAKEN)


def read_call(base: BootstrapOptions, /, **arguments: Unpack[CallArguments]) -> BootstrapOptions:
    """Return ``base``, which is what is configured, with what only a call can say.

    Raises as :func:`read_arguments`, also for what the configuration says.
    """
    return _read(base, arguments, CallArguments.__annotations__)


def _read(
    base: BootstrapOptions, said: Mapping[str, Any], known: Collection[str]
) -> BootstrapOptions:
    problems = [
        f"{name} takes {_TAKEN[name][0]}, and this is {reprlib.repr(value)}"
        if name in known else _unknown(name, known)
        for name, value in said.items()
        if name not in known or not (value is None or _TAKEN[name][1](value))
    ]
    if problems:
        raise InvalidArguments(
            f"a start takes other arguments: {'; '.join(problems)}",
            remedy="help(catalog_migrate.bootstrap) says what each is; what is configured is no"
            " argument beside a configuration",
            problems=problems,
        )
    found: dict[str, Any] = {
        name: tuple(value) if _TAKEN[name] is _TEXTS else value
        for name, value in said.items() if value is not None
    }
    if isinstance(found.get("plan"), (str, os.PathLike)):
        found["plan"] = read_plan(found["plan"])
    if "warehouse" in found:
        untried = found.get("untried_stores", base.untried_stores)
        found["warehouse"] = rows_address(os.fspath(found["warehouse"]), untried)
    return msgspec.structs.replace(base, **found)


def _unknown(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(known), n=1)
    return f"there is no {name}" + (f": {near[0]}?" if near else "")


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file; EditedPlan where it is unreadable or was changed by hand."""
    from catalog_migrate.planner.planfile import decode_plan

    try:
        data = read_file(path)
    except OSError as error:
        raise EditedPlan(
            f"{os.fspath(path)} cannot be read: {error.strerror}",
            remedy="name a file of `plan --out FILE`",
        ) from error
    return decode_plan(data)


def _is_plan(value: Any) -> bool:
    from catalog_migrate.planner.plan import Plan

    return isinstance(value, (Plan, str, os.PathLike))


def _are_texts(value: Any) -> bool:
    """A text by itself would be taken for its letters."""
    return (
        isinstance(value, Collection) and not isinstance(value, (str, bytes))
        and all(isinstance(each, str) for each in value)
    )


def _is(*kinds: type[Any], least: float | None = None) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, kinds) and (least is None or value >= least)
        and (bool in kinds or not isinstance(value, bool))
    )


_TEXTS = ("a list of texts", _are_texts)
_FLAG = ("True or False", _is(bool))
_FUNCTION = ("a function", callable)
_TAKEN: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "approve": _TEXTS,
    "on_progress": _FUNCTION,
    "plan": ("a plan or its file", _is_plan),
    "policy": ("a Policy", _is(Policy)),
    "populate": _FUNCTION,
    "read_only": _FLAG,
    "reason": ("a text", _is(str)),
    "require_safe_commits": _FLAG,
    "safe_log_stores": _TEXTS,
    "session": _FLAG,
    "threads": ("a whole number, 1 or more", _is(int, least=1)),
    "timeout": ("seconds, 0 or more", _is(int, float, least=0)),
    "untried_stores": _TEXTS,
    "users": ("UserSettings", _is(UserSettings)),
    "warehouse": ("a path or an address", _is(str, os.PathLike)),
}
"""What each argument takes, in words and as a test."""
