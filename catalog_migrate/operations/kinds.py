"""The four kinds of operations: the states that each leaves on record, and which may follow which.

A migration or rollback is on record as an intent up to its commit, and as the row
:data:`~catalog_migrate.catalog.records.RECONCILE` from there on; an ALTER and an unsafe operation
have a row of their own. Every commit is held to :data:`KINDS`
(:mod:`catalog_migrate.catalog.check`), so that nothing moves in another way, whoever takes it up
goes by it, and ``docs/states.md`` is printed from it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catalog_migrate.operations.steps import Op

MIGRATE = "migrate"
"""The kind that brings in a release; the word of its commit in the history."""

ROLLBACK = "rollback"
"""The kind that brings back what an earlier serial had; the word of its commit in the history."""

ALTER = "alter"
"""Kind of an operation row that changes a definition under running queries."""

UNSAFE = "unsafe"
"""Kind of an operation row that overrides properties or positions."""

STARTED = "started"
"""``detail["phase"]`` of a trial whose queries stand on the new definition, with snapshots."""

ROLLING_BACK = "setting back"
"""``detail["phase"]`` of a trial whose old definition is back and whose queries are not yet.

The word on record is older than the one that is used elsewhere, as is that of ``ROLLED_BACK``.
"""

ROLLED_BACK = "set_back"
"""State of an ALTER that ended on its old definition, with every query healthy on it."""

UNCONFIRMED = "unconfirmed"
"""State of an ALTER that ended on its new definition without every query being healthy."""

BACKFILLING = "backfilling"
"""State of an operation that is committed and applied, while what it skipped is being read."""


class OperationState(msgspec.Struct, frozen=True):
    """A state of an operation on record, and what whoever finds it does.

    ``leads_to`` names the states that may follow, none of an ended one. ``refused`` is there while
    what is in force is as it was: where an error ends it, and whoever did not begin it. ``moved``
    is where it ends when the whole catalog is moved or copied meanwhile. ``held``: the operation
    holds its queries. ``alone``: it can be ended without Spark.
    ``stands`` and ``then`` are for docs/states.md: what stands, and what the next one does.
    ``outcomes`` are what a start reports that finds it: one of the same release, of the one before
    it, of a later one.
    """

    leads_to: tuple[str, ...] = ()
    stands: str = "It has ended; no hold of it is left."
    then: str = "Nothing."
    refused: str = ""
    moved: str = ""
    held: bool = False
    alone: bool = False
    outcomes: tuple[str, str, str] | tuple[()] = ()


class OperationKind(msgspec.Struct, frozen=True):
    """What operations of a kind are made of.

    ``begins`` are the states that one may come on record in, ``states`` all of them in order (a
    state with phases has one entry for each), ``steps`` what its program may have; ``inverse``
    is the kind that takes one back. ``holder`` says who takes it on, ``title`` is for people.
    """

    title: str
    holder: str
    begins: tuple[str, ...]
    states: Mapping[str, OperationState]
    steps: tuple[Op, ...]
    inverse: str


_STARTED, _BACK = f"trial, {STARTED}", f"trial, {ROLLING_BACK}"
_CLUSTER = "the holder of the cluster's lease"
_BEFORE = ("migrated", "resumed", "migrated")
_AFTER = ("resumed", "fenced_out", "migrated")

BUILDING, SEALING, ABANDONED, LATER = "building", "sealing", "abandoned", "later attempt"
SEALED = "committed, sealed"
FAILED = "failed"
COMMITTED = ("committed, evolve pending", "committed, tombstones pending", "committed, reconciling")
"""States from the commit on, told by what is left, the most urgent first."""

_UNDO = (
    "Fences the sealed shards, takes the seals off, deletes the intent's paths, then the intent."
)
MIGRATES = OperationKind(
    "migration", "the holder of the migration lease",
    (BUILDING, LATER, SEALED, *COMMITTED, FAILED),
    {
        BUILDING: OperationState(
            (SEALING, *COMMITTED, ABANDONED, "undone"),
            "An *intent* names the new shards of an attempt (`building`), which may be half filled."
            " The release in force is whole.",
            "Deletes the intent's paths, then the intent.", refused="undone", outcomes=_BEFORE,
        ),
        SEALING: OperationState(
            (*COMMITTED, ABANDONED, "undone"),
            "The intent also names shards in force that are sealed, or about to be, with their"
            " earlier properties: appends to those fail loudly.",
            _UNDO, refused="undone", outcomes=_BEFORE,
        ),
        ABANDONED: OperationState(
            ("undone",),
            "Its own process has begun to undo the attempt, which cannot be committed any more.",
            _UNDO, refused="undone", outcomes=_BEFORE,
        ),
        LATER: OperationState(
            (*COMMITTED, FAILED, ABANDONED, "undone", "done"),
            "An intent names new shards for tables of a release in force: derived ones not"
            " filled yet, or one whose change in place was refused; or seals that `rebuild` found.",
            f"{_UNDO} Fills and copies into others.", refused="undone", outcomes=_AFTER,
        ),
        FAILED: OperationState(
            (*COMMITTED, "done"),
            "Committed, and a step of what was committed was refused: `status` names it.",
            "Takes the step again, and the others, when the cause is fixed.", outcomes=_AFTER,
        ),
        SEALED: OperationState(
            ("done",),
            "The new release is in force. Tables that another one was filled from keep their"
            " directories and are still sealed, so that no row came that was not read.",
            "Changes them in place where that is pending, then takes the seals off and puts the"
            " earlier properties back.", outcomes=_AFTER,
        ),
        COMMITTED[0]: OperationState(
            (*COMMITTED[1:], FAILED, "done"),
            "The new release is in force; a shard that was taken over still has its old columns,"
            " all or some: this is where those that are dropped in place lose their values.",
            "Changes the shard in place, by physical names; copies what is refused.",
            outcomes=_AFTER,
        ),
        COMMITTED[1]: OperationState(
            (COMMITTED[0], COMMITTED[2], FAILED, "done"),
            "The new release is in force; names of the old one are still to be dropped, each told"
            " by exactly what stood there.",
            "Drops what is in the way by ascending serial, from the catalog alone, creates what"
            " is missing.", outcomes=_AFTER,
        ),
        COMMITTED[2]: OperationState(
            (*COMMITTED[:2], FAILED, "done"),
            "The new release is in force; names are still to be brought in line.",
            "Compares names with what is committed and repairs the difference.", outcomes=_AFTER,
        ),
        "done": OperationState(stands="The new release is in force; nothing of it is pending."),
        "undone": OperationState(stands="Nothing of the attempt is left, nor in force."),
    },
    (
        "build", "copy", "populate", "fill", "seal", "evolve", "properties",
        "unseal", "drop", "create", "redefine", "update",
    ),
    inverse=ROLLBACK,
)

KINDS: Mapping[str, OperationKind] = {
    MIGRATE: MIGRATES,
    # planned from an earlier serial in place of a release; carried out as any other
    ROLLBACK: msgspec.structs.replace(MIGRATES, title="rollback"),
    ALTER: OperationKind(
        "ALTER", _CLUSTER, ("validating",),
        {
            "validating": OperationState(
                ("trial", "failed"), "The change was requested; nothing of it is in force.",
                "Ends it as `failed`: nothing was changed.", refused="failed", moved="failed",
                alone=True,
            ),
            "trial": OperationState(
                (_STARTED, _BACK),
                "The new definition is in force; its queries are held and stopped.",
                "Goes on with the trial.", moved="failed", held=True,
            ),
            _STARTED: OperationState(
                ("confirmed", UNCONFIRMED, _BACK),
                "Every query was stopped and has a snapshot; they are started on the new definition"
                " and watched.", "Starts and watches them.", moved="failed",
            ),
            _BACK: OperationState(
                (ROLLED_BACK, "failed"), "The old definition is in force again, its queries do not"
                " run on it yet.", "Goes on rolling back.", moved="failed",
            ),
            "confirmed": OperationState(),
            UNCONFIRMED: OperationState(),
            ROLLED_BACK: OperationState(),
            "failed": OperationState(),
        },
        ("validate", "stop", "settle", "edit", "start", "probe"),
        inverse=ALTER,
    ),
    UNSAFE: OperationKind(
        "unsafe operation", _CLUSTER, ("requested",),
        {
            "requested": OperationState(
                ("stopping", "refused", "stale"), "It was requested; positions are as they were.",
                "Refuses it: nothing was changed.", refused="refused", moved="stale", alone=True,
            ),
            "stopping": OperationState(
                ("restoring", "committed", "refused", "stale"),
                "Queries are held, stopped and settled; positions are as they were.",
                "Refuses it and lifts its holds: nothing was changed.", refused="refused",
                moved="stale", held=True, alone=True,
            ),
            "restoring": OperationState(
                ("committed", "refused", "stale"),
                "All that is to be committed is on record; its source's table goes back meanwhile.",
                "Commits it where the table went back, else bars that and refuses it.", held=True,
                alone=True,
            ),
            "committed": OperationState(
                (BACKFILLING, "done"),
                "Definition, generation and the exact lines of every edited entry are committed.",
                "Rolls forward: repeats the edit on a checkpoint whose mark is older.", held=True,
                alone=True,
            ),
            BACKFILLING: OperationState(
                ("done",), "It is in force; what it skipped is being read into the table.",
                "Reads the chunks that the table lacks.",
            ),
            "done": OperationState(stands="It has ended and stays on record for good."),
            "refused": OperationState(),
            "stale": OperationState(),
        },
        ("validate", "stop", "settle", "restore", "edit", "start"),
        inverse=UNSAFE,
    ),
}
"""The kinds of operations by their words on record."""
