"""The four kinds of operations: the states that each leaves on record, and which may follow which.

A migration or rollback is on record as an intent up to its commit, and as the row
:data:`~catalog_migrate.catalog.records.RECONCILE` from there on; an ALTER and an unsafe operation
have a row of their own. Every commit is held to :data:`KINDS`
(:mod:`catalog_migrate.catalog.check`), so that nothing moves in another way, whoever takes it up
goes by it, and ``docs/states.md`` is printed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from catalog_migrate.catalog.records import RECONCILE, IntentRecord, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.program.steps import Op

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
"""``detail["phase"]`` of a trial whose old definition is back and whose queries are not yet."""

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
_MIGRATES = OperationKind(
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
            "Drops what stands in the way by ascending serial, from the catalog alone, creates what"
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
    MIGRATE: _MIGRATES,
    # planned from an earlier serial in place of a release; carried out as any other
    ROLLBACK: msgspec.structs.replace(_MIGRATES, title="rollback"),
    ALTER: OperationKind(
        "ALTER", _CLUSTER, ("validating",),
        {
            "validating": OperationState(
                ("trial", "failed"), "The change was asked for; nothing of it is in force.",
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
                "Every query stood still and has a snapshot; they are started on the new definition"
                " and watched.", "Starts and watches them.", moved="failed",
            ),
            _BACK: OperationState(
                ("set_back", "failed"), "The old definition is in force again, its queries do not"
                " run on it yet.", "Goes on rolling back.", moved="failed",
            ),
            "confirmed": OperationState(),
            UNCONFIRMED: OperationState(),
            "set_back": OperationState(),
            "failed": OperationState(),
        },
        ("validate", "stop", "settle", "edit", "start", "probe"),
        inverse=ALTER,
    ),
    UNSAFE: OperationKind(
        "unsafe operation", _CLUSTER, ("requested",),
        {
            "requested": OperationState(
                ("stopping", "refused", "stale"), "It was asked for; positions are as they were.",
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

_ENDED = OperationState()
_NO_STATES: Mapping[str, OperationState] = {}


# -- where an operation is -------------------------------------------------------------------------


def state_of(row: OperationRecord) -> str:
    """The state of a row, with its phase where that is declared."""
    with_phase = f"{row.state}, {row.detail.get('phase')}"
    return with_phase if with_phase in _states(row) else row.state


def declared_state(row: OperationRecord) -> OperationState:
    """The declared state of a row; an ended one for a row of another kind."""
    return _states(row).get(state_of(row), _ENDED)


def is_open(row: OperationRecord) -> bool:
    """Whether a runtime has to take an operation to its end; a backfill goes on beside it."""
    return bool(declared_state(row).leads_to) and row.state != BACKFILLING


def _states(row: OperationRecord) -> Mapping[str, OperationState]:
    kind = KINDS.get(row.kind)
    return _NO_STATES if kind is None else kind.states


def attempt_state(intent: IntentRecord) -> str:
    """The state of a migration or rollback that is not committed, or of a later attempt, which
    belongs to no plan."""
    if intent.committed:
        return SEALED
    if intent.abandoned:
        return ABANDONED
    if not intent.plan_hash:
        return LATER
    return SEALING if intent.seals else BUILDING


def committed_state(state: State) -> str | None:
    """The state of the migration or rollback that was committed; None when nothing is left of it.

    What statements on streams leave to the next start (a name to be dropped, a column of a source's
    table) counts as left of it. Of shards it looks at the texts, and decodes none.
    """
    row = state.operations[RECONCILE] if RECONCILE in state.raw.get("operation", {}) else None
    if row is not None and row.state == FAILED:
        return FAILED
    if any('"evolve":true' in text for text in state.raw.get("shard", {}).values()):
        return COMMITTED[0]
    if state.raw.get("tombstone"):
        return COMMITTED[1]
    return None if row is None else COMMITTED[2]


# -- that it goes no other way ---------------------------------------------------------------------


def wrong_transitions(state: State, before: State) -> Iterator[str]:
    """What moves between two committed states otherwise than its kind declares, in words.

    What a migration has left to do after its commit may come in any order; its program is held to.
    Rows of kinds that are not declared here are left alone.
    """
    for key in _changed(state, before, "operation"):
        stays = key in state.raw.get("operation", {})
        was, now = before.operations.get(key), state.operations[key] if stays else None
        if key != RECONCILE:
            yield from _moved(f"operation {key}", was, now)
        if now is not None:
            if was is not None and not was.program and state.serial > before.serial:
                was = None  # a word that names of a session failed gives way to the next migration
            yield from _programmed(f"operation {key}", key == RECONCILE, was, now)
    for key in _changed(state, before, "intent"):
        old, new = before.intents.get(key), state.intents.get(key)
        yield from _step(
            f"the attempt of epoch {key}", _MIGRATES, None if old is None else attempt_state(old),
            _find_end(state, before, old) if new is None else attempt_state(new),
        )


def _find_end(state: State, before: State, attempt: IntentRecord | None) -> str:
    """Where an attempt is whose record a commit took away: its own one, or a clean-up after it."""
    if attempt is not None and attempt.committed:
        return "done"
    if state.serial > before.serial:
        return committed_state(state) or "done"
    return "undone"


def _changed(state: State, before: State, collection: str) -> Collection[str]:
    new, old = state.raw.get(collection, {}), before.raw.get(collection, {})
    if new is old:
        return ()
    return sorted(key for key in new.keys() | old.keys() if new.get(key) != old.get(key))


def _moved(name: str, old: OperationRecord | None, new: OperationRecord | None) -> Iterator[str]:
    """A row of its own goes from state to state, and is forgotten only when it has ended."""
    if new is None:
        if old is not None and declared_state(old).leads_to:
            yield f"{name} is forgotten while it is {state_of(old)}"
    elif new.kind in KINDS:
        was = None if old is None else state_of(old)
        yield from _step(name, KINDS[new.kind], was, state_of(new))


def _programmed(
    name: str, migrates: bool, old: OperationRecord | None, new: OperationRecord
) -> Iterator[str]:
    """A program has operations of its kind; it changes with the state, that of a migration never.

    It may go: what is left to do is then ordered anew, from what is observed.
    """
    kind = _MIGRATES if migrates else KINDS.get(new.kind)
    if kind is None or not new.program or (old is not None and new.program == old.program):
        return
    known = set(kind.steps)
    for op in sorted({str(step.get("op")) for step in new.program} - known):
        yield f"{name} is to {op}, which no {kind.title} does"
    if old is not None and (migrates or state_of(old) == state_of(new)):
        yield f"{name} gets another program while it is {state_of(old)}"


def _step(name: str, kind: OperationKind, old: str | None, new: str | None) -> Iterator[str]:
    """Whether a state may follow another; None stands for nothing on record."""
    if old == new or (old is not None and old not in kind.states):
        return  # another version of the tool wrote it
    if old is None:
        if new not in kind.begins:
            yield f"{name} begins as {new}"
    elif new not in kind.states[old].leads_to and new != kind.states[old].moved:
        yield f"{name} goes from {old} to {new}"
