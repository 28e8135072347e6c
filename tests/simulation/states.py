"""The crash table: every durable state, who may leave it, and what each release finds there.

The states of operations are :data:`~catalog_migrate.operations.kinds.KINDS`, to which every
commit is held; those between operations, and of a whole installation, are written here.
``docs/states.md`` is printed from these values (``make docs``). ``tests/catalog/test_states.py``
kills starts of a small installation at every call of engine and log, tells the state by
:attr:`DurableState.stands`, and holds what the next start does against the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, cast

import msgspec

from catalog_migrate.catalog.lease import MIGRATION
from catalog_migrate.catalog.operation_states import attempt_state, find_committed_state
from catalog_migrate.catalog.state import State
from catalog_migrate.hook import Outcome
from catalog_migrate.operations.kinds import (
    ABANDONED,
    ALTER,
    BUILDING,
    COMMITTED,
    FAILED,
    KINDS,
    LATER,
    MIGRATE,
    ROLLBACK,
    SEALED,
    SEALING,
    UNSAFE,
    OperationState,
)

InForce = Literal["none", "old", "new"]
"""Which release is in force in a state, seen from the start that was killed."""

SCAN = "tests/catalog/test_states.py::"
"""Where the states of built-ins are tried, each at every call that leads to it."""


class Found(msgspec.Struct, frozen=True):
    """What one start finds and does: its outcome, None where that start cannot be, and words."""

    outcome: Outcome | None
    does: str


class DurableState(msgspec.Struct, frozen=True):
    """One row of the table.

    ``stands`` tells it from a committed state (None: the rows of an operation tell it, see
    ``holds``); ``in_force`` narrows it; the first row of the table that fits is the state's.
    ``holds`` says what is on record and in the world, ``leaves`` who may end it. ``same`` is the
    release that was being brought in, ``old`` the one before it, ``third`` a later one. ``tests``
    are ``file::function`` of the tests that show it.
    """

    name: str
    in_force: InForce | Literal["any"]
    stands: Callable[[State], bool] | None
    holds: str
    leaves: str
    same: Found
    old: Found
    third: Found
    tests: tuple[str, ...]


def _held(state: State) -> bool:
    lease = state.leases.get(MIGRATION)
    return lease is not None and bool(lease.holder)


_NOBODY = Found(None, "there is no earlier release")
_FENCED = Found("fenced_out", "does nothing and says why (exit 5)")
_LEASE = "the holder of the migration lease"

_UPGRADE_KILLED = (
    SCAN + "test_every_call_of_an_upgrade_may_be_its_last",
    "tests/crash/test_kill_at_every_step.py::test_every_call_of_an_upgrade_may_be_its_last",
)
_REFILL_KILLED = SCAN + "test_every_call_of_a_refill_may_be_its_last"
_MIGRATIONS_SHOWN: dict[str, tuple[str, ...]] = {
    BUILDING: _UPGRADE_KILLED,
    SEALING: (
        *_UPGRADE_KILLED, "tests/crash/test_kill_at_every_step.py::test_killed_four_times_in_a_row",
    ),
    ABANDONED: (SCAN + "test_every_call_of_an_upgrade_that_fails_may_be_its_last",),
    LATER: (
        _REFILL_KILLED, "tests/simulation/test_reshaping.py::test_every_call_may_be_the_last",
    ),
    SEALED: (
        "tests/simulation/test_filling.py::test_every_call_may_be_the_last",
        "tests/crash/test_filled_table.py::test_a_split_that_is_killed_is_taken_to_its_end",
    ),
    FAILED: (SCAN + "test_a_step_that_is_refused_after_the_commit",),
    COMMITTED[0]: (
        _UPGRADE_KILLED[0], "tests/simulation/test_reshaping.py::test_every_call_may_be_the_last",
    ),
    COMMITTED[1]: (
        SCAN + "test_every_call_of_a_change_of_views_may_be_its_last", _UPGRADE_KILLED[1],
    ),
    COMMITTED[2]: (_REFILL_KILLED,),
}
"""The tests that show each state of a migration or rollback."""


def _of_migrations() -> Iterator[DurableState]:
    """The states of migrations and rollbacks that are not over, as the product declares them."""
    kind = KINDS[MIGRATE]
    for name, state in kind.states.items():
        if state.outcomes:
            same, old, third = (
                _FENCED if outcome == "fenced_out" else Found(cast("Outcome", outcome), state.then)
                for outcome in state.outcomes
            )
            yield DurableState(
                name, "any", partial(_is_at, name), state.stands,
                f"{kind.holder}: {_after(state)}", same, old, third, _MIGRATIONS_SHOWN[name],
            )


def migration_state(state: State) -> str | None:
    """The most urgent state of migrations and rollbacks; None when nothing is left of any."""
    attempts = [attempt_state(intent) for intent in state.intents.values()]
    order = [*KINDS[MIGRATE].states].index
    return min(attempts, key=order, default=None) or find_committed_state(state)


def _is_at(name: str, state: State) -> bool:
    return migration_state(state) == name


def _after(state: OperationState) -> str:
    """What may follow a state."""
    then = _listed(state.leads_to)
    return f"{then}; a move of the catalog: *{state.moved}*" if state.moved else then


def _listed(names: tuple[str, ...]) -> str:
    """States by name; *committed* is each that begins so."""
    if set(COMMITTED) <= set(names):
        names = (*(name for name in names if name not in COMMITTED), "committed")
    return f"*{'*, *'.join(names)}*"


MIGRATIONS: tuple[DurableState, ...] = tuple(_of_migrations())
"""States of migrations and rollbacks, the most urgent first."""

AT_REST: tuple[DurableState, ...] = (
    DurableState(
        "retired data being removed", "new",
        lambda state: any(shard.removing for shard in state.shards.values()),
        "A shard whose retention is over is on record as `gone`, and its files may be there, all or"
        " some: no rollback counts on them any more.",
        f"{_LEASE}: deletes the files, then takes that off the record",
        Found("resumed", "deletes what is left of the files"),
        _FENCED,
        Found("migrated", "deletes what is left of the files, then brings in its own release"),
        (SCAN + "test_every_call_of_a_removal_may_be_its_last",),
    ),
    DurableState(
        "catalog created", "none",
        lambda state: state.release_in_force() is None,
        "The log has its settings, and maybe a lease of a process that died; nothing is in force.",
        "the next start",
        Found("initialized", "brings in its release as the first"),
        _NOBODY,
        Found("initialized", "brings in its release as the first"),
        (SCAN + "test_every_call_of_a_first_start_may_be_its_last",),
    ),
    DurableState(
        "lease of a dead process", "old",
        _held,
        "A process died between taking the lease and its intent.",
        "its successor: at once when it is proven dead, else after the TTL and the margin",
        Found("migrated", "waits for the lease, plans as if nothing had been"),
        Found("unchanged", "needs no lease: nothing is to do"),
        Found("migrated", "waits for the lease, brings in its own release"),
        (SCAN + "test_every_call_of_an_upgrade_may_be_its_last",
         "tests/bootstrap/test_concurrent.py::test_one_migrates_and_the_others_follow"),
    ),
    DurableState(
        "derived tables unfilled", "new",
        lambda state: any(
            shard.unfilled and shard.state == "live" for shard in state.shards.values()
        ),
        "The new release is in force; derived tables are empty and listed (exit 0).",
        "a start with a `populate` callback",
        Found("unchanged", "with a callback fills them into new shards; without one lists them"),
        _FENCED,
        Found("migrated", "brings in its own release and fills what it can"),
        (SCAN + "test_every_call_of_a_refill_may_be_its_last",
         "tests/bootstrap/test_populate.py::test_derived_tables_from_their_first_rows_to_new_ones"),
    ),
    DurableState(
        "shards retired", "new",
        lambda state: any(shard.state == "retired" for shard in state.shards.values()),
        "Replaced shards lie sealed beside the new ones, for readers and for going back.",
        f"{_LEASE}, when the retention is over: they are on record as `gone`, then the data goes;"
        " the sealed log stays",
        Found("unchanged", "leaves them; after the retention removes their data (*resumed*)"),
        _FENCED,
        Found("migrated", "brings in its own release; theirs are retired beside them"),
        (SCAN + "test_retired_data_goes_after_the_retention",),
    ),
    DurableState(
        "nothing begun", "old",
        lambda _: True,
        "A start died before it took the lease.",
        "a start with another release",
        Found("migrated", "plans as if nothing had been"),
        Found("unchanged", "writes nothing"),
        Found("migrated", "brings in its own release"),
        (SCAN + "test_every_call_of_an_upgrade_may_be_its_last",),
    ),
    DurableState(
        "in force", "new",
        lambda _: True,
        "Nothing is pending, and nothing was replaced within the retention.",
        "a start with another release",
        Found("unchanged", "writes nothing"),
        _FENCED,
        Found("migrated", "brings in its own release"),
        (SCAN + "test_retired_data_goes_after_the_retention",
         "tests/bootstrap/test_outcomes.py::test_a_catalog_from_nothing_to_its_fifth_release"),
    ),
)
"""States of built-in objects between two operations, the most urgent first."""

_GOES_ON = "the runtime of the cluster, whatever release it was started with"


def _operation(
    name: str, holds: str, leaves: str, does: str, *tests: str
) -> DurableState:
    found = Found(None, does)
    return DurableState(name, "any", None, holds, leaves, found, found, found, tests)


_ALTER_KILLED = (
    "tests/streams/crash/test_alter_killed.py::test_an_alter_that_is_killed",
    "tests/streams/crash/test_one_of_each.py::test_killed_and_frozen",
)
_UNSAFE_KILLED = (
    "tests/streams/crash/test_unsafe_killed.py::test_a_runtime_that_is_killed",
    "tests/streams/unsafe/test_killed.py::test_killed_at_any_moment",
)
_FROZEN = "tests/streams/test_operations.py::test_a_frozen_operation_is_ended"
_SHOWN: dict[str, dict[str, tuple[str, ...]]] = {
    ALTER: {
        "validating": (*_ALTER_KILLED, _FROZEN),
        "trial": (
            *_ALTER_KILLED, _FROZEN,
            "tests/streams/crash/test_frozen_runtime.py::test_a_frozen_runtime_that_wakes_up",
        ),
        "trial, started": (*_ALTER_KILLED, _FROZEN),
        "trial, setting back": (
            "tests/streams/test_operations.py::test_while_it_goes_back", _FROZEN,
        ),
        "ended": ("tests/streams/test_alter.py::test_old_operations_are_forgotten",),
    },
    UNSAFE: {
        "requested": _UNSAFE_KILLED,
        "stopping": (*_UNSAFE_KILLED, _FROZEN),
        "restoring": ("tests/streams/unsafe/test_killed.py::test_killed_while_a_table_goes_back",),
        "committed": (*_UNSAFE_KILLED, _ALTER_KILLED[1], _FROZEN),
        "backfilling": ("tests/streams/running/test_unsafe_under_queries.py::test_backfill",),
        "ended": ("tests/streams/running/test_unsafe_under_queries.py::test_on_record",),
    },
}
"""The tests that show each state of an operation's row; those of ended ones stand together."""


