"""``amlog memory audit`` and ``evolution``: list the changes of a memory, and tell the story of one record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.finding import existing
from agent_memory_log.cli.memory.options import (
    Kind,
    RecordName,
    Scopes,
    Tenant,
    User,
    open_memory,
    owner_text,
    principal_of,
)
from agent_memory_log.cli.memory.show import write_heading
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import record_map, time_text
from agent_memory_log.cli.options import AsJson, StoreUrl, instant, run_async
from agent_memory_log.cli.output import DIM, Column, Output, Segment, note
from agent_memory_log.memory import AuditEvent, Evolution
from agent_memory_log.memory.operations import AuditEvents

_COLUMNS = (Column("time (UTC)", DIM), Column("change"), Column("kind"), Column("key"), Column("by"), Column("why"))


def audit(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    since: Annotated[str | None, option(AuditEvents, "since", "--since", metavar="TIME")] = None,
    until: Annotated[str | None, option(AuditEvents, "until", "--until", metavar="TIME")] = None,
    limit: Annotated[int, option(AuditEvents, "limit", "--limit", metavar="N")] = default(AuditEvents, "limit"),
    as_json: AsJson = False,
) -> None:
    """List the changes of a memory with their sources and reasons, the newest first.

    Changes of forgotten memories are not listed.

    With --json: a list of objects with time, scope, seq, action, records (their ids), kind, key, by and reason.
    """
    principal = principal_of(tenant, user, scopes)
    begin = None if since is None else instant("--since", since)
    end = None if until is None else instant("--until", until)

    async def work() -> tuple[AuditEvent, ...]:
        async with open_memory(store, principal) as memory:
            return await memory.audit_events(since=begin, until=end, limit=limit)

    changes = run_async(work())
    output = Output()
    if as_json:
        output.json(msgspec.to_builtins(changes))
    elif changes and output.terminal:
        _write_changes(output, changes)
    elif changes:
        rows = [
            (f"{change.time:%Y-%m-%d %H:%M}", change.action, change.kind, change.key, change.by, change.reason)
            for change in changes
        ]
        output.table(_COLUMNS, rows)
    else:
        note(f"no changes in the memory of {owner_text(principal)}")


def _write_changes(output: Output, changes: Sequence[AuditEvent]) -> None:
    """Write each change for a terminal of any width, without the columns that it leaves empty."""
    width = max(len(change.action) for change in changes)
    for change in changes:
        record = f"{change.kind} {change.key}".rstrip()
        by = f"by {change.by}" if change.by else ""
        time: Segment = (f"{change.time:%Y-%m-%d %H:%M}  ", DIM)
        output.hanging([time, f"{change.action:<{width}}  "], ", ".join(filter(None, (record, by, change.reason))))


def evolution(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Tell the story of a memory: its changes, and those of the memories that it was made from.

    With --json: an object with record (as in amlog memory list), layer, retrievability, stability_days, used_on_days,
    sources (ids) and events. Each event has time, record (the id of its memory) and text.
    """
    principal = principal_of(tenant, user, scopes)

    async def work() -> Evolution | None:
        async with open_memory(store, principal) as memory:
            return await memory.evolution_events((await existing(memory, record, kind)).id)

    story = run_async(work())
    if story is None:  # another process forgot it after it was found
        raise CommandFailed(f"the memory {record!r} was forgotten")
    output = Output()
    if as_json:
        output.json({**msgspec.to_builtins(story), "record": record_map(story.record)})
        return
    write_heading(output, story.record)
    strength = f"{story.retrievability:.0%} remembered, stable for {story.stability_days:,.0f} days"
    output.line("  ", (f"{story.layer.replace('_', ' ')}, {strength}", DIM))
    for event in story.events:
        about = "" if event.record == story.record.id else f"   {event.record}"
        output.line("  ", (f"{time_text(event.time)}  ", DIM), event.text, (about, DIM))
