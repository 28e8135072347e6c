"""The operation behind every ALTER under running queries, as the runtime carries it out.

``validating``: connection and every dependent are probed with the new options, nothing is
committed. ``trial``: the new definition is committed and the affected queries are held, stopped,
settled, snapshotted, started and watched. ``confirmed``: all are healthy. ``set_back``: the old
definition is back and the queries run on it. ``failed``: not even that, or it was refused.
``unconfirmed``: not all are healthy, and the new definition stays, because its probes answer and
those of the old one do not: there is nothing to go back to.

Only the holder of the cluster's lease moves an operation. Every step can be repeated: a runtime
that finds one in ``trial`` goes on from what the row says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from catalog_migrate.catalog.records import HoldRecord, OperationRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.settle import perform, settlement
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from catalog_migrate.streams.effects import definition_hash
from catalog_migrate.streams.probes import Probing, Verdict, probe_queries, refusal, validate
from catalog_migrate.streams.supervisor import Known, Managed, Supervisor, input_known
from catalog_migrate.streams.upstream import Upstream

ALTER = "alter"
"""Kind of an operation row that changes a definition under running queries."""

OPEN = frozenset({"validating", "trial"})
"""States that are not the last."""

KEPT = 50
"""How many ended ALTERs SHOW OPERATIONS still lists."""

PROBE_AGAIN = 1.0
"""Seconds between two probes of what did not work."""

_LOOK = 0.01
"""Seconds between two looks at queries that are starting."""

STARTED = "started"
"""``detail["phase"]`` of a trial whose queries stand on the new definition, with snapshots."""

ROLLING_BACK = "setting back"
"""``detail["phase"]`` of a trial whose old definition is back and whose queries are not yet."""

UNCONFIRMED = "unconfirmed"
"""State of an ALTER that ended on its new definition without every query being healthy."""


@dataclass(slots=True)
class Operations:
    """Carries out the operations of one cluster with its supervisor's queries.

    ``say`` hears what becomes of each, by its key.
    """

    supervisor: Supervisor
    follow: Callable[[], State]
    alive: Callable[[], None]
    say: Callable[[str], None] = lambda _: None

    def pending(self, state: State) -> list[tuple[str, OperationRecord]]:
        """Open operations of this cluster, oldest first."""
        found = [
            (key, row) for key, row in state.operations.items()
            if row.kind == ALTER and row.state in OPEN and row.cluster == self.supervisor.cluster
        ]
        return sorted(found, key=lambda each: each[0])

    def carry_out(self, state: State, key: str, *, inherited: bool = False) -> None:
        """Take one operation to its end. ``inherited``: an earlier runtime had begun it."""
        row = state.operations[key]
        self.say(f"operation {key}: ALTER of {altered_item(state, row)}, {row.state}")
        try:
            self._carry_out(state, key, inherited=inherited)
        finally:
            self.supervisor.forget(state.operations[key].dependents)

    def _carry_out(self, state: State, key: str, *, inherited: bool) -> None:
        row = state.operations[key]
        if row.state == "validating":
            if inherited:
                self._finish(key, "failed", "the runtime ended while it validated; nothing changed")
                return
            if not self._validated(state, key, row):
                return
            state = self.follow()
            row = state.operations[key]
        if row.state != "trial":
            return
        self.supervisor.pinned.update(row.dependents)
        try:
            if row.detail.get("phase") == ROLLING_BACK or not self._on_after(state, row):
                self._roll_back(key, row)
            else:
                self._trial(key, row)
        finally:
            self.supervisor.pinned.difference_update(row.dependents)

    # -- validating ----------------------------------------------------------------------------

    def _validated(self, state: State, key: str, row: OperationRecord) -> bool:
        """Probe everything with the new definition; commit it with the holds when all is well.

        Spark makes the plans of the new queries meanwhile: most of what a start costs is spent
        while the old ones still run, and what it refuses is refused before the commit.
        """
        after = altered(state, row)
        with self.supervisor.ports.threads.pool(1, "plans") as pool:
            planning = pool.submit(self.supervisor.prepare, after, row.dependents)
            verdicts = validate(
                after, row.target, row.dependents,
                ports=self.supervisor.ports,
            ) if row.validate else []
            refused = planning.result()
        if row.validate:
            bad = [verdict for verdict in verdicts if not verdict.ok]
            named = {verdict.item_id for verdict in bad}
            bad += [
                refusal(after, item_id, error) for item_id, error in sorted(refused.items())
                if item_id not in named
            ]
            if bad:
                self._finish(key, "failed", "refused by validation", verdicts=bad)
                return False
        if not self._on_before(self.follow(), row):
            self._finish(key, "failed", "the definition changed meanwhile; nothing was done")
            return False

        def put(changes: Changes, current: State) -> None:
            redefine(changes, current, row.target, row.after, row.links_after)
            for item_id in row.dependents:
                changes.put(
                    "hold", f"{item_id}/operation:{key}/1",
                    HoldRecord(item_id=item_id, holder=f"operation:{key}",
                               reason=f"operation {key} is under way"),
                )
            changes.put("operation", key, msgspec.structs.replace(row, state="trial"))

        self._commit(put, "alter", altered_item(state, row))
        names = ", ".join(dependencies.display(state, each) for each in row.dependents)
        self.say(f"operation {key}: committed, these restart: {names}")
        return True

    # -- trial ---------------------------------------------------------------------------------

    def _trial(self, key: str, row: OperationRecord) -> None:
        state = self.follow()
        stays = ""
        with Probing(self._probe, self.supervisor.ports.threads) as probing:
            if row.detail.get("phase") != STARTED:
                row = self._stand_still(key, row, state, probing)
            problems = self._watch(row, probing)
            if problems:
                stays = self._nothing_to_go_back_to(row)
            if stays:
                late = f"{'; '.join(problems)}; {stays}"
                self.say(f"operation {key}: {late}")
                problems = self._watch(row, probing)
        if not problems:
            self._finish(key, "confirmed", stays and late)
            return
        if stays:
            self._finish(key, UNCONFIRMED, f"{'; '.join(problems)}, and as long again; {stays}")
            return
        self._restore_definition(key, row, problems)
        self._roll_back(key, self.follow().operations[key])

    def _stand_still(
        self, key: str, row: OperationRecord, state: State, probing: Probing
    ) -> OperationRecord:
        """Stop all; as soon as one stands still, settle what was under way on the old options and
        snapshot its checkpoint. One commit then writes that down and lifts the holds, while the
        probe with the new options is under way and the starts are made ready; none goes off before
        the commit."""
        snapshots: dict[str, int] = {}
        before = altered(state, row, back=True)

        def take(item_id: str) -> None:
            self.alive()
            checkpoint = self.supervisor.checkpoint(state, item_id)
            if checkpoint.query_id is None:
                return
            self._settle(before, item_id, checkpoint)
            snapshots[item_id] = Snapshots(checkpoint).take(f"operation {key}", active=()).number

        self.supervisor.stop(row.dependents, state, then=take)
        probing.ask(state, _awaited(state, row))
        row = msgspec.structs.replace(
            row, snapshots=dict(sorted(snapshots.items())), detail={**row.detail, "phase": STARTED}
        )

        def put(changes: Changes, _: State) -> None:
            changes.put("operation", key, row)
            _lift(changes, key, row)

        with self.supervisor.ports.threads.pool(1, "written") as pool:
            written = pool.submit(self._commit, put, "snapshot", altered_item(state, row))

            def known() -> Mapping[str, Upstream]:
                written.result()
                return probing.upstreams()

            self._start(state, _awaited(state, row), known)
        written.result()
        return row

    def _start(self, state: State, item_ids: Collection[str], known: Known) -> set[str]:
        """Begin to start queries, sources first; returns those that have to wait for the ids of
        their source's topics."""
        late = {item_id for item_id in item_ids if not input_known(state, item_id)}
        for wave in dependencies.topological(state, set(item_ids) - late):
            self.supervisor.start(state, wave, known=known)
        return late

    def _settle(self, state: State, item_id: str, checkpoint: Checkpoint) -> None:
        """Settle an uncommitted batch where the sinks can tell; else it stays and is run again.

        A batch that can neither be finished nor removed (the old broker is gone) stays with its
        entry: the same range is read on the new options, by the same upstream.
        """
        if checkpoint.state().kind != "uncommitted":
            return
        try:
            spec = self.supervisor.spec(state, item_id)
            query_id = checkpoint.query_id or ""
            sinks = self.supervisor.engine.last_batch(spec, query_id)
            decision = settlement(
                checkpoint, sinks=sinks, source_alive=True,
                unknown=() if sinks else ("the destination",),
            )
            perform(checkpoint, decision, active=())
        except CatalogMigrateError:
            return  # the entry is valid as it stands: the next start runs exactly that batch

    def _watch(self, row: OperationRecord, probing: Probing) -> list[str]:
        """Start all and wait until each is healthy; what is wrong with those that are not.

        Healthy is a first progress and a probe with the new options, asked since the stop; both
        are awaited side by side. The limit begins anew while all that is waited for is the first
        batch of queries whose tasks get on: an outage's backlog takes longer than any limit.
        """
        supervisor, clock = self.supervisor, self.supervisor.clock
        worked: dict[str, int] = {}
        deadline = clock.monotonic() + row.limit
        state = self.follow()
        waiting = _awaited(state, row)
        probing.ask(state, waiting)
        late = self._start(state, waiting, probing.upstreams)
        again = 0.0
        while waiting:
            self.alive()
            supervisor.collect()
            probed = probing.verdicts()
            now = clock.monotonic()
            if late:
                state = self.follow()
                late = {item_id for item_id in late if not input_known(state, item_id)}
            for item_id in sorted(waiting - late):
                each = supervisor.managed.setdefault(item_id, Managed(item_id))
                query = each.query
                if query is None and each.starting is None and each.next_try <= now:
                    supervisor.start(state, [item_id])
                elif query is not None and query.progress() is not None and query.active:
                    verdict = probed.get(item_id)
                    if verdict is not None and verdict.ok:
                        waiting.discard(item_id)
            final = {each for each in waiting if each in probed and probed[each].final}
            if final:  # the others were not given their time, so nothing is said of them
                waiting = final
                break
            if waiting and now >= deadline:
                healthy = {each for each in waiting if each in probed and probed[each].ok}
                if healthy - late != waiting or not _get_on(
                    [supervisor.managed[item_id] for item_id in sorted(waiting)], worked
                ):
                    break
                deadline = now + row.limit
            bad = {each for each in waiting if each in probed and not probed[each].ok}
            if bad and now >= again and probing.ask_again(state, bad):
                again = now + PROBE_AGAIN
            if waiting:
                clock.sleep(_LOOK)
        return [
            self._complaint(state, row, item_id, probing.verdicts()) for item_id in sorted(waiting)
        ]

    def _probe(
        self, state: State, item_ids: Sequence[str]
    ) -> tuple[dict[str, Verdict], dict[str, Upstream]]:
        """The first thing that is wrong with each query's access, else that all is well; and whom
        each one reaches."""
        verdicts, reached = probe_queries(
            state, item_ids, ports=self.supervisor.ports
        )
        found: dict[str, Verdict] = {}
        for verdict in verdicts:
            if verdict.item_id not in found or found[verdict.item_id].ok:
                found[verdict.item_id] = verdict
        return found, reached

    def _complaint(
        self, state: State, row: OperationRecord, item_id: str, probed: Mapping[str, Verdict]
    ) -> str:
        name = dependencies.display(state, item_id)
        each = self.supervisor.managed.get(item_id)
        verdict = probed.get(item_id)
        if each is not None and each.error:
            return f"{name}: {each.error}"
        if verdict is not None and not verdict.ok:
            return f"{name}: {verdict.message}"
        return f"{name}: made no progress in {row.limit:.0f} s"

    # -- setting back --------------------------------------------------------------------------

    def _nothing_to_go_back_to(self, row: OperationRecord) -> str:
        """Why the new definition stays though not every query is healthy, in words; empty when the
        old one may come back.

        Both are probed now: a definition that answers does not give way to one that does not.
        """
        state = self.follow()
        awaited = sorted(_awaited(state, row))
        new, _ = self._probe(state, awaited)
        if not all(verdict.ok for verdict in new.values()):
            return ""
        self.alive()
        old, _ = self._probe(altered(state, row, back=True), awaited)
        dead = [each for _, each in sorted(old.items()) if not each.ok]
        if not dead:
            return ""
        said = f"{dead[0].name}: {dead[0].message}"
        return f"the new definition answers and stays, the old one does not answer ({said})"

    def _restore_definition(self, key: str, row: OperationRecord, problems: Sequence[str]) -> None:
        """Commit the old definition again, unless somebody has changed it since."""

        def put(changes: Changes, current: State) -> None:
            if self._on_after(current, row):
                redefine(changes, current, row.target, row.before, row.links_before)
            detail = {**row.detail, "phase": ROLLING_BACK, "reason": "; ".join(problems)}
            changes.put("operation", key, msgspec.structs.replace(row, detail=detail))

        reason = "; ".join(problems)
        self._commit(put, "set back", f"{altered_item(self.follow(), row)}: {reason}")
        self.say(f"operation {key}: the old definition is committed again: {reason}")

    def _roll_back(self, key: str, row: OperationRecord) -> None:
        state = self.follow()
        self.supervisor.stop(row.dependents, state, drain=min(5.0, self.supervisor.drain))
        for item_id, number in sorted(row.snapshots.items()):
            self.alive()
            if item_id in state.items:
                self._restore(state, item_id, number)
        self._commit(
            lambda changes, _: _lift(changes, key, row), "lift holds", altered_item(state, row)
        )
        with Probing(self._probe, self.supervisor.ports.threads) as probing:
            problems = self._watch(row, probing)
        reason = row.detail.get("reason", "")
        if problems:
            self._finish(
                key, "failed",
                f"{reason}; the old definition is back, and does not work either: "
                + "; ".join(problems),
            )
        else:
            self._finish(key, "set_back", reason)

    def _restore(self, state: State, item_id: str, number: int) -> None:
        """Give a query its snapshot back; refused, and left out, when a sink has a newer batch."""
        checkpoint = self.supervisor.checkpoint(state, item_id)
        try:
            spec = self.supervisor.spec(state, item_id)
            sinks = self.supervisor.engine.last_batch(spec, checkpoint.query_id or "")
            if sinks:  # else the destination cannot say what it has, and the checkpoint stays
                Snapshots(checkpoint).restore(number, sinks_latest=sinks, active=())
        except CatalogMigrateError:
            return  # what cannot be proven is not restored; the checkpoint is valid as it stands

    # -- the row -------------------------------------------------------------------------------

    def _finish(
        self, key: str, final: str, reason: str, *, verdicts: Sequence[Verdict] = ()
    ) -> None:
        def put(changes: Changes, current: State) -> None:
            row = current.operations[key]
            detail = {name: text for name, text in row.detail.items() if name != "phase"}
            if reason:
                detail["reason"] = reason
            for number, verdict in enumerate(verdicts):
                detail[f"finding {number:03d}"] = str(verdict)
            changes.put(
                "operation", key, msgspec.structs.replace(row, state=final, detail=detail)
            )
            for hold_key, hold in current.holds.items():
                if hold.holder == f"operation:{key}":
                    changes.delete("hold", hold_key)
            changes.merge(forgotten(current))

        state = self.follow()
        told = "; ".join(filter(None, (reason, *map(str, verdicts))))
        ended = f"{altered_item(state, state.operations[key])}{': ' * bool(told)}{told}"
        self._commit(put, final, ended)
        self.say(f"operation {key}: {final}, {ended}")

    def _commit(
        self, put: Callable[[Changes, State], None], kind: str, reason: str
    ) -> State:
        return self.supervisor.commit(put, kind, reason)

    def _on_after(self, state: State, row: OperationRecord) -> bool:
        item = state.items.get(row.target)
        return item is not None and row.after is not None and _same(item.definition, row.after)

    def _on_before(self, state: State, row: OperationRecord) -> bool:
        item = state.items.get(row.target)
        return item is not None and row.before is not None and _same(item.definition, row.before)


