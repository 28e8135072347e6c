"""The plan file: canonical bytes with a hash, and why a plan no longer fits the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from catalog_migrate.errors import EditedPlan, StalePlan, UnsupportedFormat
from catalog_migrate.model.names import number_of
from catalog_migrate.planner.plan import PLAN_FORMAT, Plan, PointOfNoReturn, point_of_no_return
from catalog_migrate.planner.policy_evaluation import USERS_DECISIONS

if TYPE_CHECKING:
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.release.release import Release

_UNHASHED = ("plan_hash", "tool_version", "validations", "bound", "shipments",
             "point_of_no_return", "fenced_out", "unparsed", "locks_out", "unproven",
             "replaced", "users", "graph", "details_hash")
# what becomes of bundled connections depends on users, who may ALTER them after the approval;
# a plan bound by Spark's analyser is the same plan: approving either approves both; whether a
# release may go back is asked again, and answered by the flag of whoever applies it; users' objects
# are others by then, and judged again
_UNHASHED_IN_CHANGES = (
    "rows", "bytes", "files", "seconds", "copied_because", "before", "after"
)
# definitions are covered by the manifest hash; a directory and its manifest spell them differently


_SINCE = 4
"""Minor of the first format with definitions, a graph, and a hash of both."""


def plan_hash(plan: Plan) -> str:
    """sha256 (hex) of the canonical plan without sizes, definitions, tool version and address."""
    changes = tuple(replace(change, before=None, after=None) for change in plan.changes)
    return hash_document(msgspec.to_builtins(replace(plan, changes=changes, graph=())))


def hash_document(document: dict[str, Any]) -> str:
    """Hash a plan as it is read, unknown keys included: a reader need not know them."""
    canonical = {key: value for key, value in document.items() if key not in _UNHASHED}
    canonical.update(_without_users(document))
    canonical["base"] = {
        key: value for key, value in document["base"].items() if key != "catalog"
    }
    canonical["changes"] = [
        {key: value for key, value in change.items() if key not in _UNHASHED_IN_CHANGES}
        for change in document["changes"]
    ]
    return hashlib.sha256(msgspec.json.encode(canonical, order="sorted")).hexdigest()


def _without_users(document: dict[str, Any]) -> dict[str, Any]:
    """The keys of a plan as they are without the approvals and decisions on users' objects."""
    users = [each for each in document.get("users") or () if each["outcome"] == "breaks"]
    if not users:
        return {}
    names = {each["name"] for each in users}
    keys = {
        f"function:{each['name']}" if each["kind"] == "function" else each["name"]
        for each in users
    }
    blocked = [
        entry for entry in document["blocked"]
        if entry["code"] not in USERS_DECISIONS or entry["name"] not in keys
    ]
    return {
        "approved": [name for name in document["approved"] if name not in names],
        "blocked": blocked,
        "applyable": document["applyable"] if len(blocked) == len(document["blocked"])
        else not blocked,
    }


def _hash_details(document: dict[str, Any]) -> str:
    """Hash what a plan shows beside what its hash covers: definitions, sizes, who uses what."""
    changes = [
        [change.get(key) for key in _UNHASHED_IN_CHANGES] for change in document["changes"]
    ]
    details = [document.get("graph", ()), changes]
    return hashlib.sha256(msgspec.json.encode(details, order="sorted")).hexdigest()


def same_plan(approved: Plan, plan: Plan) -> bool:
    """Return whether the plan that was made now is the approved one.

    A file of format 1.0 names the steps of names alone, in an order of its own: they follow from
    the rest, which is compared. One of format 1.1 has the program, which has to be the same.
    """
    minor = _minor(approved.format_version)
    if minor >= _minor(PLAN_FORMAT):
        return approved.plan_hash == plan.plan_hash
    bare: dict[str, Any] = {"format_version": PLAN_FORMAT} | ({} if minor else {"steps": ()})
    return plan_hash(replace(approved, **bare)) == plan_hash(replace(plan, **bare))


