"""The plan file: canonical bytes with a hash, a contract between versions of this tool."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from catalog_migrate.errors import EditedPlan, UnsupportedFormat
from catalog_migrate.planner.irreversible import point_of_no_return
from catalog_migrate.planner.plan import PLAN_FORMAT, Plan, PointOfNoReturn

_UNHASHED = ("plan_hash", "tool_version", "validations", "bound", "shipments",
             "point_of_no_return", "fenced_out", "unparsed")
# what becomes of shipped connections depends on users, who may ALTER them after the approval;
# a plan bound by Spark's analyser is the same plan: approving either approves both; whether a
# release may go back is asked again, and answered by the flag of whoever applies it
_UNHASHED_IN_CHANGES = ("rows", "bytes")


def plan_hash(plan: Plan) -> str:
    """sha256 (hex) of the canonical plan without rows, bytes, tool version and address."""
    return _hash_of(msgspec.to_builtins(plan))


def _hash_of(document: dict[str, Any]) -> str:
    """The hash of a plan as read, unknown keys included: a reader need not know them."""
    canonical = {key: value for key, value in document.items() if key not in _UNHASHED}
    canonical["base"] = {
        key: value for key, value in document["base"].items() if key != "catalog"
    }
    canonical["changes"] = [
        {key: value for key, value in change.items() if key not in _UNHASHED_IN_CHANGES}
        for change in document["changes"]
    ]
    return hashlib.sha256(msgspec.json.encode(canonical, order="sorted")).hexdigest()


def encode_plan(plan: Plan) -> bytes:
    """A plan as a file: indented JSON, keys in their documented order, ending in a line feed."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


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
        raise EditedPlan(f"not a plan file: {error}", remedy=again) from error
    actual = _hash_of(document)
    if actual != plan.plan_hash:
        raise EditedPlan(
            f"the plan was changed after it was made: its hash is {actual}, "
            f"the file says {plan.plan_hash}",
            remedy=again,
            expected=plan.plan_hash,
            actual=actual,
        )
    said, follows = _bare(plan.point_of_no_return), _bare(point_of_no_return(plan.changes))
    if said != follows:
        raise EditedPlan(
            f"the plan was changed after it was made: its point of no return is {follows},"
            f" the file says {said}",
            remedy=again, expected=str(follows), actual=str(said),
        )
    return plan


def _bare(point: PointOfNoReturn | None) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """A point of no return without its words, which may be another version's."""
    return None if point is None else (point.after, point.names, point.kept)