def _get_on(waiting: Sequence[Managed], worked: dict[str, int]) -> bool:
    """Whether it is worth while to wait on: a query gets on, and no other one has failed.

    One whose tasks have not begun may only wait for the cores that the others have.
    """
    getting_on = [each for each in waiting if _gets_on(each, worked)]
    return bool(getting_on) and all(each in getting_on or not each.failures for each in waiting)


def _gets_on(each: Managed, worked: dict[str, int]) -> bool:
    """Whether the tasks of a query have done more than they ever had; ``worked`` is kept here.

    Work that a restart only does again does not count, so no query that fails waits for ever.
    """
    if not each.active or each.query is None:
        return False
    before, now = worked.get(each.item_id, 0), each.query.worked()
    worked[each.item_id] = max(before, now)
    return now > before


def _lift(changes: Changes, key: str, row: OperationRecord) -> None:
    """Take an operation's holds away, nobody else's."""
    for item_id in row.dependents:
        changes.delete("hold", f"{item_id}/operation:{key}/1")


def _same(one: ObjectDefinition, other: ObjectDefinition) -> bool:
    """Whether two definitions say the same beside name and comment, which restart nothing."""
    return one.external == other.external and one.columns == other.columns


def _awaited(state: State, row: OperationRecord) -> set[str]:
    """The queries that an operation starts again and waits for.

    A sink waits for its source's topic ids; one whose source does not run is not waited for.
    """
    started = {
        item_id for item_id in row.dependents
        if item_id in state.items and not _held_by_others(state, item_id)
    }
    return {
        item_id for item_id in started
        if input_known(state, item_id) or state.items[item_id].links.get("reads") in started
    }