def _declared(word: str) -> tuple[DurableState, ...]:
    """The states of a kind of operations on running queries."""
    kind = KINDS[word]
    return tuple(
        _operation(
            f"{kind.title}, {name}", state.stands,
            f"{kind.holder}: {_after(state)}" if state.leads_to else "no process", state.then,
            *_SHOWN[word][name if state.leads_to else "ended"],
        )
        for name, state in kind.states.items()
    )


OPERATIONS: tuple[DurableState, ...] = (
    *_declared(ALTER),
    *_declared(UNSAFE),
    _operation(
        "a sink behind a migrated table",
        "The table has a new shard; the sink's positions are of the old one, which it reads to the"
        " seal.",
        "the runtime that runs the sink",
        "Reads to the seal, commits the edit with the exact target, goes on in the new shard.",
        "tests/streams/test_following.py::test_cut_off_between_commit_and_edit",
        "tests/streams/running/test_builtins_under_streams.py::test_three_releases",
    ),
)
"""States of operations on running queries: releases do not matter, leases of clusters do."""

INSTALLATIONS: tuple[DurableState, ...] = (
    _operation(
        "users' objects to look at",
        "Records of users' views and functions that read ours are older than the release in force:"
        " they say what was found before its commit.",
        "a start whose names outlive its session, under the lease",
        "Binds each of them as it is now and puts on record what is bound and what is broken.",
        "tests/users/test_start.py::test_killed_at_every_call",
    ),
    _operation(
        "a session at an older serial",
        "A `session` row of a process that lives, or may live, with names and columns of before.",
        "the process itself when it starts again; another one that finds it proven dead;"
        " `unlock --session`",
        "Columns that would be renamed, moved or dropped in place are copied instead.",
        "tests/catalog/test_sessions.py::test_the_proven_dead_do_not_count_and_go",
        "tests/administration/test_command_line.py::test_unlock_of_sessions",
    ),
    _operation(
        "adoption under way",
        "Some tables carry the mark of this installation; nothing of them is committed.",
        "the same `init --adopt`; another installation is refused by the mark",
        "A start does not know the tables yet: it would find foreign ones under the names.",
        "tests/administration/test_adoption.py::test_a_killed_adoption_is_finished_by_the_same_call",
        "tests/administration/test_adoption.py::test_the_second_finds_the_mark",
    ),
    _operation(
        "moved or copied",
        "The catalog's `home` is another directory than the one it is opened in.",
        "`relocate`; with `--new-lineage` where it is a copy",
        "Refused (reading is free), and told which of the two commands is meant.",
        "tests/administration/test_relocation.py::test_a_copy_cannot_be_written",
        "tests/administration/test_command_line.py::test_relocate_of_a_copy",
    ),
    _operation(
        "relocation under way",
        "Some shards of a copy carry the new lineage, the catalog the old one.",
        "the same `relocate`",
        "Refused, as moved or copied.",
        "tests/administration/test_relocation.py::test_killed_in_between_is_finished_by_the_same_call",
    ),
    _operation(
        "log lost",
        "Shards lie below the warehouse and there is no log, or one that cannot be read.",
        "`rebuild`, or a backup",
        "Refused: a catalog is not created beside rows of a lost one.",
        "tests/administration/test_rebuild.py::test_a_catalog_is_not_created_beside_rows_of_a_lost_one",
        "tests/administration/test_rebuild.py::test_killed_in_between_is_finished_by_the_same_call",
    ),
    _operation(
        "exported, or being exported",
        "The catalog is closed; names are, or are to become, plain registrations without marks.",
        "the same `export`; then no process",
        "Refused, and told to adopt the tables into a new catalog.",
        "tests/administration/test_export.py::test_killed_at_every_step_it_is_finished_by_running_it_again",
        "tests/administration/test_export.py::test_an_exported_table_may_be_adopted_by_another",
    ),
)
"""States of a whole installation: whatever release starts finds the same."""


