"""The crash table: every durable state, who may leave it, and what each release finds there.

``docs/states.md`` is printed from these values (``make docs``). ``tests/catalog/test_states.py``
kills starts of a small installation at every call of engine and log, tells the state by
:attr:`DurableState.stands`, and holds what the next start does against the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from catalog_migrate.catalog.lease import MIGRATION
from catalog_migrate.catalog.records import RECONCILE
from catalog_migrate.catalog.state import State
from catalog_migrate.hook import Outcome
from catalog_migrate.streams.operation_records import ALTER, KINDS, UNSAFE

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


def _intents(state: State, *, sealed: bool, refill: bool = False) -> bool:
    return any(
        bool(intent.seals) == sealed and (intent.release == "refill") == refill
        for intent in state.intents.values()
    )


def _reconcile(state: State) -> str | None:
    row = state.operations.get(RECONCILE)
    return None if row is None else row.state


def _held(state: State) -> bool:
    lease = state.leases.get(MIGRATION)
    return lease is not None and bool(lease.holder)


_NOBODY = Found(None, "there is no earlier release")
_FENCED = Found("fenced_out", "does nothing and says why (exit 5)")
_UNDOES = "whoever takes the lease next: fences the sealed shards, takes the seals off, deletes the"
_LEASE = "the holder of the migration lease"

BUILT_INS: tuple[DurableState, ...] = (
    DurableState(
        "attempt, nothing sealed", "any",
        lambda state: _intents(state, sealed=False),
        "An *intent* names the new shards of an attempt (`building`), which may be half filled."
        " The release in force is whole.",
        f"{_UNDOES} intent's paths, then the intent",
        Found("migrated", "deletes the attempt, prepares again in new shards, commits"),
        Found("resumed", "deletes the attempt; its own release stays in force"),
        Found("migrated", "deletes the attempt, brings in its own release"),
        (SCAN + "test_every_call_of_an_upgrade_may_be_its_last",
         "tests/crash/test_kill_at_every_step.py::test_every_call_of_an_upgrade_may_be_its_last"),
    ),
    DurableState(
        "attempt, sealing", "any",
        lambda state: _intents(state, sealed=True),
        "The intent also names shards in force that are sealed, or about to be, with their earlier"
        " properties: appends to those fail loudly.",
        f"{_UNDOES} intent's paths, then the intent",
        Found("migrated", "unseals, deletes, prepares again, commits"),
        Found("resumed", "unseals, so that appends go on; deletes; its own release stays in force"),
        Found("migrated", "unseals, deletes, brings in its own release"),
        (SCAN + "test_every_call_of_an_upgrade_may_be_its_last",
         "tests/crash/test_kill_at_every_step.py::test_killed_four_times_in_a_row"),
    ),
    DurableState(
        "refill under way", "new",
        lambda state: _intents(state, sealed=False, refill=True),
        "An intent of a later start names new shards for derived tables that nobody had filled.",
        f"{_LEASE}: deletes them, then fills into others",
        Found("resumed", "deletes them and fills again; without a callback the tables stay empty"),
        _FENCED,
        Found("migrated", "deletes them and brings in its own release"),
        (SCAN + "test_every_call_of_a_refill_may_be_its_last",
         "tests/bootstrap/test_populate.py::test_derived_tables_from_their_first_rows_to_new_ones"),
    ),
    DurableState(
        "reconciling failed", "new",
        lambda state: _reconcile(state) == "failed",
        "Committed, and a step of what was committed was refused: `status` names it.",
        f"{_LEASE}, when the cause is fixed",
        Found("resumed", "takes the step again, and the others"),
        _FENCED,
        Found("migrated", "takes the step again, then brings in its own release"),
        (SCAN + "test_a_step_that_is_refused_after_the_commit",),
    ),
    DurableState(
        "committed, evolve pending", "new",
        lambda state: any(shard.evolve for shard in state.shards.values()),
        "The new release is in force; a shard that was taken over still has its old columns, all or"
        " some: this is where those that are dropped in place lose their values.",
        f"{_LEASE}, rolling forward only",
        Found("resumed", "changes the shard in place, by physical names; copies what is refused"),
        _FENCED,
        Found("migrated", "changes the shard in place first, then brings in its own release"),
        (SCAN + "test_every_call_of_an_upgrade_may_be_its_last",
         "tests/simulation/test_reshaping.py::test_every_call_may_be_the_last"),
    ),
    DurableState(
        "committed, tombstones pending", "new",
        lambda state: bool(state.tombstones),
        "The new release is in force; names of the old one are still to be dropped, each told by"
        " exactly what stood there.",
        f"{_LEASE}, by ascending serial, from the catalog alone",
        Found("resumed", "drops what stands in the way, creates what is missing"),
        _FENCED,
        Found("migrated", "finishes the committed release first, then brings in its own"),
        (SCAN + "test_every_call_of_a_change_of_views_may_be_its_last",
         "tests/crash/test_kill_at_every_step.py::test_every_call_of_an_upgrade_may_be_its_last"),
    ),
    DurableState(
        "committed, reconciling", "new",
        lambda state: _reconcile(state) == "pending",
        "The new release is in force; names are still to be brought in line.",
        _LEASE,
        Found("resumed", "compares names with what is committed and repairs the difference"),
        _FENCED,
        Found("migrated", "finishes the committed release first, then brings in its own"),
        (SCAN + "test_every_call_of_a_refill_may_be_its_last",),
    ),
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
        "whoever starts",
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
"""States of built-in objects, the most urgent first."""

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


def _declared(kind: str, title: str) -> tuple[DurableState, ...]:
    """The states of a kind of operations, as the runner has them."""
    return tuple(
        _operation(
            f"{title}, {name}", row.stands,
            f"the holder of the cluster's lease: *{'*, *'.join(row.leads_to)}*" if row.leads_to
            else "nobody", row.then,
            *_SHOWN[kind][name if row.leads_to else "ended"],
        )
        for name, row in KINDS[kind].items()
    )


OPERATIONS: tuple[DurableState, ...] = (
    *_declared(ALTER, "ALTER"),
    *_declared(UNSAFE, "unsafe operation"),
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
        "a session at an older serial",
        "A `session` row of a process that lives, or may live, with names and columns of before.",
        "the process itself when it starts again; whoever finds it proven dead; `unlock --session`",
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
        "the same `export`; then nobody",
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
        for row in BUILT_INS
        if row.stands is not None and row.in_force in ("any", in_force) and row.stands(state)
    )


def page() -> str:
    """``docs/states.md``."""
    lines = [
        "# Durable states: where a kill leaves an installation, and what comes next",
        "",
        "Printed from `tests/simulation/states.py` by `make docs`; a test refuses a page"
        " that differs.",
        "",
        "A process may die at any call. What it leaves is one of these states, told from the"
        " durable catalog",
        "alone; where several fit, the first of the table counts. *same* is the release that was"
        " being brought",
        "in, *old* the one before it, *third* a later one. Words in bold are the outcome that"
        " `bootstrap` reports.",
        "",
        "## Built-in objects",
        "",
    ]
    for row in BUILT_INS:
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
        "## The whole installation", "",
        "Whatever release a start is of, it finds and does the same.", "", *_table(INSTALLATIONS),
    ]
    return "\n".join(lines) + "\n"


def _table(rows: tuple[DurableState, ...]) -> list[str]:
    """Rows whose three starts do alike."""
    return [
        "| state | what stands | who may leave it | what the next one does | shown by |",
        "|---|---|---|---|---|",
        *(
            f"| {row.name} | {row.holds} | {row.leaves} | {row.same.does} | "
            + ", ".join(f"`{test}`" for test in row.tests) + " |"
            for row in rows
        ),
    ]


def _cell(found: Found) -> str:
    return found.does if found.outcome is None else f"**{found.outcome}**: {found.does}"


if __name__ == "__main__":
    print(page(), end="")