def _held_by_others(state: State, item_id: str) -> bool:
    return any(
        hold.item_id == item_id and not hold.holder.startswith("operation:")
        for hold in state.holds.values()
    )


def altered_item(state: State, row: OperationRecord) -> str:
    """What an operation alters, as ``connection default.c``; by its old name once it is gone."""
    item = state.items.get(row.target)
    definition = item.definition if item is not None else row.before
    assert definition is not None
    return f"{definition.kind} {definition.item_name}"


def altered(state: State, row: OperationRecord, *, back: bool = False) -> State:
    """The state as it would be with the operation's new (or, ``back``, old) definition."""
    changes = Changes()
    definition, links = (
        (row.before, row.links_before) if back else (row.after, row.links_after)
    )
    redefine(changes, state, row.target, definition, links)
    return state.changed(state.version, changes.effective(state))


def redefine(
    changes: Changes, state: State, item_id: str, definition: ObjectDefinition | None,
    links: Mapping[str, str],
) -> None:
    """Put an altered item; its present name and comment stay, they may have changed since."""
    item = state.items.get(item_id)
    if item is None or definition is None:
        return
    kept = msgspec.structs.replace(
        definition, schema=item.definition.schema, name=item.definition.name,
        comment=item.definition.comment,
    )
    uses = (set(item.uses) - set(item.links.values())) | set(links.values())
    changes.put(
        "item", item_id,
        msgspec.structs.replace(
            item, definition=kept, links=dict(links), uses=tuple(sorted(uses))
        ),
    )
    key = identity_text(kept.identity)
    changes.put(
        "mapping", key,
        msgspec.structs.replace(state.mappings[key], definition_hash=definition_hash(kept)),
    )
    changes.raise_serial()