def encode_plan(plan: Plan) -> bytes:
    """Encode a plan as a file: indented JSON, keys in their documented order, a line feed.

    A hash of the details that the plan's own leaves out is added, so that edited ones are refused.
    """
    document = msgspec.to_builtins(plan)
    document["details_hash"] = _hash_details(document)
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_plan(data: bytes) -> Plan:
    """Read a plan file.

    Raises :class:`EditedPlan` when it is not a plan or was changed by hand, and
    :class:`UnsupportedFormat` when it was written by a newer tool of another major format.
    """
    again = "make it again with `catalog-migrate plan --out FILE`"
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EditedPlan(f"not a plan file: {error}", remedy=again) from error
    if not isinstance(document, dict) or not isinstance(document.get("format_version"), str):
        raise EditedPlan("not a plan file: it has no format_version", remedy=again)
    version = document["format_version"]
    if version.partition(".")[0] != PLAN_FORMAT.partition(".")[0]:
        raise UnsupportedFormat(
            f"the plan has format {version}, this tool reads {PLAN_FORMAT}",
            remedy="use the tool that made the plan, or plan again with this one",
            found=version,
            known=PLAN_FORMAT,
        )
    try:
        plan = msgspec.convert(document, Plan)
    except msgspec.ValidationError as error:
        if _minor(version) > _minor(PLAN_FORMAT):
            raise UnsupportedFormat(
                f"the plan has format {version}, this tool reads {PLAN_FORMAT}: {error}",
                remedy="use the tool that made the plan, or plan again with this one",
                found=version, known=PLAN_FORMAT,
            ) from error
        raise EditedPlan(f"not a plan file: {error}", remedy=again) from error
    actual = hash_document(document)
    if actual != plan.plan_hash:
        raise EditedPlan(
            f"the plan was changed after it was made: its hash is {actual}, "
            f"the file says {plan.plan_hash}",
            remedy=again,
            expected=plan.plan_hash,
            actual=actual,
        )
    details = _hash_details(document)
    if plan.details_hash != details and (plan.details_hash or _has_details(version)):
        raise EditedPlan(
            "the plan was changed after it was made: its definitions, sizes or its graph are not"
            " those that it was saved with",
            remedy=again, expected=plan.details_hash, actual=details,
        )
    said, follows = _bare(plan.point_of_no_return), _bare(point_of_no_return(plan.changes))
    if said != follows:
        raise EditedPlan(
            f"the plan was changed after it was made: its point of no return is {follows},"
            f" the file says {said}",
            remedy=again, expected=str(follows), actual=str(said),
        )
    if not _has_details(version):  # what is in a file of then was not in it when it was made
        plan = replace(plan, graph=(), changes=tuple(
            replace(change, before=None, after=None, copied_because=()) for change in plan.changes
        ))
    return replace(plan, details_hash="")


def _has_details(version: str) -> bool:
    """Whether files of this format have definitions, and a hash of them."""
    return _minor(version) >= _SINCE


def _minor(version: str) -> int:
    number = version.partition(".")[2]
    return int(number) if number.isdecimal() else 0


def _bare(point: PointOfNoReturn | None) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """A point of no return without its words, which may be another version's."""
    return None if point is None else (point.after, point.names, point.kept)


AGAIN = "run `catalog-migrate plan` again and approve the new plan"
AGAIN_BACK = "run `catalog-migrate rollback --to {} --out FILE` again and approve the new plan"


def stale(plan: Plan, baseline: Baseline, release: Release) -> StalePlan:
    """The refusal of an approved plan that is not the one of this catalog and this release."""
    return StalePlan(
        "the plan does not describe this catalog and this release any more",
        changes=(*other_target(plan, release), *explain_staleness(plan, baseline)),
        remedy=AGAIN if plan.target.serial is msgspec.UNSET else AGAIN_BACK.format(
            plan.target.serial
        ),
    )


def other_target(plan: Plan, release: Release) -> tuple[str, ...]:
    """How the release at hand is not the one that the plan was made for; empty when it is."""
    target = plan.target
    if target.manifest_hash in (None, release.manifest_hash):
        return ()
    if target.release != release.name:
        return (f"the plan was made for release {target.release}, this is {release.name}",)
    return (f"the contents of release {release.name} changed since the plan was made",)


def explain_staleness(plan: Plan, baseline: Baseline) -> tuple[str, ...]:
    """Return what changed since the plan was made; empty when the plan fits the catalog."""
    base, now = plan.base, baseline.base
    if base.lineage is None or base.serial is None:
        return ("the plan compares two releases; it was not made for a catalog",)
    if base.lineage != now.lineage:
        return (f"the plan was made for catalog {base.lineage}, this is {now.lineage}",)
    if base.serial == now.serial:
        return ()
    lines = [f"the catalog is at serial {now.serial}, the plan was made at {base.serial}"]
    if base.release != now.release:
        lines.append(
            f"release {now.release or 'none'} is in force, it was {base.release or 'none'}"
        )
    lines.extend(_list_moved_objects(plan, baseline))
    return tuple(lines)


def _list_moved_objects(plan: Plan, baseline: Baseline) -> list[str]:
    by_item = {held.item_id: held for held in baseline.objects.values()}
    planned = {
        change.item_id: change for change in plan.changes
        if change.old_id is not None and change.item_id is not None
    }
    lines = _newcomers(plan, baseline, planned)
    for item_id, change in planned.items():
        held = by_item.get(item_id)
        earlier = change.old_name or change.name
        if held is None:
            lines[earlier] = f"{earlier} was dropped since (it was {change.old_id})"
        elif held.global_id != change.old_id:
            lines[earlier] = (
                f"{held.definition.key} was migrated since "
                f"({held.global_id}, it was {change.old_id})"
            )
    return [lines[name] for name in sorted(lines)]


def _newcomers(plan: Plan, baseline: Baseline, planned: Collection[str]) -> dict[str, str]:
    """What has got, meanwhile, a name that the plan creates, or an id that it hands out."""
    names = {str(held.definition.key) for held in baseline.objects.values()}
    first = min((
        number_of(change.new_id) for change in plan.changes
        if change.new_id is not None and change.new_id != change.old_id
    ), default=None)
    handed_out = (
        held for held in baseline.objects.values()
        if first is not None and number_of(held.global_id) >= first
        and held.item_id not in planned
    )
    return {
        str(held.definition.key):
        f"{held.definition.key} was created or migrated since ({held.global_id})"
        for held in handed_out
    } | {
        change.name: f"{change.name} was created since" for change in plan.changes
        if change.action == "create" and change.old_id is None and change.name in names
    }
