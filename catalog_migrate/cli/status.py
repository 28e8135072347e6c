"""``status``: what is in force and what is pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from catalog_migrate.api.configured import open_catalog
from catalog_migrate.cli import options
from catalog_migrate.cli.output import as_json, emit

if TYPE_CHECKING:
    from catalog_migrate.api import Status

_WORK_SHOWN = 20
_SESSIONS_SHOWN = 10
_UNSAFE_SHOWN = 3


@click.command("status")
@options.catalog
@options.serial
@options.format_("text", "json")
@options.detailed
def command(serial: int | None, format_: str, detailed_exitcode: bool) -> int:
    """Say which release is in force, who holds the lease, what is pending and what failed.

    \b
    Example:
      catalog-migrate status --catalog catalog --format json
      catalog-migrate status --catalog catalog --serial 3
    """
    opened = open_catalog(options.settings())
    found = opened.status(serial)
    past = serial is not None and serial != opened.state().serial
    emit(as_json(document(found)) if format_ == "json" else text(found, past=past))
    return 2 if detailed_exitcode and found.pending else 0


def document(status: Status) -> dict[str, object]:
    """The status for programs; ``pending`` is 0 when reconciled."""
    lease = status.lease
    return {
        "release": status.release,
        "serial": status.serial,
        "lineage": status.lineage,
        "pending": status.pending,
        "work": list(status.work),
        "failure": status.failure,
        "lease": None if lease is None or not lease.holder else {
            "holder": lease.holder, "host": lease.host, "pid": lease.pid, "since": lease.since,
            "epoch": lease.epoch, "gone": status.holder_ended,
        },
        "objects": status.objects,
        "unfilled": list(status.unfilled),
        "warehouse": status.warehouse,
        "history": [
            {"release": name, "serial": serial, "in_force": in_force}
            for name, serial, in_force in status.history
        ],
        "unsafe": [
            {
                "operation": each.operation, "kind": each.kind, "state": each.state,
                "at": each.at, "sources": each.sources, "partitions": each.partitions,
                "doubled": each.doubled, "skipped": each.skipped, "undoes": each.undoes,
                "reason": each.reason,
            }
            for each in status.unsafe
        ],
        "sessions": [
            {
                "id": key, "release": row.release, "serial": row.serial, "holder": row.holder,
                "host": row.host, "pid": row.pid, "since": row.since,
                "processes": row.folded or 1,
            }
            for key, row in status.sessions
        ],
        "still": [
            {"kind": each.kind, "name": each.name, "state": each.state,
             "reasons": list(each.reasons), "next": each.next}
            for each in status.still
        ],
        "gone": [
            {"name": each.name, "reason": each.reason, "next": each.remedy}
            for each in status.gone
        ],
    }


def text(status: Status, *, past: bool = False) -> str:
    """The status for people; of a ``past`` serial only what was in force, as nothing is to do."""
    lease = status.lease
    held = "free"
    if lease is not None and lease.holder:
        held = f"{lease.holder} on {lease.host} (process {lease.pid}) since {lease.since}"
        if status.holder_ended:
            held += "; that process is gone: whoever needs the lease next takes it"
    lines = [
        f"release    {status.release or 'none'}",
        f"serial     {status.serial}",
        f"lineage    {status.lineage}",
        f"objects    {status.objects:,}",
        f"warehouse  {status.warehouse}",
    ]
    if past:
        return "\n".join(lines) + "\n"
    lines += [
        f"lease      {held}",
        f"pending    {status.pending or 'nothing: reconciled'}",
    ]
    lines += [f"  {entry}" for entry in status.work[:_WORK_SHOWN]]
    if len(status.work) > _WORK_SHOWN:
        lines.append(f"  … and {len(status.work) - _WORK_SHOWN:,} more")
    if status.failure:
        lines.append("failing step")
        lines += [f"  {name}: {value}" for name, value in status.failure.items()]
    if status.unfilled:
        lines.append(f"unfilled   {', '.join(status.unfilled)}")
    for lost in status.gone:
        lines.append(f"gone       {lost.name}: {lost.reason}")
        lines.append(f"             next: {lost.remedy}")
    for each in status.still:
        lines.append(f"still      {each.kind} {each.name}: {each.state}")
        lines += [f"             {reason}" for reason in each.reasons if reason]
        lines.append(f"             next: {each.next}")
    for seen in status.unsafe[-_UNSAFE_SHOWN:]:
        what = f"undo of {seen.undoes}" if seen.undoes else seen.kind
        lines.append(f"unsafe     operation {seen.operation} on {seen.sources}: {seen.reason}")
        lines.append(
            f"             {what}, {seen.state}, {seen.at}: {seen.partitions} partitions, "
            f"{seen.doubled} doubled, {seen.skipped} skipped"
        )
        lines.append(f"             seen? catalog-migrate unsafe acknowledge {seen.operation}")
    if len(status.unsafe) > _UNSAFE_SHOWN:
        older = len(status.unsafe) - _UNSAFE_SHOWN
        lines.append(f"  … and {older} older that nobody has seen: catalog-migrate unsafe list")
    if status.sessions:
        lines.append(f"sessions   {sum(row.folded or 1 for _, row in status.sessions)}")
    for key, row in status.sessions[:_SESSIONS_SHOWN]:
        what = f"{row.folded} processes" if row.folded else f"{row.holder} on {row.host}"
        lines.append(
            f"  {key}: {what}, release {row.release}, serial {row.serial}, since {row.since}"
        )
    if len(status.sessions) > _SESSIONS_SHOWN:
        lines.append(f"  … and {len(status.sessions) - _SESSIONS_SHOWN} more rows")
    if status.pending and not status.gone:
        lines.append("next       catalog-migrate bootstrap, or start the application")
    return "\n".join(lines) + "\n"