def submit(
    log_commit: Callable[[Callable[[State], Changes | None]], State], row: OperationRecord, key: str
) -> State:
    """Write an operation's first row; CommitConflict when another one is at work on its items."""
    from catalog_migrate.catalog.errors import CommitConflict

    def opened(state: State) -> Changes:
        for other_key, other in state.operations.items():
            if other.kind != ALTER or other.state not in OPEN:
                continue
            shared = {other.target, *other.dependents} & {row.target, *row.dependents}
            if shared:
                names = ", ".join(sorted(dependencies.display(state, each) for each in shared))
                raise CommitConflict(
                    f"operation {other_key} is at work on {names} ({other.state})",
                    remedy="wait for it (SHOW OPERATIONS), then say it again",
                    operation=other_key,
                )
        item = state.items.get(row.target)
        if item is None or row.before is None or not _same(item.definition, row.before):
            what = "it is gone" if item is None or row.before is None else (
                dependencies.changed_options(row.before, item.definition)
            )
            raise CommitConflict(
                f"{dependencies.display(state, row.target)} was changed by somebody else "
                f"meanwhile: {what}",
                remedy="look at it (SHOW CREATE), then say it again",
            )
        changes = Changes()
        changes.put("operation", key, row)
        return changes

    return log_commit(opened)


def forgotten(state: State, *, keep: int = KEPT) -> Changes:
    """The changes that forget all but the newest ended ALTERs; others stay on record."""
    changes = Changes()
    ended = sorted(
        key for key, row in state.operations.items()
        if row.kind == ALTER and row.state not in OPEN
    )
    for key in ended[:-keep]:
        changes.delete("operation", key)
    return changes


