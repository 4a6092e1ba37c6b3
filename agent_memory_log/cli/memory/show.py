"""``amlog memory show``: one memory, with all there is to know of it."""

from __future__ import annotations

from datetime import UTC, datetime

from agent_memory_log.cli.memory.finding import existing
from agent_memory_log.cli.memory.options import Kind, RecordName, Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.views import evidence_name, name_of, record_map, stars, time_text, words
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import DIM, Output
from agent_memory_log.memory import Principal, Record


def show(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Show one memory whole.

    A key means the one that is active; an id means that one, whatever became of it. With --json: as an item of amlog
    memory list.
    """
    found = run_async(_show(store, principal_of(tenant, user, scopes), record, kind))
    output = Output()
    if as_json:
        output.json(record_map(found))
        return
    write_heading(output, found)
    rows = {
        "sure": f"{found.confidence:.1%}",
        "important": f"{stars(output, found)}  {found.importance:g}",
        "source": f"{found.source.kind} {found.source.id}".rstrip() + f"  reliability {found.source.reliability:g}",
        "evidence": ", ".join(evidence_name(one) for one in found.evidence),
        "entities": ", ".join(found.entities),
        "tags": ", ".join(found.tags),
        "links": ", ".join(f"{link.type} {link.target}" for link in found.links),
        "valid": _valid(found),
        "created": time_text(found.created) or "",
        "updated": time_text(found.updated) or "",
        "id": found.id,
    }
    for title, text in rows.items():
        if text:
            output.hanging([(f"  {title:<10} ", DIM)], text)


def write_heading(output: Output, record: Record) -> None:
    """Write the line above all that is said of a record."""
    name = name_of(record)
    details = [record.kind, f"scope {record.scope}", *([record.status] if record.status != "active" else [])]
    output.heading(f"{name}: {words(record)}" if name else words(record), ", ".join(details))


def _valid(record: Record) -> str:
    parts = [f"from {time_text(record.valid_from)}"] if record.valid_from is not None else []
    left = record.ttl_left_days(datetime.now(UTC))
    if left is not None:
        parts.append(f"until {time_text(record.valid_until)}, {left:,} days left")
    return " ".join(parts)


async def _show(url: str | None, principal: Principal, name: str, kind: str | None) -> Record:
    async with open_memory(url, principal) as memory:
        return await existing(memory, name, kind)