def state_of(state: State, in_force: InForce) -> DurableState:
    """The row of a committed state, given which release is in force in it."""
    return next(
        row
        for row in (*MIGRATIONS, *AT_REST)
        if row.stands is not None and row.in_force in ("any", in_force) and row.stands(state)
    )


def page() -> str:
    """``docs/states.md``."""
    lines = [
        "# Durable states: where a kill leaves an installation, and what comes next",
        "",
        "What a killed process leaves, and what the next start does about it.",
        "Printed by `make docs` from `catalog_migrate/operations/kinds.py`, to which every"
        " commit is held, and",
        "from `tests/simulation/states.py`; a test refuses a page that differs.",
        "",
        "A process may die at any call. What it leaves is one of these states, told from the"
        " durable catalog",
        "alone; where several fit, the first of the table counts. *same* is the release that was"
        " being brought",
        "in, *old* the one before it, *third* a later one. Words in bold are the outcome that"
        " `bootstrap` reports.",
        "",
        "## Operations",
        "",
        "Each is of one of four kinds. A commit that takes one on in a way that is not declared"
        " here is refused whole.",
        "",
        "| kind | begins as | its program may | is taken back by |",
        "|---|---|---|---|",
        *(
            f"| {kind.title} | {_listed(kind.begins)} | "
            + ", ".join(kind.steps)
            + f" | {KINDS[kind.inverse].title} |"
            for kind in KINDS.values()
        ),
        "",
        "## Migrations and rollbacks",
        "",
        f"A {KINDS[ROLLBACK].title} goes as a {KINDS[MIGRATE].title} does: only its plan is made of"
        " what an earlier serial had. A start that",
        "is **fenced_out** does nothing and says why (exit 5); every other one first does what the"
        " table says, then brings",
        "in its own release where that is not in force. *done* and *undone* leave nothing on"
        " record; *committed* is each",
        "state that begins so.",
        "",
        *_table(MIGRATIONS, outcomes=True),
        "",
        "## Between operations",
        "",
    ]
    for row in AT_REST:
        forces = {"none": "nothing", "old": "the old release", "new": "the new release"}
        lines += [
            f"### {row.name[0].upper()}{row.name[1:]}", "",
            row.holds + (
                f" In force: {forces[row.in_force]}." if row.in_force in forces else ""
            ),
            f"Left by {row.leaves}.", "",
            "| the next start is of | it |", "|---|---|",
            *(f"| {who} | {_cell(found)} |" for who, found in (
                ("the same release", row.same), ("the old release", row.old),
                ("a third release", row.third),
            )),
            "", "Shown by " + ", ".join(f"`{test}`" for test in row.tests) + ".", "",
        ]
    lines += [
        "## Operations on running queries", "",
        f"Ended by {_GOES_ON}: same, old and third do alike.", "", *_table(OPERATIONS), "",
        "Beside them: the replication slot of a dropped source on PostgreSQL is on record until the"
        " runtime of its",
        "cluster, or the client that dropped the source, has dropped it. Shown by"
        " `tests/streams/test_upstream_tables.py::test_a_slot_goes_with_its_source`.",
        "",
        "## The whole installation", "",
        "Whatever release a start is of, it finds and does the same.", "", *_table(INSTALLATIONS),
    ]
    return "\n".join(lines) + "\n"


def _table(rows: tuple[DurableState, ...], *, outcomes: bool = False) -> list[str]:
    """Rows whose three starts do alike, or, with ``outcomes``, report as it says."""
    return [
        "| state | what stands | who may leave it | what the next one does | "
        + "a start of the same, the old, a third release reports | " * outcomes + "shown by |",
        "|---" * (5 + outcomes) + "|",
        *(
            f"| {row.name} | {row.holds} | {row.leaves} | {row.same.does} | "
            + "".join(
                f"**{found.outcome}**{mark}"
                for found, mark in ((row.same, ", "), (row.old, ", "), (row.third, " | "))
                if outcomes
            )
            + ", ".join(f"`{test}`" for test in row.tests) + " |"
            for row in rows
        ),
    ]


def _cell(found: Found) -> str:
    return found.does if found.outcome is None else f"**{found.outcome}**: {found.does}"


if __name__ == "__main__":
    print(page(), end="")
